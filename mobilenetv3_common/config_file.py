"""A typed config from a YAML recipe and command-line flags; an unknown key or a wrong type is an error."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import types
import typing
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from mobilenetv3_common.errors import UserError

Config = TypeVar("Config")


class Parser(argparse.ArgumentParser):
    """Command-line flags whose errors are one line, as all others are; the description keeps its line breaks."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (--help lists the flags)")


def read_recipe(path: str | Path, kind: type) -> dict[str, Any]:
    """The settings of a YAML file, checked against the fields of a dataclass.

    Raises:
        UserError: the file cannot be read, a key is unknown, or a value has the wrong type.
    """
    import yaml

    try:
        settings = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (RecursionError, ValueError, OverflowError) as error:
        if isinstance(error, UnicodeDecodeError):
            raise UserError(f"cannot read config {path}: {error}") from error
        raise UserError(f"config {path} holds a value that cannot be read: {type(error).__name__}: {error}") from error
    except OSError as error:
        raise UserError(f"cannot read config {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise UserError(f"config {path} is not YAML: {error}") from error
    if not isinstance(settings, dict):
        raise UserError(f"config {path} must hold 'key: value' lines")
    known = field_types(kind)
    for key, value in settings.items():
        if key not in known:
            close = difflib.get_close_matches(str(key), known, 1)
            raise UserError(f"config {path}: unknown key {key!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
        settings[key] = _typed(value, *known[key], f"config {path}: {key}")
    return settings


def recipe_text(config: Any, header: str) -> str:
    """Every setting of a config as YAML below a comment, so that ``--config`` reads it back."""
    import yaml

    comment = "".join(f"# {line}\n" for line in header.splitlines())
    return comment + yaml.safe_dump(dataclasses.asdict(config), sort_keys=False)


def field_types(kind: type) -> dict[str, tuple[type, bool]]:
    """Field name -> (type, whether None is allowed)."""
    found = {}
    for name, hint in typing.get_type_hints(kind).items():
        options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        plain = [t for t in options if t is not type(None)]
        found[name] = (plain[0], len(plain) < len(options))
    return found


def add_flags(parser: argparse.ArgumentParser, kind: type, only: tuple[str, ...] = ()) -> None:
    """A flag for every field (or those named), absent unless given; ``--no-x`` turns a switch off."""
    known = field_types(kind)
    for entry in dataclasses.fields(kind):
        if only and entry.name not in only:
            continue
        of_type, optional = known[entry.name]
        flag = "--" + entry.name.replace("_", "-")
        default = "" if entry.default in (None, "") else f" (default: {entry.default})"
        text = entry.metadata["help"].replace("%", "%%") + default
        if of_type is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=text)
            continue
        choices = entry.metadata["choices"]
        metavar = entry.metadata["metavar"] or (None if choices else {int: "N", float: "X", str: "NAME"}[of_type])
        if choices:
            text += f": {', '.join(choices)}" if entry.metadata["metavar"] else ""
        parser.add_argument(
            flag,
            type=_reader(of_type, optional),
            choices=choices or None,
            default=argparse.SUPPRESS,
            metavar=metavar,
            help=text,
        )


def make_config(kind: type[Config], recipe: str | Path | None, flags: dict[str, Any]) -> Config:
    """Defaults, then the recipe, then the flags.

    Raises:
        UserError: as ``read_recipe``, or the config itself refuses a value.
    """
    settings = read_recipe(recipe, kind) if recipe is not None else {}
    config = kind(**{**settings, **flags})
    for entry in dataclasses.fields(kind):  # type: ignore[arg-type]
        choices, value = entry.metadata.get("choices"), getattr(config, entry.name)
        if choices and value not in choices:
            raise UserError(f"--{entry.name.replace('_', '-')} must be one of {', '.join(choices)}, found {value!r}")
    return config


def _reader(of_type: type, optional: bool) -> Any:
    def read(text: str) -> Any:
        if optional and text.lower() == "none":
            return None
        return of_type(text)

    read.__name__ = of_type.__name__  # argparse: "invalid int value: 'x'"
    return read


def _typed(value: Any, of_type: type, optional: bool, where: str) -> Any:
    if value is None and optional:
        return None
    if of_type is float and isinstance(value, str):
        try:  # YAML reads 1e-5 as text: it wants 1.0e-5
            return float(value)
        except ValueError:
            pass
    if of_type is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, of_type) or (of_type is int and isinstance(value, bool)):
        raise UserError(f"{where} must be {'none or ' if optional else ''}{of_type.__name__}, found {value!r}")
    return value
