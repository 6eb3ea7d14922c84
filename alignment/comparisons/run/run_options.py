"""Options of a run that leave its updates as they are: blocks computed again, several views in evaluation, weights to begin with.

Each is held against arithmetic or against the port's own run without it, and the views against the reference's besides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from alignment import tolerance
from alignment.compare import Quantity, distance, norm, relative
from alignment.comparisons.result import StepResult
from alignment.comparisons.run.engine import Ground, engine, start_run, updates_of
from alignment.comparisons.run.evaluation import Numbers, counted_figures, placed_labels
from alignment.comparisons.run.fresh import lacks_fresh
from alignment.formulas import log_softmax
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.presets import TTA
from mobilenetv3_common.weights import State, as_torch

UPDATES = 2
LOGITS = 2.0  # standard deviation of the outputs that are compared
FEWER = 7  # classes of the file that a run begins with: the last layer is not taken from it
FIGURES = ("top1", "top5", "loss")
MEAN = ".running_mean"


def wrong_options(ground: Ground) -> dict[str, str]:
    """What is wrong with each option in the port, ``""`` for nothing; those that a side refuses are left out."""
    looks: dict[str, Callable[[Ground], str]] = {"gradient checkpointing": _checkpointing}
    if any(name.endswith(MEAN) for name in ground.weights):
        looks["freezing by name"] = _one_frozen
    looks |= {f"views.{view}": partial(_views, view=view) for view in TTA if view != "none"}
    if not lacks_fresh(ground.context):
        looks["pretrained"] = _pretrained
    found = {}
    for name, look in looks.items():
        try:
            found[name] = look(ground)
        except UserError:
            continue
    return found


def judge_options(result: StepResult, wrong: dict[str, str]) -> None:
    """One row for each option."""
    for name, words in wrong.items():
        quantity = Quantity(f"option.{name.replace(' ', '_')}", [])
        result.quantities.append(quantity.fail(words) if words else quantity)
        result.cover("several views" if name.startswith("views") else name)


def _checkpointing(ground: Ground) -> str:
    """Weights and statistics of the port's run with its blocks computed again and without, and whether they are at all."""
    config = replace(ground.long, ema_decay=0.0)

    def last(role: str, again: bool, updates: int) -> tuple[State, int]:
        """The state after some updates, and how many modules were computed in them."""
        run = start_run(ground.context, role, replace(config, grad_checkpointing=again), "64", ground.weights)
        framework, calls = ground.context.sides[role].framework, Counter[str]()
        for name, module in framework.modules(run.model).items():
            framework.hook(module, after=partial(_count, calls, name))
        return list(updates_of(ground.context, role, run, updates))[-1].state, calls.total()

    (plain, once), (made, twice) = last("port", False, UPDATES), last("port", True, UPDATES)
    unlike = [n for n in plain if not relative(distance(made[n], plain[n]), norm(plain[n])) <= tolerance.EXACT_RTOL]
    if unlike:
        return f"{len(unlike)} tensors become others than without it, first {unlike[0]}"
    if twice > once:
        return ""
    (_, expected_once), (_, expected_twice) = last("reference", False, 1), last("reference", True, 1)
    return "no block is computed again for the backward pass, the reference's are" if expected_twice > expected_once else ""


def _count(calls: Counter[str], name: str, *_: Any) -> None:
    calls[name] += 1


def _one_frozen(ground: Ground) -> str:
    """The shift of one normalisation layer is frozen by its name: it stays, and all that moves in the reference moves.

    A framework may give neither gradient where only one of a layer's two parameters needs one.
    """
    layer = next(name for name in ground.weights if name.endswith(MEAN)).removesuffix(MEAN)
    frozen = f"{layer}.bias"
    moving: dict[str, set[str]] = {}
    for role in ("reference", "port"):
        framework = ground.context.sides[role].framework
        config = replace(ground.short, freeze_bn=False)
        own = {entry.canonical: entry.own for entry, _ in framework.described(start_run(ground.context, role, config, "64").model)}
        run = start_run(ground.context, role, replace(config, param_groups=f"{own[frozen]}:frozen"), "64", ground.weights)
        last = list(updates_of(ground.context, role, run, UPDATES))[-1].state
        moving[role] = {name for name, array in last.items() if not np.array_equal(array, ground.weights[name])}
    if frozen in moving["port"]:
        return f"{frozen} moves though it is frozen by name"
    still = [name for name in ground.weights if name in moving["reference"] - moving["port"]]
    return f"with {frozen} frozen, {still[0]} does not move, in the reference it does" if still else ""


def _views(ground: Ground, view: str) -> str:
    """An evaluation of several views of each picture."""
    context = ground.context
    weights = _decided(ground)
    given: dict[str, list[np.ndarray]] = {}
    figures: dict[str, dict[str, float]] = {}
    labels = expected = None
    for role in ("reference", "port"):
        framework, train = context.sides[role].framework, engine(context, role)
        run = start_run(context, role, replace(ground.short, tta=view), "64", weights)
        batches = [[framework.array(tensor) for tensor in batch] for batch in train.evaluation_loader(run)]
        given[role] = [batch[0] for batch in batches]
        if labels is None:
            framework.set_training(run.model, False)
            logits = np.concatenate([_of_views(framework, run.model, batch[0]) for batch in batches])
            labels = placed_labels(logits)
            expected = counted_figures(logits, labels, ())
        elif [p.shape for p in given[role]] != [p.shape for p in given["reference"]]:
            return f"pictures of shape {given[role][0].shape}, expected {given['reference'][0].shape}"
        elif not all(map(np.array_equal, given[role], given["reference"])):
            return "the views are other pictures than the reference's"
        loader, done = [], 0
        for pictures, _, numbers in batches:
            own = labels[done : done + len(pictures)]
            loader.append((framework.tensor(pictures.astype(np.float64)), framework.tensor(own), Numbers(numbers)))
            done += len(pictures)
        run.train_mode()
        with framework.precision("float64"):
            result = train.evaluate_run(run, loader)
        figures[role] = {name: float(getattr(result, name)) for name in FIGURES}
    assert expected is not None
    for role in ("port", "reference"):
        for name, value in figures[role].items():
            if not abs(value - expected[name]) <= 10 * tolerance.EXACT_RTOL * max(abs(expected[name]), 1.0):
                return f"{name} is {value:.9g} in the {role}, {expected[name]:.9g} by the mean of the views' probabilities"
    return ""


def _decided(ground: Ground) -> State:
    """The weights with a last layer whose outputs are far apart: the mean of equal logits is the same as that of probabilities."""
    context = ground.context
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


def _pretrained(ground: Ground) -> str:
    """The port's own network that begins with a file's weights, of fewer classes, beside a fresh one of the same seed."""
    context = ground.context

    def built(role: str, **changes: Any) -> State:
        train = engine(context, role)
        network = train.build_run(replace(ground.short, **changes), train.Ranks(device=context.device)).model
        return context.sides[role].framework.state(context.paired.named(role, network))

    framework, spec = context.reference.framework, context.spec
    options = {**spec.options, **spec.train_options(ground.short), "num_classes": FEWER}
    framework.seed(ground.short.seed + 1)
    begin = framework.state(spec.reference(**options))
    file = ground.folder / "begin.safetensors"
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: np.ascontiguousarray(array) for name, array in as_torch(begin).items()}, file)
    given = {"pretrained": str(file), "reset_classifier": True}
    built("reference", **given)  # one that it refuses is not compared
    made, fresh = built("port", **given), built("port")
    unlike = [n for n in made if not np.array_equal(made[n], begin[n] if begin[n].shape == made[n].shape else fresh[n])]
    if not unlike:
        return ""
    whose = "the fresh ones" if all(np.array_equal(made[n], fresh[n]) for n in unlike) else "neither the file's nor fresh ones"
    return f"{len(unlike)} tensors do not begin as the file says, first {unlike[0]}: they are {whose}"
