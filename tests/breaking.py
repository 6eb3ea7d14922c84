"""What the breakage tables of the steps share."""

from __future__ import annotations

from alignment.diagnosis import diagnose
from alignment.faults import FAULTS, injected
from alignment.steps import guarded


def found_where_it_is(name, context, run):
    """Inject a fault, run its step, and see it fail, located exactly, and called by its name."""
    fault = FAULTS[name]
    with injected(name) as side:
        broken = context(side)
        result = guarded(fault.step, lambda: run(broken))
        assert not result.passed
        first = diagnose(broken, [result], with_table=False).first
    assert (first.location, first.kind) == (fault.location, fault.hint), first.line()
    assert first.measured


def faults_of(step):
    """Names of the faults that a step owes."""
    return [fault.name for fault in FAULTS.values() if fault.step == step]
