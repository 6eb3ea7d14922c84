"""What moved between two states and what should have."""

from __future__ import annotations

from alignment_doctor.findings import Outcome, check, found, judged, not_applicable, nothing
from alignment_doctor.weights.subject import WeightsSubject


@check(
    "weights.same_model",
    "002 wi.02",
    "004 model",
    measures="names and shapes of the two states",
    fix="compare states of one model; a tensor that is missing was not saved, or is no part of the model any more",
)
def same_model(subject: WeightsSubject) -> Outcome:
    there, here = subject.before.state, subject.after.state
    where = [f"{name}: missing in {subject.after.path.name}" for name in there if name not in here]
    where += [f"{name}: missing in {subject.before.path.name}" for name in here if name not in there]
    where += [f"{n}: {there[n].shape} and {here[n].shape}" for n in there if n in here and there[n].shape != here[n].shape]
    return judged(where, f"{len(where)} tensors differ", f"{len(subject.tensors)} tensors in both")


@check(
    "weights.never_moved",
    "002 cg.02",
    "004 model",
    "000 step 10",
    measures="parameters that are equal to the last bit in both states while others moved",
    fix="give the parameter to the optimizer, and see that a gradient reaches it: no detach on its way, and not frozen",
)
def never_moved(subject: WeightsSubject) -> Outcome:
    still = [tensor.name for tensor in subject.trained if not tensor.moved]
    if subject.before.update is not None and subject.before.update == subject.after.update and len(still) == len(subject.trained):
        return not_applicable(f"both are of update {subject.after.update}")
    frozen = len(subject.parameters) - len(subject.trained)
    said = f"{len(subject.trained)} parameters moved" + (
        f"; {frozen} of BatchNorm are frozen by the run's settings" if frozen else ""
    )
    if len(still) == len(subject.trained):
        return found("no parameter moved at all", still)
    return judged(still, f"{len(still)} of {len(subject.trained)} parameters did not move", said)


@check(
    "weights.frozen_moved",
    "002 cg.02",
    "004 model",
    measures="BatchNorm of a run whose settings freeze it",
    fix="set BatchNorm to evaluation mode and its parameters to no gradient, after every call of train()",
)
def frozen_moved(subject: WeightsSubject) -> Outcome:
    if not (subject.before.freezes_norm and subject.after.freezes_norm):
        return not_applicable("the settings of the two runs freeze nothing")
    where = [t.name for t in subject.tensors if t.name.rpartition(".")[0] in subject.norm_layers and t.moved]
    return judged(where, f"{len(where)} tensors moved", "BatchNorm kept its weights and statistics")


@check(
    "weights.statistics",
    "002 api.02",
    "001 module 1",
    measures="running statistics of BatchNorm that are equal in both states while parameters moved",
    fix="train in training mode: in evaluation mode BatchNorm's statistics do not follow",
)
def statistics(subject: WeightsSubject) -> Outcome:
    if subject.before.freezes_norm or subject.after.freezes_norm:
        return not_applicable("the run's settings freeze BatchNorm")
    if not subject.statistics or not any(tensor.moved for tensor in subject.parameters):
        return not_applicable("there are no running statistics, or no parameter moved")
    where = [tensor.name for tensor in subject.statistics if not tensor.moved]
    return judged(where, f"{len(where)} of {len(subject.statistics)} did not move", f"{len(subject.statistics)} statistics moved")


@check(
    "weights.order_of_states",
    "000 step 10",
    measures="which of two checkpoints of a run is the later one",
    fix="give the earlier checkpoint first: growth and shrinking are told from the first to the second",
)
def order(subject: WeightsSubject) -> Outcome:
    before, after = subject.before.update, subject.after.update
    if before is None or after is None:
        return not_applicable("a file does not say of which update it is")
    return (
        found(f"the first is of update {before}, the second of {after}") if before > after else nothing(f"{before}, then {after}")
    )
