"""Measure side by side in one run: python tools/benchmark.py loader | train.

loader: the training pipeline (random crop, flip, normalise) of each framework's loader, with Pillow and OpenCV, beside
torchvision's own transforms in torch's loader, on the same JPEGs with the same workers.
train: an update of the engine beside a bare loop of forward, loss, backward and update on the same batches.

Medians over the repeats; the ratios are what to look at, since machines are noisy.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from mobilenetv3_common.config_file import Parser
from mobilenetv3_common.errors import exit_on_user_error
from mobilenetv3_common.files import atomic_open


def side_by_side(cases: dict[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Run every case in turn, ``repeats`` times over, so that a slow phase of the machine meets them all."""
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, case in cases.items():
            found[name].append(case())
    return found


def print_table(found: dict[str, list[float]], unit: str, base: str) -> None:
    """One row a case: median, spread, and the ratio to the base's median."""
    width = max(map(len, found))
    for name, values in found.items():
        ratio = statistics.median(values) / statistics.median(found[base])
        spread = f"{min(values):.4g} to {max(values):.4g}"
        print(f"{name:<{width}}  {statistics.median(values):8.4g} {unit}  ({spread})  {ratio:.2f} x {base}")


def loader_cases(folder: Path, pictures: int, workers: int, batch_size: int) -> dict[str, Callable[[], float]]:
    """Images a second of one epoch of each loader, the start of its workers left out."""
    importlib.import_module("mobilenetv3_ref").declare_missing_operators()  # before torchvision, beside a CPU torch
    import torch
    from torchvision import datasets, transforms

    from mobilenetv3_common.dataset_index import index_dataset
    from mobilenetv3_common.presets import IMAGENET_MEAN, IMAGENET_STD, TrainPreset
    from mobilenetv3_common.sampling import BatchPlan

    torch.set_num_threads(1)
    index = index_dataset(folder, "train")
    own = transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.PILToTensor(),
            transforms.ConvertImageDtype(torch.float32),
            transforms.Normalize(IMAGENET_MEAN, IMAGENET_STD),
        ]
    )  # as in torchvision's references/classification/presets.py

    def torchvision_case() -> Iterable[Any]:
        dataset = datasets.ImageFolder(str(folder / "train"), own)
        return torch.utils.data.DataLoader(dataset, batch_size, shuffle=True, num_workers=workers, drop_last=True)

    def ours(framework: str, backend: str) -> Iterable[Any]:
        data = importlib.import_module(f"mobilenetv3_{framework}.data")
        dataset = data.ImageDataset(index, TrainPreset(), 0, backend)
        return data.build_loader(dataset, BatchPlan(len(index), batch_size, shuffle=True, drop_last=True), workers)

    def timed(make: Callable[[], Iterable[Any]]) -> float:
        batches = iter(make())
        next(batches)
        start = time.perf_counter()
        count = sum(1 for _ in batches)
        return count * batch_size / (time.perf_counter() - start)

    cases = {"torchvision pil": lambda: timed(torchvision_case)}
    for framework in ("ref", "paddle"):
        for backend in ("pil", "cv2"):
            cases[f"{framework} {backend}"] = lambda f=framework, b=backend: timed(lambda: ours(f, b))  # type: ignore[misc]
    return cases


def write_jpegs(folder: Path, pictures: int) -> None:
    """ImageNet-sized JPEGs (500 x 375) cut from lite_data's photographs, one class."""
    from PIL import Image

    root = Path(__file__).resolve().parents[1] / "lite_data"
    sources = sorted(root.glob("*/*/*.JPEG"))
    (folder / "train" / "all").mkdir(parents=True)
    for number in range(pictures):
        image = Image.open(sources[number % len(sources)]).convert("RGB").resize((500, 375), Image.Resampling.BICUBIC)
        image.save(folder / "train" / "all" / f"{number:05d}.JPEG", quality=90)


def train_cases(framework: str, model: str, batch_size: int, size: int) -> dict[str, Callable[[], float]]:
    """Milliseconds an update: the engine's, and the bare loop's on the same network and batch."""
    from mobilenetv3_common.train_config import TrainConfig

    package = importlib.import_module(f"mobilenetv3_{framework}.train")
    root = str(Path(__file__).resolve().parents[1] / "lite_data")
    config = TrainConfig(
        framework=framework, model=model, data_path=root, batch_size=min(batch_size, 16), crop_size=size, workers=0
    )
    run = package.build_run(replace(config, resize_size=max(size, 256)), package.Ranks())
    batch, _ = next(package.micro_batches(run))
    clear = run.optimizer.clear_grad if framework == "paddle" else run.optimizer.zero_grad
    run.train_mode()

    def engine() -> float:
        start = time.perf_counter()
        package.update(run, [(batch, 0)])
        run.iteration = 0
        return 1e3 * (time.perf_counter() - start)

    def bare() -> float:
        start = time.perf_counter()
        loss = run.criterion(run.model(batch[0]), batch[1])
        loss.backward()
        run.optimizer.step()
        clear()
        float(loss.detach())
        return 1e3 * (time.perf_counter() - start)

    for case in (engine, bare):
        case()
    return {f"{framework} bare loop": bare, f"{framework} engine": engine}


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    parser = Parser(description=__doc__)
    parser.add_argument("what", choices=("loader", "train"))
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="(default: 5)")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="loader processes (default: 2)")
    parser.add_argument("--pictures", type=int, default=640, metavar="N", help="JPEGs of the loader's epoch (default: 640)")
    parser.add_argument("--batch-size", type=int, default=16, metavar="N", help="(default: 16)")
    parser.add_argument("--size", type=int, default=224, metavar="N", help="train: pixels of the input (default: 224)")
    parser.add_argument("--model", choices=("mobilenet_v3_small", "mobilenet_v3_large"), default="mobilenet_v3_small")
    parser.add_argument("--json", metavar="FILE", help="write the figures here")
    args = parser.parse_args(argv)
    found: dict[str, list[float]] = {}
    if args.what == "loader":
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        with tempfile.TemporaryDirectory() as folder:
            write_jpegs(Path(folder), args.pictures)
            found = side_by_side(loader_cases(Path(folder), args.pictures, args.workers, args.batch_size), args.repeats)
        print_table(found, "images/s", "torchvision pil")
    else:
        for framework in ("ref", "paddle"):
            measured = side_by_side(train_cases(framework, args.model, args.batch_size, args.size), args.repeats)
            print_table(measured, "ms", f"{framework} bare loop")
            found |= measured
    if args.json:
        with atomic_open(args.json, "w") as file:
            json.dump(found, file)
            file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
