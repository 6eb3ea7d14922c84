"""Every hypothesis about a metric names its mistake, on plain arrays."""

import numpy as np
import pytest

from alignment.comparisons.metric.counting import Counting
from alignment.comparisons.metric.mistakes import KS, MERGED, PADDED, RIGHT, UPDATED
from alignment.comparisons.metric.right_answers import RightAnswers, oracle
from alignment.kinds import Kind

RULES = [
    "no answer counts as right",
    "every answer counts as right",
    "equal logits count as right",
    "equal logits count as right, and so does a row with NaN",
    "equal logits count as wrong",
    "the label's own logit counts as ahead of it: >= for >",
    "the last of equal logits ranks first",
    "a row with NaN counts as right",
    "a row counts as right as long as not all of its logits are NaN",
    "the smallest logits win",
    "k is off by one: top-k asks for the first k - 1",
    "k is off by one: every k asks for the first k - 1",
    "k is off by one: top-k asks for the first k + 1",
    "every k is taken for 1",
    "every k is taken for 5",
    "the label must be at place k exactly",
    "labels are off by one",
    "labels are off by one, downwards",
    "right and wrong are exchanged",
]
MISCOUNTS = [
    (UPDATED, "the last, short batch is not counted"),
    (UPDATED, "each batch takes the place of those before it"),
    (UPDATED, "right answers of each batch take the place of those before it"),
    (UPDATED, "samples of each batch take the place of those before it"),
    (UPDATED, "the first batch alone is counted"),
    (UPDATED, "every batch counts as a full one"),
    (UPDATED, "batches are counted, expected samples"),
    (PADDED, "padding counts as samples and as right answers"),
    (PADDED, "padding counts as samples"),
    (PADDED, "padding counts as right answers"),
    (MERGED, "the first part alone is counted"),
    (MERGED, "the last part alone is counted"),
    (MERGED, "no part is counted"),
    (MERGED, "right answers are added up, samples are not"),
    (MERGED, "samples are added up, right answers are not"),
    (MERGED, "right answers are added up, samples are not: those of the first part stay"),
    (MERGED, "samples are added up, right answers are not: those of the first part stay"),
    (MERGED, "right answers are added up, samples are not: those of the last part stay"),
    (MERGED, "samples are added up, right answers are not: those of the last part stay"),
]


def picked_logits():
    """Float32 (16, 12) and labels of which some are right."""
    rng = np.random.default_rng(3)
    logits, labels = rng.standard_normal((16, 12)).astype(np.float32), rng.integers(0, 12, 16)
    logits[np.arange(0, 16, 2), labels[::2]] += 2.0
    return logits, labels


def shares_of(feed):
    return {f"top{k}": float(right / feed.truth[-1]) for k, right in zip(KS, feed.truth, strict=False)}


RIGHT_ANSWERS = RightAnswers(*picked_logits())


def explained(rule):
    """What is said of a port whose right answers are a rule's."""
    with np.errstate(invalid="ignore"):
        port = {case: rule(*given) for case, given in RIGHT_ANSWERS.cases.items()}
    return RIGHT_ANSWERS.explain(port, RIGHT_ANSWERS.truth)


@pytest.mark.parametrize("words", RULES)
def test_every_mistake_of_the_metric_is_named(words):
    (mistake,) = RIGHT.makers[words]()
    finding = explained(lambda x, y: mistake.predict((x, y)))
    assert finding.kind == mistake.kind, finding.line()


def test_the_lists_are_whole():
    assert set(RIGHT.makers) <= set(RULES)
    assert {name for family, name in MISCOUNTS} >= {*UPDATED.makers, *PADDED.makers, *MERGED.makers}


@pytest.mark.parametrize("rule", ["sound", "random", "one sample"])
def test_no_mistake_of_the_metric_is_claimed_of_another_one(rule):
    rng = np.random.default_rng(0)

    def answers(logits, labels):
        right = oracle(logits, labels)
        if rule == "random":
            return rng.random(right.shape) < 0.5
        if rule == "one sample":
            right[3] = ~right[3]
        return right

    finding = explained(answers)
    assert (finding is None) if rule == "sound" else finding.kind is Kind.UNKNOWN, finding


COUNTING = Counting(*picked_logits())
PLACES = {UPDATED.name: ("update", False), PADDED.name: ("update", True), MERGED.name: ("merge", False)}


def miscounted(place, padded, predict):
    """What is said of a port that counts as it should but for one way of feeding."""
    right = {name: feed.truth for name, feed in COUNTING.ways.items()} | {"shares": shares_of(COUNTING.ways["batch_size16"])}
    wrong = {n: predict(f) for n, f in COUNTING.ways.items() if (f.place, f.mask is not None) == (place, padded)}
    return COUNTING.explain({**right, **wrong}, right)


@pytest.mark.parametrize(("family", "words"), MISCOUNTS, ids=lambda value: value if isinstance(value, str) else value.name)
def test_every_mistake_of_counting_is_named(family, words):
    (mistake,) = family.makers[words]()
    place, padded = PLACES[family.name]
    finding = miscounted(place, padded, mistake.predict)
    assert (finding.location, finding.kind, finding.hint) == (f"TopKAccuracy.{place}", *mistake.hint)


def test_sound_counts_are_no_finding_and_others_are_not_named():
    assert miscounted("update", False, lambda feed: feed.truth) is None
    assert miscounted("update", False, lambda feed: feed.truth + 1).kind is Kind.UNKNOWN
    # One batch of those that were fed is explained, and the others are not: no cause is claimed.

    def short(feed):
        batches = feed.parts[0]
        return feed.counts(batches[0]) if 1 < len(batches[0]) < 16 else feed.truth + (len(batches) > 1)

    assert miscounted("update", False, short).kind is Kind.UNKNOWN


@pytest.mark.parametrize(("change", "kind"), [
    (lambda shares: {name: 100 * share for name, share in shares.items()}, Kind.SCALED),
    (lambda shares: dict(zip(shares, reversed(shares.values()), strict=True)), Kind.COUNT),
    (lambda shares: {**shares, "top5": 0.0}, Kind.UNKNOWN),
])  # fmt: skip
def test_shares_of_right_counts_are_named(change, kind):
    right = {name: feed.truth for name, feed in COUNTING.ways.items()} | {"shares": shares_of(COUNTING.ways["batch_size16"])}
    finding = COUNTING.explain({**right, "shares": change(right["shares"])}, right)
    assert (finding.location, finding.kind) == ("TopKAccuracy.compute", kind)
