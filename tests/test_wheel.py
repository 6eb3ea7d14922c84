"""The wheel: built, installed where there is no checkout, and used."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from mobilenetv3_common import __version__
from tests.conftest import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy of the checkout's tracked files."""
    folder = tmp_path_factory.mktemp("wheel")
    names = subprocess.run(["git", "ls-files", "-z", "--cached"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, names.split("\0")):
        left_out = name.startswith(("lite_data/", "docs/", "tests/", "result/")) and not name.startswith("docs/checks/")
        if (ROOT / name).is_file() and not left_out:
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "source" / name).write_bytes((ROOT / name).read_bytes())
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-q",
        "-w",
        str(folder),
        str(folder / "source"),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Runs a console script of an environment that has the wheel and the frameworks, and not the checkout."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", "-q", str(wheel)]
    subprocess.run(pip, check=True, capture_output=True, timeout=300)
    site = Path(
        subprocess.check_output([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True).strip()
    )
    packages = [p for p in sys.path if p.endswith("site-packages") and Path(p).is_dir()] or [sysconfig.get_path("purelib")]
    (site / "frameworks.pth").write_text(
        "\n".join(packages) + "\n"
    )  # their own .pth files, the checkout's among them, are not read

    def run(command, *arguments, status=0):
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        program = [python, *arguments] if command == "python" else [folder / "venv" / "bin" / command, *arguments]
        done = subprocess.run(program, cwd=folder, capture_output=True, text=True, timeout=600, env=environment)
        assert done.returncode == status, done.stdout[-3000:] + done.stderr[-3000:]
        return done

    return run


def test_it_holds_recipes_types_and_no_generic_name(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"alignment", "alignment_doctor", "mnv3", "mobilenetv3_common", "mobilenetv3_paddle", "mobilenetv3_ref"}
    for package in tops:
        assert f"{package}/py.typed" in names
    assert {f"mobilenetv3_common/configs/{path.name}" for path in (ROOT / "configs").glob("*.yaml")} <= set(names)
    assert "mnv3/mobilenetv3/project.py" in names
    assert {f"alignment_doctor/pages/{path.name}" for path in (ROOT / "docs" / "checks").glob("*.md")} <= set(names)


def test_the_code_is_the_wheels(installed):
    where = installed(
        "python", "-c", "import alignment, mnv3, mobilenetv3_common as c; print(alignment.__file__, mnv3.__file__, c.__file__)"
    )
    assert str(ROOT) not in where.stdout and where.stdout.count("site-packages") == 3
    for command in ("mnv3", "alignment"):
        assert installed(command, "--version").stdout == f"{command} {__version__}\n"


def test_train_and_predict(installed):
    data = str(ROOT / "lite_data")
    short = ("--epochs", "1", "--batch-size", "16", "--min-updates", "1", "--workers", "0", "--output-dir", "run")
    done = installed("mnv3", "train", "--config", "configs/lite.yaml", "--data-path", data, *short)
    assert "next: mnv3 predict --img-path " in done.stdout
    picture = sorted((ROOT / "lite_data" / "val").glob("*/*.*"))[0]
    assert " % " in installed("mnv3", "predict", "--img-path", str(picture), "--pretrained", "run/best.safetensors").stdout
    assert "no folder" not in installed("mnv3", "align", "--help").stdout
    assert "mnv3 export" in installed("mnv3", "infer", "--model-dir", "run", "--img-path", str(picture), status=2).stderr


def test_audit(installed):
    models = ("--port", "mobilenetv3_paddle.models:mobilenet_v3_small", "--reference", "torchvision.models:mobilenet_v3_small")
    done = installed("alignment", "audit", *models, "--input", "2x3x64x64", "--report", "report.md")
    assert "PASS: no mistake found in the port" in done.stdout


SUITE = """
from torch import nn as right

import pytest
from paddle import nn


def sound():
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))


def wrong():
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(approximate=True), nn.Linear(8, 2))


def reference():
    return right.Sequential(right.Linear(4, 8), right.GELU(), right.Linear(8, 2))


@pytest.mark.aligned(inputs="3x4")
@pytest.mark.parametrize("port", [sound, wrong])
def test_the_port(aligned, port):
    aligned(port, reference)
"""


def test_its_pytest_plugin_in_a_suite_elsewhere(installed, tmp_path):
    """Found by its entry point, with no configuration: the sound port passes; the other fails, and its report is kept."""
    (tmp_path / "test_port.py").write_text(SUITE)
    kept = tmp_path / "kept"
    suite = ("-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "test_port.py"), "--alignment-artifacts", str(kept))
    done = installed("python", *suite, status=1)
    assert "1 failed, 1 passed" in done.stdout and "activation" in done.stdout, done.stdout
    (report,) = kept.glob("*/report.html")
    assert "activation" in report.read_text() and str(report.parent) in done.stdout


def test_both_notebooks_run_without_the_checkout(installed, tmp_path):
    for name in ("scripts/run_notebooks.py", "docs/notebooks", "docs/examples", "lite_data"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy2)(ROOT / name, tmp_path / name)
    done = installed(
        "python", str(tmp_path / "scripts" / "run_notebooks.py")
    )  # paths of the installed pages differ from the stored ones
    assert done.stdout.count(".ipynb: ") == 2, done.stdout + done.stderr
    assert "problems found" in (tmp_path / "docs" / "notebooks" / "examine_a_run.ipynb").read_text()
