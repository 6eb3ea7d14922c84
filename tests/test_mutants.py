"""Mutants of a port's source: the changes themselves, what becomes of them, resuming, and the page."""

from __future__ import annotations

import ast
import json

import pytest
import yaml

from alignment.cli import main
from bench.mutants import EQUIVALENT, Log, Mutant, Sample, chosen_of, equivalents, scores, sources_of, steps_for, table
from bench.mutants_page import render
from bench.mutation import OPERATORS, drawn, mutations
from mobilenetv3_common.errors import UserError
from tests.conftest import ROOT

SOURCE = '''"""A docstring that says 3 + 4."""
import logging

__all__ = ["Net"]


class Net:
    def __init__(self, width: int | None = 8, mode: str = "mean") -> None:
        """Says 1 + 2."""
        self.width = width
        self.mode = mode

    def run(self, x, y):
        if x < y and not self.width:
            raise ValueError("a number such as 5 + 6")
        logging.info("x is %d", 7 + 8)
        # the operator stands behind a comment: 9 + 10 - 11
        total = (x  # the first - operand
                 + y) * 2.5
        total += min(x, y, key=abs)
        self.seen = "äöü" if total == 3 else None
        return total
'''
# operator -> (a change that must be among them, what the text then has)
EXPECTED = {
    "constant": ("2.5 -> 5.0", "* 5.0"),
    "operator": ("x < y -> <=", "if x <= y and"),
    "condition": ("if x < y and not self.width -> if not ...", "if (not (x < y and not self.width)):"),
    "argument": ("swap the arguments x and y", "min(y, x, key=abs)"),
    "statement": ("delete: total += min(x, y, key=abs)", "        pass\n        self.seen"),
    "name": ("x -> y", "if y < y and"),
    "default": ("8 -> 16", "int | None = 16"),
    "return": ("return total -> None", "        return None\n"),
}


def drawn_all():
    """Every change of the text above that is a program, one of each place and kind; several seeds give them all."""
    found = mutations("net.py", SOURCE)
    return sorted({m for seed in range(40) for m in drawn(found, {"net.py": SOURCE}, 1000, seed)}, key=lambda m: m.start)


def test_every_operator_changes_the_text_and_nothing_else_of_it():
    found = drawn_all()
    assert {m.operator for m in found} == set(OPERATORS) == set(EXPECTED)
    for operator, (change, text) in EXPECTED.items():
        (mutation, *_) = [m for m in found if m.operator == operator and m.change == change]
        assert text in mutation.applied(SOURCE), mutation
    for mutation in found:
        changed = mutation.applied(SOURCE)
        assert changed != SOURCE and ast.dump(ast.parse(changed)) != ast.dump(ast.parse(SOURCE)), mutation
        data, new = SOURCE.encode(), changed.encode()
        assert new[: mutation.start] == data[: mutation.start] and new.endswith(data[mutation.end :])
        assert SOURCE.splitlines()[mutation.line - 1].strip() == mutation.text
    assert len({m.key for m in found}) == len(found)


def test_words_for_people_are_left_alone():
    for mutation in mutations("net.py", SOURCE):
        removed = SOURCE.encode()[mutation.start : mutation.end].decode()
        if mutation.operator != "statement":  # an exception may be left out, but not be raised with another message
            assert not any(f" {n} " in f" {removed} " for n in (1, 4, 6, 7, 11)), mutation
        assert "__all__" not in removed and "int | None" not in removed and "logging" not in removed, mutation


def test_a_comment_between_two_operands_is_no_operator():
    (mutation,) = [m for m in mutations("net.py", SOURCE) if m.change == "x + y -> -"]
    assert "# the first - operand\n                 - y)" in mutation.applied(SOURCE)


def test_keys_do_not_depend_on_the_line_number():
    moved = {m.key: m.line for m in mutations("net.py", "\n\n" + SOURCE)}
    assert moved == {m.key: m.line + 2 for m in mutations("net.py", SOURCE)}


def test_a_sample_has_each_place_once_and_grows_with_its_count():
    sources = sources_of(ROOT, "mobilenetv3_paddle.models")
    found = [m for file, source in sources.items() for m in mutations(file, source)]
    few, many = drawn(found, sources, 20, 3), drawn(found, sources, 60, 3)
    assert few == many[:20] and len({(m.file, m.start, m.end, m.operator) for m in many}) == 60
    assert {m.file for m in many} >= {f"mobilenetv3_paddle/models/{name}.py" for name in ("mobilenetv3", "norm", "dropout")}
    assert drawn(found, sources, 20, 4) != few


def test_packages_modules_and_files_can_be_asked_for():
    assert list(sources_of(ROOT, "mobilenetv3_paddle.loss")) == [
        "mobilenetv3_paddle/loss/__init__.py",
        "mobilenetv3_paddle/loss/cross_entropy.py",
        "mobilenetv3_paddle/loss/distillation.py",
    ]
    one = ["mobilenetv3_paddle/loss/cross_entropy.py"]
    assert list(sources_of(ROOT, "mobilenetv3_paddle.loss.cross_entropy")) == list(sources_of(ROOT, one[0])) == one
    with pytest.raises(UserError, match=r"--mutants no\.such: there is no such package"):
        sources_of(ROOT, "no.such")


def test_each_package_has_the_steps_that_could_see_it():
    parts = {name: f"port.{name}" for name in ("data", "metric", "loss", "train")}
    expected = {
        "port.data": (2,),
        "port.metric.accuracy": (3, 7),
        "port/loss": (4,),
        "port.train": (5, 7, 6),
        "port.models": (1, 5, 7, 6),
    }
    for package, steps in expected.items():
        assert steps_for(package, parts, ["port.models.net"]) == steps
    for package in ("port", "common"):
        assert steps_for(package, parts, ["port.models.net"]) == (1, 2, 3, 4, 5, 6, 7)


# --- a project of two files ------------------------------------------------------------------------------------------------

PORT = """import paddle


class Port(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.head = paddle.nn.Linear(8, 5)
        self.note = 3

    def forward(self, x):
        return self.head(x) * 2.0
"""
PROJECT = """import torch
from port import Port

from alignment.frameworks.paddle import Paddle
from alignment.frameworks.torch import Torch
from alignment.project import ModelSpec, Project, Side


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x):
        return self.head(x) * 2.0


spec = ModelSpec(Port, Reference, input_shape=(8,))
PROJECT = Project("two_files", port=Side(Paddle()), reference=Side(Torch()), models={"net": spec})
"""
DECLARED = {
    "file": "port.py",
    "in": "Port.__init__",
    "line": "self.note = 3",
    "change": "delete: self.note = 3",
    "reason": "unread",
}
COUNT = 6


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run of six mutants, one of them declared equivalent, then resumed: folder, results, and what the second run printed."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "port.py").write_text(PORT)
    (folder / "two.py").write_text(PROJECT)
    (folder / EQUIVALENT).write_text(yaml.safe_dump([DECLARED]))
    wanted = ("delete: self.note = 3", "3 -> ", "self.head(x) * 2.0 -> /")
    seeds = (s for s in range(1000) if all(any(w in m.change for m in _drawn(folder, s)) for w in wanted))
    flags = ["--count", str(COUNT), "--seed", str(next(seeds)), "--steps", "1", "--localize"]
    flags += ["--result-dir", str(folder / "result")]
    assert main(["bench", str(folder / "two.py"), "--mutants", "port", *flags]) == 0
    return folder, flags


def _drawn(folder, seed):
    return [m for _, m in chosen_of(folder, Sample(["port"], COUNT, seed))]


@pytest.mark.slow
def test_mutants_are_killed_survive_and_are_declared_equivalent(made, capsys):
    folder, flags = made
    report = json.loads((folder / "result" / "mutants.json").read_text())
    outcomes = {row["mutation"]["change"]: row for row in report["mutants"]}
    assert len(outcomes) == COUNT and report["about"]["count"] == COUNT
    killed = outcomes["self.head(x) * 2.0 -> /"]
    assert killed["outcome"] == "killed" and killed["step"] == 1 and killed["finding"]["location"] == "Port.forward"
    (survivor,) = [row for change, row in outcomes.items() if change.startswith("3 -> ")]
    assert survivor["outcome"] == "survived"
    declared = outcomes["delete: self.note = 3"]
    assert declared["outcome"] == "equivalent" and declared["reason"] == "unread"
    total = report["scores"][-1]
    assert total["survived"] == total["equivalent"] == 1 and total["score"] == total["killed"] / (COUNT - 1)
    assert (folder / "port.py").read_text() == PORT, "the source itself is never touched"
    log = folder / "result" / "mutants.jsonl"
    log.write_text(log.read_text() + '{"key": "cut sh')  # as a killed run leaves it
    assert main(["bench", str(folder / "two.py"), "--mutants", "port", *flags, "--resume"]) == 0
    out = capsys.readouterr().out
    assert f"{COUNT} mutants of 1 package, {COUNT} of them known" in out and "the sound project" not in out
    assert f"survivors (1):\n  port.py:8: constant: {survivor['mutation']['change']}" in out
    assert json.loads((folder / "result" / "mutants.json").read_text())["mutants"] == report["mutants"]


@pytest.mark.slow
def test_without_localisation_the_same_mutants_are_killed(made, tmp_path):
    folder, flags = made
    hasty = [flag for flag in flags[: flags.index("--result-dir")] if flag != "--localize"]
    assert main(["bench", str(folder / "two.py"), "--mutants", "port", *hasty, "--result-dir", str(tmp_path)]) == 0
    located, unlocated = (json.loads((path / "mutants.json").read_text())["mutants"] for path in (folder / "result", tmp_path))
    assert [(row["key"], row["outcome"], row["step"]) for row in unlocated] == [
        (r["key"], r["outcome"], r["step"]) for r in located
    ]
    assert not any(row["finding"] for row in unlocated) and any(row["finding"] for row in located)


@pytest.mark.slow
def test_the_page_shows_each_line_with_its_mutants(made):
    folder, _ = made
    page = (folder / "result" / "mutants.html").read_text()
    assert "1 of 6 mutants survived" in page and "port.py" in page
    assert '<div class="row bad"><span>8</span>' in page and "survived · constant · 3 -&gt; " in page
    assert '<div class="row good"><span>11</span>' in page and "killed by step 1, Port.forward · operator · " in page
    assert "equivalent: unread" in page
    assert "http" not in page and "<script" not in page


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"file": "port.py"}, "entry 1 needs file, line, change and reason"),
        (DECLARED | {"file": "gone.py"}, "there is no file gone.py"),
        (
            DECLARED | {"line": "self.note = 4"},
            "port.py has no mutation 'delete: self.note = 3' in 'self.note = 4': has it changed?",
        ),
        (DECLARED | {"number": 2}, "has no mutation"),
    ],
)
def test_a_declaration_that_fits_nothing_is_refused(entry, message, tmp_path):
    (tmp_path / "port.py").write_text(PORT)
    (tmp_path / EQUIVALENT).write_text(yaml.safe_dump([entry]))
    with pytest.raises(UserError, match=EQUIVALENT) as error:
        equivalents(tmp_path, tmp_path / "two.py")
    assert message in error.value.line


@pytest.mark.slow
def test_a_broken_project_is_refused_before_any_mutant(tmp_path, capsys):
    (tmp_path / "port.py").write_text(PORT.replace("Linear(8, 5)", "Linear(8, 6)"))
    (tmp_path / "two.py").write_text(PROJECT)
    assert main(["bench", str(tmp_path / "two.py"), "--mutants", "port", "--steps", "1", "--result-dir", str(tmp_path / "r")]) == 2
    assert "the project as it is does not pass" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--mutants", "port", "--count", "0"], "--count must be at least 1"),
        (["--mutants", "port", "--jobs", "0"], "--jobs must be at least 1"),
        (["--mutants", "no_such"], "there is no such package or module"),
        (["--mutants", "port", "--inject", "x"], "--inject goes with --faults or --source-faults"),
        (["--resume"], "--resume goes with --mutants"),
        (["--source-faults", "--count", "3"], "--count goes with --mutants"),
        (["--source-faults"], "lists no edits of its source"),
        (["--rewrites"], "lists no rewrites of its source"),
    ],
)
def test_flags_that_would_go_unheeded_are_refused(flags, message, tmp_path, capsys):
    (tmp_path / "port.py").write_text(PORT)
    (tmp_path / "two.py").write_text(PROJECT)
    assert main(["bench", str(tmp_path / "two.py"), *flags, "--result-dir", str(tmp_path / "r")]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1


def test_scores_leave_equivalent_mutants_out(tmp_path):
    found = mutations("net.py", SOURCE)
    outcomes = ["killed"] * 6 + ["survived"] * 2 + ["timed out", "stopped", "equivalent", "killed by the suite"]
    mutants = [Mutant("net", m, outcome) for m, outcome in zip(found, outcomes, strict=False)]
    score = scores(mutants)[-1]
    assert score.judged == 11 and score.steps == 7 / 11 and score.noticed == 9 / 11
    assert "survivors (2):" in table(mutants)
    assert render(mutants, {"net.py": SOURCE}, "about <this>").count("about &lt;this&gt;") == 1
    log = Log(tmp_path / "log.jsonl", resume=False)
    log.add(mutants[0])
    assert Log(tmp_path / "log.jsonl", resume=True).done == {mutants[0].mutation.key: mutants[0]}
    assert Log(tmp_path / "log.jsonl", resume=False).done == {}
