"""The contact sheet: a stratified sample of pictures with their labels, as stored and as the network gets them."""

from __future__ import annotations

import base64
import html
import importlib
import io
import itertools
import random
from collections.abc import Mapping

import numpy as np
from PIL import Image

from alignment_doctor.data.subset import stratified
from alignment_doctor.report import Section
from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import decode_image
from mobilenetv3_common.sampling import SampleKey
from mobilenetv3_common.train_config import TrainConfig

SAMPLES, CLASSES = 50, 20  # seed 002, ds.02: about 50 pictures of at most 20 labels
SHOWN_SIDE = 112  # pixels


def sheet(indices: Mapping[str, DatasetIndex], good: np.ndarray, config: TrainConfig) -> tuple[Section, str]:
    """The sheet of the training pictures (of validation where there are none), and what the transforms were, in one line.

    Args:
        indices: of the splits.
        good: which pictures may be shown, bool (N,), split after split.
        config: whose training transforms are applied, by its framework where that is installed.
    """
    split = "train" if "train" in indices else next(iter(indices))
    index = indices[split]
    start = sum(len(index) for name, index in itertools.takewhile(lambda one: one[0] != split, indices.items()))
    usable = good[start : start + len(index)]
    present = sorted({label for label, good in zip(index.labels, usable, strict=True) if good})
    classes = present if len(present) <= CLASSES else sorted(random.Random(0).sample(present, CLASSES))
    chosen = stratified(index, usable, SAMPLES, classes)
    chosen.sort(key=lambda number: index.labels[number])
    try:
        dataset = importlib.import_module(f"mobilenetv3_{config.framework}.data").ImageDataset(index, config.train_preset)
        said = f"training transforms of {config.framework}, crop {config.crop_size}"
    except ImportError:
        dataset, said = None, f"as stored alone: the framework of {config.framework} is not installed"
    figures = []
    for number in chosen:
        pictures = [_stored(index.path(number))]
        if dataset is not None:
            pixels, _, _ = dataset[SampleKey(0, number, 0)]
            pictures.append(_transformed(np.asarray(pixels), config))
        images = "".join(f'<img alt="" src="data:image/jpeg;base64,{_jpeg(picture)}">' for picture in pictures)
        caption = html.escape(f"{index.classes[index.labels[number]]}: {index.names[number]}")
        figures.append(f"<figure>{images}<figcaption>{caption}</figcaption></figure>")
    title = f"Contact sheet: {len(chosen)} pictures of {len(classes)} classes ({split}): {said}"
    return Section(title, f'<div class="sheet">{"".join(figures)}</div>'), said


def _stored(path: object) -> Image.Image:
    try:
        return decode_image(str(path))
    except UserError:  # it was good when it was measured
        return Image.new("RGB", (1, 1))


def _transformed(pixels: np.ndarray, config: TrainConfig) -> Image.Image:
    """Normalised pixels, float32 (3, H, W), as a picture again."""
    preset = config.train_preset
    levels = pixels.transpose(1, 2, 0) * np.array(preset.std) + np.array(preset.mean)
    return Image.fromarray(np.clip(np.round(levels * 255), 0, 255).astype(np.uint8))


def _jpeg(picture: Image.Image) -> str:
    picture.thumbnail((SHOWN_SIDE, SHOWN_SIDE))
    held = io.BytesIO()
    picture.save(held, "JPEG", quality=80)
    return base64.b64encode(held.getvalue()).decode()
