"""CIFAR-10 in its published forms, as its files are: pickles of Python 2, binary batches, and folders of pictures."""

import io
import pickle
import struct
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image

from mobilenetv3_common.cifar import CLASSES
from mobilenetv3_common.dataset_index import index_dataset, index_splits
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import decode_image, decode_pixels
from tools.align import main as align

COUNTS = {**dict.fromkeys((f"data_batch_{number}" for number in range(1, 6)), 4), "test_batch": 10}


class Python2(pickle._Pickler):
    """Writes text and bytes as Python 2 wrote its strings."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_string(self, text):
        data = text if isinstance(text, bytes) else text.encode("latin1")
        self.write((b"U" + bytes([len(data)]) if len(data) < 256 else b"T" + struct.pack("<i", len(data))) + data)

    dispatch[str] = dispatch[bytes] = save_string


def write_batch(path, content):
    with io.BytesIO() as file:
        Python2(file, 2).dump(content)
        path.write_bytes(file.getvalue())


@pytest.fixture
def batches(tmp_path):
    """A data path with the archive's folder, small, and the pixels (H, W, 3) of each batch."""
    folder, rng, pictures = tmp_path / "cifar-10-batches-py", np.random.default_rng(0), {}
    folder.mkdir()
    for name, count in COUNTS.items():
        rows = rng.integers(0, 256, (count, 3072), dtype=np.uint8)
        labels = [(number * 3 + len(pictures)) % 10 for number in range(count)]
        names = [f"{CLASSES[label]}_s_{number:06d}.png" for number, label in enumerate(labels)]
        write_batch(folder / name, {"batch_label": name, "labels": labels, "data": rows, "filenames": names})
        pictures[name] = (rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels, names)
    write_batch(folder / "batches.meta", {"num_cases_per_batch": 4, "label_names": list(CLASSES), "num_vis": 3072})
    return tmp_path, pictures


def test_batches_are_read_as_published(batches):
    root, pictures = batches
    for data_path in (root, root / "cifar-10-batches-py"):
        train, val = index_splits(data_path)
        assert (len(train), len(val), train.classes, val.classes) == (20, 10, CLASSES, CLASSES)
        for index, names in ((train, [*COUNTS][:5]), (val, ["test_batch"])):
            expected = np.concatenate([pictures[name][0] for name in names])
            for decode in (decode_image, decode_pixels):
                assert all((np.asarray(decode(index.path(i))) == expected[i]).all() for i in range(len(index)))
            assert [*index.labels] == [label for name in names for label in pictures[name][1]]
            assert index.names[0] == f"{names[0]}/{pictures[names[0]][2][0]}"
    few = index_dataset(root, "train").take([19, 3])
    assert (np.asarray(decode_image(few.path(0))) == pictures["data_batch_5"][0][3]).all() and len(few) == 2


def as_binary(root, pictures):
    """The same pictures as the binary version has them: a label's byte and 3072 bytes each."""
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name, (pixels, labels, _) in pictures.items():
        rows = [bytes([label]) + shown.transpose(2, 0, 1).tobytes() for shown, label in zip(pixels, labels, strict=True)]
        (folder / f"{name}.bin").write_bytes(b"".join(rows))
    return folder


def test_binary_batches_give_the_same_pictures_and_labels(batches, tmp_path):
    root, pictures = batches
    binary = tmp_path / "binary"
    folder = as_binary(binary, pictures)
    for guide in (False, True):
        if guide:  # MindSpore's guides have the test batch in a folder of its own, and no list of names
            (binary / "cifar-10-verify-bin").mkdir()
            (folder / "test_batch.bin").rename(binary / "cifar-10-verify-bin" / "test_batch.bin")
            (folder / "batches.meta.txt").unlink()
        else:
            (folder / "batches.meta.txt").write_text("\n".join(CLASSES) + "\n\n")
        for data_path in (binary, folder):
            for ours, theirs in zip(index_splits(data_path), index_splits(root), strict=True):
                assert ours.classes == theirs.classes == CLASSES and [*ours.labels] == [*theirs.labels]
                both = [[np.asarray(decode_image(index.path(i))) for i in range(len(index))] for index in (ours, theirs)]
                assert np.array_equal(*both)
    (folder / "batches.meta.txt").write_text("\n".join(reversed(CLASSES)))
    assert index_dataset(binary, "train").classes == CLASSES[::-1]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("data_batch_3", None, "no such file .*data_batch_3.bin: the binary version of CIFAR-10 has data_batch_1.bin to"),
        ("data_batch_3", b"", "its 0 bytes are no whole number of pictures of 3073 bytes"),
        ("data_batch_3", bytes(3074 * 2), "its 6148 bytes are no whole number of pictures"),
        ("data_batch_3", bytes([10]) + bytes(3072), r"data_batch_3.bin has label 10, but there are 10 classes \(0 to 9\)"),
        ("batches.meta.txt", b"\xff\xfe", "batches.meta.txt is no list of class names"),
        ("batches.meta.txt", b"\n\n", "batches.meta.txt has no class names"),
    ],
)
def test_a_bad_binary_batch_is_refused(batches, tmp_path, name, content, words):
    folder = as_binary(tmp_path / "binary", batches[1])
    file = folder / (name if name.endswith(".txt") else f"{name}.bin")
    file.unlink(missing_ok=True)
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match=words) as caught:
        index_dataset(tmp_path / "binary", "train")
    assert "\n" not in caught.value.line


def test_folders_of_cifar_10_may_be_called_train_and_test(batches, tmp_path):
    root, pictures = batches
    folders = tmp_path / "folders"
    for name, split in (("data_batch_1", "train"), ("test_batch", "test")):
        for pixels, label, file in zip(*pictures[name], strict=True):
            (folders / split / CLASSES[label]).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folders / split / CLASSES[label] / file)
    with pytest.raises(UserError, match="neither a folder val/"):
        index_dataset(folders, "val")  # the training folder lacks classes of CIFAR-10: some other data
    for split in ("train", "test"):
        for name in CLASSES:
            (folders / split / name).mkdir(exist_ok=True)
            Image.fromarray(pictures["test_batch"][0][0]).save(folders / split / name / "z.png")
    found, rows = index_dataset(folders, "val"), index_dataset(root, "val")
    by_name = {found.names[i].rpartition("/")[2]: i for i in range(len(found))}
    for number, name in enumerate(pictures["test_batch"][2]):
        assert found.labels[by_name[name]] == rows.labels[number]
        assert (np.asarray(decode_image(found.path(by_name[name]))) == np.asarray(decode_image(rows.path(number)))).all()
    (folders / "val").mkdir()
    with pytest.raises(UserError, match="holds no class folder"):
        index_dataset(folders, "val")


class Shown:
    def __reduce__(self):
        return print, ("run",)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("data_batch_3", None, "no such file .*data_batch_3: the Python version of CIFAR-10 has data_batch_1 to data_batch_5"),
        ("data_batch_3", {"labels": [0]}, "data_batch_3 is no batch of CIFAR-10: it has no data of 3072 bytes a picture"),
        ("data_batch_3", {"data": np.zeros((2, 3072), np.uint8), "labels": [0]}, "no label for each of its 2 pictures"),
        ("data_batch_3", {"data": np.zeros((1, 3072), np.uint8), "labels": [10]}, r"has label 10, but there are 10 classes"),
        ("data_batch_3", [1, 2], "it holds a list"),
        ("data_batch_3", Shown(), "is not read: it asks for __builtin__.print, which could run code"),
        ("batches.meta", {"label_names": 3}, "batches.meta has no label_names"),
    ],
)
def test_a_bad_batch_is_refused(batches, capsys, name, content, words):
    root, _ = batches
    file = root / "cifar-10-batches-py" / name
    file.unlink()
    if content is not None:
        write_batch(file, content)
    with pytest.raises(UserError, match=words) as caught:
        index_dataset(root, "train")
    assert "\n" not in caught.value.line and capsys.readouterr().out == ""


def test_steps_that_need_files_say_so(batches, tmp_path, capsys):
    root, _ = batches
    assert align(["--steps", "2", "--data-path", str(root), "--result-dir", str(tmp_path / "r")]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "CIFAR-10's batches, which torchvision does not read: give folders of pictures" in told
