"""The teacher of a run that distils: which network it is, and that it knows the same classes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mobilenetv3_common.checkpoint import checkpoint_classes, is_checkpoint, read_checkpoint
from mobilenetv3_common.class_names import difference
from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import sha256_of
from mobilenetv3_common.parts import Network, Own, Ranks
from mobilenetv3_common.train_config import MODELS, TrainConfig
from mobilenetv3_common.training_backend import Builder, TrainingBackend

# What a checkpoint's config says of its network.
_ARCHITECTURE = ("model", "width_mult")


def build_criterion(
    backend: TrainingBackend, config: TrainConfig, criterion: Own, index: DatasetIndex, ranks: Ranks, builder: Builder | None
) -> Own:
    """The run's loss: the criterion itself, or with a part of its teacher.

    Args:
        backend: what computes.
        config: of the run.
        criterion: loss of (logits, labels).
        index: the training pictures.
        ranks: on whose device the teacher computes.
        builder: makes the student; the teacher too where it has no architecture of its own.

    Raises:
        UserError: the teacher cannot be read, or knows other classes.
    """
    if config.teacher is None:
        return criterion
    teacher = _teacher(backend, config, index, ranks, builder)
    return backend.DistillationLoss(criterion, teacher, config.distill_temperature, config.distill_alpha)


def teacher_digest(config: TrainConfig) -> str | None:
    """SHA-256 of the teacher's file, for the checkpoints; None without a teacher."""
    return None if config.teacher is None else sha256_of(config.teacher)


def _teacher(backend: TrainingBackend, config: TrainConfig, index: DatasetIndex, ranks: Ranks, builder: Builder | None) -> Network:
    path = str(config.teacher)
    known = checkpoint_classes(path)
    named = known if config.match_classes != "position" else None
    if named is not None and (said := difference(named, index.classes, f"--teacher {path}", str(index.source))):
        raise UserError(f"{said}: a teacher must know the classes of the training pictures in their order")
    changes: dict[str, Any] = {
        "pretrained": path,
        "checkpoint_weights": "auto",
        "reset_classifier": False,
        "param_groups": None,
        "sync_bn": False,
        "grad_checkpointing": False,
    }
    if config.teacher_model is not None:
        changes |= {"model": config.teacher_model, "width_mult": 1.0}
    if is_checkpoint(path):
        own = read_checkpoint(path).meta.get("config", {})
        changes |= {name: own[name] for name in _ARCHITECTURE if name in own and (name != "model" or own[name] in MODELS)}
    elsewhere = any(changes.get(name, getattr(config, name)) != getattr(config, name) for name in _ARCHITECTURE)
    model = backend.build_model(replace(config, **changes), index.num_classes, None if elsewhere else builder)
    teacher = backend.place_model(model, ranks)
    teacher.eval()
    return teacher
