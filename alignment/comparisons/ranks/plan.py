"""What the ranks run: the recipes, the pictures, and the files through which they report.

Each training picture has a label of its own, so that a batch's labels say which pictures it holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from alignment.compare import norm
from alignment.comparisons.context import Context
from alignment.comparisons.run.train import engine, recipe
from mobilenetv3_common.digits import write_digits
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.weights import State

BATCH = 4  # pictures of a rank in a forward pass
ACCUMULATE = 2
DIGITS = 10
METRIC_KS = (1, 5)
CALLED = ".called"  # ending of the file in which a rank names the port's functions that it has called
FIGURES = ("samples", "top1", "top5", "loss", "confusion")  # of an evaluation
Record = dict[str, State]  # what one rank has at one time, in groups


@dataclass(frozen=True)
class RankCase:
    """One short run.

    Attributes:
        kind: ``"local"`` (each rank has its own BatchNorm statistics), ``"clip"`` (the same with clipping) or ``"sync"``
            (BatchNorm over all ranks).
        config: its recipe; ``batch_size`` is a rank's.
        updates: how many, the first of which is in the first epoch and the last in the last.
        evaluates: whether it ends with an evaluation.
    """

    kind: str
    config: TrainConfig
    updates: int
    evaluates: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind}.seed{self.config.seed}"

    @property
    def optional(self) -> bool:
        """Whether a port may refuse the recipe on a device: torch has no synchronised BatchNorm on a CPU."""
        return self.kind == "sync"


@dataclass(frozen=True)
class RankPlan:
    """Everything that a rank has to know.

    Attributes:
        project: path of the project file.
        model: name of one of its models.
        injects: names of faults to make in each rank, one after the other; None for none. Each has a folder of its own for its
            records, which its number in this list names.
        cases: in order, run with each fault.
    """

    project: str
    model: str
    injects: tuple[str | None, ...]
    cases: tuple[RankCase, ...]

    def write(self, folder: Path) -> None:
        (folder / "plan.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> RankPlan:
        found = json.loads((folder / "plan.json").read_text())
        cases = tuple(RankCase(**{**case, "config": TrainConfig(**case["config"])}) for case in found.pop("cases"))
        return cls(**{**found, "injects": tuple(found["injects"]), "cases": cases})


def sizes(ranks: int) -> tuple[int, int]:
    """How many training and validation pictures there are: some of them fill no update, and the last batch is short."""
    return ranks * BATCH * ACCUMULATE + 3, ranks * BATCH + BATCH // 2 + 1


def write_pictures(folder: Path, ranks: int) -> Path:
    """Digits with list files in which each picture is a class."""
    counts = dict(zip(("train", "val"), sizes(ranks), strict=True))
    per_digit = {split: -(-count // DIGITS) for split, count in counts.items()}
    write_digits(folder, per_digit["train"], per_digit["val"])
    for split, count in counts.items():
        names = sorted(path.relative_to(folder).as_posix() for path in (folder / split).rglob("*.png"))[:count]
        (folder / f"{split}_list.txt").write_text("".join(f"{name} {number}\n" for number, name in enumerate(names)))
    return folder


def local_case(context: Context, folder: Path, ranks: int, seed: int) -> RankCase:
    """Two updates, each in an epoch of its own, with accumulation, dropout and a moving average; then an evaluation."""
    config = replace(
        recipe(context, 2),
        data_path=str(folder),
        num_classes=sizes(ranks)[0],
        width_mult=0.35,
        batch_size=BATCH,
        accumulate=ACCUMULATE,
        optimizer="sgd",  # it hides no factor of the gradients
        lr=2.0**-3,
        momentum=0.5,
        clip_norm=None,
        ema_decay=0.5,
        ema_every=1,
        bn_momentum=0.25,
        device="cpu",
        seed=seed,
    )
    return RankCase("local", config, 2, evaluates=True)


def further_cases(local: RankCase, gradient_norm: float) -> tuple[RankCase, RankCase]:
    """One update that is clipped to about half the gradients' norm, and two with synchronised BatchNorm."""
    config = replace(local.config, accumulate=1, ema_decay=0.0)
    clip_norm = 2.0 ** (np.floor(np.log2(gradient_norm)) - 1)
    clipped = RankCase("clip", replace(config, clip_norm=float(clip_norm)), 1)
    return clipped, RankCase("sync", replace(config, sync_bn=True), 2)


def begin(context: Context, role: str, config: TrainConfig, ranks: Any) -> Any:
    """A training run of one side in exact mode, with its own fresh weights.

    The model is in float64 before it is made parallel: what adds up gradients keeps their type from then on.
    """
    framework, train, spec = context.sides[role].framework, engine(context, role), context.spec
    options = {**spec.options, **spec.train_options(config)}

    def build(classes: int) -> Any:
        return framework.make_exact(getattr(spec, role)(**{**options, "num_classes": classes}))

    with framework.default_dtype("float64"):
        run = train.build_run(config, ranks, build)
    run.train_mode()
    return run


def metric_counts(rank: int) -> list[int]:
    """What a rank's metric has counted before the ranks add up: right answers for each of ``METRIC_KS``, and samples."""
    return [1 + rank, 3 + 2 * rank, 7 + 4 * rank]


def in_float64(context: Context, role: str, images: Any) -> Any:
    """Pictures of a loader as a float64 tensor."""
    framework = context.sides[role].framework
    return framework.tensor(framework.array(images).astype(np.float64))


def evaluation_batches(context: Context, role: str, run: Any) -> list[tuple[Any, Any, Any]]:
    """What a rank evaluates, in float64: images, labels and picture numbers."""
    loader = engine(context, role).evaluation_loader(run)
    return [(in_float64(context, role, images), labels, numbers) for images, labels, numbers in loader]


def summed(states: list[State], factor: float = 1.0) -> State:
    """The sum of several states, tensor by tensor, times a factor."""
    return {name: factor * np.sum([state[name] for state in states], axis=0) for name in states[0]}


def norm_of(state: State) -> float:
    """L2 norm of all tensors together."""
    return sum(norm(array) ** 2 for array in state.values()) ** 0.5


# --- files -----------------------------------------------------------------------------------------------------------------


def start_file(folder: Path, case: RankCase) -> Path:
    """Where the starting weights of a case's seed are."""
    return folder / f"start.seed{case.config.seed}.safetensors"


def read_start(folder: Path, case: RankCase) -> State:
    """The canonical weights from which a case starts."""
    found = safetensors.numpy.load_file(start_file(folder, case))
    return {name.removeprefix("state/"): array for name, array in found.items()}


def record_file(folder: Path, case: RankCase, number: int | str, rank: int) -> Path:
    """Where a rank writes what it has of one update, of the ``"start"`` or of the ``"evaluation"``."""
    return folder / f"{case.name}.{number}.rank{rank}.safetensors"


def write_record(file: Path, parts: dict[str, State]) -> None:
    """Write named groups of arrays; the file is whole as soon as it is there."""
    arrays = {f"{part}/{name}": np.array(array, order="C") for part, of_part in parts.items() for name, array in of_part.items()}
    unfinished = file.with_suffix(".part")
    safetensors.numpy.save_file(arrays, unfinished)
    unfinished.rename(file)


def read_records(folder: Path, case: RankCase, ranks: int) -> State:
    """What all ranks have written of a case: ``"0/1/state/conv.weight"`` is a tensor of rank 1 after the first update."""
    found: State = {}
    for number in ("start", *map(str, range(case.updates)), "pictures", "evaluation"):
        for rank in range(ranks):
            file = record_file(folder, case, number, rank)
            arrays = safetensors.numpy.load_file(file) if file.is_file() else {}
            found |= {f"{number}/{rank}/{name}": array for name, array in arrays.items()}
    return found


def by_rank(measured: Mapping[str, Any], ranks: int) -> dict[str, list[Record]]:
    """The same by update (or ``"start"``, ``"pictures"``, ``"evaluation"``), rank, and group; of what every rank has alone."""
    found: dict[str, dict[int, Record]] = {}
    for key, array in measured.items():
        number, rank, part, name = key.split("/", 3)
        found.setdefault(number, {}).setdefault(int(rank), {}).setdefault(part, {})[name] = array
    return {number: [of[rank] for rank in range(ranks)] for number, of in found.items() if len(of) == ranks}
