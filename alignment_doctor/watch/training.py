"""``tools/train.py --watch``: a ``Watch`` that knows from the config what the run means to do."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

from alignment_doctor.watch.look import Look
from alignment_doctor.watch.watch import Watch
from mobilenetv3_common.counted import counted
from mobilenetv3_common.observer import Observer
from mobilenetv3_common.rank_statistics import merge_statistics
from mobilenetv3_common.run import Run
from mobilenetv3_common.train_log import EVENTS, TrainLog


class Watching(Observer):
    """Watches a run of tools/train.py; events go to its log, its scalars, and ``watch.jsonl`` in its folder."""

    watch: Watch
    log: TrainLog

    @contextlib.contextmanager
    def observing(self, run: Run, log: TrainLog) -> Iterator[None]:
        config, self.log = run.config, log
        self.watch = Watch(
            run.model,
            run.optimizer,
            log.folder / EVENTS if log.folder is not None else None,
            frozen=frozen(run),
            rates=_Rates(run),
            scaler=getattr(run.precision, "scaler", None) if run.precision.scales else None,
            accumulate=config.accumulate,
            update=run.update,
            ranks=run.ranks,
            shared_statistics=config.sync_bn,
            owners={id(parameter): master for parameter, master in getattr(run.precision, "masters", ())},
            say=log.line,
        )
        try:
            yield
        finally:
            self.watch.close()
        told, first = len(self.watch.told), self.watch.seen.settings.begun_at + 1
        log.line(f"watched updates {first} to {run.update}: {counted(told, 'event')}")

    def before_update(self, run: Run, loss: Any) -> None:
        if run.update != self.watch.update:
            self.watch.went_back(run.update)
        self.watch.before_update(loss)

    def after_update(self, run: Run) -> None:
        looks = len(self.watch.seen.looks)
        last = self.watch.seen.looks[-1] if looks else None
        self.watch.after_update()
        if self.watch.seen.looks and (look := self.watch.seen.looks[-1]) is not last:
            self.log.scalars("watch", look.update, {**figures(look), "events": float(len(self.watch.told))})

    @contextlib.contextmanager
    def evaluating(self, run: Run) -> Iterator[None]:
        merge_statistics(run)  # as the evaluation does first: a change that is meant
        with self.watch.evaluating():
            yield


def frozen(run: Run) -> list[str]:
    """Patterns of what the run's config freezes: every BatchNorm with ``freeze_bn``."""
    if not run.config.freeze_bn:
        return []
    names = run.backend.model_arrays(run.model)
    return [f"{name.rpartition('.')[0]}*" for name in names if name.endswith(("running_mean", "_mean"))]


def figures(look: Look) -> dict[str, float]:
    """What is drawn over the run."""
    norm = sum(value**2 for value in look.gradients.values()) ** 0.5
    shown = {"gradient_norm": norm, "memory_mib": look.memory}
    return shown | ({"loss_scale": look.scale} if look.scale is not None else {})


class _Rates:
    """The rate of each update, by a schedule of its own that is stepped as many times as updates or epochs say."""

    def __init__(self, run: Run) -> None:
        config, backend = run.config, run.backend
        pictures = config.batch_size * run.ranks.world_size * config.accumulate
        self._run = run
        self._optimizer = backend.build_optimizer(run.model, config.optimizer_config(pictures))
        backend.scale_rates(self._optimizer, run.rate_factor)  # Paddle keeps a factor on the parameter, where both find it
        self._schedule = backend.build_schedule(self._optimizer, config.schedule_config(run.updates_per_epoch))
        self._units = 0

    def __call__(self, update: int) -> float | None:
        done = update - 1
        units = done if self._run.config.lr_unit == "update" else done // self._run.updates_per_epoch
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch: that this optimizer makes no step, which is meant
            while self._units < units:
                self._schedule.step()
                self._units += 1
        return self._run.backend.learning_rate(self._optimizer) if self._units == units else None
