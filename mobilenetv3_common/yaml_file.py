"""YAML files of anybody's, read in time and memory that are bounded: few lines of aliases may stand for billions of values."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import refuse_special
from mobilenetv3_common.growth import written_out

if TYPE_CHECKING:
    import yaml

LONGEST = 1 << 18  # characters; PyYAML takes up to five seconds for them, and a device has no end
MOST_VALUES = 50_000  # with every alias written out


def read_yaml(path: str | os.PathLike, what: str) -> yaml.Node | None:
    """The nodes of a YAML file; None where it is empty.

    Args:
        path: of the file.
        what: how it is called in an error, as ``config lite.yaml``.

    Raises:
        UserError: the file cannot be read, is too long, is not YAML, or its aliases stand for too much, or for themselves.
    """
    import yaml

    refuse_special(path)
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(LONGEST + 1)
        if len(text) > LONGEST:
            raise UserError(f"{what} is longer than {LONGEST} characters: it is no file of settings")
        node = yaml.compose(text, yaml.SafeLoader)
        if node is not None and written_out(node, _parts, MOST_VALUES) > MOST_VALUES:
            raise UserError(f"{what} stands for more than {MOST_VALUES} values, with its aliases (*name) written out: shorten it")
        return node
    except UnicodeDecodeError as error:
        raise UserError(f"cannot read {what}: {error}") from error
    except OSError as error:
        raise UserError(f"cannot read {what}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise UserError(f"{what} is not YAML: {' '.join(str(error).split())}") from error
    except (RecursionError, ValueError, OverflowError) as error:
        raise UserError(f"{what} holds a value that cannot be read: {type(error).__name__}: {error}") from error


def value_of(node: yaml.Node | None, what: str) -> Any:
    """What a node stands for: dicts, lists and plain values; None for None.

    Args:
        node: of ``read_yaml``.
        what: as there.

    Raises:
        UserError: a value cannot be made, such as a date that there is not.
    """
    import yaml

    if node is None:
        return None
    try:
        return yaml.SafeLoader("").construct_document(node)
    except yaml.YAMLError as error:
        raise UserError(f"{what} is not YAML: {' '.join(str(error).split())}") from error
    except (RecursionError, ValueError, OverflowError, AttributeError, TypeError) as error:
        raise UserError(f"{what} holds a value that cannot be read: {type(error).__name__}: {error}") from error


def _parts(node: yaml.Node) -> list[yaml.Node]:
    inside = node.value if isinstance(node.value, list) else []
    return [part for item in inside for part in (item if isinstance(item, tuple) else (item,))]
