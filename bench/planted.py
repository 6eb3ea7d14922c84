"""``python -m bench planted``: are small differences between two trainings ever called "equal"?

The port is trained on digits with one setting off, the reference is not; runs of one seed begin from the same weights and see the
same pictures and masks but for the difference. Each pair of accuracies is judged as it comes by ``alignment.equivalence``, which
may answer "equal within the margin" only where the mean of all seeds lies within the margin. The first row plants nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from alignment.comparisons.context import Context
from alignment.comparisons.run.engine import each_update, engine, fresh_weights, next_epoch, start_run
from alignment.equivalence import EQUAL, FEWEST, UNDECIDED, Equivalence, equivalence
from alignment.project import load_project
from mobilenetv3_common import samples, sampling
from mobilenetv3_common.digits import write_digits
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open, ensure_writable_dir
from mobilenetv3_common.presets import TrainPreset
from mobilenetv3_common.sampling import SampleKey, SampleParams
from mobilenetv3_common.train_config import TrainConfig

WORKERS = 4  # that all draw with one seed, where that is planted
NOTHING, REFERENCE = "nothing", "reference"
RECIPE: dict[str, Any] = {
    "num_classes": 10, "resize_size": 32, "crop_size": 32, "min_crop_scale": 0.7, "hflip_prob": 0.1, "random_erase": 0.25,
    "batch_size": 16, "workers": 0, "optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 2e-3,
    "norm_weight_decay": 0.0, "bias_weight_decay": 0.0, "clip_norm": 5.0, "lr_schedule": "cosine", "warmup_epochs": 1,
    "label_smoothing": 0.1, "dropout": 0.1, "bn_momentum": 0.1,
}  # fmt: skip


@dataclass(frozen=True)
class Planted:
    """A difference.

    Attributes:
        name: in words.
        changes: settings of the port's recipe.
        around: opens what the port's run happens in.
    """

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    around: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext


def _drawn(change: Callable[[SampleKey], SampleKey]) -> Callable[[], contextlib.AbstractContextManager]:
    """Draw the parameters of each sample as if it were another one."""
    right = samples.sample_params

    def draw(preset: TrainPreset, seed: int, key: SampleKey, height: int, width: int) -> SampleParams:
        return right(preset, seed, change(key), height, width)

    return lambda: mock.patch.object(samples, "sample_params", draw)


def _of_one_seed(key: SampleKey) -> SampleKey:
    """What each of several workers draws whose generators begin alike: batch after batch, in every epoch."""
    batch, place = divmod(key.position, RECIPE["batch_size"])
    return SampleKey(0, batch // WORKERS * RECIPE["batch_size"] + place, 0)


def _unshuffled() -> contextlib.AbstractContextManager:
    right = sampling.epoch_order
    return mock.patch.object(sampling, "epoch_order", lambda size, seed, epoch, shuffle=True: right(size, seed, 0, shuffle))


PLANTED = (
    Planted(NOTHING),
    Planted("rate 3 % higher", {"lr": 0.1 * 1.03}),
    Planted("rate 3 % lower", {"lr": 0.1 * 0.97}),
    Planted("rate three times as high", {"lr": 0.3}),
    Planted("a third of the rate", {"lr": 0.1 / 3}),
    Planted("momentum .85 for .9", {"momentum": 0.85}),
    Planted("Nesterov's momentum", {"nesterov": True}),
    Planted("decay on biases", {"bias_weight_decay": None}),
    Planted("decay on normalisations", {"norm_weight_decay": None}),
    Planted("no weight decay", {"weight_decay": 0.0}),
    Planted("crops of half the area for .7", {"min_crop_scale": 0.5}),
    Planted("no crop", {"min_crop_scale": 1.0}),
    Planted("no flip", {"hflip_prob": 0.0}),
    Planted("no erasing", {"random_erase": 0.0}),
    Planted("no label smoothing", {"label_smoothing": 0.0}),
    Planted("no dropout", {"dropout": 0.0}),
    Planted("no clipping", {"clip_norm": None}),
    Planted("no warm-up", {"warmup_epochs": 0}),
    Planted("schedule stepped by epoch", {"lr_unit": "epoch"}),
    Planted("BatchNorm momentum .01 for .1", {"bn_momentum": 0.01}),
    Planted("one seed for all workers", around=_drawn(_of_one_seed)),
    Planted("the same order in every epoch", around=_unshuffled),
)


# --- runs -----------------------------------------------------------------------------------------------------------------------


def write_many_for_validation(folder: Path) -> Path:
    """The digits with 364 pictures for training and 1433 for validation, so that one picture counts .07 points."""
    write_digits(folder)
    for split, other in (("train", "val"), ("val", "train")):
        pictures = sorted((folder / other).glob("*/*.png"))
        lines = [f"{path.relative_to(folder)} {path.parent.name[-1]}\n" for path in pictures]
        (folder / f"{split}_list.txt").write_text("".join(lines), encoding="utf-8")
    return folder


def trained(context: Context, role: str, config: TrainConfig, start: Any) -> float:
    """Train one side from given weights; its final top-1 in points."""
    framework, train = context.sides[role].framework, engine(context, role)
    run = start_run(context, role, config, "32", start)
    loader = train.evaluation_loader(run)
    with contextlib.closing(train.micro_batches(run)) as batches:  # type: ignore[type-var]
        for gathered in each_update(batches, config.accumulate):
            train.update(run, gathered)
            run.meter = type(run.meter)()
            next_epoch(run)
    framework.set_training(run.model, False)
    return 100 * float(train.evaluate_run(run, loader).top1)


class Log:
    """Accuracies by difference and seed, one a line as JSON, written as they become known.

    Args:
        file: the log.
        plan: what the runs are of; lines of another plan are left out.
        resume: keep what the file has.
    """

    def __init__(self, file: Path, plan: str, resume: bool) -> None:
        self.file, self.plan = file, plan
        self.known: dict[tuple[str, int], float] = {}
        kept = []
        for line in file.read_text(encoding="utf-8").splitlines() if resume and file.is_file() else ():
            with contextlib.suppress(json.JSONDecodeError):  # cut short where the earlier run was killed
                row = json.loads(line)
                kept += [line] if row["plan"] == plan else []
                self.known |= {(row["planted"], row["seed"]): row["top1"]} if row["plan"] == plan else {}
        with atomic_open(file, "w") as out:
            out.writelines(f"{line}\n" for line in kept)

    def get(self, name: str, seed: int, run: Callable[[], float]) -> float:
        """A known accuracy, or that of a run."""
        if (name, seed) not in self.known:
            self.known[name, seed] = run()
            row = {"plan": self.plan, "planted": name, "seed": seed, "top1": self.known[name, seed]}
            with open(self.file, "a", encoding="utf-8") as out:
                out.write(json.dumps(row) + "\n")
        return self.known[name, seed]


def accuracies(
    context: Context, chosen: Sequence[Planted], config: TrainConfig, seeds: int, log: Log, say: Callable[[str], None] = print
) -> dict[str, list[float]]:
    """The final accuracies of the reference and of the port with each difference, in points, a number a seed."""
    found: dict[str, list[float]] = {name: [] for name in (REFERENCE, *(one.name for one in chosen))}
    begun = time.monotonic()
    for seed in range(seeds):
        own = replace(config, seed=seed)
        start = None
        for one in (None, *chosen):
            name = one.name if one else REFERENCE
            if (name, seed) not in log.known and start is None:
                start = fresh_weights(context, own)

            def run(one: Planted | None = one, own: TrainConfig = own, start: Any = start) -> float:
                if one is None:
                    return trained(context, "reference", own, start)
                with one.around():
                    return trained(context, "port", replace(own, **one.changes), start)

            found[name].append(log.get(name, seed, run))
        say(f"seed {seed}: reference {found[REFERENCE][-1]:.2f}, after {time.monotonic() - begun:.0f} s")
    return found


# --- verdicts -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """What is said of one difference.

    Attributes:
        name: of the difference.
        mean, deviation: of port less reference over all seeds, in points.
        judged: the answer of the first look that decides, else of the last.
        margin: of it, in points.
    """

    name: str
    mean: float
    deviation: float
    judged: Equivalence
    margin: float

    @property
    def wrong(self) -> bool:
        """Whether a difference above the margin was called equal."""
        return self.judged.answer == EQUAL and abs(self.mean) > self.margin


def judged(name: str, ours: Sequence[float], theirs: Sequence[float], margin: float, step: float) -> Row:
    """Look after 3, 4, ... seeds until one look decides; the budget is all of them."""
    budget = len(ours)
    looks = (equivalence(ours[:n], theirs[:n], margin, budget, step) for n in range(min(FEWEST, budget), budget + 1))
    last = None
    for last in looks:
        if last.answer != UNDECIDED:
            break
    assert last is not None
    differences = np.subtract(ours, theirs)
    return Row(name, float(differences.mean()), float(differences.std(ddof=1)), last, margin)


def table(found: Mapping[str, Sequence[float]], margins: Sequence[float], step: float) -> tuple[str, list[Row]]:
    """A Markdown table with a line for each difference and a column for each margin; and all of its verdicts."""
    heads = [f"margin {margin:g}" for margin in margins]
    lines = [f"| planted | mean difference | standard deviation | {' | '.join(heads)} |", "|---|---|---|" + "---|" * len(heads)]
    rows: list[Row] = []
    theirs = found[REFERENCE]
    for name, ours in found.items():
        if name == REFERENCE:
            continue
        of_name = [judged(name, ours, theirs, margin, step) for margin in margins]
        said = [f"{row.judged.answer.split()[0]} ({row.judged.seeds})" + (" WRONG" if row.wrong else "") for row in of_name]
        lines.append(f"| {name} | {of_name[0].mean:+.2f} | {of_name[0].deviation:.2f} | {' | '.join(said)} |")
        rows += of_name
    return "\n".join(lines), rows


def _chosen(names: str | None) -> Iterator[Planted]:
    known = {one.name: one for one in PLANTED}
    for name in names.split(",") if names else known:
        if name not in known:
            raise UserError(f"--names {name}: no such difference; there are {', '.join(known)}")
        yield known[name]


def planted(argv: Sequence[str]) -> int:
    """The command; exit status 1 where a difference above a margin was called equal within it."""
    from bench.flags import planted_parser

    args: argparse.Namespace = planted_parser().parse_args(argv)
    for flag, least in (("seeds", FEWEST), ("epochs", 2)):
        if getattr(args, flag) < least:
            raise UserError(f"--{flag} must be at least {least}, found {getattr(args, flag)}")
    if not all(margin > 0 for margin in args.margin):
        raise UserError(f"--margin must be above 0, found {min(args.margin):g}")
    chosen = list(_chosen(args.names))
    context, folder = Context(load_project(args.project)), ensure_writable_dir(args.result_dir)
    with tempfile.TemporaryDirectory() as data:
        config = TrainConfig(**RECIPE, epochs=args.epochs, data_path=str(write_many_for_validation(Path(data))))
        log = Log(folder / "planted.jsonl", f"{args.project.name}, {args.epochs} epochs", args.resume)
        found = accuracies(context, chosen, config, args.seeds, log)
        pictures = len((Path(data) / "val_list.txt").read_text(encoding="utf-8").splitlines())
    text, rows = table(found, args.margin, 100 / pictures)
    wrong = sum(row.wrong for row in rows)
    print(
        f"\n{text}\n\nreference: {np.mean(found[REFERENCE]):.2f} +- {np.std(found[REFERENCE], ddof=1):.2f} over {args.seeds} seeds"
    )
    print(f"{wrong} of {len(rows)} verdicts call a difference above the margin equal\nresults: {log.file}")
    return 1 if wrong else 0
