"""Whether what is learnt can hold for pictures that are not learnt."""

from __future__ import annotations

from alignment_doctor.check.subject import RunSubject
from alignment_doctor.findings import Outcome, check, found, not_applicable, not_judged, nothing
from alignment_doctor.relation import measured_words, unrelated


@check(
    "check.held_out",
    "002 ds.02",
    "004 data",
    "004 training",
    measures="whether labels can be told from pictures that were held out, where a batch can be learnt by heart",
    fix="look at the contact sheet: do labels belong to their pictures? Look for a list that was sorted or shuffled apart from its "
    "pictures, for class numbers that differ between training and validation, and for splits that were exchanged",
)
def held_out(subject: RunSubject) -> Outcome:
    made = subject.relation
    if made.reason:
        return not_judged("labels", made.reason)
    wrong = unrelated(made)
    if wrong is None:
        return nothing(measured_words(made))
    said, where = wrong
    if not subject.losses or not (subject.learnt or subject.config.teacher is not None):
        return not_applicable(f"{said}; but the first batch is not learnt either: see check.overfit")
    return found(f"the first batch is learnt by heart, but {said}", where)
