"""A decoder of tokens: with a cache, with padding, and beyond the length for which it is made, it gives what one pass gives.

What is asked of the port is what holds of the reference: that it gives the same token by token as in one pass, in a padded batch as
alone; and in any case that both sides give the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import Quantity, distance, norm, relative
from alignment.comparisons.comparison import Measurement, Searched, Value, of_both
from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult
from alignment.finding import Finding
from alignment.frameworks.base import Keywords
from alignment.kinds import Kind
from alignment.localize.blame import Pair
from alignment.localize.hypotheses.decoding import DECODING, OTHER, Decoded, Texts, decoded
from alignment.localize.search import search
from alignment.localize.source import source_line
from alignment.models.decoder import Decoder, TokenRows, decoder_of, fitted, names_of, tried

NAME, DTYPE = "decoding", "bfloat16"
LENGTHS = (8, 6, 4)  # tokens of the rows
PROMPT = (4, 1, 1, 1, 1)  # tokens of each call
CHUNKS = (2, 3, 3)
MOST = 1024  # tokens: a longer trained length is not gone beyond
BEYOND = 4  # tokens
TOPICS = {
    "full": "causal decoding",
    "prompt": "decoding with a cache",
    "right": "padded batches",
    "beyond": "beyond the trained length",
}
RAISES, MOVED = "raises/", "moved/"


@dataclass(frozen=True)
class Case:
    """What both sides are given.

    Attributes:
        words: what is done, for people.
        batches: decoded one after another.
        same: the case whose outputs a sound decoder repeats; none where empty.
    """

    words: str
    batches: Texts
    same: str = ""


def run(context: Context) -> tuple[StepResult, TokenDecoding] | None:
    """Compare two decoders; None where the reference is none, whose outputs never depend on later tokens."""
    given = _tokens(context)
    if given is None or context.mended:
        return None
    sides: dict[str, Decoder] = {}
    reasons: list[str] = []
    for role in ("reference", "port"):
        network = context.networks.of(f"{role}64", share_dropout=False)
        network.train_mode(False)
        decoder = decoder_of(network, given[0])
        if (role == "reference" and not _is_causal(decoder, given[1])) or isinstance(tried(decoder, TokenRows(given[1])), str):
            return None
        sides[role], why = fitted(decoder, given[1], _same, sides.get("reference"))
        reasons += [f"the {role}: {one}" for one in why]
    takes = {part: all(getattr(one.names, part) for one in sides.values()) for part in ("mask", "positions", "cache")}
    sides = {role: one.without([part for part, both in takes.items() if not both]) for role, one in sides.items()}
    comparison = TokenDecoding(context, sides, cases(given[1], takes, sides["reference"].trained))
    result = StepResult(1, NAME)
    port, reference = of_both(context, comparison)
    result.extend(comparison.judge(port, reference))
    if result.differs:  # nothing of the modules in one pass needs to be looked at
        result.stored, result.compared = True, [Searched(lambda: comparison.explain(port, reference))]
    raised = [name.removeprefix(RAISES) for name in reference if name.startswith(RAISES) and "beyond" not in name]
    reasons += [f"{comparison.cases[name].words}: the reference raises {reference[RAISES + name]}" for name in raised]
    result.not_run = "; ".join(f"{NAME}: {' '.join(reason.replace(';', ',').split())}" for reason in reasons)
    result.cover(*(words for name, words in TOPICS.items() if name in reference))
    return result, comparison


def left_out(context: Context) -> str:
    """Why the models are not compared call by call although the reference takes a cache; ``""`` where it takes none."""
    if context.mended:
        return ""
    names = names_of(context.networks.of("reference64", share_dropout=False), "")
    argument = next(filter(None, [names.cache, *names.use]), "")
    if not argument:
        return ""
    return f"{NAME} call by call with {argument}: only models of one text of tokens, which depend on no later token, are decoded so"


def _tokens(context: Context) -> tuple[str, np.ndarray] | None:
    """The name of the argument with tokens (``""``: the first), and int64 (rows, length); None where the models take none."""
    given = context.fake_inputs(16, small=True)
    named = given[-1] if given and isinstance(given[-1], Keywords) else {}
    name = next((one for one in named if "ids" in one or "token" in one or "input" in one), "") if len(given) == 1 else ""
    array = named[name] if name else given[0]
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iu" or array.ndim != 2 or context.spec.whole_inputs:
        return None
    known = np.unique(array)
    shape = len(LENGTHS), max(LENGTHS)
    return (name, np.random.default_rng([context.seed, 40]).choice(known, shape).astype(np.int64)) if len(known) > 1 else None


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and bool(np.isfinite(a).all()) and relative(distance(a, b), norm(b)) <= tolerance.SAME


def _is_causal(decoder: Decoder, ids: np.ndarray) -> bool:
    """Whether logits never depend on later tokens, and on earlier ones at all."""
    far = _moved(decoder, ids, ())
    return far is not None and bool((np.triu(far, 1) <= tolerance.SAME).all() and (np.tril(far, -1) > tolerance.SAME).any())


def _moved(decoder: Decoder, ids: np.ndarray, chunks: tuple[int, ...]) -> np.ndarray | None:
    """``Decoded.moved`` of one side; None where the decoder raises."""
    rows = np.repeat(ids[:1], ids.shape[1] + 1, axis=0)
    changed = rows[1:]
    changed[np.diag_indices(len(changed))] = np.where(changed.diagonal() == ids.max(), ids.min(), ids.max())
    made = tried(decoder, TokenRows(rows, chunks=chunks))
    return None if isinstance(made, str) else np.abs(made[1:] - made[:1]).max(axis=2).T / max(np.abs(made).max(), tolerance.TINY)


def cases(ids: np.ndarray, takes: Mapping[str, bool], trained: int) -> dict[str, Case]:
    """By name.

    Args:
        ids: int64 (rows, length).
        takes: whether both sides take a mask, positions and a cache.
        trained: the length for which the reference is made; 0 where that is not known.
    """
    found = {"full": Case("one pass", (TokenRows(ids),))}
    found["single"] = Case("each row by itself", tuple(TokenRows(row[None]) for row in ids), "full")
    if takes["positions"]:
        found["positions"] = Case("with positions given", (TokenRows(ids, positions=True),), "full")
    if takes["cache"]:
        found["cached"] = Case("one pass that asks for a cache", (TokenRows(ids, cached=True),), "full")
        found["prompt"] = Case(f"a prompt of {PROMPT[0]}, then token by token", (TokenRows(ids, chunks=PROMPT),), "full")
        found["chunks"] = Case("several tokens to each call", (TokenRows(ids, chunks=CHUNKS),), "full")
    if takes["cache"] and takes["positions"]:
        found["prompt.positions"] = Case("token by token, with positions given", (TokenRows(ids, None, PROMPT, True),), "full")
    if takes["mask"]:
        found |= _padded(ids, takes)
    if 0 < trained <= MOST:
        text, steps = np.resize(ids[:2], (1, trained + BEYOND)), (trained - 1, *(1,) * (BEYOND + 1))
        found["beyond"] = Case(f"a text longer than the trained length ({trained})", (TokenRows(text),))
        if takes["cache"]:
            words = f"token by token beyond the trained length ({trained})"
            found["beyond.prompt"] = Case(words, (TokenRows(text, chunks=steps),), "beyond")
    return found


def _padded(ids: np.ndarray, takes: Mapping[str, bool]) -> dict[str, Case]:
    """Rows of several lengths in one batch."""
    alone = tuple(TokenRows(row[None, :length]) for row, length in zip(ids, LENGTHS, strict=True))
    found = {"alone": Case("rows of several lengths, each by itself", alone)}
    right = (np.arange(ids.shape[1]) < np.array(LENGTHS)[:, None]).astype(np.int64)
    for side, mask in {"right": right, "left": right[:, ::-1].copy()}.items():
        for end, filler in (("", ids.min()), (OTHER, ids.max())):
            rows, words = np.full_like(ids, filler), f"padded on the {side}{' with other tokens' if end else ''}"
            rows[mask.astype(bool)] = np.concatenate([one.ids[0] for one in alone])
            ways = {side: (words, ()), f"{side}.prompt": (f"{words}, then token by token", PROMPT)}
            for name, (said, chunks) in ways.items() if takes["cache"] and side == "left" and not end else [*ways.items()][:1]:
                found[f"{name}{end}"] = Case(said, (TokenRows(rows, mask, chunks),), "alone")
                if takes["positions"] and side == "left" and not end:
                    batch = TokenRows(rows, mask, chunks, positions=True)
                    found[f"{name}.positions"] = Case(f"{said}, with positions given", (batch,), "alone")
    return found


@dataclass(frozen=True)
class TokenDecoding:
    """The comparison.

    Attributes:
        context: of the two sides.
        sides: the decoders, by role, which take the same.
        cases: that are compared.
    """

    context: Context
    sides: Mapping[str, Decoder]
    cases: Mapping[str, Case]

    def measure(self, context: Context, role: str) -> dict[str, Value]:
        """By case the logits of its tokens, (tokens, vocabulary), or what was raised; and ``Decoded.moved``."""
        made = dict[str, Value]()
        for name, case in self.cases.items():
            found = decoded(self.sides[role], case.batches)
            made[f"{RAISES}{name}" if isinstance(found, str) else name] = found
        for name in ("full", "chunks") if "chunks" in self.cases else ("full",):
            batch = self.cases[name].batches[0]
            if (far := _moved(self.sides[role], batch.ids, batch.chunks)) is not None:
                made[f"{MOVED}{name}"] = far
        return made

    def judge(self, port: Measurement, reference: Measurement) -> list[Quantity]:
        """A row for each case between the sides, and one for each property of the reference in the port itself."""
        rows = []
        given = {name: np.asarray(one) for name, one in reference.items() if name in self.cases}
        full = relative(distance(np.asarray(port["full"]), given["full"]), norm(given["full"]))
        for name, right in given.items():
            same = self.cases[name].same
            if same in given and same in port and _same(right, given[same]):
                anew = tolerance.FLOAT32_CONSTANT if name.startswith("beyond") else tolerance.SAME  # tables are computed anew
                rows.append(self._judged(f"{name}.itself", port, np.asarray(port[same]), anew, self.cases[same].words))
            rounded = max(tolerance.FLOAT32_CONSTANT, tolerance.FLOOR_FACTOR * full)
            rows.append(self._judged(name, port, right, rounded, "the reference"))
        return rows

    def _judged(self, title: str, port: Measurement, right: np.ndarray, bound: float, than: str) -> Quantity:
        row, name = Quantity(f"{NAME}.{title}", list(right.shape)), title.removesuffix(".itself")
        words = self.cases[name].words
        if name not in port:
            return row.fail(f"{words}: the port raises {port[RAISES + name]}")
        ours = np.asarray(port[name])
        if ours.shape != right.shape:
            return row.fail(f"{words}: shape {ours.shape}, expected {right.shape}")
        keep = np.isfinite(right)
        if not np.isfinite(ours[keep]).all():
            return row.fail(f"{words}: {int((~np.isfinite(ours[keep])).sum())} values are no numbers")
        row.float64_diff = relative(distance(ours[keep], right[keep]), norm(right[keep]))
        return row if row.float64_diff <= bound else row.fail(f"{words}: not as {than}, relative L2 {row.float64_diff:.1e}")

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        """What explains every case, and the place of the first that fails."""
        first = next((row for row in self.judge(port, reference) if not row.passed), None)
        if first is None:
            return None
        ours, right = ({name: np.asarray(one[name]) for name in one} for one in (port, reference))
        both = [name for name in self.cases if name in ours and name in right and ours[name].shape == right[name].shape]
        moved = {name.removeprefix(MOVED): (ours[name], right[name]) for name in ours if name.startswith(MOVED) and name in right}
        mine, theirs = ({name: one[name] for name in both} for one in (ours, right))
        batches = {name: self.cases[name].batches for name in both}
        kind, words = DECODING.hint(Decoded(self.sides["reference"], batches, mine, theirs, moved))
        found = self.placed(first, self.sides["reference"], self.pair)
        if kind is not Kind.UNKNOWN:
            found.kind, found.hint = kind, words
        return found

    def pair(self, args: tuple[Any, ...]) -> Pair:
        """Both sides in exact mode on one call of the reference's."""
        port, reference = (self.sides[role].network for role in ("port", "reference"))
        return Pair(port, reference, self.context.paired.matched.matching, args)

    def placed(self, row: Quantity, reference: Decoder, pair: Callable[[tuple[Any, ...]], Pair]) -> Finding:
        """What a search through the modules finds in the calls of the case of a row, each with the reference's own cache.

        Where that shows nothing, it is the model itself.
        """
        network = self.sides["port"].network
        found = Finding("forward", f"{network.framework.layer(network.model).title}.forward")
        name = row.name.removesuffix(".itself").removeprefix(f"{NAME}.").removeprefix(f"{DTYPE}.")
        for args in (args for batch in self.cases[name].batches for args in reference.calls(batch)):
            if (other := search(pair(args))) is not None:
                found = other
                break
        path = found.location if found.location in network.modules else ""
        own = source_line(network.framework, network.model, (network.paths or {}).get(path, path))
        return replace(found, measured=row.reason, source=found.source or own)
