"""Single mistakes, each with the place and the hint that localisation owes: what ``tools/align.py --inject NAME`` breaks.

Every one was made in earnest by somebody: most are in the guides and checklists that porters read, the others are traps of
these very versions (docs/known_differences.md). A fault changes the Paddle side alone, through the pieces of
``alignment.sides.PaddleSide`` or by replacing one function while it is injected.
"""

# In the order of the steps, which is the order of the list.
# isort: off
from alignment.faults.base import FAULTS, Fault, injected, replaced
from alignment.faults import models, data, metric, loss, updates, training, distributed
# isort: on

__all__ = ["FAULTS", "Fault", "data", "distributed", "injected", "loss", "metric", "models", "replaced", "training", "updates"]
