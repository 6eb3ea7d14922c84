"""``create_model`` of both packages: a network by its name, with weights from a file of any trainer."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from typing import Any

from mobilenetv3_common.architecture import Architecture, Shapes
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.pretrained import read_for
from mobilenetv3_common.published import pretrained_file


def create(
    models: Mapping[str, Callable[..., Any]],
    fitting: Callable[[Shapes], Architecture | None],
    load: Callable[[Any, str, bool], None],
    name: str,
    pretrained: str | os.PathLike | bool,
    num_classes: int | None,
    options: Mapping[str, Any],
) -> Any:
    """Build a network, and load its weights where some are wanted.

    Args:
        models: the package's builders by name.
        fitting: the architecture that has tensors of these canonical shapes; None where there is none.
        load: loads a file of weights into a network; with True the last layer stays where the class count differs.
        name, pretrained, num_classes, options: as ``create_model`` of the package says.

    Raises:
        UserError: the name is unknown, or the weights cannot be read, or are another model's.
    """
    if name not in models:
        near = difflib.get_close_matches(name, models, 1)
        raise UserError(f"unknown model {name!r}: {f'did you mean {near[0]!r}? ' if near else ''}use one of {', '.join(models)}")
    given = dict(options) if num_classes is None else {**options, "num_classes": num_classes}
    if pretrained is False:
        return models[name](**given)
    file = pretrained_file("torchvision" if pretrained is True else os.fspath(pretrained), name, "pretrained")
    found = fitting({tensor: array.shape for tensor, array in read_for(file).items()})
    if found is not None and found.model != name:
        raise UserError(f"{file} holds weights of {found.model}: create_model({found.model!r}, pretrained=...)")
    model = models[name](**{**({} if found is None else found.options), **given})
    load(model, file, num_classes is not None)
    return model
