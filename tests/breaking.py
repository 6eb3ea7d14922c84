"""What the breakage tables of the steps share."""

from __future__ import annotations

from alignment.comparisons import guarded
from alignment.comparisons.explain import locate
from alignment.faults import injected
from projects.mobilenetv3.faults import FAULTS
from projects.mobilenetv3.project import PROJECT


def found_where_it_is(name, context, run):
    """Inject a fault, run its step, and see it fail, located exactly, and called by its name."""
    fault = FAULTS[name]
    with injected(PROJECT, name) as project:
        broken = context(project)
        result = guarded(fault.step, lambda: run(broken))
        assert result.failed
        first = locate(broken, [result], with_table=False).first
    assert (first.location, first.kind) == (fault.location, fault.hint), first.line()
    assert first.measured


def first_finding(context, result):
    """Location and kind of what a failed step is found to be."""
    assert result.failed
    first = locate(context, [result], with_table=False).first
    return first.location, first.kind


def faults_of(step):
    """Names of the faults that a step owes."""
    return [fault.name for fault in FAULTS.values() if fault.step == step]
