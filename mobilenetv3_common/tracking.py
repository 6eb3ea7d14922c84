"""Experiment trackers: Weights & Biases and MLflow, by their own clients, where a run asks for them and they are installed."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open

TRACKED = "tracking.json"  # in a run's folder: under which names the trackers know it
PROJECT = "mobilenetv3"


class Tracker(Protocol):
    """A run as a tracker knows it."""

    name: str

    def log(self, figures: Mapping[str, float], update: int) -> None:
        """Points of several curves, of one update."""

    def close(self, failed: bool) -> None:
        """The run has ended, or stopped; ``failed`` where an error ended it."""


class WandB:
    """A run of Weights & Biases: its files are in the run's folder; ``WANDB_MODE=offline`` sends nothing."""

    name = "wandb"

    def __init__(self, folder: Path, known: str | None, settings: Mapping[str, Any]) -> None:
        import wandb

        self.id = known or secrets.token_hex(4)
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=self.id,
            resume="allow",
            name=folder.name,
            dir=str(folder),
            config=dict(settings),
            settings=wandb.Settings(console="off", silent=True),
        )
        self.run.define_metric("update")
        self.run.define_metric("*", step_metric="update")  # its own step only grows, which a resumed run's does not

    def log(self, figures: Mapping[str, float], update: int) -> None:
        self.run.log({**figures, "update": update})

    def close(self, failed: bool) -> None:
        self.run.finish(exit_code=int(failed))


class MLflow:
    """A run of MLflow, at ``MLFLOW_TRACKING_URI`` or, where that is not set, in the run's folder."""

    name = "mlflow"

    def __init__(self, folder: Path, known: str | None, settings: Mapping[str, Any]) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self._metric = Metric
        self.client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.resolve()}/mlflow.db")
        if known is not None:
            self.id = known
            self.client.update_run(known, status="RUNNING")
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self.client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else self.client.create_experiment(name, f"{folder.resolve().as_uri()}/mlflow")
        self.id = self.client.create_run(experiment, run_name=folder.name).info.run_id
        self.client.log_batch(self.id, params=[Param(key, str(value)[:500]) for key, value in settings.items()])

    def log(self, figures: Mapping[str, float], update: int) -> None:
        now = int(time.time() * 1000)
        self.client.log_batch(self.id, metrics=[self._metric(name, float(value), now, update) for name, value in figures.items()])

    def close(self, failed: bool) -> None:
        self.client.set_terminated(self.id, "FAILED" if failed else "FINISHED")


TRACKERS: dict[str, type[WandB | MLflow]] = {"wandb": WandB, "mlflow": MLflow}


def trackers_of(names: str | None) -> tuple[str, ...]:
    """The trackers in ``"wandb,mlflow"``, each once.

    Raises:
        UserError: one is not known.
    """
    found = tuple(dict.fromkeys(name.strip() for name in (names or "").split(",") if name.strip()))
    unknown = [name for name in found if name not in TRACKERS]
    if unknown or (names is not None and not found):
        raise UserError(f"--log-to must be one or more of {', '.join(TRACKERS)} with commas between, found {names}")
    return found


def require_installed(names: tuple[str, ...]) -> None:
    """Refuse a tracker whose package is missing, before anything else is done.

    Raises:
        UserError: naming the package.
    """
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise UserError(f"--log-to {name}: the package is not installed: pip install {name}, or leave it out")


def open_trackers(names: tuple[str, ...], folder: Path, settings: Mapping[str, Any]) -> list[Tracker]:
    """The trackers of a run: a new run in each, or that of the run which goes on in this folder.

    Args:
        names: of ``TRACKERS``.
        folder: of the run; keeps the runs' names in ``tracking.json``.
        settings: of the run, shown beside its curves.

    Raises:
        UserError: a tracker refuses, e.g. its server does not answer, or wants a login.
    """
    path = folder / TRACKED
    known = _known(path) if names else {}
    opened: list[Tracker] = []
    for name in names:
        try:
            tracker = TRACKERS[name](folder, known.get(name), settings)
        except Exception as error:  # each package has errors of its own
            for other in opened:
                other.close(failed=True)
            raise UserError(
                f"--log-to {name}: {' '.join(str(error).split())[:300]}: set it up as its documentation says, or leave it out"
            ) from error
        known[name] = tracker.id
        opened.append(tracker)
    if opened:
        with atomic_open(path, "w") as file:
            file.write(json.dumps(known))
    return opened


def _known(path: Path) -> dict[str, str]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(name): str(run) for name, run in found.items()} if isinstance(found, dict) else {}


def failing() -> bool:
    """Whether an error is on its way through the caller."""
    return sys.exc_info()[0] is not None
