"""check.initialisation: fresh weights drawn otherwise than the reference's are found, and sound runs of both frameworks are not."""

from __future__ import annotations

import builtins
import importlib
import math
import sys

import numpy as np
import pytest

from alignment.frameworks import framework_of
from alignment_doctor.check import initialisation
from alignment_doctor.check.initialisation import compare_initialisation
from mobilenetv3_common.train_config import TrainConfig
from tests.conftest import run_command
from tests.test_doctor_check import BOTH, few, outcomes, problems, set_weight  # noqa: F401 (a fixture)

RNG = np.random.default_rng(0)
MODEL = "mobilenet_v3_small"


def of(framework, builder=None, classes=8, model=MODEL, width=0.5):
    """The comparison of a fresh run."""
    module = importlib.import_module(f"mobilenetv3_{framework}.train.backend")
    config = TrainConfig(framework=framework, model=model, width_mult=width)
    with module.started("cpu"):
        network = module.build_model(config, classes, builder)
        return compare_initialisation(module, config, classes, framework_of(network).state(network), builder)


def wrong(made):
    return {verdict.name: verdict.words for verdict in made.verdicts if verdict.words}


def drawn(framework, chosen, draw):
    """Makes the network with some tensors drawn anew; ``draw`` takes their values, with the outputs first in convolutions."""
    models = importlib.import_module(f"mobilenetv3_{framework}.models")

    def build(num_classes):
        model = models.MODELS[MODEL](num_classes, width_mult=0.5)
        drawn_first = float(model.classifier[0].weight[0, 0])  # follows the seed, and so do the draws below
        RNG.bit_generator.state = np.random.default_rng(int(abs(drawn_first) * 1e9)).bit_generator.state
        for name, parameter in model.named_parameters():
            if chosen(name, parameter):
                set_weight(framework, parameter, lambda values: draw(values).astype(np.float32))
        return model

    return build


def convolution(name, parameter):
    return len(parameter.shape) == 4


def normal(deviation):
    return lambda values: RNG.normal(0, deviation, values.shape)


def by_fan(values, axis):
    fan = values.shape[axis] * math.prod(values.shape[2:])
    return RNG.normal(0, (2 / fan) ** 0.5, values.shape)


def stock(framework):
    """Makes the network as the framework's layers initialise themselves."""
    models = importlib.import_module(f"mobilenetv3_{framework}.models.mobilenetv3")

    def build(num_classes):
        if framework == "ref":
            model = models.mobilenet_v3_small(num_classes, width_mult=0.5)
            for layer in model.modules():
                if hasattr(layer, "reset_parameters"):
                    layer.reset_parameters()
            return model
        kept, models._init_weights = models._init_weights, lambda layer: None
        try:
            return models.mobilenet_v3_small(num_classes, width_mult=0.5)
        finally:
            models._init_weights = kept

    return build


FIRST = "features.0.0.weight"
BROKEN = {  # tensors, how they are drawn, one that is found, what is said
    "fan_in for fan_out": (convolution, lambda values: by_fan(values, 1), FIRST, "fan_in for fan_out"),
    "a wider linear layer": (lambda name, _: name == "classifier.3.weight", normal(0.1), "classifier.3.weight", "expected 0.0"),
    "uniform": (
        convolution, lambda values: RNG.uniform(-1, 1, values.shape) * (6 / values.shape[0] / math.prod(values.shape[2:])) ** 0.5,
        "features.12.0.weight", "uniform, expected normal"),
    "normalisation from zero": (
        lambda name, _: name == "features.1.block.2.1.weight", np.zeros_like, "features.1.block.2.1.weight", "all values 0"),
    "a random bias": (
        lambda name, _: name == "classifier.0.bias", normal(0.01), "classifier.0.bias", "random values of standard deviation 0.0"),
    "zeros": (lambda name, _: name == "classifier.0.weight", np.zeros_like, "classifier.0.weight", "all values 0, expected random"),
}  # fmt: skip


def broken(framework, case):
    """Makes the network of one of these."""
    return drawn(framework, *BROKEN[case][:2])


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("framework", BOTH)
def test_another_initialisation_is_found_and_named(framework, case):
    chosen, _, place, words = BROKEN[case]
    found = wrong(of(framework, broken(framework, case)))
    assert words in found[place], found
    model = importlib.import_module(f"mobilenetv3_{framework}.models").MODELS[MODEL](8, width_mult=0.5)
    assert set(found) <= {name for name, parameter in model.named_parameters() if chosen(name, parameter)}


@pytest.mark.parametrize("framework", BOTH)
def test_the_layers_own_initialisation_is_found_in_every_part(framework):
    found = wrong(of(framework, stock(framework)))
    assert {FIRST, "classifier.0.weight", "classifier.3.weight"} <= set(found)


@pytest.mark.parametrize("framework", BOTH)
def test_the_check_says_it_and_is_silent_on_the_models_own(few, framework):  # noqa: F811
    where = problems(framework, broken(framework, "fan_in for fan_out"))["check.initialisation"]
    assert where[0].startswith(f"{FIRST}: standard deviation") and "Kolmogorov" in where[0]
    assert outcomes(framework)["check.initialisation"].measured == "54 random and 156 constant tensors, 4 seeds"


@pytest.mark.parametrize(("model", "classes", "width"), [(MODEL, 2, 0.25), (MODEL, 1000, 1.0), ("mobilenet_v3_large", 10, 0.75)])
@pytest.mark.parametrize("framework", BOTH)
def test_the_models_of_every_size_begin_as_the_reference(framework, model, classes, width):
    made = of(framework, None, classes, model, width)
    assert wrong(made) == {} and len(made.verdicts) > 200 and not made.reason


@pytest.mark.parametrize("framework", BOTH)
def test_the_same_distribution_from_another_generator_is_no_problem(framework):
    assert wrong(of(framework, drawn(framework, convolution, lambda values: by_fan(values, 0)))) == {}


@pytest.mark.parametrize("framework", BOTH)
def test_weights_that_a_builder_loads_are_not_compared(few, framework):  # noqa: F811
    kept = {}

    def loaded(values):
        return kept.setdefault(values.shape, by_fan(values, 0))

    made = of(framework, drawn(framework, convolution, loaded))
    assert made.repeats
    said = outcomes(framework, drawn(framework, convolution, loaded))["check.initialisation"]
    assert said.measured == "the weights are the same for every seed, as weights that were loaded"


@pytest.mark.parametrize("framework", BOTH)
def test_another_network_is_not_compared(framework):
    layers = importlib.import_module("torch" if framework == "ref" else "paddle").nn
    made = of(framework, lambda classes: layers.Sequential(layers.Linear(4, classes)))
    assert made.reason == "this is another network than mobilenet_v3_small of the reference"


@pytest.mark.parametrize(
    ("package", "modules"),
    [("torch", [initialisation.REFERENCE]), ("scipy", ["alignment.comparisons.model.fresh_weights", "alignment.initialisers"])],
    ids=["torch", "scipy"],
)
def test_without_what_it_needs_nothing_is_compared(package, modules, monkeypatch):
    made = of("ref")
    assert made.seeds == 4
    kept = builtins.__import__

    def without(name, *rest):
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named '{package}'", name=package)
        return kept(name, *rest)

    for module in modules:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(builtins, "__import__", without)
    made = compare_initialisation(None, TrainConfig(), 8, {})
    assert made.reason == f"this needs {package}, which is not installed" and not made.verdicts


def test_the_doctor_starts_without_scipy():
    code = "import sys; sys.modules['scipy'] = None; from alignment_doctor.cli import main; sys.exit(main(['data', 'lite_data']))"
    run = run_command("-c", code)
    assert run.returncode == 0, run.stderr


def test_pretrained_runs_are_not_compared():
    assert compare_initialisation(None, TrainConfig(pretrained="x.pth"), 8, {}).reason == "the run begins with weights from a file"
