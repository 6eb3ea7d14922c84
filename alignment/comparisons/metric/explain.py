"""Accuracy: which samples count as right, and how counts are added up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from alignment.comparisons.context import Context
from alignment.comparisons.metric.metric import KS, made_up_cases, oracle, part
from alignment.finding import NO_HINT, Finding, Hint
from alignment.kinds import Kind
from alignment.project import MetricPart, Side
from mobilenetv3_common.sampling import BatchPlan

Rule = Callable[[np.ndarray, np.ndarray, int], np.ndarray]


def _material() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    logits = rng.standard_normal((16, 12)).astype(np.float32)
    labels = rng.integers(0, 12, 16)
    logits[np.arange(0, 16, 2), labels[::2]] += 2.0
    return logits, labels


def right_answers(context: Context) -> Finding | None:
    """``top_k_correct`` on real, tied, NaN and infinite logits, against a plain stable sort."""
    for case, (logits, labels) in made_up_cases(*_material()).items():
        ours = _correct(context.port, logits, labels)
        truth = oracle(logits, labels)
        if ours.shape != truth.shape or (ours.astype(bool) != truth).any():
            kind, words = _rule_hint(context)
            measured = f"{case}: {ours.sum(0).tolist()} right of {len(labels)}, expected {truth.sum(0).tolist()}"
            return Finding("metric", "top_k_correct", kind, words, measured)
    return None


def _correct(side: Side, logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    tensor = side.framework.tensor
    return side.framework.array(part(side).top_k_correct(tensor(logits), tensor(labels), KS))


def _rules() -> dict[Hint, Rule]:
    def own(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return logits[np.arange(len(labels)), labels][:, None]

    def others(labels: np.ndarray, classes: int) -> np.ndarray:
        return np.arange(classes)[None] != labels[:, None]

    def earlier(labels: np.ndarray, classes: int) -> np.ndarray:
        return np.arange(classes)[None] < labels[:, None]

    def ranked(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
        mine = own(logits, labels)
        return ((logits > mine) | ((logits == mine) & earlier(labels, logits.shape[1]))).sum(1)

    def last(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Ranks with the later class first among equals."""
        mine = own(logits, labels)
        later = np.arange(logits.shape[1])[None] > labels[:, None]
        return ((logits > mine) | ((logits == mine) & later)).sum(1)

    nan = lambda logits: np.isnan(logits).any(1)  # noqa: E731
    shifted = lambda step: lambda x, y, k: (ranked(x, (y + step) % x.shape[1]) < k) & ~nan(x)  # noqa: E731
    return {
        (Kind.ALWAYS_WRONG, "no answer counts as right"): lambda x, y, k: np.zeros(len(y), bool),
        (Kind.ALWAYS_RIGHT, "every answer counts as right"): lambda x, y, k: np.ones(len(y), bool),
        (Kind.TIES_RIGHT, "equal logits count as right"): lambda x, y, k: ((x > own(x, y)).sum(1) < k) & ~nan(x),
        (Kind.TIES_RIGHT, "equal logits count as right, and so does a row with NaN"): lambda x, y, k: (x > own(x, y)).sum(1) < k,
        (Kind.TIES_WRONG, "equal logits count as wrong"): lambda x, y, k: (
            (((x >= own(x, y)) & others(y, x.shape[1])).sum(1) < k) & ~nan(x)
        ),
        (Kind.TIES_WRONG, "the label's own logit counts as ahead of it: >= for >"): lambda x, y, k: (
            ((x >= own(x, y)).sum(1) < k) & ~nan(x)
        ),
        (Kind.TIES_WRONG, "the last of equal logits ranks first"): lambda x, y, k: (last(x, y) < k) & ~nan(x),
        (Kind.NAN_RIGHT, "a row with NaN counts as right"): lambda x, y, k: ranked(x, y) < k,
        (Kind.NAN_RIGHT, "a row counts as right as long as not all of its logits are NaN"): lambda x, y, k: (
            (ranked(x, y) < k) & ~np.isnan(x).all(1)
        ),
        (Kind.SMALLEST, "the smallest logits win"): lambda x, y, k: (
            (((x < own(x, y)) | ((x == own(x, y)) & earlier(y, x.shape[1]))).sum(1) < k) & ~nan(x)
        ),
        (Kind.K_OFF_BY_ONE, "k is off by one: top-k asks for the first k - 1"): lambda x, y, k: (
            (ranked(x, y) < (k if k == 1 else k - 1)) & ~nan(x)
        ),
        (Kind.K_OFF_BY_ONE, "k is off by one: every k asks for the first k - 1"): lambda x, y, k: (ranked(x, y) < k - 1) & ~nan(x),
        (Kind.K_OFF_BY_ONE, "k is off by one: top-k asks for the first k + 1"): lambda x, y, k: (ranked(x, y) <= k) & ~nan(x),
        (Kind.SAME_K, f"every k is taken for {KS[0]}"): lambda x, y, k: (ranked(x, y) < KS[0]) & ~nan(x),
        (Kind.SAME_K, f"every k is taken for {KS[-1]}"): lambda x, y, k: (ranked(x, y) < KS[-1]) & ~nan(x),
        (Kind.K_OFF_BY_ONE, "the label must be at place k exactly"): lambda x, y, k: (ranked(x, y) == k - 1) & ~nan(x),
        (Kind.LABEL_OFF_BY_ONE, "labels are off by one"): shifted(1),
        (Kind.LABEL_OFF_BY_ONE, "labels are off by one, downwards"): shifted(-1),
        (Kind.INVERTED, "right and wrong are exchanged"): lambda x, y, k: ~((ranked(x, y) < k) & ~nan(x)),
    }


def _rule_hint(context: Context) -> Hint:
    """The rule that gives the port's answers in every case; else in every case where they are wrong."""
    cases = made_up_cases(*_material())
    truth = {case: oracle(*given) for case, given in cases.items()}
    answers = {case: _correct(context.port, *given) for case, given in cases.items()}
    wrong = [c for c in cases if answers[c].shape != truth[c].shape or (answers[c].astype(bool) != truth[c]).any()]
    met: dict[Hint, list[str]] = {}
    with np.errstate(invalid="ignore"):
        for hint, rule in _rules().items():
            made = {c: np.stack([rule(x, y, k) for k in KS], 1) for c, (x, y) in cases.items()}
            met[hint] = [c for c in cases if answers[c].shape == made[c].shape and np.array_equal(made[c], answers[c].astype(bool))]
    for needed in ([*cases], wrong if len(wrong) > 1 else []):
        for hint, explained in met.items():
            if needed and set(needed) <= set(explained):
                return hint
    return NO_HINT


Counts = tuple[list[int], int]  # right answers of each k, and samples
Other = tuple[Kind, str, Counts]  # what mistake gives which counts


def counting(context: Context) -> Finding | None:
    """``TopKAccuracy``: batches, padding, parts from several ranks, and the shares at the end."""
    logits, labels = _material()
    metric, tensor = part(context.port), context.port.framework.tensor
    truth = oracle(logits, labels)

    def plan(size: int, world: int) -> list[list[list[int]]]:
        """Samples of each batch of each rank."""
        plans = (BatchPlan(len(labels), size, rank=rank, world_size=world) for rank in range(world))
        return [[[key.sample for key in keys] for keys in of_rank] for of_rank in plans]

    def counted(size: int, world: int, mask: np.ndarray | None = None) -> Counts:
        total = metric.TopKAccuracy(KS)
        for of_rank in plan(size, world):
            share = metric.TopKAccuracy(KS) if world > 1 else total
            for chosen in of_rank:
                extra = () if mask is None else (tensor(mask[chosen]),)
                share.update(tensor(logits[chosen]), tensor(labels[chosen]), *extra)
            if world > 1:
                total.merge(share)
        return [int(n) for n in total.correct], int(total.count)

    def of(chosen: list[int]) -> Counts:
        return truth[chosen].sum(0).tolist(), len(chosen)

    every, half = [*range(len(labels))], np.arange(len(labels)) % 2 == 0
    masked, none = of(np.flatnonzero(half).tolist()), ([0] * len(KS), 0)
    batches, parts = plan(5, 1)[0], [[n for batch in of_rank for n in batch] for of_rank in plan(4, 2)]
    trials: tuple[tuple[str, tuple[Any, ...], Counts, list[Other]], ...] = (
        ("update", (16, 1), of(every), [(Kind.COUNT, "batches are counted, expected samples", (of(every)[0], 1))]),
        (
            "update",
            (5, 1),
            of(every),
            [
                (
                    Kind.LAST_BATCH_FORGOTTEN,
                    "the last, short batch is not counted",
                    of(every[: -len(batches[-1])]),
                ),
                (Kind.COUNT, "each batch takes the place of those before it", of(batches[-1])),
                (Kind.COUNT, "right answers of each batch take the place of those before it", (of(batches[-1])[0], len(labels))),
                (Kind.COUNT, "samples of each batch take the place of those before it", (of(every)[0], len(batches[-1]))),
                (Kind.COUNT, "the first batch alone is counted", of(batches[0])),
                (Kind.COUNT, "every batch counts as a full one", (of(every)[0], 5 * len(batches))),
                (Kind.COUNT, "batches are counted, expected samples", (of(every)[0], len(batches))),
            ],
        ),
        (
            "update",
            (16, 1, half),
            masked,
            [
                (Kind.PADDING_COUNTED, "padding counts as samples and as right answers", of(every)),
                (Kind.PADDING_COUNTED, "padding counts as samples", (masked[0], len(labels))),
                (Kind.PADDING_COUNTED, "padding counts as right answers", (of(every)[0], masked[1])),
            ],
        ),
        (
            "merge",
            (4, 2),
            of(every),
            [
                (Kind.RANKS_NOT_MERGED, "the first part alone is counted", of(parts[0])),
                (Kind.RANKS_NOT_MERGED, "the last part alone is counted", of(parts[-1])),
                (Kind.RANKS_NOT_MERGED, "no part is counted", none),
                *[
                    (Kind.RANKS_NOT_MERGED, "right answers are added up, samples are not", (of(every)[0], p[1]))
                    for p in (none, *map(of, parts))
                ],
                *[
                    (Kind.RANKS_NOT_MERGED, "samples are added up, right answers are not", (p[0], len(labels)))
                    for p in (none, *map(of, parts))
                ],
            ],
        ),
    )
    for name, arguments, wanted, others in trials:
        ours = counted(*arguments)
        if ours != wanted:
            measured = f"{ours[0]} right of {ours[1]}, expected {wanted[0]} of {wanted[1]}"
            explained = ((kind, words) for kind, words, made in others if made == ours)
            return Finding("metric", f"TopKAccuracy.{name}", *next(explained, NO_HINT), measured)
    return _shares(metric, tensor(logits), tensor(labels), of(every)) or _ends(context, logits, labels)


def _ends(context: Context, logits: np.ndarray, labels: np.ndarray) -> Finding | None:
    """One picture, none, and a metric that nobody tells the values of k."""
    said = {role: _said(side, logits, labels) for role, side in context.sides.items()}
    for what, place in (("one picture", "compute"), ("no picture", "compute"), ("no values of k", "__init__")):
        ours, theirs = said["port"][what], said["reference"][what]
        if ours != theirs and theirs != NO_DEFAULT:
            kind = Kind.RAISES if isinstance(ours, str) != isinstance(theirs, str) else Kind.COUNT
            show = lambda answer: answer if isinstance(answer, str) else f"gives {answer}"  # noqa: E731
            words = f"with {what} it {show(ours)}; the reference {show(theirs)}"
            return Finding("metric", f"TopKAccuracy.{place}", kind, words, words)
    return None


NO_DEFAULT = "has no default"


def _said(side: Side, logits: np.ndarray, labels: np.ndarray) -> dict[str, str | dict[str, float]]:
    """What a side's metric says at its ends: shares, or that it raises."""
    metric, tensor = part(side), side.framework.tensor

    def asked(count: int, *given: Any) -> str | dict[str, float]:
        try:
            total = metric.TopKAccuracy(*given)
        except TypeError:
            return NO_DEFAULT
        try:
            if count:
                total.update(tensor(logits[:count]), tensor(labels[:count]))
            return total.compute()
        except Exception:  # each framework has its own
            return "raises"

    return {"one picture": asked(1, KS), "no picture": asked(0, KS), "no values of k": asked(len(labels))}


def _shares(metric: MetricPart, logits: Any, labels: Any, wanted: Counts) -> Finding | None:
    """What ``compute`` makes of right counts."""
    total = metric.TopKAccuracy(KS)
    total.update(logits, labels)
    ours = total.compute()
    right = {f"top{k}": correct / wanted[1] for k, correct in zip(KS, wanted[0], strict=True)}
    if all(ours.get(name) == value for name, value in right.items()):
        return None
    hint = NO_HINT
    ratios = {ours[name] / value for name, value in right.items() if name in ours and value}
    if len(ratios) == 1 and set(right) <= set(ours):
        hint = Kind.SCALED, f"every share is {ratios.pop():.6g} times the right one"
    elif list(ours.values()) == [*right.values()][::-1]:
        hint = Kind.COUNT, "the shares of the values of k are exchanged"
    return Finding("metric", "TopKAccuracy.compute", *hint, f"{ours}, expected {right}")
