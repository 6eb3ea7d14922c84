"""Breakages of schedules and of groups of weight decays: each must fail its row of step 5, and be found and named."""

from __future__ import annotations

import dataclasses
from unittest import mock

import numpy as np
import paddle
import pytest
from paddle.optimizer.lr import CosineAnnealingDecay, LinearWarmup

from alignment.comparisons.comparison import explained, measured
from alignment.comparisons.explain import locate
from alignment.comparisons.result import StepResult
from alignment.comparisons.update import backward, groups, optimizers
from alignment.comparisons.update.backward import compare_exact_updates
from alignment.comparisons.update.groups import compare_groups
from alignment.comparisons.update.optimizers import FedUpdates, OptimizerUpdates
from alignment.comparisons.update.rates import expected_rates
from alignment.comparisons.update.schedules import compare_schedules
from alignment.kinds import Kind
from alignment.models.tracing import Network
from mobilenetv3_common.train_config import OPTIMIZERS, OptimizerConfig, TrainConfig
from mobilenetv3_common.train_config import SCHEDULES as TRAIN_SCHEDULES
from mobilenetv3_paddle.train import build_optimizer, build_schedule, step
from mobilenetv3_paddle.train import optimizer as makers
from projects.mobilenetv3.faults.updates import optimizer_with, schedule_with
from projects.mobilenetv3.project import PROJECT


def changed(change):
    """The project whose port builds its schedules from a changed config."""
    return PROJECT.with_port("train", build_schedule=lambda optimizer, c: build_schedule(optimizer, change(c)))


def warmed_otherwise(start):
    """The project whose port's warm-up begins at another share; ``start`` makes it of the right one."""

    def build(optimizer, config):
        lr, schedule = optimizer.get_lr(), build_schedule(optimizer, dataclasses.replace(config, warmup=0))
        if config.warmup:
            schedule = LinearWarmup(schedule, config.warmup, start_lr=start(config.warmup_decay) * lr, end_lr=lr)
            optimizer.set_lr_scheduler(schedule)
        return schedule

    return PROJECT.with_port("train", build_schedule=build)


def cosine_of_the_whole_run(optimizer, config):
    """Warm-up not taken from the cosine's length."""
    if config.name != "cosine":
        return build_schedule(optimizer, config)
    lr = optimizer.get_lr()
    schedule = CosineAnnealingDecay(lr, config.total, config.lr_min)
    if config.warmup:
        schedule = LinearWarmup(schedule, config.warmup, start_lr=config.warmup_decay * lr, end_lr=lr)
    optimizer.set_lr_scheduler(schedule)
    return schedule


def wrong_once_late(optimizer, config):
    """One rate of a schedule with restarts is doubled, in its fourth cosine."""
    schedule = build_schedule(optimizer, config)
    if config.name == "restarts" and not config.warmup and config.restart > 2:
        right = schedule.get_lr
        schedule.get_lr = lambda: right() * (2 if schedule.last_epoch == 100 else 1)
    return schedule


SCHEDULES = {
    "restarts wrong once, late": (
        lambda: PROJECT.with_port("train", build_schedule=wrong_once_late),
        "schedule.restarts.update", "build_schedule(restarts)", Kind.UNKNOWN,
    ),
    "warm-up from zero": (
        lambda: warmed_otherwise(lambda share: 0.0),
        "schedule.constant.update.warmup2", "build_schedule(warm-up)", Kind.WARMUP_START,
    ),
    "no warm-up": (
        lambda: schedule_with(PROJECT, warmup=0),
        "schedule.constant.epoch.warmup2", "build_schedule(warm-up)", Kind.WARMUP_MISSING,
    ),
    "warm-up one step longer": (
        lambda: changed(lambda c: dataclasses.replace(c, warmup=c.warmup + 1) if c.warmup and c.name != "multistep" else c),
        "schedule.step.update.warmup3", "build_schedule(warm-up)", Kind.WARMUP_LENGTH,
    ),
    "exponential squared": (
        lambda: changed(lambda c: dataclasses.replace(c, gamma=c.gamma**2) if c.name == "exponential" else c),
        "schedule.exponential.update", "build_schedule(exponential)", Kind.SCHEDULE_FACTOR,
    ),
    "cosine to zero": (
        lambda: schedule_with(PROJECT, lr_min=0.0),
        "schedule.cosine.update", "build_schedule(cosine)", Kind.SCHEDULE_MINIMUM,
    ),
    "cosine over the warm-up too": (
        lambda: PROJECT.with_port("train", build_schedule=cosine_of_the_whole_run),
        "schedule.cosine.update.warmup2", "build_schedule(cosine)", Kind.SCHEDULE_PERIOD,
    ),
    "exponential for cosine": (
        lambda: changed(lambda c: dataclasses.replace(c, name="exponential") if c.name == "cosine" else c),
        "schedule.cosine.epoch", "build_schedule(cosine)", Kind.OTHER_SCHEDULE,
    ),
    "steps one too early": (
        lambda: changed(lambda c: dataclasses.replace(c, step_size=max(c.step_size - 1, 1))),
        "schedule.step.update", "build_schedule(step)", Kind.SCHEDULE_PERIOD,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def context(same_models):
    return same_models


@pytest.fixture(scope="module")
def lanes(context):
    made = context()
    return made, {name: made.networks.of(name) for name in ("port64", "reference64")}


def compared(context, lanes, compare, project):
    """The names of the rows that fail with a project's port."""
    broken, result = context(project), StepResult(5, "backward")
    sound = lanes[1]
    ours = Network.__new__(Network)
    vars(ours).update(vars(sound["port64"]), side=broken.port)
    compare(broken, result, {"port64": ours, "reference64": sound["reference64"]})
    return [quantity.name for quantity in result.quantities if not quantity.passed], result


def test_sound_schedules_and_groups_agree(context, lanes):
    failed, result = compared(context, lanes, compare_exact_updates, PROJECT)
    assert failed == [] and result.passed and len(result.quantities) == 45 + 12 + 3
    updates = {"parameter groups", "layer-wise decay", "Nesterov momentum", "L1 decay", "norm weight decay", "bias weight decay"}
    rates = {"warm-up", "warm-up by epoch", "square-root scaling"}
    assert set(result.covers) == {f"{name} schedule" for name in TRAIN_SCHEDULES} | rates | updates | set(OPTIMIZERS)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_broken_schedule_fails_and_is_found(context, lanes, name):
    make, row, location, kind = SCHEDULES[name]
    project = make()
    failed, result = compared(context, lanes, compare_schedules, project)
    assert row in failed
    finding = explained(result)
    assert (finding.location, finding.kind) == (location, kind), finding.line()


def test_a_mistake_that_both_sides_share_is_seen_by_the_formula(context, lanes, monkeypatch):
    """The learning rate is not scaled with the micro-batches; an exponential decay is that of an epoch at every update."""
    right, plan = TrainConfig.optimizer_config, TrainConfig.schedule_config
    monkeypatch.setattr(TrainConfig, "optimizer_config", lambda config, pictures: right(config, config.scale_lr_from or pictures))
    failed, result = compared(context, lanes, compare_schedules, PROJECT)
    assert len(failed) == 45 and "closed formula" in result.quantities[0].reason
    monkeypatch.setattr(TrainConfig, "optimizer_config", right)
    monkeypatch.setattr(
        TrainConfig, "schedule_config", lambda config, updates: dataclasses.replace(plan(config, updates), gamma=config.lr_gamma)
    )
    failed, _ = compared(context, lanes, compare_schedules, PROJECT)
    assert failed == [f"schedule.exponential.update{warmup}" for warmup in ("", ".warmup2", ".warmup3")]


def test_schedules_end_as_the_formula_says():
    """By hand: a warm-up of one epoch from a quarter, then half a cosine."""
    config = TrainConfig(lr=1.0, epochs=3, warmup_epochs=1, warmup_decay=0.25, lr_schedule="cosine")
    rates = expected_rates(config, 2, 1)
    cosine = [1.0, (1 + np.cos(np.pi / 4)) / 2, 0.5, (1 + np.cos(3 * np.pi / 4)) / 2]
    assert rates == pytest.approx([0.25, 0.625, *cosine])


# --- groups ----------------------------------------------------------------------------------------------------------------


def swapped_groups(model, config: OptimizerConfig):
    other = {"norm_weight_decay": config.bias_weight_decay, "bias_weight_decay": config.norm_weight_decay}
    return build_optimizer(model, dataclasses.replace(config, **other))


GROUPS = {
    "swapped": (lambda: PROJECT.with_port("train", build_optimizer=swapped_groups), Kind.WEIGHT_DECAYS_SWAPPED),
    "norm layers like all": (lambda: optimizer_with(PROJECT, norm_weight_decay=None), Kind.NORM_WEIGHT_DECAY),
    "biases without": (lambda: optimizer_with(PROJECT, bias_weight_decay=0.0), Kind.BIAS_WEIGHT_DECAY),
}


@pytest.mark.parametrize("name", GROUPS)
def test_broken_groups_fail_for_every_optimizer(context, lanes, name):
    project = GROUPS[name][0]()
    failed = compared(context, lanes, compare_groups, project)[0]
    assert {f"optimizer.{config.name}.groups" for config in groups.GROUPS} | {"optimizer.sgd.decays"} <= set(failed)


def updated_otherwise(context, project, config):
    """What localisation finds in the updates of one config."""
    made = context(project)
    return measured(made, OptimizerUpdates(config, None, FedUpdates.of(made))).explain()


def zero_is_none(model, config: OptimizerConfig):
    """``or`` in the place of ``is None``: a weight decay of 0 is taken for a missing one."""
    own = {name: getattr(config, name) or None for name in ("norm_weight_decay", "bias_weight_decay")}
    rules = tuple(dataclasses.replace(rule, decay=rule.decay or None) for rule in config.rules)
    return build_optimizer(model, dataclasses.replace(config, rules=rules, **own))


def test_a_weight_decay_of_zero_is_none_of_its_own(context, lanes):
    project = PROJECT.with_port("train", build_optimizer=zero_is_none)
    failed = compared(context, lanes, compare_groups, project)[0]
    assert {name for name in failed if name.endswith(".groups")} == {
        "optimizer.sgd.undecayed.groups",
        "optimizer.sgd.parameter groups.groups",
    }
    assert updated_otherwise(context, project, groups.UNDECAYED).kind is Kind.NORM_AND_BIAS_WEIGHT_DECAY


def test_plain_momentum_for_nesterovs_is_named(context):
    """Where every config with Nesterov momentum is tried with a mistake, none of these may be one that the recipe refuses."""
    config = dataclasses.replace(groups.GROUPS[0], nesterov=True)
    finding = updated_otherwise(context, optimizer_with(PROJECT, nesterov=False), config)
    assert (finding.location, finding.kind) == ("optimizer.sgd", Kind.NESTEROV), finding.line()


def penalised_first(model, optimizer, clip_norm=None, precision=None):
    step.add_l1_decay(optimizer)
    with mock.patch.object(step, "add_l1_decay", return_value=None):
        step.apply_update(model, optimizer, clip_norm, precision)


def not_penalised(model, optimizer, clip_norm=None, precision=None):
    with mock.patch.object(step, "add_l1_decay", return_value=None):
        step.apply_update(model, optimizer, clip_norm, precision)


def squared(model, optimizer, clip_norm=None, precision=None):
    """The weights themselves in the place of their signs."""

    def add(optimizer):
        for group in optimizer._param_groups:
            for parameter in group["params"] if group.get("l1_decay") else ():
                parameter.grad.add_(parameter * group["l1_decay"])

    with mock.patch.object(step, "add_l1_decay", add):
        step.apply_update(model, optimizer, clip_norm, precision)


def l1_for_l2(model, config: OptimizerConfig):
    """Paddle's regulariser of L1 in the place of L2, in every group."""

    def made(_, groups):
        groups = [{**group, "weight_decay": paddle.regularizer.L1Decay(group["weight_decay"])} for group in groups]
        return paddle.optimizer.Momentum(config.lr, config.momentum, groups, use_nesterov=config.nesterov)

    with mock.patch.dict(makers.MAKERS, {"sgd": made}):
        return build_optimizer(model, config)


def test_an_l1_penalty_for_an_l2_penalty_is_named(context):
    finding = updated_otherwise(context, PROJECT.with_port("train", build_optimizer=l1_for_l2), groups.GROUPS[0])
    assert (finding.location, finding.kind) == ("optimizer.sgd", Kind.L1_FOR_L2), finding.line()


PENALISED = {
    "as expected": (lambda: PROJECT, None, ""),
    "before clipping": (
        lambda: PROJECT.with_port("train", apply_update=penalised_first),
        Kind.CLIP_NORM,
        "the L1 penalty is added before the gradients are clipped, expected behind it",
    ),
    "missing": (
        lambda: PROJECT.with_port("train", apply_update=not_penalised), Kind.WEIGHT_DECAY_MISSING, "the L1 penalty is not added",
    ),
    "squared": (lambda: PROJECT.with_port("train", apply_update=squared), Kind.L2_FOR_L1, "expected times the sign of each weight"),
    "beside another mistake's formula": (lambda: optimizer_with(PROJECT, nesterov=True), Kind.NESTEROV, "Nesterov"),
}  # fmt: skip


@pytest.mark.parametrize("name", PENALISED)
def test_an_l1_penalty_in_another_place_is_named(context, name):
    make, kind, words = PENALISED[name]
    config = next(one for one in groups.GROUPS if one.l1_decay)
    made = context(make())
    fed = FedUpdates.of(made)
    found = [measured(made, OptimizerUpdates(config, clip, fed)).explain() for clip in (None, 2.0**-4)]
    first = next(filter(None, found), None)
    assert (first and first.kind) == kind and (first is None or words in first.hint), first and first.line()
    assert (found[0] is None) == (name in ("as expected", "before clipping")), "without clipping the order changes nothing"


@pytest.mark.parametrize("name", ["rules", "layer_decay"])
def test_rates_by_name_and_depth_that_are_ignored_fail(context, lanes, name):
    default = {field.name: field.default for field in dataclasses.fields(OptimizerConfig)}[name]
    project = optimizer_with(PROJECT, **{name: default})
    failed = compared(context, lanes, compare_groups, project)[0]
    topic = "parameter groups" if name == "rules" else "layer-wise decay"
    rows = {name for name in failed if name.endswith((".groups", ".rates"))}
    assert rows == {f"optimizer.sgd.{topic}.groups", f"optimizer.sgd.{topic}.groups.rates"}


def first_of(made):
    """What is found in the first optimizer whose updates differ."""
    return next(filter(None, (measured(made, one).explain() for one in optimizers.optimizers(made))))


@pytest.mark.parametrize("name", ["swapped", "norm layers like all"])
def test_broken_groups_are_located_and_named(context, name):
    make, kind = GROUPS[name]
    finding = first_of(context(make()))
    assert finding.kind is kind and finding.location == "optimizer.sgd: features.0.1.weight", finding.line()


def test_a_rule_that_both_sides_break_is_seen(context, lanes, monkeypatch):
    """The reference's groups are no authority either: BatchNorm's decay is the recipe's, whatever the sides say."""
    made = context()
    result = StepResult(5, "backward")
    monkeypatch.setattr(groups, "expected_decays", lambda *args: dict.fromkeys(args[-1], 1.0))
    compare_groups(made, result, lanes[1])
    failed = [q for q in result.quantities if not q.passed]
    assert failed[0].name == "optimizer.sgd.decays" and "reference's weight decay" in failed[0].reason
    assert {q.name.rpartition(".")[2] for q in failed} == {"decays", "rates"}, "rates are derived with the right decays"


def test_the_networks_are_left_as_they_were(context, lanes):
    made, pair = lanes
    before = {name: lane.framework.state(lane.model) for name, lane in pair.items()}
    compare_exact_updates(made, StepResult(5, "backward"), pair)
    for name, lane in pair.items():
        after = lane.framework.state(lane.model)
        assert all((after[tensor] == array).all() for tensor, array in before[name].items())


def test_what_failed_is_explained_from_what_was_measured(context, monkeypatch):
    """The port's training code is not asked again: a side is measured once, and one run is enough to see that it differs."""
    run = dataclasses.replace(backward.RUNS[0], iterations=2, float32_iterations=1)
    broken = context(optimizer_with(PROJECT, "sgd", momentum=0.0))
    result = backward.run(broken, (run,))
    assert [type(part.comparison).__name__ for part in result.compared] == [
        "Losses",
        "Accumulation",
        "Schedules",
        "OptimizerUpdates",
    ]
    asked = []
    for part in ("build_optimizer", "build_schedule", "accumulate_gradients", "apply_update"):
        monkeypatch.setattr(broken.port.train, part, lambda *given, part=part: asked.append(part))
    monkeypatch.setattr(broken.port.loss, "CrossEntropyLoss", lambda *given: asked.append("loss"))
    finding = locate(broken, [result], with_table=False).first
    assert (finding.location, finding.kind) == ("optimizer.sgd", Kind.MOMENTUM_MISSING) and asked == []


def test_a_schedule_that_raises_is_one_row_and_is_found(context, lanes):
    def build(optimizer, config):
        if config.name == "restarts":
            raise KeyError("no such schedule")
        return build_schedule(optimizer, config)

    failed, result = compared(context, lanes, compare_schedules, PROJECT.with_port("train", build_schedule=build))
    assert failed and all(".restarts." in name for name in failed)
    finding = explained(result)
    assert finding.kind is Kind.RAISES and "test_breakages_5_schedules.py" in finding.location
