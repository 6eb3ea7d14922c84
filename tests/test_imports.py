"""Imports go one way, and each package does without the other framework."""

import ast
import subprocess
import sys

import pytest

from bench import flow
from tests.conftest import ROOT, run_command

PRODUCT = ("mobilenetv3_common", "mobilenetv3_paddle", "mobilenetv3_ref")
FRAMEWORKS = {"torch", "torchvision", "paddle", "mindspore"}
PROOF = {"alignment", "bench", "alignment_doctor", "projects"}
FORBIDDEN = {
    "mobilenetv3_common": FRAMEWORKS | PROOF | {"mobilenetv3_paddle", "mobilenetv3_ref"},
    "mobilenetv3_paddle": {"torch", "torchvision", "mobilenetv3_ref"} | PROOF,
    "mobilenetv3_ref": {"paddle", "mobilenetv3_paddle"} | PROOF,
    "alignment": {"mobilenetv3_paddle", "mobilenetv3_ref", "bench", "alignment_doctor", "projects", "mnv3", "tools", "tests"},
    "bench": {"mobilenetv3_paddle", "mobilenetv3_ref", "alignment_doctor", "projects", "mnv3", "tools", "tests"},
    # It stands beside the engine and may use it; a run's framework package it imports by the name in the config, and a framework
    # in the framework's own file alone.
    "alignment_doctor": {"mobilenetv3_paddle", "mobilenetv3_ref", "bench", "projects", "mnv3", "tools", "tests"},
    "projects": {"bench", "alignment_doctor", "mnv3", "tools", "tests"},
}
# The commands that are about the proof, or examine a run, and their folder; every other tool is part of the product.
PROVING_TOOLS = {"align.py", "audit.py", "benchmark.py", "benchmarks", "convert.py", "doctor.py", "resnet50.py"}


def source_files(*folders):
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def imports(path):
    """Every module that a file imports, at its top or inside a function, by its whole name; ``from a import b`` as ``a.b``."""
    package = ".".join(path.relative_to(ROOT).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def file_of(module):
    """The project's file that a module, or a name of one, stands in; None for another package's."""
    while module:
        path = ROOT / module.replace(".", "/")
        for candidate in (path.with_suffix(".py"), path / "__init__.py"):
            if candidate.is_file():
                return candidate
        module = module.rpartition(".")[0]
    return None


def roots(path):
    return {name.partition(".")[0] for name in imports(path)}


def circle(edges):
    """Files that import one another in a circle, in order; empty where there is none."""
    done = set()

    def walk(path, trail):
        if path in trail:
            return trail[trail.index(path) :]
        if path in done:
            return []
        for other in edges.get(path, ()):
            if found := walk(other, [*trail, path]):
                return found
        done.add(path)
        return []

    for path in edges:
        if found := walk(path, []):
            return found
    return []


def import_graph():
    files = source_files(*PRODUCT, "alignment", "bench", "alignment_doctor", "projects", "mnv3", "tools", "scripts")
    return {path: {f for f in map(file_of, imports(path)) if f not in (None, path)} for path in files}


def test_no_files_import_one_another_in_a_circle():
    graph = import_graph()
    assert len(graph) > 130 and sum(map(len, graph.values())) > 400
    assert [str(path.relative_to(ROOT)) for path in circle(graph)] == []


def test_a_circle_would_be_found():
    graph = import_graph()
    base, weights = ROOT / "alignment/frameworks/base.py", ROOT / "alignment/models/weights.py"
    assert base in graph[weights]
    assert set(circle({**graph, base: {*graph[base], weights}})) >= {base, weights}


def rooms(graph, folder):
    """What stands directly in a folder, files and folders alike, and which of them each imports."""

    def room(path):
        return path.relative_to(folder).parts[0]

    found = {}
    for path, others in graph.items():
        if path.is_relative_to(folder):
            inside = {room(other) for other in others if other.is_relative_to(folder)}
            found.setdefault(room(path), set()).update(inside - {room(path)})
    return found


def folders(graph):
    return sorted({ROOT} | {parent for path in graph for parent in path.parents if parent.is_relative_to(ROOT)})


def test_no_folders_import_one_another_in_a_circle():
    """Neither does any folder import a file beside it that imports the folder, however deep in it."""
    graph = import_graph()
    assert len(folders(graph)) > 30
    assert {str(folder.relative_to(ROOT)): found for folder in folders(graph) if (found := circle(rooms(graph, folder)))} == {}


def test_a_circle_of_folders_would_be_found():
    """Two files of the engine that import nothing of one another make a circle of their folders."""
    graph = import_graph()
    low, high = ROOT / "alignment/models/links.py", ROOT / "alignment/localize/source.py"
    assert circle(rooms({**graph, low: {*graph[low], high}}, ROOT / "alignment")) != []


def test_the_picture_of_the_engine_is_that_of_its_imports():
    assert f"```mermaid\n{flow.picture()}\n```" in (ROOT / "CONTRIBUTING.md").read_text()
    assert set(flow.rooms(ROOT / "alignment")) >= {"frameworks", "models", "localize", "comparisons", "dumps", "audit", "report"}


def test_the_picture_leaves_out_what_a_longer_way_says():
    assert flow.reduced({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": {"b"}, "b": {"c"}, "c": set()}


@pytest.mark.parametrize("package", FORBIDDEN)
def test_imports_go_one_way(package):
    files = source_files(package)
    assert files
    for path in files:
        assert not FORBIDDEN[package] & roots(path), path


IMPORTED = {"alignment": ("torch", "paddle", "mindspore"), "alignment_doctor": ("torch", "paddle", "mindspore")}


@pytest.mark.parametrize("package", IMPORTED)
def test_each_framework_is_imported_by_its_own_file_only(package):
    importing = {}
    for path in source_files(package):
        for name in FRAMEWORKS & roots(path):
            importing.setdefault(name, set()).add(path.name)
            assert path.parent.name == "frameworks", path
    assert importing == {name: {f"{name}.py"} for name in IMPORTED[package]}


def test_product_code_imports_no_proof():
    tools = [path for path in source_files("mnv3", "tools") if not PROVING_TOOLS & {path.name, path.parent.name}]
    assert len(tools) > 8
    for path in [*source_files(*PRODUCT), *tools, *source_files("test_tipc")]:
        assert not PROOF & roots(path), path


ONE_FRAMEWORK = {
    "torch": ("Torch", "torch.nn.Module", "torch.nn", "Linear(6, 5), n.ReLU(), n.Linear(5, 3)", "paddle"),
    "paddle": ("Paddle", "paddle.nn.Layer", "paddle.nn", "Linear(6, 5), n.ReLU(), n.Linear(5, 3)", "torch"),
}


@pytest.mark.parametrize("framework", ONE_FRAMEWORK)
def test_who_uses_one_framework_loads_no_other(framework, tmp_path):
    """Two models of one framework are aligned where the other one cannot be imported."""
    title, _, nn, layers, absent = ONE_FRAMEWORK[framework]
    (tmp_path / "own.py").write_text(
        f"import {nn} as n\nfrom alignment.frameworks.{framework} import {title}\n"
        "from alignment.project import ModelSpec, Project, Side\n"
        f"net = lambda: n.Sequential(n.{layers})\n"
        f"PROJECT = Project('own', Side({title}()), Side({title}()), {{'net': ModelSpec(net, net, input_shape=(6,))}})\n"
    )
    code = (
        f"import sys; sys.modules['{absent}'] = None; from alignment.cli import main; "
        f"sys.exit(main(['run', '{tmp_path}/own.py', '--result-dir', '{tmp_path}/result']))"
    )
    run = run_command("-W", "ignore", "-c", code)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "step 1 forward ... passed" in run.stdout and "step 2 data: not run" in run.stdout


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
    # What only one framework needs: torch-like BatchNorm, and deployment.
    alone = {name for name in files["mobilenetv3_paddle"] ^ files["mobilenetv3_ref"] if not name.startswith("deploy/")}
    assert alone == {"models/norm.py"}


def test_torchvision_works_beside_a_cpu_torch():
    twice = "mobilenetv3_ref.declare_missing_operators(torch)"
    code = f"import mobilenetv3_ref, torch, torchvision; {twice}; print(torchvision.__version__)"
    run = run_command("-c", code)
    assert run.returncode == 0, run.stderr
