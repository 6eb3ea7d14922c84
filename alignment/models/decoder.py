"""A model as a decoder of tokens: how it takes numbers of tokens, a mask, positions and a cache, and what it gives call by call.

What it takes is told by the names of its forward's arguments and by trying them. The whole of a decoding runs inside one
``Framework.call``, so that it has no graph and computes in the network's precision; the cache is handed back as the model gave it.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from alignment.frameworks.base import Keywords, Tensor, leaves, mapped
from alignment.models.tracing import Network
from alignment.strangers import Refused, strangers

TRAINED = (
    "max_position_embeddings", "n_positions", "max_seq_len", "max_seq_length", "max_sequence_length", "seq_length", "block_size",
    "context_length", "n_ctx", "max_positions", "max_len",
)  # fmt: skip
PROMPT = 3  # tokens of the pass that a cache is tried with


@dataclass(frozen=True)
class Step:
    """One call of a decoder.

    Attributes:
        ids: int64 (batch, new tokens).
        past: how many tokens the cache holds.
        mask: int64 (batch, past + new tokens), 1 for a token and 0 for padding; None to give none.
        positions: int64 (batch, new tokens); None to leave them to the model.
        cache: as the model gave it in the step before; None at first.
        prompt: of a later step, the cache that the first one gave, and
        first: how many tokens that one was given.
        cached: whether the model is asked for a cache.
    """

    ids: np.ndarray
    past: int = 0
    mask: np.ndarray | None = None
    positions: np.ndarray | None = None
    cache: Any = None
    prompt: Any = None
    first: int = 0
    cached: bool = False

    @property
    def absolute(self) -> np.ndarray:
        """The positions that count every token, padding too, (batch, new tokens)."""
        return np.broadcast_to(np.arange(self.past, self.past + self.ids.shape[1]), self.ids.shape)

    @property
    def among_real(self) -> np.ndarray:
        """The positions that count what is no padding, (batch, new tokens)."""
        return self.absolute if self.mask is None else positions_of(self.mask)[:, self.past :]


StepChange = Callable[[Step], Step]


def positions_of(mask: np.ndarray) -> np.ndarray:
    """The number of each token among those that are no padding; 0 for padding before them."""
    return np.maximum(np.cumsum(mask, axis=1) - 1, 0)


@dataclass(frozen=True)
class TokenRows:
    """Rows of tokens that are decoded together.

    Attributes:
        ids: int64 (batch, length).
        mask: int64 (batch, length), 0 for padding; None where there is none.
        chunks: how many tokens each call is given; all of them in one where empty.
        positions: whether positions are given, which count what is no padding.
        cached: whether a cache is asked for although there is one call.
    """

    ids: np.ndarray
    mask: np.ndarray | None = None
    chunks: tuple[int, ...] = ()
    positions: bool = False
    cached: bool = False

    def steps(self) -> Iterator[Step]:
        """The calls, without the cache."""
        past, counts = 0, self.chunks or (self.ids.shape[1],)
        for count in counts:
            mask = None if self.mask is None else self.mask[:, : past + count]
            every = np.ones_like(self.ids) if self.mask is None else self.mask
            positions = positions_of(every)[:, past : past + count] if self.positions else None
            cached = self.cached or len(counts) > 1
            yield Step(self.ids[:, past : past + count], past, mask, positions, first=counts[0], cached=cached)
            past += count

    def real(self, logits: np.ndarray) -> np.ndarray:
        """(tokens, ...): what is no padding, row by row."""
        return logits.reshape(-1, *logits.shape[2:]) if self.mask is None else logits[self.mask.astype(bool)]


@dataclass(frozen=True)
class Names:
    """Names of a forward's arguments for what a decoder is given; ``""`` for what it does not take.

    Attributes:
        ids: of the tokens, where they are given by name.
        mask, positions, cache: of these.
        use: switches that ask for a cache.
    """

    ids: str = ""
    mask: str = ""
    positions: str = ""
    cache: str = ""
    use: tuple[str, ...] = ()


def names_of(network: Network, ids: str) -> Names:
    """By the names in the signature of a model's forward."""
    try:
        found = list(inspect.signature(getattr(network.model, network.framework.computing)).parameters.values())
    except (AttributeError, TypeError, ValueError):
        return Names(ids)
    free = [one for one in found[0 if ids else 1 :] if one.default is not one.empty and one.name != ids]
    switches = tuple(one.name for one in free if isinstance(one.default, bool) and "cache" in one.name)

    def first(*parts: str, never: str) -> str:
        names = (one.name for one in free if one.name not in switches)
        return next((name for name in names if any(part in name for part in parts) and never not in name), "")

    return Names(ids, first("mask", never="head"), first("pos", never="cache"), first("past", "cache", never="pos"), switches)


@dataclass(frozen=True)
class Decoder:
    """One side in one precision.

    Attributes:
        network: the side.
        names: of the arguments.
        mask_type: of the mask that it takes, ``"int64"``, ``"bool"`` or ``"float32"``.
        trained: the length in tokens for which it is made; 0 where it does not say.
    """

    network: Network
    names: Names
    mask_type: str = "int64"
    trained: int = 0

    def without(self, parts: Iterable[str]) -> Decoder:
        """The same, which is not given a mask, positions or a cache."""
        return replace(self, names=replace(self.names, **dict.fromkeys(parts, "")))  # type: ignore[arg-type]  # never ``use``

    def logits(self, batch: TokenRows, change: StepChange | None = None) -> np.ndarray:
        """What a batch is given, float64 (batch, length, vocabulary); ``change`` is made to each call.

        Raises:
            Refused: it gives no logits for each token. Besides that, whatever the model raises.
        """
        framework = self.network.framework

        def decode() -> list[Tensor]:
            found, cache, prompt = [], None, None
            for step in batch.steps():
                step = replace(step, cache=cache, prompt=prompt)
                made, cache = self._called(step if change is None else change(step))
                prompt = self.copied(cache) if prompt is None and change is not None else prompt
                found.append(made)
            return found

        with framework.in_full_precision() if self.network.exact else contextlib.nullcontext():
            arrays = [np.asarray(one, np.float64) for one in framework.call(decode, ()).outputs]
        if len({one.shape[2:] for one in arrays}) != 1:
            raise Refused(f"logits of shapes {', '.join(str(one.shape) for one in arrays)}, call by call")
        return np.concatenate(arrays, axis=1)

    def given(self, step: Step, tensor: Callable[[np.ndarray], Any] = lambda array: array) -> tuple[Any, ...]:
        """The arguments of a call, the last of them a ``Keywords``; ``tensor`` is made of each array but those in the cache."""
        names, named = self.names, Keywords()
        if names.ids:
            named[names.ids] = tensor(step.ids)
        if step.mask is not None:
            named[names.mask] = tensor(step.mask.astype(self.mask_type))
        if step.positions is not None:
            named[names.positions] = tensor(np.ascontiguousarray(step.positions, np.int64))
        if step.cached:
            named.update(dict.fromkeys(names.use, True))
        if step.cache is not None:
            named[names.cache] = step.cache
        return (named,) if names.ids else (tensor(step.ids), named)

    def calls(self, batch: TokenRows) -> list[tuple[Any, ...]]:
        """What the calls of a batch are given, as arrays, up to one whose cache holds some where ``leaves`` does not look."""
        found: list[tuple[Any, ...]] = []
        whole, framework = [True], self.network.framework

        def note(step: Step) -> Step:
            reached = leaves(step.cache, framework.tensor_type)
            whole[0] = whole[0] and (step.cache is None or len(reached) == len(self.arrays(step.cache)) > 0)
            if whole[0]:
                found.append(self.given(replace(step, cache=mapped(step.cache, framework.tensor_type, framework.array))))
            return step

        tried(self, batch, note)
        return found

    def _called(self, step: Step) -> tuple[Tensor, Any]:
        """Logits and cache of one call, as the framework's own."""
        *args, named = self.given(step, self.network.framework.tensor)
        output = self.network.model(*args, **named)
        tensors = leaves(output, self.network.framework.tensor_type)
        logits = next((one for one in tensors if len(one.shape) == 3 and tuple(one.shape[:2]) == step.ids.shape), None)
        if logits is None:
            raise Refused(f"it gives {[tuple(one.shape) for one in tensors]} for tokens of shape {step.ids.shape}")
        return logits, _cache_in(output, logits, self.names.cache) if step.cached else None

    def copied(self, cache: Any, change: Callable[[int, np.ndarray], np.ndarray] = lambda number, array: array) -> Any:
        """A cache of other tensors with the values that a function of their number and values gives; the same by default."""
        framework, numbers = self.network.framework, itertools.count()
        new = lambda tensor: framework.tensor(change(next(numbers), framework.array(tensor)))  # noqa: E731
        return _replaced(cache, framework.tensor_type, new)

    def arrays(self, cache: Any) -> list[np.ndarray]:
        """The tensors in a cache."""
        found: list[np.ndarray] = []
        self.copied(cache, lambda _, array: found.append(array) or array)  # type: ignore[func-returns-value]
        return found


def _replaced(value: Any, kind: type, new: Callable[[Tensor], Tensor]) -> Any:
    """The same structure with every tensor replaced, in lists, dicts and objects of any class and depth, which are copied."""
    if isinstance(value, kind):
        return new(value)
    if isinstance(value, tuple | list):
        made = [_replaced(one, kind, new) for one in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    held = value if isinstance(value, dict) else getattr(value, "__dict__", None)
    if not held or callable(value):
        return value
    other = copy.copy(value)
    for name, one in held.items():
        if isinstance(value, dict):
            other[name] = _replaced(one, kind, new)
        else:
            object.__setattr__(other, name, _replaced(one, kind, new))
    return other


def _cache_in(output: Any, logits: Tensor, name: str) -> Any:
    """The cache in what a model returned: by the argument's name, or what stands behind the logits."""
    named = output if isinstance(output, dict) else getattr(output, "__dict__", {})
    for key in (name, *(one for one in named if "past" in one or "cache" in one)):
        if named.get(key) is not None:
            return named[key]
    if not isinstance(output, tuple | list):
        return None
    rest = [one for one in output if one is not logits and one is not None]
    return rest[-1] if len(rest) == 1 else tuple(rest) or None


def tried(decoder: Decoder, batch: TokenRows, change: StepChange | None = None) -> np.ndarray | str:
    """What a decoder gives, or what it raises in words."""
    with strangers(decoder.network.role) as raised:
        made = decoder.logits(batch, change)
        return made if made.shape[:2] == batch.ids.shape else f"it gives shape {made.shape} for tokens of shape {batch.ids.shape}"
    return f"{raised.words}{raised.there}"


# --- recognition -------------------------------------------------------------------------------------------------------------


def decoder_of(network: Network, ids: str) -> Decoder:
    """A model as its signature tells what it takes, with the length that its attributes or its configuration's name."""
    model = network.model
    holders = [model, *(getattr(model, name, None) for name in ("config", "cfg", "args", "hparams", "params"))]
    values = [one.get(name) if isinstance(one, dict) else getattr(one, name, None) for one in holders for name in TRAINED]
    lengths = [value for value in values if isinstance(value, int) and not isinstance(value, bool) and value > 0]
    return Decoder(network, names_of(network, ids), trained=next(iter(lengths), 0))


def fitted(
    decoder: Decoder, ids: np.ndarray, same: Callable[[np.ndarray, np.ndarray], bool], like: Decoder | None = None
) -> tuple[Decoder, list[str]]:
    """A decoder without what it does not take: with a mask, positions or a cache it gives the same as without, or it has none.

    Args:
        decoder: of one side.
        ids: int64 (batch, length).
        same: whether two outputs are the same.
        like: the reference, for a port: what the port makes of a mask, positions and a cache is for the comparison to judge.

    Returns:
        The decoder, and why it is not given a part, in words.
    """
    why, plain = [], decoder.logits(TokenRows(ids))
    parts = {
        "mask": ("a mask of (batch, length)", TokenRows(ids, np.ones_like(ids))),
        "positions": ("positions of (batch, length)", TokenRows(ids, positions=True)),
        "cache": ("a cache", TokenRows(ids, chunks=(PROMPT, ids.shape[1] - PROMPT))),
    }
    for part, (words, batch) in parts.items():
        name = getattr(decoder.names, part)
        types = dict.fromkeys([(like or decoder).mask_type, "int64", "bool", "float32"] if part == "mask" else [decoder.mask_type])
        made = {one: tried(replace(decoder, mask_type=one), batch) for one in types} if name else {}
        runs = [one for one, array in made.items() if isinstance(array, np.ndarray)]
        fits = [one for one in runs if same(made[one], plain)]  # type: ignore[arg-type]
        if fits or (like is not None and (runs or (name and part == "cache"))):  # that a port's cache raises is its mistake
            decoder = replace(decoder, mask_type=[*fits, *runs, *types][0])
            continue
        decoder = decoder.without([part])
        if runs:
            why.append(f"with {words} in {name} it gives something else than without")
        elif name:
            why.append(f"{name} does not take {words}: {next(iter(made.values()))}")
        elif like is not None and getattr(like.names, part):
            why.append(f"its forward has no argument for {words}")
    return decoder, why
