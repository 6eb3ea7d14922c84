"""Two texts where the frameworks differ, one where they do not.

What computes, or touches pixels, is a text of its own in each package: the alignment compares the two, and a text that both
shared would be right or wrong on both sides at once. What only organises stands once, in mobilenetv3_common.
"""

import ast
import importlib
import inspect
import re

import pytest

from mobilenetv3_common import preprocess
from mobilenetv3_common.train_config import MODELS
from mobilenetv3_common.training_backend import TrainingBackend
from tests import numpy_backend
from tests.conftest import ROOT

PACKAGES = ("mobilenetv3_paddle", "mobilenetv3_ref")
ORGANISING = ("evaluation", "lr_range", "run", "samples", "training")  # modules of mobilenetv3_common
# Public names of the packages, by the module where they are looked up.
OWN = {
    "data": {"ImageDataset", "build_loader", "mix_batch", "train_transform"},
    "data.transforms": {"apply_op"},
    "loss": {"CrossEntropyLoss", "DistillationLoss"},
    "metric": {"TopKAccuracy", "top_k_correct"},
    "models": {"SharedDropout", "share_dropout", *MODELS},
    "train": {
        "Guard", "MovingAverage", "Precision", "Ranks", "accumulate_gradients", "apply_update", "average_statistics",
        "build_model", "build_optimizer", "build_schedule", "first_offender", "load_model_arrays", "load_pretrained",
        "model_arrays", "started", "train_step",
    },
    "loss.distillation": {"divergence"},
    "train.guard": {"gradient_norm"},
    "train.optimizer": {"parameter_groups"},
}  # fmt: skip
# One line each: a function of mobilenetv3_common on the package's framework.
BOUND = {"build_run", "evaluate", "evaluate_config", "find_learning_rates", "train"}
ONCE = {"Evaluation", "Run", "evaluate_run", "evaluation_loader", "micro_batches", "save", "update"}
APART = {"MODELS", "MobileNetV3", "eval_transform"}  # a table; torchvision's class; the test below says


def of_both(module, name):
    return [getattr(importlib.import_module(f"{package}.{module}"), name) for package in PACKAGES]


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in OWN.items() for name in sorted(names)])
def test_what_computes_is_each_packages_own_text(module, name):
    for package, found in zip(PACKAGES, of_both(module, name), strict=True):
        assert found.__module__.startswith(f"{package}."), f"{found.__module__}.{name}"


MEMBERS = [name for name in vars(TrainingBackend) if not name.startswith("_")]


@pytest.mark.parametrize("name", MEMBERS)
def test_all_that_the_loop_asks_a_framework_for_is_its_own_text_with_the_same_arguments(name):
    found = of_both("train.backend", name)
    expected = list(inspect.signature(getattr(TrainingBackend, name)).parameters)[1:]
    for package, function in zip(PACKAGES, found, strict=True):
        assert function.__module__.startswith(f"{package}."), f"{function.__module__}.{name}"
    for function in [*found, getattr(numpy_backend, name)]:
        accepted = list(inspect.signature(function).parameters)
        assert accepted[: len(expected)] == expected, function


def test_a_framework_has_its_own_name():
    assert of_both("train.backend", "NAME") == ["paddle", "ref"] and len(MEMBERS) > 25


@pytest.mark.parametrize("name", sorted(ONCE))
def test_what_organises_stands_once(name):
    ours, theirs = of_both("train", name)
    assert ours is theirs and ours.__module__.startswith("mobilenetv3_common.")


@pytest.mark.parametrize("module", ["data", "loss", "metric", "models", "train"])
def test_every_public_name_is_one_of_these(module):
    """A new name has to say whether the packages share it."""
    names = [set(importlib.import_module(f"{package}.{module}").__all__) for package in PACKAGES]
    of_train = BOUND | ONCE if module == "train" else set()
    assert names[0] & names[1] <= OWN[module] | of_train | APART
    assert names[0] ^ names[1] <= {"BatchNorm2D", "RMSProp"}, "what torch has, and Paddle has otherwise"


def test_the_evaluation_pipeline_of_paddle_is_that_of_prediction_and_the_references_is_torchvisions():
    ours, theirs = of_both("data", "eval_transform")
    assert ours is preprocess.eval_transform and theirs.__module__ == "mobilenetv3_ref.data.transforms"


# --- the texts themselves ---


def functions(text):
    """Qualified name -> lines of each function, without docstrings and annotations, frameworks' names made one."""
    found = {}

    def walk(node, prefix):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef):
                if isinstance(child, ast.FunctionDef):
                    found[prefix + child.name] = plain(child)
                walk(child, f"{prefix}{child.name}.")

    def plain(function):
        function = ast.parse(ast.unparse(function)).body[0]
        for node in ast.walk(function):
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
            if isinstance(node, ast.FunctionDef):
                node.returns = None
            if isinstance(node, ast.arg):
                node.annotation = None
            if isinstance(node, ast.AnnAssign):
                node.annotation = ast.Name("X")
        return re.sub(r"\b(mobilenetv3_|as_)?(paddle|torch|ref)\b", "FRAMEWORK", ast.unparse(function)).splitlines()

    walk(ast.parse(text), "")
    return found


def equal_functions(one, other, longer_than):
    """Functions of the same name whose texts are equal to the letter, by the number of lines after the first."""
    ours, theirs = functions(one), functions(other)
    return [name for name in ours if theirs.get(name) == ours[name] and len(ours[name]) - 1 > longer_than]


def mirrored_files():
    first, second = ({path.relative_to(ROOT / package): path for path in (ROOT / package).rglob("*.py")} for package in PACKAGES)
    return [(str(name), first[name], second[name]) for name in sorted(first.keys() & second.keys())]


def test_no_function_of_more_than_six_lines_stands_in_both_packages():
    files = mirrored_files()
    assert len(files) > 20
    copies = {name: equal_functions(one.read_text(), other.read_text(), 6) for name, one, other in files}
    assert {name: found for name, found in copies.items() if found} == {}


def test_names_stand_in_the_same_order():
    for name, *paths in mirrored_files():
        bodies = [ast.parse(path.read_text()).body for path in paths]
        ours, theirs = ([n.name for n in body if isinstance(n, ast.ClassDef | ast.FunctionDef)] for body in bodies)
        assert [n for n in ours if n in theirs] == [n for n in theirs if n in ours], name


def test_a_copy_would_be_found():
    body = "\n".join(f"    x = {{}}.op{number}(x)" for number in range(7))
    ours, theirs = (f'def f(x: {n}.Tensor):\n    """In {n}."""\n{body.format(*[n] * 7)}\n' for n in ("paddle", "torch"))
    assert equal_functions(ours, theirs, 6) == ["f"] and equal_functions(ours, theirs, 7) == []
    assert equal_functions(ours, theirs.replace("op3", "op4"), 6) == []


def test_what_stands_once_is_written_nowhere_else():
    common = [ast.parse((ROOT / "mobilenetv3_common" / f"{module}.py").read_text()) for module in ORGANISING]
    once = {node.name for tree in common for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    assert {"update", "train", "collate", "Run", "Samples"} <= once
    for package in PACKAGES:
        paths = [path for part in ("train", "data") for path in (ROOT / package / part).glob("*.py")]
        again = {name: path for path in paths for name in functions(path.read_text()) if name in once}
        assert again.keys() == BOUND and {path.name for path in again.values()} == {"engine.py"}
        text = (ROOT / package / "train" / "engine.py").read_text()
        assert all(len(lines) == 2 for lines in functions(text).values()), "one line each"
