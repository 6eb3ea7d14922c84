"""One spelling of flags: --json prints, --json-file writes, --csv writes a table; nothing else is on standard output then."""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import re
from pathlib import Path

import pytest

from alignment import flags
from alignment.faults import fault_named
from alignment.flags import audit_parser, run_parser, shown, stands_for
from mobilenetv3_common.config_file import whole
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.json_output import Outputs, add_output_flags, outputs_of
from mobilenetv3_common.weights import as_paddle, write_state
from tests.conftest import LITE_DATA, ROOT, run_command


def taken(*words, rows="a, b"):
    parser = argparse.ArgumentParser()
    add_output_flags(parser, "figures", rows)
    return outputs_of(vars(parser.parse_args(words)), table=bool(rows))


def test_json_prints_and_files_are_written(tmp_path, capsys):
    assert taken() == Outputs() and taken("--json") == Outputs(printed=True)
    file, table = tmp_path / "a.json", tmp_path / "a.csv"
    for spelled in (["--json-file", str(file)], ["--json", str(file)]):
        assert taken(*spelled) == Outputs(json_file=file)
    outputs = taken("--json", "--json-file", str(file), "--csv", str(table))
    with outputs.for_people():
        print("for people")
    outputs.write({"x": 1}, ("a", "b"), [("1,5", 2)])
    said = capsys.readouterr()
    assert json.loads(said.out) == json.loads(file.read_text()) == {"x": 1} and said.err == "for people\n"
    assert list(csv.reader(table.open())) == [["a", "b"], ["1,5", "2"]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--json-file", "nowhere/a.json"], "there is no folder nowhere"),
        (["--csv", "nowhere/a.csv"], "there is no folder nowhere"),
        (["--json", "a.json", "--json-file", "b.json"], "give one file"),
        (["--json-file", "."], "is a folder"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_work(words, said):
    with pytest.raises(UserError, match=said):
        taken(*words)


def every_parser():
    import alignment_doctor.cli
    from mnv3 import infer, predict
    from tools import resnet50

    subs = [
        action.choices
        for whole in (alignment_doctor.cli.parser(), resnet50.parser())
        for action in whole._actions
        if isinstance(action, argparse._SubParsersAction)
    ]
    named = {**{f"doctor {n}": p for n, p in subs[0].items()}, **{f"resnet50 {n}": p for n, p in subs[1].items()}}
    return {**named, "predict": predict.parser(), "infer": infer.parser(), "audit": audit_parser(), "run": run_parser()}


def test_every_command_that_has_json_has_both_spellings():
    seen = 0
    for name, parser in every_parser().items():
        options = {flag: action for action in parser._actions for flag in action.option_strings}
        if "--json" in options:
            seen += 1
            assert options["--json"].nargs in ("?", 0), f"{name}: --json alone prints"
            assert options["--json-file"].metavar == "FILE", name
    assert seen >= 13


@pytest.fixture(scope="module")
def weights(small_state, tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    write_state(folder / "small.pdparams", as_paddle(small_state))
    return folder


def test_predict_prints_json_alone_and_write_csv(tmp_path, weights):
    command = [
        "tools/predict.py",
        "--img-path",
        LITE_DATA / "val" / "cat",
        "--pretrained",
        weights / "small.pdparams",
        "--topk",
        "2",
    ]
    done = run_command(
        *command, "--topk", "2", "--width-mult", "0.5", "--json", "--csv", tmp_path / "p.csv", "--json-file", tmp_path / "p.json"
    )
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "p.csv").open()))
    printed = json.loads(done.stdout)
    assert printed == json.loads((tmp_path / "p.json").read_text()) and len(rows) == 2 * len(printed) == 4
    assert [row["class"] for row in rows[:2]] == [one["name"] for one in printed[0]["predictions"]]
    assert [row["rank"] for row in rows] == ["1", "2"] * 2


@pytest.mark.parametrize("name", ["serve", "infer", "predict"])
def test_a_number_out_of_bounds_is_refused_by_a_line_of_that_flag_alone(name):
    made = importlib.import_module(f"mnv3.{name}").parser()
    needed = [word for action in made._actions if action.required for word in (action.option_strings[0], "x")]
    bounded = [a for a in made._actions if a.type not in (None, int, float, whole) and a.option_strings and a.metavar != "FILE"]
    numbers = [action.option_strings[0] for action in bounded if getattr(action.type, "__name__", "") in ("int", "float")]
    assert len(numbers) >= 2
    for flag in numbers:
        with pytest.raises(UserError, match=rf"^{flag} must be .*, found -1$") as raised:
            made.parse_args([*needed, flag, "-1"])
        assert re.findall(r"--[a-z-]+", str(raised.value)) == [flag]


# --- messages ----------------------------------------------------------------------------------------------------------------


def test_a_mistyped_fault_is_suggested_once():
    from projects.mobilenetv3.project import PROJECT

    with pytest.raises(UserError) as raised:
        fault_named(PROJECT, "biased_varianc")
    assert str(raised.value).count("biased_variance") == 1, raised.value


def test_what_lies_in_a_copy_is_shown_as_what_it_is_a_copy_of(monkeypatch, tmp_path):
    monkeypatch.setattr(flags, "_COPIES", {})
    copy = tmp_path / "edited-x" / ROOT.name
    assert shown(copy / "lite_data") == str(copy / "lite_data")
    stands_for(copy, ROOT)
    monkeypatch.chdir(ROOT)
    assert shown(copy / "lite_data") == "lite_data" and shown(Path("result")) == "result"
