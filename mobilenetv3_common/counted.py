"""A count and its noun: ``"1 picture"``, ``"2 pictures"``."""

from __future__ import annotations

import re

PLURALS = {
    "classes": "class", "batches": "batch", "processes": "process", "entries": "entry", "copies": "copy", "epochs": "epoch",
    **{f"{noun}s": noun for noun in (
        "picture", "tensor", "layer", "module", "file", "folder", "value", "row", "update", "seed", "step", "place", "group",
        "label", "channel", "head", "sample", "array", "mistake", "problem", "check", "run", "rank", "worker", "line", "node",
        "operator", "weight", "parameter", "shard", "difference", "figure", "thread", "second", "minute", "iteration", "token",
        "dimension",
    )},
}  # fmt: skip
VERBS = {
    "are": "is", "have": "has", "were": "was", "do": "does", **{verb: f"{verb}s" for verb in (
        "come", "lie", "differ", "repeat", "move", "train", "keep", "overflow", "agree", "decode", "stand", "begin", "belong",
        "use", "need",
    )},
}  # fmt: skip
NOUNS, MORE = "|".join(PLURALS), "more |further |other |random |constant "
ONE = re.compile(rf"(?<![\w.,:/-])(?P<of>of )?1 (?P<more>{MORE})?(?P<noun>{NOUNS})\b(?: (?P<verb>{'|'.join(VERBS)})\b)?")


def counted(number: int, noun: str) -> str:
    """``"1 mistake"``, ``"2 mistakes"``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def agreed(text: str) -> str:
    """A text in which nouns and verbs agree with a count of one: ``"1 tensors differ"`` becomes ``"1 tensor differs"``.

    Behind "of" the noun alone is changed: ``"the units of 1 layers are equal"``.
    """

    def one(found: re.Match[str]) -> str:
        of, more, verb = (found[name] or "" for name in ("of", "more", "verb"))
        said = f"{of}1 {more}{PLURALS[found['noun']]}"
        return f"{said} {verb if of else VERBS[verb]}" if verb else said

    return ONE.sub(one, text)
