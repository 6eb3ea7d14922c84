"""What became of a run: whether it came to its end, whether its numbers and files are sound, and whether it learnt."""

from __future__ import annotations

import math

from alignment_doctor.findings import Outcome, check, found, judged, not_applicable, not_judged, nothing
from alignment_doctor.run.subject import RunFolder
from mobilenetv3_common.checkpoint import BEST_WEIGHTS, LATEST
from mobilenetv3_common.counted import counted
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.run_told import doubts
from mobilenetv3_common.weights import read_state


@check(
    "run.ended",
    "002 hp.02",
    "000 step 10",
    measures="whether the run came to its end",
    fix="go on with --resume auto; the last lines of train.log, or of the terminal, say why it ended: memory, a full disk, a "
    "signal, numbers that are not finite",
)
def ended(run: RunFolder) -> Outcome:
    if run.at_work:
        return not_applicable("the run still goes on")
    if not run.log.settings:
        return not_applicable("another program's log does not say how long its run should be")
    last = [f"last line: {run.last_line}"] if run.last_line else []
    if not run.stands:
        return found(f"there is no {LATEST} that can be read: the run ended before its first checkpoint", last)
    config, epoch, update = run.stands.get("config", {}), run.stands.get("epoch", 0), run.stands.get("update", 0)
    epochs, patience = run.log.settings.get("epochs", config.get("epochs", 0)), config.get("early_stop", 0)
    if run.stands.get("to_evaluate"):
        return found(f"it ended before the evaluation of epoch {epoch}", last)
    if epoch < epochs and not 0 < patience <= run.stands.get("stale", 0):
        return found(f"it ended at update {update}, after {epoch} of {epochs} epochs", last)
    return nothing(f"{epoch} of {epochs} epochs, {counted(update, 'update')}")


@check(
    "run.finite",
    "002 mp.01",
    "000 step 10",
    measures="losses and learning rates of the log that are NaN or infinite",
    fix="lower the learning rate, warm up or clip gradients, and start from a checkpoint before the first of these updates",
)
def finite(run: RunFolder) -> Outcome:
    where = [
        f"update {entry.update}: {name} {value}"
        for entry in run.log.entries
        for name, value in (("loss", entry.loss), ("learning rate", entry.lr))
        if value is not None and not math.isfinite(value)
    ]
    return judged(where, counted(len(where), "figure"), f"every figure of {counted(len(run.log.entries), 'line')} is a number")


@check(
    "run.files",
    "000 step 10",
    measures="whether every checkpoint and file of weights can be read whole",
    fix="copy or download the file again, or remove it and go on from an earlier checkpoint with --resume FILE",
)
def files(run: RunFolder) -> Outcome:
    paths = [*sorted(run.folder.glob("*.safetensors")), *sorted(run.folder.glob(f"{BEST_WEIGHTS}.p*"))]
    where = []
    for path in paths:
        try:
            read_state(path)
        except UserError as error:
            where.append(error.line)
    if not paths:
        return not_applicable("there is no checkpoint")
    return judged(where, f"{len(where)} of {counted(len(paths), 'file')}", f"{counted(len(paths), 'file')} can be read")


@check(
    "run.learning",
    "004 training",
    "002 hp.01",
    "000 step 10",
    measures="top-1 against that of guessing, the course of the loss, and which epoch was the best",
    fix='first what a line above names as the likely cause; then labels and learning rate: the command below at "not run here", '
    "and python tools/lr_find.py",
)
def learning(run: RunFolder) -> Outcome:
    if run.record is None:
        return not_judged("whether it learnt", "there is no evaluation.json, which tools/train.py writes after an evaluation")
    rows = [
        {"epoch": e.epoch, "update": e.update, "loss": e.loss, "top1": e.top1 or 0.0} for e in run.log.entries if e.loss is not None
    ]
    evaluated = [{"epoch": e.epoch, "top1": e.top1} for e in run.log.evaluations]
    config = run.stands.get("config", {})
    seen = config.get("batch_size", 0) * (rows[-1]["update"] or 0) // len({one["epoch"] for one in rows}) if rows else 0
    fresh = 0 if config.get("pretrained") else seen
    said = doubts(rows, evaluated, run.record, run.first_weights, config.get("bn_momentum"), fresh)
    figures = run.record.figures
    told = f"top-1 {figures['top1']:.4f} of {figures['samples']:g} pictures, best after epoch {run.record.epoch}"
    return judged(said, told, told)
