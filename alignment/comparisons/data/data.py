"""Step 2, data: every pixel, label, file name and the order, for evaluation and for every training augmentation."""

from __future__ import annotations

import copy
import functools
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from alignment.comparisons.comparison import Compared, Comparison, Measurement, compare, measure
from alignment.comparisons.context import Context
from alignment.comparisons.data import draws, errors, plan, presets
from alignment.comparisons.data.batches import Batches, Loading, batches_of, order_of, without_pixels
from alignment.comparisons.data.errors import Errors
from alignment.comparisons.data.eval_transform import Decoding, EvalTransform
from alignment.comparisons.data.evaluation import Evaluation, SharedOut
from alignment.comparisons.data.loading import REFERENCE, compared_with, few_pictures, first_pictures, only, part
from alignment.comparisons.data.mixing import MIXED, Mixing
from alignment.comparisons.data.operations import EveryOperation
from alignment.comparisons.data.plan import Planned
from alignment.comparisons.data.presets import Presets
from alignment.comparisons.data.samples import SampleCalls
from alignment.comparisons.data.train_transform import TrainTransform
from alignment.comparisons.result import StepResult, guarded
from alignment.finding import Finding
from alignment.kinds import Kind
from alignment.strangers import strangers
from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import decode_image
from mobilenetv3_common.presets import TTA, EvalPreset, TrainPreset
from mobilenetv3_common.sampling import SampleKey, sample_params

EPOCHS = 3
WORKED = (
    "autoaugment",
    "erasing",
)  # made by workers too: a loader may leave to its loop what comes after the normalisation, or not
VIEWED, VIEW_SIZE = 4, 64  # pictures of which every view is compared, and their pixels
AUGMENTED = {
    "basic": TrainPreset(),
    "autoaugment": TrainPreset(auto_augment="imagenet"),
    "randaugment": TrainPreset(auto_augment="ra"),
    "trivialaugment": TrainPreset(auto_augment="ta_wide"),
    "erasing": TrainPreset(random_erase_prob=0.5),
}
PADDED = TrainPreset(crop_padding=32)
POLICIES = {**AUGMENTED, **MIXED}
TOPICS = {"basic": ("random resized crop", "horizontal flip"), "erasing": ("random erasing",)}
NO_OPENCV = "the OpenCV backend: OpenCV is not installed"
Check = Callable[[Context, StepResult], None]
Looking = Callable[[], Compared]


def with_opencv(context: Context, result: StepResult) -> None:
    """A few evaluation and training pictures decoded by OpenCV: both sides, and the independent ones."""
    if not _has_opencv():
        result.not_run = "; ".join([*filter(None, [result.not_run]), NO_OPENCV])
        return
    loadings = {
        f"opencv.{name}": Loading(few_pictures(context.material.index(split)), preset, backend="cv2")
        for split, name, preset in (("val", "eval", EvalPreset()), ("train", "train", TrainPreset()))
    }
    _batches(context, result, Batches(loadings, [*compared_with(context)], named=True))
    result.cover("OpenCV backend", outside=bool(_independent(context)))


def padded_crops(context: Context, result: StepResult) -> None:
    """Crops beyond the border of a picture: the port against the reference and the independent ones."""
    loading = Loading(few_pictures(context.material.index("train")), PADDED, 1)
    _batches(context, result, Batches({"train.padded": loading}, [*compared_with(context)], named=True))


def operations(context: Context, result: StepResult) -> None:
    """Every operation with every magnitude, port against reference, and against the independent one."""
    compare(context, result, EveryOperation(context, [*compared_with(context)]))
    result.cover("every magnitude of every operation", outside=bool(_independent(context)))


def mixing(context: Context, result: StepResult) -> None:
    """Groups and batches that are mixed."""
    compare(context, result, Mixing(context, [*compared_with(context)]))
    result.cover("mixing groups", "mixup", "cutmix", outside=bool(_independent(context)))


def training_pictures(context: Context, result: StepResult) -> None:
    """The port's training pictures, for drawn parameters, against the independent ones."""
    index, others = few_pictures(context.material.index("train")), _independent(context)
    if others:
        worked = {name: int(name == "erasing") for name in AUGMENTED}
        loadings = {f"train.{name}": Loading(index, preset, 1, worked[name]) for name, preset in AUGMENTED.items()}
        _batches(context, result, Batches(loadings, others, named=True))
        result.cover("training pictures", outside=True)


CHECKS: tuple[Check, ...] = (
    presets.run,
    with_opencv,
    padded_crops,
    operations,
    mixing,
    training_pictures,
    plan.run,
    errors.run,
    draws.run,
)


def run(context: Context, policies: dict[str, TrainPreset] = POLICIES, checks: Sequence[Check] = CHECKS) -> StepResult:
    """Compare both loaders batch by batch, and the port with what is known from outside the project.

    Args:
        context: the two sides.
        policies: the augmentations whose batches are compared.
        checks: what is compared besides.
    """
    result = StepResult(2, "data")

    def compared() -> StepResult:
        parts = [("eval", functools.partial(_evaluation, context, result)), ("", functools.partial(_views, context, result))]
        parts += [(f"train.{one}", functools.partial(_training, context, result, one, preset)) for one, preset in policies.items()]
        for _, compare_part in context.suspects_first(parts, lambda part: part[0]):
            compare_part()
        for check in checks:
            check(context, result)
        return result

    outcome = guarded(2, compared)
    explained = outcome.failed and not context.in_haste
    outcome.compared = _explaining(context, outcome, result.compared) if explained else []  # type: ignore[arg-type, assignment]
    return outcome


def _batches(context: Context, result: StepResult, batches: Batches) -> Compared:
    """Compare batches; their pixels are not kept, the order of pictures is."""
    compared = compare(context, result, batches)
    result.compared[-1] = replace(compared, port=without_pixels(compared.port), reference=without_pixels(compared.reference))
    return compared


def _evaluation(context: Context, result: StepResult) -> None:
    evaluation = Evaluation(context)
    compared = _batches(context, result, evaluation)
    compare(context, result, SharedOut(context))
    result.cover("evaluation pictures", "evaluation over ranks", outside=evaluation.outside is not None)
    runs = {"port": batches_of(compared.port, "eval"), "reference": batches_of(only(compared.reference, REFERENCE), "eval")}
    pixels, index = np.concatenate([batch[0] for batch in runs["reference"]]), evaluation.index
    result.require("pictures", len(index), len(index) >= 4, "4 or more")
    result.require("eval_pixel_std", round(float(pixels.std()), 3), 0.2 < pixels.std() < 5, "0.2 to 5")
    result.require("eval_labels", len(set(index.labels)), len(set(index.labels)) > 1, "more than one class")
    for role, records in result.records.items():
        records["eval.images"], records["eval.labels"], records["eval.order"] = runs[role][0]


def _views(context: Context, result: StepResult) -> None:
    """The views of each picture in evaluation, where the port's part makes any."""
    whole = context.material.index("val")
    index = whole.take([i * len(whole) // VIEWED for i in range(min(VIEWED, len(whole)))])
    for view in TTA:
        loading = Loading(index, EvalPreset(VIEW_SIZE * 8 // 7, VIEW_SIZE, tta=view), workers=1 if view == "flip" else 0)
        views = Batches({f"eval.views.{view}": loading})
        try:
            reference = measure(context, views, "reference")
        except UserError:  # a part without views
            continue
        try:
            port = measure(context, views, "port")
        except UserError:
            if "several views" in context.project.without:
                continue
            raise
        if view != "none" and batches_of(only(reference, REFERENCE), f"eval.views.{view}")[0][0].ndim == 4:
            continue  # one picture each: the reference makes none
        result.extend(views.judge(port, reference))
        result.compared.append(Compared(views, without_pixels(port), without_pixels(reference)))


def _training(context: Context, result: StepResult, policy: str, preset: TrainPreset) -> None:
    index = first_pictures(context.material.index("train"))
    names = [f"train.{policy}.epoch{epoch}" for epoch in range(EPOCHS)]
    workers = [2 if policy in WORKED and epoch == 0 else 0 for epoch in range(EPOCHS)]
    compared = _batches(
        context, result, Batches({name: Loading(index, preset, epoch, workers[epoch]) for epoch, name in enumerate(names)})
    )
    measured = {"port": compared.port, "reference": only(compared.reference, REFERENCE)}
    for role, records in result.records.items():
        if first := batches_of(measured[role], names[0]):
            records[f"train.{policy}.images"], records[f"train.{policy}.labels"] = first[0][0][:1], first[0][1]
    _training_evidence(context, result, policy, preset, index, measured["reference"])
    result.cover(*TOPICS.get(policy, (policy,)))


def _training_evidence(
    context: Context, result: StepResult, policy: str, preset: TrainPreset, index: DatasetIndex, reference: Measurement
) -> None:
    names = [f"train.{policy}.epoch{epoch}" for epoch in range(EPOCHS)]
    orders = {order_of(reference, name) for name in names}
    result.require(f"{policy}_orders", len(orders), len(orders) == EPOCHS, f"{EPOCHS} different orders")
    keys = [SampleKey(epoch, number, 0) for epoch in range(EPOCHS) for number in range(len(index))]
    drawn = [sample_params(preset, context.seed, key, 300, 400) for key in keys]
    if policy == "basic":
        crops, flips = {p.crop for p in drawn}, sum(p.flip for p in drawn)
        result.require("different_crops", len(crops), len(crops) > len(drawn) // 2, "more than half of the samples")
        result.require("flips", flips, 0 < flips < len(drawn), "some but not all")
    if preset.auto_augment:
        ops = {name for p in drawn for name, _ in p.ops}
        result.require(f"{policy}_operations", len(ops), len(ops) >= 4, "4 or more kinds")
    if preset.random_erase_prob:
        erased = sum(p.erase is not None for p in drawn)
        result.require("erased", erased, 0 < erased < len(drawn), "some but not all")
    if preset.mixes:
        batches = [batch for name in names for batch in batches_of(reference, name)]
        soft = max(float(np.sort(batch[1], axis=1)[:, -2].max()) for batch in batches)
        result.require(f"{policy}_second_label", round(soft, 4), soft > 0.01, "a weight above 0.01")


def _has_opencv() -> bool:
    return importlib.util.find_spec("cv2") is not None


def _independent(context: Context) -> list[str]:
    return [who for who in compared_with(context) if who != REFERENCE]


# --- the place of a mistake ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outside(Compared):
    """The port against the independent part."""

    who: str = ""

    def explain(self) -> Finding | None:
        if (finding := super().explain()) is None:
            return None
        return replace(finding, measured=f"{finding.measured}; against {self.who}, both sides agree")


def _explaining(context: Context, result: StepResult, kept: Sequence[Compared]) -> list[Compared]:
    """The comparison that explains a failure, in the order in which data flows; what is not measured yet is measured once now."""
    first = next((row.name for row in result.quantities if not row.passed), "")
    if first.startswith("errors.") and not result.problems:
        return [one for one in kept if isinstance(one.comparison, Errors)]
    broken = None
    for name, look in _looks(context, kept):
        with strangers("port") as raised:  # the port may raise anything; a later comparison may still name the place
            compared = look()
            if compared.explain() is not None:
                return [compared]
        if raised.error is not None:
            broken = broken or Finding("data", raised.place or name, Kind.RAISES, "the port cannot run", raised.words)
    result.raised = broken or result.raised
    return []


def _looks(context: Context, kept: Sequence[Compared]) -> Iterator[tuple[str, Looking]]:
    """The comparisons by name, first against the reference, then what both sides share against what is known from outside."""
    whom, known = [*compared_with(context)], {type(one.comparison): one for one in kept}
    measured: dict[tuple[type, str], Compared] = {}

    def against(who: str, kind: type, make: Callable[[], Comparison], backend: str = "") -> Compared:
        if (kind, backend) not in measured:
            measured[kind, backend] = known[kind] if kind in known and not backend else _measured(context, make())
        one = measured[kind, backend]
        reference = only(one.reference, who) if who else one.reference
        if who in ("", REFERENCE):
            return Compared(one.comparison, one.port, reference)
        comparison: Any = copy.copy(one.comparison)
        if hasattr(comparison, "right"):  # what a mistake would give is predicted by the side that is taken to be right
            comparison.right = part(compared_with(context)[who])
        return Outside(comparison, one.port, reference, who)

    def transforms(who: str, backend: str) -> Iterator[tuple[str, Looking]]:
        kinds: tuple[tuple[str, type, bool], ...] = (
            ("decoding", Decoding, True),
            ("evaluation", EvalTransform, True),
            ("training", TrainTransform, True),
            ("operations", EveryOperation, False),
            ("samples", SampleCalls, True),
        )
        for name, kind, decoded in kinds:
            if decoded or backend in ("pil", context.image_backend):
                make = partial(kind, context, backend if decoded else whom)
                yield name, partial(against, who, kind, make, backend if decoded else "")

    def mixed(who: str) -> Compared:
        return against(who, Mixing, lambda: Mixing(context, whom))

    yield from transforms(REFERENCE, context.image_backend)
    yield "order", lambda: _orders(kept, REFERENCE)
    yield "ranks", lambda: against("", SharedOut, lambda: SharedOut(context))
    yield "mixed", lambda: mixed(REFERENCE)
    if (other := context.project.independent) is not None:
        yield "published", lambda: against("", Presets, lambda: Presets(other))
    if _has_opencv():
        yield from transforms(REFERENCE, "cv2")
    for who in whom[1:]:
        yield from transforms(who, "pil")
        yield "order", partial(_orders, kept, who)
        yield "mixed", partial(mixed, who)
        if _has_opencv():
            yield from transforms(who, "cv2")
    yield "plan", lambda: against("", Planned, Planned)
    yield from (("drawn", partial(replace, one)) for one in kept if isinstance(one.comparison, draws.DRAWN))


def _measured(context: Context, comparison: Comparison) -> Compared:
    return Compared(comparison, comparison.measure(context, "port"), comparison.measure(context, "reference"))


def _orders(kept: Sequence[Compared], who: str) -> Compared:
    """All batches that were compared with one, as one comparison: a mistake is not the same in all of them."""
    loadings: dict[str, Loading] = {}
    port: dict[str, object] = {}
    reference: dict[str, object] = {}
    for one in kept:
        if isinstance(one.comparison, Batches) and who in one.comparison.whom:
            loadings |= one.comparison.loadings
            port |= one.port
            reference |= only(one.reference, who)
    merged = Compared(Batches(loadings, [who]), port, reference)  # type: ignore[arg-type]
    return merged if who == REFERENCE else Outside(merged.comparison, merged.port, merged.reference, who)


def check_pictures(context: Context, splits: tuple[str, ...]) -> None:
    """Decode every picture that the steps will use, before any of them runs.

    Raises:
        UserError: a split cannot be listed, a label is out of range, or a picture is damaged; the message names it.
    """
    for split in splits:
        index = first_pictures(context.material.index(split))
        if index.rows is not None and context.project.independent is not None:
            other = context.project.independent.name
            raise UserError(f"{context.data_path} holds CIFAR-10's batches, which {other} does not read: give folders of pictures")
        for number in range(len(index)):
            decode_image(index.path(number), context.image_backend)
