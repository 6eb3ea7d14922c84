"""Changes of a copy are tried in children that import nothing anew: what takes effect, what does not, and what is measured."""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from alignment.compare import Quantity
from alignment.comparisons import run_step
from alignment.comparisons.comparison import compare
from alignment.comparisons.earlier import Earlier
from alignment.comparisons.result import Enough, StepResult
from alignment.faults import injected
from alignment.witness import Told, Witness
from bench.swapped import LiveFunctions
from bench.trials import PASSED, _child, _import
from projects.mobilenetv3.project import PROJECT

SOURCE = """
import functools

FACTOR = 2


def table(n):
    return [n] * 3


ROWS = table(4)


@functools.lru_cache
def kept(x):
    return x + 1


class Layer:
    width: int = 8

    def forward(self, x, by=1):
        inner = lambda y: y * FACTOR
        return inner(x) + by


def outer():
    def inside():
        return 1
    return inside


HELD = outer()
"""


@pytest.fixture
def module(tmp_path):
    file = tmp_path / "swapped_port.py"
    file.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("swapped_port", file)
    found = importlib.util.module_from_spec(spec)
    sys.modules["swapped_port"] = found
    spec.loader.exec_module(found)
    yield found
    del sys.modules["swapped_port"]


def taken(module, old: str, new: str) -> set[str] | None:
    file = Path(module.__file__)
    assert SOURCE.count(old) == 1
    return LiveFunctions([file]).take({file: SOURCE.replace(old, new)})


def test_a_body_takes_effect_in_the_functions_that_are_held_already(module):
    layer, forward = module.Layer(), module.Layer.forward
    assert taken(module, "y * FACTOR", "y * FACTOR * 5") == {"forward"}
    assert layer.forward(3) == 31 and forward(layer, 1) == 11


def test_lines_that_move_change_nothing_else(module):
    assert taken(module, "    return x + 1\n", "    x = x\n    return x + 2\n") == {"kept"}
    assert module.kept(1) == 3 and module.Layer().forward(1) == 3 and module.ROWS == [4, 4, 4]


def test_what_a_function_kept_is_forgotten(module):
    assert module.kept(1) == 2
    taken(module, "return x + 1", "return x + 10")
    assert module.kept(1) == 11


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("FACTOR = 2", "FACTOR = 3"),
        ("by=1", "by=2"),
        ("width: int = 8", "width: int = 9"),
        ("@functools.lru_cache\n", ""),
        ("[n] * 3", "[n] * 4"),  # ROWS is made while the module is imported
        ("return 1", "return 2"),  # so is the function within ``outer``
        ("def table(n)", "def other(n)"),
    ],
)
def test_what_an_import_alone_would_change_is_left_to_one(module, old, new):
    before = module.Layer().forward(1), module.kept(1), module.HELD()
    assert taken(module, old, new) is None
    assert (module.Layer().forward(1), module.kept(1), module.HELD()) == before


@pytest.mark.parametrize(("work", "passes"), [(lambda: True, True), (lambda: False, False), (lambda: 1 / 0, False)])
def test_a_child_says_whether_its_work_succeeds(work, passes):
    _, status = os.waitpid(_child(10.0, work), 0)
    assert (status == PASSED) is passes


def test_a_child_without_an_end_is_stopped_by_its_use_of_a_processor():
    def forever():
        while True:
            pass

    _, status = os.waitpid(_child(0.0, forever), 0)
    assert os.WIFSIGNALED(status)


class Counted:
    """A comparison that counts how often each side is measured; the port gives ``wrong`` more than the reference."""

    def __init__(self, name: str, wrong: float, asked: list[str]) -> None:
        self.name, self.wrong, self.asked = name, wrong, asked

    def measure(self, context, role):
        self.asked.append(f"{self.name} {role}")
        return {"value": np.array(1.0 + (self.wrong if role == "port" else 0.0))}

    def judge(self, port, reference):
        row = Quantity(self.name, [1])
        return [row if port["value"] == reference["value"] else row.fail("it differs")]


class First(Counted):
    pass


class Second(Counted):
    pass


def attempt(earlier: Earlier, wrong: float) -> tuple[list[str], bool]:
    """What is measured in a step of two comparisons, of which the second is wrong at first; and whether the step passes."""
    asked, result = list[str](), StepResult(1, "forward")
    context = SimpleNamespace(earlier=earlier, in_haste=True)
    try:
        for comparison in (First("first", 0.0, asked), Second("second", wrong, asked)):
            compare(context, result, comparison)
    except Enough:
        pass
    return asked, result.passed


def test_only_what_failed_is_measured_again():
    record = Earlier()
    asked, passes = attempt(record, 0.5)
    assert len(asked) == 4 and not passes and record.wrong == [("Second", 1)]
    for wrong in (0.0, 0.25):  # the right correction, and one that is none
        again = Earlier(record.made, record.wrong, alone=True)
        assert attempt(again, wrong)[0] == ["second port"] and again.passes is (wrong == 0.0)
    assert attempt(Earlier(record.made, record.wrong), 0.0) == (["first port", "second port"], True)
    assert attempt(Earlier(record.made, record.wrong, reference=False), 0.0)[0][:2] == ["first reference", "first port"]


def test_a_step_with_a_mistake_is_recorded_and_the_sound_port_passes_by_the_record(same_models):
    """Step 3: the reference's side is not measured again, and a port that is still wrong does not pass."""
    record = Earlier()
    with injected(PROJECT, "top5_is_top4") as project:
        broken = same_models(project).but(in_haste=True, earlier=record)
        assert run_step(3, broken).failed and record.wrong
        still = Earlier(record.made, record.wrong, alone=True)
        run_step(3, same_models(project).but(in_haste=True, earlier=still))
    assert still.passes is False
    sound = Earlier(record.made, record.wrong, alone=True)
    run_step(3, same_models().but(in_haste=True, earlier=sound))
    assert sound.passes is True
    whole = same_models().but(in_haste=True, earlier=Earlier(record.made, record.wrong))
    assert run_step(3, whole).passed


def test_a_witness_that_was_against_a_step_is_heard_first(same_models):
    def project(value: int):
        told = Told("two and two", value, 4)
        return replace(PROJECT, witnesses=(Witness("adding", (), "arithmetic", lambda: [told], step=3),))

    def rows(value: int, suspect: str) -> list[str]:
        context = same_models(project(value)).but(in_haste=True, suspect=suspect)
        return [row.name for row in run_step(3, context).quantities]

    assert rows(5, "witness.adding") == ["witness.adding"]
    assert len(rows(5, "")) > 1 and rows(4, "witness.adding") == rows(4, "")  # what is right is compared whole


def test_other_peoples_modules_are_imported_before_the_children_and_the_projects_are_not(tmp_path):
    (tmp_path / "own_of_a_copy.py").write_text("raise AssertionError\n")
    sys.modules.pop("colorsys", None)
    _import(["own_of_a_copy", "no_such_module_at_all", "colorsys"], tmp_path)
    assert "colorsys" in sys.modules and "own_of_a_copy" not in sys.modules
