"""What a section of a training run's settings is: fields with a help text, a range and checks of its own."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.ranges import Range

COUNT, SWITCHABLE, SHARE, BELOW_ONE = "[1, 1e9]", "[0, 1e9]", "[0, 1]", "[0, 1)"


def option(
    default: Any,
    help: str,
    choices: tuple[str, ...] = (),
    metavar: str | None = None,
    within: str | None = None,
    **more: Any,
) -> Any:
    """A field of a section.

    Args:
        default: where neither a recipe nor a flag gives it.
        help: what its command-line flag says.
        choices: the values that it may have; any where empty.
        metavar: of the flag; one with DIR or FILE in it is a path.
        within: the range of a number, as in ``"[0, 1)"``.
        more: further metadata of the field.
    """
    limits = None if within is None else Range.parse(within)
    return field(default=default, metadata={"help": help, "choices": choices, "metavar": metavar, "range": limits, **more})


def flag_of(name: str) -> str:
    """A setting as users know it: ``batch_size`` is ``--batch-size``."""
    return "--" + name.replace("_", "-")


def require(holds: bool, what: str, found: Any) -> None:
    """Refuse a value.

    Raises:
        UserError: ``what`` must hold and does not.
    """
    if not holds:
        raise UserError(f"{what}, found {found}")


@dataclass(frozen=True)
class Section:
    """Settings that belong together; ``TrainConfig`` consists of sections.

    A section's class is complete in itself: it can be made alone and refuses wrong values then too.

    Attributes:
        TITLE: the heading of its flags in a command's help.

    Raises:
        UserError: a value outside its range, or what ``check`` refuses.
    """

    TITLE = ""  # without an annotation: no field

    def __post_init__(self) -> None:
        for entry in fields(self):
            value, limits = getattr(self, entry.name), entry.metadata["range"]
            if limits is not None and value is not None:
                require(value in limits, f"{flag_of(entry.name)} must be {limits}", value)
            if isinstance(value, str):
                require("\0" not in value, f"{flag_of(entry.name)} must not hold a zero byte", value)
                empty = value.strip() == "" and value != entry.default
                require(not empty, f"{flag_of(entry.name)} must not be empty", value)
        for kind in reversed(type(self).__mro__):
            if issubclass(kind, Section) and "check" in vars(kind):
                kind.check(self)

    def check(self) -> None:
        """Refuse what this section's settings cannot be together; one of each class is called, the sections' first."""
