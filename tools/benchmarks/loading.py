"""The loaders, the list of a data set, and the doctor's look at pictures."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from tools.benchmarks.pictures import write_jpegs, write_names, write_small
from tools.benchmarks.turns import print_table, side_by_side


def _loader_cases(folder: Path, workers: int, batch_size: int) -> dict[str, Callable[[], float]]:
    """Images a second of one epoch of each loader, the start of its workers left out."""
    importlib.import_module("mobilenetv3_ref")  # before torchvision, beside a CPU torch: it declares missing operators
    import torch
    from torchvision import datasets, transforms

    from mobilenetv3_common.dataset_index import DatasetIndex, index_dataset
    from mobilenetv3_common.presets import IMAGENET_MEAN, IMAGENET_STD, TrainPreset
    from mobilenetv3_common.sampling import BatchPlan
    from mobilenetv3_common.shard_writer import write_shards

    torch.set_num_threads(1)
    index = index_dataset(folder, "train")
    size = sum(os.path.getsize(index.path(number)) for number in range(len(index)))
    write_shards({"train": index}, folder / "shards", size // (4 * max(1, workers)))
    sharded = index_dataset(folder / "shards", "train")
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

    def webdataset_case() -> Iterable[Any]:
        import webdataset

        urls = [str(path) for path in sorted((folder / "shards").glob("train-*.tar"))]
        pictures = webdataset.WebDataset(urls, shardshuffle=len(urls), empty_check=False).shuffle(1000).decode("pil")
        pictures = pictures.to_tuple("jpeg", "cls").map_tuple(own, int).batched(batch_size, partial=False)
        return torch.utils.data.DataLoader(pictures, None, num_workers=workers)

    def ours(framework: str, backend: str, index: DatasetIndex) -> Iterable[Any]:
        data = importlib.import_module(f"mobilenetv3_{framework}.data")
        dataset = data.ImageDataset(index, TrainPreset(), 0, backend)
        return data.build_loader(dataset, BatchPlan(len(index), batch_size, shuffle=True, drop_last=True), workers)

    def timed(make: Callable[[], Iterable[Any]]) -> float:
        batches = iter(make())
        next(batches)
        start = time.perf_counter()
        count = sum(1 for _ in batches)
        return count * batch_size / (time.perf_counter() - start)

    cases: dict[str, Callable[[], float]] = {"torchvision pil": lambda: timed(torchvision_case)}
    if importlib.util.find_spec("webdataset") is not None:
        cases["webdataset pil, shards"] = lambda: timed(webdataset_case)
    for framework in ("ref", "paddle"):
        for backend in ("pil", "cv2"):
            for name, listed in (("", index), (", shards", sharded)):
                make = functools.partial(ours, framework, backend, listed)
                cases[f"{framework} {backend}{name}"] = functools.partial(timed, make)
    return cases


def loader(folder: Path, args: Any) -> dict[str, list[float]]:
    """Images a second of every loader."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    write_jpegs(folder, args.pictures)
    found = side_by_side(_loader_cases(folder, args.workers, args.batch_size), args.repeats)
    print_table(found, "images/s", "torchvision pil")
    return found


_index: Any = None  # what a forked worker inherits


def memory() -> tuple[float, float]:
    """MiB that this process has for itself, and MiB with what it shares."""
    found = dict(line.split(":") for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    private, all_of = (
        sum(int(found[name].split()[0]) for name in names) / 1024 for names in (("Private_Clean", "Private_Dirty"), ("Rss",))
    )
    return private, all_of


def _epoch() -> tuple[float, float]:
    before = memory()
    for number in range(len(_index)):
        _index.path(number)
        _index.labels[number]
    after = memory()
    return after[0] - before[0], after[1] - before[1]


def listed(folder: Path) -> tuple[float, float, tuple[float, float]]:
    """Seconds of listing a split, MiB that it adds to this process, and what ``memory`` grows by in a worker over an epoch."""
    global _index
    from mobilenetv3_common.dataset_index import index_dataset

    before, start = memory()[0], time.perf_counter()
    _index = index_dataset(folder, "train")
    seconds, added = time.perf_counter() - start, memory()[0] - before
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return seconds, added, pool.submit(_epoch).result()


def index(folder: Path, args: Any) -> dict[str, list[float]]:
    """Seconds and MiB of each form of the list; every process that lists is a new one."""
    os.environ["MOBILENETV3_CACHE"] = str(folder / "cache")
    lines, found = write_names(folder / "data", args.pictures), dict[str, list[float]]()
    for form in ("class folders", "list file"):
        if form == "list file":
            (folder / "data" / "train_list.txt").write_text("\n".join(lines))
        rows = []
        for _ in range(1 + args.repeats):
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                rows.append(pool.submit(listed, folder / "data").result())
        found |= {
            f"{form}: first time, s": [rows[0][0]],
            f"{form}: later times, s": [row[0] for row in rows[1:]],
            f"{form}: a further process, MiB": [row[1] for row in rows[1:]],
            f"{form}: a worker over an epoch, its own memory, MiB": [row[2][0] for row in rows[1:]],
            f"{form}: the same with the mapped file, MiB": [row[2][1] for row in rows[1:]],
        }
    for name, values in found.items():
        print(f"{name:<60}  {statistics.median(values):8.3g}  ({min(values):.3g} to {max(values):.3g})")
    return found


def _data_cases(folder: Path, processes: int) -> dict[str, Callable[[], float]]:
    """Pictures a second of decoding alone, and of all that ``tools/doctor.py data`` does, its table included."""
    import contextlib
    import io

    from joblib import Parallel, delayed

    from alignment_doctor.cli import main as doctor
    from alignment_doctor.data.scan import CHUNK

    names = [str(path) for path in sorted(folder.glob("*/*/*"))]
    chunks = [names[start : start + CHUNK] for start in range(0, len(names), CHUNK)]

    def decoding() -> None:
        Parallel(n_jobs=processes)(delayed(decoded)(chunk) for chunk in chunks)

    def examined() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            status = doctor(["data", str(folder), "--processes", str(processes)])
        assert status in (0, 1), status  # 1: it found something in these pictures

    Parallel(n_jobs=processes)(delayed(decoded)(chunk) for chunk in [names[:1]] * processes)  # starts its processes

    def timed(work: Callable[[], None]) -> float:
        start = time.perf_counter()
        work()
        return len(names) / (time.perf_counter() - start)

    return {"decoding": functools.partial(timed, decoding), "doctor data": functools.partial(timed, examined)}


def decoded(names: list[str]) -> None:
    """Decode pictures to RGB."""
    import numpy as np
    from PIL import Image

    for name in names:
        with Image.open(name) as image:
            np.asarray(image.convert("RGB"))


def data(folder: Path, args: Any) -> dict[str, list[float]]:
    """Pictures a second of the doctor's look at a data set."""
    write_small(folder, args.pictures, args.size or 64)
    found = side_by_side(_data_cases(folder, args.workers), args.repeats)
    print_table(found, "pictures/s", "decoding")
    return found
