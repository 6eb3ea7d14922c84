"""Names of classes: ImageNet's, a file's, or the numbers; and whether two lists of them are the same."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path

from mobilenetv3_common.class_list import read_class_list
from mobilenetv3_common.errors import UserError

IMAGENET_FILE = Path(__file__).with_name("imagenet_classes.txt")
MAX_CLASSES = 30_000  # ImageNet-21k has 21,841; the confusion matrix of 30,000 takes 7.2 GB


def numbered(first: int, end: int) -> tuple[str, ...]:
    """The names of classes that have none: their numbers, from ``first`` to ``end`` - 1."""
    return tuple(str(number) for number in range(first, end))


def are_numbers(names: Sequence[str]) -> bool:
    """Whether classes have no names but their numbers."""
    return tuple(names) == numbered(0, len(names))


def difference(
    names: Sequence[str], expected: Sequence[str], whose: str, than: str, subset: bool = False, ordered: bool = True
) -> str:
    """Where two lists of class names differ, in words; empty where they do not.

    Args:
        names: of the one.
        expected: of the other.
        whose, than: what the message calls them.
        subset: ``names`` may lack some of ``expected``.
        ordered: the order counts too.
    """

    def some(found: list[str]) -> str:
        shown = ", ".join(repr(name) for name in found[:3])
        return shown if len(found) <= 3 else f"{shown} and {len(found) - 3} more"

    ours, theirs = set(names), set(expected)
    missing = [name for name in expected if name not in ours] if not subset else []
    extra = [name for name in names if name not in theirs]
    said = [f"{whose} lacks class {some(missing)} of {than}"] if missing else []
    said += [f"{whose} has class {some(extra)}, which {than} does not have"] if extra else []
    if not said and ordered and not subset and tuple(names) != tuple(expected):
        first = next(i for i, (one, other) in enumerate(zip(names, expected, strict=True)) if one != other)
        said = [f"class {first} is {names[first]!r} in {whose} and {expected[first]!r} in {than}"]
    plain = {_plain(name): name for name in missing}
    twins = [(name, plain[_plain(name)]) for name in extra if _plain(name) in plain]
    said += [f"{one!a} and {other!a} differ in case, spaces or Unicode form alone" for one, other in twins[:1]]
    return "; ".join(said)


def _plain(name: str) -> str:
    return " ".join(unicodedata.normalize("NFC", name).casefold().split())


def class_names(num_classes: int, path: str | Path | None = None, known: Sequence[str] = ()) -> tuple[str, ...]:
    """A name for each class.

    Args:
        num_classes: of the model.
        path: text file with one name a line; by default ImageNet's names where there are 1000 classes, else the numbers.
        known: the names that the model's own file gives its classes.

    Raises:
        UserError: the file cannot be read, or has another number of names.
    """
    if path is None and num_classes != 1000:
        return numbered(0, num_classes)
    path = Path(path or IMAGENET_FILE)
    names = read_class_list(path, known)
    if len(names) != num_classes:
        raise UserError(f"{path} has {len(names)} class names, but the model has {num_classes} classes")
    return names
