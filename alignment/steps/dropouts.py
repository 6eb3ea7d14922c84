"""The dropout layers themselves, whose masks are shared in every other comparison."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from alignment.compare import Quantity, judge_equal
from alignment.frameworks.base import Module
from alignment.steps.context import Context


def dropout_profile(context: Context, networks: Mapping[str, Module] | None = None) -> list[Quantity]:
    """Every dropout layer: probability, scaling, identity in evaluation.

    Args:
        context: the two sides.
        networks: a model of each role; with the context's weights where None.

    Returns:
        One row a layer of [p, output for a kept 1 in training, output for 1 in evaluation].
    """
    rows: list[Quantity] = []
    profiles: list[dict[str, np.ndarray]] = []
    for role, side in context.sides.items():
        framework, network = side.framework, networks[role] if networks else context.build(role)
        profile: dict[str, np.ndarray] = {}
        for name, module in framework.modules(network).items():
            layer = framework.layer(module)
            if layer.kind == "dropout":
                p = layer.settings["p"]
                ones = np.ones((64, 256), dtype=np.float32)
                framework.set_training(module, True)
                dropped = framework.call(module, (ones,)).outputs[0]
                framework.set_training(module, False)
                kept = framework.call(module, (ones,)).outputs[0]
                profile[name] = np.array([p, dropped.max(), kept.mean()], dtype=np.float32)
                share = float((dropped == 0).mean())
                if abs(share - p) > 0.03:  # 7 standard deviations of 16,384 draws
                    rows.append(Quantity(f"dropout.{name}.share", []).fail(f"the {role} drops {share:.3f}, p is {p}"))
        profiles.append(profile)
    for name in dict.fromkeys([*profiles[1], *profiles[0]]):
        rows.append(judge_equal(f"dropout.{name}", profiles[0].get(name), profiles[1].get(name)))
    return rows
