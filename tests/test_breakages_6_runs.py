"""Breakages of what a run does besides its updates: each must fail its rows of step 6, and be found and named."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
import torch

import mobilenetv3_common.training
import mobilenetv3_paddle.train.backend as port_backend
from alignment.comparisons.comparison import explained
from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult
from alignment.comparisons.run import (
    averages,
    checkpoints,
    divergence,
    evaluation,
    freezing,
    fresh,
    long_run,
    memory,
    run_options,
    runs,
)
from alignment.comparisons.run.averages import Averages
from alignment.comparisons.run.divergence import Divergence
from alignment.comparisons.run.engine import Ground
from alignment.comparisons.run.evaluation import RunEvaluation
from alignment.comparisons.run.freezing import Freezing
from alignment.comparisons.run.fresh import Fresh
from alignment.comparisons.run.long_run import LongRun
from alignment.comparisons.run.mistakes import counted_figures
from alignment.comparisons.run.resumption import Resumption
from alignment.kinds import Kind
from mobilenetv3_common import run as common_run
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.weights import is_statistic
from mobilenetv3_paddle.train import Guard, MovingAverage
from projects.mobilenetv3.project import PROJECT

pytestmark = pytest.mark.slow  # make test-slow


class Remembering:
    """What checkpoints keep of the optimizers that the recipe does not have, by itself: the port's alone."""

    def __init__(self, ground):
        self.ground = ground

    def measure(self, context, role):
        return memory.remembered(context, role, self.ground) if role == "port" else {}

    def judge(self, port, reference):
        return memory.judge_memory(port)

    def show(self, result, port, reference): ...

    def explain(self, port, reference):
        return memory.explain_memory(port)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """What the reference gives, made when a part is first asked for."""
    context = Context(PROJECT)
    ground = Ground.of(context, tmp_path_factory.mktemp("runs"))
    chosen = {
        "average": [Averages(ground)],
        "divergence": [Divergence(ground, True)],
        "freezing": [Freezing(ground)],
        "run": [LongRun(ground)],
        "resume": [Resumption(ground)],
        "memory": [Remembering(ground)],
        "options": run_options.options(context, ground),
        "evaluation": [RunEvaluation(ground)],
        "fresh": [Fresh(ground)],
    }

    @functools.cache
    def reference(part):
        return [runs.measured(context, one, "reference") for one in chosen[part]]

    return SimpleNamespace(context=context, ground=ground, parts=chosen, reference=reference)


def judged(part, sound, tmp_path, context=None):
    """The rows of one part, and what was measured, with the port as it is now."""
    made = StepResult(6, "train")
    for one, theirs in zip(sound.parts[part], sound.reference(part), strict=True):
        ground = dataclasses.replace(one.ground, folder=tmp_path)
        if isinstance(one, Remembering):
            one = Remembering(ground)
        else:
            one = dataclasses.replace(one, ground=ground) if dataclasses.is_dataclass(one) else type(one)(ground)
        one = one.after(theirs) if hasattr(one, "after") else one
        ours = runs.measured(context or sound.context, one, "port")
        if ours is not None and theirs is not None:
            runs.add(made, one, ours, theirs)
    return made


def failed(made):
    return [quantity.name for quantity in made.quantities if not quantity.passed]


@pytest.fixture
def found(monkeypatch):
    """What is found in the measurements of a part: nothing is run any more."""

    def refuse(*args, **kwargs):
        raise AssertionError("a side is run a second time")

    def find(made):
        for module in (averages, divergence, evaluation, freezing, fresh, long_run, memory, run_options, checkpoints):
            for name in ("start_run", "engine"):
                if hasattr(module, name):
                    monkeypatch.setattr(module, name, refuse)
        return explained(made)

    return find


PARTS = ("average", "divergence", "freezing", "run", "resume", "memory", "options", "evaluation", "fresh")


@pytest.mark.parametrize("part", PARTS)
def test_a_sound_port_passes_and_nothing_is_found_in_it(part, sound, found, tmp_path):
    made = judged(part, sound, tmp_path)
    assert failed(made) == [] and made.problems == [] and (made.covers or part in ("fresh", "memory"))
    assert found(made) is None


def test_a_side_that_is_run_again_would_be_seen(sound, found, tmp_path):
    found(StepResult(6, "train"))
    for part in PARTS:
        with pytest.raises(AssertionError, match="a second time"):
            judged(part, sound, tmp_path)


# --- breakages, as edits of the port's own functions -----------------------------------------------------------------------


def averaged_otherwise(keeps=lambda name: True, share=lambda decay: decay, start=lambda tensor: tensor):
    """An update that averages some tensors alone, with another decay, or from another start."""

    def breaks(patch):
        def update(self):
            if self.decay == 0:
                return
            decay = share(self.decay)
            state = {name: tensor.astype("float32") for name, tensor in self.model.state_dict().items() if keeps(name)}
            begins = not self.shadow
            if begins:
                self.shadow = {name: start(tensor.clone()) for name, tensor in state.items()}
            if not begins or start(paddle.ones([1])) != 1:
                self.shadow = {name: self.shadow[name] * decay + tensor * (1.0 - decay) for name, tensor in state.items()}

        patch.setattr(MovingAverage, "update", paddle.no_grad()(update))

    return breaks


def other_decay(patch):
    right = MovingAverage.__init__
    patch.setattr(MovingAverage, "__init__", lambda self, model, decay: right(self, model, decay**2))


def left_in(patch):
    @contextlib.contextmanager
    def applied(self):
        state = self.model.state_dict()
        for name, tensor in self.shadow.items():
            state[name].set_value(tensor.astype(state[name].dtype))
        yield

    patch.setattr(MovingAverage, "applied", applied)


def kept_at_decay_zero(patch):
    def update(self):
        self.shadow = {name: tensor.astype("float32").clone() for name, tensor in self.model.state_dict().items()}

    right = MovingAverage.update
    patch.setattr(MovingAverage, "update", lambda self: right(self) if self.decay else update(self))


def freeze_bn_in_evaluation_alone(patch):
    """Statistics stay, weights train."""
    right = port_backend.build_model
    patch.setattr(port_backend, "build_model", lambda c, n, b=None: right(dataclasses.replace(c, freeze_bn=False), n, b))


def freeze_bn_of_weights_alone(patch):
    patch.setattr(port_backend, "train_mode", lambda model, freeze_bn: model.train())


def freeze_bn_of_weights_kept_trainable(patch):
    def build(config, classes, builder=None):
        model = RIGHT_BUILD(config, classes, builder)
        for name, parameter in model.named_parameters():
            if name.endswith("classifier.3.bias") and config.freeze_bn:
                parameter.stop_gradient = True
        return model

    patch.setattr(port_backend, "build_model", build)


RIGHT_BUILD = port_backend.build_model
LOAD = port_backend.load_optimizer_arrays


def optimizer_not_saved(patch):
    patch.setattr(port_backend, "optimizer_arrays", lambda model, optimizer, precision: {})


def optimizer_not_restored(patch):
    patch.setattr(port_backend, "load_optimizer_arrays", lambda model, optimizer, precision, arrays: None)


def velocity_not_saved(patch):
    """What Paddle's SGD remembers; the recipe's own optimizer has nothing of that name."""
    right = port_backend.optimizer_arrays

    def arrays(model, optimizer, precision):
        return {name: array for name, array in right(model, optimizer, precision).items() if not name.startswith("velocity/")}

    patch.setattr(port_backend, "optimizer_arrays", arrays)
    patch.setattr(port_backend, "load_optimizer_arrays", lambda model, optimizer, precision, found: None if not found else LOAD(
        model, optimizer, precision, found))  # fmt: skip


def moment_of_lion_not_restored(patch):
    def load(model, optimizer, precision, arrays):
        LOAD(model, optimizer, precision, arrays)
        if type(optimizer).__name__ == "Lion":
            for tensors in optimizer._accumulators.values():
                for tensor in tensors.values():
                    tensor.zero_()

    patch.setattr(port_backend, "load_optimizer_arrays", load)


def statistics_twice(patch):
    patch.setattr("mobilenetv3_paddle.train.recompute.statistics_kept", lambda block: contextlib.nullcontext())


def nothing_computed_again(patch):
    patch.setattr(port_backend, "recompute_blocks", lambda model: 0)


def frozen_as_paddle_does(patch):
    """Without a twin that needs a gradient, Paddle's kernel gives the gradient of neither weight nor bias."""
    patch.setattr("mobilenetv3_paddle.models.norm._wanted", lambda parameter: parameter)


def mean_of_the_logits(patch):
    def averaged(model, images, precision):
        if images.ndim == 4:
            return model(images)
        return paddle.stack([model(images[:, view]) for view in range(images.shape[1])]).mean(axis=0)

    patch.setattr(sys.modules["mobilenetv3_paddle.train.evaluate"], "averaged", averaged)


def pretrained_ignored(patch):
    patch.setattr(port_backend, "load_pretrained", lambda model, path, reset, take="auto": None)


def average_not_restored(patch):
    patch.setattr(MovingAverage, "load", lambda self, arrays: None)


def schedule_not_restored(patch):
    patch.setattr(port_backend, "load_schedule_state", lambda optimizer, schedule, meta: None)


def statistics_not_restored(patch):
    right = port_backend.load_model_arrays

    def load(model, arrays, source):
        own = port_backend.model_arrays(model)
        right(model, {**arrays, **{name: array for name, array in own.items() if is_statistic(name)}}, source)

    patch.setattr(port_backend, "load_model_arrays", load)


def place_not_restored(patch):
    """In the loop that both packages share: only the port's own uninterrupted run tells."""
    right = common_run.restore

    def restore(run, checkpoint, source):
        right(run, checkpoint, source)
        run.iteration = 0

    patch.setattr(common_run, "restore", restore)


def judged_otherwise(change):
    """Another judgement of each batch."""
    right = port_backend.judge_batch

    def broken(patch):
        def judge(model, images, labels, counted, ranks, precision):
            return change(right(model, images, labels, counted, ranks, precision), counted)

        patch.setattr(port_backend, "judge_batch", judge)

    return broken


def average_not_applied(patch):
    right = MovingAverage.applied

    @contextlib.contextmanager
    def applied(self):
        with contextlib.nullcontext() if self.model.training else right(self):
            yield

    patch.setattr(MovingAverage, "applied", applied)


def in_training_mode(patch):
    right = port_backend.judge_batch

    def judge(model, *args):
        model.train()
        return right(model, *args)

    patch.setattr(port_backend, "judge_batch", judge)


def counted_otherwise(patch):
    right = port_backend.count_right
    patch.setattr(port_backend, "count_right", lambda logits, labels: right(logits, labels)[paddle.to_tensor([0, 0])])


def guard_that_sees_nothing(patch):
    patch.setattr(Guard, "healthy", lambda self, model, gradients=True: True)


def offender_is_always_a_layer(patch):
    right = port_backend.first_offender
    patch.setattr(port_backend, "first_offender", lambda model, forward: right(model, forward).replace("weight", "output of"))


def unseeded(patch):
    patch.setattr(port_backend.paddle, "seed", lambda seed: None)


def recipe_without(**changes):
    """A network that ignores a setting of the recipe."""

    def breaks(patch):
        def build(config, classes, builder=None):
            return RIGHT_BUILD(dataclasses.replace(config, **changes), classes, builder)

        patch.setattr(port_backend, "build_model", build)

    return breaks


def evaluation_mode_kept(patch):
    patch.setattr(port_backend, "train_mode", lambda model, freeze_bn: None)


FOUND = {
    "seed forgotten": ("fresh", unseeded, "fresh.seed", "build_model", Kind.OTHER_SEED),
    "width of the recipe ignored": ("fresh", recipe_without(width_mult=1.0), "fresh.shapes", "build_model", Kind.RECIPE),
    "dropout of the recipe ignored": ("fresh", recipe_without(dropout=0.2), "fresh.settings", "build_model", Kind.RECIPE),
    "nothing stops": ("divergence", guard_that_sees_nothing, "divergence.weight", "Guard", Kind.NOT_STOPPED),
    "another place named": (
        "divergence", offender_is_always_a_layer, "divergence.weight", "first_offender", Kind.UNKNOWN,
    ),
    "top-5 of training is top-1": ("run", counted_otherwise, "run.right", "count_right", Kind.TOP_K),
    "decay inverted": (
        "average", averaged_otherwise(share=lambda decay: 1 - decay),
        "average.after4", "MovingAverage", Kind.AVERAGE_DECAY_INVERTED,
    ),
    "average without statistics": (
        "average", averaged_otherwise(keeps=lambda name: not is_statistic(name)),
        "average.after4", "MovingAverage", Kind.AVERAGE_WITHOUT_STATISTICS,
    ),
    "average from zero": (
        "average", averaged_otherwise(start=paddle.zeros_like), "average.after1", "MovingAverage", Kind.AVERAGE_START,
    ),
    "another decay": ("average", other_decay, "average.after4", "MovingAverage", Kind.AVERAGE_DECAY),
    "average left in the model": (
        "average", left_in, "average.taken_out", "MovingAverage.applied", Kind.AVERAGE_NOT_TAKEN_OUT,
    ),
    "freezing: weights train": (
        "freezing", freeze_bn_in_evaluation_alone, "freezing.trainable", "freeze_bn: features.0.1.bias", Kind.NOT_FROZEN,
    ),
    "freezing: statistics move": (
        "freezing", freeze_bn_of_weights_alone, "freezing.kept", "freeze_bn: features.0.1.running_mean", Kind.NOT_FROZEN,
    ),
    "freezing: too much": (
        "freezing", freeze_bn_of_weights_kept_trainable, "freezing.trainable", "freeze_bn: classifier.3.bias", Kind.FROZEN,
    ),
    "optimizer not saved": ("resume", optimizer_not_saved, "resume.saved", "resume.optimizer", Kind.STATE_NOT_SAVED),
    "optimizer not restored": (
        "resume", optimizer_not_restored, "resume.optimizer", "resume.optimizer", Kind.STATE_NOT_RESTORED,
    ),
    "velocity not saved": ("memory", velocity_not_saved, "resume.with.sgd", "resume.optimizer", Kind.STATE_NOT_SAVED),
    "moment not restored": (
        "memory", moment_of_lion_not_restored, "resume.with.lion", "resume.optimizer", Kind.STATE_NOT_RESTORED,
    ),
    "statistics follow twice": ("options", statistics_twice, "option.gradient_checkpointing", "recompute_blocks", Kind.UNKNOWN),
    "blocks kept": ("options", nothing_computed_again, "option.gradient_checkpointing", "recompute_blocks", Kind.UNKNOWN),
    "a layer's other parameter stays": ("options", frozen_as_paddle_does, "option.freezing_by_name", "build_model", Kind.UNKNOWN),
    "mean of the views' logits": ("options", mean_of_the_logits, "option.views.flip", "evaluate_run", Kind.UNKNOWN),
    "pretrained ignored": ("options", pretrained_ignored, "option.pretrained", "load_pretrained", Kind.WEIGHTS_NOT_LOADED),
    "average not restored": ("resume", average_not_restored, "resume.average", "resume.average", Kind.STATE_NOT_RESTORED),
    "schedule not restored": ("resume", schedule_not_restored, "resume.schedule", "resume.schedule", Kind.STATE_NOT_RESTORED),
    "statistics not restored": (
        "resume", statistics_not_restored, "resume.statistics", "resume.statistics", Kind.STATE_NOT_RESTORED,
    ),
    "place in the epoch not restored": (
        "resume", place_not_restored, "resume.schedule", "resume.schedule", Kind.STATE_NOT_RESTORED,
    ),
    "top-5 is top-1": (
        "evaluation", judged_otherwise(lambda j, _: dataclasses.replace(j, right=j.right[:, [0, 0]])),
        "evaluation.top5", "evaluate_run", Kind.TOP_K,
    ),
    "confusion transposed": (
        "evaluation", judged_otherwise(lambda j, _: dataclasses.replace(j, labels=j.predicted, predicted=j.labels)),
        "evaluation.confusion", "evaluate_run", Kind.CONFUSION_TRANSPOSED,
    ),
    "mean of means": (
        "evaluation", judged_otherwise(lambda j, counted: dataclasses.replace(j, loss=j.loss * 3 / counted.sum())),
        "evaluation.loss", "evaluate_run", Kind.MEAN_OF_BATCH_MEANS,
    ),
    "average not applied": ("evaluation", average_not_applied, "evaluation.loss", "evaluate_run", Kind.AVERAGE_NOT_APPLIED),
    "training mode": ("evaluation", in_training_mode, "evaluation.loss", "evaluate_run", Kind.TRAINING_MODE),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_a_breakage_fails_its_row_and_is_found(name, sound, found, tmp_path, monkeypatch):
    part, breaks, row, location, kind = FOUND[name]
    breaks(monkeypatch)
    made = judged(part, sound, tmp_path)
    assert row in failed(made)
    finding = found(made)
    assert (finding.location, finding.kind) == (location, kind), finding.line()
    assert finding.measured


def test_an_average_that_keeps_what_it_need_not_is_a_problem(sound, tmp_path, monkeypatch):
    kept_at_decay_zero(monkeypatch)
    assert "average.kept_without_decay" in judged("average", sound, tmp_path).problems[0]


def test_what_both_sides_share_is_held_to_the_formula(sound, tmp_path, monkeypatch):
    """The loop averages every update, and the learning rate is not scaled: wrong on both sides alike."""
    right = mobilenetv3_common.training.update

    def update(run, gathered):
        right(run, gathered)
        if run.update % run.config.ema_every:
            run.average.update()

    scaled = TrainConfig.optimizer_config
    monkeypatch.setattr(mobilenetv3_common.training, "update", update)
    project = PROJECT.with_port("train", update=update)
    project = dataclasses.replace(project, reference=project.reference.with_names("train", update=update))
    monkeypatch.setattr(TrainConfig, "optimizer_config", lambda config, pictures: scaled(config, config.scale_lr_from or pictures))
    context, run = Context(project), LongRun(dataclasses.replace(sound.ground, folder=tmp_path))
    made = StepResult(6, "train")
    runs.add(made, run, run.measure(context, "port"), run.measure(context, "reference"))
    assert set(failed(made)) >= {"run.average", "run.learning_rates"}


def test_ranks_that_do_not_merge_their_confusion_are_named(sound, tmp_path, monkeypatch):
    """The second sum of an evaluation is lost."""

    class Forgetful(evaluation.Together):
        def sum(self, values):
            merged = super().sum(values)
            return merged if len(self.summed) == 1 else self.summed[-1]

    monkeypatch.setattr(evaluation, "Together", Forgetful)
    made = judged("evaluation", sound, tmp_path)
    assert failed(made) == ["evaluation.ranks.confusion"]
    finding = explained(made)
    assert (finding.location, finding.kind) == ("evaluate_run", Kind.RANKS_NOT_MERGED), finding.line()


def test_a_part_without_checkpoints_says_so():
    """The protocol asks for ``save`` alone where runs are resumed."""

    class Part:
        def __getattr__(self, name):
            if name == "save":
                raise AttributeError(name)
            return getattr(PROJECT.port.train, name)

    lacking = dataclasses.replace(PROJECT, port=dataclasses.replace(PROJECT.port, train=Part()))
    made = StepResult(6, "train")
    runs.compare(Context(lacking), made)
    assert made.not_run == "resumption: the train part of the port has no save"
    assert "resumed run" not in made.covers and made.passed and "run.weights" in [q.name for q in made.quantities]
    # Of two threads, one may build a model of the other's side, and must not leave its default type behind.
    assert (paddle.get_default_dtype(), torch.get_default_dtype()) == ("float32", torch.float32)


@pytest.mark.parametrize("left_out", [(), (2,)])
def test_figures_are_counted_as_by_hand(left_out):
    logits = np.array([[3.0, 1, 0, 0, 0, 0, 0], [0, 5.0, 4, 3, 2, 1, 0], [1, 2, 3, 4, 5, 6, 0.0]])
    labels = np.array([0, 2, 6])
    found = counted_figures(logits, labels, left_out)
    count = 3 - len(left_out)
    assert (found["samples"], found["skipped"]) == (count, len(left_out))
    assert (found["top1"], found["top5"]) == (1 / count, 2 / count)
    assert found["confusion"][2, 1] == 1 and found["confusion"].sum() == count


def test_a_run_that_stays_in_evaluation_mode_fails(sound, tmp_path, monkeypatch):
    """A fresh network is in training mode by itself: runs begin as an evaluation leaves them."""
    evaluation_mode_kept(monkeypatch)
    assert "run.loss" in failed(judged("run", sound, tmp_path))
