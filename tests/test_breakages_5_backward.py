"""A check that cannot fail is a defect: breakages of what step 5 compares, each of which must fail the step."""

from __future__ import annotations

import dataclasses

import paddle
import pytest
from paddle import nn

from alignment.sides import PaddleSide, RefSide
from alignment.steps import backward
from mobilenetv3_paddle.models import BatchNorm2D
from mobilenetv3_paddle.train import accumulate_gradients, build_optimizer, build_schedule
from tests.breaking import broken_model, dropout_missing, replace_all, without
from tests.conftest import SMALL

FIRST_RUNS = {run.name: dataclasses.replace(run, iterations=4, float32_iterations=2) for run in backward.RUNS}


def optimizer_with(**changes):
    def build(model, config):
        return build_optimizer(model, dataclasses.replace(config, **changes))

    return lambda: PaddleSide(train={"build_optimizer": build})


def eps_inside_the_root():
    def build(model, config):
        return paddle.optimizer.RMSProp(
            config.lr, config.alpha, config.eps, config.momentum, parameters=model.parameters(), weight_decay=config.weight_decay
        )

    return PaddleSide(train={"build_optimizer": build})


def adam_with_l2():
    def build(model, config):
        return paddle.optimizer.Adam(
            config.lr, config.beta1, config.beta2, config.eps, parameters=model.parameters(), weight_decay=config.weight_decay
        )

    return PaddleSide(train={"build_optimizer": build})


def schedule_with(**changes):
    return lambda: PaddleSide(train={"build_schedule": lambda o, config: build_schedule(o, dataclasses.replace(config, **changes))})


def schedule_never_stepped():
    class Constant:
        def step(self):
            pass

    return PaddleSide(train={"build_schedule": lambda optimizer, config: Constant()})


def gradient_not_cleared():
    def update(model, optimizer, clip_norm=None):
        optimizer.step()

    return PaddleSide(train={"apply_update": update})


def never_updated():
    return PaddleSide(train={"apply_update": lambda model, optimizer, clip_norm=None: optimizer.clear_grad()})


def clipping_forgotten():
    def update(model, optimizer, clip_norm=None):
        optimizer.step()
        optimizer.clear_grad()

    return PaddleSide(train={"apply_update": update})


def micro_batches_summed():
    def accumulate(model, criterion, batches):
        total = 0.0
        for batch in batches:
            total = total + accumulate_gradients(model, criterion, [batch])
        return total / len(batches)

    return PaddleSide(train={"accumulate_gradients": accumulate})


def frozen(model):
    model.features[3].block[0][0].weight.stop_gradient = True


def shared(model):
    model.features[11].block[0][0].weight = model.features[10].block[0][0].weight


def stock_batch_norm(model):
    replace_all(model, BatchNorm2D, lambda layer: nn.BatchNorm2D(layer._num_features, epsilon=0.001, momentum=0.99))


def bfloat16_inside(model):
    """In float32 alone: exact mode does not have it, and the kink inputs that it moves are no rounding."""
    if model.features[0][0].weight.dtype == paddle.float32:
        model.features[0].register_forward_post_hook(lambda layer, inputs, out: out.astype("bfloat16").astype(out.dtype))


BACKWARD = {
    "eps inside the root": ("rmsprop.train", eps_inside_the_root),
    "rmsprop alpha": ("rmsprop.eval", optimizer_with(alpha=0.99)),
    "momentum off": ("sgd.eval", optimizer_with(momentum=0.0)),
    "weight decay forgotten": ("sgd.eval", optimizer_with(weight_decay=0.0)),
    "no weight decay on BatchNorm": ("sgd.train", optimizer_with(norm_weight_decay=0.0)),
    "Adam with L2 for AdamW": ("adamw.eval", adam_with_l2),
    "adamw eps": ("adamw.train", optimizer_with(eps=1e-8)),
    "schedule never stepped": ("sgd.eval", schedule_never_stepped),
    "schedule off by one": ("sgd.eval", schedule_with(step_size=2)),
    "schedule's factor": ("rmsprop.eval", schedule_with(gamma=0.1)),
    "gradient not cleared": ("sgd.eval", gradient_not_cleared),
    "never updated": ("sgd.eval", never_updated),
    "clipping forgotten": ("sgd.train.accumulate2.clip", clipping_forgotten),
    "micro-batches summed": ("sgd.train.accumulate2.clip", micro_batches_summed),
    "a frozen parameter": ("sgd.eval", lambda: broken_model(frozen)),
    "parameters shared by mistake": ("sgd.eval", lambda: broken_model(shared)),
    "stock BatchNorm statistics": ("sgd.train", lambda: broken_model(stock_batch_norm)),
    "dropout missing": ("sgd.train", lambda: broken_model(dropout_missing)),
    "bfloat16 inside": ("sgd.eval", lambda: broken_model(bfloat16_inside)),
    "smoothing forgotten": ("sgd.eval", without(label_smoothing=0.0)),
}


@pytest.mark.parametrize("run", ["sgd.train", "rmsprop.eval", "sgd.train.accumulate2.clip"])
def test_step_5_passes(context, run):
    assert backward.run(context(), (FIRST_RUNS[run],)).passed


@pytest.mark.parametrize("breakage", BACKWARD)
def test_step_5_fails(context, breakage):
    run, side = BACKWARD[breakage]
    assert not backward.run(context(side()), (FIRST_RUNS[run],)).passed


def test_step_5_refuses_a_constant_learning_rate(context):
    """A comparison of two schedules that never move compares two constants."""
    constant = dataclasses.replace(FIRST_RUNS["sgd.eval"].schedule, name="constant")
    result = backward.run(context(), (dataclasses.replace(FIRST_RUNS["sgd.eval"], schedule=constant),))
    assert not result.passed and "learning_rate_values" in result.problems[0]


def test_an_input_exactly_at_a_kink_is_on_a_side_of_its_own():
    """There the two frameworks' derivatives may differ, as they do across the kink."""
    side = PaddleSide()
    kinks = {}
    network = nn.Sequential(nn.ReLU())
    with side.traced_kinks(network, kinks):
        network(paddle.to_tensor([-1e-30, 0.0, 1e-30]))
        network(paddle.to_tensor([2.0]))
    assert kinks["0"].tolist() == [0, 1, 2] and kinks["0#2"].tolist() == [2]


@pytest.mark.parametrize("side", [PaddleSide, RefSide])
def test_exact_mode_has_the_kinks_of_float32(side, small_state):
    """Replaced gates still count, or their flips would go unseen."""
    side = side()
    counts = []
    for exact in (False, True):
        network = side.build(SMALL, small_state, exact=exact, width_mult=0.5)
        counts.append(sum(type(module) in side.kinks for module in side.named_modules(network).values()))
    assert counts[0] == counts[1] > 30
