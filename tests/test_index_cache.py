"""The list of a large split is made once and mapped by every process, and never outlives what it lists."""

import json
import os
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

from mobilenetv3_common import index_cache
from mobilenetv3_common.columns import Builder, Labels, Names
from mobilenetv3_common.dataset_index import DatasetIndex, index_dataset
from mobilenetv3_common.errors import UserError
from tests.conftest import ROOT


@pytest.fixture
def kept(monkeypatch, tmp_path):
    """Lists of any size are kept, in a folder of the test's own."""
    monkeypatch.setattr(index_cache, "AT_LEAST", 1)
    monkeypatch.setenv("MOBILENETV3_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "index"


def settle(root):
    """Give every folder a time of change that lies an hour back."""
    for folder, _, _ in os.walk(root):
        os.utime(folder, (time.time() - 3600,) * 2)


@pytest.fixture(params=["lite_copy", "lite_folders"])
def data(request):
    root = request.getfixturevalue(request.param)
    settle(root)
    return root


def content(index):
    return index.names, index.labels, index.classes, index.digest()


def mapped(index):
    return isinstance(index.names.text.base, np.memmap)


def test_the_second_time_the_list_is_mapped_and_the_same(kept, data, monkeypatch):
    monkeypatch.setattr(index_cache, "AT_LEAST", 10**9)
    plain = index_dataset(data, "train")
    assert not kept.exists() and not mapped(plain)
    monkeypatch.setattr(index_cache, "AT_LEAST", 1)
    first = index_dataset(data, "train")
    assert len(list(kept.iterdir())) == 1 and mapped(first)
    monkeypatch.setattr("mobilenetv3_common.dataset_index.Builder", None)  # nothing is listed again
    second = index_dataset(data, "train")
    assert mapped(second)
    assert content(first) == content(plain)
    assert content(second) == content(plain)


def test_a_link_or_another_working_folder_is_the_same_data(kept, data, monkeypatch, tmp_path):
    plain = index_dataset(data, "val")
    os.symlink(data, tmp_path / "link")
    monkeypatch.chdir(data.parent)
    monkeypatch.setattr("mobilenetv3_common.dataset_index.Builder", None)
    assert content(index_dataset(tmp_path / "link", "val")) == content(plain)
    assert content(index_dataset(data.name, "val")) == content(plain)


def add(root):
    shutil.copy(root / "train/cat/cat_0.JPEG", root / "train/cat/zz.JPEG")


def remove(root):
    (root / "train/cat/cat_1.JPEG").unlink()


def rename(root):
    (root / "train/cat/cat_1.JPEG").rename(root / "train/cat/cat_9.JPEG")


def rename_class(root):
    (root / "train/cat").rename(root / "train/zebra")


def replace_by_pipe(root):
    (root / "train/cat/cat_1.JPEG").unlink()
    os.mkfifo(root / "train/cat/cat_1.JPEG")


@pytest.mark.parametrize("change", [add, remove, rename, rename_class, replace_by_pipe])
def test_a_change_of_the_files_is_seen(kept, data, change, monkeypatch):
    index_dataset(data, "train")
    assert list(kept.iterdir())
    change(data)

    def found():
        try:
            index = index_dataset(data, "train")
        except UserError as error:
            return error.line
        return list(index.names), list(index.labels), index.classes

    now = found()
    shutil.rmtree(kept)
    assert now == found()
    assert not isinstance(now, str) or "train/cat" in now


def test_a_change_of_the_list_is_seen_though_its_time_is_the_same(kept, lite_copy):
    settle(lite_copy)
    path = lite_copy / "train_list.txt"
    before, state = index_dataset(lite_copy, "train"), os.stat(path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[1], lines[0], *lines[2:]]))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    after = index_dataset(lite_copy, "train")
    assert after.names[:2] == before.names[1::-1] and after.digest() != before.digest()
    with pytest.raises(UserError, match=r"train_list.txt:\d+: .* has label 5, but the model has 5 classes"):
        index_dataset(lite_copy, "train", num_classes=5)


def test_a_folder_that_changed_just_now_is_not_trusted(kept, data):
    os.utime(data / "train" / "cat")
    assert not mapped(index_dataset(data, "train")) and not kept.exists()


@pytest.mark.parametrize("damage", ["cut", "bit", "head", "empty", "other"])
def test_a_damaged_file_is_made_anew(kept, data, damage):
    plain = index_dataset(data, "train")
    (path,) = kept.iterdir()
    sound = path.read_bytes()
    whole = bytearray(sound)
    if damage == "bit":
        whole[-64] ^= 1
    if damage == "head":
        whole[20] ^= 0xFF
    path.unlink()  # it is mapped
    path.write_bytes({"cut": whole[:-1], "empty": b"", "other": b"something else"}.get(damage, whole))
    assert content(index_dataset(data, "train")) == content(plain)
    assert path.read_bytes() == sound and mapped(index_dataset(data, "train"))


def test_a_folder_that_cannot_be_written_is_a_warning(kept, data, capsys):
    kept.parent.write_text("a file in its place")
    index = index_dataset(data, "train")
    assert len(index) == 16 and not mapped(index)
    told = capsys.readouterr().err
    assert told.startswith("warning: the list of pictures is made anew each time: ") and told.count("\n") == 1


def test_processes_that_begin_together_list_once(kept, data):
    code = (
        "import sys, time; from mobilenetv3_common import dataset_index as d, index_cache as c; c.AT_LEAST = 1; make = d._listed\n"
        "def slow(*args):\n    print('listed', flush=True); time.sleep(1); return make(*args)\n"
        "d._listed = slow; print(d.index_dataset(sys.argv[1], 'train').digest())"
    )
    command = [sys.executable, "-c", code, str(data)]
    runs = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    told = [run.communicate(timeout=60)[0].split() for run in runs]
    assert sorted(map(len, told)) == [1, 1, 2], told
    assert {lines[-1] for lines in told} == {index_dataset(data, "train").digest()}


def test_columns_are_sequences():
    pictures = Builder()
    texts = ["a", "", "bild/ä.JPEG", os.fsdecode(b"x\xff"), *(f"n{number}" for number in range(9000))]
    for label, text in enumerate(texts):
        pictures.add(text, label % 7)
    arrays = pictures.arrays()
    names, labels = Names(arrays["text"], arrays["ends"]), Labels(arrays["labels"])
    assert list(names) == texts and names == texts and tuple(texts) == names and names != texts[1:] and names != [*texts[1:], "x"]
    assert names[2] == texts[2] and names[-1] == texts[-1] and names[1:4] == tuple(texts[1:4]) and "n8" in names
    assert list(labels) == [n % 7 for n in range(len(texts))] and type(labels[3]) is int and type(labels[np.int64(3)]) is int
    assert (np.array(labels) == np.arange(len(texts)) % 7).all() and json.dumps(list(labels))
    for place in (len(texts), -len(texts) - 1):
        with pytest.raises(IndexError):
            names[place]
    columns = DatasetIndex(ROOT, names, labels, tuple("abcdefg"))
    plain = DatasetIndex(ROOT, tuple(texts), tuple(labels), tuple("abcdefg"))
    assert columns == plain and columns.digest() == plain.digest()
    assert columns.take([3, 1]).names == (texts[3], texts[1])
    moved = columns.in_classes(tuple("gfedcba"))
    assert list(moved.labels) == [6 - n % 7 for n in range(len(texts))] and moved.digest() != columns.digest()


@pytest.mark.parametrize("names", [[b"a", b"bc", b""], [b"\xff", b"a"], [b"\xc3", b"\xa9"], ["é".encode(), b"\xe2", "é".encode()]])
def test_names_are_cut_at_their_own_bytes(names):
    given = [os.fsdecode(name) for name in names]
    builder = Builder()
    builder.extend(given, 0)
    arrays = builder.arrays()
    assert list(Names(arrays["text"], arrays["ends"])) == given
