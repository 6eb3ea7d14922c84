"""Shared fixtures: pictures, weights made once, and a runner for commands."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two test processes share two cores

import importlib.util
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from alignment import frameworks

pytest.register_assert_rewrite("tests.running")

if importlib.util.find_spec("mindspore") is not None:
    frameworks.framework("mindspore")  # it cannot be loaded after Paddle

import mobilenetv3_ref  # noqa: F401  (before anything of torchvision)
from alignment.comparisons.context import Context
from alignment.models.calibration import calibrated_state
from alignment.project import Project
from mobilenetv3_common.weights import write_state
from projects.mobilenetv3.project import PROJECT

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background: commands under test would ignore Ctrl-C, too
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # by nohup: services under test would ignore a hang-up, too
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

ROOT = Path(__file__).resolve().parents[1]
LITE_DATA = ROOT / "lite_data"
SMALL, LARGE = PROJECT.models


# A module goes to one worker, so that its fixtures are made once. These take longest: first, so that none ends alone.
LONGEST = (
    "test_documented_commands", "test_train_ranks", "test_rank_stops", "test_ranks", "test_train_resume", "test_align_command",
    "test_witnesses", "test_edits", "test_breakages_2_data", "test_doctor_check", "test_train_command", "test_breakages_5_backward",
    "test_large_data", "test_breakages_1_forward", "test_loader_workers", "test_low_precision", "test_worked_examples",
    "test_breakages_4_loss", "test_tipc", "test_breakages_5_schedules", "test_breakages_6_train",
)  # fmt: skip


def _listed(name: str) -> set[str]:
    lines = (ROOT / "tests" / name).read_text(encoding="utf-8").splitlines()
    return {line for line in lines if not line.startswith("#")}


SLOW, WEEKLY = _listed("slow_tests.txt"), _listed("weekly_tests.txt")


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is marked
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid in SLOW | WEEKLY:
            item.add_marker(pytest.mark.slow)
        if item.nodeid in WEEKLY:
            item.add_marker(pytest.mark.weekly)
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


@pytest.fixture(scope="session")
def small_state() -> dict[str, np.ndarray]:
    """Calibrated weights of the small model at width 0.5, pictures of 96 pixels: quick, and every parameter matters."""
    return calibrated_state(PROJECT, SMALL, size=96, width_mult=0.5)


@pytest.fixture(scope="session")
def exported(small_state, tmp_path_factory) -> Path:
    """Those weights as ``tools/export_model.py`` leaves them: what the tests of the service serve."""
    from mobilenetv3_paddle.deploy.export import export
    from mobilenetv3_paddle.deploy.trained import load_trained

    folder = tmp_path_factory.mktemp("served")
    write_state(folder / "small.safetensors", small_state)
    export(load_trained(folder / "small.safetensors", width_mult=0.5), folder / "e")
    return folder / "e"


@pytest.fixture
def service(exported, tmp_path):
    """Starts services; ends those that a test has not ended."""
    from tests.running import Running

    begun = []

    def start(*flags, **options):
        begun.append(Running(exported, tmp_path, *flags, **options))
        return begun[-1]

    yield start
    for one in begun:
        if one.process.poll() is None:
            assert one.end() < 32


@pytest.fixture(scope="session")
def context(small_state):
    """Makes a context around a project, sound or broken: the small model at width 0.5."""

    def make(project: Project = PROJECT) -> Context:
        return Context(project, given_state=small_state, options={"width_mult": 0.5})

    return make


@pytest.fixture(scope="session")
def same_models(small_state):
    """As ``context``; what is computed once of the models is shared by the projects whose models are right."""
    given = {"given_state": small_state, "options": {"width_mult": 0.5}}
    sound = Context(PROJECT, **given)

    def make(project: Project = PROJECT) -> Context:
        return sound.but(project=project) if project.models == PROJECT.models else Context(project, **given)

    return make


@pytest.fixture
def lite_copy(tmp_path: Path) -> Path:
    """A copy of lite_data that a test may damage."""
    return Path(shutil.copytree(LITE_DATA, tmp_path / "lite"))


@pytest.fixture
def lite_folders(lite_copy: Path) -> Path:
    """The same in folder layout alone, without list files."""
    for name in ("train_list.txt", "val_list.txt"):
        (lite_copy / name).unlink()
    return lite_copy


@pytest.fixture
def own_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary folders of this process and of its children: one of the test's own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def mode_of(flags) -> list[str]:
    """Flags of an audit that is about evaluation mode, unless ``--training`` is among those that it has."""
    return [] if "--training" in flags else ["--eval-only"]


def run_command(*args: str | Path, timeout: float = 300, **env: str) -> subprocess.CompletedProcess:
    """Run a Python command from the project's folder."""
    return subprocess.run(
        [sys.executable, *map(str, args)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **env},
        check=False,
    )


def relative_l2(a: np.ndarray, b: np.ndarray) -> float:
    """L2 norm of the difference over that of ``b``, in float64."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-300))
