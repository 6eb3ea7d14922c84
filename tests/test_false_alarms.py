"""A correct port must not fail, nor be localised. One seed for two widths here; docs/benchmarks.md has the figures of twenty."""

import pytest

from bench.false_alarms import context_of, findings, runs
from projects.mobilenetv3.project import PROJECT

SMALL = pytest.param(("mobilenet_v3_small", 0.5, 107), id="mobilenet_v3_small")


def large(mark):
    return pytest.param(("mobilenet_v3_large", 0.35, 100), marks=mark, id="mobilenet_v3_large")


@pytest.fixture(scope="module")
def context(request):
    model, width, seed = request.param
    return context_of(PROJECT, model, {"width_mult": width}, seed)


@pytest.mark.parametrize("context", [SMALL, large(pytest.mark.slow)], indirect=True)
def test_no_false_alarm(context):
    for result in runs(context, (1, 4)):
        assert result.passed, [f"{q.name}: {q.reason}" for q in result.quantities if not q.passed] + result.problems


@pytest.mark.slow
@pytest.mark.parametrize("context", [SMALL, large(pytest.mark.weekly)], indirect=True)
def test_nothing_is_localised_in_a_sound_port(context):
    assert findings(context) == []
