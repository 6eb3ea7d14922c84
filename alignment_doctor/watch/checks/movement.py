"""Weights and statistics: what moves, what stands still, and how far."""

from __future__ import annotations

import numpy as np

from alignment_doctor.findings import Outcome, check, found, judged, not_applicable, nothing
from alignment_doctor.watch.look import Look, Seen

FIRM = 1e-4  # relative; plain gradient descent that moves an element so far moves it for certain, clipped or rounded
FAR = 1.0  # median change of a weight in one update, relative: it is another weight then


def _has_to_move(look: Look, name: str) -> bool:
    """Whether plain gradient descent would move one of the elements that are looked at, by far more than rounding."""
    if name not in look.pulls:
        return False
    step = look.rates[name] * np.abs(look.pulls[name]) / (look.scale_before or 1.0)
    return bool((step > max(FIRM, look.coarse.get(name, 0.0)) * np.abs(look.before[name])).any())


@check(
    "watch.left_out",
    "002 cg.02",
    "004 optimizer",
    measures="parameters with a gradient against those that the optimizer holds",
    fix="build the optimizer from model.parameters(), after the last change of the model's layers",
)
def left_out(seen: Seen) -> Outcome:
    look = seen.look
    names = [name for name in look.trainable if look.gradients.get(name, 0.0) and not seen.settings.is_frozen(name)]
    where = [name for name in names if name not in look.rates and not _moved(look, name)]  # else another optimizer holds it
    if where and not look.rates:
        return found("the optimizer holds none of the model's parameters: it was built from another model's", where)
    return judged(where, f"{len(where)} parameters are not in the optimizer", f"the optimizer holds all {len(names)}")


@check(
    "watch.stands_still",
    "002 cg.02",
    "004 optimizer",
    measures="parameters that the optimizer holds and that have a gradient, before and after the update, in the last two looks",
    fix="look whether optimizer.step() is called, at the rate of the parameter's group, and for code that writes the weight back",
)
def stands_still(seen: Seen) -> Outcome:
    looks = [look for look in seen.last(2) if look.finite and look.rate > 0 and not look.own_steps]
    if len(looks) < 2:
        return not_applicable("it takes two looks at updates of a given learning rate, with finite gradients")
    names = [n for n in looks[-1].trainable if not seen.settings.is_frozen(n) and all(_told(look, n) for look in looks)]
    stuck = [n for n in names if all(look.rates[n] == 0 for look in looks)]
    if stuck and len(stuck) < len(names):
        return found(f"the learning rate of {len(stuck)} parameters is 0", stuck)
    where = [n for n in names if not any(look.moved(n) for look in looks) and all(_has_to_move(look, n) for look in looks)]
    if where and not any(look.moved(n) for look in looks for n in names):
        return found("no weight moves: the optimizer makes no step, or its steps are undone", where)
    return judged(where, f"{len(where)} of {len(names)} parameters with a gradient do not move", f"{len(names)} parameters move")


def _moved(look: Look, name: str) -> bool:
    return name in look.before and name in look.after and look.moved(name)


def _told(look: Look, name: str) -> bool:
    return name in look.rates and name in look.before and name in look.after and look.gradients.get(name, 0.0) > 0


@check(
    "watch.frozen_moves",
    "002 cg.02",
    "004 model",
    measures="parameters and statistics that are frozen, against their values when the watch began or they were frozen",
    fix="leave them out of the optimizer; statistics stand still where their layer is in evaluation mode",
)
def frozen_moves(seen: Seen) -> Outcome:
    look = seen.look
    held = [n for n in look.rates if n in look.stale]  # one without a gradient is moved by others, as an average of weights is
    frozen = {n for n in look.after if seen.settings.is_frozen(n)} | set(held)
    if not frozen:
        return not_applicable("nothing is frozen")
    where = [n for n in look.after if n in frozen and _differs(_frozen_at(seen, n), look.after[n], n in look.statistics)]
    kind = "statistics" if where and all(n in look.statistics for n in where) else "tensors"
    return judged(where, f"{len(where)} frozen {kind} move", f"{len(frozen)} frozen tensors stand still")


def _frozen_at(seen: Seen, name: str) -> np.ndarray:
    """A frozen tensor's elements: of the start, or of the first look since which it is not to be trained."""
    if seen.settings.is_frozen(name) and name in seen.start:
        return seen.start[name]
    since = seen.look
    for look in reversed(seen.looks):
        if name in look.trainable or name not in look.before:
            break
        since = look
    return since.before[name] if name in since.before else since.after[name]


def _differs(a: np.ndarray, b: np.ndarray, loosely: bool) -> bool:
    return not (np.allclose(a, b, rtol=1e-5, atol=1e-12) if loosely else np.array_equal(a, b))


@check(
    "watch.statistics",
    "002 api.02",
    "001 module 1",
    measures="statistics of normalisation layers in training mode, before and after the update, in the last two looks",
    fix="look at the layer's momentum (0.1 in torch is 0.9 in Paddle), and for code that writes the statistics back",
)
def statistics(seen: Seen) -> Outcome:
    looks = seen.last(2)
    own = [n for n in seen.look.after if n in seen.look.statistics]  # in the model's order
    names = [n for n in own if looks and all(_trains(look, n) for look in looks)]
    if not names:
        return not_applicable("no normalisation layer was in training mode in two looks")
    still = [n for n in names if not any(look.moved(n) for look in looks)]
    where = [n for n in still if np.array_equal(seen.start.get(n, seen.look.after[n]), seen.look.after[n])]  # else it has arrived
    return judged(where, f"{len(where)} of {len(names)} statistics stand still", f"{len(names)} statistics move")


def _trains(look: Look, name: str) -> bool:
    layer = name.rpartition(".")[0]
    gradient = look.gradients.get(f"{layer}.weight", 1.0 if f"{layer}.weight" not in look.sizes else 0.0)
    return name in look.before and look.modes.get(layer, False) and gradient > 0


@check(
    "watch.step_size",
    "002 hp.01",
    "004 lr",
    measures="how far the update moves the weights of two or more axes, relative to their size and to that of common first weights",
    fix="lower the learning rate by at least this factor times ten; look at the loss's reduction, a sum makes gradients large",
)
def step_size(seen: Seen) -> Outcome:
    look = seen.look
    if look.own_steps:
        return not_applicable("the optimizer chooses the length of its steps")
    far = {n: _change(look, n) for n in look.kernels if n in look.before and n in look.after}
    if not far:
        return not_applicable("no weight of two axes was seen")
    middle = float(np.median(list(far.values())))
    if not np.isfinite(middle):
        return not_applicable("weights are not finite")
    worst = sorted(far, key=lambda n: -far[n])
    said = f"an update changes half of the weights by {middle:.1e} or more of their size"
    return found(said, [f"{n}: {far[n]:.2g}" for n in worst]) if middle > FAR else nothing(said)


def _change(look: Look, name: str) -> float:
    """Relative to the weights' size, or to that of common first weights where they are smaller: some begin at zero."""
    before = float(np.linalg.norm(look.before[name]))
    return float(np.linalg.norm(look.after[name] - look.before[name])) / max(before, look.kernels[name])
