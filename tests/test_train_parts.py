"""The engine's parts by themselves: precision, averages, guard, stopwatch, plans, dropout."""

import copy
import dataclasses
import itertools
import time

import numpy as np
import paddle
import pytest
import torch

import mobilenetv3_paddle.models
import mobilenetv3_paddle.train as ours
import mobilenetv3_ref.train as theirs
from mobilenetv3_common.digits import write_digits
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.lr_range import RangeTest, growing_rates, mean_of
from mobilenetv3_common.run import Meter
from mobilenetv3_common.sampling import BatchPlan, DropoutStream, RunPlan
from mobilenetv3_common.train_config import OptimizerConfig, TrainConfig
from mobilenetv3_common.train_log import Stopwatch
from mobilenetv3_common.training import averages
from mobilenetv3_paddle.models import BatchNorm2D
from tests.conftest import relative_l2
from tests.test_train import twins


def test_paddles_autocast_does_nothing_on_a_cpu():
    """... but warn; so mixed precision is refused there, and not quietly left out."""
    layer, x = paddle.nn.Linear(8, 4), paddle.rand([2, 8])
    with pytest.warns(UserWarning, match="makes no effect"), paddle.amp.auto_cast(level="O1", dtype="bfloat16"):
        assert layer(x).dtype == paddle.float32, "Paddle has it now: allow bfloat16 on a CPU"
    with pytest.raises(UserError, match="needs a GPU"):
        ours.Precision("O1", "bfloat16", "cpu")


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_the_reference_trains_in_bfloat16_on_a_cpu(level):
    _, model = twins("float32")
    images = torch.from_numpy(np.random.default_rng(0).normal(size=(4, 3, 8, 8)).astype(np.float32))
    target = torch.ones(4, 8, 6, 6)
    precision = theirs.Precision(level, "bfloat16")
    optimizer = theirs.build_optimizer(model, OptimizerConfig(lr=0.02))
    precision.prepare(model, optimizer)
    assert (model[0].weight.dtype == torch.bfloat16) == (level == "O2") and model[1].weight.dtype == torch.float32
    losses, kinds = [], []
    for _ in range(30):
        loss = theirs.accumulate_gradients(
            model, lambda o, t: ((o - t) ** 2).mean(), [(images, target)], precision, watch=lambda o, _: kinds.append(o.dtype)
        )
        theirs.apply_update(model, optimizer, 10.0, precision)
        losses.append(float(loss))
    assert set(kinds) == {torch.float32} and losses[-1] < 0.7 * losses[0]
    if level == "O2":
        (weight, master), *_ = precision.masters
        assert master.dtype == torch.float32 and torch.equal(master.to(torch.bfloat16), weight)
        assert not torch.equal(master, weight.float()), "the master keeps what bfloat16 cannot"


def test_rmsprop_keeps_float32_masters_of_half_precision_weights():
    config = OptimizerConfig("rmsprop", lr=1e-3, eps=0.0316, weight_decay=0.0)
    port = paddle.nn.Linear(8, 4)
    twin = paddle.nn.Linear(8, 4)
    port.to(dtype="bfloat16")
    for name, parameter in twin.named_parameters():
        parameter.set_value(dict(port.named_parameters())[name].astype("float32"))
    optimizers = [ours.build_optimizer(m, config) for m in (port, twin)]
    optimizers[0]._multi_precision = True  # as paddle.amp.decorate does on a GPU
    for _ in range(20):
        for model, optimizer in zip((port, twin), optimizers, strict=True):
            for parameter in model.parameters():
                (parameter.astype("float32") * 0.5).sum().backward()
            optimizer.step()
            optimizer.clear_grad()
    masters = optimizers[0]._master_weights
    assert len(masters) == 2
    for name, parameter in port.named_parameters():
        truth = dict(twin.named_parameters())[name].numpy()
        assert relative_l2(masters[parameter.name].numpy(), truth) < 1e-6
        assert relative_l2(parameter.astype("float32").numpy(), truth) < 1e-2


@pytest.mark.parametrize("package", [ours, theirs])
def test_the_moving_average_is_the_formulas_and_is_taken_back(package):
    port, reference = twins("float32")
    model = port if package is ours else reference
    average = package.MovingAverage(model, 0.75)
    weight = model[0].weight
    values = []
    for _ in range(4):
        values.append(np.array(weight.detach().numpy()))
        average.update()
        with paddle.no_grad(), torch.no_grad():
            weight.set_value(weight + 1.0) if package is ours else weight.add_(1.0)
    expected = values[0]
    for value in values[1:]:
        expected = 0.75 * expected + 0.25 * value
    before = np.array(weight.detach().numpy())
    with average.applied():
        assert np.allclose(weight.detach().numpy(), expected, atol=1e-6)
    assert np.array_equal(weight.detach().numpy(), before)
    off = package.MovingAverage(model, 0.0)
    off.update()
    assert off.shadow == {}


@pytest.mark.parametrize(("package", "framework"), [(ours, paddle), (theirs, torch)])
def test_the_guard_names_the_first_place(package, framework):
    port, reference = twins("float32")
    model = port if package is ours else reference
    x = framework.ones([2, 3, 8, 8])
    assert package.first_offender(model, lambda: model(x)).startswith("nothing")
    assert package.first_offender(model, lambda: model(x * float("inf"))) == "input of layer 0"
    model(x).sum().backward()
    guard = package.Guard()
    assert guard.healthy(model)
    guard.watch(framework.to_tensor([1.0, float("nan")]) if package is ours else torch.tensor([1.0, float("nan")]))
    assert not guard.healthy(model, gradients=False)
    gradient = dict(model.named_parameters())["0.bias"].grad
    gradient.set_value(gradient * float("inf")) if package is ours else gradient.fill_(float("inf"))
    assert not package.Guard().healthy(model)
    assert package.first_offender(model, lambda: model(x)) == "gradient of 0.bias"
    weight = model[0].weight
    with paddle.no_grad(), torch.no_grad():
        weight.set_value(weight * float("nan")) if package is ours else weight.fill_(float("nan"))
    assert package.first_offender(model, lambda: model(x)) == "weight 0.weight"
    assert not package.Guard().healthy(model, gradients=package is theirs), "Paddle's ReLU makes 0 of NaN: weights are looked at"


def test_the_stopwatch_counts_neither_logging_nor_the_device_as_reading():
    watch = Stopwatch()
    for _ in range(2):
        watch.start()
        time.sleep(0.02)  # the loader
        watch.data_ready()
        time.sleep(0.05)  # the update
        watch.done()
        time.sleep(0.2)  # logging, evaluation, saving
    reader, batch = watch.averages()
    assert 0.02 <= reader < 0.05 and 0.07 <= batch < 0.15
    assert watch.averages() == (reader, batch) and watch.updates == 2, "reading changes nothing"
    watch.reset()
    assert watch.averages() == (0.0, 0.0) and watch.updates == 0


def test_a_run_plan_is_the_epochs_one_after_the_other_and_begins_anywhere():
    def plan():
        return BatchPlan(20, 4, seed=3, shuffle=True, drop_last=True)

    whole = list(RunPlan(plan(), epochs=3))
    expected = []
    for epoch in range(3):
        one = plan()
        one.set_epoch(epoch)
        expected += list(one)
    assert whole == expected and len(RunPlan(plan(), epochs=3)) == 15
    for epoch, batch in itertools.product(range(3), range(5)):
        rest = RunPlan(plan(), 3, epoch, batch)
        assert list(rest) == whole[epoch * 5 + batch :] and len(rest) == 15 - epoch * 5 - batch
    cut = RunPlan(plan(), 2, 0, 2, batches=4)
    assert list(cut) == whole[2:4] + whole[5:9] and len(cut) == 6


def test_a_loader_that_reads_ahead_does_not_disturb_another_one_on_the_same_plan():
    plan = BatchPlan(12, 4, seed=3, shuffle=True, drop_last=True)
    alone = list(RunPlan(plan, epochs=3))
    ahead, behind = iter(RunPlan(plan, epochs=3)), iter(RunPlan(plan, epochs=3))
    next(ahead)
    found = [next(behind) for _ in alone if next(ahead, None) or True]
    assert found == alone


def test_dropout_is_a_function_of_the_samples_place():
    stream = DropoutStream(5)
    stream.at(1, 0)
    whole = stream((8, 3))
    for first, count in ((0, 4), (4, 4), (2, 5)):
        stream.at(1, first)
        assert np.array_equal(stream((count, 3)), whole[first : first + count])
    stream.at(2, 0)
    assert not np.array_equal(stream((8, 3)), whole)
    assert whole.min() >= 0 and whole.max() < 1
    model = mobilenetv3_paddle.models.mobilenet_v3_small(num_classes=2, dropout=0.4)
    assert mobilenetv3_paddle.models.share_dropout(model, stream) == 1
    model.classifier[2].train()
    out = model.classifier[2](paddle.ones([64, 100])).numpy()
    assert set(np.unique(out.round(4))) == {0.0, np.float32(1 / 0.6).round(4)} and abs((out == 0).mean() - 0.4) < 0.03


def test_config_makes_the_parts_it_says():
    config = TrainConfig(
        lr=0.8, scale_lr_from=2048, batch_size=64, epochs=10, warmup_epochs=2, lr_schedule="exponential", lr_gamma=0.5
    )
    assert config.optimizer_config(512).lr == pytest.approx(0.2)
    schedule = config.schedule_config(100)
    assert schedule.gamma**100 == pytest.approx(0.5) and schedule.warmup == 200 and schedule.total == 1000
    by_epoch = dataclasses.replace(config, lr_unit="epoch").schedule_config(100)
    assert by_epoch.gamma == 0.5 and by_epoch.warmup == 2
    with pytest.raises(UserError, match="dropout must be from 0 to below 1"):
        TrainConfig(dropout=float("nan"))


def test_freezing_keeps_batch_norm_as_it_was(tmp_path):
    config = TrainConfig(
        data_path="lite_data", freeze_bn=True, crop_size=32, resize_size=32, batch_size=4, workers=0, width_mult=0.5
    )
    run = ours.build_run(config, ours.Ranks())
    norms = {f"{name}." for name, layer in run.model.named_sublayers() if isinstance(layer, BatchNorm2D)}
    before = copy.deepcopy(ours.model_arrays(run.model))
    run.train_mode()
    ours.update(run, [next(ours.micro_batches(run))])
    after = ours.model_arrays(run.model)
    for name, array in before.items():
        assert np.array_equal(array, after[name]) == (name.rpartition(".")[0] + "." in norms), name


def range_test(loss, seed=0, noise=0.0):
    rates = growing_rates(1e-4, 1.0, 100)
    losses = loss(np.log10(rates)) + noise * np.random.default_rng(seed).normal(size=100)
    return RangeTest(rates, losses, np.zeros(100), False)


def valley(position):
    """2.3 up to 1e-3, down to 1.3 at 1e-2, and up again."""
    return np.where(position < -3, 2.3, np.where(position < -2, 2.3 - (position + 3), 1.3 + 3 * (position + 2)))


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_the_range_test_finds_the_valley(noise):
    test = mean_of([range_test(valley, seed, noise) for seed in range(3)])
    low, high = test.interval()
    assert 5e-4 < low < 2e-3 and 5e-3 < high < 1.5e-2 and low < test.suggested() <= high


def test_the_range_test_says_what_it_did_not_see():
    with pytest.raises(UserError, match="did not fall"):
        range_test(lambda position: 0 * position + 2.3).interval()
    with pytest.raises(UserError, match="still falls at learning rate 1: give a higher --to"):
        range_test(lambda position: -position).interval()


@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.parametrize(
    ("recipe", "high", "sweep"),
    [
        ({"optimizer": "adamw", "weight_decay": 0.01}, 1.0, (1e-3, 3e-3, 1e-2)),
        ({"optimizer": "sgd"}, 10.0, (3e-2, 1e-1, 3e-1)),
        ({"optimizer": "rmsprop", "eps": 0.0316, "weight_decay": 1e-5}, 1.0, (1e-3, 3e-3, 1e-2)),
    ],
    ids=["adamw", "sgd", "rmsprop"],
)
def test_the_suggested_rate_trains_as_the_best_of_a_sweep(recipe, high, sweep, tmp_path):
    """Mean loss of the last 20 of 75 updates, over six seeds: that of one run differs by 15 % from seed to seed, between rates as
    near as 0.093 and 0.1, and with the processor. Outside the sweep the losses are higher still."""
    folder = write_digits(tmp_path / "digits", train_per_class=40, val_per_class=1)
    config = TrainConfig(
        framework="ref", data_path=str(folder), crop_size=32, resize_size=32, min_crop_scale=0.7, hflip_prob=0.0, batch_size=16,
        workers=0, width_mult=0.35, epochs=3, bn_momentum=0.1, dropout=0.0, **recipe,
    )  # fmt: skip
    runs = [dataclasses.replace(config, seed=seed) for seed in range(6)]
    test = mean_of([theirs.find_learning_rates(one, theirs.Ranks(), growing_rates(1e-5, high, 100)) for one in runs[:3]])

    def losses_of(one, lr):
        run = theirs.build_run(dataclasses.replace(one, lr=lr), theirs.Ranks())
        run.train_mode()
        batches = theirs.micro_batches(run)
        for _ in range(75):
            theirs.update(run, [next(batches)])
            yield averages(run)["loss"]
            run.meter = Meter()
            if run.iteration == run.updates_per_epoch:
                run.epoch, run.iteration = run.epoch + 1, 0

    def final_loss(lr):
        return np.mean([list(losses_of(one, lr))[-20:] for one in runs])

    assert final_loss(test.suggested()) <= 1.1 * min(map(final_loss, sweep)), test.suggested()


class Alike:
    """Two ranks that have the same pictures."""

    def __init__(self, alone):
        self._alone = alone

    def __getattr__(self, name):
        return getattr(self._alone, name)

    def sum(self, values):
        return 2 * self._alone.sum(values)


@pytest.mark.parametrize("side", [ours, theirs], ids=["paddle", "torch"])
def test_a_model_is_evaluated_over_the_ranks_that_are_given(side):
    given = np.eye(6, dtype=np.float32)[[0, 1, 2, 3, 4, 5, 5], :, None, None]  # the logits themselves
    labels, numbers = np.array([0, 1, 2, 3, 0, 0, 5]), np.array([0, 1, 2, 3, 4, -1, 6])
    tensor, model = (paddle.to_tensor, paddle.nn.Flatten()) if side is ours else (torch.from_numpy, torch.nn.Flatten())
    loader = [tuple(map(tensor, (given[rows], labels[rows], numbers[rows]))) for rows in (slice(0, 4), slice(4, 7))]
    alone, both = side.evaluate(model, loader, 6), side.evaluate(model, loader, 6, Alike(side.Ranks()))
    assert (alone.samples, alone.skipped, alone.top1) == (6, 1, 5 / 6) and alone.confusion[0, 4] == 1
    assert (both.samples, both.skipped, both.top1) == (12, 2, 5 / 6) and both.confusion[0, 4] == 2
    assert both.loss == pytest.approx(alone.loss)


def test_a_dropout_directly_in_the_model_is_shared_too():
    model = paddle.nn.Sequential(paddle.nn.Dropout(0.5), paddle.nn.Sequential(paddle.nn.Dropout(0.5)))
    assert mobilenetv3_paddle.models.share_dropout(model, lambda shape: np.zeros(shape)) == 2
    assert not any(isinstance(layer, paddle.nn.Dropout) for layer in model.sublayers())
    assert np.array_equal(model(paddle.ones([2, 3])).numpy(), np.zeros((2, 3))), "0 is below p: everything is dropped"


def test_statistics_are_each_ranks_own_unless_they_are_asked_for_together(monkeypatch):
    """Without a launcher there are no other ranks to wait for."""
    monkeypatch.setattr("paddle.distributed.get_world_size", lambda: 2)
    layer = BatchNorm2D(3)
    images = np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(np.float32)
    alone = layer(paddle.to_tensor(images)).numpy()
    assert np.allclose(alone.mean((0, 2, 3)), 0, atol=1e-5) and np.allclose(alone.std((0, 2, 3)), 1, atol=1e-3)
