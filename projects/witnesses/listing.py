"""What is listed, converted, kept and told beside training: data, weights, checkpoints, evaluations, against tables by hand."""

from __future__ import annotations

import io
import pickle
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from alignment.kinds import Kind
from alignment.witness import Told
from mobilenetv3_common import image, published, rank_statistics, weights
from mobilenetv3_common.as_trained import as_trained
from mobilenetv3_common.checkpoint import Checkpoint, CheckpointFolder, write_checkpoint
from mobilenetv3_common.dataset_index import DatasetIndex, index_dataset, index_splits
from mobilenetv3_common.evaluation_record import Mistake, Record, read_record, worst, write_record
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.weights_file import read_state
from projects.witnesses.pictures import drawn, encoded

SIDE = 32  # of CIFAR-10's pictures


def pairs_of(index: DatasetIndex) -> list[tuple[str, str]]:
    """Each file with the name of its class."""
    return [(Path(name).name, index.classes[label]) for name, label in zip(index.names, index.labels, strict=True)]


def touched(folder: Path, names: Sequence[str]) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def folders() -> Iterator[Told]:
    """Class folders and list files: labels count the sorted names, capitals first; an empty class keeps its number."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        touched(
            root,
            ["train/bee/2.png", "train/bee/10.png", "train/ant/b.jpg", "train/ant/Z.jpg", "train/cow/sub/3.png", "train/Yak/4.png"],
        )
        touched(root, ["val/cow/7.png", "val/bee/8.png"])
        (root / "train/aaa").mkdir()
        train = index_dataset(root, "train")
        yield Told("folders: classes in order", list(train.classes), ["Yak", "aaa", "ant", "bee", "cow"])
        yield Told("folders: files and labels", [*zip(train.names, train.labels, strict=True)], [
            ("train/Yak/4.png", 0), ("train/ant/Z.jpg", 2), ("train/ant/b.jpg", 2), ("train/bee/10.png", 3),
            ("train/bee/2.png", 3), ("train/cow/sub/3.png", 4),
        ])  # fmt: skip
        _, val = index_splits(root, match="subset")
        yield Told("validation's classes among training's", [*val.labels], [3, 4])
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        touched(root, ["a.png", "b c.png", "d.png"])
        (root / "train_list.txt").write_text("b c.png 2\na.png 0\nd.png 1\n")
        (root / "val_list.txt").write_text("d.png 1\n")
        (root / "classes.txt").write_text("one\ntwo\nthree\n")
        train, val = index_splits(root, match="subset")
        yield Told("lists: files and classes", pairs_of(train), [("b c.png", "three"), ("a.png", "one"), ("d.png", "two")])
        yield Told("lists: validation", pairs_of(val), [("d.png", "two")])
    moved = DatasetIndex(Path(), ("x", "y", "z"), [0, 1, 1], ("bee", "ant")).in_classes(("ant", "bee", "cow"))
    yield Told("labels among a model's classes", [*moved.labels], [1, 0, 0], "DatasetIndex.in_classes", Kind.LABEL)


def cifar() -> Iterator[Told]:
    """CIFAR-10: red, green, blue, each row by row; in a binary batch a label before each picture."""
    pixels = np.random.default_rng(4).integers(0, 256, (6, 3, SIDE, SIDE), dtype=np.uint8)
    labels = [3, 0, 9, 1, 1, 7]
    for kind in ("Python", "binary"):
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            for number, batch in enumerate([*(f"data_batch_{count}" for count in range(1, 6)), "test_batch"]):
                rows, label = pixels[number].reshape(1, -1), labels[number]
                if kind == "Python":
                    (root / batch).write_bytes(pickle.dumps({"data": rows, "labels": [label], "filenames": [f"{number}.png"]}))
                else:
                    (root / f"{batch}.bin").write_bytes(bytes([label]) + rows.tobytes())
            for split, numbers in (("train", range(5)), ("val", range(5, 6))):
                index = index_dataset(root, split)
                yield Told(f"{kind} batches, {split}: labels", [*index.labels], [labels[number] for number in numbers])
                made = [np.asarray(image.decode_image(index.path(place))) for place in range(len(index))]
                yield Told(f"{kind} batches, {split}: pictures", np.stack(made), pixels[list(numbers)].transpose(0, 2, 3, 1))
            words = "airplane automobile bird cat deer dog frog horse ship truck"
            yield Told(f"{kind} batches: classes", " ".join(index.classes), words)


def shards() -> Iterator[Told]:
    """Tar shards as WebDataset has them: a picture and its ``.cls`` beside it, in the order of the shards."""
    with tempfile.TemporaryDirectory() as name:
        root, expected = Path(name), []
        for shard in range(2):
            with tarfile.open(root / f"train-{shard:04}.tar", "w") as tar:
                for number, label in ((0, 2), (1, 0), (2, 1)):
                    picture = drawn(20 + number, 14, seed=10 * shard + number)
                    expected.append((label, np.asarray(picture)))
                    for suffix, data in ((".png", encoded(picture, "PNG")), (".cls", str(label).encode())):
                        member = tarfile.TarInfo(f"{number:03}{suffix}")
                        member.size = len(data)
                        tar.addfile(member, io.BytesIO(data))
        index = index_dataset(root, "train")
        yield Told("labels", [*index.labels], [label for label, _ in expected])
        for place, (_, pixels) in enumerate(expected):
            yield Told(f"picture {place}", np.asarray(image.decode_image(index.path(place))), pixels)


def conversion() -> Iterator[Told]:
    """Weights between the layouts: linear weights transposed, statistics renamed, all else as it is; files return what they got."""
    rng = np.random.default_rng(2)
    shapes = {
        "features.0.0.weight": (4, 3, 2, 2),
        "classifier.0.weight": (3, 5),
        "classifier.3.weight": (4, 4),
        "classifier.3.bias": (4,),
    }
    state = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    norms = {f"features.0.1.{name}": rng.normal(size=4).astype(np.float32) for name in ("weight", "running_mean", "running_var")}
    torch = {**state, **norms}
    paddle = {
        **state,
        "classifier.0.weight": state["classifier.0.weight"].T,
        "classifier.3.weight": state["classifier.3.weight"].T,
        "features.0.1.weight": norms["features.0.1.weight"],
        "features.0.1._mean": norms["features.0.1.running_mean"],
        "features.0.1._variance": norms["features.0.1.running_var"],
    }
    for layout, made, right in (
        ("Paddle's", weights.as_paddle(torch), paddle),
        ("torch's", weights.as_torch(paddle), torch),
    ):
        yield Told(f"names in {layout} layout", sorted(made), sorted(right))
        for tensor, values in right.items():
            yield Told(f"{tensor} in {layout} layout", made[tensor], values, kind=_otherwise(made[tensor], tensor, right))
    yield Told("torch's own, without counters", weights.as_torch({**torch, "features.0.1.num_batches_tracked": np.array(3)}), torch)
    counted = weights.with_counters(torch)
    yield Told("torch's counters", sorted(set(counted) - set(torch)), ["features.0.1.num_batches_tracked"])
    with tempfile.TemporaryDirectory() as name:
        for suffix in (".safetensors", ".pdparams"):
            file = Path(name, f"weights{suffix}")
            weights.write_state(file, torch)
            yield Told(f"a file {suffix}", read_state(file), torch, "weights_file.read_state")
        file = Path(name, "checkpoint.safetensors")
        own = {f"{kind_of}/a": np.full(2, value) for kind_of, value in (("model", 1.0), ("ema", 2.0))}
        write_checkpoint(file, Checkpoint(own, {"config": {}}))
        for given, value in ((own, 2.0), ({"model/a": own["model/a"]}, 1.0)):
            held = Checkpoint(given).weights()["a"]
            yield Told(f"weights to evaluate with, of {', '.join(given)}", held, np.full(2, value), "Checkpoint.weights")
        for take, value in (("auto", 2.0), ("averaged", 2.0), ("raw", 1.0)):
            with _silent():
                yield Told(f"of a checkpoint, {take}", read_state(file, take)["a"], np.full(2, value), "weights_file.read_state")


def _otherwise(made: np.ndarray, name: str, right: Mapping[str, np.ndarray]) -> Kind | None:
    """How a tensor was converted wrongly: transposed, or another one's values; None where it is neither."""
    if made.ndim == 2 and np.array_equal(made.T, right[name]):
        return Kind.WEIGHT_TRANSPOSED
    others = (values for other, values in right.items() if other != name)
    return Kind.WEIGHTS_SWAPPED if any(np.array_equal(made, values) for values in others) else None


def _silent() -> Any:
    import contextlib

    return contextlib.redirect_stderr(io.StringIO())


def records() -> Iterator[Told]:
    """Figures of an evaluation by class, scikit-learn's ``precision_recall_fscore_support`` by hand; the worst mistakes first."""
    confusion = np.array([[5, 2, 0], [1, 3, 0], [4, 0, 0]])
    mistakes = (Mistake(3, 0, 1, 0.5), Mistake(1, 2, 0, 0.9), Mistake(2, 0, 1, 0.9))
    record = Record({"top1": 8 / 15, "samples": 15}, ("ant", "bee", "cow"), confusion, worst(mistakes, 2), 4)
    figures = [(one.name, one.precision, one.recall, one.support) for one in record.of_classes()]
    yield Told(
        "precision, recall and support", figures, [("ant", 5 / 10, 5 / 7, 7), ("bee", 3 / 5, 3 / 4, 4), ("cow", None, 0.0, 4)]
    )
    yield Told("the most frequent confusions", record.confused(2), [(2, 0, 4), (0, 1, 2)])
    yield Told("the largest class", record.largest_share, 7 / 15)
    yield Told("the most confident mistakes", [one.sample for one in record.mistakes], [1, 2])
    with tempfile.TemporaryDirectory() as name:
        write_record(Path(name), record)
        again = read_record(Path(name))
        assert again is not None
        yield Told("written and read: counts", again.confusion, confusion)
        yield Told(
            "written and read: the rest",
            [again.figures, list(again.classes), again.epoch],
            [record.figures, list(record.classes), 4],
        )


def kept() -> Iterator[Told]:
    """Which checkpoints a folder keeps: the last, the latest, the best, and the best by top-1, of equal ones the earlier."""
    with tempfile.TemporaryDirectory() as name:
        folder = CheckpointFolder(name, keep=2, keep_best=2)
        for update, top1 in ((10, 0.5), (20, 0.75), (30, 0.75), (40, 0.25), (50, 0.75)):
            folder.save(Checkpoint({"model/a": np.full(1, float(update))}, {"update": update}), update == 20, top1)
        yield Told(
            "the last 2",
            [path.name for path in folder.numbered()],
            ["update_000000040.safetensors", "update_000000050.safetensors"],
        )
        best = ["top_0.750000_update_000000020.safetensors", "top_0.750000_update_000000030.safetensors"]
        yield Told("the best 2", [path.name for path in folder.top()], best)
        for link, right in (("latest", 50.0), ("best", 20.0)):
            yield Told(f"{link} is", read_state(Path(name, f"{link}.safetensors"))["a"], np.full(1, right))


def trained_so() -> Iterator[Told]:
    """A checkpoint is evaluated by the settings that it was trained with, unless a flag says otherwise."""
    then = {"model": "mobilenet_v3_large", "width_mult": 0.75, "resize_size": 184, "crop_size": 160, "image_backend": "cv2"}
    with tempfile.TemporaryDirectory() as name:
        file = Path(name, "checkpoint.safetensors")
        write_checkpoint(file, Checkpoint({"model/a": np.zeros(1)}, {"config": then}))
        config = TrainConfig(pretrained=str(file))
        made = as_trained(config, {})[0]
        yield Told("as trained", {setting: getattr(made, setting) for setting in then}, then)
        given = as_trained(TrainConfig(pretrained=str(file), resize_size=240), {"resize_size": 240})[0]
        yield Told("with --resize-size", [given.resize_size, given.crop_size], [240, 160])


def of_torchvision() -> Iterator[Told]:
    """torchvision's weights: their files, and the preprocessing of the second ones, as torchvision says them."""
    import mobilenetv3_ref  # noqa: F401  # makes torchvision importable beside a CPU build of torch

    from torchvision import models  # isort: skip

    kinds = {
        "mobilenet_v3_small": models.MobileNet_V3_Small_Weights.IMAGENET1K_V1,
        "mobilenet_v3_large": models.MobileNet_V3_Large_Weights.IMAGENET1K_V1,
        "mobilenet_v3_large_v2": models.MobileNet_V3_Large_Weights.IMAGENET1K_V2,
    }
    for name, theirs in kinds.items():
        yield Told(f"the file of {name}", f"{published.TORCHVISION_HOST}/{published.PUBLISHED[name][0]}", theirs.url)
    size = models.MobileNet_V3_Large_Weights.IMAGENET1K_V2.transforms().resize_size[0]
    yield Told("pixels of the shorter side for the second weights", published.V2_RESIZE, size)


class Ranked:
    """What of two ranks has statistics, as ``rank_statistics`` asks for it."""

    def __init__(self, own: Sequence[dict[str, np.ndarray]], rank: int) -> None:
        self.own = own[rank]
        flat = np.stack([np.concatenate([array.ravel() for array in one.values()]) for one in own])
        self.config = SimpleNamespace(sync_bn=False)
        self.ranks = SimpleNamespace(rank=rank, world_size=len(own), sum=lambda rows: flat if rows.shape == flat.shape else rows)
        self.model = None
        self.average = SimpleNamespace(arrays=dict)
        self.backend = SimpleNamespace(model_arrays=lambda model: self.own)


def statistics() -> Iterator[Told]:
    """The statistics of ranks: those in which they differ, and their means."""
    own = [{"a.running_mean": np.array([1.0, 2.0 + rank]), "b._variance": np.array([3.0])} for rank in (0, 3)]
    made = rank_statistics.statistics_of_ranks(Ranked(own, 1))  # type: ignore[arg-type]
    yield Told("statistics of two ranks", made, {"model/a.running_mean": np.array([[1.0, 2.0], [1.0, 5.0]])})
    yield Told("their means", rank_statistics.means(made), {"model/a.running_mean": np.array([1.0, 3.5])})
    checkpoint = Checkpoint({"model/a.running_mean": np.zeros(2)}, {})
    rank_statistics.add_statistics(checkpoint, made)
    expected = {
        "model/a.running_mean": [1.0, 3.5],
        "rank0/model/a.running_mean": [1.0, 2.0],
        "rank1/model/a.running_mean": [1.0, 5.0],
    }
    yield Told("in a checkpoint", checkpoint.arrays, {name: np.array(values) for name, values in expected.items()})
