"""Ranks of a real launch against the reference in one process: the sound port passes, mistakes are located to tensor and rank."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from alignment import cli
from alignment.comparisons.context import Context
from alignment.comparisons.explain import locate
from alignment.comparisons.ranks import hints
from alignment.comparisons.ranks.expected import RightUpdate, summed
from alignment.comparisons.ranks.judge import differences, of_tensors, on_ranks
from alignment.comparisons.ranks.plan import RankCase
from alignment.comparisons.ranks.ranks import RanksTrial, lacks_ranks
from alignment.kinds import Kind
from mobilenetv3_common.train_config import TrainConfig
from projects.mobilenetv3.faults import FAULTS
from projects.mobilenetv3.project import PROJECT
from tests.breaking import faults_of
from tests.conftest import ROOT

FILE = ROOT / "projects" / "mobilenetv3" / "project.py"
QUICK = ("one_tensor_not_reduced", "variance_of_each_rank", "same_dropout_on_every_rank", "counts_not_reduced")
BROKEN = ("rank_1_hangs", "rank_1_raises")


@pytest.fixture(scope="module")
def trial():
    return RanksTrial(Context(PROJECT), 2)


def check(fault, result):
    assert result.failed
    first = locate(Context(PROJECT), [result]).first
    assert (first.stage, first.location, first.kind) == ("ranks", fault.location, fault.hint), first.line()
    assert first.measured


@pytest.mark.slow
def test_two_ranks_of_the_sound_port_are_one_process_and_mistakes_are_found(trial):
    results = dict(trial.run(FILE, (None, *QUICK)))
    sound = results.pop(None)
    assert sound.passed, [f"{q.name}: {q.reason}" for q in sound.quantities if not q.passed] + sound.problems
    assert sound.place is None and sound.not_run == ""
    assert {"ranks", "2 ranks", "accumulation", "gradient clipping", "moving average", "evaluation loop"} <= {*sound.covers}
    assert "synchronised BatchNorm" in sound.covers
    names = {q.name.split(".")[2] for q in sound.quantities}
    assert {"weights", "update0", "update1", "evaluation"} <= names | {q.name.split(".")[3] for q in sound.quantities}
    for name, result in results.items():
        check(FAULTS[name], result)


@pytest.mark.slow
@pytest.mark.weekly
def test_every_fault_of_ranks_is_located(trial):
    names = [name for name in faults_of(7) if name not in (*QUICK, *BROKEN)]
    assert len(names) >= 12
    for name, result in trial.run(FILE, names):
        check(FAULTS[name], result)


@pytest.mark.slow
def test_a_rank_that_raises_or_gives_no_answer_is_a_finding(trial):
    results = dict(trial.run(FILE, (*BROKEN, None), patience=8.0))
    for name in BROKEN:
        check(FAULTS[name], results[name])
    assert results["rank_1_raises"].place.measured.startswith("ValueError: rank 1 has had enough, at local.seed0, update 0")
    assert results["rank_1_hangs"].place.hint == "rank 1 did not answer"
    assert results[None].passed, "what is run after them is sound"


PORT_IN_TORCH = """
import mobilenetv3_ref.data, mobilenetv3_ref.loss, mobilenetv3_ref.metric, mobilenetv3_ref.models, mobilenetv3_ref.train
from alignment.frameworks.torch import Torch
from alignment.project import ModelSpec, Project, Side
from types import SimpleNamespace

{change}
parts = dict(data=mobilenetv3_ref.data, metric=mobilenetv3_ref.metric, loss=mobilenetv3_ref.loss, train=mobilenetv3_ref.train)
small = mobilenetv3_ref.models.mobilenet_v3_small
options = lambda recipe: {{"dropout": recipe.dropout, "width_mult": recipe.width_mult}}
spec = ModelSpec(small, small, train_options=options, last_layer="classifier.3")
PROJECT = Project("own", Side(Torch(), **parts), Side(Torch(), **parts), {{"small": spec}})
"""
UNREDUCED = "mobilenetv3_ref.train.backend.parallel = lambda model, ranks: model"


@pytest.mark.slow
@pytest.mark.parametrize(("change", "status"), [("", 0), (UNREDUCED, 1)], ids=["sound", "broken"])
def test_a_port_in_torch_runs_under_torchrun(change, status, tmp_path, capsys):
    (tmp_path / "own.py").write_text(PORT_IN_TORCH.format(change=change))
    arguments = ["run", str(tmp_path / "own.py"), "--ranks", "3", "--steps", "7", "--result-dir", str(tmp_path)]
    assert cli.main(arguments) == status
    out = capsys.readouterr().out
    assert "sync: the port refuses it: --sync-bn: torch's SyncBatchNorm needs a GPU" in out
    report = json.loads((tmp_path / "alignment.json").read_text())
    (step,) = report["steps"]
    assert (step["step"], step["name"], step["passed"]) == (7, "ranks", status == 0)
    page = (tmp_path / "report.html").read_text()
    assert "7 ranks" in page and "the port refuses it" in page
    if status:
        assert "ranks: gradient of every tensor on every rank: each rank has the gradients of its own pictures" in out
        assert report["first_divergence"]["location"] == "gradient of every tensor on every rank"
    else:
        assert "Passed, as far as step(s) 7 (in part) can tell" in out


REFUSING = """
from mobilenetv3_common.errors import UserError


def refuse(config, ranks):
    if ranks.world_size > 1:
        raise UserError("rank 2 is outside a world of 1")


mobilenetv3_ref.train.backend.check_config = refuse
"""


@pytest.mark.slow
def test_a_port_that_refuses_to_train_on_ranks_at_all_has_failed(tmp_path, capsys):
    (tmp_path / "own.py").write_text(PORT_IN_TORCH.format(change=REFUSING))
    assert cli.main(["run", str(tmp_path / "own.py"), "--ranks", "2", "--steps", "7", "--result-dir", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "ranks: every rank: local.seed0: the port refuses to train: rank 2 is outside a world of 1" in out


# --- what is given -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--ranks", "1"), "--ranks 1: give 2 to 8 processes"),
        (("--ranks", "0"), "--ranks 0: give 2 to 8 processes"),
        (("--ranks", "64"), "--ranks 64: give 2 to 8 processes"),
        (("--ranks", "2", "--device", "gpu"), "--ranks 2 runs on the CPU: leave out --device gpu"),
        (("--steps", "7"), "--steps '7': the steps are 1 to 6"),
        (("--inject", "hook_lost"), "--inject hook_lost: this fault shows only on several ranks: give --ranks 2"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(flags, told, capsys):
    assert cli.main(["run", str(FILE), *flags]) == 2
    assert capsys.readouterr().err == f"error: {told}\n"


@pytest.mark.parametrize("flags", [("--steps", "3"), ("--models", "mobilenet_v3_small"), ("--localize",)])
def test_the_benchmark_of_ranks_refuses_what_it_would_not_heed(flags, capsys):
    assert cli.main(["bench", str(FILE), "--ranks", "2", *flags]) == 2
    assert "does not go with --ranks" in capsys.readouterr().err


def test_a_project_without_ranks_says_why():
    def lacks(**changes):
        return lacks_ranks(Context(dataclasses.replace(PROJECT, port=dataclasses.replace(PROJECT.port, **changes))))

    assert lacks_ranks(Context(PROJECT)) == ""
    without = SimpleNamespace(**{name: value for name, value in vars(PROJECT.port.train).items() if name != "started"})
    assert "no `started`" in lacks(train=without)
    assert lacks(loss=None) == "the port has no loss part"

    class Unlaunched(type(PROJECT.port.framework)):
        def launch(self, processes: int, logs: Path) -> list[str]:
            return []

    assert lacks(framework=Unlaunched()) == "the engine knows no launcher of Paddle"


# --- hypotheses on numbers --------------------------------------------------------------------------------------------------


def gradients(clip_norm=None):
    """An update of two ranks and two micro-batches with random shares."""
    rng = np.random.default_rng(0)
    shares = [[{"a": rng.normal(size=(5, 6)), "b": rng.normal(size=40)} for _ in range(2)] for _ in range(2)]
    return RankCase("local", TrainConfig(clip_norm=clip_norm), 1), RightUpdate(shares=shares)


def test_weights_of_micro_batches_are_told_where_no_hypothesis_fits():
    case, update = gradients()
    (a, b), (c, d) = update.shares
    found = [summed([summed([a], 3.0), b, c, summed([d], 0.5)])] * 2
    kind, words = hints.gradient_hint(case, update, found, {0: ["a", "b"]})
    assert kind is Kind.RANKS_WEIGHTED and words == (
        "on rank 0 the micro-batches count rank 0's 3 and 1, rank 1's 1 and 0.5 times, expected 1 each"
    )
    noise = [{name: array + 0.1 for name, array in found[0].items()}] * 2
    assert hints.gradient_hint(case, update, noise, {0: ["a", "b"]}) == (Kind.UNKNOWN, "")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_hypothesis_must_explain_every_wrong_tensor(rank):
    case, update = gradients()
    own = summed([of_ranks[rank] for of_ranks in update.shares], 2)
    assert hints.gradient_hint(case, update, [own, own], {rank: ["a", "b"]})[0] is Kind.GRADIENT_NOT_REDUCED
    other = {**own, "b": own["b"] * 1.001}
    assert hints.gradient_hint(case, update, [other, other], {rank: ["a", "b"]})[0] is not Kind.GRADIENT_NOT_REDUCED


def test_what_is_evaluated_twice_or_never_is_told():
    assert hints.evaluated_hint([np.arange(4), np.arange(4, 7)], 7) == ([], (Kind.UNKNOWN, ""))
    assert hints.evaluated_hint([np.arange(4), np.arange(3, 7)], 7)[1][0] is Kind.PADDING_COUNTED
    assert hints.evaluated_hint([np.arange(4), np.arange(4)], 4)[1][0] is Kind.NOT_SHARDED
    assert hints.evaluated_hint([np.arange(4), np.arange(4, 6)], 7) == (
        [0, 1],
        (Kind.BATCH_DROPPED, "1 of 7 pictures are left out"),
    )


def test_places_and_differences():
    assert (on_ranks([0, 1], 2), on_ranks([1], 2), on_ranks([1, 2], 4)) == ("every rank", "rank 1", "ranks 1, 2")
    state = {"a": np.ones(3), "b": np.ones(2), "zero": np.zeros(2)}
    assert of_tensors({1: ["a", "b"]}, state) == "every tensor"
    assert of_tensors({0: ["a"]}, state) == "a" and of_tensors({0: ["a"], 1: ["zero"]}, state) == "a and 1 more"
    found = {"a": np.ones(3) + 1e-9, "b": np.array([1.0, np.nan])}
    assert differences(found, state, state) == {"a": pytest.approx(1e-9, rel=1e-3), "b": np.inf, "zero": np.inf}
