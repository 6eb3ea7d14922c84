"""A typed config from a YAML recipe and command-line flags; an unknown key or a wrong type is an error."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import os
import re
import sys
import textwrap
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from mobilenetv3_common.called import CHECKOUT, as_called
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.other_spellings import translated
from mobilenetv3_common.yaml_file import read_yaml, value_of

Config = TypeVar("Config")


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Help as wide as the terminal, with every default: paragraphs are wrapped, indented lines stay as they are.

    The usage names what is needed alone; the other flags are listed below it, in their groups.
    """

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = None) -> None:
        needed = [action for action in actions if action.required or not action.option_strings]
        if usage is None and len(needed) < len(actions):
            words = ["%(prog)s [options]"]
            for action in sorted(needed, key=lambda action: not action.option_strings):
                default = action.dest.upper() if action.option_strings else action.dest
                words.append(" ".join([*action.option_strings[:1], self._format_args(action, default)]))
            usage = f"\n{'':{len('usage: ') + 4}}".join(_in_lines(words, self._width - len("usage: ") - len(self._prog)))
        super().add_usage(usage, actions, groups, prefix)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = re.split(r"\n\s*\n", text.strip("\n"))
        return "\n\n".join("\n".join(_wrapped(block, width, indent)) for block in blocks)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        given = action.help or ""
        if "default" in given or action.default in (None, False, []):
            return given
        return super()._get_help_string(action)


def _in_lines(words: list[str], room: int) -> list[str]:
    """Words on one line where there is room beside the command's name (the first of them is its place), else one a line."""
    whole = " ".join(words)
    return [whole] if len(whole) - len("%(prog)s") <= room else words


def _wrapped(block: str, width: int, indent: str) -> list[str]:
    if any(line[:1].isspace() or line.startswith("python ") for line in block.splitlines()):
        return [indent + line for line in block.splitlines()]
    return textwrap.wrap(" ".join(block.split()), width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


RESULTS = ("--output-dir", "--report", "--out")  # flags that say where a command's results go


class Parser(argparse.ArgumentParser):
    """Command-line flags: an error is one line, as all others are, and the help fits the terminal and says every default."""

    def __init__(self, **options: Any) -> None:
        if sys.argv[0].endswith(".py"):
            options.setdefault("prog", f"python {sys.argv[0]}")
        if options.get("description"):
            options["description"] = as_called(options["description"])
        super().__init__(formatter_class=_Help, allow_abbrev=False, **options)
        self.register("type", int, whole)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        known = self._option_string_actions
        switches = [flag for flag, action in known.items() if action.nargs == 0 and flag not in ("-h", "--help")]
        return super().parse_known_args(translated(sys.argv[1:] if args is None else args, known, switches), namespace)

    def error(self, message: str) -> NoReturn:
        wrong = re.match(r"unrecognized arguments: (--[\w-]+)", message)
        flags = self._flags()
        near = difflib.get_close_matches(wrong[1], flags, 1) if wrong else []
        if wrong and not near and wrong[1] in RESULTS:  # another command's word for where the results go
            near = [flag for flag in flags if flag in RESULTS]
        if bounded := re.match(r"argument (?:\S+/)?(--[\w-]+): (must be .*)", message):
            raise UserError(f"{bounded[1]} {bounded[2]}")
        raise UserError(f"{message}{f'; did you mean {near[0]}?' if near else ''} (--help lists the flags)")

    def _flags(self) -> list[str]:
        """Every flag, those of sub-commands too."""
        found = list(self._option_string_actions)
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                found += [flag for one in action.choices.values() for flag in one._flags()]
        return found


def recipe_file(path: str | Path) -> Path:
    """The file of a recipe: the path itself, or, where there is no such file, the project's own recipe of that name.

    ``configs/lite.yaml``, ``lite.yaml`` and ``lite`` name the same one, in any folder and in the installed package.
    """
    given = Path(path)
    if given.exists() or given.parent not in (Path("."), Path("configs")):
        return given
    for folder in (Path(__file__).parent / "configs", CHECKOUT / "configs"):
        if (own := folder / given.with_suffix(".yaml").name).is_file():
            return own
    return given


MOST = 10**18


def whole(value: str | int) -> int:
    """A flag's type, and what a recipe's numbers are held to: a whole number that fits 64 bits."""
    number = int(value)
    if not -MOST <= number <= MOST:
        raise argparse.ArgumentTypeError(f"a whole number of more than 18 digits is too large: at most {MOST:,} is taken")
    return number


def within(least: int, most: int = MOST) -> Callable[[str], int]:
    """A flag's type: a whole number in these bounds, so that a message is about one flag and what it was given."""

    def read(text: str) -> int:
        number = whole(text)
        if not least <= number <= most:
            bounds = f"at least {least}" if most == MOST else f"from {least} to {most:,}"
            raise argparse.ArgumentTypeError(f"must be {bounds}, found {text}")
        return number

    read.__name__ = "int"  # in the message of what is no number
    return read


def read_recipe(path: str | Path, kind: type) -> dict[str, Any]:
    """The settings of a YAML file, checked against the fields of a dataclass.

    Raises:
        UserError: the file cannot be read, a key is unknown, or a value has the wrong type.
    """
    node = read_yaml(recipe_file(path), f"config {path}")
    _refuse_misread(node, f"config {path}")
    settings = value_of(node, f"config {path}")
    if not isinstance(settings, dict):
        raise UserError(f"config {path} must hold 'key: value' lines")
    known = field_types(kind)
    for key, value in settings.items():
        if key not in known:
            close = difflib.get_close_matches(str(key), known, 1)
            raise UserError(f"config {path}: unknown key {key!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
        settings[key] = _typed(value, *known[key], f"config {path}: {key}")
    return settings


def _refuse_misread(node: Any, where: str) -> None:
    """Refuse what YAML reads otherwise than it looks: a key that stands there twice, and numbers that are not decimal.

    Args:
        node: of the document, as ``yaml.compose`` gives it.
        where: begins the message.
    """
    lines: dict[str, int] = {}
    for key, value in getattr(node, "value", ()) if getattr(node, "id", "") == "mapping" else ():
        line, name = key.start_mark.line + 1, str(key.value)
        if name in lines:
            raise UserError(f"{where}:{line}: {name} is set in line {lines[name]} already: remove one of the two")
        lines[name] = line
        number = value.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float") and value.style is None
        if number and re.fullmatch(r"[-+]?(0[\d_]+|0[xXbBoO].*|.*:.*)", value.value):
            raise UserError(f"{where}:{line}: YAML reads {value.value} as no decimal number: write {name} in decimal digits")


def recipe_text(config: Any, header: str) -> str:
    """Every setting of a config as YAML below a comment, so that ``--config`` reads it back."""
    import yaml

    comment = "".join(f"# {line}\n" for line in header.splitlines())
    return comment + yaml.safe_dump(dataclasses.asdict(config), sort_keys=False)


def field_types(kind: type) -> dict[str, tuple[type, bool]]:
    """Field name -> (type, whether None is allowed)."""
    found, hints = {}, typing.get_type_hints(kind)
    for entry in dataclasses.fields(kind):
        hint = hints[entry.name]
        options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        plain = [t for t in options if t is not type(None)]
        found[entry.name] = (plain[0], len(plain) < len(options))
    return found


def title_of(kind: type, name: str) -> str:
    """The heading of a field: the ``TITLE`` of the most basic class that has both; empty where there is none."""
    for base in reversed(kind.__mro__):
        if getattr(base, "TITLE", "") and name in {entry.name for entry in dataclasses.fields(base)}:
            return str(base.TITLE)  # type: ignore[attr-defined]
    return ""


def add_flags(parser: argparse.ArgumentParser, kind: type, only: tuple[str, ...] = ()) -> None:
    """A flag for every field (or those named), absent unless given, below its section's heading; ``--no-x`` turns a switch off."""
    known = field_types(kind)
    groups: dict[str, Any] = {"": parser}
    for entry in dataclasses.fields(kind):
        if only and entry.name not in only:
            continue
        of_type, optional = known[entry.name]
        flag = "--" + entry.name.replace("_", "-")
        text = (entry.metadata["help"] + _default_of(entry.default, entry.metadata["help"])).replace("%", "%%")
        title = title_of(kind, entry.name)
        group = groups[title] if title in groups else groups.setdefault(title, parser.add_argument_group(title))
        if of_type is bool:
            group.add_argument(flag, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=text)
            continue
        choices = entry.metadata["choices"]
        metavar = entry.metadata["metavar"] or (None if choices else {int: "N", float: "X", str: "NAME"}[of_type])
        if choices:
            text += f": {', '.join(choices)}" if entry.metadata["metavar"] else ""
        group.add_argument(
            flag,
            type=_reader(of_type, optional),
            choices=choices or None,
            default=argparse.SUPPRESS,
            metavar=metavar,
            help=text,
        )


def _default_of(value: Any, said: str) -> str:
    """What a flag's help says about its default, where it does not say so itself."""
    if "default" in said or value == "":
        return ""
    words = {None: "none", True: "on", False: "off"}
    return f" (default: {words[value] if value is None or isinstance(value, bool) else value})"


def make_config(kind: type[Config], recipe: str | Path | None, flags: dict[str, Any]) -> Config:
    """Defaults, then the recipe, then the flags.

    Raises:
        UserError: as ``read_recipe``, or the config itself refuses a value.
    """
    settings = read_recipe(recipe, kind) if recipe is not None else {}
    given = {**settings, **flags}
    for entry in dataclasses.fields(kind):  # type: ignore[arg-type]
        value = given.get(entry.name)
        if re.search("DIR|FILE", entry.metadata.get("metavar") or "") and isinstance(value, str) and value.startswith("~"):
            given[entry.name] = os.path.expanduser(value)  # no shell does so behind --data-path= or in a recipe
    config = kind(**given)
    for entry in dataclasses.fields(kind):  # type: ignore[arg-type]
        choices, value = entry.metadata.get("choices"), getattr(config, entry.name)
        if choices and value not in choices:
            raise UserError(f"--{entry.name.replace('_', '-')} must be one of {', '.join(choices)}, found {value!r}")
    return config


def _reader(of_type: type, optional: bool) -> Any:
    def read(text: str) -> Any:
        if optional and text.lower() == "none":
            return None
        return (whole if of_type is int else of_type)(text)

    read.__name__ = of_type.__name__  # argparse: "invalid int value: 'x'"
    return read


def _typed(value: Any, of_type: type, optional: bool, where: str) -> Any:
    if optional and (value is None or (isinstance(value, str) and value.lower() == "none")):  # as on the command line
        return None
    if of_type is float and isinstance(value, str):
        try:  # YAML reads 1e-5 as text: it wants 1.0e-5
            return float(value)
        except ValueError:
            pass
    if of_type in (int, float) and isinstance(value, int):
        try:
            whole(value)
        except argparse.ArgumentTypeError as error:
            raise UserError(f"{where}: {error}") from error
    if of_type is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, of_type) or (of_type is int and isinstance(value, bool)):
        hint = ""
        if of_type is str and not isinstance(value, dict):
            hint = ": write '1,2,3'" if isinstance(value, list) else ": write it in quotes"
        raise UserError(f"{where} must be {'none or ' if optional else ''}{of_type.__name__}, found {value!r}{hint}")
    return value
