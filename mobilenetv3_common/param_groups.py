"""Parameters with a learning rate or weight decay of their own, and frozen ones: rules by name pattern, and decay by depth."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from mobilenetv3_common.errors import UserError

FORM = "PATTERN:lr=FACTOR,decay=X or PATTERN:frozen, with ; between, as in 'features.0.*:frozen;classifier.*:lr=10,decay=0'"


@dataclass(frozen=True)
class GroupRule:
    """What parameters get whose names fit a pattern.

    Attributes:
        pattern: of names, with ``*``, ``?`` and ``[...]``; upper and lower case differ.
        lr: factor of the learning rate, above 0.
        decay: weight decay of their own, not negative; None where they keep that of their kind.
        frozen: whether they are not trained.
    """

    pattern: str
    lr: float = 1.0
    decay: float | None = None
    frozen: bool = False

    def fits(self, name: str) -> bool:
        return fnmatch.fnmatchcase(name, self.pattern)


def parse_rules(text: str | None) -> tuple[GroupRule, ...]:
    """The rules of ``--param-groups``.

    Raises:
        UserError: the text is none, or a number is out of its range.
    """
    rules = tuple(_rule(part.strip()) for part in (text or "").split(";") if part.strip())
    if text and not rules:
        raise UserError(f"--param-groups must be {FORM}, found {text!r}")
    return rules


def _rule(text: str) -> GroupRule:
    pattern, colon, settings = (part.strip() for part in text.rpartition(":"))
    words = [word.strip() for word in settings.split(",")]
    if not colon or not pattern:
        raise UserError(f"--param-groups must be {FORM}, found {text!r}")
    if words == ["frozen"]:
        return GroupRule(pattern, frozen=True)
    found: dict[str, float] = {}
    for word in words:
        key, _, value = (part.strip() for part in word.partition("="))
        if key not in ("lr", "decay") or key in found:
            raise UserError(f"--param-groups must be {FORM}, found {text!r}")
        try:
            found[key] = float(value)
        except ValueError:
            found[key] = math.nan
        if not (0 < found[key] <= 1e6 if key == "lr" else 0 <= found[key] <= 1):
            limits = "above 0 to 1,000,000 (frozen leaves parameters out)" if key == "lr" else "from 0 to 1"
            raise UserError(f"--param-groups: {key} of {pattern!r} must be {limits}, found {value or 'nothing'}")
    return GroupRule(pattern, found.get("lr", 1.0), found.get("decay"))


def rule_of(name: str, rules: Sequence[GroupRule]) -> GroupRule:
    """The first rule that fits a parameter's name; one that changes nothing where none does."""
    return next((rule for rule in rules if rule.fits(name)), GroupRule("*"))


def check_rules(names: Sequence[str], rules: Sequence[GroupRule]) -> None:
    """Refuse rules that do not go with a model's parameters.

    Raises:
        UserError: a pattern fits no name, or nothing is left to train.
    """
    for rule in rules:
        if not any(rule.fits(name) for name in names):
            raise UserError(f"--param-groups: {rule.pattern!r} fits no parameter of the model, whose first is {names[0]}")
    if names and all(rule_of(name, rules).frozen for name in names):
        raise UserError("--param-groups freezes every parameter: nothing would be trained")


def rate_factors(names: Sequence[str], rules: Sequence[GroupRule], layer_decay: float) -> dict[str, float]:
    """The factor of the learning rate of each parameter.

    Args:
        names: of all parameters, in the model's order.
        rules: from ``parse_rules``.
        layer_decay: factor from each block to the one before it; the last block has 1. A block is what shares the first
            part of its names, and the second where that is a number: ``features.3``, ``classifier.0``, ``fc``.
    """
    blocks = list(dict.fromkeys(_block(name) for name in names))
    depth = {block: len(blocks) - 1 - number for number, block in enumerate(blocks)}
    return {name: rule_of(name, rules).lr * layer_decay ** depth[_block(name)] for name in names}


def _block(name: str) -> str:
    found = re.match(r"[^.]+(\.\d+)?", name)
    return found[0] if found else name
