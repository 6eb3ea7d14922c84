"""The dropout layers themselves, whose masks are shared in every other comparison."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from alignment.compare import Quantity, judge_equal
from alignment.frameworks.base import Framework, Module
from alignment.observe import dropout_probe
from alignment.steps.context import Context

Profile = dict[str, np.ndarray]


def dropout_profile(context: Context, networks: Mapping[str, Module] | None = None) -> list[Quantity]:
    """Every dropout layer: probability, scaling, identity in evaluation.

    Args:
        context: the two sides.
        networks: a model of each role; with the context's weights where None.

    Returns:
        One row a layer of [p, output for a kept 1 in training, output for 1 in evaluation].
    """
    profiles: list[Profile] = []
    for role, side in context.sides.items():
        made = dropout_profile_of(side.framework, networks[role] if networks else context.build(role))
        mended = tuple(f"{path}." for path in context.mended)
        profiles.append({name: profile for name, profile in made.items() if not f"{name}.".startswith(mended)})
    return judge_profiles(dict(zip(context.sides, profiles, strict=True)), context.drops_by_function)


def dropout_profile_of(framework: Framework, network: Module) -> Profile:
    """Of every dropout layer of one side by path: p, output for a kept 1 in training, output for 1 in evaluation, share dropped."""
    profile: Profile = {}
    for name, module in framework.modules(network).items():
        layer = framework.layer(module)
        if layer.kind == "dropout":
            p = layer.settings["p"]
            ones = dropout_probe(layer.settings)
            framework.set_training(module, True)
            dropped = framework.call(module, (ones,)).outputs[0]
            framework.set_training(module, False)
            kept = framework.call(module, (ones,)).outputs[0]
            profile[name] = np.array([p, dropped.max(), kept.mean(), (dropped == 0).mean()], dtype=np.float32)
    return profile


def judge_profiles(profiles: Mapping[str, Profile], by_function: Collection[str] = ()) -> list[Quantity]:
    """One row a layer, of the profiles of both roles.

    Layers that no path pairs are paired by what they do. Where a side calls dropouts as functions, one that has no equal has no
    row: whether the same values are dropped is seen in what the models give in training mode.

    Args:
        profiles: of both roles.
        by_function: roles whose models call dropouts as functions.
    """
    rows: list[Quantity] = []
    for role, profile in profiles.items():
        for name, (p, _, _, share) in profile.items():
            if abs(share - p) > 0.03:  # 7 standard deviations of 16,384 draws
                rows.append(Quantity(f"dropout.{name}.share", []).fail(f"the {role} drops {share:.3f}, p is {p:g}"))
    ours, theirs = ({name: profile[:3] for name, profile in profiles[role].items()} for role in ("port", "reference"))
    for name in [name for name in theirs if name not in ours]:
        twin = next((n for n in ours if n not in theirs and np.array_equal(ours[n], theirs[name])), None)
        if twin is not None:
            ours = {name if n == twin else n: profile for n, profile in ours.items()}
    for name in dict.fromkeys([*theirs, *ours]):
        if by_function and not (name in ours and name in theirs and np.array_equal(ours[name], theirs[name])):
            continue
        held = [side[name] for side in (ours, theirs) if name in side]
        if len(held) == 1 and held[0][0] == 0:
            continue  # a layer that drops nothing need not be there
        rows.append(judge_equal(f"dropout.{name}", ours.get(name), theirs.get(name)))
    return rows
