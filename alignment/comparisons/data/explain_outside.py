"""Mistakes that both sides share: published values, pictures of the independent part, the plan of batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from alignment.comparisons.context import Context
from alignment.comparisons.data import explain as data
from alignment.comparisons.data import explain_batches as batches
from alignment.comparisons.data import explain_mixing as mixing
from alignment.comparisons.data import plan as data_plan
from alignment.comparisons.data import presets as data_presets
from alignment.comparisons.data.loading import changed, outside
from alignment.finding import Finding
from alignment.kinds import Kind

LOOKS: tuple[Callable[[Context], Finding | None], ...] = (
    data.decoding,
    data.evaluation,
    data.training,
    batches.samples,
    batches.order,
    mixing.mixed,
)
KINDS = {
    "BatchPlan: shards": Kind.SHARDS_OVERLAP,
    "BatchPlan: order": Kind.ORDER,
    "BatchPlan: ranks": Kind.ORDER,
    "BatchPlan: last batch": Kind.BATCH_DROPPED,
    "BatchPlan: repeats": Kind.ORDER,
    "epoch_order: epoch": Kind.NOT_RESHUFFLED,
    "epoch_order: seed": Kind.NOT_INDEPENDENT,
}


def published(context: Context) -> Finding | None:
    """The first value that is not the published one."""
    other = context.project.independent
    for value in data_presets.values(other) if other is not None else ():
        if not value.same:
            words = f"{value.found}, expected {value.expected}"
            return Finding("data", value.location, Kind.PRESET, words, f"{other.name} publishes {value.expected}" if other else "")
    return None


def with_opencv(context: Context) -> Finding | None:
    """The two sides with OpenCV's pictures."""
    decoded = changed(context, image_backend="cv2")
    for look in (data.decoding, data.evaluation, data.training, batches.samples):
        if finding := look(decoded):
            return finding
    return None


def independent(context: Context) -> Finding | None:
    """The port against the independent part, with both decoders."""
    for backend in ("pil", "cv2"):
        truth = outside(changed(context, image_backend=backend))
        if truth is None:
            return None
        for look in LOOKS:
            if finding := look(truth):
                name = context.project.independent.name if context.project.independent is not None else ""
                return replace(finding, measured=f"{finding.measured}; against {name}, both sides agree")
    return None


def plan(context: Context) -> Finding | None:
    """The first statement about batches that does not hold."""
    for statement in data_plan.STATEMENTS.values():
        for wrong in statement(context.seed):
            return Finding("data", wrong.location, KINDS.get(wrong.location, Kind.UNKNOWN), wrong.words, wrong.measured)
    row = data_plan.permutations(context.seed)
    return None if row.passed else Finding("data", "epoch_order", Kind.DISTRIBUTION, "orders are not equally likely", row.reason)
