"""Where the losses part, and whether the results differ by more than chance."""

from __future__ import annotations

import math

import numpy as np

from alignment.equivalence import DIFFERENT, EQUAL, equivalence, one_against_many
from alignment_doctor.compare.entries import MEAN, WHOLE, Entry
from alignment_doctor.compare.subject import ABOVE_THE_SPREAD, SECOND_LOSS, RunsSubject, relative, rounding
from alignment_doctor.findings import Outcome, check, found, judged, not_applicable, not_judged, nothing

ACCEPTED = 0.0015  # document 000: 0.1 to 0.15 % of top-1 on ImageNet
CHANCE = 0.0027  # of a difference that is chance's alone: that beyond three standard deviations
TELLS = 0.1  # difference of top-1 that an evaluation should be able to show
MANY = 50_000  # pictures of an evaluation whose log does not say how many they were


def _no_start(subject: RunsSubject, update: int) -> Outcome | None:
    """Why the loss of update 1 or 2 cannot be judged; None where it can."""
    if subject.whole:
        return not_applicable("a log has the mean of whole epochs: log every update")
    if not subject.same_start:
        return not_applicable("the runs do not begin alike as far as their settings tell; --same-start says that they do")
    if not any(a.update == update for a, _ in subject.losses):
        return not_applicable(f"the logs do not both have update {update}: log every update")
    return None


def _at(subject: RunsSubject, update: int) -> tuple[Entry, Entry]:
    """The lines of an update that both have; logs that count from 0 have an update before the first."""
    return next(pair for pair in subject.losses if pair[0].update == update)


@check(
    "compare.first_loss",
    "002 phenomenon",
    "003 compare",
    measures="the loss of the first update, before any weight has moved, of runs that begin alike",
    fix="data, starting weights or forward pass differ: compare the first batch, then weights (doctor weights), then each layer "
    "(python -m alignment)",
)
def first_loss(subject: RunsSubject) -> Outcome:
    if (reason := _no_start(subject, 1)) is not None:
        return reason
    a, b = _at(subject, 1)
    apart, allowed = relative(a.loss, b.loss), subject.limit + rounding(a, b)
    said = f"{a.loss:.6g} and {b.loss:.6g}, relative difference {apart:.1e}; rounding makes up to {allowed:.1e}"
    return judged(["update 1"] if apart > allowed else [], said, said)


@check(
    "compare.second_loss",
    "002 phenomenon",
    "003 compare",
    measures="the loss of the second update, where the first agrees",
    fix="the backward pass or the update differs: compare gradients after the first update, then optimizer, its groups, weight "
    "decay, clipping and learning rate",
)
def second_loss(subject: RunsSubject) -> Outcome:
    for update in (1, 2):
        if (reason := _no_start(subject, update)) is not None:
            return reason
    (a, b), (c, d) = _at(subject, 1), _at(subject, 2)
    if relative(a.loss, b.loss) > subject.limit + rounding(a, b):
        return not_applicable("the first loss differs already")
    apart, allowed = relative(c.loss, d.loss), SECOND_LOSS * subject.limit + 2 * rounding(c, d)
    said = f"{c.loss:.6g} and {d.loss:.6g}, relative difference {apart:.1e}; rounding makes up to {allowed:.1e}"
    return judged(["update 2"] if apart > allowed else [], said, said)


@check(
    "compare.curve",
    "002 phenomenon",
    "003 compare",
    "000 step 10",
    measures="the first update at which the loss differs by more than that of repeated runs",
    fix="look at what changes at that update: an epoch's end, a step of the schedule, a resumption, a frozen or freed layer",
)
def curve(subject: RunsSubject) -> Outcome:
    if not subject.losses:
        return not_applicable("no update has a loss in both logs")
    if not subject.spread:
        return not_applicable("how far repeated runs part is not known: give some of the first run with --repeats")
    where, worst, compared = [], 0.0, 0
    for a, b in subject.losses:
        if a.update not in subject.spread:
            continue
        compared += 1
        apart, floor = relative(a.loss, b.loss), subject.spread[a.update]
        worst = max(worst, apart / max(floor, 1e-12))
        if apart > ABOVE_THE_SPREAD * floor + rounding(a, b) + subject.limit:
            where.append(f"update {a.update}: {a.loss:.6g} and {b.loss:.6g}, {apart:.1e} apart; repeated runs up to {floor:.1e}")
    if not compared:
        return not_applicable("the repeated runs have no update in common with both")
    return judged(
        where, f"apart at {len(where)} of {compared} updates", f"within the spread of repeated runs at {compared} updates"
    )


@check(
    "compare.finite",
    "002 mp.01",
    "000 step 10",
    measures="losses that are not numbers",
    fix="lower the learning rate, warm up or clip gradients; the first update named is where to look",
)
def finite(subject: RunsSubject) -> Outcome:
    where = [
        f"update {entry.update} of {run.path}: {entry.loss}"
        for run in (subject.first, subject.second, *subject.repeats)
        for entry in run.entries
        if entry.loss is not None and not math.isfinite(entry.loss)
    ]
    return judged(where, f"{len(where)} losses", "every loss is a number")


@check(
    "compare.final_accuracy",
    "000 step 10",
    "002 phenomenon",
    measures="top-1 of the last evaluation that both runs have",
    fix="a difference beyond chance has a cause: find the first update at which the curves part, above",
)
def final_accuracy(subject: RunsSubject) -> Outcome:
    one = {(e.unit, e.epoch): e for e in subject.first.evaluations}
    two = {(e.unit, e.epoch): e for e in subject.second.evaluations}
    common = sorted(one.keys() & two.keys())
    if not common:
        return not_applicable("the logs have no evaluation of the same epoch")
    a, b = one[common[-1]], two[common[-1]]
    place = f"{a.unit} {a.epoch:g}"
    repeated, paired = (
        [e.top1 for run in runs for e in run.evaluations if (e.unit, e.epoch) == common[-1]]
        for runs in (subject.repeats, subject.second_repeats)
    )
    if repeated:
        step = 1 / (a.samples or b.samples or MANY)
        if paired and len(paired) == len(repeated):
            answer = equivalence([b.top1, *paired], [a.top1, *repeated], ACCEPTED, step=step)
        else:
            answer = one_against_many(b.top1, [a.top1, *repeated], ACCEPTED, step)
        said = answer.words(100, " points of top-1")
        return {EQUAL: nothing(said), DIFFERENT: found(said, [place])}.get(answer.answer) or not_applicable(said)
    said = f"top-1 {a.top1:.2%} and {b.top1:.2%} after {place}"
    samples = a.samples or b.samples
    if samples is None:
        accepted = abs(a.top1 - b.top1) <= ACCEPTED
        return nothing(said) if accepted else not_applicable(f"{said}: give --repeats to know what chance makes")
    right = [min(samples, round(entry.top1 * samples)) for entry in (a, b)]
    chance = _fisher(right[0], right[1], samples)
    said += f": {right[0]} and {right[1]} of {samples} pictures, p = {chance:.2g}"
    if chance <= CHANCE and abs(a.top1 - b.top1) > ACCEPTED:
        return found(said, [place])
    if _shown(math.ceil(TELLS * samples), samples):
        return nothing(said)
    needed = next((count for count in range(1, samples + 1) if _shown(count, samples)), None)
    takes = "no difference is enough" if needed is None else f"it takes a difference of about {needed / samples:.0%}"
    return not_judged("the final accuracy", f"{said}; so few pictures do not decide: {takes}, or --repeats")


def _shown(difference: int, samples: int) -> bool:
    """Whether a difference of so many right answers, around one half, is more than chance makes."""
    below = (samples - difference) // 2
    return _fisher(below, below + difference, samples) <= CHANCE


def _fisher(one: int, other: int, samples: int) -> float:
    """Chance of counts of right answers as unequal as these, or more, in two runs of one accuracy: Fisher's exact test."""
    together = one + other
    low, high = max(0, together - samples), min(together, samples)
    logs = np.array(
        [
            -sum(map(math.lgamma, (k + 1, samples - k + 1, together - k + 1, samples - together + k + 1)))
            for k in range(low, high + 1)
        ]
    )
    shares = np.exp(logs - logs.max())
    return float(shares[logs <= logs[one - low] + 1e-7].sum() / shares.sum())


@check(
    "compare.form",
    "002 phenomenon",
    measures="whether both logs say the same with their loss",
    fix="log the loss of single updates in both runs, to know where they part",
)
def form(subject: RunsSubject) -> Outcome:
    if subject.whole and not subject.losses and subject.first.entries and subject.second.entries:
        return found("one log has whole epochs, the other has no epoch that ended", ["the curves cannot be compared"])
    forms = {run.averaged for run in (subject.first, subject.second)}
    if len(forms) == 1:
        return nothing(f"both are of one form ({subject.first.form}, {subject.second.form})")
    if subject.whole:
        return nothing(f"one has the {WHOLE}: the other was brought to the same")
    if any(entry.epoch is None for run in (subject.first, subject.second) for entry in run.entries):
        return found(f"one log has the {MEAN}, the other has no epochs", ["the curves cannot be compared"])
    return nothing(f"one has the {MEAN}: the other was brought to the same")
