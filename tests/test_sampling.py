"""Order and augmentation parameters: pure functions, the same for any number of ranks, with torchvision's distributions."""

import numpy as np
import pytest
import torch
from torchvision.transforms import autoaugment

from alignment import tolerance
from alignment.comparisons.context import Context
from alignment.comparisons.data import draws as data_draws
from alignment.comparisons.data.drawn_operations import operation_row
from alignment.comparisons.result import StepResult
from alignment.distributions import as_stated, gap, same_shares, same_values
from mobilenetv3_common import sampling
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.presets import TrainPreset
from mobilenetv3_common.sampling import BatchPlan, SampleKey
from projects.mobilenetv3 import torchvision_draws
from projects.mobilenetv3.project import PROJECT

DRAWS = 4000
SEEDS = (0, 1, 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_distribution_is_torchvisions(seed):
    """The rows of step 2: ranges, probabilities and tables are those of torchvision's own transforms, not of the presets here."""
    result = StepResult(2, "data")
    data_draws.run(Context(PROJECT, seed=seed), result)
    assert [f"{row.name}: {row.reason}" for row in result.quantities if not row.passed] == []
    assert 100 < len(result.quantities) < tolerance.DRAWS_ROWS, "the step's false alarms are bounded by this number of rows"


def test_the_distribution_tests_can_fail():
    rng = np.random.default_rng(0)
    normal = rng.normal(size=DRAWS)
    assert gap(normal, rng.normal(size=DRAWS)).same and not gap(normal, rng.normal(0.25, size=DRAWS)).same
    assert not gap(rng.uniform(0.05, 1, DRAWS), rng.uniform(0.08, 1, DRAWS)).same, "the ends of a range"
    coins = lambda p, size: {"heads": int(rng.binomial(size, p))}  # noqa: E731
    assert as_stated("", coins(0.5, 15000), 15000, {"heads": 0.5}).passed
    assert not as_stated("", coins(0.45, 15000), 15000, {"heads": 0.5}).passed
    assert not as_stated("", {"edge": 1}, 15000, {"heads": 0.5, "tails": 0.5}).passed
    assert not as_stated("", {}, 0, {"heads": 0.5}).passed, "nothing was drawn"
    few = lambda values: rng.choice(values, DRAWS).tolist()  # noqa: E731
    assert same_shares("", few(4), few(4)).passed and not same_shares("", few(4), few(5)).passed
    assert not same_values("", np.array([]), normal).passed


def test_false_alarms_are_as_rare_as_they_are_said_to_be():
    """Asked for 5 %, at most 5 % of right samples fail; rows are asked for 1e-9 by the same formula."""
    rng = np.random.default_rng(1)
    draws = {"continuous": lambda: rng.random(300), "discrete": lambda: rng.integers(6, size=300).astype(float)}
    for draw in draws.values():
        assert sum(not gap(draw(), draw(), false_alarm=0.05).same for _ in range(1000)) <= 50


def what_torchvision_does(monkeypatch, transform, count):
    """What a torchvision policy does to each of some pictures."""
    seen = []
    monkeypatch.setattr(autoaugment, "_apply_op", lambda image, name, magnitude, **_: seen[-1].append((name, magnitude)) or image)
    image = torch.zeros(3, 224, 160, dtype=torch.uint8)
    torch.manual_seed(0)
    for _ in range(count):
        seen.append([])
        transform(image)
    return [tuple(done) for done in seen]


POLICIES = {"imagenet": autoaugment.AutoAugment, "ra": autoaugment.RandAugment, "ta_wide": autoaugment.TrivialAugmentWide}


@pytest.mark.parametrize("policy", POLICIES)
def test_the_stated_probabilities_are_those_of_torchvisions_policies(policy, monkeypatch):
    law = torchvision_draws.operations(policy, 224, 160)
    assert sum(law.values()) == pytest.approx(1)
    done = what_torchvision_does(monkeypatch, POLICIES[policy](), DRAWS)
    row = operation_row("", done, law)
    assert row.passed, row.reason
    other = torchvision_draws.operations("ra", 224, 160, magnitude=10)
    assert not operation_row("", done, other).passed


@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 500), (500, 2), (3, 40)])
def test_crop_boxes_of_odd_pictures_lie_inside(height, width):
    for i in range(200):
        box = sampling.random_resized_crop_box(sampling.generator("crop", 1, i), height, width, (0.08, 1.0), (3 / 4, 4 / 3))
        top, left, h, w = box
        assert h >= 1 and w >= 1 and top >= 0 and left >= 0 and top + h <= height and left + w <= width


def test_parameters_are_pure_and_independent_of_each_other():
    key = SampleKey(epoch=3, sample=11, position=0)
    plain = sampling.sample_params(TrainPreset(), 7, key, 300, 400)
    assert plain == sampling.sample_params(TrainPreset(), 7, key, 300, 400)
    rich = sampling.sample_params(TrainPreset(auto_augment="ra", random_erase_prob=1.0), 7, key, 300, 400)
    assert (rich.crop, rich.flip) == (plain.crop, plain.flip), "switching one augmentation on changes another"
    others = [SampleKey(4, 11, 0), SampleKey(3, 12, 0)]
    assert all(sampling.sample_params(TrainPreset(), 7, other, 300, 400).crop != plain.crop for other in others)
    assert sampling.sample_params(TrainPreset(), 8, key, 300, 400).crop != plain.crop
    assert sampling.sample_params(TrainPreset(), 7, key._replace(position=5), 300, 400) == plain


@pytest.mark.parametrize("world", [1, 2, 4])
def test_ranks_together_see_one_processs_batches(world):
    single = list(BatchPlan(50, 8, seed=1, shuffle=True, drop_last=True))
    plans = [BatchPlan(50, 8 // world, seed=1, shuffle=True, drop_last=True, rank=r, world_size=world) for r in range(world)]
    for step, parts in enumerate(zip(*plans, strict=True)):
        assert [key for part in parts for key in part] == single[step]
    assert len(single) == 6


@pytest.mark.parametrize("world", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [1, 5, 16, 33])
def test_evaluation_sees_every_sample_once(size, world):
    plans = [BatchPlan(size, 4, rank=rank, world_size=world) for rank in range(world)]
    seen = sorted(key.sample for plan in plans for batch in plan for key in batch)
    assert seen == list(range(size))
    assert all(len(plan) == len(list(plan)) for plan in plans)


def test_epochs_have_different_orders_and_mixing_groups_follow_the_order():
    orders = [tuple(sampling.epoch_order(40, 0, epoch)) for epoch in range(3)]
    assert len(set(orders)) == 3 and all(sorted(order) == list(range(40)) for order in orders)
    batches = list(BatchPlan(16, 4, rank=1, world_size=2))
    assert [g for batch in batches for g, _ in sampling.mix_groups(batch, 2)] == [2, 3, 6, 7]
    with pytest.raises(UserError, match="mixing groups"):
        sampling.mix_groups(batches[0], 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 4, "batch_size": 0}, "batch size must be at least 1"),
        ({"size": 4, "batch_size": 8, "drop_last": True}, "do not fill one batch"),
        ({"size": 4, "batch_size": 2, "rank": 2, "world_size": 2}, "outside a world"),
    ],
)
def test_impossible_plans_are_refused(arguments, message):
    with pytest.raises(UserError, match=message):
        BatchPlan(**arguments)


@pytest.mark.parametrize("wrong", [{"auto_augment": "x"}, {"hflip_prob": 2}, {"mixup_alpha": -1}, {"crop_size": 0}])
def test_impossible_presets_are_refused(wrong):
    with pytest.raises(UserError):
        TrainPreset(**wrong)
