"""Whether labels belong to their pictures."""

from __future__ import annotations

from alignment_doctor.data.subject import DataSubject
from alignment_doctor.findings import Outcome, check, found, not_judged, nothing
from alignment_doctor.relation import measured_words, unrelated


@check(
    "data.labels",
    "002 ds.02",
    "004 data",
    measures="whether the label of a picture can be told from other pictures with theirs, better than by chance",
    fix="look at the contact sheet: do labels belong to their pictures? Look for a list that was sorted or shuffled apart from its "
    "pictures, and for class numbers that differ between training and validation",
)
def labels(subject: DataSubject) -> Outcome:
    made = subject.relation
    if made.reason:
        return not_judged("labels", made.reason)
    wrong = unrelated(made)
    if wrong is not None:
        return found(*wrong)
    sizes = {split: len(index) for split, index in subject.indices.items()}
    more = sizes.get("val", 0) > sizes.get("train", 0) > 0
    return nothing(measured_words(made) + "; validation has more pictures than training: were they exchanged?" * more)
