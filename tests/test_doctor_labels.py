"""Labels that do not belong to their pictures are found, by tools/doctor.py data and check; sound data stays silent."""

from __future__ import annotations

import importlib
import random
import shutil

import numpy as np
import pytest
from PIL import Image, ImageOps

from alignment_doctor import few, relation
from alignment_doctor.check import checks as run_checks
from alignment_doctor.check.subject import observe
from alignment_doctor.cli import main
from alignment_doctor.data import checks as data_checks
from alignment_doctor.data.command import measured
from alignment_doctor.data.subject import Expected
from alignment_doctor.findings import Verdict, examine
from mobilenetv3_common.config_file import make_config
from mobilenetv3_common.digits import write_digits
from mobilenetv3_common.train_config import TrainConfig
from tests.conftest import LITE_DATA

THREE = ("digit_0", "digit_1", "digit_2")


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Three classes of 50 and 18 digits, as lists, in which a label is changed without moving a file."""
    root = write_digits(tmp_path_factory.mktemp("digits"), 50, 18)
    for split in ("train", "val"):
        names = [f"{split}/{name}/{path.name}" for name in THREE for path in sorted((root / split / name).iterdir())]
        (root / f"{split}_list.txt").write_text("".join(f"{name} {THREE.index(name.split('/')[1])}\n" for name in names))
    (root / "classes.txt").write_text("\n".join(THREE) + "\n")
    return root


def relabelled(digits, tmp_path, change, splits=("train", "val")):
    """A copy whose labels are changed: ``change`` takes those of a split."""
    root = tmp_path / "relabelled"
    shutil.copytree(digits, root)
    for split in splits:
        names, labels = zip(*(line.split() for line in (root / f"{split}_list.txt").read_text().splitlines()), strict=True)
        made = change([int(label) for label in labels])
        (root / f"{split}_list.txt").write_text("".join(f"{name} {label}\n" for name, label in zip(names, made, strict=True)))
    return root


def shuffled(labels, share=1.0):
    draw = random.Random(0)
    chosen = [place for place in range(len(labels)) if draw.random() < share]
    moved = [labels[place] for place in chosen]
    draw.shuffle(moved)
    made = list(labels)
    for place, label in zip(chosen, moved, strict=True):
        made[place] = label
    return made


def noisy(labels):
    """One label in ten is another one."""
    return [(label + 1 + place // 10 % 2) % 3 if place % 10 == 0 else label for place, label in enumerate(labels)]


def examined(root):
    """What ``data.labels`` says of a data set."""
    (made,) = [one for one in examine(data_checks, measured(str(root), Expected())) if one.check.id == "data.labels"]
    return made.outcome


# --- wrong labels -------------------------------------------------------------------------------------------------------------


def test_shuffled_labels_are_found(digits, tmp_path):
    outcome = examined(relabelled(digits, tmp_path, shuffled))
    assert outcome.verdict is Verdict.FOUND and outcome.where == ("the labels of train and val: none belongs to its picture",)
    assert outcome.measured.startswith("held-out pictures stay at chance: the labels of ")


@pytest.mark.parametrize(("split", "place"), [("train", "the labels of training"), ("val", "the labels of validation")])
def test_the_split_whose_labels_are_shuffled_is_named(digits, tmp_path, split, place):
    outcome = examined(relabelled(digits, tmp_path, shuffled, (split,)))
    assert outcome.verdict is Verdict.FOUND and outcome.where == (place,)


def test_other_class_numbers_in_validation_are_found_and_told(digits, tmp_path):
    """Such a list passes every comparison of names: it has the same numbers."""
    outcome = examined(relabelled(digits, tmp_path, lambda labels: [(label + 1) % 3 for label in labels], ("val",)))
    assert outcome.verdict is Verdict.FOUND
    assert outcome.where == tuple(
        f"validation: class {n} ({THREE[n]}) looks like class {(n - 1) % 3} ({THREE[(n - 1) % 3]}) of training" for n in range(3)
    )


def test_a_list_that_was_sorted_apart_from_its_pictures_is_found(digits, tmp_path):
    """Labels in turn, as a sorted column beside unsorted names has them."""
    outcome = examined(relabelled(digits, tmp_path, lambda labels: [place % 3 for place in range(len(labels))]))
    assert outcome.verdict is Verdict.FOUND


@pytest.fixture(scope="module")
def ten(tmp_path_factory):
    """Ten classes of 60 and 25 digits, as lists."""
    root = write_digits(tmp_path_factory.mktemp("ten"), 60, 25)
    for split in ("train", "val"):
        rows = [(path.relative_to(root), path.parent.name[-1]) for path in sorted((root / split).glob("digit_?/*"))]
        (root / f"{split}_list.txt").write_text("".join(f"{name} {label}\n" for name, label in rows))
    (root / "classes.txt").write_text("".join(f"digit_{n}\n" for n in range(10)))
    return root


CYCLES = {"two classes": {3: 8, 8: 3}, "three classes in a ring": {1: 4, 4: 6, 6: 1}}


@pytest.mark.parametrize("split", ["train", "val"])
@pytest.mark.parametrize("cycle", CYCLES)
def test_few_classes_of_many_that_are_exchanged_in_one_split_are_named(ten, tmp_path, cycle, split):
    """The other classes are told well, so that the whole was far from chance: nothing was said."""
    there = CYCLES[cycle]
    outcome = examined(relabelled(ten, tmp_path, lambda labels: [there.get(label, label) for label in labels], (split,)))
    looks = {new: old for old, new in there.items()} if split == "val" else there
    assert outcome.verdict is Verdict.FOUND and outcome.measured == "some classes of validation are others of training"
    assert set(outcome.where) == {
        f"validation: class {a} (digit_{a}) looks like class {b} (digit_{b}) of training" for a, b in looks.items()
    }


@pytest.mark.parametrize(("split", "place"), [("train", "the labels of training"), ("val", "the labels of validation")])
def test_shuffled_labels_of_many_classes_are_found(ten, tmp_path, split, place):
    """What a shuffled training set happens to say of a class it says of all its pictures: that passed for more than chance."""
    outcome = examined(relabelled(ten, tmp_path, shuffled, (split,)))
    assert outcome.verdict is Verdict.FOUND and outcome.where == (place,)


@pytest.fixture(scope="module")
def fifteen(tmp_path_factory):
    """Ten classes of 15 digits to train and 8 to validate."""
    root = write_digits(tmp_path_factory.mktemp("fifteen"), 15, 8)
    for split in ("train", "val"):
        rows = [(path.relative_to(root), path.parent.name[-1]) for path in sorted((root / split).glob("digit_?/*"))]
        (root / f"{split}_list.txt").write_text("".join(f"{name} {label}\n" for name, label in rows))
    (root / "classes.txt").write_text("".join(f"digit_{n}\n" for n in range(10)))
    return root


@pytest.mark.parametrize("split", ["train", "val"])
@pytest.mark.parametrize(("a", "b"), [(3, 8), (0, 6)])
def test_two_classes_of_few_pictures_that_are_exchanged_are_named(fifteen, tmp_path, split, a, b, monkeypatch):
    """No labelling of 16 pictures is five deviations from all others, so that nothing was said."""
    root = relabelled(fifteen, tmp_path, lambda labels: [{a: b, b: a}.get(label, label) for label in labels], (split,))
    outcome = examined(root)
    assert outcome.verdict is Verdict.FOUND and set(outcome.where) == {
        f"validation: class {one} (digit_{one}) looks like class {other} (digit_{other}) of training"
        for one, other in ((a, b), (b, a))
    }
    monkeypatch.setattr(relation, "ON_AVERAGE", 100.0)
    assert examined(root).verdict is Verdict.NONE, "without it this is missed"


def test_few_pictures_with_their_own_labels_are_silent(fifteen):
    assert examined(fifteen).verdict is Verdict.NONE


@pytest.mark.parametrize(("split", "place"), [("train", "the labels of training"), ("val", "the labels of validation")])
def test_labels_of_which_nine_in_ten_are_shuffled_are_found_and_half_of_them_are_not(ten, tmp_path, split, place, monkeypatch):
    """The tenth that belongs to its pictures passed for labels that follow from them."""
    wrong = relabelled(ten, tmp_path / "wrong", lambda labels: shuffled(labels, 0.9), (split,))
    outcome = examined(wrong)
    assert outcome.verdict is Verdict.FOUND and outcome.where == (place,)
    half = relabelled(ten, tmp_path / "half", lambda labels: shuffled(labels, 0.5), (split,))
    assert examined(half).verdict is Verdict.NONE
    monkeypatch.setattr(relation, "MOSTLY", 0.0)
    assert examined(wrong).verdict is Verdict.NONE, "without it this is missed"


# --- sound data ---------------------------------------------------------------------------------------------------------------


COPIES = {
    "as they are": lambda picture: [picture],
    "mirrored and turned": lambda picture: [ImageOps.mirror(picture), picture.rotate(90), ImageOps.flip(picture)],
    "darker": lambda picture: [picture.point(lambda value: int(0.9 * value))],
    "made smaller": lambda picture: [picture.resize((picture.width * 3 // 4, picture.height * 3 // 4))],
}


def copied(root, made, copies):
    """A folder of each class with each picture of the lists of ``root`` and its copies, whose label is the same."""
    for split in ("train", "val"):
        for number, line in enumerate((root / f"{split}_list.txt").read_text().splitlines()):
            name, label = line.split()
            (made / split / label).mkdir(parents=True, exist_ok=True)
            with Image.open(root / name) as picture:
                for copy, one in enumerate([picture, *COPIES[copies](picture)]):
                    one.save(made / split / label / f"{number}_{copy}.png")
    return made


@pytest.mark.slow
@pytest.mark.parametrize("copies", COPIES)
def test_wrong_labels_that_copies_share_are_found_and_sound_ones_stay_silent(digits, tmp_path, copies, monkeypatch):
    """Each label followed from that of the copy, so that none was at chance."""
    wrong = copied(relabelled(digits, tmp_path, shuffled), tmp_path / "wrong", copies)
    said = ("the labels of train and val: none belongs to its picture",)
    assert examined(wrong).where == said
    assert examined(copied(digits, tmp_path / "sound", copies)).verdict is Verdict.NONE
    monkeypatch.setattr(relation, "SAME", 2.0)
    assert examined(wrong).where != said, "without it this is missed"


def test_wrong_labels_of_a_validation_that_is_a_part_of_training_are_found(digits, tmp_path):
    root = relabelled(digits, tmp_path, shuffled, ("train",))
    (root / "val_list.txt").write_text("".join((root / "train_list.txt").read_text().splitlines(keepends=True)[::3]))
    assert examined(root).where == ("the labels of train: none belongs to its picture",)
    (root / "train_list.txt").write_text((digits / "train_list.txt").read_text())
    (root / "val_list.txt").write_text("".join((root / "train_list.txt").read_text().splitlines(keepends=True)[::3]))
    assert examined(root).verdict is Verdict.NONE


def test_sound_labels_and_noisy_ones_are_silent(digits, tmp_path):
    assert examined(digits).verdict is Verdict.NONE
    assert examined(relabelled(digits, tmp_path, noisy)).verdict is Verdict.NONE


def test_many_classes_and_very_unequal_ones_are_silent(digits, ten, tmp_path):
    assert examined(ten).verdict is Verdict.NONE
    root = tmp_path / "unequal"
    shutil.copytree(digits, root)
    for split in ("train", "val"):
        rows = enumerate((root / f"{split}_list.txt").read_text().splitlines(keepends=True))
        (root / f"{split}_list.txt").write_text("".join(row for n, row in rows if n % (1, 4, 8)[int(row.split()[1])] == 0))
    (root / "train_list.txt").write_text((root / "train_list.txt").read_text() + "".join((digits / "val_list.txt").open()))
    assert examined(root).verdict is Verdict.NONE


def test_splits_that_may_have_been_exchanged_are_asked_about_and_are_no_finding(digits, tmp_path):
    """Fewer pictures to learn than to judge by may be meant so."""
    root = tmp_path / "exchanged"
    shutil.copytree(digits, root)
    for split, other in (("train", "val"), ("val", "train")):
        (root / f"{split}_list.txt").write_text((digits / f"{other}_list.txt").read_text())
    outcome = examined(root)
    assert outcome.verdict is Verdict.NONE and outcome.measured.endswith("more pictures than training: were they exchanged?")
    assert "exchanged" not in examined(digits).measured


def test_half_of_the_labels_are_enough(digits, tmp_path):
    assert examined(relabelled(digits, tmp_path, lambda labels: shuffled(labels, 0.5))).verdict is Verdict.NONE


def test_labels_of_both_splits_of_which_four_in_five_are_shuffled_are_found(digits, tmp_path, monkeypatch):
    """Labels that follow from these pictures would be told clearly; these are a little above chance."""
    root = relabelled(digits, tmp_path, lambda labels: shuffled(labels, 0.8))
    outcome = examined(root)
    assert outcome.verdict is Verdict.FOUND and "hardly follow the pictures" in outcome.measured
    assert outcome.where == ("the labels of train and val: most belong to other pictures",)
    monkeypatch.setattr(relation, "WEAK", 0.0)
    assert examined(root).verdict is Verdict.NONE


def drawn(root, draw, classes, train, val):
    rng = np.random.default_rng(0)
    for split, count in (("train", train), ("val", val)):
        for label in range(classes):
            (root / split / f"class_{label:03}").mkdir(parents=True)
            for number in range(count):
                pixels = np.clip(draw(label, rng), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(root / split / f"class_{label:03}" / f"{number}.png")
    return root


def faint_lines(label, rng):
    """Stripes of three directions 15 degrees apart, in noise of twice their contrast."""
    angle = np.radians(15 * label + rng.normal(0, 8))
    down, across = np.mgrid[:48, :48]
    stripes = 20 * np.sin(0.9 * (across * np.cos(angle) + down * np.sin(angle)) + rng.uniform(0, 6))
    return np.repeat((120 + stripes + rng.normal(0, 40, (48, 48)))[:, :, None], 3, 2)


def counted_spots(label, rng):
    """Three, four or five spots of any colour anywhere."""
    pixels = 100 + rng.normal(0, 25, (48, 48, 3))
    for _ in range(3 + label):
        top, left = rng.integers(0, 42, 2)
        pixels[top : top + 6, left : left + 6] = rng.integers(120, 255, 3)
    return pixels


def exclusive_or(label, rng):
    """Two signs, of which neither alone tells the class."""
    pixels, first = 100 + rng.normal(0, 25, (48, 48, 3)), int(rng.integers(2))
    for column, sign in enumerate((first, first ^ label)):
        top, left = int(rng.integers(0, 40)), 24 * column + int(rng.integers(0, 14))
        pixels[top : top + 8, left : left + 8] = ((220, 60, 60), (60, 60, 220))[sign]
    return pixels


@pytest.mark.parametrize(("draw", "classes"), [(faint_lines, 3), (counted_spots, 3), (exclusive_or, 2)])
def test_hard_but_sound_data_is_silent(tmp_path, draw, classes):
    assert examined(drawn(tmp_path / "hard", draw, classes, 60, 20)).verdict is Verdict.NONE


def test_tiny_data_and_many_classes_of_few_pictures_are_not_judged(tmp_path):
    for root in (LITE_DATA, drawn(tmp_path / "many", faint_lines, 120, 2, 1)):
        outcome = examined(root)
        assert outcome.verdict is Verdict.NOT_APPLICABLE and outcome.unjudged == "labels"
        assert outcome.measured == "fewer than two classes have 5 or more pictures"


# --- fewer than 100 pictures ----------------------------------------------------------------------------------------------------


def fewer(digits, tmp_path, train, val):
    """A copy with so many pictures of each split, of the three classes in turn."""
    root = tmp_path / "fewer"
    shutil.copytree(digits, root)
    for split, count in (("train", train), ("val", val)):
        rows = (root / f"{split}_list.txt").read_text().splitlines()
        of_class = [[row for row in rows if row.endswith(f" {label}")] for label in range(3)]
        kept = [row for many in zip(*of_class, strict=False) for row in many][:count]
        (root / f"{split}_list.txt").write_text("".join(f"{row}\n" for row in kept))
    return root


def triangles(label, rng):
    """A disc, a square or a triangle of any colour anywhere, on one of three grounds."""
    ground = np.array([(40, 120, 40), (160, 140, 110), (90, 110, 170)][rng.integers(3)])
    pixels, (row, column), size = ground + rng.normal(0, 12, (48, 48, 3)), rng.integers(14, 34, 2), rng.integers(7, 12)
    down, across = np.mgrid[:48, :48] - np.array([row, column])[:, None, None]
    disc, square = np.hypot(down, across) < size, np.maximum(abs(down), abs(across)) < size
    pixels[(disc, square, square & (abs(across) < (down + size) / 2))[label]] = rng.integers(60, 255, 3)
    return pixels


@pytest.mark.parametrize(("train", "val"), [(66, 22), (45, 15), (30, 6)])
@pytest.mark.parametrize("share", [1.0, 0.8])
def test_shuffled_labels_of_few_pictures_are_found(digits, tmp_path, train, val, share, monkeypatch):
    """Nobody judged fewer than 100 pictures: "No problem found"."""
    sound = fewer(digits, tmp_path, train, val)
    assert examined(sound).verdict is Verdict.NONE
    outcome = examined(relabelled(sound, tmp_path, lambda labels: shuffled(labels, share)))
    assert outcome.verdict is Verdict.FOUND and outcome.measured.startswith("labels do not follow the pictures: ")
    assert "(p = 0." in outcome.measured and outcome.where == ("the labels of train and val: most belong to other pictures",)
    monkeypatch.setattr(few, "CHANCE", 1.0)
    assert examined(tmp_path / "relabelled").verdict is Verdict.NONE, "without it this is missed"


@pytest.mark.parametrize("split", ["train", "val"])
def test_shuffled_labels_of_one_split_of_few_pictures_are_found(digits, tmp_path, split):
    assert examined(relabelled(fewer(digits, tmp_path, 60, 30), tmp_path, shuffled, (split,))).verdict is Verdict.FOUND


def test_shuffled_labels_of_few_pictures_without_a_validation_are_found(tmp_path):
    root = drawn(tmp_path / "drawn", triangles, 3, 24, 0)
    shutil.rmtree(root / "val")
    assert examined(root).verdict is Verdict.NONE
    paths = sorted((root / "train").rglob("*.png"))
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, shuffled(contents), strict=True):
        path.write_bytes(content)
    assert examined(root).measured.startswith("labels do not follow the pictures: ")


@pytest.mark.parametrize(("draw", "classes"), [(faint_lines, 3), (counted_spots, 3), (exclusive_or, 2), (triangles, 3)])
def test_few_pictures_that_are_hard_but_sound_are_silent(tmp_path, draw, classes):
    assert examined(drawn(tmp_path / "hard", draw, classes, 15, 5)).verdict is Verdict.NONE


def test_pictures_that_could_not_show_it_are_not_judged_and_the_last_line_says_so(digits, tmp_path, capsys, monkeypatch):
    """Spots of ten numbers, 15 pictures of each: no features count so far, and what they show is far from certain."""

    def many_spots(label, rng):
        return counted_spots(5 + label, rng)

    root = drawn(tmp_path / "spots", many_spots, 2, 17, 0)
    shutil.rmtree(root / "val")
    outcome = examined(root)
    assert outcome.verdict is Verdict.NOT_APPLICABLE and outcome.unjudged == "labels" and "stay at chance" in outcome.measured
    assert main(["data", str(root), "--near", "0"]) == 0
    assert "; not judged: labels (the labels of 34 pictures stay at chance (p = " in capsys.readouterr().out.splitlines()[-1]
    monkeypatch.setattr(few, "TELLING", 0.0)
    assert examined(root).verdict is Verdict.FOUND, "without it sound labels are reported"


@pytest.mark.parametrize(("train", "val"), [(20, 0), (18, 6), (24, 5)])
def test_too_few_pictures_are_named_in_the_last_line(digits, tmp_path, capsys, train, val):
    root = fewer(digits, tmp_path, train, val)
    if not val:
        (root / "val_list.txt").unlink()
        shutil.rmtree(root / "val")
    assert main(["data", str(root), "--near", "0"]) == 0
    last = f"not judged: labels ({train + val} pictures of classes that have 5 or more; it takes 30)."
    assert capsys.readouterr().out.splitlines()[-1].endswith(last)


@pytest.mark.slow
def test_permuted_labels_are_never_taken_for_sound_and_sound_ones_never_for_permuted(digits, tmp_path):
    """Of 30 permutations all are found; of 30 draws of hard pictures with their own labels none is."""
    root = tmp_path / "again"
    indices = measured(str(digits), Expected()).indices
    for seed in range(30):
        draw = random.Random(seed)
        mixed = {}
        for split, index in indices.items():
            labels = list(index.labels)
            draw.shuffle(labels)
            mixed[split] = type(index)(**{**vars(index), "labels": labels})
        assert relation.unrelated(relation.relate(mixed)) is not None, seed
        shutil.rmtree(root, ignore_errors=True)
        sound = measured(str(drawn(root, exclusive_or, 2, 60, 20)), Expected()).indices
        assert relation.unrelated(relation.relate(sound, seed)) is None, seed


# --- the commands -------------------------------------------------------------------------------------------------------------


def test_the_page_of_data_begins_with_the_contact_sheet_where_labels_are_wrong(digits, tmp_path, capsys):
    pages = {}
    for name, root in (("sound", digits), ("wrong", relabelled(digits, tmp_path, shuffled))):
        assert main(["data", str(root), "--html", str(tmp_path / f"{name}.html"), "--near", "0"]) == (name == "wrong")
        pages[name] = (tmp_path / f"{name}.html").read_text()
    assert "data.labels" in capsys.readouterr().out
    assert (
        pages["wrong"].index('class="sheet"') < pages["wrong"].index("<h2>data.labels</h2>") < pages["wrong"].index('id="checks"')
    )
    assert 'class="sheet"' in pages["sound"] and "<h2>data.labels</h2>" not in pages["sound"]


RUN = {
    "crop_size": 32, "resize_size": 32, "width_mult": 0.5, "workers": 0, "batch_size": 8, "epochs": 20, "lr": 0.002,
    "optimizer": "adamw", "device": "cpu", "framework": "ref",
}  # fmt: skip


def held_out(root, **settings):
    framework = importlib.import_module("mobilenetv3_ref.train.backend")
    config = make_config(TrainConfig, None, {**RUN, "data_path": str(root), **settings})
    with framework.started("cpu") as ranks:
        subject = observe(framework, config, ranks)
        return next(one for one in examine(run_checks, subject) if one.check.id == "check.held_out").outcome


@pytest.mark.slow
def test_a_run_on_shuffled_labels_learns_a_batch_and_nothing_else(digits, tmp_path):
    assert held_out(digits).verdict is Verdict.NONE
    outcome = held_out(relabelled(digits, tmp_path, shuffled))
    assert outcome.verdict is Verdict.FOUND and outcome.measured.startswith(
        "the first batch is learnt by heart, but held-out pictures"
    )
    unable = held_out(tmp_path / "relabelled", lr=1e-9)
    assert unable.verdict is Verdict.NOT_APPLICABLE and "see check.overfit" in unable.measured


def test_the_page_of_check_begins_with_the_contact_sheet_where_labels_are_wrong(digits, tmp_path, capsys):
    root = relabelled(digits, tmp_path, shuffled)
    flags = [text for name, value in RUN.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    assert main(["check", *flags, "--data-path", str(root), "--html", str(tmp_path / "c.html")]) == 1
    page = (tmp_path / "c.html").read_text()
    assert page.index('class="sheet"') < page.index("<h2>check.held_out</h2>") < page.index('id="checks"')
    assert "check.held_out" in capsys.readouterr().out
