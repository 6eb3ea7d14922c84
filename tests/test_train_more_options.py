"""Settings of which batches a run has and what its loss is: each does what its origin does, and is refused where it cannot work."""

import dataclasses
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.utils.class_weight import compute_class_weight
from torchvision import transforms

import mobilenetv3_paddle.train as ours_package
import mobilenetv3_ref.train as theirs_package
from mobilenetv3_common import sampling
from mobilenetv3_common.checkpoint import LATEST, CheckpointFolder
from mobilenetv3_common.class_weights import class_weights
from mobilenetv3_common.dataset_index import index_dataset
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.presets import IMAGENET_MEAN, IMAGENET_STD
from mobilenetv3_common.run import training_plan
from mobilenetv3_common.sampling import BatchPlan, RunPlan, SampleKey, sample_params
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.training import save
from tests.test_train_loop import BUILDERS, CONFIG
from tests.test_train_options import updates
from tests.training import write_start

PACKAGES = (ours_package, theirs_package)


def ra_sampler(order, world, rank, repetitions):
    """torchvision's references/classification/sampler.py, ``RASampler.__iter__``, for an order that is given."""
    num_samples = math.ceil(len(order) * float(repetitions) / world)
    total = num_samples * world
    selected = math.floor(len(order) // 256 * 256 / world)
    indices = [element for element in order for _ in range(repetitions)]
    indices += indices[: total - len(indices)]
    return indices[rank:total:world][:selected]


@pytest.mark.parametrize(("size", "world", "repeats"), [(600, 1, 3), (600, 2, 3), (777, 3, 2), (256, 4, 5)])
def test_repeated_augmentation_has_the_indices_of_torchvisions_sampler(size, world, repeats):
    order = sampling.epoch_order(size, 7, 2).tolist()
    for rank in range(world):
        plan = BatchPlan(size, 8, 7, True, True, rank, world, epoch=2, pad=True, repeats=repeats)
        keys = [key for batch in plan for key in batch]
        assert [key.sample for key in keys] == ra_sampler(order, world, rank, repeats)
        assert [len(batch) for batch in plan] == [plan.place(number)[1] for number in range(len(plan))]
    assert len({key.position for key in keys}) == len(keys)


def test_each_repetition_of_a_picture_has_draws_of_its_own_and_the_first_those_without():
    plan = BatchPlan(300, 12, 0, True, True, repeats=3)
    batch = next(iter(plan))
    assert [key.repeat for key in batch] == [0, 1, 2] * 4 and len({key.sample for key in batch}) == 4
    preset = TrainConfig().train_preset
    one, two, three = (sample_params(preset, 0, key, 300, 400) for key in batch[:3])
    assert one.crop != two.crop != three.crop != one.crop
    assert one == sample_params(preset, 0, SampleKey(0, batch[0].sample, 0), 300, 400)
    whole = [keys for epoch in range(2) for keys in BatchPlan(300, 12, 0, True, True, epoch=epoch, repeats=3)]
    assert list(RunPlan(plan, 2, 1, 5)) == whole[len(plan) + 5 :], "a run goes on in mid-epoch"


def test_a_kept_last_batch_is_shared_equally_by_the_ranks():
    order = sampling.epoch_order(22, 3, 1).tolist()
    for world, shares in ((1, [8, 8, 6]), (2, [4, 4, 3]), (3, [2, 2, 2, 2])):
        plans = [BatchPlan(22, 8 // world, 3, True, True, rank, world, epoch=1, pad=True) for rank in range(world)]
        found = [list(plan) for plan in plans]
        assert all([len(batch) for batch in batches] == shares for batches in found) and len(plans[0]) == len(shares)
        together = [key for step in range(len(shares)) for batches in found for key in batches[step]]
        assert [key.sample for key in together] == (order + order)[: len(together)] and len(together) - 22 < world
        assert [key.position for key in together] == list(range(len(together)))
    assert len(BatchPlan(22, 8, 3, True, True)) == 2, "without pad the last one is left out"


@pytest.mark.parametrize(("package", "builder"), BUILDERS, ids=["paddle", "ref"])
def test_a_run_with_a_kept_last_batch_and_repetitions_resumes_to_the_last_bit(package, builder, tmp_path):
    config = dataclasses.replace(
        CONFIG, output_dir=str(tmp_path), batch_size=6, drop_last=False, repeat_augment=3, lr=2.0**-6, mixup_alpha=0.2
    )
    run = package.build_run(config, package.Ranks(), builder)
    assert run.updates_per_epoch == 3
    run.train_mode()
    batches = package.micro_batches(run)
    updates(package, run, batches, 2)
    save(run, CheckpointFolder(tmp_path), best=False)
    updates(package, run, batches, 4)
    resumed = package.build_run(dataclasses.replace(config, resume="auto"), package.Ranks(), builder)
    resumed.train_mode()
    updates(package, resumed, package.micro_batches(resumed), 4)
    one, other = (package.model_arrays(r.model) for r in (run, resumed))
    assert all(np.array_equal(one[tensor], other[tensor]) for tensor in one), "the resumed run is another"


# --- class weights ---------------------------------------------------------------------------------------------------------


def test_class_weights_are_read_in_every_form(tmp_path):
    index = index_dataset("lite_data", "train")
    few = dataclasses.replace(index, labels=[0, 0, 0, *range(8)])
    assert class_weights("balanced", few) == tuple(compute_class_weight("balanced", classes=np.arange(8), y=few.labels))
    assert class_weights(" 1, 2,3,4,5,6,7,8.5", index) == (1, 2, 3, 4, 5, 6, 7, 8.5)
    named = tmp_path / "weights.txt"
    named.write_text("".join(f"{name} {number + 1}\n" for number, name in reversed(list(enumerate(index.classes)))))
    assert class_weights(str(named), index) == (1, 2, 3, 4, 5, 6, 7, 8)
    for given, words in (
        ("1,2", r"2 weights for 8 classes"),
        ("1,2,3,4,5,6,7,-8", "every weight must be a number above 0, found '-8'"),
        ("1,2,3,4,5,6,7,nan", "no such file"),
        ("balance", "no such file"),
    ):
        with pytest.raises(UserError, match=words):
            class_weights(given, index)
    for text, words in (
        ("x 1\n", "has no weight"),
        ("a 1\na 2", "'a' has two weights"),
        (named.read_text() + "x 1", "'x' is no class"),
    ):
        (tmp_path / "bad.txt").write_text(text)
        with pytest.raises(UserError, match=words):
            class_weights(str(tmp_path / "bad.txt"), index)
    with pytest.raises(UserError, match="has no training picture"):
        class_weights("balanced", dataclasses.replace(index, labels=[0, 1]))


# --- test-time augmentation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tta", ["flip", "five_crop", "ten_crop"])
def test_probabilities_of_views_are_averaged_alike_and_as_torchvision_crops(tta, tmp_path, small_state):
    """Pictures of several shapes; the expected figures are computed by torchvision's transforms and numpy alone."""
    start = write_start(tmp_path, small_state)
    config = TrainConfig(
        data_path="lite_data", crop_size=48, resize_size=61, batch_size=5, workers=0, tta=tta, width_mult=0.5, pretrained=str(start)
    )
    ours, theirs = (package.evaluate_config(config, package.Ranks())[0] for package in PACKAGES)
    model = theirs_package.build_model(config, 8).eval()
    index, loss, right = index_dataset("lite_data", "val"), [], []
    for number, label in enumerate(index.labels):
        image = transforms.Resize(61)(Image.open(index.path(number)).convert("RGB"))
        crops = {
            "flip": lambda picture: (transforms.CenterCrop(48)(picture), transforms.CenterCrop(48)(picture).transpose(0)),
            "five_crop": transforms.FiveCrop(48),
            "ten_crop": transforms.TenCrop(48),
        }[tta](image)
        pixels = [(np.asarray(crop) / 255 - IMAGENET_MEAN) / IMAGENET_STD for crop in crops]
        with torch.no_grad():
            logits = model(torch.tensor(np.stack(pixels).transpose(0, 3, 1, 2), dtype=torch.float32)).double().numpy()
        shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        assert len(shares) == {"flip": 2, "five_crop": 5, "ten_crop": 10}[tta]
        loss.append(-np.log(shares.mean(0)[label]))
        right.append(shares.mean(0).argmax() == label)
    one_view = ours_package.evaluate_config(dataclasses.replace(config, tta="none"), ours_package.Ranks())[0]
    for found in (ours, theirs):
        assert found.loss == pytest.approx(np.mean(loss), rel=2e-5) and found.top1 == np.mean(right)
        assert abs(found.loss - one_view.loss) > 1e-4, "one view gives something else"


# --- distillation ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("package", "builder"), BUILDERS, ids=["paddle", "ref"])
def test_a_distilled_run_resumes_to_the_last_bit_and_only_from_its_own_teacher(package, builder, tmp_path):
    base = dataclasses.replace(CONFIG, output_dir=str(tmp_path / "teacher"), lr=2.0**-6, class_weights="balanced", seed=3)
    taught = package.build_run(base, package.Ranks(), builder)
    save(taught, CheckpointFolder(tmp_path / "teacher"), best=False)
    teacher = str(tmp_path / "teacher" / LATEST)
    config = dataclasses.replace(
        base, output_dir=str(tmp_path / "run"), teacher=teacher, distill_alpha=0.75, seed=0, mixup_alpha=0.2, accumulate=2
    )
    run = package.build_run(config, package.Ranks(), builder)
    run.train_mode()
    batches = package.micro_batches(run)

    def go_on(run, batches, count):
        for _ in range(count):
            package.update(run, [next(batches), next(batches)])
            if run.iteration == run.updates_per_epoch:
                run.epoch, run.iteration = run.epoch + 1, 0

    go_on(run, batches, 1)
    save(run, CheckpointFolder(tmp_path / "run"), best=False)
    go_on(run, batches, 2)
    moved = tmp_path / "moved.safetensors"
    moved.write_bytes(Path(teacher).read_bytes())
    again = dataclasses.replace(config, resume="auto", teacher=str(moved))
    resumed = package.build_run(again, package.Ranks(), builder)
    resumed.train_mode()
    go_on(resumed, package.micro_batches(resumed), 2)
    one, other = (package.model_arrays(r.model) for r in (run, resumed))
    assert all(np.array_equal(one[tensor], other[tensor]) for tensor in one), "the resumed run is another"
    alone = package.build_run(dataclasses.replace(config, teacher=None), package.Ranks(), builder)
    alone.train_mode()
    go_on(alone, package.micro_batches(alone), 3)
    assert not np.array_equal(package.model_arrays(alone.model)["0.weight"], one["0.weight"]), "a teacher teaches"
    with pytest.raises(UserError, match="of a run that had a teacher"):
        package.build_run(dataclasses.replace(again, teacher=None), package.Ranks(), builder)
    with pytest.raises(UserError, match="learnt from other weights than"):
        package.build_run(dataclasses.replace(again, teacher=str(tmp_path / "run" / LATEST)), package.Ranks(), builder)


def test_a_teacher_of_its_own_architecture_teaches_both_frameworks_alike(tmp_path, small_state):
    """The teacher is a checkpoint of another width, in the other framework for one; a step of both on one batch gives one loss."""
    half = dataclasses.replace(CONFIG, output_dir=str(tmp_path), num_classes=8, width_mult=0.75)
    save(theirs_package.build_run(half, theirs_package.Ranks()), CheckpointFolder(tmp_path), best=False)
    start, losses = write_start(tmp_path, small_state), []
    for package in PACKAGES:
        config = dataclasses.replace(half, width_mult=0.5, teacher=str(tmp_path / LATEST), pretrained=str(start), distill_alpha=1.0)
        run = package.build_run(config, package.Ranks())
        run.train_mode()
        losses += updates(package, run, package.micro_batches(run), 1)
    assert losses[0] == pytest.approx(losses[1], rel=1e-4) and losses[0] > 0
    named = dataclasses.replace(config, data_path=str(tmp_path / "data"))
    shutil.copytree("lite_data", tmp_path / "data")
    for split in ("train", "val"):
        (tmp_path / "data" / split / "officer").rename(tmp_path / "data" / split / "police")
        (tmp_path / "data" / f"{split}_list.txt").unlink()
    with pytest.raises(UserError, match="a teacher must know the classes of the training pictures"):
        theirs_package.build_run(named, theirs_package.Ranks())


# --- freezing --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frozen", ["weight", "bias"])
@pytest.mark.parametrize(("package", "builder"), BUILDERS, ids=["paddle", "ref"])
def test_of_a_batch_norm_one_parameter_trains_while_the_other_is_frozen(package, builder, frozen):
    config = dataclasses.replace(CONFIG, param_groups=f"1.{frozen}:frozen", lr=2.0**-6, weight_decay=0.0)
    run = package.build_run(config, package.Ranks(), builder)
    before = package.model_arrays(run.model)
    run.train_mode()
    updates(package, run, package.micro_batches(run), 1)
    moved = {name for name, array in package.model_arrays(run.model).items() if not np.array_equal(array, before[name])}
    assert moved & {"1.weight", "1.bias"} == {"1.weight", "1.bias"} - {f"1.{frozen}"}


# --- what is refused -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"repeat_augment": 0}, "--repeat-augment must be from 1 to 64"),
        ({"distill_alpha": 1.5}, "--distill-alpha must be from 0 to 1"),
        ({"distill_temperature": 0.0}, "--distill-temperature must be above 0"),
        ({"teacher_model": "resnet"}, "--teacher-model must be one of"),
        ({"teacher_model": "mobilenet_v3_large"}, "--teacher-model needs --teacher"),
        ({"drop_last": False, "accumulate": 2}, "--no-drop-last needs batches that are updates: --accumulate must be 1, found 2"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_one_line(changes, words):
    with pytest.raises(UserError) as refused:
        TrainConfig(**changes)
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_a_last_batch_that_cannot_be_trained_is_refused_with_the_way_out():
    config = TrainConfig(batch_size=5, crop_size=32, resize_size=32, drop_last=False)
    with pytest.raises(UserError, match=r"the last batch of an epoch has one picture a rank.*--drop-last"):
        training_plan(config, 16, theirs_package.Ranks())
    mixed = dataclasses.replace(config, batch_size=4, mixup_alpha=0.2)
    with pytest.raises(UserError, match=r"has 3 pictures a rank, which do not divide into mixing groups of 4"):
        training_plan(mixed, 22, theirs_package.Ranks(1, 2))
    assert len(training_plan(mixed, 22, theirs_package.Ranks())) == 6
