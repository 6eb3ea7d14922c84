"""One name has one meaning in the engine, and a function is read on one screen."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

import pytest

from tests.conftest import ROOT, SLOW

FILES = sorted((ROOT / "alignment").rglob("*.py"))
SCREEN = 50  # lines


def types_of(text):
    """Names of the classes and of the aliases of types at the top of a file, without leading underscores."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            yield node.name.lstrip("_")
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            yield from (name.lstrip("_") for name in names if name.lstrip("_")[0].isupper() and not name.isupper())


def named_twice(texts):
    """Names of types that stand in more than one file -> the files."""
    found = defaultdict(set)
    for file, text in texts.items():
        for name in types_of(text):
            found[name].add(file)
    return {name: sorted(files) for name, files in found.items() if len(files) > 1}


def test_a_name_of_a_type_stands_in_one_file():
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in FILES}
    assert sum(len(list(types_of(text))) for text in texts.values()) > 150
    assert named_twice(texts) == {}


@pytest.mark.parametrize("other", ["class Pair: ...", "class _Pair(Base): ...", "Pair = dict[str, int]", "Pair = int | str"])
def test_a_second_meaning_would_be_found(other):
    assert named_twice({"a.py": "class Pair: ...", "b.py": other}) == {"Pair": ["a.py", "b.py"]}


PARTS = {
    "given.py": "Given",
    "paired.py": "Paired",
    "material.py": "SharedMaterial",
    "networks.py": "Networks",
    "context.py": "Context",
}
METHODS = 15  # of one part of what a comparison works with


def methods_of(text, name):
    """Methods and properties that a class defines, without those that Python calls."""
    (found,) = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == name]
    return [node.name for node in found.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("__")]


@pytest.mark.parametrize("file", PARTS)
def test_a_part_of_the_context_stays_small(file):
    found = methods_of((ROOT / "alignment/comparisons" / file).read_text(), PARTS[file])
    assert 5 < len(found) <= METHODS, found


def pokes_of(text):
    """Uses of ``x.__dict__``: they change an object past its class."""
    return [node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute) and node.attr == "__dict__"]


def test_nothing_is_written_past_a_class():
    assert {path.name: lines for path in FILES if (lines := pokes_of(path.read_text()))} == {}


def test_methods_and_pokes_are_counted():
    text = "class A:\n    def __init__(self): ...\n    @property\n    def one(self): ...\n    def _two(self): ..."
    assert methods_of(text, "A") == ["one", "_two"]
    text = "a.__dict__['x'] = 1\na.x = 1\na.__dict__.update(x=1)\na.__dict__.pop('x')\ndict(a)"
    assert pokes_of(text) == [1, 3, 4]


def tolerances_of(text):
    """Names at the top of a file that are a number with a negative exponent."""
    for node in ast.parse(text).body:
        simple = isinstance(node, ast.Assign) and not any(isinstance(part, ast.Call) for part in ast.walk(node))
        if simple and isinstance(node.targets[0], ast.Name):
            numbers = [n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant) and isinstance(n.value, float)]
            if any(1e-100 < number < 0.002 for number in numbers):
                yield node.targets[0].id


def test_tolerances_stand_in_one_file():
    assert {path.name for path in FILES if list(tolerances_of(path.read_text()))} == {"tolerance.py"}
    assert len(list(tolerances_of((ROOT / "alignment/tolerance.py").read_text()))) > 30


def test_a_tolerance_elsewhere_would_be_found():
    text = "RTOL = 1e-9\nSAME = 10 * 1e-6\nSIZE = 96\nSHARE = 0.5\nSGD = Config(lr=1e-5)\nSAFE = 1e-280"
    assert list(tolerances_of(text)) == ["RTOL", "SAME"]


def small_numbers(text):
    """Lines with a number that is written with a negative exponent."""
    return [number for number, line in enumerate(text.splitlines(), 1) if re.search(r"\d[.\d]*e-\d", line)]


# Of localize: values of eps that are tried, and the one that torch's clipping adds to a norm. They are settings of layers and of
# optimizers, and bound nothing; a tolerance stands in tolerance.py.
SETTINGS = {"layers.py": 1, "optimizers.py": 2, "settings.py": 1}


def test_the_search_bounds_nothing_by_a_number_of_its_own():
    found = {path.name: len(lines) for path in FILES if "localize" in path.parts and (lines := small_numbers(path.read_text()))}
    assert found == SETTINGS


def test_a_bound_of_its_own_would_be_found():
    assert small_numbers("a = 1\nif b < 1e-6:\n    c = 2.5e-3\nd = 1e6 - 3\ne = name-3") == [2, 3]


def catch_all(text):
    """Lines that catch whatever is raised, or that only let it through again."""
    everything = {"Exception", "BaseException"}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ExceptHandler):
            caught = {one.id for one in ast.walk(node.type) if isinstance(one, ast.Name)} if node.type is not None else everything
            if caught & everything:
                yield node.lineno


def test_whatever_a_stranger_raises_is_caught_in_one_file():
    assert {path.name for path in FILES if list(catch_all(path.read_text()))} == {"strangers.py"}
    used = [path for path in FILES if "with strangers(" in path.read_text()]
    assert len(used) > 25


@pytest.mark.parametrize("how", ["except Exception:", "except:", "except (OSError, BaseException) as e:", "except Exception as e:"])
def test_a_second_place_would_be_found(how):
    assert list(catch_all(f"try:\n    a()\nexcept OSError:\n    b()\n{how}\n    c()")) == [5]


def too_long(text):
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [node.name for node in functions if node.end_lineno - node.lineno >= SCREEN]


def test_a_function_is_read_on_one_screen():
    found = {str(path.relative_to(ROOT)): sorted(names) for path in FILES if (names := too_long(path.read_text()))}
    assert found == {}


def test_a_function_of_more_lines_would_be_found():
    assert too_long("def f():\n" + "    a = 1\n" * SCREEN) == ["f"]
    assert too_long("def f():\n" + "    a = 1\n" * (SCREEN - 1)) == []


def unknown_tests(names):
    """Names that are no tests, parameters apart: pytest would pass over them in silence."""
    found = []
    for name in names:
        file, _, rest = name.partition("::")
        function = rest.partition("[")[0].rpartition("::")[2]
        path = ROOT / file
        if not path.is_file() or not re.search(rf"^ *def {re.escape(function)}\(", path.read_text(encoding="utf-8"), re.M):
            found.append(name)
    return found


def test_what_make_test_leaves_to_make_test_slow_exists():
    assert len(SLOW) > 100 and unknown_tests(SLOW) == []
    gone = ["tests/test_house.py::test_gone[a-b]", "tests/test_gone.py::test_a"]
    assert unknown_tests([*gone, "tests/test_house.py::test_what_make_test_leaves_to_make_test_slow_exists[a]"]) == gone
