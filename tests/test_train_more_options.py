"""Settings of which batches a run has and what its loss is: each does what its origin does, and is refused where it cannot work."""

import dataclasses
import math

import numpy as np
import pytest

import mobilenetv3_ref.train as theirs
from mobilenetv3_common import sampling
from mobilenetv3_common.checkpoint import CheckpointFolder
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.run import training_plan
from mobilenetv3_common.sampling import BatchPlan, RunPlan, SampleKey, sample_params
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.training import save
from tests.test_train_loop import BUILDERS, CONFIG
from tests.test_train_options import updates


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


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"repeat_augment": 0}, "--repeat-augment must be from 1 to 64"),
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
        training_plan(config, 16, theirs.Ranks())
    mixed = dataclasses.replace(config, batch_size=4, mixup_alpha=0.2)
    with pytest.raises(UserError, match=r"has 3 picture.s. a rank, which do not divide into mixing groups of 4"):
        training_plan(mixed, 22, theirs.Ranks(1, 2))
    assert len(training_plan(mixed, 22, theirs.Ranks())) == 6
