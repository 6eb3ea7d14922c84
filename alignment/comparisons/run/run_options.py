"""Options of a run that leave its updates as they are: blocks computed again, several views in evaluation, weights to begin with.

Each is held against arithmetic or against the port's own run without it, and the views against the reference's besides. One that
the reference refuses is left out, and one that the project says the port is without (``Project.without``).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from safetensors.numpy import save_file

from alignment import tolerance
from alignment.compare import Quantity, distance, norm, relative
from alignment.comparisons.comparison import Measurement, Value
from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult
from alignment.comparisons.run.engine import Ground, engine, start_run, updates_of
from alignment.comparisons.run.evaluation import Numbers, placed_labels
from alignment.comparisons.run.fresh import lacks_fresh
from alignment.comparisons.run.mistakes import counted_figures
from alignment.comparisons.run.states import judge_wrong, part, under
from alignment.finding import Finding
from alignment.formulas import log_softmax
from alignment.kinds import Kind
from mobilenetv3_common.presets import TTA
from mobilenetv3_common.weights import State, as_torch

UPDATES = 2
LOGITS = 2.0  # standard deviation of the outputs that are compared
FEWER = 7  # classes of the file that a run begins with: the last layer is not taken from it
FIGURES = ("top1", "top5", "loss")
REFUSED = "refused"  # in a measurement: the line with which a side refuses the option
MEAN = ".running_mean"


@dataclass(frozen=True)
class Option:
    """One option; ``wrong`` says what is wrong with it in the port.

    Attributes:
        ground: what the runs begin from.
        name: of the option.
        place: the function to blame.
    """

    ground: Ground
    name: ClassVar[str]
    place: ClassVar[str]

    @property
    def topic(self) -> str:
        """The option in the words of coverage."""
        return self.name

    def measure(self, context: Context, role: str) -> dict[str, Value]:
        """What one side does with the option.

        Raises:
            UserError: the side refuses it.
        """
        raise NotImplementedError

    def wrong(self, port: Measurement, reference: Measurement) -> str:
        """What is wrong with the option in the port; ``""`` for nothing."""
        raise NotImplementedError

    def _said(self, port: Measurement, reference: Measurement) -> str:
        """What is wrong: a refusal of the port alone, too."""
        return f"the port refuses it: {port[REFUSED]}" if REFUSED in port else self.wrong(port, reference)

    def judge(self, port: Measurement, reference: Measurement) -> list[Quantity]:
        return judge_wrong({f"option.{self.name.replace(' ', '_')}": self._said(port, reference)})

    def show(self, result: StepResult, port: Measurement, reference: Measurement) -> None:
        """Note what was compared."""
        if REFUSED not in port:
            result.cover(self.topic)

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        if not (wrong := self._said(port, reference)):
            return None
        kind = Kind.RAISES if REFUSED in port else Kind.WEIGHTS_NOT_LOADED if wrong.endswith("the fresh ones") else Kind.UNKNOWN
        words = f"with {self.name.replace('views.', 'the views of --tta ')}: {wrong}"
        return Finding("train", self.place, kind, words if kind else "", words)


class Recomputed(Option):
    """Weights and statistics of a run with its blocks computed again and without, and how many modules are computed in each."""

    name, place = "gradient checkpointing", "recompute_blocks"

    def measure(self, context: Context, role: str) -> dict[str, Value]:
        made: dict[str, Value] = {}
        for name, again in (("plain", False), ("again", True)):
            config = replace(self.ground.long, ema_decay=0.0, grad_checkpointing=again)
            run = start_run(context, role, config, "64", self.ground.weights)
            framework, calls = context.sides[role].framework, Counter[str]()
            for path, module in framework.modules(run.model).items():
                framework.hook(module, after=partial(_count, calls, path))
            # Of the reference it is asked alone whether it computes anything again.
            updates = list(updates_of(context, role, run, UPDATES if role == "port" else 1))
            made |= under(name, updates[-1].state if role == "port" else {}) | {f"calls.{name}": np.array(calls.total())}
        return made

    def wrong(self, port: Measurement, reference: Measurement) -> str:
        plain, made = part(port, "plain"), part(port, "again")
        unlike = [n for n in plain if not relative(distance(made[n], plain[n]), norm(plain[n])) <= tolerance.EXACT_RTOL]
        if unlike:
            return f"{len(unlike)} tensors become others than without it, first {unlike[0]}"
        (once, twice), (expected_once, expected_twice) = (part(side, "calls").values() for side in (port, reference))
        if twice <= once and expected_twice > expected_once:
            return "no block is computed again for the backward pass, the reference's are"
        return ""


def _count(calls: Counter[str], name: str, *_: Any) -> None:
    calls[name] += 1


class FrozenByName(Option):
    """The shift of one normalisation layer is frozen by its name: it stays, and all that moves in the reference moves.

    A framework may give neither gradient where only one of a layer's two parameters needs one.
    """

    name, place = "freezing by name", "build_model"

    @property
    def frozen(self) -> str:
        """The shift."""
        return next(name for name in self.ground.weights if name.endswith(MEAN)).removesuffix(MEAN) + ".bias"

    def measure(self, context: Context, role: str) -> dict[str, Value]:
        framework, config = context.sides[role].framework, replace(self.ground.short, freeze_bn=False)
        own = {entry.canonical: entry.own for entry, _ in framework.described(start_run(context, role, config, "64").model)}
        config = replace(config, param_groups=f"{own[self.frozen]}:frozen")
        run = start_run(context, role, config, "64", self.ground.weights)
        last = list(updates_of(context, role, run, UPDATES))[-1].state
        return {"moving": np.array([n for n, array in last.items() if not np.array_equal(array, self.ground.weights[n])])}

    def wrong(self, port: Measurement, reference: Measurement) -> str:
        ours, theirs = (set(np.asarray(side["moving"]).tolist()) for side in (port, reference))
        if self.frozen in ours:
            return f"{self.frozen} moves though it is frozen by name"
        still = [name for name in self.ground.weights if name in theirs - ours]
        return f"with {self.frozen} frozen, {still[0]} does not move, in the reference it does" if still else ""


@dataclass(frozen=True)
class Views(Option):
    """An evaluation of several views of each picture.

    Attributes:
        view: which views.
        weights: with a last layer whose outputs are far apart.
        labels: of the pictures; placed by a side's own outputs where None, as the reference's are.
    """

    view: str
    weights: State
    labels: np.ndarray | None = None

    place = "evaluate_run"

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"views.{self.view}"

    @property
    def topic(self) -> str:
        return "several views"

    def after(self, reference: Measurement) -> Views:
        """The same with the labels that the reference's outputs gave, for the port."""
        return replace(self, labels=np.asarray(reference["labels"]))

    def measure(self, context: Context, role: str) -> dict[str, Value]:
        framework, train = context.sides[role].framework, engine(context, role)
        run = start_run(context, role, replace(self.ground.short, tta=self.view), "64", self.weights)
        batches = [[framework.array(tensor) for tensor in batch] for batch in train.evaluation_loader(run)]
        made: dict[str, Value] = {f"pictures.{number}": batch[0] for number, batch in enumerate(batches)}
        labels = self.labels
        if labels is None:
            framework.set_training(run.model, False)
            logits = np.concatenate([_of_views(framework, run.model, batch[0]) for batch in batches])
            labels = placed_labels(logits)
            made["expected"] = {
                name: float(value) for name, value in counted_figures(logits, labels, ()).items() if name in FIGURES
            }
        loader, done = [], 0
        for pictures, _, numbers in batches:
            own = labels[done : done + len(pictures)]
            loader.append((framework.tensor(pictures.astype(np.float64)), framework.tensor(own), Numbers(numbers)))
            done += len(pictures)
        run.train_mode()
        with framework.precision("float64"):
            result = train.evaluate_run(run, loader)
        return {**made, "labels": labels, "figures": {name: float(getattr(result, name)) for name in FIGURES}}

    def wrong(self, port: Measurement, reference: Measurement) -> str:
        ours, theirs = ([*part(side, "pictures").values()] for side in (port, reference))
        if [p.shape for p in ours] != [p.shape for p in theirs]:
            return f"pictures of shape {ours[0].shape}, expected {theirs[0].shape}"
        if not all(map(np.array_equal, ours, theirs)):
            return "the views are other pictures than the reference's"
        expected: Any = reference["expected"]
        for role, side in (("port", port), ("reference", reference)):
            figures: Any = side["figures"]
            for name, value in figures.items():
                if not abs(value - expected[name]) <= 10 * tolerance.EXACT_RTOL * max(abs(expected[name]), 1.0):
                    return f"{name} is {value:.9g} in the {role}, {expected[name]:.9g} by the mean of the views' probabilities"
        return ""


def _decided(context: Context, ground: Ground) -> State:
    """The weights with a last layer whose outputs are far apart: the mean of equal logits is the same as that of probabilities."""
    framework = context.reference.framework
    run = start_run(context, "reference", ground.short, "64", ground.weights)
    framework.set_training(run.model, False)
    pictures = engine(context, "reference").evaluation_loader(run)
    spread = max(
        float(framework.call(run.model, (framework.array(batch[0]).astype(np.float64),)).outputs[0].std()) for batch in pictures
    )
    factor = 2.0 ** round(np.log2(LOGITS / spread)) if 0 < spread < np.inf else 1.0
    last = [n for n in ground.weights if n.startswith(f"{context.spec.last_layer}.")]
    return {n: array * array.dtype.type(factor) if n in last else array for n, array in ground.weights.items()}


def _of_views(framework: Any, network: Any, pictures: np.ndarray) -> np.ndarray:
    """Logarithm of the mean probabilities over the views: float64 (N, classes)."""
    wide = pictures.astype(np.float64)
    outputs = [log_softmax(framework.call(network, (wide[:, view],)).outputs[0]) for view in range(wide.shape[1])]
    return np.log(np.mean(np.exp(outputs), axis=0))


@dataclass(frozen=True)
class Pretrained(Option):
    """A side's own network that begins with a file's weights, of fewer classes, beside a fresh one of the same seed.

    Attributes:
        begin: what the file holds, canonical.
        file: its path.
    """

    begin: State
    file: Path

    name, place = "pretrained", "load_pretrained"

    @classmethod
    def of(cls, context: Context, ground: Ground) -> Pretrained:
        """Write the file, of a fresh network of the reference."""
        framework, spec = context.reference.framework, context.spec
        framework.seed(ground.short.seed + 1)
        begin = framework.state(spec.reference(**{**spec.options, **spec.train_options(ground.short), "num_classes": FEWER}))
        file = ground.folder / "begin.safetensors"
        file.parent.mkdir(parents=True, exist_ok=True)
        save_file({name: np.asarray(array, order="C") for name, array in as_torch(begin).items()}, file)
        return cls(ground, begin, file)

    def measure(self, context: Context, role: str) -> dict[str, Value]:
        def built(**changes: Any) -> State:
            train = engine(context, role)
            network = train.build_run(replace(self.ground.short, **changes), train.Ranks(device=context.device)).model
            return context.sides[role].framework.state(context.paired.named(role, network))

        return {**under("made", built(pretrained=str(self.file), reset_classifier=True)), **under("fresh", built())}

    def wrong(self, port: Measurement, reference: Measurement) -> str:
        begin, made, fresh = self.begin, part(port, "made"), part(port, "fresh")
        unlike = [n for n in made if not np.array_equal(made[n], begin[n] if begin[n].shape == made[n].shape else fresh[n])]
        if not unlike:
            return ""
        whose = "the fresh ones" if all(np.array_equal(made[n], fresh[n]) for n in unlike) else "neither the file's nor fresh ones"
        return f"{len(unlike)} tensors do not begin as the file says, first {unlike[0]}: they are {whose}"


def options(context: Context, ground: Ground) -> list[Option]:
    """Those that the project can have, in the order of their rows."""
    decided = _decided(context, ground)
    found: list[Option] = [Recomputed(ground)]
    if any(name.endswith(MEAN) for name in ground.weights):
        found.append(FrozenByName(ground))
    found += [Views(ground, view, decided) for view in TTA if view != "none"]
    return found if lacks_fresh(context) else [*found, Pretrained.of(context, ground)]
