"""MobileNetV3 in Paddle against torchvision's: every part of both sides, and the faults that the engine must find."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import mobilenetv3_paddle.data
import mobilenetv3_paddle.loss
import mobilenetv3_paddle.metric
import mobilenetv3_paddle.models
import mobilenetv3_paddle.train
import mobilenetv3_ref.data
import mobilenetv3_ref.loss
import mobilenetv3_ref.metric
import mobilenetv3_ref.models
import mobilenetv3_ref.train
from alignment.faults import Edits
from alignment.frameworks.base import Framework, Module
from alignment.frameworks.paddle import Paddle
from alignment.frameworks.torch import Torch
from alignment.project import Deployed, Independent, KnownFault, ModelSpec, Project, Side
from mobilenetv3_common.class_folders import left_behind
from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import IMAGE_EXTENSIONS
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_common.published import PUBLISHED, PUBLISHED_NAMES, ROOT, cache_dir, fetch_published
from mobilenetv3_common.train_config import MODELS
from mobilenetv3_common.weights import State, as_torch
from mobilenetv3_paddle.models.mobilenetv3 import Hardsigmoid
from projects.witnesses import WITNESSES

from . import torchvision_data, torchvision_draws, torchvision_values

LAST_LAYER = "classifier.3"


def blocks(framework: Framework, network: Module) -> list[str]:
    """Every block, the pooling, and the classifier's layers but for dropout."""
    count = len(framework.children(dict(framework.children(network))["features"]))
    return [*(f"features.{number}" for number in range(count)), "avgpool", "classifier.0", "classifier.1", LAST_LAYER]


def options_of(model: str, state: State) -> Mapping[str, Any]:
    """Class count, width and reduced tail that fit weights of either framework.

    Raises:
        UserError: they are no weights of this model at any width.
    """
    shapes = {name: array.shape for name, array in as_torch(state).items()}
    if f"{LAST_LAYER}.weight" not in shapes:
        raise UserError(f"the weights have no {LAST_LAYER}.weight: are they another model's?")
    classes, hidden = shapes[f"{LAST_LAYER}.weight"]
    for options in _candidates(hidden / _shapes(model)[f"{LAST_LAYER}.weight"][1]):
        if shapes == _shapes(model, num_classes=classes, **options):
            return {"num_classes": classes, **options}
    return {}  # loading then says what does not fit


def _shapes(model: str, **options: Any) -> dict[str, tuple[int, ...]]:
    """Of the reference's tensors, counters left out."""
    network = mobilenetv3_ref.models.MODELS[model](**options)
    return {name: array.shape for name, array in Torch().state(network).items()}


def _candidates(width: float) -> Iterator[dict[str, Any]]:
    """Usual widths first: channels are multiples of 8, so several widths can give the same network."""
    for reduced in (False, True):
        exact = width * (2 if reduced else 1)
        for candidate in dict.fromkeys((round(exact * 20) / 20, round(exact * 100) / 100, exact)):
            if candidate > 0:
                yield {"width_mult": candidate, "reduced_tail": reduced}


def published(model: str) -> dict[str, Callable[[], Path]]:
    """``torchvision``, and ``torchvision-v2`` where there is a second file."""
    names = {name: model + suffix for name, suffix in PUBLISHED_NAMES.items()}
    return {name: partial(fetch_published, key) for name, key in names.items() if key in PUBLISHED}


def spec(model: str) -> ModelSpec:
    """What the steps have to know of one of the two models."""
    return ModelSpec(
        port=mobilenetv3_paddle.models.MODELS[model],
        reference=mobilenetv3_ref.models.MODELS[model],
        small_shape=(3, 48, 48),
        blocks=blocks,
        last_layer=LAST_LAYER,
        options_of=partial(options_of, model),
        published=published(model),
        train_options=lambda recipe: {"dropout": recipe.dropout, "width_mult": recipe.width_mult},
        variants=[{"width_mult": width} for width in (0.35, 0.5, 0.75, 1.0)],
        compared_options=[
            *({"width_mult": width} for width in (0.35, 0.5, 0.75, 1.25)),
            {"reduced_tail": True},
            {"dilated": True},
            {"num_classes": 10},
            {"dropout": 0.5},
        ],
        compared_structures=[{"width_mult": 8.0}],  # widths are rounded to multiples of 8: here no two numbers become one
    )


def torchvision_pictures(index: DatasetIndex) -> np.ndarray:
    """torchvision's own loader and published preset."""
    read, transform = torchvision_data.decode, torchvision_data.eval_transform
    return np.stack([transform(read(index.path(i), "pil"), EvalPreset()).numpy() for i in range(len(index))])


def torchvision_list(index: DatasetIndex, split: str) -> tuple[list[str], list[int]] | None:
    """The files of a class folder as torchvision's ``ImageFolder`` lists them, without what programs leave behind."""
    from torchvision.datasets.folder import find_classes, make_dataset

    folder = index.root / split
    if not folder.is_dir() or (index.root / f"{split}_list.txt").exists():
        return None

    def of_a_class(path: str) -> bool:
        parts = Path(path).relative_to(folder).parts
        hidden = parts[-1].startswith(".") or any(map(left_behind, parts[:-1]))
        return path.lower().endswith(IMAGE_EXTENSIONS) and not hidden

    classes = [name for name in find_classes(str(folder))[0] if not left_behind(name)]
    numbers = {name: number for number, name in enumerate(classes)}
    listed = make_dataset(str(folder), numbers, is_valid_file=of_a_class, allow_empty=True)
    return [path for path, _ in listed], [label for _, label in listed]


def faults() -> Mapping[str, KnownFault]:
    """The known mistakes."""
    from .faults import FAULTS

    return FAULTS


def deployed(model: str, network: Module, folder: Path, size: int) -> Deployed:
    """How it is deployed; imported only when asked for."""
    from projects.mobilenetv3 import deploy

    return deploy.deployed(model, network, folder, size)


def edits() -> Edits:
    """The known mistakes as edits of the source, and right rewrites."""
    from .edits import EDITS

    return EDITS


PROJECT = Project(
    name="mobilenetv3",
    port=Side(
        Paddle(layers={Hardsigmoid: "hardsigmoid"}),
        data=mobilenetv3_paddle.data,
        metric=mobilenetv3_paddle.metric,
        loss=mobilenetv3_paddle.loss,
        train=mobilenetv3_paddle.train,
    ),
    reference=Side(
        Torch(),
        data=mobilenetv3_ref.data,
        metric=mobilenetv3_ref.metric,
        loss=mobilenetv3_ref.loss,
        train=mobilenetv3_ref.train,
    ),
    models={model: spec(model) for model in MODELS},
    sample_data=ROOT / "lite_data",
    cache=cache_dir,
    independent=Independent(
        "torchvision",
        torchvision_pictures,
        torchvision_list,
        data=torchvision_data,
        draws=torchvision_draws,
        published=torchvision_values.published,
        recipes=torchvision_values.recipes,
    ),
    witnesses=WITNESSES,
    deploy=deployed,
    faults=faults,
    edits=edits,
)
