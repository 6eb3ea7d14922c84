"""A map of names: a YAML file that says which module, and which tensor, of the port is which of the reference."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alignment.models.links import Link
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.yaml_file import read_yaml

TENSORS = "tensors"  # under which the links between tensors stand
FLAGS = ("transposed", "added", "channels_last", "columns")
HEADER = (
    "# port path: reference path, of modules and of all that lies in them.\n"
    "# Edit it and give it back with --names: it is then strict.\n"
)
TENSORS_HEADER = (
    "# Tensors that the two sides hold otherwise. Where one side has several names, they lie in the one tensor of the other side\n"
    "# in this order, one behind another, or so within each of so many equal groups of rows (groups: one a head). Where it has an\n"
    "# axis more than each of them, they are its places on the first axis.\n"
    "# added: the two of one side are added up; transposed: the one tensor lies transposed; channels_last: a linear layer\n"
    "# on patches holds the kernels of a convolution, the channels behind height and width; columns: they lie side by side.\n"
    "# layout: how the axes of the one tensor become those of the other, or of the several ones, as einops writes it.\n"
)


@dataclass(frozen=True)
class NameMap:
    """What a person, or an audit, says of the names of two models.

    Attributes:
        modules: port path -> reference path, of modules or whole prefixes.
        links: between tensors.
    """

    modules: Mapping[str, str] = field(default_factory=dict)
    links: tuple[Link, ...] = ()

    def text(self) -> str:
        """As YAML that ``read_map`` reads."""
        lines = [HEADER, *(f"{json.dumps(own)}: {json.dumps(path)}\n" for own, path in self.modules.items())]
        if self.links:
            lines += [TENSORS_HEADER, f"{TENSORS}:\n"]
        for link in self.links:
            for lead, side, names in (("- ", "port", link.port), ("  ", "reference", link.reference)):
                shown = json.dumps(names[0]) if len(names) == 1 else f"[{', '.join(map(json.dumps, names))}]"
                lines.append(f"{lead}{side}: {shown}\n")
            lines += [f"  groups: {link.groups}\n"] if link.groups != 1 else []
            lines += [f"  {flag}: true\n" for flag in FLAGS if getattr(link, flag)]
            lines += [f"  layout: {json.dumps(link.layout)}\n"] if link.layout else []
        return "".join(lines)


def read_map(path: str | Path) -> NameMap:
    """A YAML file of lines ``port path: reference path``, and links between tensors under ``tensors``; numbers are names, too.

    Raises:
        UserError: the file cannot be read, is no mapping of names, names one module twice, or says of a tensor what is unknown.
    """
    import yaml

    node = read_yaml(path, f"--names {path}")
    if not isinstance(node, yaml.MappingNode) or not node.value:
        raise UserError(f"--names {path} must hold 'port path: reference path' lines")
    names: dict[str, str] = {}
    links: list[Link] = []
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value == TENSORS and isinstance(value, yaml.SequenceNode):
            links += [_link(path, one) for one in value.value]
            continue
        for one in (key, value):
            if not isinstance(one, yaml.ScalarNode) or not one.value or one.tag == "tag:yaml.org,2002:null":
                raise UserError(f"--names {path}, line {one.start_mark.line + 1}: expected 'port path: reference path'")
        if key.value in names:
            raise UserError(f"--names {path}: {key.value} of the port is named twice")
        names[key.value] = value.value
    return NameMap(names, tuple(links))


def _link(path: str | Path, node: Any) -> Link:
    """One entry of ``tensors``."""
    import yaml

    where = f"--names {path}, line {node.start_mark.line + 1}"
    if not isinstance(node, yaml.MappingNode):
        raise UserError(f"{where}: expected 'port: NAME or [NAMES]' and 'reference: NAME or [NAMES]'")
    said: dict[str, Any] = {}
    for key, value in node.value:
        every = value.value if isinstance(value, yaml.SequenceNode) else [value]
        if (
            not isinstance(key, yaml.ScalarNode)
            or not all(isinstance(one, yaml.ScalarNode) and one.value for one in every)
            or not every
        ):
            raise UserError(f"{where}: expected names, numbers, true or false")
        if key.value in said:
            raise UserError(f"{where}: {key.value} stands there twice")
        said[key.value] = tuple(one.value for one in every)
    if missing := {"port", "reference"} - said.keys():
        raise UserError(f"{where}: a tensor needs port and reference; {' and '.join(sorted(missing))} is missing")
    known = ("port", "reference", "groups", *FLAGS, "layout")
    if unknown := said.keys() - set(known):
        raise UserError(f"{where}: unknown {', '.join(sorted(unknown))}; known are {', '.join(known)}")
    groups, flags = said.get("groups", ("1",)), [said.get(flag, ("false",)) for flag in FLAGS]
    if len(groups) != 1 or not groups[0].isdigit() or groups[0] == "0":
        raise UserError(f"{where}: groups must be a number from 1, found {', '.join(groups)}")
    for flag in flags:
        if flag not in (("true",), ("false",)):
            raise UserError(f"{where}: expected true or false, found {', '.join(flag)}")
    layout = said.get("layout", ("",))
    if len(layout) != 1:
        raise UserError(f"{where}: layout must be one text, such as 'tap in out -> out in tap'")
    set_flags = dict(zip(FLAGS, (flag == ("true",) for flag in flags), strict=True))
    return Link(said["port"], said["reference"], int(groups[0]), layout=layout[0], **set_flags)


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
