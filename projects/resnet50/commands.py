"""What ``tools/resnet50.py`` does: ResNets converted, evaluated and trained in each of three frameworks."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from alignment.audit.convert import convert, sides_of
from alignment.audit.pair import ModelMaker
from alignment.frameworks import framework as engine_of
from mobilenetv3_common import evaluation, training
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.evaluation import Evaluation
from mobilenetv3_common.observer import Observer
from mobilenetv3_common.training_backend import Builder, TrainingBackend
from mobilenetv3_common.weights import MINDSPORE_STATISTICS, PADDLE_STATISTICS, read_state
from projects.resnet50.config import ENGINES, MODELS, PACKAGES, ResNetConfig

SUFFIXES = {".ckpt": "mindspore", ".pdparams": "paddle", ".pth": "ref", ".pt": "ref"}
INPUT = "2x3x32x32"  # on which two networks are paired: MindSpore takes minutes for pictures of 224 pixels on a CPU


def parts(config: ResNetConfig) -> tuple[TrainingBackend, Builder]:
    """The framework of a run, and what makes its network for a number of classes.

    Raises:
        UserError: the framework is not installed; the line says how to install it.
    """
    engine_of(ENGINES[config.framework])
    backend: Any = importlib.import_module(f"{PACKAGES[config.framework]}.train.backend")
    if config.loss_scale is not None:
        precision = functools.partial(backend.Precision, loss_scale=config.loss_scale)
        backend = SimpleNamespace(**{**vars(backend), "Precision": precision})
    depth, stem = MODELS[config.model]
    models = importlib.import_module(f"projects.resnet50.models.in_{ENGINES[config.framework]}")
    return cast(TrainingBackend, backend), functools.partial(getattr(models, f"resnet{depth}"), stem=stem)


def train(config: ResNetConfig, observer: Observer | None = None) -> int:
    """Train as the config says; see ``mobilenetv3_common.training.train``."""
    backend, builder = parts(config)
    return training.train(backend, config, builder, observer)


def infer(config: ResNetConfig) -> tuple[Evaluation, tuple[str, ...]]:
    """Evaluate ``config.pretrained`` on the validation pictures, each counted once."""
    backend, builder = parts(config)
    with backend.started(config.device) as ranks:
        return evaluation.evaluate_config(backend, config, ranks, builder)


def convert_file(source: str, target: str, model: str, to: str | None = None, listed: bool = False) -> str:
    """Write a file of weights of one framework as one of another, strictly; returns what was done.

    Args:
        source, target: files. What ``source`` is of is seen from its names.
        model: one of ``MODELS``; its number of classes is the file's.
        to: the framework of ``target``; None: the one of its suffix, or MindSpore, or torch where ``source`` is MindSpore's.
        listed: print every tensor of both sides, with its name and shape, before the file is written.

    Raises:
        UserError: a file cannot be read or written, a tensor is missing, too many or of another shape.
    """
    state = read_state(source)
    owner = owner_of(state)
    to = to or SUFFIXES.get(Path(target).suffix) or ("ref" if owner == "mindspore" else "mindspore")
    if to == owner:
        raise UserError(f"{source} holds weights of {owner} already: use --to with another framework")
    if "fc.weight" not in state or "fc.bias" not in state:
        raise UserError(f"{source} has no fc.weight and fc.bias: it holds no weights of {model}")
    depth, stem = MODELS[model]
    given = {"num_classes": int(np.size(state["fc.bias"])), "stem": stem}
    places = {name: f"projects.resnet50.models.in_{ENGINES[name]}:resnet{depth}" for name in (owner, to)}
    have, want = (ModelMaker(f"--to {name}", place, given) for name, place in places.items())
    if to == "mindspore":
        engine_of("mindspore")  # before anything of Paddle
    sides = sides_of(have, want, given=INPUT)
    if listed:
        print("\n".join(sides.rows()))
    return convert(sides, source, target, "reference")


def owner_of(state: Mapping[str, np.ndarray]) -> str:
    """Whose weights these are, by the names of statistics: a framework of ``PACKAGES``."""
    last = {name.rpartition(".")[2] for name in state}
    return "mindspore" if last & set(MINDSPORE_STATISTICS) else "paddle" if last & set(PADDLE_STATISTICS) else "ref"


def needed(config: ResNetConfig, *names: str) -> None:
    """Refuse a config that lacks a setting.

    Raises:
        UserError: naming the flag.
    """
    for name in names:
        if not getattr(config, name):
            raise UserError(f"--{name.replace('_', '-')} is missing: --help says what it is")
