"""Sound runs, which ``check`` and ``watch`` must pass in silence: python -m tests.mistakes.sound [--seeds N ...] [--json FILE].

Three data sets, both frameworks, several seeds, and the recipes below; every run is examined before it begins, and watched while
it trains for two epochs with an evaluation after each. With ``--ranks`` every recipe also trains on two ranks by the real
launchers, on the digits.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import mobilenetv3_ref  # noqa: F401  (before anything of torchvision)
from alignment.models.calibration import calibrated_state
from alignment_doctor.check import checks
from alignment_doctor.check.subject import observe
from alignment_doctor.findings import examine
from alignment_doctor.watch.journal import entries
from alignment_doctor.watch.training import Watching
from mobilenetv3_common.config_file import make_config
from mobilenetv3_common.digits import write_digits
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.train_log import EVENTS
from mobilenetv3_common.weights import write_state
from projects.mobilenetv3.project import PROJECT
from tests.conftest import LITE_DATA, run_command

FRAMEWORKS = ("ref", "paddle")
BY = ("check", "watch")
DATA = ("lite_data", "digits", "small_photographs")
BASE: dict[str, Any] = {
    "crop_size": 32, "resize_size": 36, "width_mult": 0.5, "workers": 0, "batch_size": 8, "epochs": 2, "lr": 0.002,
    "optimizer": "adamw", "device": "cpu",
}  # fmt: skip
RECIPES: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer": "sgd", "lr": 0.05, "warmup_epochs": 1},
    "rmsprop": {"optimizer": "rmsprop", "eps": 0.0316, "lr_schedule": "step", "lr_unit": "epoch", "lr_step_epochs": 1},
    "adamw": {},
    "mixing": {"mixup_alpha": 0.2, "cutmix_alpha": 1.0, "label_smoothing": 0.1},
    "averaging": {"ema_decay": 0.9, "clip_norm": 1.0, "lr_schedule": "exponential", "lr_gamma": 0.9},
    "accumulating": {"accumulate": 2, "batch_size": 4},
    "frozen": {"freeze_bn": True, "lr": 0.0005, "pretrained": "START"},
    "fine_tuning": {"lr": 0.0005, "pretrained": "START"},
    "augmenting": {"auto_augment": "imagenet", "random_erase": 0.2, "repeat_augment": 2},
    "weighted": {"class_weights": "WEIGHTS", "layer_decay": 0.9, "lr_schedule": "restarts", "lr_restart_epochs": 1},
    "weighted_and_mixed": {"class_weights": "WEIGHTS", "mixup_alpha": 0.4},
    "distilling": {"teacher": "START", "lr_schedule": "onecycle"},
    "other_optimizers": {"optimizer": "lamb", "lr": 0.01, "lr_schedule": "polynomial", "l1_decay": 1e-6},
}  # fmt: skip


@dataclass(frozen=True)
class Sound:
    """One sound run. ``said``: what ``by`` found in it, a false alarm each; ``failed``: why it could not run at all."""

    by: str
    data: str
    framework: str
    recipe: str
    seed: int
    seconds: float
    said: tuple[str, ...]
    failed: str = ""


def data_sets(folder: Path) -> dict[str, tuple[Path, Path]]:
    """Name -> data and starting weights of as many classes.

    The digits are cut to 60 pictures for training and 20 to evaluate; ``small_photographs`` are as CIFAR's, of 32 x 32 pixels in
    colour, cut from lite_data's.
    """
    digits = folder / "digits"
    write_digits(digits)
    for split, keep in (("train", 6), ("val", 2)):
        for kind in sorted((digits / split).iterdir()):
            for picture in sorted(kind.iterdir())[keep:]:
                picture.unlink()
    photographs = folder / "small_photographs"
    write_small_photographs(photographs)
    made = {}
    state = calibrated_state(PROJECT, next(iter(PROJECT.models)), size=96, width_mult=0.5)
    for name, path, classes in (("lite_data", LITE_DATA, 8), ("digits", digits, 10), ("small_photographs", photographs, 8)):
        cut = {key: array[:classes] if key.startswith("classifier.3.") else array for key, array in state.items()}
        cut["classifier.3.weight"] = cut["classifier.3.weight"] * np.float32(0.2)
        start = folder / "starts" / name
        start.mkdir(parents=True)
        made[name] = (path, start / "start.safetensors")
        write_state(made[name][1], cut)
    return made


def write_small_photographs(folder: Path) -> None:
    """Of each of lite_data's photographs made 48 pixels wide and high, four parts of 32 x 32 pixels."""
    for path in sorted(LITE_DATA.glob("*/*/*")):
        place = folder / path.relative_to(LITE_DATA).parent
        place.mkdir(parents=True, exist_ok=True)
        with Image.open(path) as picture:
            small = picture.convert("RGB").resize((48, 48))
        for left, top in itertools.product((0, 16), repeat=2):
            small.crop((left, top, left + 32, top + 32)).save(place / f"{path.stem}_{left}_{top}.png")


def settings(recipe: str, data: tuple[Path, Path], **more: Any) -> dict[str, Any]:
    """The flags of one run."""
    classes = len([entry for entry in (data[0] / "train").iterdir() if entry.is_dir()])
    meant = {"START": str(data[1]), "WEIGHTS": ",".join(f"{1 + label / 4:g}" for label in range(classes))}
    given = {key: meant.get(value, value) for key, value in RECIPES[recipe].items()}
    matched = {"match_classes": "position"} if str(data[1]) in given.values() else {}
    return {**BASE, "data_path": str(data[0]), **given, **matched, **more}


def checked(config: TrainConfig) -> list[str]:
    """What ``check`` finds in a run."""
    framework = importlib.import_module(f"mobilenetv3_{config.framework}.train.backend")
    with framework.started(config.device) as ranks:
        return [
            f"{one.check.id}: {one.outcome.measured}"
            for one in examine(checks, observe(framework, config, ranks))
            if one.is_problem
        ]


def watched(config: TrainConfig) -> list[str]:
    """What ``watch`` tells while a run trains."""
    observer = Watching()
    importlib.import_module(f"mobilenetv3_{config.framework}.train").train(config, observer=observer)
    return [event.line() for event in observer.watch.told]


def over_ranks(config: dict[str, Any], framework: str, folder: Path) -> list[str]:
    """What the watch of two ranks tells."""
    launcher = {
        "ref": ("torch.distributed.run", "--standalone", "--nproc-per-node=2"),
        "paddle": ("paddle.distributed.launch", "--nproc_per_node=2", f"--log_dir={folder / 'logs'}"),
    }[framework]
    flags = [flag for name, value in config.items() for flag in _flag(name, value)]
    run = run_command("-m", *launcher, "tools/train.py", *flags, "--watch", PYTHONPATH=".", timeout=500)
    if run.returncode:
        raise UserError((run.stdout + run.stderr)[-600:])
    return [f"{one['check']}: {one['cause']}" for one in entries(Path(config["output_dir"]) / EVENTS) if one["kind"] == "event"]


def _flag(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    return [flag] if value is True else [flag, str(value)]


def runs(seeds: list[int], ranks: bool, only: list[str], names: list[str], by_each: list[str]) -> Iterator[Sound]:
    """Every sound run, one after the other; ``check`` has two loader workers to look at."""
    with tempfile.TemporaryDirectory() as made_here:
        folder = Path(made_here)
        data = data_sets(folder)
        for seed, name, recipe, framework in itertools.product(seeds, names, only or RECIPES, FRAMEWORKS):
            for by in by_each:
                config = make_config(
                    TrainConfig,
                    None,
                    settings(
                        recipe,
                        data[name],
                        framework=framework,
                        seed=seed,
                        workers=2 if by == "check" else 0,
                        output_dir=str(folder / f"{by}{seed}{name}{recipe}{framework}"),
                    ),
                )
                yield _timed(by, name, framework, recipe, seed, checked if by == "check" else watched, config)
        for seed, recipe, framework in itertools.product(seeds, only or RECIPES, FRAMEWORKS) if ranks else ():
            place = str(folder / f"ranks{seed}{recipe}{framework}")
            config = settings(recipe, data["digits"], framework=framework, seed=seed, output_dir=place)
            yield _timed(
                "ranks", "digits", framework, recipe, seed, lambda given: over_ranks(given, given["framework"], folder), config
            )


def _timed(by: str, name: str, framework: str, recipe: str, seed: int, examined: Any, config: Any) -> Sound:
    begun, failed, said = time.perf_counter(), "", []
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            said = examined(config)
    except Exception as error:  # noqa: BLE001 (counted as a run that could not be examined)
        failed = f"{type(error).__name__}: {error}"
    return Sound(by, name, framework, recipe, seed, time.perf_counter() - begun, tuple(said), failed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[*range(5)])
    parser.add_argument("--data", nargs="*", default=DATA, choices=DATA)
    parser.add_argument("--by", nargs="+", default=list(BY), choices=BY, help="with which sub-commands")
    parser.add_argument("--ranks", action="store_true", help="each recipe on two ranks too; these alone with an empty --data")
    parser.add_argument("--recipes", nargs="+", default=[], choices=RECIPES)
    parser.add_argument("--json", metavar="FILE")
    flags = parser.parse_args()
    made = []
    for one in runs(flags.seeds, flags.ranks, flags.recipes, flags.data, flags.by):
        made.append(one)
        verdict = one.failed or "; ".join(one.said) or "silent"
        print(
            f"{one.by:6} {one.data:9} {one.framework:7} {one.recipe:16} seed {one.seed} {one.seconds:5.1f} s  {verdict}", flush=True
        )
        if flags.json:
            Path(flags.json).write_text(json.dumps([asdict(run) for run in made], indent=1))
    alarms, failed = sum(bool(one.said) for one in made), sum(bool(one.failed) for one in made)
    print(f"{len(made)} sound runs: {alarms} with a false alarm, {failed} could not be examined")
    return 1 if alarms or failed else 0


if __name__ == "__main__":
    sys.exit(main())
