"""A correct port must not fail, nor be localised. One seed for two widths here; docs/benchmarks.md has the figures of twenty."""

import pytest

from alignment.bench.false_alarms import context_of, findings, runs
from projects.mobilenetv3.project import PROJECT


@pytest.fixture(scope="module", params=[("mobilenet_v3_small", 0.5, 107), ("mobilenet_v3_large", 0.35, 100)], ids=lambda p: p[0])
def context(request):
    model, width, seed = request.param
    return context_of(PROJECT, model, {"width_mult": width}, seed)


def test_no_false_alarm(context):
    for result in runs(context, (1, 4)):
        assert result.passed, [f"{q.name}: {q.reason}" for q in result.quantities if not q.passed] + result.problems


def test_nothing_is_localised_in_a_sound_port(context):
    assert findings(context) == []
