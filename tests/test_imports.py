"""Imports go one way, and each package does without the other framework."""

import ast
import subprocess
import sys

import pytest

from tests.conftest import ROOT, run_command

FORBIDDEN = {
    "mobilenetv3_common": {"torch", "torchvision", "paddle", "alignment", "mobilenetv3_paddle", "mobilenetv3_ref"},
    "mobilenetv3_paddle": {"torch", "torchvision", "alignment", "mobilenetv3_ref"},
    "mobilenetv3_ref": {"paddle", "alignment", "mobilenetv3_paddle"},
}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


@pytest.mark.parametrize("package", FORBIDDEN)
def test_imports_go_one_way(package):
    files = list((ROOT / package).rglob("*.py"))
    assert files
    for path in files:
        assert not FORBIDDEN[package] & set(imported(path)), path


def test_product_tools_do_without_the_proof():
    importing = {path.name for path in (ROOT / "tools").glob("*.py") if "alignment" in imported(path)}
    assert importing <= {"align.py", "benchmark.py", "convert_weights.py"}


@pytest.mark.parametrize(("package", "absent"), [("mobilenetv3_paddle", "torch"), ("mobilenetv3_ref", "paddle")])
def test_a_package_works_without_the_other_framework(package, absent):
    parts = ", ".join(f"{package}.{part}" for part in ("models", "data", "metric", "loss", "train"))
    code = f"import sys; sys.modules['{absent}'] = None; import {parts}; {package}.models.mobilenet_v3_small()"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_the_packages_mirror_each_other():
    files = {
        package: {str(p.relative_to(ROOT / package)) for p in (ROOT / package).rglob("*.py")}
        for package in ("mobilenetv3_paddle", "mobilenetv3_ref")
    }
    # What only one framework needs: torch-like BatchNorm and deployment here, torchvision beside a CPU torch there.
    alone = {name for name in files["mobilenetv3_paddle"] ^ files["mobilenetv3_ref"] if not name.startswith("deploy/")}
    assert alone == {"models/norm.py", "_torchvision.py"}


def test_torchvision_works_beside_a_cpu_torch():
    code = "import mobilenetv3_ref, torchvision; mobilenetv3_ref.declare_missing_operators(); print(torchvision.__version__)"
    run = run_command("-c", code)
    assert run.returncode == 0, run.stderr
