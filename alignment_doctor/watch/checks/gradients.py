"""Gradients: left over, lost, absent, not finite."""

from __future__ import annotations

import numpy as np

from alignment_doctor.findings import Outcome, check, found, judged, not_applicable, nothing
from alignment_doctor.watch.look import Seen

PATIENT = 12  # looks at a gradient of zero


@check(
    "watch.left_over",
    "002 cg.02",
    "004 optimizer",
    measures="gradients that are there when an update's first backward pass begins",
    fix="clear the gradients once between two updates: optimizer.zero_grad() in torch, optimizer.clear_grad() in Paddle",
)
def left_over(seen: Seen) -> Outcome:
    left = seen.look.left_over
    if left is None:
        return not_applicable("the model was not called as a whole, so that the backward pass's beginning was not seen")
    where = [name for name, norm in left.items() if norm != 0 and name in seen.look.rates]  # others nobody uses
    return judged(where, f"gradients of the update before are still there: {len(where)} parameters", "the gradients were clear")


@check(
    "watch.lost",
    "002 cg.02",
    "004 optimizer",
    measures="gradients of an update's earlier backward passes when its last one begins",
    fix="clear the gradients after the update, not within it",
)
def lost(seen: Seen) -> Outcome:
    if seen.settings.accumulate == 1:
        return not_applicable("one backward pass an update")
    if not seen.look.lost:
        return nothing("they were kept")
    return found(
        f"{seen.settings.accumulate} backward passes make an update, but they are cleared in between: only the last one counts",
        [f"update {seen.look.update}"],
    )


@check(
    "watch.no_gradient",
    "002 cg.02",
    "004 model",
    measures="gradients before the update, of all parameters that are not frozen, in the last two looks",
    fix="look for a detach or stop_gradient on the way, a layer that forward does not use, gradients cleared before the update",
)
def no_gradient(seen: Seen) -> Outcome:
    looks = [look for look in seen.last(2) if look.finite]
    if len(looks) < 2:
        return not_applicable("it takes two looks at finite gradients")
    names = [name for name in looks[-1].trainable if not seen.settings.is_frozen(name)]
    where = [name for name in names if not any(look.gradients.get(name, 0.0) for look in looks)]
    if where and len(where) == len(names) and looks[-1].left_over is not None and not looks[-1].pulled:
        if all(look.one_class for look in looks) and not any(any(look.gradients.values()) for look in seen.looks):
            return found(f"every gradient is zero: {looks[-1].one_class}", where)
        if any(look.losses and look.losses[-1][1] == 0 for look in looks):
            return nothing("the loss is 0, and so is every gradient")
        return found("every gradient is zero: the loss does not depend on the model's output", where)
    if where and len(where) == len(names):
        if looks[-1].gradients and looks[-1].pulled and all(look.one_class for look in looks):
            return found(f"every gradient is zero: {looks[-1].one_class}", where)
        if not looks[-1].gradients and any(look.moved(name) for look in looks for name in names if name in look.after):
            return nothing("the weights move within the backward pass")
        return found("no parameter has a gradient when the update is made: cleared before it, or no backward pass", where)
    where = [name for name in where if _ought(seen, name)]
    earlier = {name for look in seen.looks for name, norm in look.gradients.items() if norm}
    ceased = [name for name in where if name in earlier]
    if ceased:
        return found(f"{len(ceased)} parameters no longer get a gradient, as they did before", ceased)
    return judged(where, f"{len(where)} of {len(names)} parameters never get a gradient", f"{len(names)} parameters have one")


def _is_loss(seen: Seen, values: list[float]) -> bool:
    """Whether what a formula gives for each backward pass is the loss of the update, as its sum or that of the last pass."""
    look = seen.look
    loss, scale = look.losses[-1][1] if look.losses else np.nan, look.scale_before or 1.0
    made = [value / scale for value in (sum(values), *values[-1:], *(seen.settings.accumulate * one for one in values[-1:]))]
    return bool(values) and any(abs(one - loss) <= 1e-2 * max(abs(one), abs(loss)) for one in made)


def _ought(seen: Seen, name: str) -> bool:
    """Whether a parameter ought to have a gradient by now.

    One whose layer did not compute (an expert that was not chosen, a layer that is dropped) ought not. One whose gradient is zero
    may stand before weights that begin at zero, or in a branch that is dropped at random, and one without a gradient may belong to
    an output whose turn it is not: it takes ``PATIENT`` looks.
    """
    layer = name.rpartition(".")[0]
    if any(look.called and layer not in look.called for look in seen.last(2)):
        return False
    if any(name in look.gradients or look.idle for look in seen.last(2)):
        patient = seen.last(PATIENT)
        return bool(patient) and not any(look.gradients.get(name, 0.0) for look in patient)
    return True


@check(
    "watch.unregistered",
    "002 cg.02",
    "004 model",
    measures="layers that compute in the forward pass and get a gradient, against those of which the model knows",
    fix="keep layers in nn.ModuleList or nn.ModuleDict (nn.LayerList, nn.LayerDict in Paddle), not in a list or dict of Python",
)
def unregistered(seen: Seen) -> Outcome:
    if not seen.look.called and seen.look.left_over is None:
        return not_applicable("the model was not called as a whole")
    where = seen.look.unregistered
    said = f"{len(where)} parameters get a gradient and are no part of the model: no optimizer and no checkpoint has them"
    return judged(where, said, "every layer that computes is part of the model")


@check(
    "watch.equal_units",
    "002 wi.01",
    "004 model",
    measures="gradients of the units of layers whose weights began with one value, in the last two looks",
    fix="initialise the layer at random: units that begin equal and get equal gradients stay equal, and count as one",
)
def equal_units(seen: Seen) -> Outcome:
    looks = [look for look in seen.last(2) if look.finite]
    if len(looks) < 2:
        return not_applicable("it takes two looks at finite gradients")
    where = [name for name in looks[-1].alike if name in looks[0].alike and not seen.settings.is_frozen(name)]
    return judged(where, f"the units of {len(where)} layers are equal and stay equal", "no layer's units stay equal")


@check(
    "watch.finite",
    "002 mp.01",
    "004 training",
    "001 training 3",
    measures="losses since the last look, and the gradients",
    fix="lower the learning rate, clip the gradients, or scale the loss; look at the named tensor's layer first",
)
def finite(seen: Seen) -> Outcome:
    look = seen.look
    losses = [f"update {update}: loss {loss}" for update, loss in look.losses if not np.isfinite(loss)]
    spoilt = [] if seen.settings.scaled else [f"gradient of {n}" for n, norm in look.gradients.items() if not np.isfinite(norm)]
    weights = [f"weight {n}" for n, sample in look.after.items() if n not in look.statistics and not np.isfinite(sample).all()]
    where = losses + spoilt + weights
    return judged(where, "the run has overflowed: not finite", f"{len(look.losses)} losses and {len(look.gradients)} gradients are")


@check(
    "watch.scale",
    "002 mp.01",
    "002 mp.02",
    "004 training",
    measures="the loss scale, and how often gradients are not finite",
    fix="call the scaler's update after each step; a scale that falls without end means that the run itself overflows",
)
def scale(seen: Seen) -> Outcome:
    look = seen.look
    if look.scale is None:
        return not_applicable("the loss is not scaled")
    spoilt = [one for one in seen.looks[-5:] if not one.finite]
    places = [f"update {one.update}" for one in spoilt]
    if len(spoilt) >= 2 and spoilt[-1] is look and spoilt[-2].scale == look.scale and spoilt[-2].scale_before == look.scale:
        return found(f"gradients overflow, but the loss scale stays at {look.scale:g}", places)
    if look.scale < 1:
        return found(f"the loss scale has fallen to {look.scale:g}", places or [f"update {look.update}"])
    return judged(places if len(spoilt) >= 4 else [], "4 of the last 5 looks had gradients that overflow", f"{look.scale:g}")


@check(
    "watch.clipped_scaled",
    "002 mp.03",
    measures="the norm of all gradients that are still multiplied by the loss scale, in the last two looks",
    fix="divide the gradients by the scale before they are clipped: scaler.unscale_(optimizer), then clip, then scaler.step",
)
def clipped_scaled(seen: Seen) -> Outcome:
    looks = [look for look in seen.last(2) if look.finite]
    if seen.look.scale is None or len(looks) < 2:
        return not_applicable("it takes two looks at a scaled loss with finite gradients")
    norms = [look.clipped_at or 0.0 for look in looks]
    if min(norms) <= 0 or (looks[-1].scale_before or 1.0) <= 1:
        return nothing("the gradients were divided by the scale, or nothing is scaled up")
    limit = float(f"{norms[-1]:.2g}")  # clipping leaves exactly its limit, which people write with a digit or two
    if max(abs(norm - limit) for norm in norms) > 1e-5 * limit:
        return nothing(f"norms of {min(norms):.3g} and {max(norms):.3g} before they are divided by the scale")
    said = f"the gradients are clipped to {limit:g} while they are multiplied by {looks[-1].scale_before:g}"
    return found(f"{said}: little is left of them", [f"update {one.update}" for one in looks])


@check(
    "watch.probabilities",
    "002 cg.04",
    "004 loss",
    measures="the gradient at the model's output against that of a cross-entropy that takes logits",
    fix="remove the softmax, sigmoid or ReLU from the model's end, or use a loss of probabilities: a loss of logits has its own",
)
def probabilities(seen: Seen) -> Outcome:
    look = seen.look
    if not look.modes and look.left_over is None:
        return not_applicable("the model was not called as a whole")
    if look.sigmoid_twice:
        return found("the model gives probabilities, and the loss takes their sigmoid again", ["the model's output"])
    if look.cut_off:
        return found("the model ends with a ReLU, and the loss takes what is left for logits, none below 0", ["the model's output"])
    if not look.softmax_twice:
        return nothing("the loss takes no second softmax or sigmoid")
    return found("the model gives probabilities, and the loss takes their softmax again", ["the model's output"])


@check(
    "watch.likelihood",
    "002 cg.04",
    "004 loss",
    measures="the gradient at the model's output against that of a loss of log-probabilities, and whether it is given such",
    fix="put a log_softmax before the loss, or use CrossEntropyLoss, which has one: NLLLoss of logits falls without end",
)
def likelihood(seen: Seen) -> Outcome:
    look = seen.look
    if not look.modes and look.left_over is None:
        return not_applicable("the model was not called as a whole")
    if not _is_loss(seen, look.unnormalised):  # the gradient alone may be that of a Huber loss far from its targets
        return nothing("no loss of log-probabilities is given other numbers")
    return found("the loss takes log-probabilities, and the model gives numbers that are none", ["the model's output"])


@check(
    "watch.one_target",
    "002 cg.04",
    "004 loss",
    measures="whether the loss pulls all samples of a batch to one value, another one in each batch, in the last two looks",
    fix="give outputs and targets one shape: (N, 1) against (N,) is broadcast to (N, N), each output against every target",
)
def one_target(seen: Seen) -> Outcome:
    pulled = [look.one_target for look in seen.last(2) if look.one_target is not None]
    if len(pulled) < 2:
        return nothing("the samples have targets of their own, or are not of one column")
    (factor, target, _), (factor_now, target_now, own) = pulled
    if _is_loss(seen, [own]):
        return nothing(f"all samples of the batch have the target {target_now:.3g}")
    same = abs(factor - factor_now) <= 1e-3 * factor  # else a curved loss that is nearly straight
    if not same or abs(target - target_now) <= 1e-2 * max(1.0, abs(target)):
        return nothing(f"all samples of a batch have the target {target_now:.3g}, as a discriminator's have")
    said = f"all samples are pulled to {target:.3g} and then to {target_now:.3g}"
    return found(f"{said}: to the mean of their targets, not to their own", ["the loss"])
