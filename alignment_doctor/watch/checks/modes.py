"""Training and evaluation mode, and what evaluation does to the model."""

from __future__ import annotations

from alignment_doctor.findings import Outcome, check, found, judged, not_applicable, nothing
from alignment_doctor.watch.look import Seen

APART = 1e-3  # relative difference of two passes over the same pictures


@check(
    "watch.evaluation_mode",
    "002 api.02",
    "001 module 1",
    "004 model",
    measures="normalisation and dropout layers in the forward pass of an update",
    fix="call model.train() before the updates, and again after each evaluation",
)
def evaluation_mode(seen: Seen) -> Outcome:
    modes = {name: on for name, on in seen.look.modes.items() if name}
    if not modes:
        return not_applicable("no layer that computes otherwise in evaluation was seen")
    off = [n for n, on in modes.items() if not on and not seen.settings.is_frozen(n) and not seen.settings.is_frozen(f"{n}.weight")]
    off = [n for n in off if n not in seen.look.left_in_evaluation]
    trained = {n for look in seen.looks for n, on in look.modes.items() if on}
    ceased = [n for n in off if n in trained]
    if ceased:
        return found(f"{len(ceased)} layers train in evaluation mode, though they did not before", ceased)
    if off and not seen.look.modes.get("", True):
        return found(f"the model trains in evaluation mode: {len(off)} layers", off)
    return nothing(f"{sum(modes.values())} of {len(modes)} layers in training mode")


@check(
    "watch.training_mode",
    "002 api.02",
    "001 module 1",
    "004 model",
    measures="normalisation and dropout layers during an evaluation",
    fix="call model.eval() before the evaluation",
)
def training_mode(seen: Seen) -> Outcome:
    if seen.evaluation is None:
        return not_applicable("no evaluation was seen")
    where = seen.evaluation.training
    return judged(where, f"{len(where)} layers are in training mode during the evaluation", "evaluated in evaluation mode")


@check(
    "watch.random_evaluation",
    "002 api.02",
    "004 model",
    measures="two forward passes over the same pictures of an evaluation",
    fix="give functional dropout the model's mode: dropout(x, p, training=self.training); look for other random numbers in forward",
)
def random_evaluation(seen: Seen) -> Outcome:
    if seen.evaluation is None or seen.evaluation.apart is None:
        return not_applicable("no evaluation in evaluation mode was seen")
    said = f"they differ by {seen.evaluation.apart:.1e}, relative"
    if seen.evaluation.apart <= APART:
        return nothing(said)
    if not seen.evaluation.drops:
        return nothing(f"{said}, by random numbers that are no dropout's")
    return found(f"the outputs are random in evaluation, dropout is active: {said}", ["the model's output"])


@check(
    "watch.changed_by_evaluation",
    "002 api.02",
    "001 module 1",
    measures="weights and statistics before and after an evaluation",
    fix="evaluate in evaluation mode; put the model's own weights back where the evaluation had averaged ones",
)
def changed_by_evaluation(seen: Seen) -> Outcome:
    if seen.evaluation is None:
        return not_applicable("no evaluation was seen")
    where = seen.evaluation.changed
    return judged(where, f"the evaluation changed {len(where)} tensors", "the evaluation changed nothing")
