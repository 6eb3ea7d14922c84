"""A correct port must not fail. Two seeds a width here; docs/benchmarks.md has the figures of twenty."""

import pytest

from alignment.false_alarms import MODELS, WIDTHS, runs


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("model", MODELS)
def test_no_false_alarm(model, width):
    for seed in (100, 101):
        for result in runs(model, width, seed, (1, 4)):
            assert result.passed, [f"{q.name}: {q.reason}" for q in result.quantities if not q.passed] + result.problems
