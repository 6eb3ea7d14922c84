"""The dropout layers themselves, whose masks are shared in every other comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

import numpy as np

from alignment.compare import Quantity, judge_equal
from alignment.comparisons.comparison import Measurement, Value, named
from alignment.comparisons.context import Context
from alignment.finding import Finding
from alignment.frameworks.base import Framework, Module
from alignment.kinds import Kind
from alignment.models.observe import dropout_probe
from alignment.strangers import strangers

Profile = dict[str, np.ndarray]
LAYER, CALLS, BY_FUNCTION = "layer/", "calls/", "by_function"


class Dropouts:
    """Every dropout layer: probability, scaling, identity in evaluation. What is mended is left out.

    Args:
        networks: a model of each role; with the context's weights where None.
    """

    def __init__(self, networks: Mapping[str, Module] | None = None) -> None:
        self.networks = networks

    def measure(self, context: Context, role: str) -> dict[str, Value]:
        """What each layer does, how often a pass calls it, and whether the model calls dropouts as functions."""
        framework, network = context.sides[role].framework, self.networks[role] if self.networks else context.networks.build(role)
        mended = tuple(f"{path}." for path in context.mended)
        profile = {n: one for n, one in dropout_profile_of(framework, network).items() if not f"{n}.".startswith(mended)}
        made: dict[str, Value] = {f"{LAYER}{name}": one for name, one in profile.items()}
        made |= {f"{CALLS}{name}": np.array(count) for name, count in _calls(context, framework, network, profile).items()}
        return made | ({BY_FUNCTION: "yes"} if role in context.drops_by_function or context.networks.drawn.pieces else {})

    def judge(self, port: Measurement, reference: Measurement) -> list[Quantity]:
        """One row a layer of [p, output for a kept 1 in training, output for 1 in evaluation]."""
        sides = {"port": port, "reference": reference}
        calls = {role: {name: int(count) for name, count in named(CALLS, side).items()} for role, side in sides.items()}
        profiles = {role: named(LAYER, side) for role, side in sides.items()}
        return judge_profiles(profiles, [role for role, side in sides.items() if BY_FUNCTION in side], calls)

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        return next(self.findings(port, reference), None)

    def findings(self, port: Measurement, reference: Measurement) -> Iterator[Finding]:
        """The port's layers that are wrong."""
        for row in self.judge(port, reference):
            if not row.passed:
                path = row.name.removeprefix("dropout.").removesuffix(".share")
                kind, words = _wrong_dropout(named(LAYER, port).get(path), named(LAYER, reference).get(path))
                yield Finding("forward", path, kind, words, row.reason)


def _wrong_dropout(ours: np.ndarray | None, theirs: np.ndarray | None) -> tuple[Kind, str]:
    """What is wrong with a layer of the port, by the profiles of both sides."""
    if theirs is None:
        return Kind.LAYER_EXTRA, "the port drops values here, the reference does not"
    if ours is None:
        return Kind.DROPOUT_MISSING, "the port drops no values here, the reference does"
    (p, kept, mean, share), (right, right_kept, _, right_share) = ours.tolist(), theirs.tolist()
    if p != right:
        return Kind.DROPOUT_RATE, f"dropout rate {p:g}, expected {right:g}"
    if abs(share - p) > 0.03 >= abs(right_share - right):
        return Kind.DROPOUT_RATE, f"dropout drops {share:.0%} of the values, expected {right:.0%}"
    if kept == 1 != right_kept and abs(mean - (1 - p)) < 1e-6:
        return Kind.DROPOUT_SCALE, "dropout scales in evaluation mode instead of in training"
    if kept != right_kept:
        return Kind.DROPOUT_SCALE, f"dropout multiplies what it keeps by {kept:.4g} in training, expected {right_kept:.4g}"
    return Kind.UNKNOWN, ""


def _calls(context: Context, framework: Framework, network: Module, profile: Profile) -> dict[str, int]:
    """How often each dropout layer is called in one pass; nothing where the model raises, or has none."""
    if not profile:
        return {}
    modules = framework.modules(network)
    with strangers("port") as raised:  # whatever the port raises, the search says
        framework.set_training(network, False)
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
            ones = dropout_probe(module)
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
        row = judge_equal(f"dropout.{name}", ours.get(name), theirs.get(name))
        if not row.passed and len(held) == 2:
            row.reason = _apart(*held) or row.reason
        rows.append(row)
    return rows


def _apart(ours: np.ndarray, theirs: np.ndarray) -> str:
    """What two layers make of an input of ones, in the mode in which they differ; ``""`` where their settings alone differ."""
    for mode, mine, right in zip(("training", "evaluation mode"), ours[1:], theirs[1:], strict=True):
        if mine != right:
            return f"in {mode} the port multiplies what it keeps by {mine:.4g}, the reference by {right:.4g}"
    return ""


def _called_as_often(wanted: np.ndarray, profiles: Mapping[str, Profile], calls: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether both sides call the dropout layers that do one thing equally often."""
    counts = [
        sum(calls.get(role, {}).get(name, 0) for name, found in profile.items() if np.array_equal(found[:3], wanted))
        for role, profile in profiles.items()
    ]
    return min(counts) > 0 and len(set(counts)) == 1
