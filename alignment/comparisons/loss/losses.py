"""The loss of both sides and its gradient by the logits: each case alone, in float32 and in exact mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from alignment import tolerance
from alignment.compare import Lanes, Quantity, distance, judge_measured, norm, relative
from alignment.comparisons.comparison import Measurement, Value, listed
from alignment.comparisons.context import Context
from alignment.comparisons.loss.cases import LossCase, in_precision, value_and_gradient
from alignment.comparisons.loss.mistakes import DEFAULTS, DISTILLATIONS, GRADIENTS, VALUES, WEIGHTINGS, Tried
from alignment.comparisons.model.forward import LANES
from alignment.finding import NO_HINT, Finding, Hint
from alignment.kinds import Kind
from alignment.localize.hypotheses.arrays import factor_hint
from alignment.localize.hypotheses.hypothesis import Family
from alignment.strangers import strangers

LOCATION, DISTILLATION = "CrossEntropyLoss", "DistillationLoss"


def lanes_of(role: str) -> list[str]:
    """The lanes of one side: the reference's are its float32, the same moved by one ulp, and its exact mode."""
    return [lane for lane in LANES if lane.startswith("port") == (role == "port")]


class ModelLoss:
    """The loss of the whole model, each side's own logits and loss; they are measured for the cases, too."""

    def measure(self, context: Context, role: str) -> dict[str, np.ndarray]:
        inputs, labels = context.material.labelled(8)
        made = {"labels": labels}
        for lane in lanes_of(role):
            made[f"{lane}.logits"] = context.networks.of(lane, share_dropout=False).outputs(inputs)[0]
            case = LossCase("model", made[f"{lane}.logits"], labels)
            made[f"{lane}.loss"] = value_and_gradient(context.sides[role], case)[0]
        return made

    def judge(self, port: Measurement, reference: Measurement) -> Sequence[Quantity]:
        both = {**port, **reference}
        return [judge_measured("model.loss", Lanes(**{lane: np.asarray(both[f"{lane}.loss"]) for lane in LANES}))]

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        """Nothing: where the cases agree, the model differs."""
        return None


@listed(1)
class Losses:
    """Every case on both sides.

    Args:
        cases: what both sides are given.
    """

    def __init__(self, cases: Sequence[LossCase]) -> None:
        self.cases = cases

    def measure(self, context: Context, role: str) -> dict[str, Value]:
        side = context.sides[role]
        made: dict[str, Value] = {}
        for case in self.cases:
            for lane in lanes_of(role):
                given, name = in_precision(case, lane), f"{case.name}.{lane}"
                with strangers("port") as raised:
                    made[f"{name}.loss"], made[f"{name}.gradient"] = value_and_gradient(side, given)
                if raised.error is not None:
                    if role == "reference":
                        raise
                    made[f"{name}.raises"] = raised.whole
                    made |= _with_all_arguments(context, given, name)
        return made

    def judge(self, port: Measurement, reference: Measurement) -> Sequence[Quantity]:
        rows = []
        for case in self.cases:
            raised = [port[name] for lane in lanes_of("port") if (name := f"{case.name}.{lane}.raises") in port]
            for what in ("loss", "gradient"):
                if raised:
                    rows.append(Quantity(f"{case.name}.{what}", []).fail(f"the port raises {raised[0]}"))
                    continue
                both = {**port, **reference}
                found = {lane: np.asarray(both[f"{case.name}.{lane}.{what}"]) for lane in LANES}
                rows.append(judge_measured(f"{case.name}.{what}", Lanes(**found)))
        return rows

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        both = {**port, **reference}
        plain = [case for case in self.cases if case.weight is None and case.teacher is None]
        finding = self._explain_exact(both, plain) or self._explain_float32(both, plain)
        if finding is not None:
            return finding
        families: tuple[tuple[list[LossCase], Family, Kind, str], ...] = (
            (
                [c for c in self.cases if c.weight is not None],
                WEIGHTINGS,
                Kind.CLASS_WEIGHTS,
                "class weights are used otherwise",
            ),
            (
                [c for c in self.cases if c.teacher is not None and not c.by_default],
                DISTILLATIONS,
                Kind.DISTILLATION,
                "distillation is computed otherwise",
            ),
            (
                [c for c in self.cases if c.by_default],
                DEFAULTS,
                Kind.DISTILLATION,
                "another default of the temperature or of the divergence's share",  # with both given it is right
            ),
        )
        for cases, family, kind, unknown in families:
            if finding := self._explain_option(both, cases, family, (kind, unknown)):
                return finding
        return None

    def _explain_exact(self, both: Measurement, cases: Sequence[LossCase]) -> Finding | None:
        """In float64, values before gradients."""
        tried = []
        for case in cases:
            if raised := both.get(f"{case.name}.port64.raises"):
                given = f"{case.smoothing:g}, {case.ignore_index}"
                words = f"right with CrossEntropyLoss({given}), not with these as defaults: another default of ignore_index"
                kind, _, message = str(raised).partition(": ")
                hint = (Kind.IGNORE_INDEX, words) if self._right_with_all(both, case) else (Kind.RAISES, f"raises {kind}")
                return Finding("loss", LOCATION, *hint, f"case {case.name}: {message}")
            tried.append(_tried(both, case, "port64", "reference64"))
        wrong = [(one, what) for one in tried if (what := one.wrong(tolerance.LOSS_RTOL))]
        return _finding(tried, wrong, tolerance.LOSS_EXPLAINED) if wrong else None

    @staticmethod
    def _right_with_all(both: Measurement, case: LossCase) -> bool:
        name = f"{case.name}.port64.all"
        return f"{name}.loss" in both and not _tried(both, case, "port64.all", "reference64").wrong(tolerance.LOSS_RTOL)

    def _explain_float32(self, both: Measurement, cases: Sequence[LossCase]) -> Finding | None:
        """What float64 does not have: a loss that is wrong in float32 alone."""
        tried, wrong = [], []
        for case in cases:
            if raised := both.get(f"{case.name}.port32.raises"):
                kind, _, message = str(raised).partition(": ")
                return Finding("loss", LOCATION, Kind.RAISES, f"raises {kind} in float32 alone", f"case {case.name}: {message}")
            one, noisy = _tried(both, case, "port32", "reference64"), _tried(both, case, "reference32", "reference64")
            value, gradient = (tolerance.FLOOR_FACTOR * distance(n, r) for n, r in zip(noisy.ours, noisy.right, strict=True))
            tried.append(one)
            if what := one.wrong(tolerance.LOSS_32_RTOL, (value, gradient)):
                wrong.append((one, what))
        if not wrong:
            return None
        finding = _finding(tried, wrong, tolerance.LOSS_EXPLAINED_32)
        finding.measured += ", in float32 alone"
        return finding

    @staticmethod
    def _explain_option(both: Measurement, cases: Iterable[LossCase], family: Family, unknown: Hint) -> Finding | None:
        """Class weights, or a teacher: the loss without them is right."""
        tried, wrong = [], []
        for case in cases:
            location = LOCATION if case.teacher is None else DISTILLATION
            if raised := both.get(f"{case.name}.port64.raises"):
                kind, _, message = str(raised).partition(": ")
                return Finding("loss", location, Kind.RAISES, f"raises {kind}", f"case {case.name}: {message}")
            tried.append(_tried(both, case, "port64", "reference64"))
            if what := tried[-1].wrong(tolerance.LOSS_RTOL):
                wrong.append((tried[-1], what))
        if not wrong:
            return None
        first, what = wrong[0]
        hint = value_hint(tried, [one for one, what in wrong if what == "value"], tolerance.LOSS_EXPLAINED, family)
        shown = f"{float(first.ours[0]):.6g}, expected {float(first.right[0]):.6g}"
        measured = f"case {first.case.name}, {what}: {shown}; right without"
        return Finding("loss", location, *(hint if hint[1] else unknown), measured)


def _with_all_arguments(context: Context, case: LossCase, name: str) -> dict[str, Value]:
    """What a port that raises gives where no argument is left out; nothing where it raises then, too."""
    with strangers("port") as raised:
        value, gradient = value_and_gradient(context.port, case, defaults=False)
    if raised.error is not None:
        return {}
    return {f"{name}.all.loss": value, f"{name}.all.gradient": gradient}


def _tried(both: Mapping[str, Value], case: LossCase, ours: str, right: str) -> Tried:
    """A case as two lanes computed it, its numbers in float64."""

    def of(lane: str) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(both[f"{case.name}.{lane}.loss"]), np.asarray(both[f"{case.name}.{lane}.gradient"])

    wide = in_precision(case, "port64" if ours.startswith("port64") else "port32")
    return Tried(wide, of(ours), of(right))


def _finding(tried: list[Tried], wrong: list[tuple[Tried, str]], rtol: float) -> Finding:
    first, what = wrong[0]
    a, b = (side[what == "gradient"] for side in (first.ours, first.right))
    name = first.case.name
    if a.shape != b.shape:
        return Finding("loss", LOCATION, Kind.SHAPE, f"shape {a.shape}, expected {b.shape}", f"case {name}, {what}")
    kind, words = value_hint(tried, [one for one, what in wrong if what == "value"], rtol)
    if what == "gradient" and not kind:
        kind, words = _gradient_hint([one for one, _ in wrong], rtol)
    shown = (
        f"{float(a):.6g}, expected {float(b):.6g}" if what == "value" else f"relative L2 {relative(distance(a, b), norm(b)):.1e}"
    )
    return Finding("loss", LOCATION, kind, words, f"case {name}, {what} {shown}; {len(wrong)} differ")


def _gradient_hint(wrong: list[Tried], rtol: float) -> Hint:
    """What explains the gradients of every wrong case; the values are right."""
    if not all(one.ours[1].shape == one.right[1].shape and np.isfinite(one.ours[1]).all() for one in wrong):
        return NO_HINT
    if not any(one.ours[1].any() for one in wrong):
        return Kind.GRADIENT_SCALED, "the gradient is 0 times the reference's: no gradient flows back to the logits"
    if (ratio := _one_factor([one.ours[1] for one in wrong], [one.right[1] for one in wrong])) is not None:
        return Kind.GRADIENT_SCALED, f"the gradient is {ratio:.6g} times the reference's"
    return GRADIENTS.hint(wrong, rtol)


def _one_factor(ours: list[np.ndarray], right: list[np.ndarray]) -> float | None:
    """The factor, not 1, that all the arrays have to the right ones."""
    ratios = [factor_hint(a, b) for a, b in zip(ours, right, strict=True)]
    first = ratios[0]
    if first is None or any(ratio is None or abs(ratio - first) > 1e-6 * abs(first) for ratio in ratios):
        return None
    return first


def value_hint(tried: list[Tried], wrong: list[Tried], rtol: float, family: Family = VALUES) -> Hint:
    """The other loss that gives the port's value in every case, wrong or right; one that fails in a single case is not said."""
    if not wrong:
        return NO_HINT
    if overflow := _overflow(tried, wrong):
        return overflow
    if (hint := family.hint(tried, wrong, rtol)) != NO_HINT:
        return hint
    ratio = _one_factor([one.ours[0] for one in wrong], [one.right[0] for one in wrong]) if len(wrong) == len(tried) > 1 else None
    return NO_HINT if ratio is None else (Kind.SCALED, f"the loss is {ratio:.6g} times the reference's")


def _overflow(tried: list[Tried], wrong: list[Tried]) -> Hint | None:
    """Not finite where logits are far apart or large, and right elsewhere: the exponential overflows."""
    finite = [bool(np.isfinite(one.ours[0]).all()) for one in tried]
    if all(finite) or any(np.isfinite(one.ours[0]).all() for one in wrong):
        return None
    size = [float(np.abs(one.case.logits).max()) for one in tried]
    largest = max((n for n, good in zip(size, finite, strict=True) if good), default=np.inf)
    if largest < min(n for n, good in zip(size, finite, strict=True) if not good):
        return (
            Kind.EXP_OVERFLOWS,
            f"NaN or infinite from logits beyond {largest:.3g}: an exponential overflows, or a logarithm of 0",
        )
    return Kind.NOT_FINITE, "NaN or infinite where the reference is finite"
