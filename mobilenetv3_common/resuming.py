"""Going on from a checkpoint: with its classes only; and as the same run, on the same pictures, from a possible place."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np

from mobilenetv3_common.checkpoint import Checkpoint, checkpoint_classes
from mobilenetv3_common.class_names import are_numbers, difference
from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.train_config import WHOLE_RUN, TrainConfig, flag_of

# What a run may change when it goes on from a checkpoint; everything else would make it another run.
_FREE_ON_RESUME = (
    "data_path", "pretrained", "checkpoint_weights", "reset_classifier", "workers", "batch_size", "device", "threads", "output_dir",
    "resume",
    "print_every", "save_every", "keep", "eval_every", "check_every", "on_bad_image", "num_classes", "match_classes", "new_data",
    "check_data", "rank_timeout", "picture_cache", "picture_cache_gb", "keep_best", "early_stop", "eval_raw",
    "teacher", "strict_classes", "roll_back", "roll_back_factor", "grad_checkpointing", "deterministic", "log_to",
)  # fmt: skip


def refuse_damaged(checkpoint: Checkpoint, schedule: type, source: str) -> None:
    """Refuse a checkpoint that holds what no run writes: tensors that are not finite numbers, and values of other kinds.

    Args:
        checkpoint: as it was read.
        schedule: what the framework's state of a schedule is.
        source: names the checkpoint in the message.

    Raises:
        UserError: naming the tensor or the value.
    """
    again = "resume from another one in its folder"
    for name, array in checkpoint.arrays.items():
        if array.dtype.kind != "f" or not np.isfinite(array).all():
            raise UserError(f"checkpoint {source} is damaged: tensor {name} holds no finite numbers: {again}")
    meta = checkpoint.meta
    sound = {
        **{key: _is_count(meta.get(key, 0)) for key in ("rollbacks", "stale")},
        "rate_factor": _is_number(meta.get("rate_factor", 1.0)) and 0 < meta.get("rate_factor", 1.0) <= 1,
        **{key: isinstance(meta.get(key, {}), dict) for key in ("config", "scaler", "data")},
        "schedule": "schedule" not in meta or isinstance(meta["schedule"], schedule),
        "classes": isinstance(meta.get("classes", []), list),
    }
    for key, holds in sound.items():
        if not holds:
            raise UserError(f"checkpoint {source} is damaged: its {key} is {str(meta[key])[:80]}: {again}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10**9


def refuse_other_run(meta: dict[str, Any], config: TrainConfig, framework: str, global_batch: int, source: str) -> None:
    """Refuse a checkpoint that the run cannot go on from.

    Args:
        meta: the checkpoint's.
        config: of the run now.
        framework: ``"paddle"`` or ``"ref"``.
        global_batch: pictures a forward pass of all ranks; the number of ranks may change, this may not.
        source: names the checkpoint in the message.

    Raises:
        UserError: naming every setting that differs.
    """
    defaults = {f.name: f.default for f in fields(config)}  # of settings that are younger than the checkpoint
    try:
        then, batch, of = defaults | dict(meta["config"]), meta["global_batch"], meta["framework"]
        for key in ("epoch", "iteration", "update", "best", "skipped", "schedule", "scaler", "classes"):
            meta[key]
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"checkpoint {source} lacks {error}: it was not written by tools/train.py") from error
    if of != framework:
        raise UserError(f"checkpoint {source} is from --framework {of}: give its weights as --pretrained instead")
    now = {f.name: getattr(config, f.name) for f in fields(config)}
    then = {f.name: f.default for f in fields(config)} | then  # one from before a setting was there had its default
    other = [k for k in now if k not in _FREE_ON_RESUME and then[k] != now[k]]
    if "epochs" in other and config.lr_schedule not in WHOLE_RUN and not config.mix_off_epochs:
        other.remove("epochs")
    differing = [f"{flag_of(k)} {then[k]} there, {now[k]} here" for k in other]
    if batch != global_batch:
        differing.append(f"{batch} pictures a forward pass of all ranks there, {global_batch} here")
    if differing:
        raise UserError(
            f"checkpoint {source} is of another run ({'; '.join(differing)}): "
            "repeat its settings, or begin a new run with its weights as --pretrained"
        )


def refuse_other_data(
    meta: dict[str, Any], config: TrainConfig, classes: tuple[str, ...], digests: dict[str, str], source: str
) -> None:
    """Refuse a checkpoint of other classes or other pictures.

    Args:
        meta: the checkpoint's.
        config: of the run now; ``match_classes`` and ``new_data`` allow other names and other pictures.
        classes: of the training pictures now.
        digests: split -> ``DatasetIndex.digest`` now.
        source: names the checkpoint in the message.

    Raises:
        UserError: naming what differs and the switch.
    """
    then = tuple(str(name) for name in meta["classes"])
    if config.match_classes != "position" and (said := difference(classes, then, config.data_path, f"checkpoint {source}")):
        raise UserError(f"{said}: resume with the run's own --data-path, or begin a new run with its weights as --pretrained")
    other = [split for split, digest in digests.items() if meta.get("data", digests).get(split) != digest]
    if other and not config.new_data:
        raise UserError(
            f"checkpoint {source} is of a run on other pictures: the {' and '.join(other)} split of {config.data_path} has other "
            "files or labels; resume with the run's own --data-path, or give --new-data to go on with these"
        )


def refuse_other_teacher(meta: dict[str, Any], teacher: str | None, digest: str | None, source: str) -> None:
    """Refuse a checkpoint whose run learnt from another teacher; the file may have moved.

    Args:
        meta: the checkpoint's.
        teacher: the run's file now.
        digest: of that file.
        source: names the checkpoint in the message.

    Raises:
        UserError: naming the flag.
    """
    then = meta.get("teacher")
    if then != digest:
        said = (
            "had no teacher" if then is None else "had a teacher" if digest is None else f"learnt from other weights than {teacher}"
        )
        raise UserError(f"checkpoint {source} is of a run that {said}: resume with the run's own --teacher")


def refuse_other_classes(weights: str, index: DatasetIndex, match: str) -> None:
    """Refuse weights to begin from whose last layer gives other classes than the data's; only a checkpoint carries names.

    Raises:
        UserError: naming the class.
    """
    known = checkpoint_classes(weights)
    if known is None or match == "position" or not (said := difference(index.classes, known, str(index.source), weights)):
        return
    numbers = not index.named or are_numbers(known)
    hint = "; --match-classes position compares no names" if numbers and len(known) == index.num_classes else ""
    raise UserError(f"{said}: give --reset-classifier to begin with a fresh last layer{hint}")


def refuse_impossible_place(meta: dict[str, Any], config: TrainConfig, updates_per_epoch: int, source: str) -> None:
    """Refuse a checkpoint whose place no run of this config can have.

    Args:
        meta: the checkpoint's.
        config: of the run now.
        updates_per_epoch: of the run now.
        source: names the checkpoint in the message.

    Raises:
        UserError: an epoch, iteration, update or best accuracy that cannot be.
    """
    whole = all(isinstance(meta[k], int) and not isinstance(meta[k], bool) and meta[k] >= 0 for k in _COUNTS)
    best = meta["best"]
    known = isinstance(best, int | float) and math.isfinite(best) and (best == -1 or 0 <= best <= 1)
    if whole and known and meta["epoch"] > config.epochs:
        raise UserError(f"checkpoint {source} is of epoch {meta['epoch']}: --epochs {config.epochs} is less, and the run is over")
    inside = whole and known and meta["iteration"] <= updates_per_epoch
    if not inside or (not config.new_data and meta["update"] != meta["epoch"] * updates_per_epoch + meta["iteration"]):
        found = ", ".join(f"{name} {meta[name]!r}" for name in (*_COUNTS, "best"))
        raise UserError(
            f"checkpoint {source} stands at {found}, which a run of {config.epochs} epochs of {updates_per_epoch} updates cannot: "
            "resume from another checkpoint, or begin anew with its weights as --pretrained"
        )


_COUNTS = ("epoch", "iteration", "update", "skipped")
