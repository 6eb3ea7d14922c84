"""Several ports of one reference in one project file: each is aligned, and one table has them side by side."""

import json

import pytest

from alignment.cli import main
from alignment.project import load_ports, load_project
from alignment.report.ports import row, table
from mobilenetv3_common.errors import UserError
from tests.conftest import ROOT

OWN = (ROOT / "docs" / "examples" / "own_project.py").read_text()
BROKEN = """
class Broken(Port):
    def __init__(self):
        super().__init__()
        self.act = paddle.nn.Sigmoid()

from dataclasses import replace
PROJECTS = {"right": PROJECT, "wrong": replace(PROJECT, models={"net": replace(spec, port=Broken)})}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "several.py"
    path.write_text(OWN + BROKEN)
    return path


def test_every_port_is_aligned_and_one_table_has_them_side_by_side(file, tmp_path, capsys):
    result = tmp_path / "result"
    assert main(["run", str(file), "--steps", "1", "--result-dir", str(result)]) == 1
    out = capsys.readouterr().out.splitlines()
    heads, line = next((out[n], out[n + 3]) for n, text in enumerate(out) if text.split() == ["right", "wrong"])
    assert heads.index("right") < heads.index("wrong")
    assert line.startswith("1 forward") and line.count("passed") == line.count("FAILED") == 1
    assert line.index("passed") < heads.index("wrong") <= line.index("FAILED")
    assert any(text.startswith("wrong: first divergence: act: activation swapped: it computes Sigmoid") for text in out)
    found = json.loads((result / "ports.json").read_text())
    assert found["passed"] is False and {name: one["passed"] for name, one in found["ports"].items()} == {
        "right": True,
        "wrong": False,
    }
    of_each = json.loads((result / "right" / "alignment.json").read_text())
    assert found["ports"]["right"]["steps"] == [row(step) for step in of_each["steps"]]
    assert 0 < found["ports"]["right"]["steps"][0]["exact"] < 1e-12


def test_one_port_alone_gives_its_own_verdict(file, tmp_path):
    result = tmp_path / "result"
    assert main(["run", str(file), "--port", "right", "--steps", "1", "--result-dir", str(result)]) == 0
    assert (result / "alignment.json").is_file() and not (result / "ports.json").exists()


def test_a_step_that_a_port_has_not_run_is_not_called_passed():
    one = {"step": 1, "name": "forward", "float32_ratio": 1.0, "exact": 0.0, "seconds": 2.0, "passed": True}
    text = table({"a": [one], "b": [one | {"passed": None}]})
    assert text.splitlines()[-1].split() == ["1", "forward", "1.0", "x", "0", "2.0", "passed", "-", "-", "-", "not", "run"]


def refused(command, capsys):
    assert main(command) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    return told


def test_what_concerns_one_port_asks_for_its_name(file, tmp_path, capsys):
    names = "right, wrong"
    assert names in refused(["run", str(file), "--inject", "x", "--result-dir", str(tmp_path / "r")], capsys)
    assert "has no such port" in refused(["run", str(file), "--port", "other"], capsys)
    assert "has several ports" in refused(["bench", str(file)], capsys)
    assert not (tmp_path / "r").exists()
    one = tmp_path / "one.py"
    one.write_text(OWN)
    assert "has one port, without a name" in refused(["run", str(one), "--port", "right"], capsys)
    assert [*load_ports(one)] == [""] and load_project(one).name == "own"


@pytest.mark.parametrize("wrong", ["{}", "[PROJECT]", "{'../x': PROJECT}", "{'a': 1}"])
def test_projects_that_are_none_are_named(wrong, tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text(f"{OWN}\nPROJECTS = {wrong}\n")
    with pytest.raises(UserError, match="PROJECTS"):
        load_ports(path)
