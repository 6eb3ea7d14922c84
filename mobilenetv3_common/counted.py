"""A count and its noun: ``"1 picture"``, ``"2 pictures"``."""

from __future__ import annotations

import re
from collections.abc import Sequence

PLURALS = {
    "classes": "class", "batches": "batch", "processes": "process", "entries": "entry", "copies": "copy", "losses": "loss",
    "passes": "pass", "axes": "axis", "hypotheses": "hypothesis", "times": "time",
    **{f"{noun}s": noun for noun in (
        "picture", "tensor", "layer", "module", "file", "folder", "value", "row", "update", "seed", "step", "place", "group",
        "label", "channel", "head", "sample", "array", "mistake", "problem", "check", "run", "rank", "worker", "line", "node",
        "operator", "weight", "parameter", "shard", "difference", "figure", "thread", "second", "minute", "iteration", "token",
        "dimension", "activation", "answer", "block", "byte", "candidate", "comparison", "dump", "epoch", "event", "fault",
        "gradient", "input", "log", "model", "mutant", "name", "number", "output", "pair", "result", "setting", "statistic",
        "thing", "unit",
    )},
}  # fmt: skip
VERBS = {
    "are": "is", "have": "has", "were": "was", "do": "does", **{verb: f"{verb}s" for verb in (
        "come", "lie", "differ", "repeat", "move", "train", "keep", "overflow", "agree", "decode", "stand", "begin", "belong",
        "use", "need", "get", "hold", "respond", "sum", "become", "follow", "call", "say", "survive",
    )},
}  # fmt: skip
IRREGULAR = {one: several for several, one in PLURALS.items()}
NOUNS, MORE = "|".join(PLURALS), "more |further |other |random |constant "
VERB = rf"(?P<adverb> never| no longer| also)? (?P<verb>{'|'.join(VERBS)})\b"
ONE = re.compile(rf"(?<![\w.,:/-])(?P<of>(?:1 )?of )?1 (?P<more>{MORE})?(?P<noun>{NOUNS})\b(?:{VERB})?")


def counted(number: int, noun: str) -> str:
    """``"1 mistake"``, ``"2 mistakes"``, ``"2 batches"``."""
    return f"{number} {noun if number == 1 else _plural(noun)}"


def _plural(noun: str) -> str:
    before, space, last = noun.rpartition(" ")
    regular = f"{last}es" if last.endswith(("ch", "sh", "ss", "x")) else f"{last}s"
    return f"{before}{space}{IRREGULAR.get(last, regular)}"


def numbered(noun: str, which: Sequence[object]) -> str:
    """``"step 4"``, ``"steps 1, 5"``."""
    return f"{noun if len(which) == 1 else _plural(noun)} {', '.join(map(str, which))}"


def agreed(text: str) -> str:
    """A text in which nouns and verbs agree with a count of one: ``"1 tensors differ"`` becomes ``"1 tensor differs"``.

    Behind "of" the noun alone is changed: ``"the units of 1 layers are equal"``.
    """

    def one(found: re.Match[str]) -> str:
        of, more, adverb, verb = (found[name] or "" for name in ("of", "more", "adverb", "verb"))
        said = f"{of}1 {more}{PLURALS[found['noun']]}"
        return f"{said}{adverb} {verb if of == 'of ' else VERBS[verb]}" if verb else said

    return ONE.sub(one, text)
