"""A network by its name, and weights from any file: ``from mobilenetv3_ref import create_model, load_weights``."""

from __future__ import annotations

import os
from typing import Any

from torch.nn import Module

from mobilenetv3_common.creating import create
from mobilenetv3_ref.models import MODELS, foreign
from mobilenetv3_ref.train.state import load_pretrained


def create_model(name: str, pretrained: str | os.PathLike | bool = False, num_classes: int | None = None, **options: Any) -> Module:
    """A MobileNetV3, in training mode as torch makes it: call ``eval()`` before predicting.

    Args:
        name: ``mobilenet_v3_small`` or ``mobilenet_v3_large``.
        pretrained: a file of weights of either framework, a checkpoint of a run (``best.safetensors``), ``True`` or
            ``"torchvision"`` for the published ImageNet weights, which are downloaded once; ``False`` for fresh weights.
        num_classes: of the last layer; that of the weights, or 1000, where None. Another number gives a fresh last layer.
        **options: the builder's other arguments, ``width_mult`` and ``dropout`` among them; those of the weights where not given.

    Raises:
        UserError: the name is unknown, or the weights cannot be read or are another model's.
    """
    return create(MODELS, foreign.fitting, load_pretrained, name, pretrained, num_classes, options)


def load_weights(model: Module, file: str | os.PathLike) -> Module:
    """Load a file of weights into a MobileNetV3, every tensor or none; returns the model.

    Args:
        model: of this package; its class count must be that of the weights.
        file: as ``pretrained`` of ``create_model``.

    Raises:
        UserError: the file cannot be read, or a tensor is missing, left over or of another shape.
    """
    load_pretrained(model, os.fspath(file))
    return model
