"""The list of planted training mistakes (tests/mistakes): how many the doctor finds in two updates, and with the right cause."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.mistakes.planted import MISTAKES
from tests.mistakes.run import results


def test_the_list_is_long_and_every_mistake_has_a_source():
    assert len(MISTAKES) >= 60 and all(one.means and one.source for one in MISTAKES)
    assert set(Counter(one.group for one in MISTAKES)) == {"code", "data", "configuration", "ranks"}
    assert len({(one.by, one.name) for one in MISTAKES}) == len(MISTAKES)


@pytest.mark.slow
def test_a_watch_misses_no_more_than_it_did():
    made = results(["watch"])
    missed = {one.mistake.name for one in made if not one.found}
    assert missed == {"overflowing", "same_batch", "shuffled_labels"}  # docs/doctor.md says why
