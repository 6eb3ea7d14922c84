"""A check that cannot fail is a defect: breakages of what step 6 compares, each of which must fail the step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import paddle
import pytest

from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult
from alignment.comparisons.run import curves, first_updates, runs, train
from alignment.comparisons.run.evaluation import RunEvaluation
from alignment.faults import injected
from mobilenetv3_common.digits import write_digits
from mobilenetv3_paddle.models.dropout import SharedDropout
from projects.mobilenetv3.faults import FAULTS
from projects.mobilenetv3.faults.models import bfloat16_inside
from projects.mobilenetv3.faults.training import built, configured
from projects.mobilenetv3.project import PROJECT
from tests.breaking import faults_of, first_finding

SHORT = train.Plan(iterations=5, draws=2, seeds=1, epochs=1, train_per_class=4, val_per_class=2)


# Where the step sees what the faults do, and others.
WHERE = {
    "learning_rate_doubled": "learning_rates",
    "recipe_without_clipping": "curve.float64",
    "run_without_smoothing": "curve.float32",
    "run_without_dropout": "curve.float32",
    "trained_in_evaluation_mode": "curve.float32",
    "order_of_another_seed": "batches.images",
    "run_never_steps_its_schedule": "learning_rates",
    "gradients_kept": "curve.float32",
    "evaluated_wrong": "final_top1",
}
OTHERS = {
    "schedule by epoch": (lambda: configured(PROJECT, lr_unit="epoch"), "learning_rates"),
    "crop scale": (lambda: configured(PROJECT, min_crop_scale=0.7), "batches.images"),
    "weight decay left out": (lambda: configured(PROJECT, weight_decay=0.0), "curve.float64"),
    "eps of AdamW": (lambda: configured(PROJECT, eps=2.0**-11), "curve.float64"),
    "bfloat16 inside": (lambda: built(PROJECT, lambda run: bfloat16_inside(run.model)), "curve.float32"),
}


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The reference's runs, made once: every breakage is the port's."""
    folder = write_digits(tmp_path_factory.mktemp("digits"), SHORT.train_per_class, SHORT.val_per_class)
    context = Context(PROJECT)
    return str(folder), train.RunTrial(context, SHORT, str(folder)).measure(context, "reference")


def judged(reference, project, plan=SHORT):
    folder, theirs = reference
    context, result = Context(project), StepResult(6, "train")
    trial = train.RunTrial(context, plan, folder)
    runs.add(result, trial, trial.measure(context, "port"), theirs)
    return result


def test_step_6_passes(reference):
    result = judged(reference, PROJECT)
    assert [q.name for q in result.quantities if not q.passed] == []
    # ... except that so short a run learns nothing, and the step says so.
    assert any("loss_fell_to" in p for p in result.problems) and any("accuracy_gained" in p for p in result.problems)


def test_the_references_runs_can_be_kept_for_the_next_attempt(reference, tmp_path, monkeypatch):
    folder, theirs = reference
    context, file = Context(PROJECT, kept=tmp_path), tmp_path / "reference.mobilenet_v3_small.npz"
    trial = train.RunTrial(context, SHORT, folder)
    monkeypatch.setattr(trial, "_measure", lambda context, role: theirs)
    trial.measure(context, "reference")
    assert file.is_file()
    monkeypatch.setattr(trial, "_measure", None)  # it runs no second time
    kept = trial.measure(context, "reference")
    assert kept.keys() == theirs.keys() and all(np.array_equal(kept[name], theirs[name]) for name in kept)
    rows = trial.judge(kept, theirs)
    assert len(rows) > 5 and all(q.passed and not q.max_abs_diff for q in rows) and trial.explain(kept, theirs) is None


def test_runs_that_an_older_version_kept_are_made_again(reference, tmp_path, monkeypatch):
    folder, theirs = reference
    context = Context(PROJECT, kept=tmp_path)
    np.savez(tmp_path / "reference.mobilenet_v3_small.npz", rates=theirs["rates"])
    trial = train.RunTrial(context, SHORT, folder)
    monkeypatch.setattr(trial, "_measure", lambda context, role: theirs)
    assert trial.measure(context, "reference") is theirs


def test_every_fault_has_its_row():
    assert set(WHERE) == set(faults_of(6))


# Each trains for ten seconds and longer; five others stay in the suite.
SLOW = {"evaluated_wrong", "gradients_kept", "run_without_dropout", "trained_in_evaluation_mode"}
WEEKLY = {"evaluated_wrong", "trained_in_evaluation_mode"}


def asked_to_train(monkeypatch):
    """From now on the list gets the role of every run that is started."""
    roles, start_run = [], train.start_run

    def started(context, role, *args, **kwargs):
        roles.append(role)
        return start_run(context, role, *args, **kwargs)

    for module in (train, first_updates):
        monkeypatch.setattr(module, "start_run", started)
    return roles


def test_a_run_that_is_started_again_would_be_counted(reference, monkeypatch):
    trained = asked_to_train(monkeypatch)
    context = Context(PROJECT)
    train.RunTrial(context, SHORT, reference[0])._curve(
        context, "port", train.RunTrial(context, SHORT, reference[0]).start[0], "32"
    )
    assert trained == ["port"]


def marked(name):
    slow, weekly = [pytest.mark.slow] * (name in SLOW), [pytest.mark.weekly] * (name in WEEKLY)
    return pytest.param(name, marks=slow + weekly)


@pytest.mark.parametrize("name", map(marked, WHERE))
def test_step_6_fails(name, reference, context, monkeypatch):
    fault, plan = FAULTS[name], SHORT
    if WHERE[name] == "final_top1":  # one seed decides nothing
        plan = replace(SHORT, seeds=3)
        reference = reference[0], train.RunTrial(Context(PROJECT), plan, reference[0]).measure(Context(PROJECT), "reference")
    with injected(PROJECT, name) as project:
        result = judged(reference, project, plan)
        assert WHERE[name] in [q.name for q in result.quantities if not q.passed]
        if WHERE[name] == "final_top1":
            runs.compare(Context(project), result, [RunEvaluation])
        trained = asked_to_train(monkeypatch)
        assert first_finding(context(project), result) == (fault.location, fault.hint)
        assert "port" not in trained, "the port is measured once, even when it fails"


@pytest.mark.parametrize("name", OTHERS)
def test_step_6_fails_too(name, reference):
    make, where = OTHERS[name]
    assert where in [q.name for q in judged(reference, make()).quantities if not q.passed]


@pytest.mark.parametrize(
    ("change", "passes"),
    [
        (lambda c: c, True),
        (lambda c: c * (1 + 3e-7), True),
        (lambda c: c * (1 + 2e-5), False),
        (lambda c: np.where(np.arange(len(c)) == 50, np.nan, c), False),
        (lambda c: c[:-1], False),
        (lambda c: np.where(np.arange(len(c)) > 80, c * 1.01, c), False),
    ],
)
def test_a_curve_is_held_against_the_references_own_envelope(change, passes):
    rng = np.random.default_rng(0)
    curve = 2.0 - np.linspace(0, 1, 100)
    draws = [curve * (1 + 1e-7 * rng.normal(size=100)) for _ in range(3)]
    assert curves.judge_curve("curve", change(curve), curve, draws, exact=False).passed is passes


def test_exact_curves_must_agree_over_the_first_iterations():
    """However chaotic the reference is by itself."""
    curve = np.linspace(2, 1, 100)
    given = "curve", curve * (1 + 1e-7), curve, [curve * 1.1], True
    assert not curves.judge_curve(*given).passed
    result = StepResult(6, "train")
    curves.show_curve(result, *given)
    assert "iterations_that_rounding_leaves" in result.problems[0]


THEIRS = np.array([0.87, 0.88, 0.88])


@pytest.mark.parametrize(
    ("ours", "passes", "answer"),
    [
        ([0.85, 0.88, 0.9], True, "undecided: "),
        ([0.877, 0.877, 0.877], True, "undecided: "),
        ([0.8702, 0.8801, 0.8801], True, "equal within the margin: "),
        ([0.7, 0.71, 0.72], False, "mean top-1 0.7100 in the port"),
        ([0.1, 0.1, 0.1], False, "mean top-1 0.1000 in the port"),
        ([0.864, 0.872, 0.870], True, "undecided: it seems different: "),
    ],
)
def test_final_accuracies_fail_where_the_difference_is_certain_and_are_equal_where_that_is_shown(ours, passes, answer):
    row = curves.judge_accuracies(np.array(ours), THEIRS)
    assert row.passed is passes and row.reason.startswith(answer), row.reason
    assert curves.shows_equality(np.array(ours), THEIRS) == answer.startswith("equal")


def test_noisy_seeds_make_nothing_equal():
    """The former rule accepted a gap of 48 points here, and called the row passed without a word."""
    row = curves.judge_accuracies(np.array([0.4, 0.5, 0.55]), np.array([0.44, 0.51, 0.68]))
    assert row.passed and row.reason.startswith("undecided: ") and "more seeds would decide" in row.reason, row.reason
    assert not curves.judge_accuracies(np.array([0.1, 0.1, 0.1]), np.array([0.54, 0.56, 0.58])).passed


def dropped_by(kept, scale=lambda p: 1.0 / (1.0 - p)):
    """A forward of the port's dropout, which multiplies what ``kept(self, shape)`` keeps by ``scale(p)``."""

    def forward(self, input):
        if not self.training or self.p == 0:
            return input
        return input * paddle.to_tensor(kept(self, tuple(input.shape))).astype(input.dtype) * scale(self.p)

    return forward


def as_drawn(self, shape):
    return self.uniform(shape) >= self.p


@pytest.mark.slow
@pytest.mark.parametrize(
    ("forward", "kind"),
    [
        (dropped_by(as_drawn, lambda p: 1.0), "dropout_scale"),
        (dropped_by(as_drawn, lambda p: (1.0 - p) ** -2), ""),
        pytest.param(dropped_by(lambda self, shape: self.uniform(shape)[::-1] >= self.p), "order", marks=pytest.mark.weekly),
        pytest.param(
            dropped_by(lambda self, shape: self.uniform(shape) >= self.p / 4, lambda p: 1 / (1 - p / 4)),
            "",
            marks=pytest.mark.weekly,
        ),
    ],
    ids=["not scaled", "scaled by something else", "numbers in another order", "a quarter of the rate"],
)
def test_a_wrong_dropout_is_named_only_where_the_hint_explains_it(forward, kind, reference, monkeypatch):
    monkeypatch.setattr(SharedDropout, "forward", forward)
    folder, theirs = reference
    context = Context(PROJECT)
    trial = train.RunTrial(context, SHORT, folder)
    finding = trial._explain_updates(first_updates.first_updates(context, "port", trial.config, trial.start[0]), theirs)
    assert (finding.location, str(finding.kind or "")) == ("loss", kind), finding.line()
