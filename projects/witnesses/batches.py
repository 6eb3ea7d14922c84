"""Which pictures make an update, how they are drawn and mixed, against torch's samplers and arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from alignment.kinds import Kind
from alignment.witness import Told
from mobilenetv3_common import held_out, run, samples, sampling
from mobilenetv3_common.class_weights import class_weights
from mobilenetv3_common.counted import counted
from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.presets import TrainPreset
from mobilenetv3_common.train_config import TrainConfig


def ranks_of(rank: int = 0, world_size: int = 1) -> Any:
    """One of several processes, as far as a plan asks."""
    return SimpleNamespace(rank=rank, world_size=world_size, first=rank == 0)


def sizes_of(config: TrainConfig, pictures: int, world_size: int = 1) -> list[list[int]]:
    """The sizes of a training epoch's batches, for each rank."""
    plans = [run.training_plan(config, pictures, ranks_of(rank, world_size)) for rank in range(world_size)]
    return [[len(keys) for keys in plan] for plan in plans]


def training_plan() -> Iterator[Told]:
    """``run.training_plan``: torch's ``DataLoader(shuffle=True, drop_last=...)`` over a ``DistributedSampler``."""
    whole = TrainConfig(batch_size=4)
    for pictures in (8, 11, 22):
        full, left = divmod(pictures, 4)
        last = [left] if left else []
        yield _sizes(f"{pictures} pictures in batches of 4", sizes_of(whole, pictures), [[4] * full])
        kept = sizes_of(replace(whole, drop_last=False), pictures)
        yield _sizes(f"{pictures} pictures in batches of 4, --no-drop-last", kept, [[4] * full + last])
    yield _sizes("22 pictures, batches of 4 on 2 ranks", sizes_of(whole, 22, 2), [[4, 4], [4, 4]])
    kept = sizes_of(replace(whole, drop_last=False), 22, 2)
    yield _sizes("22 pictures, batches of 4 on 2 ranks, all kept", kept, [[4, 4, 3]] * 2)
    for seed in (3, 8):
        plan = run.training_plan(replace(whole, seed=seed), 22, ranks_of())
        plan.set_epoch(5)
        order = sampling.epoch_order(22, seed, 5).tolist()[:20]
        yield Told(f"the order of seed {seed}, epoch 5", [key.sample for keys in plan for key in keys], order)
    yield from _repeated(whole)
    plan = run.training_plan(whole, 22, ranks_of(1, 2))
    yield Told("where the second rank's batches lie", [plan.place(number)[0] for number in range(2)], [4, 12])


def _sizes(case: str, made: list[list[int]], right: list[list[int]]) -> Told:
    fewer = sum(map(sum, made)) < sum(map(sum, right))
    return Told(case, made, right, kind=Kind.BATCH_DROPPED if fewer else Kind.COUNT)


def _repeated(config: TrainConfig) -> Iterator[Told]:
    """Repeated samples: torchvision's ``RASampler``, and batches of what it gives a rank."""
    for pictures, repeats, ranks in ((22, 2, 1), (22, 3, 3), (400, 2, 1), (600, 3, 3)):
        order = sampling.epoch_order(pictures, config.seed, 0).tolist()
        for rank, drop in ((rank, drop) for rank in range(ranks) for drop in (True, False)):
            given = replace(config, repeat_augment=repeats, drop_last=drop)
            theirs = _of_ra_sampler(order, repeats, rank, ranks)
            whole = theirs[: len(theirs) // config.batch_size * config.batch_size] if drop else theirs
            made = [(key.sample, key.repeat) for keys in run.training_plan(given, pictures, ranks_of(rank, ranks)) for key in keys]
            case = f"{pictures} pictures {repeats} times, rank {rank} of {ranks}, {'whole batches' if drop else 'all kept'}"
            yield Told(f"{case}: samples", len(made), len(whole))
            yield Told(f"{case}: which", made, whole, kind=Kind.ORDER)


def _of_ra_sampler(order: list[int], repeats: int, rank: int, ranks: int) -> list[tuple[int, int]]:
    """Samples of a rank, each with the number of its repetition, as torchvision's ``RASampler`` draws them."""
    every = [(sample, number) for sample in order for number in range(repeats)]
    every += every[: -len(every) % ranks]
    rounded = len(order) // 256 * 256 or len(order)  # it rounds always; no data set of the references is so small
    return every[rank::ranks][: rounded // ranks]


def fitted() -> Iterator[Told]:
    """``run.fitted``: the batch is halved until an epoch has so many updates, below 8 until it has one."""
    for pictures, batch, accumulate, least, expected in (
        (64, 32, 1, 1, 32), (64, 32, 1, 4, 16), (64, 32, 1, 5, 8), (64, 32, 2, 1, 32), (64, 32, 2, 2, 16), (20, 32, 1, 1, 16),
        (64, 32, 1, 9, 8),        (3, 4, 1, 2, 2), (1, 4, 1, 1, 4),
    ):  # fmt: skip
        config = TrainConfig(batch_size=batch, accumulate=accumulate, min_updates=least)
        case = f"{pictures} pictures, batch {batch} x {accumulate}, at least {counted(least, 'update')}"
        yield Told(case, run.fitted(config, pictures, ranks_of()).batch_size, expected)
    grouped = TrainConfig(batch_size=32, min_updates=8, mixup_alpha=0.2, mix_group=16)
    yield Told("no batch smaller than a mixing group", run.fitted(grouped, 64, ranks_of()).batch_size, 16)


def dropout() -> Iterator[Told]:
    """``sampling.DropoutStream``: a sample's numbers depend on (seed, epoch, place) alone; different places are independent."""
    stream = sampling.DropoutStream(5)
    stream.at(2, 0)
    whole = stream((12, 3, 2))
    for start, count in ((0, 4), (4, 4), (8, 4), (7, 1)):
        stream.at(2, start)
        yield Told(f"places {start} to {start + count - 1} of an epoch", stream((count, 3, 2)), whole[start : start + count])
    drawn = [_drawn(seed, epoch, 0) for seed in (5, 6) for epoch in (0, 1, 2)]
    yield Told("seeds and epochs that draw the same", sum(np.array_equal(a, b) for i, a in enumerate(drawn) for b in drawn[:i]), 0)
    rows = whole.reshape(12, -1)
    yield Told("places that draw the same", sum(np.array_equal(a, b) for i, a in enumerate(rows) for b in rows[:i]), 0)
    many = _drawn(1, 0, 0, 20000)
    outside = (many < 0) | (many >= 1)
    yield Told("numbers outside 0 to 1", int(outside.sum()), 0)
    yield Told("twentieths of 0 to 1 that are drawn too often or too seldom", _uneven(many), 0)


def _drawn(seed: int, epoch: int, place: int, count: int = 8) -> np.ndarray:
    stream = sampling.DropoutStream(seed)
    stream.at(epoch, place)
    return stream((count, 2))


def _uneven(values: np.ndarray) -> int:
    """Of twenty equal parts of 0..1, those whose share is 8 standard deviations away from a twentieth."""
    counts, size = np.histogram(values, 20, (0, 1))[0], values.size
    return int((np.abs(counts - size / 20) > 8 * math.sqrt(size * 0.05 * 0.95)).sum())


class Marked(samples.Samples):
    """A data set whose pictures are their own drawn parameters: what a sample was made of can be read off it."""

    arrays = np

    def __init__(self, preset: TrainPreset, seed: int = 0, broken: tuple[int, ...] = (), skip: bool = False) -> None:
        names = tuple(f"{number}.png" for number in range(16))
        index = DatasetIndex(Path(), names, [number % 4 for number in range(16)], tuple("abcd"))
        super().__init__(index, preset, seed, on_bad_image="skip" if skip else "stop")
        self.broken, self.seen = broken, list[sampling.SampleParams]()
        self.mixed: list[tuple[int, sampling.MixParams]] = []

    def decode(self, path: Any) -> Any:
        from PIL import Image

        from mobilenetv3_common.errors import UserError

        number = int(Path(path).stem)
        if number in self.broken:
            raise UserError(f"{path} is damaged")
        return Image.new("RGB", (40, 30), (number, 0, 0))

    def eval_transform(self, image: Any, preset: Any) -> np.ndarray:
        raise NotImplementedError

    def train_transform(self, image: Any, preset: TrainPreset, params: sampling.SampleParams) -> np.ndarray:
        self.seen.append(params)
        return np.full((3, 2, 2), float(np.asarray(image)[0, 0, 0]))

    def mix_batch(self, images: np.ndarray, labels: np.ndarray, params: sampling.MixParams, num_classes: int) -> Any:
        self.mixed.append((len(images), params))
        return images, np.eye(num_classes)[labels]


def sample() -> Iterator[Told]:
    """``samples.Samples``: a sample is drawn by its own epoch, picture and repetition, and has the size of its own picture."""
    preset = TrainPreset(auto_augment="ta_wide", random_erase_prob=0.5)
    for key in (sampling.SampleKey(0, 3, 9), sampling.SampleKey(4, 3, 9), sampling.SampleKey(4, 5, 0, 2)):
        data = Marked(preset, seed=7)
        pixels, label, shown = data[key]
        yield Told(f"{key}: parameters", str(data.seen[0]), str(sampling.sample_params(preset, 7, key, 30, 40)))
        yield Told(f"{key}: picture, label and key", [pixels[0, 0, 0], label, *shown], [key.sample, key.sample % 4, *key])
    data = Marked(TrainPreset(hflip_prob=0.5), seed=1)
    for epoch in range(4):
        for number in range(16):
            data[sampling.SampleKey(epoch, number, number)]
    crops = {params.crop for params in data.seen}
    yield Told("nearly all crops of 16 pictures in 4 epochs differ", len(crops) > 56, True)
    yield from _stand_ins()


def _stand_ins() -> Iterator[Told]:
    """A damaged picture that is skipped gives way to the next that is readable, with the label of that one."""
    import contextlib
    import io

    data = Marked(TrainPreset(), broken=(5, 6, 15), skip=True)
    for number, expected in ((4, 4), (5, 7), (6, 7), (15, 0)):
        with contextlib.redirect_stderr(io.StringIO()):
            pixels, label, key = data[sampling.SampleKey(0, number, 1)]
        shown = number if expected == number else ~number
        found = [pixels[0, 0, 0], label, key.sample]
        yield Told(f"picture {number} of 16 where 5, 6 and 15 are damaged", found, [expected, expected % 4, shown])


def collate() -> Iterator[Told]:
    """``samples.collate``: groups of consecutive samples of the epoch, each mixed by the draw of its own number."""
    preset = TrainPreset(mixup_alpha=0.4, mix_epochs=3)
    for epoch, start, group in ((0, 0, 8), (0, 8, 8), (2, 8, 4), (2, 4, 2)):
        data = Marked(preset, seed=3)
        keys = [sampling.SampleKey(epoch, place, place) for place in range(start, start + 8 if group != 2 else start + 4)]
        images, labels, numbers = samples.collate([data[key] for key in keys], data, group)
        parts = range(keys[0].position // group, (keys[-1].position + 1) // group)
        expected = [(group, str(sampling.mix_params(preset, 3, epoch, number, 2, 2))) for number in parts]
        case = f"epoch {epoch}, places {keys[0].position} to {keys[-1].position}, groups of {group}"
        yield Told(f"{case}: groups", [(size, str(params)) for size, params in data.mixed], expected)
        yield Told(f"{case}: pictures", images[:, 0, 0, 0], [key.sample for key in keys])
        yield Told(f"{case}: numbers", numbers, [key.sample for key in keys])
    data = Marked(preset)
    _, labels, _ = samples.collate([data[sampling.SampleKey(3, place, place)] for place in range(8)], data, 4)
    yield Told("epoch 3 of a preset that mixes 3 epochs", [len(data.mixed), labels.tolist()], [0, [0, 1, 2, 3] * 2])


def weights() -> Iterator[Told]:
    """``class_weights``: scikit-learn's ``compute_class_weight("balanced")``, and numbers as they are given."""
    index = DatasetIndex(Path(), tuple("123456"), [0, 0, 0, 1, 1, 2], ("ant", "bee", "cat"))
    yield Told("3, 2 and 1 pictures, balanced", class_weights("balanced", index), [6 / 9, 6 / 6, 6 / 3])
    yield Told("numbers", class_weights("1, 2.5,0.25", index), [1.0, 2.5, 0.25])
    yield Told("none", class_weights(None, index), None)
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "weights.txt")
        file.write_text("cat 3\nant 1\nbee 2\n")
        yield Told("a file by name", class_weights(str(file), index), [1.0, 2.0, 3.0])


def held() -> Iterator[Told]:
    """``held_out.index_held_out``: the share of each class, one picture at least, none of a single one."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        counts = {"a": 20, "b": 5, "c": 2, "d": 1}
        for name, count in counts.items():
            Path(folder, name).mkdir()
            for number in range(count):
                Path(folder, name, f"{number:02}.png").touch()
        for share, expected in (
            (0.25, [5, 1, 1, 0]),
            (0.5, [10, 2, 1, 0]),
            (0.01, [1, 1, 1, 0]),
            (0.99, [19, 4, 1, 0]),
            (0.18, [4, 1, 1, 0]),
        ):
            train, val = held_out.index_held_out(folder, share, 4)
            case = f"a share of {share} of 20, 5, 2 and 1 pictures"
            yield Told(case, np.bincount(np.asarray(val.labels), minlength=4).tolist(), expected)
            together = sorted([*train.names, *val.names])
            yield Told(
                f"{case}: every picture once", together, sorted(f"{n}/{i:02}.png" for n, c in counts.items() for i in range(c))
            )
        drawn = {tuple(held_out.index_held_out(folder, 0.25, seed)[1].names) for seed in range(6)}
        yield Told("seeds draw different pictures", len(drawn) > 3, True)
