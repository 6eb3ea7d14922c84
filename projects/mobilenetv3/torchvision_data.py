"""torchvision's own pipeline as a data part: step 2 holds both packages against it.

With the project it shares the types in which presets and drawn parameters are handed over, and the drawing itself, whose
distributions ``torchvision_draws`` states. Decoding, transforms, grouping and mixing are torchvision's, Pillow's and OpenCV's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from PIL import Image
from torchvision.datasets.folder import default_loader
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms import functional as F
from torchvision.transforms._presets import ImageClassification
from torchvision.transforms.autoaugment import _apply_op

from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.preprocess import within_reach
from mobilenetv3_common.presets import EvalPreset, TrainPreset
from mobilenetv3_common.sampling import BatchPlan, MixParams, RunPlan, SampleKey, SampleParams, mix_params, sample_params


def decode(path: os.PathLike, backend: str) -> Image.Image:
    """An RGB picture; OpenCV decodes JPEG alone, and not CMYK, as the packages document."""
    if backend == "cv2":
        with Image.open(path) as image:
            with_opencv = image.format == "JPEG" and image.mode in ("RGB", "L")
        if with_opencv:
            import cv2

            blue_first: Any = cv2.imread(str(path), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
            return Image.fromarray(np.ascontiguousarray(blue_first[:, :, ::-1]))
    with Image.open(path) as image:
        if image.mode.startswith("I;16"):  # torchvision's loader clips them to white
            return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    return default_loader(str(path))


def eval_transform(image: Image.Image, preset: EvalPreset) -> torch.Tensor:
    """The preset of torchvision's weights."""
    return ImageClassification(
        crop_size=preset.crop_size, resize_size=preset.resize_size, mean=preset.mean, std=preset.std
    )(within_reach(image))  # fmt: skip


def train_transform(image: Image.Image | np.ndarray, preset: TrainPreset, params: SampleParams) -> torch.Tensor:
    """What torchvision's training preset (references/classification/presets.py) does once its parameters are drawn."""
    top, left, height, width = params.crop
    side, bilinear = preset.crop_size, InterpolationMode.BILINEAR
    if isinstance(image, np.ndarray):
        import cv2

        shrinks = height > 2 * side and width > 2 * side
        method = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
        window = np.asarray(Image.fromarray(image).crop((left, top, left + width, top + height)))  # black beyond the border
        image = Image.fromarray(cv2.resize(window, (side, side), interpolation=method))
    else:
        image = F.resized_crop(image, top, left, height, width, [side, side], bilinear)
    if params.flip:
        image = F.hflip(image)
    for name, magnitude in params.ops:
        image = _apply_op(image, name, magnitude, interpolation=bilinear, fill=None)
    pixels = F.normalize(F.convert_image_dtype(F.pil_to_tensor(image), torch.float32), list(preset.mean), list(preset.std))
    if params.erase is not None:
        pixels = F.erase(pixels, *params.erase, v=torch.tensor(0.0))
    return pixels


class ImageDataset:
    """The samples of one split."""

    arrays = torch

    def __init__(self, index: DatasetIndex, preset: EvalPreset | TrainPreset, seed: int = 0, backend: str = "pil") -> None:
        self.index, self.preset, self.seed, self.backend = index, preset, seed, backend

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, key: SampleKey) -> tuple[torch.Tensor, int, SampleKey]:
        path, label = self.index.path(key.sample), self.index.labels[key.sample]
        image = decode(path, self.backend)
        if isinstance(self.preset, EvalPreset):
            return eval_transform(image, self.preset), label, key
        params = sample_params(self.preset, self.seed, key, image.height, image.width)
        return train_transform(np.asarray(image) if self.backend == "cv2" else image, self.preset, params), label, key

    def decode(self, path: os.PathLike) -> Image.Image:
        return decode(path, self.backend)

    def mix_batch(
        self, images: torch.Tensor, labels: torch.Tensor, params: MixParams, num_classes: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """torchvision's arithmetic, whose boxes are left, top, right, bottom."""
        given: dict[str, Any] = {"labels": labels, "batch_size": len(labels)}
        if params.kind == "mixup":
            mixer, given["lam"] = v2.MixUp(num_classes=num_classes), params.lam
        else:
            assert params.box is not None
            top, left, height, width = params.box
            mixer, given["lam_adjusted"] = v2.CutMix(num_classes=num_classes), params.lam
            given["box"] = (left, top, left + width, top + height)
        return mixer.transform(images, given), mixer.transform(labels, given)


def build_loader(
    dataset: ImageDataset, plan: BatchPlan | RunPlan, num_workers: int = 0, mix_group: int | None = None
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Batches in the plan's order, made in this process; a group is ``mix_group`` samples that follow each other in the epoch."""
    preset, size = dataset.preset, mix_group or plan.batch_size
    for keys in plan:
        made = [dataset[key] for key in keys]
        images, labels = torch.stack([pixels for pixels, _, _ in made]), torch.tensor([label for _, label, _ in made])
        if isinstance(preset, TrainPreset) and preset.mixes:
            parts = []
            for start in range(0, len(keys), size):
                key, part = keys[start], slice(start, start + size)
                params = mix_params(preset, dataset.seed, key.epoch, key.position // size, images.shape[2], images.shape[3])
                parts.append(dataset.mix_batch(images[part], labels[part], params, dataset.index.num_classes))
            images, labels = torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
        yield images, labels, torch.tensor([key.sample for key in keys])
