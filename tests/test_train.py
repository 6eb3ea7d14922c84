"""Optimizers, schedules and the training step against torch's, and the traps of Paddle's own."""

import dataclasses
import importlib

import numpy as np
import paddle
import pytest
import torch

import mobilenetv3_paddle.train as ours
import mobilenetv3_ref.train as theirs
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.train_config import OPTIMIZERS, OptimizerConfig, ScheduleConfig, TrainConfig, learning_rate
from tests.conftest import relative_l2


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    paddle.set_default_dtype(request.param)
    yield request.param
    paddle.set_default_dtype("float32")


def twins(dtype):
    """The same small network in both frameworks."""
    torch.manual_seed(0)
    reference = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)).to(getattr(torch, dtype))
    port = paddle.nn.Sequential(paddle.nn.Conv2D(3, 8, 3), paddle.nn.BatchNorm2D(8))
    for name, parameter in reference.named_parameters():
        dict(port.named_parameters())[name].set_value(parameter.detach().numpy())
    return port, reference


def updated(port, reference, config, updates=10):
    """Both after the same gradients; relative L2 of the parameter that differs most."""
    optimizers = ours.build_optimizer(port, config), theirs.build_optimizer(reference, config)
    parameters = dict(port.named_parameters())
    rng = np.random.default_rng(0)
    for _ in range(updates):
        for name, parameter in reference.named_parameters():
            gradient = rng.normal(size=parameter.shape).astype(str(parameter.dtype).split(".")[1])
            parameter.grad = torch.tensor(gradient)
            (parameters[name] * paddle.to_tensor(gradient)).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
        optimizers[0].clear_grad()
    return max(relative_l2(parameters[n].numpy(), p.detach().numpy()) for n, p in reference.named_parameters())


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("apart", [{}, {"norm_weight_decay": 0.0}, {"norm_weight_decay": 0.0, "bias_weight_decay": 0.002}])
def test_optimizers_update_as_torchs(name, apart, dtype):
    config = OptimizerConfig(name, lr=0.01, eps=0.0316, weight_decay=0.01, **apart).in_float32()
    assert updated(*twins(dtype), config) < (1e-5 if dtype == "float32" else 1e-13)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_that_a_package_lacks_is_an_error_and_no_other_optimizer(monkeypatch, name):
    for package, model in zip((ours, theirs), twins("float32"), strict=True):
        module = importlib.import_module(f"{package.__name__}.optimizer")
        assert sorted(module.MAKERS) == sorted(OPTIMIZERS)
        monkeypatch.delitem(module.MAKERS, name)
        with pytest.raises(NotImplementedError, match=f"{module.__name__} has no optimizer '{name}'"):
            package.build_optimizer(model, OptimizerConfig(name))


def test_paddles_kernels_hold_float32_hyperparameters():
    """Without rounding them on both sides, float64 agrees to 1e-9 only."""
    paddle.set_default_dtype("float64")
    try:
        config = OptimizerConfig("sgd", lr=0.01, weight_decay=0.01)
        assert 1e-12 < updated(*twins("float64"), config) < 1e-6
    finally:
        paddle.set_default_dtype("float32")


def test_a_groups_weight_decay_does_not_leak_into_the_next_optimizer():
    """Paddle's optimizers leave it on the parameters."""
    port, _ = twins("float32")
    ours.build_optimizer(port, OptimizerConfig("rmsprop", weight_decay=0.5))
    assert port[0].weight.regularizer is not None, "Paddle no longer leaves it; the reset can go"
    ours.build_optimizer(port, OptimizerConfig("adamw", weight_decay=0.0))
    assert port[0].weight.regularizer is None
    port, reference = twins("float32")
    ours.build_optimizer(port, OptimizerConfig("rmsprop", weight_decay=0.5))
    assert updated(port, reference, OptimizerConfig("adamw", lr=0.01, weight_decay=0.01)) < 1e-5


def test_paddles_rmsprop_puts_eps_inside_the_root():
    port, reference = twins("float32")
    config = OptimizerConfig("rmsprop", lr=0.01, eps=0.0316, weight_decay=0.0)
    stock = paddle.optimizer.RMSProp(config.lr, config.alpha, config.eps, config.momentum, parameters=port.parameters())
    optimizer = theirs.build_optimizer(reference, config)
    before = reference[0].weight.detach().numpy().copy()
    gradient = np.random.default_rng(0).normal(size=before.shape).astype(np.float32)
    reference[0].weight.grad = torch.tensor(gradient)
    (port[0].weight * paddle.to_tensor(gradient)).sum().backward()
    stock.step()
    optimizer.step()
    assert relative_l2(port[0].weight.numpy() - before, reference[0].weight.detach().numpy() - before) > 1e-2


SCHEDULES = [
    ScheduleConfig("constant"),
    ScheduleConfig("constant", warmup=5),
    ScheduleConfig("step", step_size=3, gamma=0.5),
    ScheduleConfig("step", step_size=3, gamma=0.5, warmup=4),
    ScheduleConfig("exponential", gamma=0.9, warmup=3),
    ScheduleConfig("cosine", total=20, lr_min=1e-3),
    ScheduleConfig("cosine", total=20, warmup=5),
    ScheduleConfig("multistep", milestones=(4, 6, 12), gamma=0.5, warmup=3),
    ScheduleConfig("polynomial", total=20, power=2.5, lr_min=1e-3, warmup=4),
    ScheduleConfig("onecycle", total=21, lr_min=1e-3),
    ScheduleConfig("onecycle", total=20),
    ScheduleConfig("restarts", restart=3, restart_factor=2, lr_min=1e-3, warmup=2),
]


def test_a_schedule_that_a_package_lacks_is_an_error_and_no_constant_rate(monkeypatch):
    assert {config.name for config in SCHEDULES} == {*learning_rate.SCHEDULES}
    monkeypatch.setattr(learning_rate, "SCHEDULES", (*learning_rate.SCHEDULES, "triangular"))
    for package, model in zip((ours, theirs), twins("float32"), strict=True):
        optimizer = package.build_optimizer(model, OptimizerConfig())
        with pytest.raises(NotImplementedError, match=f"{package.__name__}.schedule has no schedule 'triangular'"):
            package.build_schedule(optimizer, ScheduleConfig("triangular"))


@pytest.mark.parametrize("config", SCHEDULES, ids=lambda c: f"{c.name}-warmup{c.warmup}")
def test_schedules_move_as_torchs(config):
    port, reference = twins("float32")
    optimizer, other = (package.build_optimizer(m, OptimizerConfig(lr=0.3)) for package, m in ((ours, port), (theirs, reference)))
    schedule, other_schedule = ours.build_schedule(optimizer, config), theirs.build_schedule(other, config)
    rates = []
    for _ in range(20):
        rates.append((optimizer.get_lr(), other.param_groups[0]["lr"]))
        assert optimizer.get_lr() == rates[-1][0], "reading the rate must not move it"
        other.step()
        schedule.step()
        other_schedule.step()
    assert np.abs(np.subtract(*np.array(rates).T)).max() < 1e-16
    assert (len(set(rates)) > 1) == (config != ScheduleConfig("constant"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: OptimizerConfig("adamax"),
        lambda: OptimizerConfig("adam", nesterov=True),
        lambda: OptimizerConfig(nesterov=True, momentum=0.0),
        lambda: OptimizerConfig(l1_decay=-1.0),
        lambda: OptimizerConfig(lr=0.0),
        lambda: OptimizerConfig(lr=float("nan")),
        lambda: OptimizerConfig(weight_decay=-1),
        lambda: ScheduleConfig("linear"),
        lambda: ScheduleConfig("step", step_size=0),
        lambda: ScheduleConfig("cosine", total=5, warmup=5),
        lambda: ScheduleConfig("polynomial", total=5, warmup=5),
        lambda: ScheduleConfig("multistep"),
        lambda: ScheduleConfig("multistep", milestones=(3, 3)),
        lambda: ScheduleConfig("multistep", milestones=(3, 5), warmup=3),
        lambda: ScheduleConfig("onecycle", total=20, warmup=2),
        lambda: ScheduleConfig("onecycle", total=3),
    ],
)
def test_impossible_configs_are_refused(make):
    with pytest.raises(UserError):
        make()


@pytest.mark.parametrize("package", [ours, theirs])
def test_a_step_trains(package):
    port, reference = twins("float32")
    model, tensor = (port, paddle.to_tensor) if package is ours else (reference, torch.from_numpy)
    images = tensor(np.random.default_rng(0).normal(size=(4, 3, 8, 8)).astype(np.float32))
    target = tensor(np.ones((4, 8, 6, 6), np.float32))
    optimizer = package.build_optimizer(model, OptimizerConfig(lr=0.05))
    criterion = lambda output, target: ((output - target) ** 2).mean()  # noqa: E731
    losses = [float(package.train_step(model, criterion, optimizer, [(images, target)] * 2, clip_norm=1.0)) for _ in range(20)]
    assert losses[-1] < 0.7 * losses[0]


def test_float32_rounding_covers_every_number():
    config = OptimizerConfig("rmsprop", lr=0.1, eps=0.0316)
    for field in dataclasses.fields(config):
        value = getattr(config.in_float32(), field.name)
        if isinstance(value, float):
            assert value == float(np.float32(getattr(config, field.name)))


@pytest.mark.parametrize("sync_bn", [False, True])
@pytest.mark.parametrize("package", [ours, theirs])
def test_weight_decay_can_leave_out_norm_and_bias(package, sync_bn):
    model = package.build_model(TrainConfig(sync_bn=sync_bn), 3)
    config = OptimizerConfig(weight_decay=0.5, norm_weight_decay=0.0, bias_weight_decay=0.0)
    groups = {group["weight_decay"]: group["params"] for group in package.optimizer.parameter_groups(model, config)}
    assert set(groups) == {0.5, 0.0}
    assert {p.ndim for p in groups[0.5]} == {2, 4} and {p.ndim for p in groups[0.0]} == {1}
    assert len(groups[0.5]) + len(groups[0.0]) == 142
