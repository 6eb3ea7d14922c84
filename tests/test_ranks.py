"""Ranks of a real launch against the reference in one process: the sound port passes, mistakes are located to tensor and rank."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from alignment import cli
from alignment.comparisons.comparison import compare, explained
from alignment.comparisons.context import Context
from alignment.comparisons.explain import locate
from alignment.comparisons.ranks import judge
from alignment.comparisons.ranks.judge import OnRanks, differences, of_tensors, on_ranks
from alignment.comparisons.ranks.plan import RankCase, by_rank, metric_counts, sizes, summed, write_record
from alignment.comparisons.ranks.ranks import RanksTrial, lacks_ranks
from alignment.comparisons.result import StepResult
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
    assert explained(sound) is None and sound.raised is None and sound.not_run == ""
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
    assert results["rank_1_raises"].raised.measured.startswith("ValueError: rank 1 has had enough, at local.seed0, update 0")
    assert results["rank_1_hangs"].raised.hint == "rank 1 did not answer"
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
        assert "Passed, as far as step 7 (in part) can tell" in out


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
        (("--steps", "7"), "--steps '7': the steps are 1 to 6 and 8"),
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


# --- records on numbers, without a launch -----------------------------------------------------------------------------------

RANKS = 2


def recorded(expected):
    """What two sound ranks would write of a case."""
    evaluated = np.array_split(np.arange(sizes(RANKS)[1]), RANKS)
    total = np.sum([metric_counts(rank) for rank in range(RANKS)], axis=0)
    records = {number: [{**record} for record in of_ranks] for number, of_ranks in by_rank(expected, RANKS).items()}
    records["pictures"] = [{"pictures": {"labels": labels}} for labels in evaluated]
    for number in ("0", "evaluation"):
        for record in records[number]:
            record["state"] = {**record.get("state", {}), **record["statistics"]}
            record["figures"] = {name: array for name, array in record["figures"].items() if name != "epoch"}
    for record in records["evaluation"]:
        record["figures"]["counts"] = total
    return records


def made_up():
    """One update of two ranks on made-up numbers, as the reference would have it."""
    rng, flat = np.random.default_rng(0), {}
    state = lambda: {"a.weight": rng.normal(size=(5, 6)), "b.weight": rng.normal(size=40)}  # noqa: E731
    statistics = [{"n.running_mean": rng.normal(size=4)} for _ in range(RANKS)]
    start, weights, shares = state(), state(), [state() for _ in range(RANKS)]
    classes = sizes(RANKS)[0]
    confusion = np.diag((np.arange(classes) < sizes(RANKS)[1]).astype(np.int64))
    figures = {"samples": np.array(sizes(RANKS)[1]), "loss": np.array(0.5), "confusion": confusion}
    records = {
        "start": [{"state": start}] * RANKS,
        "0": [
            {
                "pixels": {"0": rng.normal(size=(2, 3, 4, 4))},
                "labels": {"0": np.array([2 * rank, 2 * rank + 1])},
                "figures": {"epoch": np.array(0), "loss": np.array(1.0 + rank), "rate": np.array(0.1)},
                "gradients": summed(shares),
                "share0": shares[rank],
                "state": weights,
                "statistics": statistics[rank],
            }
            for rank in range(RANKS)
        ],
        "evaluation": [{"statistics": summed(statistics, 0.5), "figures": figures}] * RANKS,
    }
    for number, of_ranks in records.items():
        for rank, record in enumerate(of_ranks):
            flat |= {f"{number}/{rank}/{part}/{name}": a for part, of_part in record.items() for name, a in of_part.items()}
    return flat


@pytest.fixture
def ranks_of(tmp_path):
    """Write what ranks have, changed, and compare; gives the result and how to break what the ranks wrote."""

    def run(change=lambda records: None, lost=()):
        case, expected = RankCase("local", TrainConfig(batch_size=2), 1, evaluates=True), made_up()
        records = recorded(expected)
        change(records)
        for number, of_ranks in records.items():
            for rank, record in enumerate(of_ranks):
                if (number, rank) not in lost:
                    write_record(tmp_path / f"{case.name}.{number}.rank{rank}.safetensors", record)
        result = StepResult(7, "ranks")
        one = OnRanks(Context(PROJECT), case, RANKS, expected, tmp_path)
        return result, one, compare(one.context, result, one)

    return run


def test_records_of_sound_ranks_pass(ranks_of):
    result, one, made = ranks_of()
    assert one.complete(made.port) and explained(result) is None
    assert result.passed and len(result.quantities) > 20, [q for q in result.quantities if not q.passed]


def local_gradients(records):
    for rank, record in enumerate(records["0"]):
        record["gradients"] = summed([record["share0"]], RANKS)
        record["state"] = {**record["state"], "a.weight": record["state"]["a.weight"] + 1e-3 * (rank + 1)}


def moved(records):
    records["start"][1] = {"state": {name: array + 1 for name, array in records["start"][1]["state"].items()}}


def set_figure(name, value, number="0"):
    return lambda records: records[number][1]["figures"].update({name: np.array(value)})


def overlapping(records):
    records["0"][1]["labels"] = records["0"][0]["labels"]


def evaluated_twice(records):
    records["pictures"][1] = records["pictures"][0]


def own_statistics(records):
    for rank, record in enumerate(records["evaluation"]):
        record["state"] = {**records["0"][rank]["statistics"]}


BROKEN_RECORDS = {
    "gradients": (local_gradients, Kind.GRADIENT_NOT_REDUCED, "gradient of every tensor on every rank"),
    "start": (moved, Kind.NOT_BROADCAST, "starting weights of every tensor on rank 1"),
    "rate": (set_figure("rate", 0.2), Kind.LR_SCALED, "learning rate on rank 1"),
    "pictures": (overlapping, Kind.NOT_SHARDED, "pictures on rank 1"),
    "evaluated": (evaluated_twice, Kind.NOT_SHARDED, "evaluated pictures on rank 1"),
    "statistics": (own_statistics, Kind.STATISTICS_OF_ONE_RANK, "evaluated statistics of n.running_mean on every rank"),
    "counts": (set_figure("counts", metric_counts(1), "evaluation"), Kind.RANKS_NOT_MERGED, "TopKAccuracy.all_reduce on rank 1"),
    "samples": (set_figure("samples", 3, "evaluation"), Kind.UNKNOWN, "evaluation on rank 1"),
}


@pytest.mark.parametrize("case", BROKEN_RECORDS)
def test_what_the_ranks_wrote_is_read_once_and_explains_itself(ranks_of, case, monkeypatch):
    change, kind, location = BROKEN_RECORDS[case]
    result, _, _ = ranks_of(change)
    assert result.failed
    monkeypatch.setattr(judge, "read_records", lambda *_: pytest.fail("the ranks are measured once"))
    first = explained(result)
    assert (first.stage, first.location, first.kind) == ("ranks", location, kind), first.line()


def test_ranks_that_ended_early_are_judged_as_far_as_they_came(ranks_of):
    result, one, made = ranks_of(local_gradients, lost=[("evaluation", 0)])
    assert not one.complete(made.port) and explained(result).kind is Kind.GRADIENT_NOT_REDUCED
    assert not any("evaluation.statistics" in row.name for row in result.quantities)


def test_a_refusal_is_a_measurement(tmp_path):
    result = StepResult(7, "ranks")
    for kind, found in (("sync", False), ("local", True)):
        case = RankCase(kind, TrainConfig(), 1)
        (tmp_path / f"{case.name}.refused").write_text("no such device")
        compare(Context(PROJECT), result, OnRanks(Context(PROJECT), case, RANKS, {}, tmp_path))
        first = explained(result)
        assert (first is not None) is found
    assert first.hint == "local.seed0: the port refuses to train: no such device"


def test_places_and_differences():
    assert (on_ranks([0, 1], 2), on_ranks([1], 2), on_ranks([1, 2], 4)) == ("every rank", "rank 1", "ranks 1, 2")
    state = {"a": np.ones(3), "b": np.ones(2), "zero": np.zeros(2)}
    assert of_tensors({1: ["a", "b"]}, state) == "every tensor"
    assert of_tensors({0: ["a"]}, state) == "a" and of_tensors({0: ["a"], 1: ["zero"]}, state) == "a and 1 more"
    found = {"a": np.ones(3) + 1e-9, "b": np.array([1.0, np.nan])}
    assert differences(found, state, state) == {"a": pytest.approx(1e-9, rel=1e-3), "b": np.inf, "zero": np.inf}
