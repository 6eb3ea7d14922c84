"""The whole training loop, evaluation, log, checkpoints and resumption, held against a plain script, setting by setting.

The loop trains a network in numpy on 22 pictures of six classes, so that the last batch of an epoch is short, and so is an
accumulated update's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from unittest import mock

import numpy as np
from PIL import Image

from alignment.kinds import Kind
from alignment.witness import Told
from mobilenetv3_common import training
from mobilenetv3_common.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from mobilenetv3_common.errors import Diverged
from mobilenetv3_common.evaluation import evaluate
from mobilenetv3_common.evaluation_record import read_record
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.train_log import SCALARS, read_json_lines
from projects.witnesses.loop import network
from projects.witnesses.loop.backend import Array, Backend
from projects.witnesses.loop.network import SIZE
from projects.witnesses.loop.script import DEFAULTS, History, Pictures, Script, right_of

TRAIN, VAL = (6, 5, 4, 3, 2, 2), (3, 2, 2, 1, 1, 2)  # pictures of each class
MIXING: dict[str, Any] = {"epochs": 3, "mixup_alpha": 0.5, "cutmix_alpha": 1.0, "mix_group": 2, "mix_off_epochs": 1}

# What each part of an update is made by. The first that differs, in this order, is to blame.
PLACES: dict[str, str] = {
    "pictures": "training.micro_batches",
    "labels": "training.micro_batches: labels",
    "modes": "training._loop: training mode",
    "dropped": "training.update: dropout's place",
    "teacher": "distilling: the teacher's mode",
    "loss": "run.build_run: the loss",
    "clip": "training.update: clip_norm",
    "rate": "training.update: the schedule",
    "norm.weight": "training.update: weights",
    "fc.weight": "training.update: weights",
    "fc.bias": "training.update: weights",
    "norm.running": "training.update: statistics",
}
LINES = {"train": "training.averages", "eval": "evaluation.evaluate", "eval_raw": "training._loop: eval_raw"}
TOLD = ("top1", "top5", "lr", "loss", "avg_samples", "samples", "skipped")  # of a line of the log


@functools.cache
def material() -> Pictures:
    """Pictures of 8 x 10 pixels in which classes differ a little."""
    rng = np.random.default_rng(8)

    def drawn(counts: tuple[int, ...]) -> tuple[list[np.ndarray], list[int]]:
        labels = [label for label, count in enumerate(counts) for _ in range(count)]
        return [np.clip(rng.normal(90 + 15 * label, 60, (8, 10, 3)), 0, 255).astype(np.uint8) for label in labels], labels

    return Pictures(*drawn(TRAIN), *drawn(VAL))


def written(folder: Path) -> Path:
    """The pictures as files, in ImageNet layout."""
    pictures = material()
    for split, images, labels in (("train", pictures.train, pictures.labels), ("val", pictures.val, pictures.val_labels)):
        for number, (pixels, label) in enumerate(zip(images, labels, strict=True)):
            target = folder / split / f"class_{label}"
            target.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(target / f"{number:03}.png")
    return folder


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Inside, a run may take signals and print; afterwards all is as before. Scalars for plots are not written."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    hidden = {package: sys.modules.get(package) for package, _ in SCALARS.values()}
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # each alone: what is imported inside stays imported
    with contextlib.redirect_stdout(io.StringIO()), mock.patch("os.fsync"):  # the files are read here alone
        try:
            yield
        finally:
            for package, module in hidden.items():
                if module is None:
                    del sys.modules[package]
                else:
                    sys.modules[package] = module
            for number, handler in before.items():
                signal.signal(number, handler)


def trained(folder: Path, data: Path, name: str, backend: Backend | None = None, **settings: Any) -> tuple[Backend, Path]:
    """A run of the loop under test."""
    output = folder / name
    config: dict[str, Any] = {**DEFAULTS, "workers": 0, "crop_size": SIZE, "resize_size": SIZE, "data_path": str(data), **settings}
    weights = config["class_weights"]
    config["class_weights"] = None if weights is None else ",".join(map(str, weights))
    backend = backend or Backend()
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("signals are taken in the main thread alone: run the steps there")
    with undisturbed():
        training.train(cast(Any, backend), TrainConfig(output_dir=str(output), **config))
    return backend, output


def lines_of(output: Path) -> list[dict[str, Any]]:
    """The log of a run, in the order in which it was written."""
    entries = [entry for kind in LINES for entry in read_json_lines(output, kind)]
    return sorted(
        entries, key=lambda entry: (entry["update"], list(LINES)[::-1].index(entry["kind"]) if entry["kind"] != "train" else -1)
    )


def features_of(changes: dict[str, Any]) -> int:
    """How many settings a run has beyond the plain one; how long it is does not count."""
    return len(changes.keys() - {"epochs", "lr", "print_every"})


def compared(
    case: str,
    expected: History,
    backend: Backend,
    output: Path,
    features: int,
    skip: int = 0,
    whole_log: bool = False,
    loss: str = PLACES["loss"],
) -> Iterator[Told]:
    """All that a run did beside what it had to do.

    Args:
        case: its name.
        expected: what it had to do.
        backend, output: what it did.
        features: settings beyond the plain run.
        skip: updates that were made before it began.
        whole_log: whether these are in its log.
        loss: what a wrong loss is blamed on.
    """
    told = _compared(case, expected, backend, output, skip, whole_log, {**PLACES, "loss": loss})
    yield from (dataclasses.replace(one, features=features) for one in told)


def _compared(
    case: str, expected: History, backend: Backend, output: Path, skip: int, whole_log: bool, places: dict[str, str]
) -> Iterator[Told]:
    count = min(len(backend.updates), len(expected.updates) - skip)
    lines = list(_lines(case, expected, output, 0 if whole_log else skip))
    for number in range(count):
        if not expected.averages:  # what an evaluation between two updates tells may be why the second is wrong
            yield from [line for update, line in lines if update <= skip + number]
            lines = [(update, line) for update, line in lines if update > skip + number]
        made, right = backend.updates[number], expected.updates[skip + number]
        for part, place in places.items():
            kind = proved(part, made.get(part), right[part])
            yield Told(f"{case}: update {skip + number + 1}: {part}", made.get(part), right[part], place, kind)
    yield Told(f"{case}: updates", len(backend.updates), len(expected.updates) - skip, "training._loop: updates", Kind.COUNT)
    if not skip:
        yield from _averages(case, expected, backend)
    yield from (line for _, line in lines)
    meta = read_checkpoint(output / "latest.safetensors").meta
    ending = {name: meta.get(name, "missing") for name in expected.ending}
    yield Told(f"{case}: the last checkpoint", ending, expected.ending, "training._loop: the run's end")


def proved(part: str, made: Any, right: Any) -> Kind:
    """The mistake that two values of one part prove; ``Kind.SHARED`` where they may have more than one."""
    if part == "pictures" and isinstance(made, list) and _reordered(made, right):
        return Kind.ORDER
    if part == "modes" and isinstance(made, list) and not all(training for training, _ in made):
        return Kind.EVALUATION_MODE
    return {"teacher": Kind.TRAINING_MODE, "clip": Kind.CLIP_NORM, "rate": Kind.LR_NOT_FOLLOWED}.get(part, Kind.SHARED)


def _reordered(made: list[np.ndarray], right: list[np.ndarray]) -> bool:
    """Whether two lists of batches hold the same pictures, each as often."""
    counts = [Counter(picture.tobytes() for batch in batches for picture in batch) for batches in (made, right)]
    return counts[0] == counts[1]


def _averages(case: str, expected: History, backend: Backend) -> Iterator[Told]:
    place, kind = "training.update: moving average", Kind.MOVING_AVERAGE
    yield Told(f"{case}: steps of the moving average", len(backend.averages), len(expected.averages), place, kind)
    for number, (made, right) in enumerate(zip(backend.averages, expected.averages, strict=False)):
        yield Told(f"{case}: step {number + 1} of the moving average", made, right, place, kind)


def _lines(case: str, expected: History, output: Path, skip: int) -> Iterator[tuple[int, Told]]:
    """Each line of the log, with the update after which it is written."""
    made, right = lines_of(output), [line for line in expected.lines if line["update"] > skip]
    for number, (ours, theirs) in enumerate(zip(made, right, strict=False)):
        own = {name: value for name, value in ours.items() if name in (*TOLD, "kind", "epoch", "iter", "update")}
        place = LINES[theirs["kind"]] if own["kind"] == theirs["kind"] else "training._loop: evaluations"
        kind = Kind.SHARED if theirs["kind"] == "train" else Kind.EVALUATION
        instead = "evaluation.evaluate_run" if expected.averages else "evaluation._validation"
        instead = instead if place == LINES["eval"] else ""
        yield theirs["update"], Told(f"{case}: line {number + 1} of the log", own, theirs, place, kind, instead=instead)
    last = len(expected.updates)
    yield last, Told(f"{case}: lines of the log", len(made), len(right), "training._loop: evaluations", Kind.COUNT)


def told(settings: dict[str, dict[str, Any]]) -> Iterator[Told]:
    """Runs with these settings, each by its name."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = written(folder / "data")
        for case, changes in settings.items():
            backend, output = trained(folder, data, case.replace(" ", "_"), **changes)
            yield from compared(case, Script(material(), **changes).run(), backend, output, features_of(changes))


# --- step 5: what makes an update ------------------------------------------------------------------------------------------

UPDATES: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulation": {"accumulate": 2},
    "kept last batch": {"drop_last": False},
    "label smoothing": {"label_smoothing": 0.25},
    "class weights": {"class_weights": [1.0, 2.0, 0.5, 3.0, 1.0, 0.25]},
    "clipping": {"clip_norm": 0.125},
    "weight decays": {"weight_decay": 0.125, "norm_weight_decay": 0.25, "bias_weight_decay": 0.0, "momentum": 0.75},
    "cosine by update": {"lr_schedule": "cosine", "warmup_epochs": 1, "warmup_decay": 0.125, "epochs": 3},
    "step by epoch": {"lr_schedule": "step", "lr_unit": "epoch", "epochs": 3},
    "scaled rate": {"scale_lr_from": 16, "accumulate": 2},
}


def updates() -> Iterator[Told]:
    """What makes an update: batches, masks, loss, clipping, rates, decays."""
    return told(UPDATES)


# --- step 6: what makes a run ----------------------------------------------------------------------------------------------

RUNS: dict[str, dict[str, Any]] = {
    "mixing": MIXING,
    "erasing": {"random_erase": 0.75, "epochs": 3},
    "moving average": {"ema_decay": 0.75, "ema_every": 2, "eval_raw": True, "epochs": 3},
    "moving average with warm-up": {"ema_decay": 0.75, "ema_warmup": True},
    "frozen statistics": {"freeze_bn": True},
    "evaluation every 2 epochs": {"epochs": 5, "eval_every": 2},
    "early stop": {"epochs": 8, "lr": 2.0, "early_stop": 3},  # it gets better once more in between
}
# What the loop hands on to whoever builds the network.
BUILT: dict[str, Any] = {
    "width_mult": 0.5, "dropout": 0.375, "bn_momentum": 0.25, "grad_checkpointing": True, "param_groups": "fc.bias:frozen",
    "freeze_bn": True, "seed": 3, "checkpoint_weights": "raw",
}  # fmt: skip


def runs() -> Iterator[Told]:
    """What makes a run: mixing to its end, averages, evaluations, when it ends."""
    yield from told(RUNS)
    yield from _recorded()
    yield from _built()
    yield from _damaged()
    yield from _cached()
    yield from _diverging()


def _built() -> Iterator[Told]:
    """The settings of the network reach who builds it."""
    with tempfile.TemporaryDirectory() as name:
        backend, _ = trained(Path(name), written(Path(name, "data")), "run", **{**BUILT, "epochs": 1})
        built = [{setting: getattr(config, setting) for setting in BUILT} for config in backend.configs]
        yield Told("settings of the network", built, [BUILT], "run.build_run: build_model", Kind.RECIPE, len(BUILT))


def _damaged() -> Iterator[Told]:
    """A picture that stands in for a damaged one does not count in an evaluation."""
    pictures = material()
    images = np.stack([network.transformed(pixels, (0, 0, *pixels.shape[:2]), False, None) for pixels in pictures.val])
    labels, numbers = np.array(pictures.val_labels), np.arange(len(images))
    left_out = [2, 7]
    numbers[left_out] = ~numbers[left_out]
    backend: Any = Backend()
    model = backend.build_model(TrainConfig(seed=4), pictures.classes)
    parts = [slice(start, start + 4) for start in range(0, len(images), 4)]
    loader = [[array[part].view(Array) for array in (images, labels, numbers)] for part in parts]
    made = evaluate(backend, model, loader, pictures.classes, backend.ranks, None)  # type: ignore[arg-type]
    counted = np.setdiff1d(np.arange(len(images)), left_out)
    logits = network.forward(dict(model.state), images[counted], False, False, None).logits
    top1, top5 = right_of(logits, labels[counted]).mean(0)
    expected = {
        "samples": len(counted),
        "skipped": 2,
        "top1": top1,
        "top5": top5,
        "loss": network.cross_entropy(logits, labels[counted])[0],
    }
    found = {name: getattr(made, name) for name in expected}
    kind = Kind.PADDING_COUNTED
    yield Told("an evaluation in which two pictures are damaged", found, expected, "evaluation.evaluate", kind, 1, alone=True)


def _cached() -> Iterator[Told]:
    """Decoded pictures are kept for one decoding of one data set: another one does not take them."""
    with tempfile.TemporaryDirectory() as name:
        folder, keys = Path(name), list[str]()
        data = written(folder / "data")
        changes: list[dict[str, Any]] = [{}, {"image_backend": "cv2"}, {"reduced_decoding": True}]
        for number, given in enumerate(changes):
            with mock.patch.object(training, "PictureCache", lambda folder, content, *rest: keys.append(content)):
                trained(folder, data, f"run {number}", epochs=1, picture_cache=str(folder / "cache"), **given)
        yield Told("keys of three decodings", len(set(keys)), 3, "training.micro_batches: picture cache", features=1)
        with_cache: dict[str, Any] = {"picture_cache": str(folder / "cache"), "epochs": 2}
        backend, output = trained(folder, data, "cached", **with_cache)
        yield from compared("with a cache", Script(material()).run(), backend, output, 1)


def _stopped(folder: Path, data: Path, backend: Backend) -> list[Any]:
    """Whether a run says that it diverges, in which update, and whether that one moved the weights."""
    try:
        trained(folder, data, "stops", backend, epochs=2)
    except Diverged as error:
        return ["diverged" in error.line, len(backend.updates), "rate" in backend.updates[-1]]
    return ["goes on", len(backend.updates), True]


def _diverging() -> Iterator[Told]:
    """A run whose weights are no numbers ends before they are saved, or goes back to its last checkpoint with half the rate."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = written(folder / "data")
        backend, said = Backend(poisoned=(7,)), ""
        try:
            trained(folder, data, "ends", backend, epochs=3, save_every=2)
        except Diverged as error:
            said = error.line
        yield Told(
            "a run that diverges", ["diverged" in said, len(backend.updates)], [True, 8], "training.update: divergence", features=1
        )
        saved = [int(path.stem.removeprefix("update_")) for path in sorted((folder / "ends").glob("update_*"))]
        yield Told("its checkpoints", saved, [4, 5, 6], "training.update: divergence", Kind.STATE_NOT_SAVED, 1)
        stopped = _stopped(folder, data, Backend(overflowing=3))
        yield Told("a run whose gradients are infinite", stopped, [True, 3, False], "training._healthy", features=1)
        backend, _ = trained(folder, data, "goes on", Backend(poisoned=(7,)), epochs=3, save_every=2, roll_back=1, ema_decay=0.5)
        expected = Script(material(), lowered=(6, 0.5), epochs=3, ema_decay=0.5).run()
        again = backend.updates[8:]
        yield Told("updates after it went back", len(again), len(expected.updates) - 6, "rolling_back", Kind.COUNT, 2)
        twice, output = trained(folder, data, "twice", Backend(poisoned=(7, 12)), epochs=3, save_every=2, roll_back=2)
        rate = twice.updates[-1]["rate"]
        yield Told("the rate after it went back twice", rate, DEFAULTS["lr"] / 4, "rolling_back", Kind.LR_SCALED, 2)
        kept = read_checkpoint(output / "latest.safetensors").meta["rate_factor"]
        factors = [read_json_lines(output)[-1]["lr"] / DEFAULTS["lr"], kept]
        yield Told("the factor told and kept after it went back twice", factors, [0.25, 0.25], "Run.lower_rates", Kind.LR_SCALED, 2)
        for number, (made, right) in enumerate(zip(again, expected.updates[6:], strict=False)):
            for part in PLACES:
                yield Told(
                    f"update {number + 1} after it went back: {part}", made.get(part), right[part], "rolling_back", features=2
                )


def _recorded() -> Iterator[Told]:
    """The record beside the best checkpoint."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _, output = trained(folder, written(folder / "data"), "run", epochs=1)
        script = Script(material(), epochs=1)
        figures = script.run().lines[-1]
        record = read_record(output)
        assert record is not None
        place = "evaluation.evaluate"
        yield Told(
            "the record: top-1 and pictures",
            [record.figures["top1"], record.figures["samples"]],
            [figures["top1"], sum(VAL)],
            place,
        )
        yield Told("the record: pictures of each true class", record.confusion.sum(1), list(VAL), place, Kind.CONFUSION_TRANSPOSED)
        yield Told("the record: right ones", np.trace(record.confusion), round(figures["top1"] * sum(VAL)), place)


RESUMED: dict[str, dict[str, Any]] = {
    "in mid-epoch": {"accumulate": 2, "momentum": 0.5, "lr_schedule": "cosine", "epochs": 4, "ema_decay": 0.5, "print_every": 1},
    "by epoch": {"lr_schedule": "step", "lr_unit": "epoch", "epochs": 3, "momentum": 0.5, "print_every": 1},
    "with mixing": {**MIXING, "print_every": 1},
    "while it gets no better": {"accumulate": 2, "epochs": 6, "lr": 8.0, "print_every": 1},
}


def resumed() -> Iterator[Told]:
    """A run that goes on from each of its checkpoints gives what the whole run gives."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = written(folder / "data")
        for case, changes in RESUMED.items():
            expected = Script(material(), **changes).run()
            _, output = trained(folder, data, f"whole {case}", **changes, save_every=1, keep=100)
            for number, file in enumerate(sorted(output.glob("update_*.safetensors"))[:-1:3]):
                meta = read_checkpoint(file).meta
                where = f"{case}: resumed after {meta['update']} updates"
                backend, again = trained(folder, data, f"{case} {number}", **changes, resume=str(file))
                yield from compared(where, expected, backend, again, features_of(changes) + 1, int(meta["update"]))


def teacher() -> Iterator[Told]:
    """A student of a checkpoint: the teacher's weights, its mode, and its share of the loss."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = written(folder / "data")
        for case, averaged in (("its weights", False), ("its moving average", True)):
            raw, own = (network.initial(seed, material().classes) for seed in (31, 32))
            arrays = {f"model/{tensor}": array for tensor, array in raw.items()}
            arrays |= {f"ema/{tensor}": array for tensor, array in own.items()} if averaged else {}
            meta = {"classes": [f"class_{label}" for label in range(material().classes)], "config": {}}
            write_checkpoint(folder / f"{case}.safetensors", Checkpoint(arrays, meta))
            changes: dict[str, Any] = {"epochs": 1, "distill_alpha": 0.25, "distill_temperature": 2.0}
            expected = Script(material(), own if averaged else raw, **changes).run()
            backend, student = trained(folder, data, case, **changes, teacher=str(folder / f"{case}.safetensors"))
            place = "distilling._teacher" if averaged else "distilling.build_criterion"
            yield from compared(f"a teacher by {case}", expected, backend, student, features_of(changes) + 1 + averaged, loss=place)
