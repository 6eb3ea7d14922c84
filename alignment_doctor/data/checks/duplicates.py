"""One picture in two places: within a split, in training and validation, and under two labels."""

from __future__ import annotations

from alignment_doctor.data.subject import DataSubject
from alignment_doctor.findings import Outcome, check, judged, not_applicable


def _both(subject: DataSubject, a: int, b: int, how: str) -> str:
    return f"{subject.shown(a)} and {subject.shown(b)} ({how})"


@check(
    "data.duplicates",
    "002 ds.04",
    measures="equal files within one split",
    fix="remove all but one: a repeated picture counts more than the others, and in validation twice",
)
def duplicates(subject: DataSubject) -> Outcome:
    where = []
    for group in subject.same_files:
        for split in subject.indices:
            inside = [sample for sample in group if subject.splits[sample] == split]
            where += [_both(subject, inside[0], other, "equal files") for other in inside[1:]]
    return judged(where, f"{len(where)} files repeat another one", "no two files of a split are equal")


@check(
    "data.near_duplicates",
    "002 ds.04",
    measures="pictures of one split that are the same but for coding, size and small changes of brightness",
    fix="look at the pairs, and keep one of each that is really the same picture",
)
def near_duplicates(subject: DataSubject) -> Outcome:
    if subject.expected.near == 0:
        return not_applicable("not looked for: --near 0")
    pairs = zip(subject.near.first.tolist(), subject.near.second.tolist(), subject.near.difference.tolist(), strict=True)
    where = [_both(subject, a, b, f"difference {d:.1%}") for a, b, d in pairs if subject.splits[a] == subject.splits[b]]
    limit = "" if subject.near.complete else "; too many look alike to compare all"
    return judged(where, f"{len(where)} pairs{limit}", f"none with a difference up to {subject.expected.near:.0%}{limit}")


@check(
    "data.leak",
    "002 ds.04",
    "000 step 2",
    measures="pictures that are in training and in validation, also mirrored",
    fix="remove them from training: accuracy on them shows memory and not skill",
)
def leak(subject: DataSubject) -> Outcome:
    if len(subject.indices) < 2:
        return not_applicable(f"there is a split {next(iter(subject.indices))} alone")
    pairs = subject.same_pictures()
    # Of a group of equal files in both splits, each file of validation is named once.
    grouped = {sample: group for group in subject.same_files for sample in group}
    where = []
    for group in subject.same_files:
        train = [sample for sample in group if subject.splits[sample] == "train"]
        where += [_both(subject, train[0], sample, "equal files") for sample in group if train and subject.splits[sample] == "val"]
    for a, b, how in pairs:
        if how != "equal files" and subject.splits[a] != subject.splits[b] and (a not in grouped or b not in grouped):
            where.append(_both(subject, a, b, how))
    where += [_both(subject, a, b, f"mirrored, difference {apart:.1%}") for a, b, apart in subject.mirrored]
    return judged(where, f"{len(where)} pictures", "no picture of validation is in training")


@check(
    "data.contradictory",
    "002 ds.02",
    "004 data",
    measures="one picture with two labels",
    fix="find out which label is right, and remove the other",
)
def contradictory(subject: DataSubject) -> Outcome:
    where = [_both(subject, a, b, how) for a, b, how in subject.same_pictures() if subject.class_name(a) != subject.class_name(b)]
    where = [f"{text}: classes differ" for text in where]
    return judged(where, f"{len(where)} pairs", "no picture has two labels")
