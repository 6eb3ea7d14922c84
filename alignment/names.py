"""A person's own map of names: a YAML file that says which module of the port is which of the reference."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from pathlib import Path

from mobilenetv3_common.errors import UserError


def read_names(path: str | Path) -> dict[str, str]:
    """The entries ``port path: reference path`` of a YAML file, of modules or whole prefixes; numbers are names, too.

    Raises:
        UserError: the file cannot be read, is no mapping of names, or names one module twice.
    """
    import yaml

    try:
        node = yaml.compose(Path(path).read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read --names {path}: {getattr(error, 'strerror', None) or error}") from error
    except yaml.YAMLError as error:
        raise UserError(f"--names {path} is not YAML: {error}") from error
    if not isinstance(node, yaml.MappingNode) or not node.value:
        raise UserError(f"--names {path} must hold 'port path: reference path' lines")
    names: dict[str, str] = {}
    for key, value in node.value:
        for one in (key, value):
            if not isinstance(one, yaml.ScalarNode) or not one.value or one.tag == "tag:yaml.org,2002:null":
                raise UserError(f"--names {path}, line {one.start_mark.line + 1}: expected 'port path: reference path'")
        if key.value in names:
            raise UserError(f"--names {path}: {key.value} of the port is named twice")
        names[key.value] = value.value
    return names


def check_names(names: Mapping[str, str], port: Collection[str] | None, reference: Collection[str]) -> None:
    """See that a map names modules that are there, each once.

    Args:
        names: port path -> reference path.
        port: paths of the port's modules; None where it cannot be built.
        reference: paths of the reference's modules.

    Raises:
        UserError: an entry names no module, or one of the reference twice.
    """
    seen: dict[str, str] = {}
    for own, other in names.items():
        for side, path, known in (("port", own, port), ("reference", other, reference)):
            if known is not None and path not in known:
                near = difflib.get_close_matches(path, [str(one) for one in known], 1)
                raise UserError(f"--names: the {side} has no module {path!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        if other in seen:
            raise UserError(f"--names: {seen[other]} and {own} of the port are both called {other}")
        seen[other] = own
