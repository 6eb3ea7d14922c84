"""Weight normalisation of torch in one form: that of ``torch.nn.utils.weight_norm``, which Paddle has, too."""

from __future__ import annotations

import warnings
from typing import Any

from alignment.frameworks._passes import Module


def held_by_hook(torch: Any, model: Module) -> None:
    """Let the older function compute from ``weight_g`` and ``weight_v`` what ``parametrizations.weight_norm`` computes.

    Each pass computes the same then, and the tensors have the names and the place that Paddle's ``weight_norm`` gives them. What is
    parametrised otherwise, or twice, is left as it is.
    """
    utils = torch.nn.utils
    kind = getattr(utils.parametrizations, "_WeightNorm", None)
    for module in [one for one in model.modules() if kind is not None and utils.parametrize.is_parametrized(one)]:
        for name, made in list(module.parametrizations.items()):
            if len(made) == 1 and type(made[0]) is kind:
                held = {f"{name}_g": made.original0, f"{name}_v": made.original1}
                utils.parametrize.remove_parametrizations(module, name)
                with warnings.catch_warnings(), torch.no_grad():
                    warnings.simplefilter("ignore", FutureWarning)
                    utils.weight_norm(module, name, made[0].dim)
                    for one, value in held.items():
                        getattr(module, one).copy_(value).requires_grad_(value.requires_grad)
