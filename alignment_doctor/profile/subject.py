"""A few updates of a run, measured."""

from __future__ import annotations

import contextlib
import cProfile
import itertools
import pstats
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from alignment.frameworks.base import leaves
from alignment_doctor.frameworks import probe_of
from alignment_doctor.frameworks.base import Fullness
from alignment_doctor.profile.ranks import of_every_rank
from alignment_doctor.profile.trace import Operator, operators
from alignment_doctor.watch.kept import HELD, Marks
from alignment_doctor.watch.watch import resident_mib
from mobilenetv3_common.observer import Observer
from mobilenetv3_common.parts import Ranks
from mobilenetv3_common.run import Run, build_run
from mobilenetv3_common.run_told import lowered_batch
from mobilenetv3_common.sampling import SampleKey
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.training import micro_batches, update
from mobilenetv3_common.training_backend import Builder, TrainingBackend

PHASES = ("data wait", "forward", "backward", "update", "iteration gap")
WARM = 2  # updates before anything is measured
TRACED = 2  # updates under the profiler, which slows them
LIBRARIES = {"PIL", "torchvision", "cv2"}
SAMPLES = 16  # pictures whose transforms are measured


@dataclass
class Profile:
    """What was measured. Times are seconds an update, but for ``transforms``.

    Attributes:
        config: of the run.
        phases: phase -> its time in each measured update; their sum is the whole update.
        operators: of ``TRACED`` updates, by the framework's own profiler.
        transforms: step of preparing a picture -> seconds a picture; a step may contain others.
        picture: seconds a picture, in all, in one process.
        memory: of the process and the GPU after each measured update, MiB.
        held: graphs of earlier updates that are still alive at the end.
        processors: of this machine.
        ready: batches that the loader's workers had ready when each measured update asked for its own; empty without workers.
        room: for how many they have room.
        ranks: seconds of waiting for data and of the forward pass, of every rank.
        lowered: that the batch was fitted to the pictures, in words; empty where it was not.
    """

    config: TrainConfig
    phases: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in PHASES})
    operators: list[Operator] = field(default_factory=list)
    transforms: dict[str, float] = field(default_factory=dict)
    picture: float = 0.0
    memory: list[float] = field(default_factory=list)
    held: int = 0
    processors: int = 1
    ready: list[int] = field(default_factory=list)
    room: int = 0
    ranks: list[float] = field(default_factory=list)
    lowered: str = ""

    def typical(self, phase: str) -> float:
        """The median of a phase."""
        return float(np.median(self.phases[phase]))

    @property
    def whole(self) -> float:
        """Seconds of a typical update."""
        return sum(self.typical(phase) for phase in PHASES)

    def share(self, phase: str) -> float:
        """Of a phase in the whole, 0..1."""
        return self.typical(phase) / self.whole


class _Clock(Observer):
    """Notes when the parts of an update end."""

    def __init__(self, model: Any) -> None:
        self.engine, self.probe = probe_of(model)
        self.forward = self.backward_done = self.update_done = self._began = 0.0
        self.graphs, self.marked = Marks(), 0
        self._unmarked = True
        self._handles = [self.engine.hook(model, before=self._begins), self.engine.hook(model, after=self._ends)]

    def now(self) -> float:
        self.probe.wait()
        return time.perf_counter()

    def _begins(self, _module: Any, _args: tuple) -> None:
        self._began = self.now()

    def _ends(self, _module: Any, _args: tuple, _kwargs: dict, output: Any) -> None:
        self.forward += self.now() - self._began
        if not self._unmarked:
            return
        for tensor in itertools.islice(filter(self.engine.trainable, leaves(output, self.engine.tensor_type)), 1):
            self.graphs.put(tensor)
            self._unmarked, self.marked = False, self.marked + 1

    def all_held(self) -> bool:
        """Whether the graph of no update has gone yet."""
        return self.graphs.held() >= self.marked - 1

    def before_update(self, run: Run, loss: Any) -> None:
        self.backward_done = self.now()

    def after_update(self, run: Run) -> None:
        self.update_done = self.now()
        self._unmarked = True

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()


def measure(
    backend: TrainingBackend,
    config: TrainConfig,
    ranks: Ranks,
    updates: int,
    trace: Path | None = None,
    builder: Builder | None = None,
) -> Profile:
    """Put a run together and measure its updates. Nothing of it is kept.

    Args:
        backend: what computes.
        config: of the run; it begins anew, whatever ``resume`` says.
        ranks: this process, alone or among others, all of which measure.
        updates: to be measured, at least 2.
        trace: where the Chrome trace is written; nowhere where None.
        builder: makes the network for a number of classes; that of ``config.model`` where None.

    Raises:
        UserError: the data or the weights cannot be used.
    """
    import joblib

    config = replace(config, resume=None, epochs=max(config.epochs, 10_000), warmup_epochs=0)
    run = build_run(backend, config, ranks, builder)
    profile = Profile(run.config, processors=joblib.cpu_count(), lowered=lowered_batch(run, config))
    config = run.config  # its batch is fitted to the pictures
    clock = _Clock(run.model)
    run.observer = clock
    run.train_mode()
    with contextlib.closing(micro_batches(run)) as batches:
        with clock.probe.loader() as fullness:
            for number in range(WARM + updates):
                _one(run, batches, clock, fullness, profile if number >= WARM else None)
            while clock.marked <= HELD and clock.all_held():  # a sum over a few updates lets go of them in the end
                _one(run, batches, clock, fullness, None)
        profile.held = clock.graphs.held()
        gathered = [[next(batches) for _ in range(config.accumulate)] for _ in range(TRACED)]
    clock.remove()
    profile.ranks = of_every_rank(ranks, profile.typical("data wait") + profile.typical("forward"))
    run.observer = Observer()
    with tempfile.TemporaryDirectory() as folder:
        path = trace or Path(folder) / "trace.json"
        with clock.probe.profiled(path):
            for one in gathered:
                _update(run, one)
        profile.operators = operators(path)
    _transforms(run, profile)
    return profile


def _one(run: Run, batches: Iterator, clock: _Clock, fullness: Fullness, profile: Profile | None) -> None:
    queue = fullness()
    start = clock.now()
    gathered = [next(batches) for _ in range(run.config.accumulate)]
    ready, clock.forward = clock.now(), 0.0
    _update(run, gathered)
    end = clock.now()
    if profile is None:
        return
    backward = clock.backward_done - ready - clock.forward
    parts = (ready - start, clock.forward, backward, clock.update_done - clock.backward_done, end - clock.update_done)
    for name, seconds in zip(PHASES, parts, strict=True):
        profile.phases[name].append(seconds)
    if queue is not None:
        profile.ready.append(queue[0])
        profile.room = queue[1]
    profile.memory.append(resident_mib() + clock.probe.device_mib())


def _update(run: Run, gathered: list) -> None:
    if run.iteration == run.updates_per_epoch:
        run.epoch, run.iteration = run.epoch + 1, 0
    update(run, gathered)


def _transforms(run: Run, profile: Profile) -> None:
    """Seconds of every function that prepares pictures, on some of them, in this process."""
    config, backend = run.config, run.backend
    dataset: Any = backend.ImageDataset(
        run.train_index, config.train_preset, config.seed, config.image_backend, config.on_bad_image
    )
    count = min(SAMPLES, len(dataset))
    begun = time.perf_counter()
    for number in range(count):
        dataset[SampleKey(0, number, number)]
    profile.picture = (time.perf_counter() - begun) / count
    profiler = cProfile.Profile()
    profiler.enable()
    for number in range(count):
        dataset[SampleKey(0, number, number)]
    profiler.disable()
    stats: Any = pstats.Stats(profiler)
    for (file, _line, name), (_calls, _all, _own, together, _callers) in stats.stats.items():
        path = Path(file)
        own = path.parts[-2:-1] == ("data",) or path.name in ("image.py", "sampling.py")
        if (own or LIBRARIES & set(path.parts)) and not name.startswith(("_", "<")):
            label = f"{path.stem}.{name}"
            profile.transforms[label] = profile.transforms.get(label, 0.0) + together / count
