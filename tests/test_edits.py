"""Faults and rewrites as edits of the source: each fits the source as it is, and some are run as the benchmark runs them."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from alignment.cli import main
from alignment.comparisons import STEPS
from alignment.faults import Edit, edits_of
from bench.edited import Task, Workshop, edited
from bench.source_faults import Outcome, enough, table
from mobilenetv3_common.errors import UserError
from projects.mobilenetv3.edits import EDITS
from projects.mobilenetv3.faults import FAULTS
from projects.mobilenetv3.project import PROJECT
from tests.conftest import ROOT, run_command

FILE = ROOT / "projects" / "mobilenetv3" / "project.py"
ALL = {**EDITS.faults, **EDITS.rewrites}


@pytest.mark.parametrize("name", ALL)
def test_an_edit_fits_the_source_and_gives_another_that_compiles(name):
    for file, text in edited(ROOT, ALL[name].edits).items():
        assert text != (ROOT / file).read_text()
        compile(text, file, "exec")


def test_no_two_edits_are_the_same():
    changed = [tuple(sorted(edited(ROOT, edit.edits).items())) for edit in ALL.values()]
    assert len(set(changed)) == len(changed)


def test_every_known_fault_is_an_edit_too_and_owes_the_same():
    known = {name: fault for name, fault in FAULTS.items() if fault.step in STEPS}  # those of ranks are made in each process
    assert set(known) <= set(EDITS.faults)
    for name, fault in known.items():
        edit = EDITS.faults[name]
        assert (edit.area, edit.step, edit.location, edit.hint) == (fault.area, fault.step, fault.location, fault.hint.value), name
    assert len(EDITS.faults) - len(known) >= 80 and len(EDITS.rewrites) >= 25


def test_an_edit_that_does_not_fit_is_refused():
    file = "mobilenetv3_paddle/loss/cross_entropy.py"
    with pytest.raises(UserError, match="occurs 0 times, expected once"):
        edited(ROOT, [Edit(file, "no such text", "x")])
    with pytest.raises(UserError, match=r"occurs . times, expected once"):
        edited(ROOT, [Edit(file, "logits", "x")])
    with pytest.raises(UserError, match=r"cannot read .*gone.py"):
        edited(ROOT, [Edit("gone.py", "a", "b")])


@pytest.fixture(scope="module")
def attempts():
    """Steps 3 and 4 on copies of MobileNetV3: two faults, a rewrite, a hang, a crash, and a mistake in the shared code."""
    chosen = {name: edited(ROOT, ALL[name].edits) for name in ("ties_count_as_right", "loss_halved", "mean_by_weights")}
    loss, errors = "mobilenetv3_paddle/loss/cross_entropy.py", "mobilenetv3_common/errors.py"
    top = "        smooth = self.label_smoothing\n"
    chosen["hang"] = edited(ROOT, [Edit(loss, top, f"{top}        while True:\n            __import__('time').sleep(1)\n")])
    chosen["crash"] = edited(ROOT, [Edit(loss, top, f"{top}        __import__('os').abort()\n")])
    chosen["refusal"] = edited(ROOT, [Edit(errors, "import functools\n", "import functools\nraise RuntimeError\n")])
    with Workshop(FILE, [3, 4], limit=45) as workshop:
        tasks = [Task(name, changed) for name, changed in chosen.items()]
        return workshop, {task.key: attempt for task, attempt in workshop.run(tasks)}


@pytest.mark.slow
def test_faults_are_found_in_edited_copies_and_other_ends_are_told_apart(attempts):
    workshop, found = attempts
    assert workshop.own >= {"alignment", "mobilenetv3_common", "mobilenetv3_paddle", "mobilenetv3_ref", "projects"}
    ties = Outcome(EDITS.faults["ties_count_as_right"], found["ties_count_as_right"])
    assert ties.detected and ties.located and ties.named and not ties.false_hint and ties.attempt.status == 1
    halved = found["loss_halved"]
    assert halved.outcome == "failed" and halved.step == 4 and halved.finding["location"] == "CrossEntropyLoss"
    assert found["mean_by_weights"].outcome == "passed" and list(found["mean_by_weights"].by_step) == ["3", "4"]
    assert found["hang"].outcome == "timed out" and found["hang"].status is None
    assert found["crash"].outcome == "raised"
    assert found["refusal"].outcome == "raised" and "RuntimeError" in found["refusal"].problem


@pytest.mark.slow
@pytest.mark.weekly
def test_what_the_steps_run_on_the_sound_port_alone_is_no_pass():
    """Two ranks: a port that refuses a recipe which the sound port trains by, and one whose ranks are exchanged."""
    check = '    for name in ("channels_last", "compile"):\n'
    refusal = '    if config.sync_bn:\n        raise UserError("--sync-bn: not here")\n'
    ranks = "dist.get_rank(), dist.get_world_size(), chosen"
    edits = {
        "refuses": Edit("mobilenetv3_paddle/train/backend.py", check, refusal + check),
        "exchanged": Edit("mobilenetv3_paddle/train/distributed.py", ranks, "dist.get_world_size(), dist.get_rank(), chosen"),
    }
    with Workshop(FILE, [7]) as workshop:
        assert workshop.sound.outcome == "passed" and workshop.sound.not_run == {}
        found = {task.key: attempt for task, attempt in workshop.run(Task(name, edited(ROOT, [e])) for name, e in edits.items())}
    assert found["refuses"].outcome == "refused" and "not run: sync: the port refuses it" in found["refuses"].problem
    assert found["exchanged"].outcome == "failed" and "rank 2 is outside a world of" in found["exchanged"].problem


def test_a_hint_that_names_another_mistake_is_false():
    fault = EDITS.faults["loss_halved"]
    attempt = {"location": fault.location, "kind": "sum_for_mean"}
    outcomes = [Outcome(fault, _failed(attempt)), Outcome(fault, _failed(attempt | {"kind": ""}))]
    assert [o.false_hint for o in outcomes] == [True, False] and all(o.located and not o.named for o in outcomes)
    assert not enough(outcomes) and "FALSE" in table(outcomes)
    right = Outcome(fault, _failed(attempt | {"kind": fault.hint}))
    assert right.named and enough([right])


def _failed(finding):
    from bench.edited import Attempt

    return Attempt("failed", 1, 4, finding)


def test_a_copy_runs_its_own_packages_whatever_the_start_has_imported(tmp_path):
    """A .pth file that imports the original's shared package as Python begins let every edit of it pass."""
    for where, value in (("original", 1), ("copy", 2)):
        (tmp_path / where / "shared_code").mkdir(parents=True)
        (tmp_path / where / "shared_code" / "__init__.py").write_text("")
        (tmp_path / where / "shared_code" / "constant.py").write_text(f"VALUE = {value}\n")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'original')!r}); import shared_code.constant\n"
        f"from bench.fork_server import import_from; import_from([{str(tmp_path / 'copy')!r}])\n"
        "from shared_code import constant; print(constant.VALUE)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "2\n"


@pytest.mark.slow
@pytest.mark.weekly  # test_align_command.py injects one on every change, and the pages' commands do
def test_an_edit_is_injected_by_its_name(tmp_path):
    """The command itself runs in the edited copy; the sound source stays as it is."""
    run = run_command("tools/align.py", "--inject", "gate_offset", "--steps", "1", "--result-dir", tmp_path)
    assert run.returncode == 1, run.stderr
    assert "injected on purpose: gate_offset" in run.stdout and "features.1.block.1.scale_activation" in run.stdout
    report = json.loads((tmp_path / "alignment.json").read_text())
    assert report["first_divergence"]["location"] == "features.1.block.1.scale_activation"


def test_the_list_of_faults_names_edits(capsys):
    assert main(["run", str(FILE), "--inject", "list"]) == 0
    out = capsys.readouterr().out
    assert "gate_offset" in out and "batch_norm_eps" in out
    assert edits_of(PROJECT) is EDITS


@pytest.mark.parametrize(
    ("page", "numbers"),
    [
        ("README.md", r"`--inject list` names (\d+) faults: (\d+) of the port [^,]*, (\d+) that [^,]*, and (\d+) further edits"),
        ("README_zh.md", r"`--inject list` 列出 (\d+) 种错误.(\d+) 种单进程错误、(\d+) 种.*?以及另外 (\d+) 种"),
    ],
)
def test_the_pages_numbers_of_faults_are_those_of_the_list(page, numbers, capsys):
    assert main(["run", str(FILE), "--inject", "list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    edits, alone = {*EDITS.faults}, {*FAULTS} & {*EDITS.faults}
    text = (ROOT / page).read_text()
    (said,) = re.findall(numbers, text)
    assert [*map(int, said)] == [len(listed), len(alone), len({*FAULTS} - alone), len(edits - alone)]
    assert {int(n) for n in re.findall(r"(\d+) (?:known faults|种已知错误|of \d+ faults)", text)} == {len(alone)}
