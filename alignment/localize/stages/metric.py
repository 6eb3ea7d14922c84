"""Accuracy: which samples count as right, and how counts are added up."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from alignment.localize.finding import NO_HINT, Finding, Hint
from alignment.localize.kinds import Kind
from alignment.project import Side
from alignment.steps.context import Context
from alignment.steps.metric import KS, made_up_cases, oracle, part
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
            kind, words = _rule_hint(context, case)
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

    nan = lambda logits: np.isnan(logits).any(1)  # noqa: E731
    return {
        (Kind.ALWAYS_WRONG, "no answer counts as right"): lambda x, y, k: np.zeros(len(y), bool),
        (Kind.ALWAYS_RIGHT, "every answer counts as right"): lambda x, y, k: np.ones(len(y), bool),
        (Kind.TIES_RIGHT, "equal logits count as right"): lambda x, y, k: ((x > own(x, y)).sum(1) < k) & ~nan(x),
        (Kind.TIES_WRONG, "equal logits count as wrong"): lambda x, y, k: (
            (((x >= own(x, y)) & others(y, x.shape[1])).sum(1) < k) & ~nan(x)
        ),
        (Kind.NAN_RIGHT, "a row with NaN counts as right"): lambda x, y, k: ranked(x, y) < k,
        (Kind.SMALLEST, "the smallest logits win"): lambda x, y, k: (
            (((x < own(x, y)) | ((x == own(x, y)) & earlier(y, x.shape[1]))).sum(1) < k) & ~nan(x)
        ),
        (Kind.K_OFF_BY_ONE, "k is off by one: top-k asks for the first k - 1"): lambda x, y, k: (
            (ranked(x, y) < (k if k == 1 else k - 1)) & ~nan(x)
        ),
        (Kind.LABEL_OFF_BY_ONE, "labels are off by one"): lambda x, y, k: (ranked(x, (y + 1) % x.shape[1]) < k) & ~nan(x),
    }


def _rule_hint(context: Context, failing: str) -> Hint:
    """The one rule that explains every case."""
    cases = made_up_cases(*_material())
    answers = {case: _correct(context.port, *given).astype(bool) for case, given in cases.items()}
    with np.errstate(invalid="ignore"):
        for (kind, words), rule in _rules().items():
            made = {c: np.stack([rule(x, y, k) for k in KS], 1) for c, (x, y) in cases.items()}
            if all(np.array_equal(made[c], answers[c]) for c in cases):
                return kind, words
        for (kind, words), rule in _rules().items():
            x, y = cases[failing]
            if np.array_equal(np.stack([rule(x, y, k) for k in KS], 1), answers[failing]):
                return kind, words
    return NO_HINT


def counting(context: Context) -> Finding | None:
    """``TopKAccuracy``: batches, padding, parts from several ranks."""
    logits, labels = _material()
    metric, tensor = part(context.port), context.port.framework.tensor
    truth = oracle(logits, labels)

    def counted(size: int, world: int, merged: bool, mask: np.ndarray | None = None) -> tuple[list[int], int]:
        total = metric.TopKAccuracy(KS)
        for rank in range(world):
            share = metric.TopKAccuracy(KS) if merged else total
            for keys in BatchPlan(len(labels), size, rank=rank, world_size=world):
                chosen = [key.sample for key in keys]
                extra = () if mask is None else (tensor(mask[chosen]),)
                share.update(tensor(logits[chosen]), tensor(labels[chosen]), *extra)
            if merged:
                total.merge(share)
        return [int(n) for n in total.correct], int(total.count)

    def expected(chosen: np.ndarray) -> tuple[list[int], int]:
        return truth[chosen].sum(0).tolist(), int(chosen.sum())

    everything = np.ones(len(labels), bool)
    half = np.arange(len(labels)) % 2 == 0
    trials = (
        ("TopKAccuracy.update", Kind.BATCH, "one batch is counted wrongly", (16, 1, False, None), everything),
        ("TopKAccuracy.update", Kind.LAST_BATCH_FORGOTTEN, "the last, short batch is not counted", (5, 1, False, None), everything),
        ("TopKAccuracy.update", Kind.PADDING_COUNTED, "padding counts as samples", (16, 1, False, half), half),
        (
            "TopKAccuracy.merge",
            Kind.RANKS_NOT_MERGED,
            "the parts of several ranks are not added up",
            (4, 2, True, None),
            everything,
        ),
    )
    for location, kind, words, arguments, chosen in trials:
        ours, wanted = counted(*arguments), expected(chosen)
        if ours != wanted:
            measured = f"{ours[0]} right of {ours[1]}, expected {wanted[0]} of {wanted[1]}"
            return Finding("metric", location, kind, words, measured)
    return None
