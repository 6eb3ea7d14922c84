"""docs/findings.schema.json describes what align and audit really write, with a version, and refuses what is not so."""

from __future__ import annotations

import copy
import json
import re
import typing
from dataclasses import fields

import pytest
from jsonschema import Draft202012Validator

from alignment.cli import main
from alignment.compare import Quantity
from alignment.finding import Argument, Finding, LayerRow, Stage
from alignment.kinds import Kind
from alignment.report.results import VERSION
from tests.conftest import ROOT
from tests.test_audit_sections import PADDLE, TORCH

SCHEMA = json.loads((ROOT / "docs" / "findings.schema.json").read_text(encoding="utf-8"))
CHECK = Draft202012Validator(SCHEMA)


def problems(content) -> list[str]:
    return [f"{'/'.join(map(str, one.absolute_path))}: {one.message}" for one in CHECK.iter_errors(content)]


def described(name: str) -> set[str]:
    return set(SCHEMA["$defs"][name]["properties"])


def test_the_schema_is_one_and_describes_every_field():
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["findings_version"] == {"const": VERSION, "description": "Version of this schema."}
    required = set(SCHEMA["$defs"]["finding"]["required"])
    later = {"arguments", "layer"}  # added within version 1
    assert described("finding") == {field.name for field in fields(Finding)} == required | later
    assert described("argument") == set(Argument.__annotations__) == set(SCHEMA["$defs"]["argument"]["required"])
    assert described("layer") == {field.name for field in fields(LayerRow)}
    assert described("quantity") == set(Quantity("x", []).as_json())
    assert set(SCHEMA["$defs"]["finding"]["properties"]["stage"]["enum"]) == set(typing.get_args(Stage))
    pattern = SCHEMA["$defs"]["finding"]["properties"]["kind"]["pattern"]
    assert all(re.fullmatch(pattern, kind.value) for kind in Kind)


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """What ``audit --json`` prints of a wrong and of a right port, by its exit status."""
    folder = tmp_path_factory.mktemp("audited")
    (folder / "theirs.py").write_text(TORCH)
    (folder / "ours.py").write_text(PADDLE)
    (folder / "wrong.py").write_text(PADDLE.replace("3, padding=1)", "3, padding=0)", 1))
    found = {}
    for name, expected in (("ours", 0), ("wrong", 1)):
        sides = ["--port", f"{folder}/{name}.py:Net", "--reference", f"{folder}/theirs.py:Net", "--input", "2x3x10x8"]
        assert main(["audit", *sides, "--report", str(folder / name), "--json-file", str(folder / f"{name}.json")]) == expected
        found[expected] = json.loads((folder / f"{name}.json").read_text())
    return found


def complete(content) -> None:
    """Every field that is there is described."""
    assert set(content) <= set(SCHEMA["properties"])
    assert all(set(step) <= described("step") for step in content["steps"])


def test_an_audits_output_is_as_described(audited):
    for status, content in audited.items():
        assert problems(content) == []
        complete(content)
        assert content["passed"] is (status == 0) and bool(content["mistakes"]) is (status == 1)
    (mistake,) = audited[1]["mistakes"]
    assert mistake["kind"] == "padding" and [line for line in mistake["card"] if line.startswith("+")]


def test_an_alignments_output_is_as_described(tmp_path):
    command = ["run", str(ROOT / "projects/mobilenetv3/project.py"), "--steps", "3", "--result-dir", str(tmp_path / "result")]
    assert main([*command, "--inject", "ties_count_as_right", "--json-file", str(tmp_path / "a.json")]) == 1
    content = json.loads((tmp_path / "a.json").read_text())
    assert problems(content) == []
    complete(content)
    assert content["localization"]["first"]["kind"] == "ties_right" and "verdict" not in content


@pytest.mark.slow
def test_the_output_on_dumps_is_as_described(tmp_path, monkeypatch):
    (tmp_path / "theirs.py").write_text(TORCH)
    (tmp_path / "wrong.py").write_text(PADDLE.replace("3, padding=1)", "3, padding=0)", 1))
    monkeypatch.chdir(tmp_path)
    assert main(["dump", "theirs.py:Net", "--input", "2x3x10x8", "--out", "theirs"]) == 0
    assert main(["dump", "wrong.py:Net", "--reference-dump", "theirs", "--out", "ours"]) == 0
    dumps = ["--port-dump", "ours", "--reference-dump", "theirs", "--json-file", "a.json"]
    assert main(["audit", *dumps]) == 1
    content = json.loads((tmp_path / "a.json").read_text())
    assert problems(content) == []
    complete(content)


BROKEN = {
    "another version": (lambda content: content.update(findings_version=VERSION + 1), "findings_version"),
    "no version": (lambda content: content.pop("findings_version"), "findings_version"),
    "a verdict in words": (lambda content: content.update(passed="yes"), "passed"),
    "no mistakes in an audit": (lambda content: content.pop("mistakes"), "mistakes"),
    "a mistake without a card": (lambda content: content["mistakes"][0].pop("card"), "card"),
    "a mistake without the port's name": (lambda content: content["mistakes"][0].pop("own"), "own"),
    "a kind in words": (lambda content: content["mistakes"][0].update(kind="wrong padding"), "kind"),
    "a stage that is none": (lambda content: content["mistakes"][0].update(stage="somewhere"), "stage"),
    "a row without a verdict": (lambda content: content["steps"][0]["quantities"][0].pop("passed"), "passed"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_not_as_described_is_refused(audited, case):
    change, field = BROKEN[case]
    content = copy.deepcopy(audited[1])
    change(content)
    assert any(field in problem for problem in problems(content)), problems(content)
