"""What the breakage tables of the steps share."""

from __future__ import annotations

import pickle

from alignment.comparisons import guarded
from alignment.comparisons.explain import locate
from alignment.faults import injected
from projects.mobilenetv3.faults import FAULTS
from projects.mobilenetv3.project import PROJECT


class Once:
    """``measure`` of a comparison, in which the reference is measured once for the same material, of whichever project."""

    def __init__(self, kind):
        self.measure, self.kept = kind.measure, []

    def __call__(self, comparison, context, role):
        of = context.reference
        sides = (of.data, of.loss, context.project.independent, context.image_backend, context.seed)
        given = [getattr(comparison, name, None) for name in ("loadings", "whom", "backend", "magnitudes")]
        same = type(comparison), given, pickle.dumps(getattr(comparison, "stages", None)), sides
        for others, measured in self.kept if role == "reference" else ():
            if others == same:
                return measured
        measured = self.measure(comparison, context, role)
        if role == "reference":
            self.kept.append((same, measured))
        return measured


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
