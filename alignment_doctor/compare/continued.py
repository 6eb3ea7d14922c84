"""Both frameworks from one checkpoint: a few updates, each from the same weights, optimizer state, pictures and gradients.

The checkpoint's own framework goes on as its run would. The other one is given the same weights and pictures before each update,
and the same gradients before its optimizer's step: each part is compared on equal input, and no difference is passed on.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from alignment.frameworks import framework_of
from mobilenetv3_common.checkpoint import LATEST, Checkpoint, read_checkpoint
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.observer import Observer
from mobilenetv3_common.parts import Ranks
from mobilenetv3_common.run import Run, build_run
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.training import MicroBatch, micro_batches, update
from mobilenetv3_common.training_backend import TrainingBackend
from mobilenetv3_common.weights import State, as_paddle, as_torch, is_statistic

UPDATES = 3
MOVED = 2  # times that the own framework computes again from weights that are moved by one ulp
MOVED_AT_MOST = 16  # where these do not tell whether a difference is rounding

# Optimizer -> the name of each tensor of its state in torch -> that in Paddle.
STATES = {
    "sgd": {"momentum_buffer": "velocity"},
    "rmsprop": {"square_avg": "mean_square", "momentum_buffer": "velocity"},
    "adam": {"exp_avg": "moment1", "exp_avg_sq": "moment2"},
    "adamw": {"exp_avg": "moment1", "exp_avg_sq": "moment2"},
    "adadelta": {"square_avg": "_avg_squared_grad", "acc_delta": "_avg_squared_update"},
    "lamb": {"first": "moment1", "second": "moment2"},
    "lion": {"momentum": "momentum"},
}
COUNTED = ("adam", "adamw", "lamb")  # Paddle keeps powers of their betas
STEPS = ("rmsprop", "adam", "adamw", "adadelta", "lamb")  # torch keeps their number of steps


@dataclass
class Made:
    """One update.

    Attributes:
        pictures: batches as the loader gave them, images (N, 3, H, W) and labels.
        before, after: weights and statistics, in torch's names and layout.
        rate, loss: of the update.
        gradients: before clipping, of the parameters that are not frozen.
    """

    pictures: list[tuple[np.ndarray, np.ndarray]]
    before: State
    rate: float = 0.0
    loss: float = 0.0
    gradients: State = field(default_factory=dict)
    after: State = field(default_factory=dict)


@dataclass
class ContinuedSubject:
    """What the checks compare.

    Attributes:
        path: of the checkpoint.
        config: of its run.
        at: updates that it has behind it.
        names: of its framework and of the other one.
        own, other: their updates.
        moved: the own framework's again, from weights moved by one ulp: what they differ by is rounding.
        move_again: makes one more of ``moved``; takes its number.
    """

    path: Path
    config: TrainConfig
    at: int
    names: tuple[str, str]
    own: list[Made]
    other: list[Made]
    moved: list[list[Made]]
    move_again: Callable[[int], list[Made]]

    def alike(self, place: int) -> Iterator[Made]:
        """What the own framework makes of an update: of the same weights, then of weights one ulp away, more and more of them.

        A ReLU whose input is 0 but for rounding lets a gradient through or not: where the other framework's rounding falls on the
        other side of it, its gradients are near one of these, and not near the first.

        Args:
            place: of the update, from 0.
        """
        yield self.own[place]
        for number in range(MOVED_AT_MOST):
            if number == len(self.moved):
                self.moved.append(self.move_again(number))
            yield self.moved[number][place]


class _Recorder(Observer):
    """Keeps what each update computes.

    Args:
        run: that it observes.
        guide: updates of another run, whose weights, pictures and gradients this one is given.
        move: changes the guide's weights before they are given.
    """

    def __init__(self, run: Run, guide: Sequence[Made] = (), move: Callable[[State], State] = dict) -> None:
        self.engine, self.guide, self.move = framework_of(run.model), guide, move
        self.made: list[Made] = []

    def begin(self, run: Run, gathered: list[MicroBatch]) -> list[MicroBatch]:
        """Before an update: the batches to make it with."""
        arrays = [(self.engine.array(images), self.engine.array(labels)) for (images, labels), _ in gathered]
        if not self.guide:
            self.made.append(Made(arrays, self.engine.state(run.model)))
            return gathered
        guide = self.guide[len(self.made)]
        self.engine.load(run.model, self.move(guide.before))
        self.made.append(Made(arrays, guide.before))
        given = [tuple(run.ranks.place(self.engine.tensor(part)) for part in one) for one in guide.pictures]
        return [((images, labels), ()) for images, labels in given]

    def before_update(self, run: Run, loss: Any) -> None:
        made, place = self.made[-1], len(self.made) - 1
        made.rate, made.loss, made.gradients = run.learning_rate(), float(loss), self.engine.gradients(run.model)
        if self.guide:
            self.engine.clear_gradients(run.model)
            self.engine.add_gradients(run.model, self.guide[place].gradients)

    def after_update(self, run: Run) -> None:
        self.made[-1].after = self.engine.state(run.model)


def continued(
    path: str | Path, backends: Mapping[str, TrainingBackend], given: Mapping[str, Any] | None = None
) -> ContinuedSubject:
    """Go on from a checkpoint in both frameworks.

    Args:
        path: a checkpoint of tools/train.py, or a run's folder (its latest).
        backends: ``"ref"`` and ``"paddle"``.
        given: settings in place of the checkpoint's, such as ``data_path``.

    Raises:
        UserError: the checkpoint cannot be used, or its run is over.
    """
    path = Path(path) / LATEST if Path(path).is_dir() else Path(path)
    checkpoint = read_checkpoint(path)
    name, config = _config(checkpoint, path, given or {})
    other = next(one for one in backends if one != name)

    crossed = crossing(checkpoint, other, config)

    def of(key: str, held: Checkpoint, guide: Sequence[Made] = (), move: Callable[[State], State] = dict) -> list[Made]:
        backend = backends[key]
        with backend.started(config.device) as ranks:
            return _updates(backend, replace(config, framework=key), ranks, held, guide, move)

    own = of(name, checkpoint)
    if not own:
        raise UserError(f"{path} is the end of its run, after which no update comes: give an earlier one of its folder")

    def again(number: int) -> list[Made]:
        return of(name, checkpoint, own, functools.partial(_one_ulp, seed=number))

    moved = [again(number) for number in range(MOVED)]
    return ContinuedSubject(path, config, int(checkpoint.meta["update"]), (name, other), own, of(other, crossed, own), moved, again)


def _config(checkpoint: Checkpoint, path: Path, given: Mapping[str, Any]) -> tuple[str, TrainConfig]:
    """The framework and the settings of a checkpoint's run, for this process alone."""
    meta = checkpoint.meta
    try:
        name, batch = str(meta["framework"]), int(meta["global_batch"])
        told = {f.name: meta["config"][f.name] for f in fields(TrainConfig) if f.name in meta["config"]}
        for key in ("epoch", "iteration", "update"):
            int(meta[key])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"checkpoint {path} lacks {error}: it was not written by tools/train.py") from error
    if name not in ("ref", "paddle"):
        raise UserError(f"checkpoint {path} is of framework {name!r}: --from takes those of ref and paddle")
    config = TrainConfig(
        **{**told, **given, "framework": name, "resume": None, "pretrained": None, "workers": 0, "batch_size": batch}
    )
    if config.amp_level != "O0":
        raise UserError(f"checkpoint {path} is of a run in mixed precision ({config.amp_level}): --from compares float32 alone")
    return name, config


def _updates(
    backend: TrainingBackend,
    config: TrainConfig,
    ranks: Ranks,
    held: Checkpoint,
    guide: Sequence[Made],
    move: Callable[[State], State],
) -> list[Made]:
    run = build_run(backend, config, ranks)
    _restore(run, held)
    recorder = _Recorder(run, guide, move)
    run.observer = recorder
    run.train_mode()
    for gathered in _gathered(run):
        if run.iteration == run.updates_per_epoch:
            run.epoch, run.iteration = run.epoch + 1, 0
        update(run, recorder.begin(run, gathered))
    return recorder.made


def _gathered(run: Run) -> Iterator[list[MicroBatch]]:
    with contextlib.closing(micro_batches(run)) as batches:
        for _ in range(UPDATES):
            one = list(itertools.islice(batches, run.config.accumulate))
            if len(one) < run.config.accumulate:
                return
            yield one


def _restore(run: Run, checkpoint: Checkpoint) -> None:
    """Weights, optimizer and place of a checkpoint of the run's own framework; the schedule is walked to that place."""
    backend, config, meta = run.backend, run.config, checkpoint.meta
    backend.load_model_arrays(run.model, checkpoint.part("model"), "the checkpoint")
    if (state := checkpoint.part("optimizer")) or meta["update"]:
        backend.load_optimizer_arrays(run.model, run.optimizer, run.precision, state)
    run.epoch, run.iteration = int(meta["epoch"]), int(meta["iteration"])
    ended = run.iteration == run.updates_per_epoch
    units = int(meta["update"]) if config.lr_unit == "update" else run.epoch + ended
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch: that the optimizer made no step, which is meant
        for _ in range(units):
            run.schedule.step()


def crossing(checkpoint: Checkpoint, to: str, config: TrainConfig) -> Checkpoint:
    """A checkpoint's weights and optimizer state under the other framework's names and in its layout.

    Args:
        checkpoint: of a run in float32.
        to: ``"ref"`` or ``"paddle"``.
        config: of the run.

    Raises:
        UserError: the optimizer's state has other tensors than that optimizer has.
    """
    turn, weights = (as_paddle, as_torch)[to == "ref"], checkpoint.part("model")
    arrays = {f"model/{name}": array for name, array in turn(weights).items()}
    names = STATES[config.optimizer]
    names = {there: here for here, there in names.items()} if to == "ref" else names
    left_out = ("step", "beta1_pow_acc", "beta2_pow_acc")
    owners = []
    for name, array in checkpoint.part("optimizer").items():
        kind, _, owner = name.partition("/")
        if kind in names:
            linear = owner.endswith(".weight") and array.ndim == 2
            arrays[f"optimizer/{names[kind]}/{owner}"] = array.T if linear else array
            owners.append(owner)
        elif kind not in left_out:
            raise UserError(f"the checkpoint's optimizer state has {kind}, which {config.optimizer} in {to} has not")
    steps = int(checkpoint.meta["update"])
    for owner in dict.fromkeys(owners):
        if to == "ref" and config.optimizer in STEPS:
            arrays[f"optimizer/step/{owner}"] = np.array(steps, dtype=np.float32)
        elif to == "paddle" and config.optimizer in COUNTED:
            for kind, beta in (("beta1_pow_acc", config.beta1), ("beta2_pow_acc", config.beta2)):
                arrays[f"optimizer/{kind}/{owner}"] = np.array([beta ** (steps + 1)], dtype=np.float32)
    return Checkpoint(arrays, checkpoint.meta)


def _one_ulp(state: State, seed: int) -> State:
    """Every weight moved to a neighbouring float32, up or down."""
    random = np.random.default_rng(seed)

    def moved(array: np.ndarray) -> np.ndarray:
        return np.nextafter(array, np.where(random.random(array.shape) < 0.5, -np.inf, np.inf).astype(array.dtype))

    return {name: array if is_statistic(name) else moved(array) for name, array in state.items()}
