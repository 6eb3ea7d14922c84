"""What the verdict says that it rests on: nothing that was not compared is implied."""

from __future__ import annotations

import dataclasses
import json

import pytest

from alignment import coverage
from alignment.cli import main
from alignment.comparisons.result import StepResult
from alignment.comparisons.run.recipe import topics as recipe_topics
from alignment.comparisons.topics import TOPICS
from mobilenetv3_common.train_config import TrainConfig
from tests.conftest import ROOT

OWN = (ROOT / "docs" / "examples" / "own_project.py").read_text()


def covered_by(context, *results):
    context = context.but(project=dataclasses.replace(context.project, witnesses=()))  # what steps say, without what is shared
    with coverage.watched(context) as seen:
        pass
    return coverage.coverage_of(context, results, seen)


def step(number, *topics):
    return StepResult(number, "x", problems=["ran"], covers=list(topics))


def test_what_no_step_compared_is_named(context):
    found = covered_by(context(), step(1, "training mode"), step(5, "sgd", "cosine schedule"))
    assert found.covered == ["training mode", "sgd", "cosine schedule"]
    for topic in ("initialisation", "rmsprop", "step schedule", "dilated=True", "width_mult", "ranks", "bfloat16"):
        assert topic in found.not_covered, topic
    assert "cosine schedule" not in found.not_covered and "mixup" in found.elsewhere
    assert "mobilenetv3_paddle.deploy" in found.packages
    assert "not covered: " in "\n".join(found.lines()) and "mixup" not in "\n".join(found.lines())


def test_an_option_is_covered_by_the_value_that_was_compared(context):
    found = covered_by(context(), step(1, "dilated=True", "width_mult=0.5"))
    assert not {"dilated=True", "width_mult"} & set(found.not_covered)
    assert "reduced_tail=True" in found.not_covered
    assert "dilated=True" in covered_by(context(), step(1, "dilated=False")).not_covered, "the default shows nothing"


def test_a_step_that_did_not_run_covers_nothing(context):
    lazy = StepResult(5, "backward", not_run="no train part", covers=["sgd"])
    assert "sgd" not in covered_by(context(), lazy).covered


def test_functions_that_ran_are_told_from_those_that_did_not(context):
    from mobilenetv3_paddle.metric import TopKAccuracy

    with coverage.watched(context()) as seen:
        total = TopKAccuracy((1,))
        total.merge(TopKAccuracy((1,)))
        assert (total.ks, total.count) == ((1,), 0), "the first call is made, too"
    found = coverage.coverage_of(context(), [step(3)], seen)
    name = "mobilenetv3_paddle.metric.accuracy.TopKAccuracy"
    assert {f"{name}.merge", f"{name}.__init__"} <= set(found.run)
    assert {f"{name}.all_reduce", "mobilenetv3_paddle.models.mobilenetv3.make_divisible"} <= set(found.not_run)
    assert not any(".deploy." in other or "._" in other.replace("__", "") for other in [*found.run, *found.not_run])
    assert not any(other.startswith("paddle.") for other in found.not_run), "what the port imports is not its own"
    assert f"not run: {len(found.not_run)} of {len(found.run) + len(found.not_run)} public functions" in "\n".join(found.lines())


def test_functions_are_as_they_were_afterwards_whatever_they_raise(context):
    from mobilenetv3_paddle import loss, metric

    before = {f: f.__code__ for f in (metric.top_k_correct, loss.CrossEntropyLoss.__init__, metric.TopKAccuracy.compute)}
    with coverage.watched(context()) as seen, pytest.raises(ValueError, match="label_smoothing"):
        loss.CrossEntropyLoss(2.0)  # its constructor calls super(), which needs the class in its closure
    assert "mobilenetv3_paddle.loss.cross_entropy.CrossEntropyLoss.__init__" in seen.called
    assert {f: f.__code__ for f in before} == before


@pytest.mark.parametrize(
    ("changes", "topic"),
    [
        ({"ema_decay": 0.9}, "moving average"),
        ({"accumulate": 2}, "accumulation"),
        ({"warmup_epochs": 1, "epochs": 2}, "warm-up"),
        ({"auto_augment": "ra"}, "randaugment"),
        ({"freeze_bn": True}, "freezing"),
        ({"grad_checkpointing": True}, "gradient checkpointing"),
        ({"bias_weight_decay": 0.0}, "bias weight decay"),
        ({"optimizer": "adamw"}, "adamw"),
        ({"lr_schedule": "step"}, "step schedule"),
    ],
)
def test_a_recipe_covers_what_it_has(changes, topic):
    assert topic in recipe_topics(TrainConfig(**changes)) and topic not in recipe_topics(TrainConfig())
    assert topic in {known for topics in TOPICS.values() for known in topics}


def test_the_command_says_it_everywhere(tmp_path, capsys):
    (tmp_path / "own.py").write_text(OWN)
    assert main(["run", str(tmp_path / "own.py"), "--steps", "1", "--result-dir", str(tmp_path / "r")]) == 0
    out = capsys.readouterr().out
    assert "\ncovered: " in out and "\nnot covered: " in out and "initialisation" in out
    report = json.loads((tmp_path / "r" / "alignment.json").read_text())["coverage"]
    assert "training mode" in report["covered"] and "bfloat16" in report["not_covered"]
    assert any(name.endswith("Port.forward") for name in report["functions_run"])
    page = (tmp_path / "r" / "report.html").read_text()
    assert "What the verdict rests on" in page and "bfloat16" in page


@pytest.mark.parametrize(("shown", "word"), [(True, "yes"), (False, "undecided")])
def test_final_accuracies_have_a_line_of_their_own(shown, word):
    topics = ["resumed run", coverage.BY_SEEDS]
    lines = coverage.Coverage(covered=topics if shown else topics[:1], not_covered=[] if shown else topics[1:]).lines()
    assert lines == ["covered: resumed run", f"final accuracies equal within the margin: {word}"]
    assert "final" not in "".join(coverage.Coverage(covered=["resumed run"], elsewhere=topics[1:]).lines())


def test_what_ranks_called_was_run(context):
    ranks = StepResult(7, "ranks", problems=["x"], called=["mobilenetv3_paddle.metric.accuracy.TopKAccuracy.all_reduce"])
    with coverage.watched(context()) as seen:
        pass
    found = coverage.coverage_of(context(), [ranks], seen)
    assert found.run == ranks.called and ranks.called[0] not in found.not_run
    assert coverage.coverage_of(context(), [step(1)], seen).run == []
