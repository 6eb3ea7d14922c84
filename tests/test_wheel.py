"""The wheel: built, installed where there is no checkout, and used."""

import os
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
    assert "passed" in done.stdout.lower()
