"""Starting weights, loss, gradients, modes, and whether one batch can be learnt."""

from __future__ import annotations

import math

import numpy as np

from alignment_doctor.check.subject import LOOKED_AT, UPDATES, RunSubject
from alignment_doctor.findings import Outcome, check, found, judged, not_applicable, nothing
from mobilenetv3_common.pretrained import read_for
from mobilenetv3_common.weights import CLASSIFIER, is_statistic


def _ran(subject: RunSubject) -> Outcome | None:
    return None if subject.losses else not_applicable("no update was made, since the labels cannot be used")


def _taught(subject: RunSubject) -> Outcome | None:
    return not_applicable("a teacher has a share in the loss") if subject.config.teacher is not None else _ran(subject)


@check(
    "check.initial_weights",
    "002 wi.01",
    measures="starting weights of two or more axes",
    fix="initialise the layer at random: units with equal weights stay equal for ever",
)
def initial_weights(subject: RunSubject) -> Outcome:
    weights = {name: array for name, array in subject.before.items() if array.ndim > 1 and array.size > 1}
    where = [f"{name}: every value is {array.flat[0]:g}" for name, array in weights.items() if np.all(array == array.flat[0])]
    return judged(where, f"{len(where)} weights hold one value", f"{len(weights)} weights have different values")


@check(
    "check.initialisation",
    "002 wi.01",
    measures="fresh weights for several seeds against those of the same network in the reference, as distributions",
    fix="set each layer's initialiser to that of the reference: the layers' own defaults differ between the frameworks",
)
def initialisation(subject: RunSubject) -> Outcome:
    made = subject.initialisation
    if made.reason or made.repeats:
        return not_applicable(made.reason or "the weights are the same for every seed, as weights that were loaded")
    where = [f"{verdict.name}: {verdict.words} ({verdict.measured})" for verdict in made.verdicts if verdict.words]
    random = sum(verdict.random for verdict in made.verdicts)
    said = f"{random} random and {len(made.verdicts) - random} constant tensors, {made.seeds} seeds"
    return judged(where, f"{len(where)} of {len(made.verdicts)} tensors begin otherwise", said)


@check(
    "check.same_seed",
    "004 logger and seeds",
    measures="starting weights and first batch of a second start with the same seed, to the last bit",
    fix="draw every random number from a generator that the run's seed sets: look for numpy's and Python's own, and for the time",
)
def same_seed(subject: RunSubject) -> Outcome:
    where = subject.unlike
    return judged(where, f"{len(where)} of them differ", f"{len(subject.before)} tensors and the first batch are the same again")


@check(
    "check.pretrained",
    "002 wi.02",
    "004 model",
    "001 data 2",
    measures="the weights of the model against those of the file",
    fix="load the file strictly and after everything that initialises weights",
)
def pretrained(subject: RunSubject) -> Outcome:
    if not subject.config.pretrained:
        return not_applicable("the run begins with fresh weights")
    given = read_for(subject.config.pretrained, subject.before, subject.config.checkpoint_weights)
    fresh = {n for n, a in given.items() if n.startswith(f"{CLASSIFIER}.") and a.shape != subject.before.get(n, a).shape}
    where = [n for n, a in given.items() if n not in fresh and not np.array_equal(a, subject.before.get(n, np.zeros(0)))]
    rest = f"; {CLASSIFIER} is fresh, for another number of classes" if fresh else ""
    return judged(
        where, f"{len(where)} of {len(given)} tensors are not the file's", f"{len(given) - len(fresh)} are the file's{rest}"
    )


@check(
    "check.first_loss",
    "002 cg.04",
    "004 loss",
    measures="the first loss of fresh weights against that of guessing, ln(classes)",
    fix="look at the last layer (its scale, a softmax before a loss that has one), the labels, and whether the loss is a mean",
)
def first_loss(subject: RunSubject) -> Outcome:
    if (reason := _taught(subject)) is not None:
        return reason
    if subject.config.pretrained:
        return not_applicable("the weights are not fresh")
    guess = subject.loss_of(np.full(subject.targets.shape, -math.log(subject.num_classes)))
    loss, weighed = subject.losses[0], "" if subject.config.class_weights is None else ", weighed"
    said = f"{loss:.4f}, ln({subject.num_classes}){weighed} = {guess:.4f}"
    return nothing(said) if abs(loss - guess) <= max(0.5, 0.2 * guess) else found(said, ["update 1"])


@check(
    "check.loss_formula",
    "002 cg.04",
    "004 loss",
    measures="the first loss against the mean cross-entropy of the same logits and labels, in numpy",
    fix="use the mean over the batch of the cross-entropy of logits; no second softmax, no further division by the batch",
)
def loss_formula(subject: RunSubject) -> Outcome:
    if (reason := _taught(subject)) is not None:
        return reason
    if subject.config.accumulate > 1:
        return not_applicable("the loss is of several batches: --accumulate 1")
    logits = subject.logits - subject.logits.max(1, keepdims=True)
    logarithms = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    right, loss = subject.loss_of(logarithms), subject.losses[0]
    limit = 1e-2 if subject.config.amp_level != "O0" else 1e-4
    said = f"{loss:.6f}, in numpy {right:.6f}"
    return nothing(said) if abs(loss - right) <= limit * max(abs(right), 1.0) else found(said, ["the training loss"])


@check(
    "check.probabilities",
    "002 cg.04",
    "004 loss",
    measures="whether the model's output is probabilities already",
    fix="remove the softmax from the model: the training loss takes logits and has a softmax of its own",
)
def probabilities(subject: RunSubject) -> Outcome:
    if (reason := _ran(subject)) is not None:
        return reason
    low, sums = float(subject.logits.min()), subject.logits.sum(1)
    said = f"at least {low:.3f}, rows sum to {sums.min():.3f} to {sums.max():.3f}"
    if low >= 0 and (np.abs(sums - 1) < 1e-3).all():
        return found(f"the output is probabilities, of which the loss takes the softmax again: {said}", ["the model's output"])
    return nothing(f"the output is logits, as the loss takes them: {said}")


@check(
    "check.gradients",
    "002 cg.02",
    "004 model",
    measures=f"gradients of all parameters in {LOOKED_AT} updates; of zeros also in other batches",
    fix="look for a detach or stop_gradient on the way to the parameter, or a layer that forward does not use or multiplies by 0",
)
def gradients(subject: RunSubject) -> Outcome:
    if (reason := _ran(subject)) is not None:
        return reason
    seen = subject.gradients | subject.late
    zero = f"0 everywhere, in {1 + subject.others} batches"
    where = [f"{name}: {zero if name in seen else 'none'}" for name in subject.silent]
    where += [f"{name}: frozen by no setting" for name in subject.unmeant]
    frozen = len(subject.engine.parameters(subject.run.model)) - len(subject.trainable)
    late = sum(not subject.gradients.get(name) for name in subject.trainable)
    asleep = f"; {late} of them not in the first batch, where an activation gives zero alone" if late else ""
    said = f"{len(subject.trainable)} parameters have one{asleep}; {frozen} are frozen"
    return judged(where, f"{len(where)} parameters get none", said)


@check(
    "check.moved",
    "002 cg.02",
    "004 optimizer",
    "001 training 4",
    measures=f"which parameters {LOOKED_AT} updates move",
    fix="give the optimizer every parameter that is to be trained, after the model has its last layer, and none that is frozen",
)
def moved(subject: RunSubject) -> Outcome:
    if not subject.after:
        return not_applicable("no three updates were made")
    still = {name for name, array in subject.before.items() if np.array_equal(array, subject.after[name])}
    where = [
        f"{name}: has a gradient and does not move" for name in subject.trainable if name in still and subject.gradients.get(name)
    ]
    parameters = set(subject.engine.parameters(subject.run.model))
    frozen = parameters - set(subject.trainable)
    where += [f"{name}: is frozen and moves" for name in sorted(frozen - still)]
    if subject.config.freeze_bn:
        where += [
            f"{name}: BatchNorm is frozen and this moves" for name in subject.before if is_statistic(name) and name not in still
        ]
    return judged(where, f"{len(where)} parameters", f"{len(subject.trainable)} move as they should")


@check(
    "check.modes",
    "002 api.02",
    "001 module 1",
    measures="the mode of every module in training and in evaluation",
    fix="call train() before training and eval() before evaluation on the whole model; frozen BatchNorm stays in evaluation",
)
def modes(subject: RunSubject) -> Outcome:
    if (reason := _ran(subject)) is not None:
        return reason
    return judged(subject.wrong_modes, f"{len(subject.wrong_modes)} modules", "every module is in the mode that it should be in")


@check(
    "check.batch_independence",
    "002 api.02",
    "001 module 1",
    measures="the output of one picture in evaluation, alone and in its batch",
    fix="in evaluation, BatchNorm must use its running statistics, and no layer may mix the pictures of a batch",
)
def batch_independence(subject: RunSubject) -> Outcome:
    if (reason := _ran(subject)) is not None:
        return reason
    if len(subject.images) < 2:
        return not_applicable("a batch has one picture")
    said = f"relative difference {subject.apart:.1e}"
    return nothing(said) if subject.apart <= 1e-3 else found(said, ["the model's output"])


@check(
    "check.overfit",
    "004 training",
    "000 step 10",
    measures=f"the loss of one batch after {UPDATES} updates on it at the full learning rate",
    fix="a batch that cannot be learnt by heart means a wrong loss, labels, gradients, frozen layers, or a learning rate far off",
)
def overfit(subject: RunSubject) -> Outcome:
    if (reason := _taught(subject)) is not None:
        return reason
    if subject.config.amp_level != "O0":
        return not_applicable("the loss scale moves in mixed precision: --amp-level O0")
    floor = subject.floor
    said = f"loss {subject.losses[0]:.3f}, then {subject.losses[-1]:.3f}" + (f", at best {floor:.3f}" if floor > 0.01 else "")
    if subject.learnt_at is not None:
        does = "the loss rises" if subject.rises else "the batch is not learnt"
        factor = subject.base_rate / subject.learnt_at
        other = f"{factor:.0f} times lower" if factor > 1 else f"{1 / factor:.0f} times higher"
        words = f"at {subject.base_rate:.3g} {does}; at {subject.learnt_at:.3g}, {other}, the batch is learnt"
        return found(f"{said}: {words}", ["learning rate"])
    if not np.isfinite(subject.losses[-1]):
        return found(f"{said}: it diverges", ["learning rate"])
    return nothing(said) if subject.learnt else found(said, ["the first batch"])
