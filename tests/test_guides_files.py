"""The guide's own files: fake_data.npy and fake_label.npy as input, records and logs as reprod_log has them, its demonstration."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import sys
from types import SimpleNamespace
from unittest.mock import ANY

import numpy as np
import pytest
import reprod_log

from alignment.cli import main, run
from alignment.compare import Quantity
from alignment.comparisons import fake_data
from alignment.comparisons.context import Context
from alignment.comparisons.loss.cases import cases as loss_cases
from alignment.comparisons.loss.losses import ModelLoss
from alignment.comparisons.model import forward
from alignment.comparisons.result import StepResult
from alignment.record import load_arrays, load_record, save_record
from alignment.report import table
from alignment.report.diff_log import diff_log, mean_difference
from alignment.report.kept import SAME, Kept, kept_of, sources, without_steps
from mobilenetv3_common.errors import UserError
from projects.mobilenetv3.project import PROJECT
from tests.conftest import ROOT, run_command
from tests.test_fresh_weights import SOURCE, written

DEMO = "docs/examples/reprod_log_demo"


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(3)
    np.save(tmp_path / "fake_data.npy", rng.random((2, 3, 224, 224), dtype=np.float32))
    np.save(tmp_path / "fake_label.npy", np.array([7, 3]))
    return tmp_path


def test_fake_data_and_labels_are_what_steps_1_4_and_5_are_given(files):
    data, labels = fake_data.read(files / "fake_data.npy", files / "fake_label.npy")
    context = Context(PROJECT, fake=data, fake_labels=labels)
    fake_data.check(context)
    right = np.load(files / "fake_data.npy")
    assert np.array_equal(context.fake_inputs(3)[0], right[[0, 1, 0]]), "samples are repeated where more are asked for"
    inputs, known = context.material.labelled(8, small=True)
    assert np.array_equal(inputs[0][:2], right) and known.tolist() == [7, 3] * 4
    (case,) = (case for case in forward.cases(context) if case.name == "eval.fake.b2")
    result = forward.run(context, [case])
    for role in ("port", "reference"):
        assert np.array_equal(result.records[role]["eval.fake.b2.fake_data"], right)
    assert not [row for row in result.quantities if not row.passed]
    own = ModelLoss().measure(context, "reference")
    assert np.asarray(own["labels"]).tolist() == [7, 3] * 4
    assert Context(PROJECT).material.labelled(2, small=True)[0][0].shape[-1] != 224, "pictures, without the files"


def test_the_guides_folder_is_both_files(files):
    data, labels = fake_data.read(files, None)
    assert data.shape == (2, 3, 224, 224) and labels.tolist() == [7, 3]
    np.save(files / "own.npy", np.array([1, 2]))
    assert fake_data.read(files, files / "own.npy").labels.tolist() == [1, 2], "what is said outright wins"
    (files / "fake_label.npy").unlink()
    assert fake_data.read(files, None).labels is None


BAD = {
    "an empty folder": (["--fake-data", "empty"], "fake_data.npy: cannot be read: no such record"),
    "labels that are a folder": (["--input", "fake_data.npy", "--fake-label", "empty"], "empty is a folder, not a record"),
    "no file": (["--input", "none.npy"], "none.npy: cannot be read: no such record"),
    "labels alone": (["--fake-label", "fake_label.npy"], "labels of nothing"),
    "a label too few": (["--fake-data", "fake_data.npy", "--fake-label", "one.npy"], "a whole number for each of the 2 samples"),
    "labels between classes": (["--input", "fake_data.npy", "--fake-label", "halves.npy"], "expected a whole number"),
    "a label beyond the classes": (["--input", "fake_data.npy", "--fake-label", "beyond.npy"], "label 1000; "),
    "grey pictures": (["--input", "grey.npy"], "samples of shape (1, 224, 224)"),
    "text": (["--input", "text.npy"], "expected numbers, samples first"),
    "not a number": (["--input", "nan.npy"], "holds NaN or infinite values"),
    "cut short": (["--input", "cut.npy"], "cut.npy"),
}


@pytest.mark.parametrize("case", BAD)
def test_fake_data_that_cannot_be_used_is_one_line(files, case, monkeypatch, capsys):
    (files / "empty").mkdir()
    np.save(files / "one.npy", np.array([1]))
    np.save(files / "halves.npy", np.array([0.5, 1]))
    np.save(files / "beyond.npy", np.array([0, 1000]))
    np.save(files / "grey.npy", np.zeros((2, 1, 224, 224), np.float32))
    np.save(files / "text.npy", np.array(["a"]))
    np.save(files / "nan.npy", np.full((2, 3, 224, 224), np.nan, np.float32))
    (files / "cut.npy").write_bytes((files / "fake_data.npy").read_bytes()[:4000])
    monkeypatch.chdir(files)
    flags, message = BAD[case]
    assert run([*flags, "--steps", "1", "--result-dir", "out"], ROOT / "projects/mobilenetv3/project.py") == 2
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1, error
    assert not (files / "out/alignment.json").exists()


def test_the_audit_takes_fake_data_too(tmp_path, capsys):
    np.save(tmp_path / "fake_data.npy", np.random.default_rng(0).random((4, 3, 6, 6)))
    sides = written(tmp_path)[:4]
    assert main(["audit", *sides, "--input", str(tmp_path / "fake_data.npy"), "--report", str(tmp_path / "report")]) == 0
    assert "fake_data.npy" in capsys.readouterr().out
    kept = load_record(tmp_path / "report/forward_ref.npy")["eval.fake.b2.fake_data"]
    assert np.array_equal(kept, np.load(tmp_path / "fake_data.npy")[:2].astype(np.float32)) and SOURCE


def test_one_array_has_its_files_name_and_a_record_its_own(tmp_path):
    np.save(tmp_path / "fake_label.npy", np.arange(3))
    save_record(tmp_path / "record.npy", {"logits": np.ones(2)})
    assert list(load_arrays(tmp_path / "fake_label.npy")) == ["fake_label"]
    assert list(load_arrays(tmp_path / "record.npy")) == ["logits"]
    with pytest.raises(UserError, match="not a dictionary"):
        load_record(tmp_path / "fake_label.npy")


def test_the_guides_demonstration_of_the_log(tmp_path):
    """Section 2: write_log.py, then check_log_diff.py; what it prints is what reprod_log says of the same files."""
    assert run_command(f"{DEMO}/write_log.py", tmp_path).returncode == 0
    checked = run_command(f"{DEMO}/check_log_diff.py", tmp_path)
    assert checked.returncode == 1 and checked.stderr == ""
    said = [line.partition("INFO: ")[2].strip() for line in checked.stdout.splitlines()]
    assert said[0] == "demo_test_1:" and said[1] == "mean diff: check passed: True, value: 0.0" and said[-1] == "diff check failed"
    helper = reprod_log.ReprodDiffHelper()
    helper.compare_info(*(helper.load_info(str(tmp_path / f"reprod_log_{number}.npy")) for number in (1, 2)))
    value = float(re.search(r"check passed: False, value: (\S+)", checked.stdout)[1])
    assert value == pytest.approx(float(helper.diff_dict["demo_test_2"]["mean"]), rel=1e-6) and value > 0.1
    shutil.copy(tmp_path / "reprod_log_1.npy", tmp_path / "reprod_log_2.npy")
    assert run_command(f"{DEMO}/check_log_diff.py", tmp_path).returncode == 0
    (tmp_path / "reprod_log_2.npy").unlink()
    missing = run_command(f"{DEMO}/check_log_diff.py", tmp_path)
    assert missing.returncode == 2 and "no such record" in missing.stderr and len(missing.stderr.splitlines()) == 1


@pytest.mark.slow
def test_scripts_one_after_another_leave_all_their_results(tmp_path, monkeypatch, capsys):
    def script(number, name, *flags):
        monkeypatch.setattr("sys.argv", ["script", "--result-dir", str(tmp_path), *flags])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(ROOT / f"scripts/0{number}_test_{name}.py"), run_name="__main__")
        said = json.loads((tmp_path / "alignment.json").read_text())
        return ended.value.code, {one["step"]: one for one in said["steps"]}, said, capsys.readouterr().out

    assert script(3, "metric")[:2] == (0, ANY)
    status, steps, said, shown = script(4, "loss")
    assert status == 0 and sorted(steps) == [3, 4] and said["passed"] and said["rests_on"] == ["metric", "loss"]
    assert "kept from earlier runs: step 3" in shown and len(steps[3]["quantities"]) > 2 and steps[3]["date"]
    assert {path.name for path in tmp_path.iterdir()} >= {"metric_paddle.npy", "metric_ref.npy", "loss_paddle.npy", "loss_ref.npy"}
    assert load_record(tmp_path / "metric_ref.npy")
    assert f"3 metric (run {steps[3]['date']})" in (tmp_path / "report.html").read_text()
    assert "class weights" in said["coverage"]["covered"]
    said = script(3, "metric")[2]
    assert "class weights" in said["coverage"]["covered"], "what a kept step covered is covered, as when it ran"
    assert said["rests_on"] == ["metric", "loss"]
    assert "was run before" not in (tmp_path / "report.html").read_text() and len(said["sources"]) == 2
    written = tmp_path / "alignment.json"
    written.write_text(re.sub(r'("mobilenetv3_paddle/__init__.py": )"\w+"', r'\1"of before"', written.read_text()))
    _, steps, said, shown = script(3, "metric")
    told = f"step 4 loss was run before {steps[4]['changed_since'][0]} was changed: run it again (--steps 4)"
    assert (
        told in shown and "step 4 loss was run before" in (tmp_path / "report.html").read_text() and "changed_since" not in steps[3]
    )
    status, again, _, _ = script(4, "loss", "--seed", "1")
    assert status == 0 and sorted(again) == [4], "a run with other flags keeps nothing"
    status, _, said, shown = script(3, "metric")
    assert status == 0 and "not kept: step 4 of the run before, which had other flags" in shown and said["passed"]


def test_a_kept_step_that_failed_is_still_told(tmp_path):
    failed = {"step": 4, "name": "loss", "not_run": None, "seconds": 1.0, "covers": ["x"], "evidence": {}, "problems": [],
              "quantities": [Quantity("loss", [1], port_error=1.0).fail("wrong").as_json()]}  # fmt: skip
    now = {name: name for name in SAME}
    (tmp_path / "alignment.json").write_text(
        json.dumps(now | {"date": "d", "steps": [failed], "first_divergence": {"stage": "loss"}})
    )
    kept = kept_of(tmp_path, now, {3})
    assert [result.failed for result in kept.with_([StepResult(3, "metric", [Quantity("a", [])])])] == [False, True]
    assert kept.failure == {"first_divergence": {"stage": "loss"}} and kept.results[0].quantities[0].port_error == 1.0
    assert kept_of(tmp_path, now, {4}) == Kept() and kept_of(tmp_path / "none", now, {3}) == Kept()
    for name in SAME:
        assert f"other {name}" in kept_of(tmp_path, now | {name: "?"}, {3}).dropped
    (tmp_path / "alignment.json").write_text("[]")
    assert kept_of(tmp_path, now, {3}) == Kept()
    assert without_steps(["--steps", "3", "--seed", "1", "--steps=4", "--keep"]) == ["--seed", "1"]


def test_a_kept_step_says_that_it_is_older_than_the_source(tmp_path, monkeypatch):
    def kept():
        return kept_of(tmp_path, now, {3}).results[0]

    monkeypatch.chdir(tmp_path)
    held = {"step": 4, "name": "loss", "not_run": None, "seconds": 1.0, "covers": [], "evidence": {}, "problems": [],
            "quantities": [Quantity("loss", [1]).as_json()]}  # fmt: skip
    files = [tmp_path / name for name in ("loss.py", "model.py")]
    for file in files:
        file.write_text("rate = 1\n")
        monkeypatch.setitem(sys.modules, f"held_{file.stem}", SimpleNamespace(__file__=str(file)))
    assert not any(name.startswith(("alignment", "numpy")) or "site-packages" in name for name in sources())
    now = {name: name for name in SAME} | {"date": "d", "steps": [held], "sources": {"d": sources()}}
    (tmp_path / "alignment.json").write_text(json.dumps(now))
    context = SimpleNamespace(titles=lambda: ("Paddle", "PyTorch"), model="net", recipe=None, recipe_name="")
    assert {"loss.py", "model.py"} <= set(sources()) and kept().changed == [] and not table.not_run([kept()])
    assert table.verdict(context, [kept()], [4]) == "The Paddle net is the PyTorch net."
    files[0].write_text("rate = 2\n")
    assert table.not_run([kept()]) == ["step 4 loss was run before loss.py was changed: run it again (--steps 4)"]
    said = table.verdict(context, [kept()], [4])
    assert said == "Passed, as far as step 4 (older than the source) can tell; run the older ones again."
    files[1].unlink()
    assert "before loss.py and 1 other file were changed" in table.not_run([kept()])[0]
    files[0].write_text("rate = 1\n")
    files[1].write_text("rate = 1\n")
    assert kept().changed == [], "put back as it was: what the step says holds"


def step(name="loss", **arrays):
    """A step's result with these arrays of the port beside zeros of the reference, and a row for each, of which none failed."""
    result = StepResult(4, name)
    for key, value in arrays.items():
        result.record(key, np.float32(value) * np.ones(2, np.float32), np.zeros(2, np.float32), further=key.startswith("far"))
        result.quantities.append(Quantity(key, [2], port_error=1e-7, reference_error=1e-7, float64_diff=1e-15))
    return result


def test_a_log_has_both_verdicts_of_every_key_of_the_records_and_no_other():
    result = step(near=1e-6, off=1e-3, far=1.0)
    result.quantities.append(Quantity("a row without numbers", []))
    lines = [line.partition("INFO: ")[2] for line in diff_log(result).splitlines()]
    assert [line for line in lines if line.endswith(": ")] == ["near: ", "off: ", "far: "] and "not comparable" not in "".join(
        lines
    )
    verdicts = [line.strip().split(", ")[0] for line in lines if line.startswith("\t")]
    guide, ours = "mean diff: check passed: ", "this project: check passed: "
    assert verdicts == [f"{guide}True", f"{ours}True", f"{guide}False", f"{ours}True", f"{guide}False", f"{ours}True"]
    assert "float32 error 1.0 x its noise floor" in lines[2] and lines[-2:] == [
        "mean diff of at most 1e-05: failed",
        "diff check passed",
    ]
    result.quantities[0].fail("because")
    lines = [line.partition("INFO: ")[2] for line in diff_log(result).splitlines()]
    assert lines[2] == "\tthis project: check passed: False, because" and "failed: near: because" in lines
    assert lines[-1] == "diff check failed"


def test_a_mean_difference_is_reprod_logs():
    rng = np.random.default_rng(0)
    a, b = (rng.random((3, 4), dtype=np.float32) for _ in range(2))
    assert mean_difference(a, b) == reprod_log.compare.compute_diff({"x": a}, {"x": b})["x"]["mean"]
    assert mean_difference(np.uint8([1]), np.uint8([2])) == 1.0, "no wrap around"
    assert mean_difference(np.array(["a", "b"]), np.array(["a", "c"])) == 0.5
    assert mean_difference(a, None) is None and mean_difference(a, b[:1]) is None and mean_difference(a[:0], b[:0]) == 0


def test_extreme_losses_have_a_record_of_their_own():
    logits = np.random.default_rng(0).standard_normal((6, 11)).astype(np.float32)
    extreme = {case.name for case in loss_cases(logits, np.arange(6), 0) if case.extreme}
    assert extreme == {"gap500", "gap500_smoothed", "gap10000", "offset", "levels"}


def test_the_launchers_logs_are_ignored_by_git():
    """The last two are files that git must see."""
    names = ["log/workerlog.0", "log/default.abc.log", "result_demo/reprod_log_1.npy", "docs/log.md", "alignment/record.py"]
    found = subprocess.run(["git", "check-ignore", *names], cwd=ROOT, capture_output=True, text=True).stdout.split()
    assert found == names[:3]


@pytest.mark.slow
def test_the_forward_record_of_a_default_run_passes_reprod_logs_own_threshold(tmp_path):
    """As the guide's example, which has the logits of what it is given; the noise of float32 has a record of its own."""
    assert run(["--steps", "1", "--result-dir", str(tmp_path)], ROOT / "projects/mobilenetv3/project.py") == 0
    helper = reprod_log.ReprodDiffHelper()
    helper.compare_info(*(helper.load_info(str(tmp_path / f"forward_{side}.npy")) for side in ("paddle", "ref")))
    found = {name: float(one["mean"]) for name, one in helper.diff_dict.items()}
    assert len(found) >= 4 and sum("logits" in name for name in found) == 3 and max(found.values()) <= 1e-6, found
    more = load_record(tmp_path / "forward_more_ref.npy")
    assert {"eval.fake.b2.logits", "eval.fake.b2.features.0"} <= set(more)
