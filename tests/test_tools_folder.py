"""The commands in tools/ run the code beside them, wherever another copy of the project is installed."""

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

PACKAGES = ("alignment", "alignment_doctor", "mnv3", "mobilenetv3_common", "mobilenetv3_paddle", "mobilenetv3_ref", "projects")
TOOLS = sorted((ROOT / "tools").glob("*.py"))


@pytest.mark.parametrize("tool", TOOLS, ids=lambda path: path.name)
def test_its_folder_is_searched_before_any_package_of_the_project_is_imported(tool):
    lines = tool.read_text(encoding="utf-8").splitlines()
    searched = next(
        number for number, line in enumerate(lines) if line.startswith(("sys.path.insert(0, str(Path(", "sys.path[0] = "))
    )
    imported = next(
        n for n, line in enumerate(lines) if line.startswith(tuple(f"{w} {p}" for w in ("import", "from") for p in PACKAGES))
    )
    assert searched < imported


def test_another_copy_that_is_installed_is_not_what_runs(tmp_path):
    (tmp_path / "mnv3").mkdir()
    (tmp_path / "mnv3" / "__init__.py").write_text("raise SystemExit('another copy')\n")
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "align.py", "--help"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "--steps" in done.stdout, done.stderr
    other = subprocess.run(
        [sys.executable, "-m", "mnv3", "--help"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert "another copy" in other.stderr  # it would be, without the folder in front
