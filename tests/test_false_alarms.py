"""A correct port must not fail, nor be localised. One seed for two widths here; docs/benchmarks.md has the figures of twenty."""

import pytest

from alignment.false_alarms import findings, runs

CASES = (("mobilenet_v3_small", 0.5, 107), ("mobilenet_v3_large", 0.35, 100))


@pytest.mark.parametrize(("model", "width", "seed"), CASES)
def test_no_false_alarm(model, width, seed):
    for result in runs(model, width, seed, (1, 4)):
        assert result.passed, [f"{q.name}: {q.reason}" for q in result.quantities if not q.passed] + result.problems


@pytest.mark.parametrize(("model", "width", "seed"), CASES)
def test_nothing_is_localised_in_a_sound_port(model, width, seed):
    assert findings(model, width, seed) == []
