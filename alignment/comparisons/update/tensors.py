"""Gradients and states of one update on all lanes: tensor by tensor, and all together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from alignment import tolerance
from alignment.compare import (
    Change,
    Group,
    Lanes,
    Leeway,
    Quantity,
    distance,
    is_vector,
    judge_equal,
    judge_measured,
    norm,
    relative,
    without_masked,
)
from alignment.comparisons.model.one_ulp import ULP_DRAWS, is_statistic, wholes
from alignment.comparisons.result import StepResult
from alignment.comparisons.update.runs import Iteration, Run
from mobilenetv3_common.counted import counted

PORT_LANES = ("port64", "port32")
OWN = "the reference's own"  # begins the words about what cannot be judged
REFERENCE_LANES = ("reference64", *ULP_DRAWS, "reference32", "ulp32")


@dataclass
class History:
    """What a run needs to remember from one iteration to the next; and what the order of summation may do to all gradients."""

    flips: int = 0
    losses: dict[str, list[np.ndarray]] = field(default_factory=dict)
    rates: dict[str, list[float]] = field(default_factory=dict)
    floor32: float = 0.0
    pooled64: dict[str, float] = field(default_factory=dict)
    together64: dict[str, float] = field(default_factory=dict)
    summation64: float = tolerance.SUMMATION_64


def flips_of(now: dict[str, Iteration]) -> int:
    """Kink inputs on which the port's or the reference's float32 run lies on another side than the float64 truth."""
    truth = now["reference64"].kinks
    count = 0
    for lane in [name for name in ("port32", "reference32") if name in now]:
        kinks = now[lane].kinks
        count += sum(int((kinks[k] != truth[k]).sum()) for k in truth if k in kinks and kinks[k].shape == truth[k].shape)
    return count


def judge_tensors(
    result: StepResult, run: Run, number: int, now: dict[str, Iteration], kind: str, flips: int, history: History
) -> None:
    """Gradients or state after the update: tensor by tensor, and all together against the one-ulp floor."""
    group = Group(f"{run.name}.iter{number}.{kind}")
    now = _floating(group, now, kind)
    tensors = {lane: getattr(iteration, kind) for lane, iteration in now.items() if "#" not in lane}
    draws = [changes_of(now[lane], now["reference64"], kind) for lane in ULP_DRAWS]
    changes = {name: max(draw[name] for draw in draws) for name in draws[0]}
    # Rounding that has crept in does not leave again; and one draw of one-ulp changes can spare a small tensor by luck: in
    # 800,000 tensors one lay 12 x above the largest of its three draws. After an update it may lie as far as its siblings.
    noisy = float(np.quantile(_relative(changes) or [0.0], 0.95 if number == 0 else 1.0))
    history.pooled64[kind] = max(history.pooled64.get(kind, 0.0), noisy)
    # One flip in a squeeze-excitation's ReLU takes a sample out of a gradient's row: exact mode judges each tensor then.
    leeway = Leeway(flips=flips, pooled64=history.pooled64[kind], float32=flips == 0)
    # A sum that is zero in exact arithmetic, such as the gradient of a bias before a BatchNorm, is whatever its order of
    # summation leaves: once it was ten times what any one-ulp change moved it by, and the other framework's was not.
    # What it is part of are all gradients; of a running statistic, its layer's; a parameter is part of nothing.
    size = sum(change.scale**2 for change in draws[0].values()) ** 0.5
    layers = {} if kind == "gradients" else wholes({n: a for n, a in tensors["reference64"].items() if is_statistic(n)})
    if number == 0:
        leeway.pooled32 = mean_relative(changes_of(now["reference32"], now["reference64"], kind))
    else:
        tensors = {lane: tensors[lane] for lane in ("port64", "reference64")}
    error = 0.0
    for name in dict.fromkeys([*tensors["reference64"], *tensors["port64"]]):
        leeway.change64 = changes.get(name)
        leeway = leeway.part_of(size if kind == "gradients" else layers.get(name, 0.0))
        leeway.summation32, leeway.summation64 = summed(changes.get(name)) if is_sum(name, now, kind) else (0.0, 0.0)
        row = judge_measured(f"{group.name}.{name}", Lanes(**{lane: t.get(name) for lane, t in tensors.items()}), leeway)
        group.add(row)
        if name not in changes or (row.float64_diff is None and not row.noise):
            error = np.inf  # not comparable
        elif row.float64_diff:  # None where it should be 0 and is noise, within SUMMATION_64 of all tensors
            error += (row.float64_diff * changes[name].scale) ** 2 if changes[name].scale > 0 else np.inf
        if number == 0 and kind == "gradients" and row.passed:
            result.quantities.append(row)
    result.extend(group.rows())
    together = judge_together(f"{group.name}.together", error**0.5, draws, kind, history)
    if number == 0:
        judge_together_in_float32(together, now, kind, flips)
    result.quantities.append(together)


def is_sum(name: str, now: dict[str, Iteration], kind: str) -> bool:
    """Whether each number of a tensor is one sum over samples and places: a gradient of a scalar, or of a vector, in any form."""
    gradient = now["reference64"].gradients.get(name) if kind == "gradients" else None
    return gradient is not None and is_vector(gradient.shape)


def summed(change: Change | None) -> tuple[float, float]:
    """What the order of summation may leave in float32 and in float64 of a sum that one-ulp changes move by so much (relative L2).

    Terms that nearly cancel, as in the gradient of weights that are divided by their own sum, leave a result that is far smaller
    than they are, and rounding is that of the terms.
    """
    share = change.share if change is not None and change.scale else 0.0
    in_float32 = min(tolerance.SUM_FACTOR * share * 2.0**29, tolerance.MOST_SUM_32)
    return max(tolerance.SUMMATION_32, in_float32), min(tolerance.SUM_FACTOR * share, tolerance.MOST_SUM_64)


def unsteady(run: Run, now: dict[str, Iteration], kind: str) -> str:
    """Why gradients or a state cannot be judged: the reference's own vary too much to hold a port to; ``""`` otherwise."""
    largest = 0.0
    for name in ULP_DRAWS:
        changes = changes_of(now[name], now["reference64"], kind).values()
        lengths = [norm(np.array(values)) for values in zip(*changes, strict=True)]
        largest = max(largest, relative(*lengths) if lengths and np.isfinite(lengths).all() and lengths[1] else 0.0)
    if largest <= tolerance.MOST_TRAJECTORY:
        return ""
    return (
        f"{OWN} {kind} ({run.name}) move by {largest:.1e} when its weights move by one ulp: it draws numbers that cannot be "
        "shared, or is not deterministic, or they are zero but for rounding"
    )


def _floating(group: Group, now: dict[str, Iteration], kind: str) -> dict[str, Iteration]:
    """What has rounding: without tensors of whole numbers, which are held to the last bit, and -inf that all lanes share."""
    truth = getattr(now["reference64"], kind)
    whole = {name for name, array in truth.items() if array.dtype.kind != "f"}
    infinite = [name for name, array in truth.items() if name not in whole and np.isneginf(array).any()]
    for name in whole:
        ours, theirs = (getattr(now[lane], kind).get(name) for lane in ("port64", "reference64"))
        group.add(judge_equal(f"{group.name}.{name}", ours, theirs))
    if not whole and not infinite:
        return now
    kept = {lane: {n: a for n, a in getattr(one, kind).items() if n not in whole} for lane, one in now.items()}
    for name in infinite:
        holding = [lane for lane, arrays in kept.items() if name in arrays]
        for lane, array in zip(holding, without_masked(*(kept[lane][name] for lane in holding)), strict=True):
            kept[lane][name] = array
    return {lane: replace(one, **{kind: kept[lane]}) for lane, one in now.items()}  # type: ignore[arg-type]


def judge_together(name: str, error: float, draws: list[dict[str, Change]], kind: str, history: History) -> Quantity:
    """All tensors of a kind as one vector, within ``summation64`` or TRAJECTORY_FACTOR of the largest one-ulp floor so far.

    Below EXACT_RTOL they may be off as a sum may (SUM_FACTOR): gradients of values that a network gathers are sums.
    """
    scale = sum(change.scale**2 for change in draws[0].values()) ** 0.5
    floor = max(relative(sum(change.distance**2 for change in draw.values()) ** 0.5, scale) for draw in draws)
    history.together64[kind] = floor = max(history.together64.get(kind, tolerance.BASE_FLOOR_64), floor)
    difference = relative(error, scale)
    quantity = Quantity(name, [len(draws[0])], float64_diff=difference)
    of_sums = min(tolerance.EXACT_RTOL, tolerance.SUM_FACTOR * floor)
    if not difference <= max(history.summation64, tolerance.TRAJECTORY_FACTOR * floor, of_sums):
        quantity.fail(f"exact mode differs by {difference:.1e}, one-ulp changes by {floor:.1e}")
    return quantity


def judge_together_in_float32(quantity: Quantity, now: dict[str, Iteration], kind: str, flips: int) -> None:
    def error(lane: str, truth: str = "reference64") -> float:
        changes = changes_of(now[lane], now[truth], kind).values()
        return relative(sum(c.distance**2 for c in changes) ** 0.5, sum(c.scale**2 for c in changes) ** 0.5)

    if getattr(now["port32"], kind).keys() != getattr(now["reference64"], kind).keys():
        return  # the tensors' own rows have failed
    quantity.port_error = error("port32")
    floor = max(error("reference32"), error("ulp32", "reference32"), tolerance.BASE_FLOOR_32)
    quantity.reference_error = max(floor, tolerance.FLIP_ALLOWANCE if flips else 0.0)
    if flips:
        quantity.flips = flips
        quantity.note(f"{counted(flips, 'kink flip')}")
    sizes = {name: norm(array) for name, array in getattr(now["reference64"], kind).items()}
    sums = [sizes[name] for name in sizes if is_sum(name, now, kind)]
    summed = relative(tolerance.SUMMATION_32 * norm(np.array(sums)), norm(np.array(list(sizes.values()))))
    if tolerance.FLOOR_FACTOR * quantity.reference_error < quantity.port_error <= summed:
        quantity.reference_error = summed
        quantity.note("order of summation in float32")
    if not quantity.port_error <= tolerance.FLOOR_FACTOR * quantity.reference_error:
        quantity.fail(f"float32 error {quantity.port_error:.1e}, noise floor {quantity.reference_error:.1e}")


def changes_of(other: Iteration, truth: Iteration, kind: str) -> dict[str, Change]:
    tensors, changed = getattr(truth, kind), getattr(other, kind)
    return {name: Change(distance(changed[name], array), norm(array)) for name, array in tensors.items()}


def _relative(changes: dict[str, Change]) -> list[float]:
    """Relative changes, those of tensors that are zero but for rounding left out."""
    return [change.share for change in changes.values() if change.share < tolerance.NOISE_SHARE]


def mean_relative(changes: dict[str, Change]) -> float:
    return float(np.mean(_relative(changes) or [0.0]))


def norm_of(arrays: Iterable[np.ndarray]) -> float:
    """L2 norm of several arrays as one vector."""
    return norm(np.concatenate([array.ravel() for array in arrays] or [np.zeros(1)]))
