"""What a run does besides its updates: the moving average, frozen layers, a resumed run, the evaluation loop."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import distance, norm, relative
from alignment.comparisons.context import Context
from alignment.comparisons.run import averages, run_options
from alignment.comparisons.run import divergence as diverging
from alignment.comparisons.run import freezing as frozen_runs
from alignment.comparisons.run import fresh as fresh_runs
from alignment.comparisons.run import resumption as long_runs
from alignment.comparisons.run.engine import Ground
from alignment.comparisons.run.evaluation import LEFT_OUT, Evaluated, counted_figures, evaluated
from alignment.comparisons.update.mistakes import RateCase
from alignment.comparisons.update.rates import expected_rates
from alignment.comparisons.update.schedules import rate_finding
from alignment.finding import NO_HINT, Finding, Hint
from alignment.formulas import log_softmax
from alignment.frameworks.base import STATISTICS
from alignment.kinds import Kind
from mobilenetv3_common.checkpoint import Checkpoint
from mobilenetv3_common.weights import State


@contextlib.contextmanager
def _ground(context: Context) -> Iterator[Ground]:
    with tempfile.TemporaryDirectory() as folder:
        yield Ground.of(context, folder)


def _unlike(ours: State, theirs: State, rtol: float = tolerance.RUN_RTOL) -> list[str]:
    """Names of the tensors that differ by more than rounding, in the reference's order."""
    scales = {n: max(norm(array), tolerance.RUN_LEAST * array.size**0.5) for n, array in theirs.items()}
    return [n for n in theirs if n not in ours or not distance(ours[n], theirs[n]) <= rtol * scales[n]]


def _first(wrong: Sequence[str], ours: State, theirs: State, of: str = "tensors") -> str:
    name = wrong[0]
    size = "missing" if name not in ours else f"relative L2 {relative(distance(ours[name], theirs[name]), norm(theirs[name])):.1e}"
    return f"{len(wrong)} of {len(theirs)} {of}, first {name}: {size}"


# --- moving average --------------------------------------------------------------------------------------------------------


def moving_average(context: Context) -> Finding | None:
    """The average of given states, which the model takes in and gives back."""
    with _ground(context) as ground:
        states = averages.given_states(ground)
        made = averages.averages(ground, "port", states)
    expected = averages.expected_average(states)
    for ours, theirs in ((made.last, expected), (made.first, states[0])):
        if wrong := _unlike(ours, theirs, tolerance.RECOMPUTED_32):
            kind, words = _average_hint(made, states, expected)
            return Finding("train", "MovingAverage", kind, words, _first(wrong, ours, theirs))
    if wrong := _unlike(made.after, states[-1], tolerance.RECOMPUTED_32):
        kind, words = NO_HINT
        if not _unlike(made.after, expected, tolerance.RECOMPUTED_32):
            kind, words = Kind.AVERAGE_NOT_TAKEN_OUT, "the model keeps the averaged weights after the block, expected its own"
        return Finding("train", "MovingAverage.applied", kind, words, _first(wrong, made.after, states[-1]))
    if made.without:
        words = f"an average with decay 0 keeps {made.without} arrays, expected none"
        return Finding("train", "MovingAverage", Kind.MOVING_AVERAGE, words, f"{made.without} arrays")
    return None


def shares(average: State, states: list[State], names: Sequence[str]) -> np.ndarray | None:
    """Shares of the given states in an average, by least squares over some tensors: float64 (states,).

    None where the average is no such mixture, or there is nothing to fit.
    """
    if not names or any(name not in average for name in names):
        return None
    columns = np.stack([np.concatenate([s[n].ravel() for n in names]) for s in states], axis=1).astype(np.float64)
    made = np.concatenate([average[n].ravel() for n in names]).astype(np.float64)
    found = np.linalg.lstsq(columns, made, rcond=None)[0]
    return found if norm(columns @ found - made) <= tolerance.AVERAGE_FITTED * max(norm(made), 1e-30) else None


def _decayed(decay: float, count: int, start: float = 1.0) -> np.ndarray:
    """Shares of the states in an average: the first is copied with ``start``, each later one has 1 - decay."""
    powers = decay ** np.arange(count - 1, -1, -1.0)
    return np.append(start * powers[0], (1 - decay) * powers[1:])


def _average_hint(made: averages.Averages, states: list[State], expected: State) -> Hint:
    """What mixture of the given states the port's average is, of all tensors or of a part of them."""
    decay, count = averages.DECAY, len(states)
    wrong = _unlike(made.last, expected, tolerance.RECOMPUTED_32)
    right = [n for n in expected if n not in wrong]
    found = shares(made.last, states, wrong)
    if found is None:
        return NO_HINT

    def equals(*other: float) -> bool:
        return bool(np.allclose(found, np.array(other), atol=1e-4))

    only_last = equals(*[0.0] * (count - 1), 1.0)
    if only_last and right and all(_is_statistic(n) for n in wrong) and not any(_is_statistic(n) for n in right):
        return Kind.AVERAGE_WITHOUT_STATISTICS, "running statistics are not averaged: the model keeps its own"
    if only_last:
        return Kind.MOVING_AVERAGE, "nothing is averaged: the model keeps its own weights"
    if equals(1.0, *[0.0] * (count - 1)):
        return Kind.MOVING_AVERAGE, "the average stays the first state: it is not updated"
    if equals(*_decayed(1 - decay, count)):
        return Kind.AVERAGE_DECAY_INVERTED, f"the new weights have the share {decay:g}, expected {1 - decay:g}: decay is inverted"
    if equals(*_decayed(decay, count, 1 - decay)):
        return Kind.AVERAGE_START, "the average begins at 0, expected a copy of the first state"
    if equals(*_decayed(decay, count, 0.0)):
        return Kind.AVERAGE_START, "the first state is left out of the average, expected a copy of it"
    fitted = 1 - float(found[-1])
    if 0 < fitted < 1 and abs(fitted - decay) > 1e-4 and equals(*_decayed(fitted, count)):
        return Kind.AVERAGE_DECAY, f"decay {fitted:.4g}, expected {decay:g}"
    words = ", ".join(f"{share:.4g}" for share in found)
    return (
        Kind.MOVING_AVERAGE,
        f"the states have the shares {words}, expected {', '.join(f'{s:.4g}' for s in _decayed(decay, count))}",
    )


def _is_statistic(name: str) -> bool:
    return name.rpartition(".")[2] in STATISTICS


# --- divergence ---


def divergence(context: Context) -> Finding | None:
    """An update that cannot be made: does the run stop before it, and where does it see the cause?"""
    with _ground(context) as ground:
        ours, theirs = (diverging.stopped(ground, role) for role in context.sides)
        for case, wrong in diverging.wrong_stops(ground, ours, theirs).items():
            if wrong:
                kind = Kind.NOT_STOPPED if not ours[case].words or ours[case].spoilt else Kind.UNKNOWN
                place = "first_offender" if kind is Kind.UNKNOWN else "Guard"
                return Finding("train", place, kind, wrong if kind else "", f"a {case} that is not finite: {wrong}")
    return None


# --- frozen layers ---------------------------------------------------------------------------------------------------------


def freezing(context: Context) -> Finding | None:
    """A run with frozen normalisation layers: what is trained, what moves, and the learning rate by epoch."""
    with _ground(context) as ground:
        ours, theirs = (frozen_runs.frozen(ground, role, ground.weights) for role in context.sides)
        kept = frozen_runs.kept(theirs, ground.weights)
    if ours.trainable != theirs.trainable:
        extra = [n for n in ours.trainable if n not in theirs.trainable]
        missing = [n for n in theirs.trainable if n not in ours.trainable]
        name, count = (extra or missing)[0], len(extra or missing)
        kind, words = (Kind.NOT_FROZEN, "is trained, expected frozen") if extra else (Kind.FROZEN, "is frozen, expected trained")
        return Finding("train", f"freeze_bn: {name}", kind, f"{name} {words}", f"{count} of {len(theirs.trainable)} parameters")
    moved = [n for n in kept if n in ours.last and not np.array_equal(ours.last[n], ground.weights[n])]
    if moved:
        kind, words = Kind.NOT_FROZEN, f"{moved[0]} moves, expected frozen"
        if all(_is_statistic(n) for n in moved):
            words = "the running statistics of frozen layers move: they are in training mode"
        size = relative(distance(ours.last[moved[0]], ground.weights[moved[0]]), norm(ground.weights[moved[0]]))
        return Finding(
            "train", f"freeze_bn: {moved[0]}", kind, words, f"{len(moved)} of {len(kept)} tensors move, the first by {size:.1e}"
        )
    pictures = ground.short.batch_size * ground.short.accumulate
    made = (ground.short, theirs.updates_per_epoch, pictures)
    return (
        rate_finding("train", "schedule", RateCase(ours.rates, theirs.rates, *made))
        or rate_finding("train", "training.update", RateCase(theirs.rates, expected_rates(*made)[: len(theirs.rates)], *made))
        or _of_updates("freeze_bn: update", frozen_runs.UPDATES, ours.last, theirs.last)
    )


def _of_updates(place: str, count: int, ours: State, theirs: State) -> Finding | None:
    wrong = _unlike(ours, theirs)
    return Finding("train", place, measured=f"after {count} updates: {_first(wrong, ours, theirs)}") if wrong else None


# --- fresh runs ------------------------------------------------------------------------------------------------------------


def fresh(context: Context) -> Finding | None:
    """The network that the train part builds by itself: its widths, its settings, and whether the seed decides its weights."""
    if fresh_runs.lacks_fresh(context):
        return None
    with _ground(context) as ground:
        ours, theirs = (fresh_runs.fresh(ground, role) for role in context.sides)
    for what, wrong in fresh_runs.wrong_settings(ours, theirs).items():
        if wrong:
            kind, words = Kind.RECIPE, f"a setting of the recipe does not reach the network: {wrong}"
            if what == "seed":
                kind, words = Kind.OTHER_SEED, f"the recipe's seed does not decide the fresh weights: {wrong}"
            return Finding("train", "build_model", kind, words, wrong)
    return None


OPTION_PLACES = {"gradient checkpointing": "recompute_blocks", "freezing by name": "build_model", "pretrained": "load_pretrained"}


def options(context: Context) -> Finding | None:
    """Gradient checkpointing, a parameter frozen by its name, several views in evaluation, weights to begin with."""
    with _ground(context) as ground:
        found = run_options.wrong_options(ground)
    for name, wrong in found.items():
        if wrong:
            kind = Kind.WEIGHTS_NOT_LOADED if wrong.endswith("the fresh ones") else Kind.UNKNOWN
            words = f"with {name.replace('views.', 'the views of --tta ')}: {wrong}"
            return Finding("train", OPTION_PLACES.get(name, "evaluate_run"), kind, words if kind else "", words)
    return None


# --- long runs -------------------------------------------------------------------------------------------------------------


def long_run(context: Context) -> Finding | None:
    """Six updates with accumulation, a scaled learning rate, warm-up and a moving average every second update."""
    with _ground(context) as ground:
        ours, theirs = (long_runs.long_run(ground, role, ground.weights) for role in context.sides)
    made = (ground.long, theirs.updates_per_epoch, ground.long.batch_size * ground.long.accumulate)
    finding = (
        rate_finding("train", "schedule", RateCase(ours.rates, theirs.rates, *made))
        or rate_finding("train", "training.update", RateCase(theirs.rates, expected_rates(*made)[: len(theirs.rates)], *made))
        or _right_answers([update.right for update in ours.made], [update.right for update in theirs.made])
        or _of_updates("update", 2 * long_runs.UPDATES, ours.last, theirs.last)
    )
    expected = ours.expected_average
    if finding is None and (wrong := _unlike(ours.average, expected, tolerance.RECOMPUTED_32)):
        words = f"the average of a run is not that of its weights after every {ground.long.ema_every} updates"
        finding = Finding("train", "MovingAverage", Kind.MOVING_AVERAGE, words, _first(wrong, ours.average, expected))
    return finding


def _right_answers(ours: list[tuple[float, ...]], theirs: list[tuple[float, ...]]) -> Finding | None:
    """What training counts as right at top-1 and top-5, update by update."""
    if ours == theirs:
        return None
    first = next(number for number, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other)
    kind, words = NO_HINT
    for place, other, name in ((1, 0, "top-5 counts the largest output alone"), (0, 1, "top-1 counts the five largest outputs")):
        if all(len(one) == 2 and one[place] == two[other] for one, two in zip(ours, theirs, strict=True)):
            kind, words = Kind.TOP_K, name
    return Finding("train", "count_right", kind, words, f"update {first}: {ours[first]}, expected {theirs[first]}")


# --- resumption ------------------------------------------------------------------------------------------------------------


def resumption(context: Context) -> Finding | None:
    """Which part of a run is not saved, not restored, or lost after that."""
    if long_runs.lacks_checkpoints(context):
        return None
    with _ground(context) as ground:
        whole, rest = long_runs.resumed(ground, "port")
        memory = {} if isinstance(rest, str) else long_runs.remembered(ground, "port")
        theirs = long_runs.long_run(ground, "reference", ground.weights, ground.folder / "reference")
        then, other = long_runs.read_checkpoints(whole.saved, theirs.saved)
        files = () if isinstance(rest, str) else (rest.saved, whole.end, rest.end)
        read = long_runs.read_checkpoints(*files)
    saved, expected = (long_runs.parts(checkpoint) for checkpoint in (then, other))
    for kind in saved:
        if expected[kind] and not saved[kind]:
            words = f"the checkpoint holds no {kind}: a resumed run begins with none"
            return Finding(
                "train", f"resume.{kind}", Kind.STATE_NOT_SAVED, words, f"{len(expected[kind])} tensors in the reference's"
            )
    if isinstance(rest, str):
        return Finding("train", "resume", Kind.RAISES, "the port does not go on from its own checkpoint", rest)
    now, restored, *later = read[0], *(long_runs.parts(checkpoint) for checkpoint in read)
    for kind in long_runs.unequal_parts(now, then):
        return _not_restored(kind, now, then, restored.get(kind, {}), saved.get(kind, {}))
    for kind in ("optimizer", "weights", "statistics", "average"):
        if wrong := _unlike(later[1][kind], later[0][kind], tolerance.EXACT_RTOL):
            words = _first(wrong, later[1][kind], later[0][kind])
            return Finding("train", f"resume.{kind}", measured=f"{long_runs.UPDATES} updates after the resumption: {words}")
    finding = rate_finding("train", "resume.schedule", RateCase(rest.rates, whole.rates[long_runs.UPDATES :]))
    return finding or next(filter(None, (_forgotten(name, found) for name, found in memory.items())), None)


def _forgotten(name: str, found: long_runs.Remembered) -> Finding | None:
    """An optimizer whose state a resumed run does not have, while the recipe's has its own."""
    wrong = long_runs.wrong_memory(found)
    if not wrong:
        return None
    kind = Kind.RAISES if found.refused else Kind.STATE_NOT_RESTORED if found.lost else Kind.STATE_NOT_SAVED
    words = f"a run with {name} does not go on as it was: {wrong}"
    return Finding("train", "resume.optimizer", kind, words, "one update after the resumption")


def _not_restored(kind: str, now: Checkpoint, then: Checkpoint, restored: State, saved: State) -> Finding:
    if kind == "schedule":
        keys = [key for key in long_runs.POSITION if now.meta.get(key) != then.meta.get(key)]
        words = f"{keys[0]} is {_short(now.meta.get(keys[0]))} after loading, expected {_short(then.meta.get(keys[0]))}"
        return Finding(
            "train", "resume.schedule", Kind.STATE_NOT_RESTORED, f"the place in the schedule is not restored: {words}", words
        )
    lost = [name for name in saved if name not in restored or not np.array_equal(restored[name], saved[name])]
    words = f"the {kind} saved in the checkpoint is not restored: {len(lost)} of {len(saved)} tensors"
    if lost and all(name not in restored or not restored[name].any() for name in lost):
        words += ", which begin at zero"
    return Finding("train", f"resume.{kind}", Kind.STATE_NOT_RESTORED, words, _first(lost or list(restored), restored, saved))


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


# --- evaluation ------------------------------------------------------------------------------------------------------------


def evaluation(context: Context) -> Finding | None:
    """The loader's batches, then the figures of outputs that agree."""
    with _ground(context) as ground:
        theirs = evaluated(ground, "reference")
        ours = evaluated(ground, "port", theirs.labels)
    for column, what in enumerate(("pictures", "labels", "numbers")):
        for number, (one, other) in enumerate(zip(ours.given, theirs.given, strict=False)):
            if one[column].shape != other[column].shape or (one[column] != other[column]).any():
                return Finding("train", "evaluation_loader", measured=f"{what} of batch {number} differ")
    if len(ours.given) != len(theirs.given):
        kind = Kind.LAST_BATCH_FORGOTTEN if len(ours.given) == len(theirs.given) - 1 else Kind.EVALUATION
        words = f"{len(ours.given)} batches, expected {len(theirs.given)}"
        return Finding("train", "evaluation_loader", kind, words, words)
    right = counted_figures(theirs.logits, theirs.labels)
    for found, merged in ((ours.figures, False), (ours.merged, True)):
        wrong = [name for name in theirs.figures if not _agrees(found.get(name), right[name])]
        if wrong:
            kind, words = _evaluation_hint(ours, found, wrong, right, merged)
            shown = ", ".join(f"{name} {_figure(found.get(name))}, expected {_figure(right[name])}" for name in wrong)
            return Finding("train", "evaluate_run", kind, words, shown)
    return None


def _agrees(ours: Any, theirs: Any) -> bool:
    return ours is not None and np.shape(ours) == np.shape(theirs) and bool(np.allclose(ours, theirs, rtol=1e-9, atol=0))


def _figure(value: Any) -> str:
    return (
        "missing" if value is None else f"{float(value):.6g}" if np.ndim(value) == 0 else f"a matrix of {int(np.sum(value))} counts"
    )


def _evaluation_hint(ours: Evaluated, found: dict[str, Any], wrong: list[str], right: dict[str, Any], merged: bool) -> Hint:
    """The one mistake that gives every figure that the port's evaluation gives."""

    def gives(figures: dict[str, Any]) -> bool:
        differs = any(not _agrees(figures[name], right[name]) for name in wrong)
        return differs and all(_agrees(found.get(name), figures[name]) for name in found)

    for kind, words, make in _evaluation_mistakes(ours, right, merged):
        if gives({**right, **make()}):
            return kind, words
    words = ", ".join(f"{name} {_figure(found.get(name))}" for name in wrong)
    return Kind.EVALUATION, f"evaluation of the same weights differs: {words}"


def _evaluation_mistakes(
    ours: Evaluated, right: dict[str, Any], merged: bool
) -> Iterator[tuple[Kind, str, Callable[[], dict[str, Any]]]]:
    """Figures with one mistake in them: kind, words, and what makes those that change."""
    labels, sizes = ours.labels, [len(batch[2]) for batch in ours.given]
    ends = np.cumsum(sizes)
    batches = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]

    def without(numbers: Sequence[int]) -> dict[str, Any]:
        return {**counted_figures(ours.logits, labels, (LEFT_OUT, *numbers)), "skipped": right["skipped"]}

    yield Kind.TOP_K, "top-5 counts the largest output alone", lambda: {"top5": right["top1"]}
    yield Kind.TOP_K, "top-1 counts the five largest outputs", lambda: {"top1": right["top5"]}
    yield Kind.TOP_K, "top-1 and top-5 are swapped", lambda: {"top1": right["top5"], "top5": right["top1"]}
    for k in (2, 3, 4, 6, 10):
        yield Kind.TOP_K, f"top-5 counts the {k} largest outputs", lambda k=k: {"top5": _top(ours.logits, labels, k)}  # type: ignore[misc]
    yield Kind.CONFUSION_TRANSPOSED, "the confusion matrix is transposed", lambda: {"confusion": right["confusion"].T}
    words = "the figures are of the run's own weights, expected its moving average"
    yield Kind.AVERAGE_NOT_APPLIED, words, lambda: counted_figures(ours.own_logits, labels)
    yield Kind.TRAINING_MODE, "the model is in training mode", lambda: counted_figures(ours.training_logits, labels)
    yield (
        Kind.PADDING_COUNTED,
        "a picture that stands in for a damaged one is counted",
        lambda: counted_figures(ours.logits, labels, ()),
    )
    words = "the loss counts a picture that stands in for a damaged one"
    yield Kind.PADDING_COUNTED, words, lambda: {"loss": _loss_with_stand_ins(ours.logits, labels, batches)}
    words = "the loss is the mean of the batches' means, expected that of the pictures"
    yield Kind.MEAN_OF_BATCH_MEANS, words, lambda: {"loss": _mean_of_means(ours.logits, labels, batches)}
    last = range(int(ends[-2]) if len(ends) > 1 else 0, int(ends[-1]))
    yield Kind.LAST_BATCH_FORGOTTEN, "the last, shorter batch is left out", lambda: without(last)
    if merged:
        second = [number for batch in batches[1::2] for number in range(batch.start, batch.stop)]
        words = "the figures are those of one rank: sums over the ranks are missing"
        yield Kind.RANKS_NOT_MERGED, words, lambda: without(second)
        words = "the confusion matrix is that of one rank: its sum over the ranks is missing"
        yield Kind.RANKS_NOT_MERGED, words, lambda: {"confusion": without(second)["confusion"]}


def _counts(count: int) -> np.ndarray:
    return np.arange(count) != LEFT_OUT


def _top(logits: np.ndarray, labels: np.ndarray, k: int) -> float:
    better = (logits > logits[np.arange(len(labels)), labels][:, None]).sum(1)
    return float((better < k)[_counts(len(labels))].mean())


def _losses(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return -log_softmax(logits)[np.arange(len(labels)), labels]


def _mean_of_means(logits: np.ndarray, labels: np.ndarray, batches: Sequence[slice]) -> float:
    losses, counts = _losses(logits, labels), _counts(len(labels))
    return float(np.mean([losses[batch][counts[batch]].mean() for batch in batches]))


def _loss_with_stand_ins(logits: np.ndarray, labels: np.ndarray, batches: Sequence[slice]) -> float:
    losses, counts = _losses(logits, labels), _counts(len(labels))
    return float(sum(losses[batch].mean() * counts[batch].sum() for batch in batches) / counts.sum())
