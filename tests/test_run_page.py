"""The end of a run: doubts, three lines and a page; the same page from an evaluation; lines for a terminal."""

import dataclasses
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import unicodedata

import numpy as np
import pytest

from mobilenetv3_common.checkpoint import CheckpointFolder
from mobilenetv3_common.dataset_index import index_dataset
from mobilenetv3_common.evaluation import MISTAKES, of_all_ranks
from mobilenetv3_common.evaluation_record import Mistake, Record, read_record, shown_figures, worst, write_record
from mobilenetv3_common.run_page import WHOLE_MATRIX, Page, page_text
from mobilenetv3_common.run_told import _update, doubts, last_lines
from mobilenetv3_common.terminal import WIDEST, for_terminal
from mobilenetv3_common.train_config import TrainConfig
from tests.browser import DESK, PHONE, browser, opened
from tests.conftest import LITE_DATA, ROOT, run_command
from tests.training import QUICK


def record(confusion, **more):
    confusion = np.array(confusion, dtype=np.int64)
    samples = int(confusion.sum())
    figures = {"top1": np.trace(confusion) / samples, "top5": 1.0, "loss": 0.5, "samples": samples, "skipped": 0}
    return Record(figures, tuple(f"class {i}" for i in range(len(confusion))), confusion, **more)


# --- figures of each class, checked by hand ---


def test_precision_recall_and_support_are_those_of_the_definition():
    cat, dog, empty = record([[3, 1, 0], [2, 4, 0], [0, 0, 0]]).of_classes()
    assert (cat.precision, cat.recall, cat.support) == (3 / 5, 3 / 4, 4)
    assert (dog.precision, dog.recall, dog.support) == (4 / 5, 4 / 6, 6)
    assert (empty.precision, empty.recall, empty.support) == (None, None, 0)
    assert record([[3, 1, 0], [2, 4, 0], [0, 0, 0]]).confused(5) == [(1, 0, 2), (0, 1, 1)]


def test_they_are_scikit_learns():
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    true, taken = rng.integers(0, 7, (2, 500))
    confusion = metrics.confusion_matrix(true, taken, labels=range(7))
    theirs = metrics.precision_recall_fscore_support(true, taken, labels=range(7))
    ours = record(confusion).of_classes()
    np.testing.assert_allclose([[c.precision, c.recall, c.support] for c in ours], np.stack([theirs[0], theirs[1], theirs[3]], 1))


def test_a_record_is_read_back_whole_and_a_damaged_one_not_at_all(tmp_path):
    made = record([[3, 1], [2, 4]], mistakes=(Mistake(7, 0, 1, 0.875),), epoch=3)
    write_record(tmp_path, made)
    found = read_record(tmp_path)
    assert found.confusion.tolist() == made.confusion.tolist()
    assert dataclasses.replace(found, confusion=made.confusion) == made
    for text in (
        "",
        "{}",
        "[1]",
        json.dumps({"classes": ["a"], "confusion": [[5, 5, 1]], "mistakes": [], "figures": {}, "epoch": 1}),
    ):
        (tmp_path / "evaluation.json").write_text(text)
        assert read_record(tmp_path) is None


def test_the_most_confident_mistakes_come_first_whatever_the_order():
    mistakes = [Mistake(n, 0, 1, c) for n, c in enumerate((0.5, 0.9, 0.9, 0.3))]
    assert [one.sample for one in worst(mistakes[::-1], 3)] == [1, 2, 0]


class TwoRanks:
    """One of two ranks whose sums are added by hand."""

    world_size = 2

    def __init__(self, rank, other):
        self.rank, self.other, self.sent = rank, other, None

    def sum(self, values):
        self.sent = np.array(values)
        return self.sent + self.other


def test_the_most_confident_mistakes_of_all_ranks_are_kept():
    ours, theirs = (tuple(Mistake(2 * n + rank, 0, 1, 1 / (n + 2)) for n in range(MISTAKES)) for rank in (0, 1))
    second = TwoRanks(1, 0.0)
    of_all_ranks(theirs, second)
    found = of_all_ranks(ours, TwoRanks(0, second.sent))
    assert found == worst((*ours, *theirs), MISTAKES) and {one.sample % 2 for one in found} == {0, 1}
    assert of_all_ranks((), TwoRanks(0, second.sent * 0)) == ()


def test_top_5_is_not_shown_below_six_classes():
    figures = {"top1": 0.5, "top5": 1.0}
    assert shown_figures(figures, 5) == {"top1": 0.5} and shown_figures(figures, 6) == figures


# --- doubts, and sound runs on which they are silent ---


def entries(values, name="loss"):
    """Entries of a log, an epoch each."""
    return [{"epoch": number, "update": number + 1, "loss": 0.1, name: value} for number, value in enumerate(values)]


GUESSED = [[0, 5], [0, 5]]
BALANCED = [[50, 50], [50, 50]]
RIGHT = [[45, 5], [5, 45]]
FALLING, FLAT = (0.7, 0.4, 0.2), (0.69, 0.70, 0.69)
CASES = {
    "all of one class": (FALLING, (0.5, 0.5, 0.5), GUESSED, ["at chance"]),
    "a coin": (FALLING, (0.5, 0.5, 0.5), BALANCED, ["at chance"]),
    "the loss is flat": (FLAT, (0.6, 0.85, 0.9), RIGHT, ["did not fall"]),
    "the loss rises": ((0.7, 0.9, 1.2), (0.6, 0.85, 0.9), RIGHT, ["did not fall"]),
    "the first epoch is best": (FALLING, (0.9, 0.8, 0.7), RIGHT, ["best epoch is the first"]),
    "the loss ends above that of guessing": (
        (40.0, 9.0, 3.59),
        (0.45, 0.6, 0.61),
        [[30, 20], [19, 31]],
        ["answers by chance have"],
    ),
    "from above, down to a good network": ((40.0, 1.6, 1.5), (0.6, 0.85, 0.9), RIGHT, []),
    "nothing is learnt": (FLAT, (0.52, 0.5, 0.5), BALANCED, ["at chance", "did not fall"]),
    "mixing keeps the loss of a good network large": ((0.455, 0.452, 0.45), (0.85, 0.88, 0.9), RIGHT, []),
    "one picture fewer at the end": (FALLING, (0.91, 0.91, 0.9), RIGHT, []),
    "the first by chance": (FALLING, (0.92, 0.9, 0.9), RIGHT, []),
    "sound": (FALLING, (0.6, 0.85, 0.9), RIGHT, []),
    "sound from the first epoch": (FALLING, (1.0, 1.0, 1.0), [[5, 0], [0, 5]], []),
    "a small loss need not fall": ((0.02, 0.02, 0.021), (0.9, 0.9, 0.9), RIGHT, []),
    "one epoch": ((0.69,), (0.9,), RIGHT, []),
    "one class in validation": (FALLING, (0.9, 0.95, 1.0), [[5, 0], [0, 0]], []),
    "few pictures, most right": (FALLING, (0.5, 0.7, 0.9), [[5, 0], [1, 4]], []),
}


@pytest.mark.parametrize("name", CASES)
def test_a_run_that_learnt_nothing_is_said_and_a_sound_one_is_not(name):
    losses, tops, confusion, expected = CASES[name]
    said = doubts(entries(losses), entries(tops, "top1"), record(confusion))
    assert len(said) == len(expected) and all(text in line for text, line in zip(expected, said, strict=True)), said


def test_a_moving_average_of_the_first_weights_is_the_cause_that_is_named():
    """Silent where the average has forgotten them, and where the result is above chance."""
    tops = entries((0.5, 0.5, 0.5), "top1")
    (stale,) = doubts(entries(FALLING), tops, record(GUESSED), 0.92)
    assert "of which 92% are still the first weights: add --ema-warmup" in stale and "Look at the labels" not in stale
    (other,) = doubts(entries(FALLING), tops, record(GUESSED), 0.05)
    assert "moving average" not in other and "fresh weights" not in other and "the folder of this run" not in other
    (few,) = doubts(entries(FALLING), tops, record(GUESSED), 0.05, None, 96)
    assert (
        "A likely cause: fresh weights learn little from 96 pictures; begin with published ones (--pretrained torchvision "
        "--reset-classifier)."
        in few
        and "--config" not in few
    ), "the flags that such a run needs, and no recipe, which it may have used already"
    assert doubts(entries(FALLING), tops, record(GUESSED), 0.05, None, 5000) == [other], "many pictures"
    assert doubts(entries(FALLING), entries((0.6, 0.85, 0.9), "top1"), record(RIGHT), 0.92) == []


def test_what_may_be_luck_is_not_called_chance_and_a_short_run_is_said():
    """Two of three pictures right: guessing one of three classes gives as much in a quarter of all cases."""
    three = [[1, 0, 0], [0, 1, 0], [1, 0, 0]]
    (said,) = doubts(entries((1.0, 0.9)), entries((1 / 3, 2 / 3), "top1"), record(three))
    assert "top-1 0.6667 of the last epoch may be chance: " in said and "luck gives as much in 26% of all cases" in said
    assert "is at chance: always" in doubts(entries((1.0, 0.9)), entries((1 / 3, 1 / 3), "top1"), record(three))[0]
    assert doubts(entries((1.0, 0.9)), entries((1 / 3, 1.0), "top1"), record(three)) == [], "three of three by luck: 4 %"
    slow = entries((0.693, 0.69, 0.688))
    said = doubts(slow, entries((0.5, 0.5, 0.5), "top1"), record(BALANCED))[1]
    assert (
        said.startswith("the training loss hardly fell: 0.6930")
        and "3 updates are a short run: train for more epochs first (a new run: --epochs N)" in said
    )
    (few,) = doubts(entries(FLAT), entries((0.6, 0.85, 0.9), "top1"), record(RIGHT), fresh=96)
    assert (
        "N). A likely cause: fresh weights learn little from 96 pictures; begin with published ones" in few and "Else change" in few
    )
    (many,) = doubts(entries(FLAT), entries((0.6, 0.85, 0.9), "top1"), record(RIGHT), fresh=5000)
    assert "fresh weights" not in many and "N). Change the learning rate" in many
    both = doubts(entries(FLAT), entries((0.52, 0.5, 0.5), "top1"), record(BALANCED), fresh=96)
    assert len(both) == 2 and "".join(both).count("fresh weights learn little") == 1, "said once"
    slow[-1]["update"] = 400
    assert "short run" not in doubts(slow, entries((0.5, 0.5, 0.5), "top1"), record(BALANCED))[1]


@pytest.mark.parametrize("momentum", [None, 0.01, 0.1, 0.3])
def test_a_setting_that_a_run_has_already_is_not_advised(momentum):
    (said,) = doubts(
        entries(FALLING, "loss")[:2] + [{**entries(FALLING)[2], "top1": 0.9}],
        entries((0.5, 0.5), "top1"),
        record(BALANCED),
        bn_momentum=momentum,
    )
    assert "Training pictures reach 0.9000" in said and ("--bn-momentum 0.1" in said) == (momentum in (None, 0.01))


def test_the_last_three_lines_are_result_curve_and_a_command():
    index = index_dataset(LITE_DATA, "val")
    config = TrainConfig(output_dir="output/my run", epochs=3)
    lines = last_lines(config, record(RIGHT, epoch=2), entries(FALLING), entries((0.6, 0.9, 0.8), "top1"), index)
    assert lines[0] == "result: top-1 0.9000, loss 0.5000 of 100 validation pictures (epoch 2 of 3)"
    equal = last_lines(config, record(RIGHT, epoch=1), entries(FALLING), entries((0.9, 0.8, 0.9), "top1"), index)
    assert equal[0].endswith("(epoch 1 of 3, the first of 2 with this top-1)")
    losses = "training loss 0.7000 -> 0.2000, validation loss 0.1000 -> 0.1000"
    assert lines[1] == f"curve: {losses}, validation top-1 0.6000 -> 0.8000; page: output/my run/report.html"
    assert lines[2].startswith("next: python tools/predict.py --img-path ") and lines[2].endswith(
        "'output/my run/best.safetensors'"
    )


@pytest.mark.parametrize(("held", "told"), [((1.0, 2.5), True), ((2.5, 2.4), True), ((0.9, 0.25), False), ((0.4, 0.25), False)])
def test_a_validation_loss_that_stays_behind_is_told_of(held, told):
    evaluations = [one | {"loss": loss} for one, loss in zip(entries((0.6, 0.9), "top1"), held, strict=True)]
    said = doubts(entries(FALLING), evaluations, record(BALANCED))
    assert ["validation loss" in line for line in said] == [True] * told, said
    assert not told or ("has risen" in said[0]) == (held[0] < held[1])
    lines = last_lines(TrainConfig(), record(RIGHT), entries(FALLING), evaluations, index_dataset(LITE_DATA, "val"))
    assert f", validation loss {held[0]:.4f} -> {held[1]:.4f}, validation top-1 0.6000 -> 0.9000" in lines[1]


def test_the_page_has_the_learning_rate_that_was_used_and_the_pictures_of_an_update():
    plain = TrainConfig(lr=0.1, batch_size=2, optimizer="sgd")
    assert _update(plain, 2, 1) == "sgd, learning rate 0.1, 2 pictures an update"
    scaled = dataclasses.replace(plain, accumulate=4, scale_lr_from=256)
    rate, pictures = "0.00625 (--lr 0.1 is for 256 pictures an update)", "16 pictures an update (4 forward passes of 2 on 2 ranks)"
    assert _update(scaled, 4, 2) == f"sgd, learning rate {rate}, {pictures}"


# --- lines for a terminal ---


@pytest.mark.parametrize(
    "text",
    [
        "short",
        "a warning of many words " * 12,
        "next: python tools/predict.py --img-path a/long/path/to/a/picture/cat.JPEG --pretrained output/finetune/best.safetensors",
    ],
)
def test_lines_fit_the_terminal_and_commands_can_be_copied(text):
    shown = for_terminal(text)
    assert all(len(line) <= WIDEST for line in shown.splitlines())
    assert shown.replace(" \\\n  ", " ").replace("\n  ", " ") == text.strip() or " ".join(shown.split()) == text.strip()


def test_wide_characters_take_two_columns():
    text = "note: classes with a single picture have none held out: " + ", ".join(f"\u732b\u7684\u7c7b\u522b{n}" for n in range(30))
    shown = for_terminal(text)
    wide = [len(line) + sum(unicodedata.east_asian_width(c) in "WF" for c in line) for line in shown.splitlines()]
    assert max(wide) <= WIDEST < len(text) and " ".join(shown.split()) == text
    assert for_terminal("\u732b" * 50) == "\u732b" * 50 and "\n" in for_terminal("\u732b " * 34)


def in_a_terminal(*command):
    """What a command shows on a terminal of 100 columns."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": "100", "PYTHONPATH": ".", "TERM": "xterm", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, *map(str, command)], cwd=ROOT, stdout=follower, stderr=subprocess.DEVNULL, env=environment
    ) as made:
        os.close(follower)
        held = b""
        while True:
            try:
                part = os.read(leader, 65536)
            except OSError:
                break
            if not part:
                break
            held += part
        assert made.wait() == 0
    os.close(leader)
    return held.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("framework", ["paddle", "ref"])
def test_a_run_ends_with_a_page_and_its_lines_fit_a_terminal(tmp_path, framework):
    out = tmp_path / "out"
    shown = in_a_terminal("tools/train.py", *QUICK, "--framework", framework, "--output-dir", out)
    assert max(len(line) for line in shown.splitlines() if str(tmp_path) not in line) <= WIDEST, shown  # a path is one word
    assert "epoch 1/2 1/4  loss" in shown and "avg_reader_cost" not in shown
    log = (out / "train.log").read_text()
    assert "avg_reader_cost" in log and re.search(r"\nresult: .*\ncurve: .*\nnext: .*\n$", log)
    page = (out / "report.html").read_text()
    held = read_record(out)
    assert held.epoch in (1, 2) and held.figures["samples"] == 16 and len(held.mistakes) == 16 - round(held.figures["top1"] * 16)
    assert page.count("<figure><img alt=") == len(held.mistakes) and "cat" in page
    weights = ("--framework", framework, "--pretrained", out / "best.safetensors", "--report", tmp_path / "page")
    done = run_command("tools/eval.py", *QUICK[:2], *weights)
    assert done.returncode == 0 and f"page: {tmp_path}/page/report.html" in done.stdout, done.stderr
    shown = in_a_terminal("tools/eval.py", *QUICK[:2], *weights)
    assert max(len(line) for line in shown.splitlines() if str(tmp_path) not in line) <= WIDEST < len(done.stdout.splitlines()[-2])
    assert read_record(tmp_path / "page").confusion.tolist() == held.confusion.tolist()
    earlier = CheckpointFolder(out).set_aside(None)
    assert {"report.html", "evaluation.json"} <= set(os.listdir(earlier)), "a new run writes nothing over"


# --- the page in a browser ---


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Two pages: of eight classes with mistakes and doubts, and of many classes with long names."""
    folder, index = tmp_path_factory.mktemp("pages"), index_dataset(LITE_DATA, "val")
    confusion = np.zeros((8, 8), dtype=np.int64)
    for label in index.labels:
        confusion[label, (label + (label % 3 == 0)) % 8] += 1
    mistakes = tuple(Mistake(i, label, (label + 1) % 8, 0.9 - i / 100) for i, label in enumerate(index.labels) if label % 3 == 0)
    eight = dataclasses.replace(record(confusion, mistakes=mistakes, epoch=2), classes=index.classes)
    rows = [("model", "mobilenet_v3_small (paddle)")]
    curves = (entries(np.linspace(2, 0.1, 30)), entries(np.linspace(0.1, 0.6, 30), "top1"))
    for entry in curves[0]:
        entry["top1"] = 1 - entry["loss"] / 2
    few = Page(
        "mobilenet_v3_small on lite_data", eight, index, rows, *curves, ["a doubt <b>"], "python tools/predict.py --img-path x"
    )
    rng = np.random.default_rng(0)
    classes = tuple(f"a rather long name of a class, {i}" for i in range(WHOLE_MATRIX + 20))
    wide = dataclasses.replace(record(rng.integers(0, 3, (len(classes), len(classes)))), classes=classes)
    many = Page("many classes", wide, index, rows)
    for name, page in (("few", few), ("many", many)):
        (folder / f"{name}.html").write_text(page_text(page), encoding="utf-8")
    return folder


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("name", ["few", "many"])
def test_the_page_fits_the_screen_and_shows_its_pictures(pages, name, viewport):
    with browser() as chromium, opened(chromium, (pages / f"{name}.html").as_uri(), viewport=viewport) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
        if name == "few":
            assert len(page.query_selector_all(".sheet img")) == 6 and len(page.query_selector_all("svg polyline")) == 4
            assert "a doubt <b>" in page.inner_text("main"), "text of strangers is escaped"
            assert page.inner_text("[role=status]") == "top-1 62.50% of 16 pictures; with doubts"
            assert page.locator(".matrix tbody th").all_inner_texts() == list(index_dataset(LITE_DATA, "val").classes)


def test_a_picture_that_is_gone_costs_no_page(tmp_path):
    shutil.copytree(LITE_DATA, tmp_path / "data")
    index = index_dataset(tmp_path / "data", "val")
    index.path(0).unlink()
    page = Page("x", record(RIGHT, mistakes=(Mistake(0, 0, 1, 0.9), Mistake(1, 0, 1, 0.8), Mistake(10**6, 0, 1, 0.7))), index, [])
    text = page_text(page)
    assert text.count("It cannot be read any more") == 1 and text.count("<img") == 1


LONG = {
    "words": "a very long class name that goes on and on " * 4,
    "Chinese": "\u7ea2\u8272\u7684\u5c0f\u732b" * 12,
    "markup": '<script>alert("x")</script>' * 3,
}


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("kind", LONG)
def test_the_counts_of_the_confusion_stand_beside_names_of_any_length(tmp_path, kind, viewport):
    """A long name pushed every count out of the screen."""
    classes = tuple(f"{LONG[kind]}{n}" for n in range(3))
    held = dataclasses.replace(record([[3, 1, 0], [0, 2, 0], [1, 0, 4]]), classes=classes)
    (tmp_path / "p.html").write_text(page_text(Page("long names", held, index_dataset(LITE_DATA, "val"), [])), encoding="utf-8")
    with browser() as chromium, opened(chromium, (tmp_path / "p.html").as_uri(), viewport=viewport) as page:
        cells = page.locator(".matrix tbody td")
        assert [cells.nth(n).inner_text() for n in range(9)] == ["3", "1", "", "", "2", "", "1", "", "4"]
        boxes = [cells.nth(n).bounding_box() for n in range(9)]
        assert all(box["x"] + box["width"] <= viewport["width"] and box["height"] < 60 for box in boxes), boxes
        assert page.locator(".matrix tbody th").nth(1).get_attribute("title") == classes[1]
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        assert page.evaluate("document.scripts.length") == 0


def test_an_evaluation_alone_has_no_verdict_and_a_run_has(tmp_path):
    """Top-1 of 0 % stood in green."""
    held, index = record(GUESSED), index_dataset(LITE_DATA, "val")
    assert '<p class="verdict" role' in page_text(Page("t", held, index, []))
    ended = entries((0.5, 0.6), "top1")
    assert '<p class="verdict good" role' in page_text(Page("t", held, index, [], evaluations=ended))
    assert '<p class="verdict bad" role' in page_text(Page("t", held, index, [], evaluations=ended, doubts=["a doubt"]))
