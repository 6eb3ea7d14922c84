"""The dropout layers themselves, whose masks are shared in every other comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import numpy as np

from alignment.compare import Quantity, judge_equal
from alignment.comparisons.context import Context
from alignment.frameworks.base import Framework, Module
from alignment.models.observe import dropout_probe
from alignment.strangers import strangers

Profile = dict[str, np.ndarray]


def dropout_profile(context: Context, networks: Mapping[str, Module] | None = None) -> list[Quantity]:
    """Every dropout layer: probability, scaling, identity in evaluation.

    Args:
        context: the two sides.
        networks: a model of each role; with the context's weights where None.

    Returns:
        One row a layer of [p, output for a kept 1 in training, output for 1 in evaluation].
    """
    return rows_of(context, profiles_of(context, networks), networks)


def profiles_of(context: Context, networks: Mapping[str, Module] | None = None) -> dict[str, Profile]:
    """The dropout layers of both roles, without what is mended."""
    profiles: dict[str, Profile] = {}
    mended = tuple(f"{path}." for path in context.mended)
    for role, side in context.sides.items():
        made = dropout_profile_of(side.framework, networks[role] if networks else context.networks.build(role))
        profiles[role] = {name: profile for name, profile in made.items() if not f"{name}.".startswith(mended)}
    return profiles


def rows_of(context: Context, profiles: Mapping[str, Profile], networks: Mapping[str, Module] | None = None) -> list[Quantity]:
    """The verdict on the dropout layers of both roles: see ``dropout_profile``."""
    calls = {}
    if len({frozenset(profile) for profile in profiles.values()}) > 1:  # one layer may be called in several places
        built = {role: networks[role] if networks else context.networks.build(role) for role in context.sides}
        calls = {role: _calls(context, role, network, profiles[role]) for role, network in built.items()}
    return judge_profiles(profiles, context.drops_by_function, calls)


def _calls(context: Context, role: str, network: Module, profile: Profile) -> dict[str, int]:
    """How often each dropout layer is called in one pass; nothing where the model raises."""
    framework = context.sides[role].framework
    modules = framework.modules(network)
    with strangers("port") as raised:  # whatever the port raises, the search says
        inputs = context.fake_inputs(2, small=True)
        made = framework.call(framework.place(network), inputs, watched={name: modules[name] for name in profile}).calls
    if raised.error is not None:
        return {}
    return dict(Counter(key.partition("#")[0] for key in made))


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


def judge_profiles(
    profiles: Mapping[str, Profile], by_function: Collection[str] = (), calls: Mapping[str, Mapping[str, int]] | None = None
) -> list[Quantity]:
    """One row a layer, of the profiles of both roles.

    Layers that no path pairs are paired by what they do. Where a side calls dropouts as functions, one that has no equal has no
    row: whether the same values are dropped is seen in what the models give in training mode.

    Args:
        profiles: of both roles.
        by_function: roles whose models call dropouts as functions.
        calls: by role and path, how often a pass calls each; layers that only one side has are no difference where those that do
            the same are called equally often.
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
        if len(held) == 1 and (held[0][0] == 0 or _called_as_often(held[0], profiles, calls or {})):
            continue  # a layer that drops nothing need not be there, and one that is called twice stands for two
        rows.append(judge_equal(f"dropout.{name}", ours.get(name), theirs.get(name)))
    return rows


def _called_as_often(wanted: np.ndarray, profiles: Mapping[str, Profile], calls: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether both sides call the dropout layers that do one thing equally often."""
    counts = [
        sum(calls.get(role, {}).get(name, 0) for name, found in profile.items() if np.array_equal(found[:3], wanted))
        for role, profile in profiles.items()
    ]
    return min(counts) > 0 and len(set(counts)) == 1
