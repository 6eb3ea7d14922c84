"""A correct port must not fail, nor be localised. One seed for two widths here; docs/benchmarks.md has the figures of twenty."""

import pytest

from bench.false_alarms import context_of, findings, runs
from projects.mobilenetv3.project import PROJECT

LARGE = pytest.param(("mobilenet_v3_large", 0.35, 100), marks=pytest.mark.slow, id="mobilenet_v3_large")


@pytest.fixture(scope="module", params=[pytest.param(("mobilenet_v3_small", 0.5, 107), id="mobilenet_v3_small"), LARGE])
def context(request):
    model, width, seed = request.param
    return context_of(PROJECT, model, {"width_mult": width}, seed)


def test_no_false_alarm(context):
    for result in runs(context, (1, 4)):
        assert result.passed, [f"{q.name}: {q.reason}" for q in result.quantities if not q.passed] + result.problems


@pytest.mark.slow
def test_nothing_is_localised_in_a_sound_port(context):
    assert findings(context) == []
