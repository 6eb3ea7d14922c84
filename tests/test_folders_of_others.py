"""Folders, lists and shards as other people and programs leave them: training, prediction and the doctor see the same pictures."""

import gzip
import io
import json
import os
import shutil
import tarfile

import pytest
from PIL import Image

from alignment_doctor.cli import main as doctor
from alignment_doctor.data.checks.files import ignored
from alignment_doctor.data.command import measured
from alignment_doctor.data.subject import Expected, find_splits
from mobilenetv3_common.class_list import in_order, read_class_list, text_of
from mobilenetv3_common.class_names import class_names
from mobilenetv3_common.dataset_index import index_dataset, index_splits, training_classes, usable
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.held_out import index_held_out
from mobilenetv3_common.image import OTHER_PICTURES, decode_image
from mobilenetv3_common.shards import list_shard
from tools.make_shards import main as make_shards
from tools.train import main as train_main

# --- hidden files and folders ---


def beside_the_classes(name):
    return lambda data: shutil.copytree(data / "train" / "cat", data / "train" / name)


def in_a_class(name):
    return lambda data: shutil.copytree(data / "val" / "cat", data / "train" / "cat" / name)


def file_in_a_class(name):
    return lambda data: shutil.copy(data / "val" / "cat" / "cat_0.JPEG", data / "train" / "cat" / name)


HIDDEN = {
    "thumbnails": in_a_class(".thumbnails"),
    "macOS": file_in_a_class("._cat_0.JPEG"),
    "notebook": in_a_class(".ipynb_checkpoints"),
    "Synology": in_a_class("@eaDir"),
    "archive": in_a_class("__MACOSX"),
    "hidden": file_in_a_class(".cat_9.png"),
    "thumbnails beside the classes": beside_the_classes(".thumbnails"),
    "notebook beside the classes": beside_the_classes(".ipynb_checkpoints"),
    "archive beside the classes": beside_the_classes("__MACOSX"),
    "bin of Windows": beside_the_classes("$RECYCLE.BIN"),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_programs_leave_behind_is_skipped_and_said(lite_folders, name):
    before = index_splits(lite_folders)[0]
    HIDDEN[name](lite_folders)
    after = index_splits(lite_folders)[0]
    assert list(after.names) == list(before.names) and after.classes == before.classes
    assert not before.notes() and "hidden files and folders" in after.notes()[0], after.notes()
    subject = measured(str(lite_folders), Expected())
    assert subject.names[: len(after)] == list(after.names), "the doctor lists what training lists"


def test_a_picture_with_a_dot_inside_its_name_is_no_hidden_one(lite_folders):
    shutil.copy(lite_folders / "train/cat/cat_0.JPEG", lite_folders / "train/cat/cat.v2.JPEG")
    train = index_splits(lite_folders)[0]
    assert "train/cat/cat.v2.JPEG" in train.names and not train.notes()


def test_prediction_skips_the_same(lite_folders, capsys):
    from mobilenetv3_paddle.deploy.predictor import find_pictures

    before = find_pictures([lite_folders / "train"])
    for change in HIDDEN.values():
        change(lite_folders)
    shutil.copy(lite_folders / "train/cat/cat_0.JPEG", lite_folders / "train/cat/x.avif")
    assert find_pictures([lite_folders / "train"]) == before
    assert "hidden files" in (said := capsys.readouterr().err) and "x.avif" in said


# --- endings ---


@pytest.mark.parametrize("ending", [".jfif", ".JFIF", ".jpe", ".pjpeg"])
def test_a_jpeg_of_another_name_is_read(lite_folders, ending):
    path = lite_folders / "train/cat" / f"new{ending}"
    shutil.copy(lite_folders / "train/cat/cat_0.JPEG", path)
    train = index_splits(lite_folders)[0]
    assert f"train/cat/new{ending}" in train.names and not train.notes()


@pytest.mark.parametrize("ending", OTHER_PICTURES)
def test_a_picture_that_is_not_read_is_said(lite_folders, ending):
    (lite_folders / "train/cat" / f"new{ending}").write_bytes(b"x")
    train = index_splits(lite_folders)[0]
    assert len(train) == 16 and f"first: train/cat/new{ending}" in train.notes()[0]


def test_a_picture_without_an_ending_is_said_and_a_text_without_one_is_not(lite_folders):
    (lite_folders / "train/cat" / "LICENSE").write_text("BM is how a bitmap begins, and this text")
    (lite_folders / "train/cat" / "empty").write_bytes(b"")
    assert not index_splits(lite_folders)[0].notes()
    shutil.copy(lite_folders / "train/cat/cat_0.JPEG", lite_folders / "train/cat/IMG_0001")
    train = index_splits(lite_folders)[0]
    assert len(train) == 16 and "1 files are pictures" in train.notes()[0] and "first: train/cat/IMG_0001" in train.notes()[0]
    subject = measured(str(lite_folders), Expected())
    said = ignored.run(subject)
    assert list(said.where) == ["train/cat/IMG_0001: a picture whose name has no ending (.jpg, .png) is not listed"]


@pytest.mark.parametrize(
    "name", ["a.jpg.part", "a.JPG.crdownload", "a.png~", "a.jpeg.bak", "a.jpg_large", "a.jpg?size=640", "a.webp:Zone", "a.jpg.1"]
)
def test_a_picture_that_was_not_fetched_or_renamed_is_said(lite_folders, name):
    (lite_folders / "train/cat" / name).write_bytes(b"x")
    assert f"first: train/cat/{name}" in index_splits(lite_folders)[0].notes()[0]


@pytest.mark.parametrize(
    "name", ["notes.txt", "a.jpg.txt", "a.jpg.json", "boxes.xml", "Thumbs.db", "readme.md", "jpg", "a.jpg.xmp"]
)
def test_what_lies_beside_pictures_on_purpose_is_not_said(lite_folders, name):
    (lite_folders / "train/cat" / name).write_bytes(b"x")
    assert index_splits(lite_folders)[0].notes() == ()


# --- what stands in the place of a picture or a shard ---

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
STANDS = {
    "a pointer": (POINTER, "a pointer of Git LFS"),
    "a web page": (b"<!DOCTYPE html>\n<html>not found</html>", "a web page"),
    "an error of a store": (b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>', "an XML page"),
    "a packed one": (gzip.compress(b"x" * 900), "compressed with gzip"),
}


@pytest.mark.parametrize("case", STANDS)
def test_what_stands_in_the_place_of_a_picture_is_named(lite_folders, tmp_path, capsys, case):
    content, said = STANDS[case]
    for split in ("train", "val"):
        (lite_folders / split / "cat" / "cat_0.JPEG").write_bytes(content)
    assert doctor(["data", str(lite_folders)]) == 1
    assert f"train/cat/cat_0.JPEG is {said}" in capsys.readouterr().out
    with pytest.raises(UserError, match=f"is not a picture, but {said}"):
        decode_image(lite_folders / "train/cat/cat_0.JPEG", "pil")
    (tmp_path / "train-000.tar").write_bytes(content + bytes(512))
    with pytest.raises(UserError, match=rf"train-000\.tar is {said}"):
        list(list_shard(tmp_path / "train-000.tar", (".jpg",), 10, "there may be"))


# --- one listing for training and for the doctor ---


def test_the_doctor_reads_a_folder_of_classes_as_training_does(lite_folders, tmp_path, capsys):
    flat = tmp_path / "flat"
    shutil.copytree(lite_folders / "train", flat)
    (flat / ".thumbnails").mkdir()
    shutil.copy(flat / "cat" / "cat_0.JPEG", flat / ".thumbnails" / "x.JPEG")
    train, held = index_held_out(flat, 0.5, 0)
    (found,) = find_splits(str(flat)).values()
    assert sorted(found.names) == sorted([*train.names, *held.names]) and found.classes == train.classes
    assert doctor(["data", str(flat)]) == 1
    said = capsys.readouterr().out
    assert "data.folders: 1 folder is no class" in said and "train: .thumbnails is no class" in said
    shutil.rmtree(flat / ".thumbnails")
    assert doctor(["data", str(flat)]) == 0, "sound data without train/ and val/ has no problem"
    for name in list(os.listdir(flat))[1:]:
        shutil.rmtree(flat / name)
    with pytest.raises(UserError, match="neither train/ nor val/, no list files, and no two class folders"):
        find_splits(str(flat))


def test_pictures_in_archives_are_not_called_missing(lite_folders, tmp_path, capsys):
    assert make_shards(["--data-path", str(lite_folders), "--output-dir", str(tmp_path / "shards")]) == 0
    assert doctor(["data", str(tmp_path / "shards")]) == 2
    said = capsys.readouterr().err
    assert "lie together in an archive, which this examination does not read" in said and "neither train" not in said


def test_a_class_that_has_a_single_picture_is_not_said_to_have_none(lite_folders, tmp_path, capsys):
    """With --val-share both parts are of one listing, whose notes are said once."""
    flat = tmp_path / "flat"
    shutil.copytree(lite_folders / "train", flat)
    next((flat / "cat").iterdir()).unlink()
    (flat / "zebra").mkdir()
    quick = [
        "--crop-size",
        "32",
        "--resize-size",
        "32",
        "--epochs",
        "1",
        "--batch-size",
        "4",
        "--workers",
        "0",
        "--width-mult",
        "0.25",
    ]
    assert train_main(["--data-path", str(flat), "--val-share", "0.5", "--output-dir", str(tmp_path / "run"), *quick]) == 0
    said = capsys.readouterr().out
    assert said.count("classes have no picture") == 1 and "first: class 8, zebra" in said
    assert "classes with a single picture have none held out: cat" in said


def test_a_class_of_pictures_that_are_not_read_alone_is_said_twice(lite_folders):
    for path in (lite_folders / "train/cat").iterdir():
        path.rename(path.with_suffix(".heic"))
    said = index_splits(lite_folders)[0].notes()
    assert "1 of 8 classes have no picture" in said[0] and "2 files are pictures that are not read" in said[1]


# --- empty class folders ---


def test_empty_class_folders_keep_their_numbers(lite_folders):
    for name in ("aaa", "zzz"):
        (lite_folders / "train" / name).mkdir()
    train, val = index_splits(lite_folders, match="subset")
    assert train.classes[0] == "aaa" and train.num_classes == val.num_classes == 10 and min(train.labels) == min(val.labels) == 1
    assert "2 of 10 classes have no picture and keep their numbers; first: class 0, aaa" in train.notes()[0]
    assert index_splits(lite_folders)[1].classes == train.classes, "validation need not have a folder for them"
    with pytest.raises(UserError, match=r"train: class aaa holds no picture, nor do 1 more: fill or remove it"):
        index_splits(lite_folders, match="subset", strict=True)
    assert len(usable(index_dataset(lite_folders, "val"), strict=True)) == 16, "sound data pass the strict rule"


def test_data_without_any_picture_are_refused(tmp_path):
    for split in ("train", "val"):
        (tmp_path / split / "cat").mkdir(parents=True)
    with pytest.raises(UserError, match="holds no class folder with pictures"):
        index_splits(tmp_path)


# --- keys of shards ---


def jpeg(colour):
    held = io.BytesIO()
    Image.new("RGB", (8, 8), (colour, 0, 0)).save(held, "JPEG")
    return held.getvalue()


def write_shard(path, *keys):
    with tarfile.open(path, "w") as tar:
        for key, label, colour in keys:
            for name, data in ((f"{key}.jpg", jpeg(colour)), (f"{key}.cls", str(label).encode())):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def test_a_key_that_is_there_twice_in_a_shard_is_found(tmp_path):
    write_shard(tmp_path / "train-0.tar", ("a", 0, 1), ("b", 1, 2), ("a", 0, 3))
    with pytest.raises(UserError, match=r"train-0\.tar: key a is there twice \(a\.jpg\)"):
        index_dataset(tmp_path, "train")


@pytest.mark.parametrize("again", ["./a", "x/../a", ".//a"])
def test_one_path_in_two_writings_is_one_key(tmp_path, again):
    write_shard(tmp_path / "train-0.tar", ("a", 0, 1), ("x/a", 1, 2), (again, 0, 3))
    with pytest.raises(UserError, match="is there twice"):
        index_dataset(tmp_path, "train")
    write_shard(tmp_path / "train-0.tar", ("./a", 0, 1), ("./A", 1, 2), ("./x/a", 0, 3))
    assert len(index_dataset(tmp_path, "train")) == 3


@pytest.mark.parametrize("link", [False, True])
def test_a_shard_that_is_there_twice_is_found(tmp_path, link):
    write_shard(tmp_path / "train-0.tar", ("a", 0, 1), ("b", 1, 2))
    (os.symlink if link else shutil.copy)(tmp_path / "train-0.tar", tmp_path / "train-1.tar")
    with pytest.raises(UserError, match=r"train-1\.tar: a\.jpg is in .*train-0\.tar too, byte for byte"):
        usable(index_dataset(tmp_path, "train"))


def test_keys_that_begin_anew_in_each_shard_are_no_mistake(tmp_path):
    write_shard(tmp_path / "train-0.tar", ("0", 0, 1), ("1", 1, 2))
    write_shard(tmp_path / "train-1.tar", ("0", 0, 101), ("1", 1, 102))
    assert len(usable(index_dataset(tmp_path, "train"))) == 4


# --- lists of class names ---

NAMES = ("cat", "dog", "horse")
LISTS = {
    "IDs in another order": "2 horse\n0 cat\n1 dog\n",
    "IDs from 1": "3 horse\n1 cat\n2 dog\n",
    "a tab": "1\tdog\n0\tcat\n2\thorse\n",
    "a colon": "1: dog\n2: horse\n0: cat\n",
    "a table": "id,name\n1,dog\n2,horse\n0,cat\n",
    "ID last": "dog 1\nhorse 2\ncat 0\n",
    "a dictionary of Python's": "{1: 'dog',\n 0: 'cat',\n 2: 'horse'}",
    "a dictionary of JSON's": json.dumps({"2": "horse", "0": "cat", "1": "dog"}),
    "WordNet's index": json.dumps({"2": ["n3", "horse"], "0": ["n1", "cat"], "1": ["n2", "dog"]}),
    "names alone": "cat\ndog\nhorse\n",
    "a list of JSON's": '["cat", "dog", "horse"]',
    "WordNet's IDs": "n00000002 dog\nn00000003 horse\nn00000001 cat\n",
    "a byte order mark": "\ufeff2 horse\n0 cat\n1 dog\n",
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_classes_is_matched_by_its_ids(tmp_path, name):
    (tmp_path / "names.txt").write_text(LISTS[name], encoding="utf-8")
    assert class_names(3, tmp_path / "names.txt") == NAMES


def test_a_list_is_matched_by_the_names_that_the_weights_have(tmp_path):
    (tmp_path / "names.txt").write_text("dog Hund\nhorse Pferd\ncat Katze\n")
    assert class_names(3, tmp_path / "names.txt", NAMES) == ("Katze", "Hund", "Pferd")
    assert in_order(["horse", "dog", "cat"], "x", NAMES) == NAMES, "the same names in another order"
    assert in_order(["Pferd", "Hund", "Katze"], "x", NAMES) == ("Pferd", "Hund", "Katze"), "others are taken by line"


@pytest.mark.parametrize(
    "lines",
    [
        ["1 euro", "2 euro", "5 euro"],
        ["1 euro", "2 euro"],
        ["7 eleven", "3 musketeers", "cat"],
        ["class 0", "class 1", "class 2"],
        ["0", "1", "2"],
        ["101 dalmatians", "12 monkeys", "cat"],
        ["apollo 11", "apollo 13"],
    ],
)
def test_numbers_that_belong_to_the_names_stay(lines):
    assert in_order(lines, "names.txt") == tuple(lines)


@pytest.mark.parametrize(("ids", "said"), [([0, 1, 2, 3, 3, 5], "ID 3 is there twice"), ([0, 1, 2, 4, 5, 6], "there is no ID 3")])
def test_a_list_of_ids_with_a_mistake_is_refused(tmp_path, ids, said):
    path = tmp_path / "names.txt"
    path.write_text("".join(f"{number} name{place}\n" for place, number in enumerate(ids)))
    with pytest.raises(UserError, match=rf"names\.txt: {said}"):
        read_class_list(path)


def test_the_names_beside_a_list_file_are_matched_by_ids_too(lite_copy):
    names = (lite_copy / "classes.txt").read_text().split()
    before = index_dataset(lite_copy, "val").classes
    (lite_copy / "classes.txt").write_text("".join(f"{i} {name}\n" for i, name in reversed(list(enumerate(names)))))
    assert index_dataset(lite_copy, "val").classes == before


# --- lists that this project writes, and siblings of "ID name" ---


@pytest.mark.parametrize(
    "names",
    [
        ("1 apple", "10 jam", "2 banana"),
        ("1 Star", "2 Stars", "3 Stars"),
        ("cat", "dog"),
        ("[a]", "b"),
        ('["a"]', "b"),
        ("a b", " c"),
    ],
)
def test_names_that_are_written_are_read_back(tmp_path, names):
    path = tmp_path / "classes.txt"
    path.write_text(text_of(names), encoding="utf-8")
    assert read_class_list(path) == names
    assert names != ("cat", "dog") or path.read_text() == "cat\ndog\n"


@pytest.mark.parametrize(
    "line", ["{n}. {name}", "{n}) {name}", "[{n}] {name}", "#{n} {name}", "{n} - {name}", "{n} -> {name}", "{name} ({n})"]
)
def test_an_id_in_any_brackets_is_an_id(line):
    lines = [line.format(n=n, name=name) for n, name in ((1, "bee"), (0, "ant"), (2, "cat"))]
    assert in_order(lines, "x") == ("ant", "bee", "cat")


def test_a_name_that_begins_with_a_number_is_no_id():
    lines = ["1.5 l bottle", "0.5 l bottle", "barrel"]
    assert in_order(lines, "x") == tuple(lines)


# --- lists that contradict what is known of the classes ---

TEN = tuple(map(str, range(12)))
BY_TEXT = tuple(sorted(TEN))  # 0, 1, 10, 11, 2: how folders are sorted


@pytest.mark.parametrize(
    "lines", ["0 horse\n1 cat\n2 dog\n", "Horse\nCat\nDog\n", "dog,1\nhorse,2\ncat,0\n", '["horse","dog","cat"]']
)
def test_the_names_of_the_weights_win_over_the_numbering_of_another_list(tmp_path, lines):
    (tmp_path / "names.txt").write_text(lines)
    assert tuple(name.lower() for name in class_names(3, tmp_path / "names.txt", NAMES)) == NAMES


@pytest.mark.parametrize("lines", ["dog\ncat\nPferd\n", "cat\ndog\ndog\n", "0 dog\n1 Katze\n2 horse\n"])
def test_a_list_that_gives_a_class_the_name_of_another_is_refused(tmp_path, lines):
    (tmp_path / "names.txt").write_text(lines)
    with pytest.raises(UserError, match=r"calls class \d '\w+', but that is class \d by its folder.*\(cat, dog, horse\)"):
        class_names(3, tmp_path / "names.txt", NAMES)
    assert in_order(["Katze", "Hund", "Pferd"], "x", NAMES) == ("Katze", "Hund", "Pferd")


@pytest.mark.parametrize("first", [0, 1])
def test_ids_are_the_numbers_of_folders_that_are_called_so(tmp_path, first):
    """Folders 0, 1, 10, 11, 2 stand in the order of texts: the third class is folder 10, and its name that of ID 10 (or of 11)."""
    path = tmp_path / "names.txt"
    path.write_text("".join(f"{number + first} name{number}\n" for number in range(12)))
    assert class_names(12, path, BY_TEXT) == tuple(f"name{number}" for number in BY_TEXT)
    assert class_names(12, path, TEN) == class_names(12, path) == tuple(f"name{number}" for number in TEN)
    path.write_text("".join(f"name{number}\n" for number in range(12)))
    with pytest.raises(UserError, match=r"its lines have no IDs, and the classes are numbers in the order 0, 1, 10, 11, \.\.\."):
        class_names(12, path, BY_TEXT)
    assert class_names(12, path, TEN)[2] == "name2", "numbers in their own order: the lines are in it, too"


@pytest.mark.parametrize(
    "lines", [["2 horse", "0 cat", "0 dog"], ["0 cat", "3 horse", "2 dog"], ["90 brush", "1 person", "13 sign"]]
)
def test_ids_out_of_order_that_are_not_the_classes_are_refused(lines):
    with pytest.raises(UserError, match=r"IDs .* that are not those of 3 classes: count them from 0"):
        in_order(lines, "names.txt")
    assert in_order(["Porsche 911", "Peugeot 205"], "x") == ("Porsche 911", "Peugeot 205")
    with pytest.raises(UserError, match="ID n00000002 is there twice"):
        in_order(["n00000002 dog", "n00000002 horse", "n00000001 cat"], "x")


@pytest.mark.parametrize(
    "text",
    [
        "nc: 3\nnames:\n  1: dog\n  0: cat\n  2: horse\n",
        "names: [cat, dog, horse]\nnc: 3\n",
        "- cat\n- dog\n- horse\n",
        '{"id2label": {"1": "dog", "0": "cat", "2": "horse"}, "label2id": {"dog": 1}}',
        "# of the second series\n1 dog\n0 cat\n2 horse\n",
        '0,"cat"\r\n2,"horse"\r\n1,"dog"\r\n',
        "1\uff1adog\n0\uff1acat\n2\uff1ahorse\n",
        "| 1 | dog |\n| 0 | cat |\n| 2 | horse |\n",
    ],
)
def test_lists_of_other_programs_are_read(tmp_path, text):
    (tmp_path / "names.txt").write_text(text, encoding="utf-8")
    assert class_names(3, tmp_path / "names.txt") == NAMES


def test_names_beside_a_list_file_are_held_to_the_folders_of_its_pictures(lite_copy):
    names = (lite_copy / "classes.txt").read_text().split()
    lines = [(lite_copy / f"{split}_list.txt").read_text() for split in ("train", "val")]
    (lite_copy / "classes.txt").write_text("".join(f"{name}\n" for name in reversed(names)))
    for split in ("train", "val"):
        index = index_dataset(lite_copy, split)
        assert list(index.classes) == names and all(
            f"/{index.classes[label]}/" in n for n, label in zip(index.names, index.labels, strict=True)
        )
    assert list(training_classes(lite_copy)) == names, "evaluation takes the names that training takes"
    (lite_copy / "val_list.txt").write_text("".join(lines[1].splitlines(keepends=True)[:2]))
    assert list(index_dataset(lite_copy, "val").classes) == names, "a split that lacks classes, too"
    (lite_copy / "classes.txt").write_text("".join(f"{name}\n" for name in [names[1], names[0], *(n * 2 for n in names[2:])]))
    with pytest.raises(UserError, match="calls class 0 'cat', but that is class 1 by its folder"):
        index_dataset(lite_copy, "train")
    (lite_copy / "val_list.txt").write_text("val/cat/cat_0.JPEG 0\n")
    assert index_dataset(lite_copy, "train").classes[:2] == (names[1], names[0]), "lists that contradict each other: by line"
    for name in os.listdir(lite_copy / "train" / "cat"):  # pictures in one folder say nothing of their classes
        (lite_copy / "train" / name).write_bytes((lite_copy / "train" / "cat" / name).read_bytes())
    (lite_copy / "train_list.txt").write_text("train/cat_0.JPEG 0\ntrain/cat_1.JPEG 1\n")
    (lite_copy / "val_list.txt").unlink()
    assert index_dataset(lite_copy, "train").classes[:2] == ("cat", names[0])


# --- pictures of a wrong ending; splits of another name ---


@pytest.mark.parametrize("name", ["a.dat", "photo.v2", "2023.10.11", "a.jpg.", "b.JPG ", "a.image", "a.ppm.x"])
def test_a_picture_of_a_wrong_ending_is_said(lite_folders, name, capsys):
    from mobilenetv3_paddle.deploy.predictor import find_pictures

    shutil.copy(lite_folders / "train/cat/cat_0.JPEG", lite_folders / "train/cat" / name)
    assert f"first: train/cat/{name}" in index_splits(lite_folders)[0].notes()[0]
    assert f"train/cat/{name}" in find_splits(str(lite_folders))["train"].passed.unread
    assert len(find_pictures([lite_folders / "train"])) == 16 and f"first: cat/{name}" in capsys.readouterr().err
    (lite_folders / "train/cat" / name).write_bytes(b"notes on the cat")
    assert index_splits(lite_folders)[0].notes() == ()


@pytest.mark.parametrize(("train", "val"), [("Train", "Val"), ("training", "validation"), ("TRAIN", "test")])
def test_splits_of_another_name_are_named_and_never_taken_for_classes(lite_folders, train, val, capsys):
    (lite_folders / "val").rename(lite_folders / val)
    with pytest.raises(UserError, match=rf"neither a folder val/.*; it has {val}/: call that folder val/$"):
        index_splits(lite_folders)
    assert doctor(["data", str(lite_folders)]) in (0, 1)
    assert f"has no val/, so training pictures alone were examined; it has {val}/: call that folder val/" in capsys.readouterr().out
    (lite_folders / "train").rename(lite_folders / train)
    for read in (index_splits, lambda path: index_held_out(path, 0.2, 0), lambda path: find_splits(str(path))):
        with pytest.raises(UserError, match=rf"it has {train}/: call that folder train/"):
            read(lite_folders)


def test_a_data_path_one_folder_further_in_is_named(lite_folders, tmp_path):
    for read in (index_splits, lambda path: index_held_out(path, 0.2, 0), lambda path: find_splits(str(path))):
        (tmp_path / "notes").mkdir(exist_ok=True)
        with pytest.raises(UserError, match=r"; \S+/lite has: give that as the data path"):
            read(tmp_path)
    flat = tmp_path / "flat"
    shutil.copytree(lite_folders / "train", flat)
    shutil.copytree(flat / "cat", flat / "test")  # a class that is called so
    assert len(index_held_out(flat, 0.5, 0)[0].classes) == 9
