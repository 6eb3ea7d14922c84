"""What people see at a terminal: tables of 80 columns, colour and progress there alone, helps in groups with their defaults."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import subprocess
import sys
import warnings

import pytest

import alignment.cli
from alignment.compare import Quantity
from alignment.comparisons.result import StepResult
from alignment.report.table import table
from mobilenetv3_common.config_file import Parser
from mobilenetv3_common.errors import UserError, exit_on_user_error
from mobilenetv3_common.terminal import SOURCE, Progress, all_printable, coloured, escaped_output, paint, printable, show, verdict
from tests.conftest import ROOT

TOOLS = (
    "align", "benchmark", "convert_weights", "doctor", "eval", "export_model", "infer", "lr_find", "predict", "prepare_digits",
    "prepare_lite_data", "serve", "train",
)  # fmt: skip


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def a_step(number, name, **values):
    quantity = Quantity("final_top1" if name == "train" else "model.loss", [3], **values)
    return StepResult(number, name, quantities=[quantity] * 1351, seconds=1161.2)


def results():
    figures = {"mean_abs_diff": 9.5e-7, "port_error": 2e-6, "reference_error": 1e-7, "float64_diff": 1.4e-13}
    return [a_step(i, name, **figures) for i, name in enumerate(("converted", "forward", "data", "metric", "loss", "backward"))]


def test_the_table_fits_80_columns_and_keeps_its_headings():
    wide = [*results(), a_step(6, "train", mean_abs_diff=0.0019)]
    lines = table(wide).splitlines()
    assert max(map(len, lines)) <= 80
    words = {"step", "compared", "mean", "abs", "diff", "guide", "float32", "/", "floor", "exact", "mode", "seconds", "verdict"}
    assert set((lines[0] + " " + lines[1]).split()) == words
    assert any("<=0.0015 undecided" in line for line in lines), "the longest cell"
    assert max(map(len, table(results()[1:3]).splitlines())) <= 80
    starts = [line.index(cell) for line, cell in ((lines[0], "verdict"), (lines[-1], "passed"))]
    assert starts[0] == starts[1], "headings stand above their columns"


def test_colour_is_for_terminals_alone(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert paint("FAILED", "red", Terminal()) == "\033[31mFAILED\033[0m" and verdict("passed", Terminal()).startswith("\033[32m")
    assert verdict("not run", Terminal()) == "not run"
    assert paint("FAILED", "red", io.StringIO()) == "FAILED", "a pipe or a file"
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)
        assert not coloured(Terminal())
        monkeypatch.delenv(name)
    monkeypatch.setenv("NO_COLOR", "")
    assert coloured(Terminal()), "an empty NO_COLOR is none: no-color.org"


def test_an_alignment_at_a_terminal_has_colour(monkeypatch, tmp_path):
    from tools.align import main

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", stream := Terminal())
    assert main(["--steps", "3", "--result-dir", str(tmp_path)]) == 0
    shown = stream.getvalue()
    assert shown.count("\033[32mpassed\033[0m") == 2, "the step's line and its row"
    assert "\033[32mPassed, as far as" in shown
    plain = re.sub(r"\033\[\d+m", "", shown)
    assert re.search(r"^step 3 metric \.\.\.\rstep 3 metric \.\.\. passed in [\d.]+ s$", plain, re.M)
    assert all(len(line) <= 80 for line in plain.partition("step  ")[2].split("\n\n")[0].split("\n"))


def test_progress_says_how_much_time_is_left_at_a_terminal_alone():
    for stream in (Terminal(), io.StringIO()):
        with Progress("step 6 train ...", stream) as progress:
            progress.expect(10)
            progress._bar and setattr(progress._bar, "mininterval", 0)
            for _ in range(12):  # more than was expected is no more than all
                progress.done()
        said = stream.getvalue()
        assert bool(said) == stream.isatty()
    with Progress("", Terminal()) as silent:
        silent.expect(10)
        silent.done()
    stream = Terminal()
    with Progress("step 6 train ...", stream) as progress:
        progress.expect(4)
        progress._bar.mininterval = 0
        progress.done(1)
    assert re.search(r"step 6 train \.\.\. +25 %.*, about \d\d:\d\d left", stream.getvalue()), stream.getvalue()
    assert not stream.getvalue().rpartition("\r")[2].strip(), "it takes itself away"


def helped(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.argv", [f"tools/{name}.py"])
    main = importlib.import_module("alignment_doctor.cli" if name == "doctor" else f"tools.{name}").main
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", TOOLS)
def test_helps_fit_80_columns_and_name_the_true_command(name, capsys, monkeypatch):
    text = helped(name, capsys, monkeypatch)
    assert text.startswith(f"usage: python tools/{name}.py")
    examples = re.compile(r"\s*(python|torchrun) ")  # a command is copied whole
    assert not [line for line in text.splitlines() if len(line) > 80 and not examples.match(line)]


@pytest.mark.parametrize("command", ["", "run", "audit", "dump", "weights", "compare"])
def test_help_says_what_each_exit_status_means(command, capsys):
    with contextlib.suppress(SystemExit):
        alignment.cli.main([*command.split(), "--help"])
    said = " ".join(capsys.readouterr().out.split())
    wanted = "023" if command in ("dump", "weights") else "0123"
    found = re.search(r"Exit status: (.*?)\.", said)
    assert found and re.findall(r"\b([0-3]) [a-z]", found[1]) == list(wanted), said


def test_every_setting_of_training_says_its_default_in_its_group(capsys, monkeypatch):
    text = helped("train", capsys, monkeypatch)
    groups = re.findall(r"^(\S.*):$", text, re.M)
    assert groups == [
        "options", "model", "pictures", "augmentation", "epochs and batches", "optimizer", "learning rate", "regularisation",
        "precision and device", "run",
    ]  # fmt: skip
    flags = re.split(r"^  (?=--)", text.partition("model:")[2], flags=re.M)[1:]
    assert len(flags) > 60
    assert [flag.split()[0] for flag in flags if "default" not in flag] == ["--data-path"], "which has none"
    rates = text.partition("learning rate:")[2].partition("regularisation:")[0]
    assert "--lr X" in rates and "--warmup-epochs" in rates and "--seed" not in rates


def test_a_default_that_nobody_wrote_down_is_said(capsys, monkeypatch):
    parser = Parser(prog="tool")
    parser.add_argument("--num-classes", type=int, default=1000, help="of the last layer")
    assert "of the last layer (default: 1000)" in parser.format_help()
    assert "--list print which tensor is which" in " ".join(helped("convert_weights", capsys, monkeypatch).split())


@pytest.mark.parametrize(
    ("name", "arguments", "near"),
    [
        ("train", ["--batchsize", "3"], "--batch-size"),
        ("align", ["--localise"], "--localize"),
        ("doctor", ["data", "lite_data", "--htlm", "x"], "--html"),
        ("train", ["--zzz"], None),
    ],
)
def test_a_mistyped_flag_is_met_with_the_nearest(name, arguments, near, capsys):
    main = importlib.import_module("alignment_doctor.cli" if name == "doctor" else f"tools.{name}").main
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert (f"did you mean {near}?" in error) if near else ("did you mean" not in error)
    assert error.count("\n") == 1


def test_the_nearest_fault_may_be_an_edit_of_the_source():
    from alignment.faults import fault_named
    from projects.mobilenetv3.project import PROJECT

    edits = sorted(set(PROJECT.edits().faults) - set(PROJECT.faults()))
    with pytest.raises(UserError, match=f"did you mean .*{edits[0]}"):
        fault_named(PROJECT, edits[0][:-1])
    with pytest.raises(UserError, match="--source-faults"):
        fault_named(PROJECT, edits[0])


NAMES = {  # as they may stand in a file -> as they are shown
    "\x1b[2Jcleared": "\\x1b[2Jcleared",
    "\x1b]0;title\x07": "\\x1b]0;title\\x07",
    "over\rwritten": "over\\rwritten",
    "\x9b31mC1": "\\x9b31mC1",
    "abc\u202egnp.exe": "abc\\u202egnp.exe",
    "a\u2066b\u2069": "a\\u2066b\\u2069",
    "zero\u200bwidth\ufeff": "zero\\u200bwidth\\ufeff",
    "two\u2028lines": "two\\u2028lines",
    "half \ud800 a pair": "half \\ud800 a pair",
    "no UTF-8 \udcff": "no UTF-8 \\xff",
    "nothing\x00": "nothing\\x00",
    "猫 Ärger 🐈": "猫 Ärger 🐈",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_shown_and_moves_nothing(name, capsys):
    assert printable(name) == NAMES[name] and printable(printable(name)) == NAMES[name]
    assert all_printable(["plain", name]) == ["plain", NAMES[name]]

    @exit_on_user_error
    def main(fail):
        print(f"a table:\t{name}\n\tend")
        if fail:
            raise UserError(f"x.npz: {name} is damaged")
        return 0

    assert main(False) == 0
    assert capsys.readouterr().out == f"a table:\t{NAMES[name]}\n\tend\n"
    assert main(True) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and error.rstrip("\n").isprintable()


def test_without_the_mechanism_a_name_reaches_the_terminal(capsys):
    print("\x1b[2J")
    assert capsys.readouterr().out == "\x1b[2J\n"


def test_a_terminal_gets_colour_and_progress_and_no_other_sequence(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with escaped_output():
        print(f"{paint('FAILED', 'red')} \x1b[2J\x1b]0;t\x07\u202e", end="\r")
        with escaped_output():
            print("\x1b[H", flush=True)
    print("\x1b[H")
    assert terminal.getvalue() == "\x1b[31mFAILED\x1b[0m \\x1b[2J\\x1b]0;t\\x07\\u202e\r\\x1b[H\n\x1b[H\n"


def test_a_process_without_streams_prints_nothing(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    with escaped_output():
        print("nowhere")


TRAINED = """
import sys
from mobilenetv3_common import train_log, training
from mobilenetv3_common.errors import exit_on_user_error
from mobilenetv3_common.train_config import TrainConfig
from tests import numpy_backend
train_log.SCALARS = {}  # their packages take seconds to import
main = exit_on_user_error(lambda config: training.train(numpy_backend, config))
sizes = {"crop_size": 16, "resize_size": 16, "batch_size": 4, "workers": 0, "epochs": 1}
sys.exit(main(TrainConfig(framework="numpy", data_path="lite_data", output_dir=sys.argv[1], **sizes)))
"""


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", "2>&-"])
def test_a_run_that_is_started_without_streams_is_trained(tmp_path, closed):
    """Training looked whether its standard error is a terminal, and ended with status 1 where nobody could see why."""
    command = ["bash", "-c", f'"$@" {closed}', "-", sys.executable, "-c", TRAINED, str(tmp_path / "run")]
    env = {**os.environ, "PYTHONPATH": "."}
    assert subprocess.run(command, cwd=ROOT, env=env, check=False, timeout=120).returncode == 0
    assert "[Eval epoch 0]" in (tmp_path / "run" / "train.log").read_text()


LONG = "  1. forward: " + "it computes other numbers " * 8


def test_lines_fit_a_terminal_and_sources_and_what_is_no_terminal_stay_whole(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    source = f"{SOURCE}+        {'self.conv, ' * 12}"
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        show(f"{LONG}\n{source}", stream)
    assert file.getvalue() == f"{LONG}\n{source}\n"
    *words, code = terminal.getvalue().splitlines()
    assert code == source and max(map(len, words)) <= 80 and len(words) == 3
    assert [len(line) - len(line.lstrip()) for line in words] == [2, 4, 4]


def test_an_audit_at_a_terminal_has_lines_of_its_width(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", Terminal())
    pair = ["--port", "docs/examples/vit_port.py:ViT", "--reference", "docs/examples/vit_reference.py:VisionTransformer"]
    assert alignment.cli.main(["audit", *pair, "--input", "2x3x32x32", "--eval-only", "--report", str(tmp_path)]) == 1
    said = sys.stdout.getvalue()
    wide = [line for line in said.splitlines() if len(line.rpartition("\r")[2]) > 80 and not line.startswith(SOURCE)]
    assert "Your mistakes: 3 mistakes" in said and not [line for line in wide if str(tmp_path) not in line], wide


def test_the_help_of_the_engine_fits_80_columns(capsys):
    assert alignment.cli.main(["--help"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_a_warning_of_a_models_code_is_printed_once_and_that_of_another_line_as_well(monkeypatch):
    def warns(argv):
        for line in (3, 3, 8, 3):
            with warnings.catch_warnings():  # as frameworks do, which has Python forget what it has printed
                warnings.simplefilter("default")
                warnings.warn_explicit("is deprecated", FutureWarning, "theirs.py", line)
        return 0

    shown = []
    plain = lambda message, category, filename, lineno, *more: shown.append((filename, lineno))  # noqa: E731
    monkeypatch.setattr(warnings, "showwarning", plain)
    monkeypatch.setitem(alignment.cli.COMMANDS, "audit", (warns, "audit"))
    assert alignment.cli.main(["audit"]) == 0
    assert shown == [("theirs.py", 3), ("theirs.py", 8)] and warnings.showwarning is plain
