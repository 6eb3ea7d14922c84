"""Step 8: what is deployed against the network that was trained, with each part of the deployed chain broken on purpose."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

from alignment.called import Seen
from alignment.comparisons import run_step
from alignment.comparisons.context import Context
from alignment.comparisons.deploy import deployed
from alignment.coverage import coverage_of
from projects.mobilenetv3.project import PROJECT

pytestmark = pytest.mark.slow  # an export, and engines: 20 seconds


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The real chain, made once."""
    context = Context(PROJECT)
    context.networks.of("port32").outputs(context.fake_inputs(1))
    folder = tmp_path_factory.mktemp("deployed")
    return PROJECT.deploy(context.model, context.networks.build("port"), folder, 224)


def step(made):
    context = Context(replace(PROJECT, deploy=lambda model, network, folder, size: made))
    return context, run_step(deployed.NUMBER, context)


def test_a_sound_deployment_passes_and_is_covered(made):
    context, result = step(made)
    assert result.passed and {"onnxruntime", "onednn", "paddle"} <= set(made.engines)
    assert len(result.quantities) == 1 + 3 * len(made.engines)
    covered = coverage_of(context, [result], Seen())
    assert "mobilenetv3_paddle.deploy" not in covered.packages and "onnxruntime engine" in covered.covered
    without = coverage_of(Context(PROJECT), [run_step(3, Context(PROJECT))], Seen())
    assert "mobilenetv3_paddle.deploy" in without.packages


def changed(engine, function):
    return lambda pictures: function(engine, pictures)


BROKEN = {
    "red and blue swapped in the engine": ("onnxruntime", lambda engine, x: engine(np.ascontiguousarray(x[:, ::-1]))),
    "logits too large": ("onednn", lambda engine, x: engine(x) * np.float32(1.001)),
    "a batch computed as its first picture": ("paddle", lambda engine, x: np.repeat(engine(x[:1]), len(x), 0)),
    "rounded to half precision": ("onnxruntime", lambda engine, x: engine(x.astype(np.float16).astype(np.float32))),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_engine_is_named(case, made):
    name, function = BROKEN[case]
    engines = {**made.engines, name: changed(made.engines[name], function)}
    _, result = step(replace(made, engines=engines))
    finding = result.compared[0].explain()
    assert result.failed and finding.stage == "deploy" and finding.location == name, finding
    assert all(name in row.name for row in result.quantities if not row.passed)


def test_other_preprocessing_is_found(made):
    _, result = step(replace(made, preprocess=lambda file: made.preprocess(file)[..., ::-1]))
    assert result.failed and result.compared[0].explain().location == "preprocessing"


def test_classes_in_another_order_are_found(made):
    wrong = functools.partial(lambda engine, files: [number + 1 for number in made.predict(engine, files)])
    _, result = step(replace(made, predict=wrong))
    assert {row.name for row in result.quantities if not row.passed} == {f"deploy.classes.{name}" for name in made.engines}


def test_an_export_that_raises_is_a_finding(made):
    def fails(model, network, folder, size):
        raise ValueError("no such operator")

    result = run_step(deployed.NUMBER, Context(replace(PROJECT, deploy=fails)))
    assert result.failed and "no such operator" in result.problems[0]


def test_a_project_without_deployment_says_so():
    assert "does not say how it deploys" in run_step(deployed.NUMBER, Context(replace(PROJECT, deploy=None))).not_run
