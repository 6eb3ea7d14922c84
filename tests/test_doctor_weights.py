"""tools/doctor.py weights: what moved between two states, in both frameworks."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from alignment_doctor.cli import main
from alignment_doctor.findings import Verdict, checks_of, examine
from alignment_doctor.weights import checks
from alignment_doctor.weights.subject import load_pair
from mobilenetv3_common.checkpoint import Checkpoint, write_checkpoint
from mobilenetv3_common.weights import as_paddle, write_state

CONV, LINEAR, NORM = "features.0.0.weight", "classifier.0.weight", "features.0.1"


@pytest.fixture(params=["ref", "paddle"])
def pair(request, small_state, tmp_path):
    """Writes two checkpoints of a run, the second with every tensor moved a little and then changed; returns what is found."""
    own = as_paddle if request.param == "paddle" else lambda state: state

    def write(name, update, state, **config):
        arrays = {f"model/{key}": value for key, value in own(state).items()}
        path = tmp_path / f"{name}.safetensors"
        write_checkpoint(path, Checkpoint(arrays, {"framework": request.param, "update": update, "config": config}))
        return path

    def examined(change=lambda before, after: None, updates=(4, 8), **config):
        rng = np.random.default_rng(0)
        before = {name: np.array(array, dtype=np.float32) for name, array in small_state.items()}
        after = {n: (a * (1 + 0.01 * rng.standard_normal(a.shape)) + 1e-6).astype(np.float32) for n, a in before.items()}
        change(before, after)
        subject = load_pair(write("a", updates[0], before, **config), write("b", updates[1], after, **config))
        found = {one.check.id: one.outcome for one in examine(checks, subject)}
        return {id: outcome.where for id, outcome in found.items() if outcome.verdict is Verdict.FOUND}

    return examined


def test_a_sound_pair_has_no_problem(pair):
    assert pair() == {}
    assert len(checks_of(checks)) == 9


def still(before, after):
    after[CONV] = before[CONV]


def in_evaluation_mode(before, after):
    for name in after:
        if "running_" in name:
            after[name] = before[name]


def broken(before, after):
    after[LINEAR][0, 0] = np.nan


def zero(before, after):
    after[LINEAR][:] = before[LINEAR][:] = 0


def exploded(before, after):
    after[CONV] *= 100


def shrunk(before, after):
    after[CONV] *= 0.001


def gone(before, after):
    del after["features.0.1.bias"]


@pytest.mark.parametrize(
    ("change", "id", "place"),
    [
        (still, "weights.never_moved", CONV),
        (in_evaluation_mode, "weights.statistics", f"{NORM}."),
        (broken, "weights.not_finite", LINEAR),
        (exploded, "weights.exploded", CONV),
        (shrunk, "weights.shrunk", CONV),
        (gone, "weights.same_model", "features.0.1.bias: missing in b.safetensors"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_planted_problem_is_found_and_nothing_else(pair, change, id, place):
    found = pair(change)
    assert set(found) == {id}
    assert any(text.startswith(place) for text in found[id])


def test_a_weight_of_zeros_is_found(pair):
    found = pair(zero)
    assert set(found) == {"weights.constant", "weights.never_moved"} and found["weights.constant"] == (
        f"{LINEAR}: every value is 0",
    )


def test_checkpoints_in_the_wrong_order_are_found(pair):
    assert set(pair(updates=(8, 4))) == {"weights.order_of_states"}


def test_frozen_batchnorm_must_keep_still_and_may(pair):
    def frozen(before, after):
        for name in after:
            if name.startswith(tuple(layer.removesuffix("running_mean") for layer in before if layer.endswith("running_mean"))):
                after[name] = before[name]

    assert pair(frozen, freeze_bn=True) == {}
    assert set(pair(freeze_bn=True)) == {"weights.frozen_moved"}


def test_a_file_of_one_framework_is_compared_with_one_of_the_other(small_state, tmp_path):
    write_state(tmp_path / "a.pdparams", as_paddle(small_state))
    moved = {name: array + np.float32(0.001) for name, array in small_state.items()}
    write_state(tmp_path / "b.pth", moved)
    subject = load_pair(tmp_path / "a.pdparams", tmp_path / "b.pth")
    assert len(subject.tensors) == len(small_state)
    assert not any(one.is_problem for one in examine(checks, subject))


def test_the_command_writes_figures_of_every_tensor(small_state, tmp_path, capsys):
    write_state(tmp_path / "a.safetensors", small_state)
    write_state(tmp_path / "b.safetensors", {name: array * 2 + 1e-6 for name, array in small_state.items()})
    figures, page = tmp_path / "f.json", tmp_path / "f.html"
    status = main(["weights", *(str(tmp_path / f"{n}.safetensors") for n in "ab"), "--json", str(figures), "--html", str(page)])
    told = json.loads(figures.read_text())["facts"]["tensors"][CONV]
    assert told["norm_after"] == pytest.approx(2 * told["norm_before"], rel=1e-3)
    assert CONV in page.read_text() and status == 0
    assert "No problem found" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (("nowhere.pth", "nowhere.pth"), "no such weights file"),
        (("lite_data", "lite_data"), "lite_data holds no latest.safetensors"),
        (("README.md", "README.md"), "unknown kind of weights file"),
    ],
)
def test_bad_input_is_one_line_and_status_2(files, said, capsys):
    assert main(["weights", *files]) == 2
    printed = capsys.readouterr()
    assert said in printed.err and printed.err.count("\n") == 1 and not printed.out


def test_a_pipe_is_no_file_of_weights(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe.safetensors")
    assert main(["weights", str(tmp_path / "pipe.safetensors"), str(tmp_path / "pipe.safetensors")]) == 2
    assert "no such weights file" in capsys.readouterr().err
