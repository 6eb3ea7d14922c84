"""150 bad flags and files from a generator with a seed: each is one line with exit status 2, and nothing is written over."""

import hashlib
import os
import random
import shutil

import numpy as np
import pytest

from mobilenetv3_common import training
from mobilenetv3_common.checkpoint import LATEST, CheckpointFolder, read_checkpoint
from mobilenetv3_common.train_config import TrainConfig
from tests.conftest import LITE_DATA
from tests.test_train_survives import Unheard
from tests.training import QUICK
from tools.eval import main as evaluate
from tools.train import main as train

ROUNDS = 150
QUICK_ROUNDS = 30
NUMBERS = [f for f, entry in TrainConfig.__dataclass_fields__.items() if entry.metadata["range"] is not None]
SWITCHES = [f for f, entry in TrainConfig.__dataclass_fields__.items() if entry.type == "bool"]
CHOICES = [f for f, entry in TrainConfig.__dataclass_fields__.items() if entry.metadata["choices"]]
NEVER = ("nan", "inf", "-inf", "-1e9", "1e400", "1e30000", "many", "", "0x10", "1,5", "--1", "9" * 5000)


def flag(name):
    return "--" + name.replace("_", "-")


def bad_number(rng, place):
    name = rng.choice(NUMBERS)
    return [f"{flag(name)}={rng.choice(NEVER)}"]


def bad_choice(rng, place):
    return [f"{flag(rng.choice(CHOICES))}={rng.choice(('', 'x', 'SGD', 'none ', 'paddle,ref', 'é'))}"]


def bad_flag(rng, place):
    return [rng.choice(("--learning-rate=1", "--lr", "--epoch=3", "-x", "stray", "--sync-bn=1", "--no-lr", "--resume="))]


def bad_combination(rng, place):
    return rng.choice(
        (
            ["--sync-bn", "--freeze-bn"], ["--mix-group=3"], ["--warmup-epochs=2"], ["--lr-min=1", "--lr=0.1"], ["--resize-size=8"],
            ["--batch-size=1", "--crop-size=32"], ["--batch-size=17"], ["--accumulate=9"], ["--amp-level=O2"], ["--num-classes=3"],
            ["--mixup-alpha=1e-300"], ["--device=gpu"],
        )
    )  # fmt: skip


def bad_place(rng, place):
    name = rng.choice(("data_path", "pretrained", "resume", "config", "output_dir"))
    target = rng.choice(("missing", "file", "empty", "long", "unreadable", "pipe", ""))
    if name == "output_dir":
        target = rng.choice(("file", "long", "below a file", ""))
    path = place / target if target else ""
    if target in ("file", "below a file"):
        (place / "file").write_bytes(rng.randbytes(rng.choice((0, 1, 1000))))
        path = place / "file" / "below" if target == "below a file" else path
    elif target == "empty":
        path.mkdir()
    elif target == "long":
        path = place / ("x" * 300)
    elif target == "unreadable":
        path.symlink_to(path)
    elif target == "pipe":
        os.mkfifo(path)
    return [f"{flag(name)}={path}"]


def bad_weights(rng, place):
    path = place / f"w{rng.choice(('.pth', '.pdparams', '.safetensors', '.bin', '.latest.safetensors'))}"
    whole = bytearray((place / "run" / LATEST).read_bytes())
    kind = rng.choice(("noise", "cut", "empty"))
    path.write_bytes({"noise": rng.randbytes(3000), "cut": bytes(whole[: rng.randrange(len(whole))]), "empty": b""}[kind])
    return [f"{rng.choice(('--pretrained', '--resume'))}={path}"]


def bad_recipe(rng, place):
    lines = (
        "epochs: 1e400",
        "eps: .inf",
        "lr_gamma: .nan",
        "seed: " + "9" * 5000,
        "a: [",
        "- a",
        "lr: [1]",
        "[" * 3000,
        "epochs: 2020-01-01",
        'pretrained: "a\\0b"',
        "pretrained: ''",
        "? [a]\n: b",
        "lr: !!python/object:os.system x",
        "\x00",
        "epochs: true",
        "resume: 3",
        "0: 1",
        "auto_augment: best",
        "lr_gamma: 1000000",
        "num_classes: 2000000000",
        "",
        "&a [*a]",
    )
    (place / "r.yaml").write_text(rng.choice(lines), encoding="utf-8")
    if rng.random() < 0.1:
        (place / "r.yaml").write_bytes(b"\xff\xfe\x00lr")
    return [f"--config={place / 'r.yaml'}"]


def bad_data(rng, place, splits=("train", "val")):
    data = place / "data"
    shutil.copytree(LITE_DATA, data)
    line = rng.choice(
        (
            "x",
            "train/cat/cat_0.JPEG",
            "train/cat/cat_0.JPEG -1",
            "train/cat/cat_0.JPEG 8000000000000",
            "nothing.jpg 0",
            "train/cat 1",
            "/dev/zero 0",
            "a\0b 0",
            "train/cat/cat_0.JPEG 1.5",
            f"{'x' * 5000} 0",
        )
    )
    kind = rng.choice(("line", "bytes", "empty", "class gone", "class extra", "class empty", "pipe", "names", "picture", "link"))
    listing = data / f"{rng.choice(splits)}_list.txt"
    if kind in ("class gone", "class extra", "class empty", "pipe", "link"):
        for name in ("train_list.txt", "val_list.txt"):
            (data / name).unlink()
    home = data / rng.choice(splits) / "cat"
    if kind == "line":
        listing.write_text(listing.read_text() + line + "\n")
    elif kind == "bytes":
        listing.write_bytes(b"\xff\xfe" + listing.read_bytes())
    elif kind == "empty":
        listing.write_text("\n\n")
    elif kind == "class gone":
        shutil.rmtree(home)
    elif kind == "class extra":
        shutil.copytree(home, home.with_name("zebra"))
    elif kind == "class empty":
        home.with_name("zebra").mkdir()
    elif kind == "pipe":
        os.mkfifo(home / "x.JPEG")
    elif kind == "link":
        os.symlink("../rocket" if rng.random() < 0.5 else "nowhere.jpg", home / "x.jpg")
    elif kind == "names":
        (data / "classes.txt").write_text(rng.choice(("a\nb\n", "a\n" * 8)))
    else:
        picture = rng.choice(sorted(home.glob("*.JPEG")))
        whole = picture.read_bytes()
        picture.write_bytes(rng.choice((b"", b"%!PS-Adobe-3.0 EPSF-3.0\n", whole[: len(whole) // 2], rng.randbytes(999))))
        return [f"--data-path={data}", "--check-data"]
    return [f"--data-path={data}"]


def bad_data_of_eval(rng, place):
    return bad_data(rng, place, ("val",))


MAKERS = (bad_number, bad_number, bad_choice, bad_flag, bad_combination, bad_place, bad_weights, bad_recipe, bad_data, bad_data)
OF_EVAL = (bad_place, bad_weights, bad_data_of_eval)


def contents(folder):
    """Path -> digest of every file, pipes and links by name alone."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "" for path in sorted(folder.rglob("*"))
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A small run that is over, for what must not be written over."""
    import mobilenetv3_paddle.train as package

    folder = tmp_path_factory.mktemp("finished")
    config = TrainConfig(
        data_path="lite_data", crop_size=64, resize_size=64, width_mult=0.5, workers=0, batch_size=4, epochs=2, lr=0.001
    )
    run = package.build_run(config, package.Ranks())
    run.train_mode()
    package.update(run, [next(package.micro_batches(run))])
    package.save(run, CheckpointFolder(folder), best=True)
    return folder


def attempt(number, finished, tmp_path, capfd):
    """One bad input; what it was, the exit status, what was said, and whether something was changed."""
    rng = random.Random(number)
    place = tmp_path / f"{number:03d}"
    shutil.copytree(finished, place / "run")
    of_eval = rng.random() < 0.15
    maker = rng.choice(OF_EVAL if of_eval else MAKERS)
    bad = maker(rng, place)
    if of_eval:
        given = {"--data-path": "lite_data", "--pretrained": str(place / "run" / LATEST)}
        bad = [part for part in bad if part.split("=")[0] not in ("--output-dir", "--resume", "--check-data")] or [
            "--data-path=nowhere"
        ]
        argv = [f"{k}={v}" for k, v in given.items()] + [
            "--width-mult=0.5",
            "--workers=0",
            "--crop-size=64",
            "--resize-size=64",
            *bad,
        ]
    else:
        argv = [*QUICK, f"--output-dir={place / 'run'}", "--resume=auto", *bad]
    before = contents(place)
    try:
        status = evaluate(argv) if of_eval else train(argv)
    except SystemExit as error:
        status = error.code
    told = capfd.readouterr()
    changed = {k: v for k, v in contents(place).items() if before.get(k) != v} or before.keys() - contents(place).keys()
    shutil.rmtree(place)
    return maker.__name__, [part[:80] for part in bad], status, told.out + told.err, changed


def wrong(name, bad, status, told, changed):
    """What is wrong with the end of a bad input, in words; nothing where it is as it should be."""
    lines = [line for line in told.splitlines() if not line.startswith(("bad picture: ", "mobilenet_v3_small (paddle), "))]
    found = {
        f"exit status {status}": status != 2,
        "no single line": len(lines) != 1 or not lines[0].startswith("error: ") or "Traceback" in told or len(told) > 3000,
        f"changed {sorted(changed)}": bool(changed),
    }
    return [f"{name} {bad}: {what}: {told[-300:]}" for what, is_so in found.items() if is_so]


@pytest.mark.parametrize(
    ("first", "end"),
    [(0, QUICK_ROUNDS), *(pytest.param(at, at + 40, marks=pytest.mark.slow) for at in range(QUICK_ROUNDS, ROUNDS, 40))],
)
def test_bad_flags_and_files_are_one_line_and_change_nothing(first, end, finished, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(training, "StopRequest", Unheard)
    kinds, problems = set(), []
    for number in range(first, end):
        found = attempt(number, finished, tmp_path, capfd)
        kinds.add(found[0])
        problems += wrong(*found)
    assert problems == []
    assert len(kinds) >= 6, "nearly every kind was tried"


def test_the_same_command_without_the_bad_input_is_sound(finished, tmp_path, capfd, monkeypatch):
    """Otherwise everything would be refused for another reason."""
    monkeypatch.setattr(training, "StopRequest", Unheard)
    shutil.copytree(finished, tmp_path / "run")
    assert train([*QUICK, f"--output-dir={tmp_path / 'run'}", "--resume=auto"]) == 0, capfd.readouterr().err
    assert read_checkpoint(tmp_path / "run" / LATEST).meta["update"] == 8
    weights = read_checkpoint(finished / LATEST).part("model")
    assert len(weights) > 100 and all(np.isfinite(array).all() for array in weights.values())


@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_has_a_range_and_says_it_by_its_flag(name, capfd):
    for value in ("nan", "inf", "-1"):
        assert train([f"{flag(name)}={value}", "--data-path=x"]) == 2
        told = capfd.readouterr().err
        assert told.count("\n") == 1 and flag(name) in told, told
        assert value == "-1" or name not in told or "_" not in name, "flags, not internal names"
