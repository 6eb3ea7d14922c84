"""Everything that a port's module may have written otherwise: a file for each form, behind one ``CallAdapter``."""

from alignment.models.forms import activated, attention, axes, cells, padded, pointwise  # noqa: F401  (the forms register themselves)
from alignment.models.forms.adapter import Adapters, CallAdapter, Order, learned, told, told_back

__all__ = ["Adapters", "CallAdapter", "Order", "learned", "told", "told_back"]
