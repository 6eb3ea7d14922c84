"""Whether the mean difference lies within the margin."""

from __future__ import annotations

from alignment.equivalence import EQUAL
from alignment_doctor.equal.subject import Results
from alignment_doctor.findings import Outcome, check, found, nothing


@check(
    "equal.margin",
    "000 step 10",
    measures="the mean difference of paired results, against a declared margin",
    fix="where the results are different, find the first update at which two runs of one seed part (doctor compare); where it is "
    "undecided, train more seeds, or more alike: the same starting weights, batches and masks on both sides",
)
def margin(results: Results) -> Outcome:
    said = results.answer.words()
    if results.answer.answer == EQUAL:
        return nothing(said)
    worst = sorted(zip(results.seeds, results.differences, strict=True), key=lambda pair: -abs(pair[1]))
    return found(said, [f"seed {seed}: {difference:+.4g}" for seed, difference in worst])
