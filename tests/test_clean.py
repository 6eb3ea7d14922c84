"""``tools/clean.py``: the final repository of the guide, without the reference, logs and checks; it trains."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mobilenetv3_common.errors import UserError
from tests.conftest import ROOT, run_command
from tools.clean import main, write_final

LEFT_OUT = ("mobilenetv3_ref", "alignment", "alignment_doctor", "bench", "projects", "doctor", "tests")


@pytest.fixture(scope="module")
def final(tmp_path_factory) -> Path:
    """The final repository, and beside it packages that say that they are not there, whatever else is installed."""
    folder = tmp_path_factory.mktemp("clean")
    write_final(folder / "final")
    for name in LEFT_OUT:
        (folder / "absent" / name).mkdir(parents=True)
        (folder / "absent" / name / "__init__.py").write_text(f"raise ModuleNotFoundError('none', name={name!r})\n")
    return folder / "final"


def run(final: Path, *words: str) -> subprocess.CompletedProcess:
    env = {**os.environ, "PYTHONPATH": f"{final}{os.pathsep}{final.parent / 'absent'}"}
    return subprocess.run([sys.executable, *words], cwd=final, env=env, capture_output=True, text=True, timeout=600, check=False)


def test_it_holds_the_reproduction_and_neither_reference_nor_logs_nor_checks(final):
    assert not [name for name in (*LEFT_OUT, "result", "docs") if (final / name).exists()]
    assert (final / "mobilenetv3_paddle/models/mobilenetv3.py").is_file() and (final / "lite_data/val").is_dir()
    assert not [path for path in final.rglob("*") if path.name in ("__pycache__", "output") or path.suffix in (".npy", ".log")]
    assert (final / "tools/train.py").read_text() == (ROOT / "tools/train.py").read_text()
    for path in final.rglob("*.py"):  # nothing that stands at the beginning of a file is missing
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else names
            assert not {name.partition(".")[0] for name in names} & set(LEFT_OUT), path
    names = [line.split()[1] for line in (final / "README.md").read_text().splitlines() if line.startswith(("python ", "bash "))]
    assert len(names) > 5 and all((final / name).is_file() for name in names)


def test_it_writes_over_nothing(tmp_path, capsys):
    (tmp_path / "mine").write_text("precious")
    assert main(["--output-dir", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err and [path.name for path in tmp_path.iterdir()] == ["mine"]
    with pytest.raises(UserError, match="lies inside of what is copied"):
        write_final(ROOT / "configs" / "final")
    assert not (ROOT / "configs/final").exists()
    assert run_command("tools/clean.py").returncode == 2


def test_what_was_left_out_is_one_line_there(final):
    base = ("tools/train.py", "--config", "configs/lite.yaml", "--data-path", "lite_data")
    for flag, words in (
        ("--framework=ref", "this repository has no mobilenetv3_ref"),
        ("--watch", "this repository has no doctor"),
    ):
        done = run(final, *base, flag)
        assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.slow
def test_it_trains_evaluates_predicts_and_exports(final):
    done = run(
        final, "tools/train.py", "--config", "configs/lite.yaml", "--data-path", "lite_data", "--epochs", "1", "--workers", "0"
    )
    assert done.returncode == 0, done.stderr
    code = "import mobilenetv3_common, mobilenetv3_paddle; print(mobilenetv3_common.__file__, mobilenetv3_paddle.__file__)"
    assert run(final, "-c", code).stdout.count(str(final)) == 2, "its own packages"
    weights = next((final / "output").rglob("best.safetensors"))
    for words in (
        ("tools/eval.py", "--config", "configs/lite.yaml", "--data-path", "lite_data", "--pretrained", str(weights)),
        ("tools/predict.py", "--img-path", "lite_data/val/cat", "--pretrained", str(weights)),
        ("tools/export_model.py", "--pretrained", str(weights), "--output-dir", "exported"),
        ("tools/infer.py", "--model-dir", "exported", "--img-path", "lite_data/val/cat"),
    ):
        done = run(final, *words)
        assert done.returncode == 0, (words, done.stderr)
