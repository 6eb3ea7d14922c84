"""Curves of losses and final accuracies, each held against what the reference diverges from itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alignment import tolerance
from alignment.compare import Quantity
from alignment.comparisons.result import StepResult
from alignment.equivalence import DIFFERENT, EQUAL, UNDECIDED, Equivalence, equivalence, surely_different


def envelope(curve: np.ndarray, draws: Sequence[np.ndarray]) -> np.ndarray:
    """How far the reference diverges from itself by each iteration: the largest relative difference of any draw so far."""
    return np.maximum.accumulate(np.max([np.abs(draw - curve) for draw in draws], axis=0) / np.abs(curve))


def floor_of(theirs: np.ndarray, draws: Sequence[np.ndarray], exact: bool, lag: int = 0) -> np.ndarray:
    """The envelope ``lag`` iterations later, or what no curve can be nearer than."""
    spread = envelope(theirs, draws)
    spread = np.append(spread[lag:], np.full(lag, spread[-1]))
    return np.maximum(spread, tolerance.EXACT_RTOL if exact else tolerance.BASE_FLOOR_32)


def left_by_rounding(floor: np.ndarray) -> int:
    """Of the iterations that exact mode is held to, those in which the reference keeps the bound itself.

    A chaotic network leaves it by rounding alone.
    """
    count, bound = tolerance.EXACT_CURVE
    return int(np.append(tolerance.CURVE_FACTOR * floor[:count] <= bound, False).argmin())


def judge_curve(
    name: str, ours: np.ndarray, theirs: np.ndarray, draws: Sequence[np.ndarray], exact: bool, lag: int = 0
) -> Quantity:
    """Hold a curve of losses against the reference's envelope ``lag`` iterations later, iteration by iteration.

    In exact mode the first ``EXACT_CURVE[0]`` iterations must agree to ``EXACT_CURVE[1]`` besides.
    """
    quantity = Quantity(name, [len(theirs)])
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()) or ours.shape != theirs.shape:
        return quantity.fail(f"{ours.size} and {theirs.size} losses, not all finite")
    difference, floor = np.abs(ours - theirs) / np.abs(theirs), floor_of(theirs, draws, exact, lag)
    quantity.mean_abs_diff, quantity.max_abs_diff = (float(f(np.abs(ours - theirs))) for f in (np.mean, np.max))
    ratio = difference / floor
    worst = int(np.argmax(ratio))
    if exact:
        count, bound = left_by_rounding(floor), tolerance.EXACT_CURVE[1]
        quantity.float64_diff = float(difference[: max(count, 1)].max())
        if not quantity.float64_diff <= bound:
            quantity.fail(f"exact mode differs by {quantity.float64_diff:.1e} within {count} iterations (bound {bound:.0e})")
    else:
        quantity.port_error, quantity.reference_error = float(difference[worst]), float(floor[worst])
    if not ratio[worst] <= tolerance.CURVE_FACTOR:
        first = int(np.argmax(ratio > tolerance.CURVE_FACTOR))
        quantity.fail(f"the curve leaves {tolerance.CURVE_FACTOR:g} x the reference's own envelope at iteration {first}")
    return quantity


def show_curve(
    result: StepResult, name: str, ours: np.ndarray, theirs: np.ndarray, draws: Sequence[np.ndarray], exact: bool, lag: int = 0
) -> None:
    """Note how long rounding leaves a curve comparable, and how far the port's came."""
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()) or ours.shape != theirs.shape:
        return
    floor = floor_of(theirs, draws, exact, lag)
    if exact:
        count = left_by_rounding(floor)
        result.require(f"{name}.iterations_that_rounding_leaves", count, count >= 3, "3 or more")
    ratio = np.abs(ours - theirs) / np.abs(theirs) / floor
    result.evidence[f"{name}.largest_multiple_of_the_envelope"] = round(float(ratio.max()), 2)


def judge_accuracies(ours: np.ndarray, theirs: np.ndarray, step: float = 0.0) -> Quantity:
    """Final accuracies of both sides, seed by seed: the row fails only where a difference is as good as certain.

    Few seeds decide little. The answer (``alignment.equivalence``) stands in the row: "equal within the margin" where that is
    shown, else "undecided", with the number of further seeds that would decide; a row that is undecided does not claim equality.

    Args:
        ours, theirs: top-1 of each seed, as shares.
        step: one picture of the evaluation, as a share.
    """
    gaps = np.abs(np.subtract(ours, theirs))
    quantity = Quantity("final_top1", [len(theirs)], mean_abs_diff=abs(float(np.mean(ours) - np.mean(theirs))))
    quantity.max_abs_diff = float(gaps.max())
    found = equivalence(ours.tolist(), theirs.tolist(), step=step)
    if surely_different(ours.tolist(), theirs.tolist(), step=step):
        words = f"mean top-1 {np.mean(ours):.4f} in the port, {np.mean(theirs):.4f} in the reference"
        return quantity.fail(f"{words}: a difference of more than the margin of {100 * found.margin:g} points")
    return quantity.note(found.words(100, " points") if found.answer != DIFFERENT else _not_certain(found))


def _not_certain(found: Equivalence) -> str:
    """A difference at the level of one test, which one sound port in twenty shows with few seeds."""
    return f"{UNDECIDED}: it seems {found.words(100, ' points')}; further seeds would decide"


def shows_equality(ours: np.ndarray, theirs: np.ndarray, step: float = 0.0) -> bool:
    """Whether final accuracies are shown to be equal within the margin."""
    return equivalence(ours.tolist(), theirs.tolist(), step=step).answer == EQUAL


def spread_of(ours: np.ndarray, theirs: np.ndarray) -> float:
    """What the seeds of both sides spread."""
    return float(np.ptp(ours) + np.ptp(theirs))
