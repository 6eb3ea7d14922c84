"""Evaluation as trained: what a checkpoint says of its network and pictures holds, unless a flag says otherwise."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from mobilenetv3_common.checkpoint import checkpoint_meta
from mobilenetv3_common.config_file import field_types
from mobilenetv3_common.dataset_index import has_split
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.train_config import TrainConfig, flag_of

AS_TRAINED = ("model", "width_mult", "resize_size", "crop_size", "mean", "std", "image_backend")
Config = TypeVar("Config", bound=TrainConfig)


def without_trained(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Flags but for those that ``as_trained`` puts in: a size is held against the checkpoint's other sizes, not the defaults'."""
    return {name: value for name, value in flags.items() if name not in AS_TRAINED or name == "model"}


def as_trained(config: Config, flags: Mapping[str, Any]) -> tuple[Config, str]:
    """A config of an evaluation with the settings under which ``config.pretrained`` was trained.

    A checkpoint carries them, other weights do not. Where the data path has no validation pictures, and the run held a share of
    its pictures out, that share is evaluated.

    Args:
        config: of the evaluation.
        flags: settings that were given as flags; they win, whether the config has them or not.

    Returns:
        The config, and what differs from the recipe or the defaults, in one line; empty where nothing does.

    Raises:
        UserError: the checkpoint's settings cannot be meant, or do not go together with the flags.
    """
    then = checkpoint_meta(config.pretrained).get("config") if config.pretrained else None
    over = {name: value for name, value in flags.items() if name in AS_TRAINED}
    if not isinstance(then, dict):
        return dataclasses.replace(config, **over), ""
    known = field_types(type(config))
    wanted = {name: then[name] for name in AS_TRAINED if name in then and name in known}
    for name, value in wanted.items():
        of_type, optional = known[name]
        if optional and value is None:
            continue
        if not isinstance(value, (int, float) if of_type is float else of_type) or isinstance(value, bool):
            raise UserError(f"checkpoint {config.pretrained} is damaged: its {name} is {str(value)[:80]}: take another one")
    if _held_out(config, then):
        wanted |= {"val_share": then["val_share"], "seed": then.get("seed", config.seed)}
    taken = {name: value for name, value in wanted.items() if name not in flags and getattr(config, name) != value}
    kept = {name: value for name, value in wanted.items() if name in flags and flags[name] != value}
    said = [f"{', '.join(f'{name} {value}' for name, value in taken.items())} as in training"] if taken else []
    said += [f"{flag_of(name)} {flags[name]} in place of training's {value}" for name, value in kept.items()]
    made = dataclasses.replace(config, **(taken | over))
    return made, f"{config.pretrained}: {'; '.join(said)}" if said else ""


def _held_out(config: TrainConfig, then: dict) -> bool:
    """Whether the pictures to evaluate are those that the run held out."""
    share, root = then.get("val_share"), Path(config.data_path)
    return isinstance(share, float) and type(then.get("seed", 0)) is int and root.is_dir() and not has_split(root, "val")
