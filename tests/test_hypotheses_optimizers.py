"""Every hypothesis about an optimizer's update names its mistake, on plain arrays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from alignment.comparisons.update.optimizers import at_its_rate
from alignment.kinds import Kind
from alignment.localize.hypotheses.optimizers import OPTIMIZER, Form, Material, optimizer_hint, weights_after
from mobilenetv3_common.train_config import OptimizerConfig

RNG = np.random.default_rng(1)
SHAPES = {"a.weight": (30, 20), "n.weight": (30,), "n.bias": (30,), "b.bias": (40,)}
GROUPS = {"a.weight": 0, "n.weight": 1, "n.bias": 1, "b.bias": 2}
START = {name: RNG.standard_normal(shape) for name, shape in SHAPES.items()}
GRADIENTS = [{name: 8 * RNG.standard_normal(shape) for name, shape in SHAPES.items()} for _ in range(3)]
MATERIAL = Material.of(GRADIENTS, START, GROUPS, [1e-2, 9e-3, 6.5e-3, 3.5e-3])
SGD = OptimizerConfig("sgd", weight_decay=0.1, momentum=0.8)
RMSPROP = OptimizerConfig("rmsprop", weight_decay=0.1, momentum=0.8)
ADAMW = OptimizerConfig("adamw", weight_decay=0.1, norm_weight_decay=0.02, bias_weight_decay=0.03)

# Name of the hypothesis, the reference's optimizer, what the port changes in the form or the settings, and the words for it.
EXPECTED = [
    ("gradients_not_cleared", SGD, {"fed": "all"}, "gradients are not cleared"),
    ("gradients_cleared_early", SGD, {"fed": "none"}, "gradients are cleared before the update"),
    ("not_clipped", SGD, {"clip": None}, "gradients are not clipped"),
    ("clipped_otherwise", SGD, {"clipped": "tensor"}, "each gradient is clipped by its own norm"),
    ("clipped_otherwise", SGD, {"clipped": "value"}, "gradients are clipped by value"),
    ("another_clip_norm", SGD, {"clip": 13.0}, "gradients are clipped to the norm 13, expected 20"),
    ("uphill", SGD, {"factor": -1.0}, "the step goes up the gradient"),
    ("rate_of_another_update", SGD, {"rate": "first"}, "every update takes the first one's learning rate"),
    ("rate_of_another_update", SGD, {"rate": "next"}, "each update takes the learning rate of the next"),
    ("momentum", SGD, {"momentum": 0.9}, "momentum 0.9, expected 0.8"),
    ("momentum_in_another_place", RMSPROP, {"momentum": 0.9, "alpha": 0.8}, "momentum and alpha (rho) are swapped"),
    ("momentum_in_another_place", RMSPROP, {"alpha": 0.8}, "the momentum's value is passed as alpha (rho): 0.8, expected 0.9"),
    ("momentum_in_another_place", RMSPROP, {"momentum": 0.0, "alpha": 0.8}, "and its value is passed as alpha (rho)"),
    ("rate_in_buffer", SGD, {"rate_in_buffer": True}, "the learning rate is inside the momentum's buffer"),
    ("nesterov", SGD, {"nesterov": True}, "Nesterov momentum, expected plain momentum"),
    ("dampening", SGD, {"dampening": 0.5}, "dampening 0.5 of what enters the momentum's buffer"),
    ("rmsprop", RMSPROP, {"centered": True}, "the square of the mean gradient is taken off"),
    ("rmsprop", RMSPROP, {"alpha": 0.95}, "alpha (rho) 0.95"),
    ("betas", ADAMW, {"beta1": 0.999, "beta2": 0.9}, "beta1 and beta2 are swapped"),
    ("adam", ADAMW, {"amsgrad": True}, "AMSGrad"),
    ("adam", ADAMW, {"corrected": (False, True)}, "the first moment is not corrected"),
    ("eps", ADAMW, {"eps": 0.1}, "eps 0.1, expected"),
    ("decays_of_groups", ADAMW, {"decays": (0.1, 0.0, 0.03)}, "weight decay on norm layers is left out"),
    ("decays_of_groups", ADAMW, {"decays": (0.1, 0.03, 0.02)}, "the weight decays of norm layers and of biases are swapped"),
    ("another_way_of_decay", ADAMW, {"decay": "l2"}, "the weight decay is an L2 penalty in the gradient"),
    (
        "another_way_of_decay",
        SGD,
        {"decay": "l1"},
        "the weight decay is an L1 penalty (times the sign of each weight), expected an L2",
    ),
    ("another_way_of_decay", ADAMW, {"decay": "l1"}, "an L1 penalty (times the sign of each weight), expected a decoupled one"),
    ("another_decay", ADAMW, {"decays": (0.07, 0.014, 0.021)}, "weight decay 0.07, expected 0.1"),
    ("another_rate", SGD, {"factor": 0.37}, "the learning rate is 0.37 times the reference's"),
]


@pytest.mark.parametrize(("config", "changes", "words"), [row[1:] for row in EXPECTED], ids=[row[3] for row in EXPECTED])
def test_a_mistake_of_an_optimizer_is_named(config, changes, words):
    form = Form.of(config, 20.0 if words.find("clipped") >= 0 else None)
    of_form = {name: value for name, value in changes.items() if name in Form.__dataclass_fields__}
    settings = {name: value for name, value in changes.items() if name not in of_form}
    port = replace(form, config=replace(form.config, **settings), **of_form)
    found = optimizer_hint(form, MATERIAL, weights_after(port, MATERIAL))
    assert found is not None and words in found[1][1], found
    assert (found[0] == "apply_update") is ("gradients are" in words or "clipped" in words)


def test_every_hypothesis_has_a_case_of_its_own():
    assert set(OPTIMIZER.makers) <= {name for name, *_ in EXPECTED}


@pytest.mark.parametrize("config", [SGD, RMSPROP, ADAMW])
def test_a_mistake_in_one_tensor_alone_is_not_claimed_of_all(config):
    form = Form.of(config, None)
    ours = weights_after(replace(form, factor=0.5), MATERIAL)
    last = MATERIAL.places[-1]
    mixed = [np.concatenate([a[:last], b[last:]]) for a, b in zip(ours, weights_after(form, MATERIAL), strict=True)]
    assert optimizer_hint(form, MATERIAL, mixed) is None
    assert optimizer_hint(form, MATERIAL, weights_after(form, MATERIAL)) is None


def test_a_factor_is_one_of_the_learning_rate_only_where_the_optimizer_tells_another_one():
    hint, rates = (Kind.LR_SCALED, "the learning rate is 0.5 times the reference's"), np.array([0.1, 0.05])
    assert at_its_rate(hint, rates / 2, rates) == hint
    words = "every step is 0.5 times the reference's, at the same learning rate: a factor in the formula"
    assert at_its_rate(hint, rates, rates) == (Kind.LR_SCALED, words)
    other = (Kind.MOMENTUM, "momentum 0.9, expected 0.8")
    assert at_its_rate(other, rates, rates) == other
