"""Is a module itself to blame? It is fed the reference's own input, so that no earlier mistake counts against it.

A wrong output says little: every module after the first mistake has one. So each suspect gets the reference's own input (and,
backward, the reference's own gradient of its output), and is to blame where it then still differs.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from alignment import low_precision, tolerance
from alignment.compare import (
    distance,
    hidden,
    norm,
    relative,
    rounded_by,
    strict_problem,
    summation32,
    where_derived,
    without_masked,
)
from alignment.frameworks._calls import DETACH
from alignment.frameworks.base import Call, Layer, leaves
from alignment.localize.watch import Watch
from alignment.models.counterparts import Matching
from alignment.models.forms import CallAdapter
from alignment.models.links import plain
from alignment.models.mending import is_part, mend
from alignment.models.outputs import output_title
from alignment.models.tracing import Answer, Network, apart, carrying, held_otherwise, is_mask
from alignment.strangers import strangers

GRADIENT_OF = "gradient of "
NamedArrays = dict[str, "np.ndarray | None"]
ArrayShapes = list[tuple[tuple[int, ...], bool]]
MOST_DRAWS = 4  # of one-ulp changes, where a difference may be rounding
OVERSIZED = 1.5  # so many times the reference's numbers are too many: a stride that is forgotten gives twice or four times as many


@dataclass
class Blame:
    """How a module answers the reference's own input.

    Attributes:
        guilty: whether it differs by more than its bound.
        what: the first quantity that does, e.g. ``"output"`` or ``"gradient of weight"``.
        every: all quantities that do, where the module ran to its end.
        own: largest relative L2 of any quantity.
        measured: that difference in words.
        ours, theirs: what the port's and the reference's module gave.
        right: what the float64 truth gave, where there is one beside the two.
        oversized: whether the port's module was not run to its end, since a module inside it gave far too much: guilty for now.
    """

    guilty: bool
    what: str = ""
    own: float = 0.0
    measured: str = ""
    ours: Answer = field(default_factory=Answer)
    theirs: Answer = field(default_factory=Answer)
    right: Answer = field(default_factory=Answer)
    oversized: bool = False
    every: list[str] = field(default_factory=list)

    @property
    def in_output(self) -> bool:
        """Whether an output differs, or there is none."""
        return self.guilty and self.what.startswith("output")


@dataclass
class Pair:
    """Two models in one mode, and the reference's pass through its own.

    Attributes:
        port, reference: the models.
        matching: which module is which.
        args: input of the models.
        cotangents: gradient of each tensor of the output, for the backward search; None for none.
        training: whether in training mode.
        reduced: shape of a sample of the input, where it is a smaller one than was asked for; else empty.
        rtol: relative L2 at which two modules count as equal in float64.
        truth: the reference in float64, where the other two are in float32 or lower; the floor is then measured against it.
        draws: the reference in low precision with weights rounded at random; empty where the two are not in low precision.
        dtype: that low precision.
        calls: of the reference, made by the search.
        blames: by call and phase, as far as they were looked at.
        mended: modules of the port that compute what the reference's compute, since their mistakes are known.
        opened: those that were put right before the phase: what is in them is looked at, though what is around them is right.
        known: names of parameters and statistics that are known to go wrong, though the module's output is right.
        unmendable: modules that are to blame and whose place the reference's cannot take: nothing is said of what surrounds them.
        rounded: modules whose outputs differ by the rounding of float32 alone.
        underived: modules of which the reference's own gradients are NaN or infinite on this input.
        watch: the time of the search.
    """

    port: Network
    reference: Network
    matching: Matching
    args: tuple
    cotangents: Sequence[np.ndarray | None] | None = None
    training: bool = False
    reduced: tuple[int, ...] = ()
    rtol: float = tolerance.EXACT_RTOL
    truth: Network | None = None
    draws: Sequence[Network] = ()
    dtype: str = ""
    calls: dict[str, Call] = field(default_factory=dict)
    blames: dict[tuple[str, str], Blame] = field(default_factory=dict)
    mended: set[str] = field(default_factory=set)
    opened: frozenset[str] = frozenset()
    known: set[str] = field(default_factory=set)
    unmendable: set[str] = field(default_factory=set)
    rounded: set[str] = field(default_factory=set)
    underived: set[str] = field(default_factory=set)
    watch: Watch = field(default_factory=Watch)
    _undo: dict[str, contextlib.ExitStack] = field(default_factory=dict)
    _limits: dict[str, int] = field(default_factory=dict)
    _larger: dict[str, bool] = field(default_factory=dict)
    _needed: dict[str, list[bool]] | None = None

    def __post_init__(self) -> None:
        constants = held_otherwise(self.port, self.reference)
        for network in self.networks:
            network.adapters = self.matching.adapters  # what one phase learns of the port's calls holds in all
            network.constants = constants

    @property
    def networks(self) -> list[Network]:
        return [network for network in (self.port, self.reference, self.truth, *self.draws) if network is not None]

    @property
    def stored(self) -> bool:
        """Whether the two sides were dumped: nothing can be computed."""
        return self.port.stored is not None

    @property
    def called(self) -> set[str]:
        """Paths of the modules that the reference's pass called and the port has."""
        return {path for key in self.calls if (path := key.partition("#")[0]) in self.matching.paths}

    def blame(self, key: str, phase: str, whole: bool = False) -> Blame:
        """Feed one call of a module of the port with the reference's input; ``key`` is a path, or ``path#2`` for a later call.

        A port with a wrong stride makes every later picture larger, and the whole of it may take minutes. So a part of it is
        ended where a module inside gives far too much, and counts as guilty until the modules inside have been looked at;
        ``whole`` runs it to its end.
        """
        if (key, phase) not in self.blames or (whole and self.blames[key, phase].oversized):
            limits, path = None if whole else self.limits(), key.partition("#")[0]
            blame = self._blame(key, phase, limits)
            side = carrying(self.port, self.reference, path) if blame.guilty else None
            if side is not None and not self.matching.adapters[path].bare:
                blame = self._bare_blame(key, phase, limits, blame)
            self.blames[key, phase] = blame
        return self.blames[key, phase]

    def _bare_blame(self, key: str, phase: str, limits: dict[str, int] | None, whole: Blame) -> Blame:
        """From now on compare a module without what it carries on one side alone, where that lies elsewhere on the other.

        That is so where a layer of its own is paired with one of them, or where the module fits better without them.
        """
        path = key.partition("#")[0]
        self.matching.adapters.mark(path, bare=True)
        bare = self._blame(key, phase, limits)
        if not bare.guilty or bare.own < whole.own or apart(self.port, self.reference, path) is not None:
            return bare
        self.matching.adapters.mark(path, bare=False)
        return whole

    def bare(self, path: str) -> bool:
        """Whether a module is compared without layers that it carries in the reference: these are looked at by themselves."""
        return self.matching.adapters[path].bare and self.reference.carries(path)

    def takes(self, key: str) -> bool:
        """Whether the port's module can be called as the reference's was. One of another form is looked at within its caller."""
        path = key.partition("#")[0]
        paths = self.matching.paths
        if path in paths and self.stored and carrying(self.port, self.reference, path) is not None:
            return False  # a dump holds no answer of a part of a module
        if self.matching.adapters[path].refused:
            return False
        return path not in paths or (not self._holds_more(path) and self.port.takes(path, self.calls[key]))

    def _refuses(self, path: str, call: Call) -> bool:
        """Whether the port runs as a whole and never calls a module as the reference did: what that raises is no mistake."""
        if not path:
            return False
        return bool(self._own_shapes) and _shapes(*self.port.given(path, call)) not in self._own_shapes.get(path, [])

    def _calls_otherwise(self, path: str, call: Call) -> bool:
        """Whether the port always gives a module another number of arrays: those of a call may come to other arguments of it.

        Not where a form is known, by which arrays and arguments are told apart.
        """
        if not path or type(self.port.adapter(path, call)) is not CallAdapter:
            return False
        counts = {len(shapes) for shapes in self._own_shapes.get(path, [])}
        return bool(counts) and len(_shapes(*self.port.given(path, call))) not in counts

    @functools.cached_property
    def _own_shapes(self) -> dict[str, list[ArrayShapes]]:
        """By module, of the arrays of each of its calls in a pass through the port; empty where that raises."""
        root, found = self.calls.get("", Call(self.args, {})), dict[str, list[ArrayShapes]]()
        for key, one in self.port.given_inside("", root, self.port.modules).items():
            found.setdefault(key.partition("#")[0], []).append(_shapes(one.args, one.kwargs))
        return found

    def _holds_more(self, path: str) -> bool:
        """Whether the port's module holds counterparts of modules outside of the reference's (it has tensors of both)."""
        if path and path not in self._larger:
            modules, framework = self.port.modules, self.reference.framework
            theirs = framework.modules(self.reference.model, every_path=True)
            inside = {id(module) for module in self.port.framework.modules(modules[path]).values()}
            within = [module for other, module in theirs.items() if f"{other}.".startswith(f"{path}.")]
            twice = {id(module) for module in within if framework.own_tensors(module)}  # the reference may have it elsewhere, too
            outside = [other for other in modules if not f"{other}.".startswith(f"{path}.") and id(theirs.get(other)) not in twice]
            self._larger[path] = any(id(modules[other]) in inside for other in outside)
        return bool(path) and self._larger[path]

    def mend(self, path: str, once: bool = False) -> bool:
        """Put the reference's module in the place of the port's; returns whether that can be done.

        Args:
            path: of the module.
            once: to see what then happens, also where it returns another structure than the port's caller goes on with.
        """
        if path in self.mended:
            return True
        if self.stored or self.matching.adapters[path].fixed:
            return False
        mine, its = (None, None) if once else (self._own_call(path), self.calls.get(path))
        undo = contextlib.ExitStack()
        if path in self.port.modules and not once:
            undo.enter_context(self.port.framework.supplying(self.port.modules[path]))
        if not mend(self.port, self.reference, path, calls=None if mine is None or its is None else (mine, its)):
            return False
        self._undo[path] = undo
        self.mended.add(path)
        self.forget()
        return True

    def unmend(self, path: str) -> bool:
        """Put the port's own module back in its place; returns whether the reference's was there."""
        if path not in self.mended or path not in self._undo:
            return False
        self._undo.pop(path).close()
        self.mended.discard(path)
        self.look_again(path)
        return True

    def _own_call(self, path: str) -> Call | None:
        """A module's first call in a pass through the port; None where it is not called, or the port does not run to its end."""
        root = self.calls.get("", Call(self.args, {}))
        return self.port.given_inside("", root, [path]).get(path) if path else None

    def with_mended(self, key: str, phase: str, paths: Iterable[str], whole: bool = False) -> Blame | None:
        """How a call answers with modules inside it put right for this once; None where one of them cannot be."""
        if self.stored:
            return None
        mended = set(self.mended)
        with contextlib.ExitStack() as once:
            for path in paths:
                once.enter_context(self.port.framework.supplying(self.port.modules[path]))
                if not self.mend(path, once=True):
                    self.mended = mended
                    return None
            try:
                blame = self._blame(key, phase, None if whole else self.limits())
                return None if blame.ours.unfit else blame
            finally:
                self.mended = mended

    def forget(self) -> None:
        """Look again at every module that was to blame."""
        self.blames = {key: blame for key, blame in self.blames.items() if not blame.guilty}

    def look_again(self, path: str) -> None:
        """Forget what is known of a module's calls, and of every module that was to blame."""
        self.blames = {key: blame for key, blame in self.blames.items() if not blame.guilty and key[0].partition("#")[0] != path}

    def limits(self) -> dict[str, int]:
        """By module: how many numbers one call of the port's may give, a multiple of what the reference's gives in all its calls.

        A port may call a layer once, on all at once, where the reference calls it for each of several arrays.
        """
        if not self._limits:
            for key, call in self.calls.items():
                size = sum(array.size for array in leaves(call.output, np.ndarray))
                path = key.partition("#")[0]
                self._limits[path] = self._limits.get(path, 0) + int(OVERSIZED * size)
        return self._limits

    def _blame(self, key: str, phase: str, limits: dict[str, int] | None) -> Blame:
        path, call = key.split("#")[0], self.calls[key]
        if path not in self.matching.paths or not self.takes(key):
            return Blame(False)
        cotangents = self._cotangents(key, phase)
        if cotangents is not None and all(c is None for c in cotangents):
            return Blame(False)
        ours = self.port.answer(path, call, cotangents, limits)
        if ours.oversized:
            return Blame(True, "output", float("inf"), "output: a module inside gives far too many numbers", ours, oversized=True)
        if ours.unfit:
            return Blame(False, ours=ours)
        theirs = self.reference.answer(path, call, cotangents)
        if not (ours.held and theirs.held):
            return Blame(False)
        if ours.error and self._refuses(path, call):
            self.matching.adapters.mark(path, refused=True)
            return Blame(False)
        if ours.error:
            return Blame(True, "output", float("inf"), f"the port raised {ours.error}", ours, theirs)
        if self.truth is not None:
            truth = self.truth.answer(path, _in_float64(call), _all_in_float64(cotangents))
            noisy, expected = theirs, truth
        else:
            noisy, expected = self.reference.answer(path, one_ulp_call(call), cotangents), theirs
        for answer in {id(one): one for one in (theirs, noisy, expected)}.values():
            answer.outputs = answer.outputs[: self._given_by_port(path, call)]
        drawn = [noisy, *(draw.answer(path, call, cotangents) for draw in self.draws)]
        blame = self._judged(key, phase, Blame(False, ours=ours, theirs=theirs, right=expected), drawn)
        if blame.guilty and not self.stored and self._calls_otherwise(path, call):
            self.matching.adapters.mark(path, refused=True)
            return Blame(False)
        jumps = not blame.guilty and tolerance.MOST_TRAJECTORY < blame.own < float("inf")
        if jumps and self.truth is None and not self.stored and not self.draws:
            first, again = (self._judged_beside(key, phase, draw).every for draw in (1, 2))
            blame.every = [name for name in first if name in again]
            blame.guilty, blame.what = bool(blame.every), next(iter(blame.every), "")
            blame.measured = f"{_titled(blame.what, call)}: relative L2 {blame.own:.1e}" if blame.guilty else ""
        return blame

    def _judged_beside(self, key: str, phase: str, draw: int) -> Blame:
        """The same for an input a little beside that of a call, where one-ulp changes make the reference jump.

        A box without area, or two equal scores that are sorted, stand on an edge: what the change of an ulp does there is no noise.
        """
        path, call = key.partition("#")[0], self.calls[key].changed(partial(_beside, draw=draw))
        cotangents = self._cotangents(key, phase)
        ours, theirs = (side.answer(path, call, cotangents) for side in (self.port, self.reference))
        noisy = self.reference.answer(path, one_ulp_call(call), cotangents)
        if any(one.error or one.unfit or not one.held for one in (ours, theirs, noisy)):
            return Blame(False)
        for answer in (theirs, noisy):
            answer.outputs = answer.outputs[: self._given_by_port(path, self.calls[key])]
        if any(not np.isfinite(array).all() for array in theirs.outputs if array.dtype.kind == "f"):
            return Blame(False)
        beside = self._judged(key, phase, Blame(False, ours=ours, theirs=theirs, right=theirs), [noisy])
        return beside if beside.own > tolerance.MOST_TRAJECTORY else Blame(False)  # a mean that is nearly zero has lost its digits

    def _judged(self, key: str, phase: str, blame: Blame, noisy: Sequence[Answer]) -> Blame:
        """How the answers of a blame differ, held to those of the reference that have rounding in them."""
        path, call = key.partition("#")[0], self.calls[key]
        named = backward_quantities if phase == "backward" else forward_quantities
        found, right, floors = named(blame.ours), named(blame.right), blame.theirs.floors or {}
        shaken, *_ = drawn = [named(one) for one in noisy]
        if phase == "backward":
            found, right = but_for_nothing(found, right), but_for_nothing(right, found)
            found, shaken, *drawn = (where_derived(one, right) for one in (found, shaken, *drawn))
            if any(b is not None and not np.isfinite(b).all() for b in right.values()):
                self.underived.add(path)
            right = {
                name: value for name, value in where_derived(right, right).items() if name not in self._made_by_port(path, call)
            }
            needless = self._needless(key, blame, found, right)
            others = {*found, *right} - needless
            if any((found.get(name) is None) is not (right.get(name) is None) for name in others):
                needless = set()  # what is trained lacks one, too: no gradient flows back
            found, right = ({n: v for n, v in one.items() if n not in needless} for one in (found, right))
        largest, first = largest_of(right), float("inf")
        known = self._known_below(path)
        arrays = [*leaves((call.args, call.kwargs), np.ndarray), *(array for array in right.values() if array is not None)]
        summed = summation32((array.shape for array in arrays), self.training) if phase == "forward" else 0.0
        for name in dict.fromkeys([*right, *found]):
            if name.removeprefix(GRADIENT_OF) in known or self._is_unused_part(path, name, found, right):
                continue
            if self.draws:
                wrong, own, words = self._differs_in_low(name, found.get(name), right.get(name), [d.get(name) for d in drawn])
            else:
                shaken_here = shaken.get(name, floors.get(name))
                wrong, own, words = self.differs(found.get(name), right.get(name), shaken_here, largest, summed)
                if wrong and self.truth is None and not self.stored and own <= tolerance.MOST_TRAJECTORY:
                    farthest = self._farthest(key, phase, name, right[name])
                    wrong, own, words = self.differs(found[name], right[name], farthest, largest, summed)
            blame.own = max(blame.own, own)
            blame.every += [name] if wrong else []
            beside = first < tolerance.FLOAT32_CONSTANT <= own < float("inf")  # the first one's difference is as small as rounding
            if wrong and (not blame.guilty or beside):
                blame.guilty, blame.what, blame.measured, first = True, name, f"{_titled(name, call)}: {words}", own
        return blame

    def _farthest(self, key: str, phase: str, name: str, right: Any) -> float:
        """How far (L2) several one-ulp changes move one quantity of a call: a single one may by chance spare a single number."""
        path, call = key.partition("#")[0], self.calls[key]
        named = backward_quantities if phase == "backward" else forward_quantities
        far = [0.0]
        for draw in range(MOST_DRAWS):
            moved = named(self.reference.answer(path, one_ulp_call(call, draw), self._cotangents(key, phase))).get(name)
            far += [distance(moved, right)] if moved is not None and moved.shape == right.shape else []
        return max(far)

    def _cotangents(self, key: str, phase: str) -> list[np.ndarray | None] | None:
        """The gradients of the outputs of a call, as far as the port's module gives these; None in the forward pass."""
        path, call = key.partition("#")[0], self.calls[key]
        if phase != "backward":
            return None
        cotangents = list(self.cotangents or ()) if path == "" else list(call.gradients)
        return [c if place < self._given_by_port(path, call) else None for place, c in enumerate(cotangents)]

    def _is_unused_part(self, path: str, name: str, found: NamedArrays, right: NamedArrays) -> bool:
        """Whether one side has no gradient for a tensor that it does not use, and the other's is zero: it lies in a larger one."""
        within = name.removeprefix(GRADIENT_OF)
        for network, one, other in (
            (self.port, found.get(name), right.get(name)),
            (self.reference, right.get(name), found.get(name)),
        ):
            if within != name and other is None and one is not None and not one.any():
                return within in (held := network.held(path)) and is_part(held[within][0])
        return False

    def _made_by_port(self, path: str, call: Call) -> set[str]:
        """Gradients of what the reference's module is given and the port's makes by itself: a mask, positions."""
        arrays = leaves((call.args, call.kwargs), np.ndarray)
        unused, floating = self.matching.adapters[path].unused(arrays), [n for n, one in enumerate(arrays) if one.dtype.kind == "f"]
        return {_input_gradient(place) for place, number in enumerate(floating) if number in unused}

    def _needless(self, key: str, blame: Blame, found: NamedArrays, right: NamedArrays) -> set[str]:
        """Gradients of inputs that one side alone has, where the other's framework has none, and nothing trained needs them.

        A loss in Paddle stops the gradient of its target. What stops one by an explicit ``detach`` is held to the other side.
        """
        count = max(len(blame.ours.input_gradients), len(blame.theirs.input_gradients))
        names = [_input_gradient(place) for place in range(count)]
        lacking = [n for n in range(count) if (found.get(names[n]) is None) is not (right.get(names[n]) is None)]
        if not lacking or blame.ours.refused or blame.theirs.refused:
            return {names[place] for place in lacking}
        needed = self._needed_by_training(key, count)
        path, call = key.partition("#")[0], self.calls[key]
        free = [place for place in lacking if not needed[place]]
        return set() if not free or self._detaches(path, call) else {names[place] for place in free}

    def _needed_by_training(self, key: str, count: int) -> list[bool]:
        """Of each floating argument of a call, whether a gradient through it reaches something that is trained."""
        if self._needed is None:
            self._needed = self.reference.needed(self.args)
        known = self._needed.get(key, [])
        return [*known, *[True] * (count - len(known))]

    def _detaches(self, path: str, call: Call) -> bool:
        """Whether one side alone stops gradients in its own forward, in so many words."""
        counts = []
        for network in (self.port, self.reference):
            with strangers("port"):  # its arrays are too many to be kept
                trace = network.traced(path, call, set())
                counts.append(sum(one.name == DETACH for one in trace.operations) if trace else 0)
        return len(set(counts)) > 1

    def _given_by_port(self, path: str, call: Call) -> int:
        """How many of a call's outputs the port's module gives: its caller may do without the rest, or have them from elsewhere."""
        return self.matching.adapters[path].gives(len(call.gradients or leaves(call.output, np.ndarray)))

    def both_answers(self, path: str, call: Call) -> tuple[Answer, Answer]:
        """What both sides give for the input of a call, as far as the port's module gives it."""
        ours, theirs = (side.answer(path, call) for side in (self.port, self.reference))
        theirs.outputs = theirs.outputs[: self.matching.adapters[path].gives(len(theirs.outputs))]
        return ours, theirs

    def in_shape(self, blame: Blame) -> Blame:
        """What is wrong besides the shapes, where the port's outputs have other axes of size 1 alone; else the blame as it is."""
        both = list(zip(blame.ours.outputs, blame.theirs.outputs, strict=False))
        if not both or any(plain(mine.shape) != plain(theirs.shape) for mine, theirs in both):
            return blame
        ours = replace(blame.ours, outputs=[mine.reshape(theirs.shape) for mine, theirs in both])
        largest = largest_of(forward_quantities(blame.theirs))
        wrong, own, words = self.differs(ours.outputs[0], blame.theirs.outputs[0], None, largest)
        return replace(blame, ours=ours, own=own, measured=f"output: {words}") if wrong else replace(blame, ours=ours)

    def _known_below(self, path: str) -> set[str]:
        """Names within a module of what is known to go wrong, and of what only one side has in a module that is mended."""
        prefix = f"{path}." if path else ""
        known = {name[len(prefix) :] for name in self.known if name.startswith(prefix)}
        inside = [m[len(prefix) :] for m in self.mended if m.startswith(prefix) and m != path]
        if inside:
            ours, theirs = self.port.held(path), self.reference.held(path)
            uneven = {
                n for n in ours.keys() | theirs.keys() if n not in ours or n not in theirs or ours[n][0].shape != theirs[n][0].shape
            }
            known |= {name for name in uneven if any(name.startswith(f"{m}.") for m in inside)}
        return known

    def _differs_in_low(self, name: str, a: Any, b: Any, drawn: list[Any]) -> tuple[bool, float, str]:
        if a is None and b is None:
            return False, 0.0, ""
        a, b, *drawn = without_masked(a, b, *drawn)
        if any(draw is None or not np.isfinite(draw).all() for draw in drawn) and a is not None:
            return False, 0.0, ""  # the reference itself overflows here
        row = low_precision.judge(name, a, drawn, b, self.dtype)
        return not row.passed, float("inf") if row.port_error is None else row.port_error, row.reason

    def differs(self, a: Any, b: Any, noisy: Any, largest: float, summed: float = 0.0) -> tuple[bool, float, str]:
        """Whether the port's array ``a`` differs from the right one ``b``; by how much (relative L2); the same in words.

        Args:
            a, b: the arrays; None where there is none.
            noisy: the right one with rounding in it, or the L2 distance between the two.
            largest: L2 norm of the largest array of the same call.
            summed: what the order of summation may leave in float32 (relative L2).
        """
        if a is None and b is None:
            return False, 0.0, ""
        if a is not None and b is not None and a.dtype.kind == b.dtype.kind == "f":
            b = b.astype(np.float64)
            problem = strict_problem(a.astype(np.float64), b, finite=False)
        else:
            problem = strict_problem(a, b, finite=False)
        if problem:
            return True, float("inf"), problem
        if b.size == 0:
            return False, 0.0, ""
        if isinstance(noisy, np.ndarray) and noisy.shape == b.shape:
            a, b, noisy = without_masked(a, b, noisy)
        else:
            a, b = without_masked(a, b)
        with np.errstate(invalid="ignore", over="ignore"):
            error, scale = distance(a, b), norm(b)
            if isinstance(noisy, float):
                floor = noisy
            else:
                floor = distance(noisy, b) if noisy is not None and noisy.shape == b.shape else 0.0
        if self.truth is not None:
            bound = max(tolerance.FLOOR_FACTOR * max(floor, tolerance.BASE_FLOOR_32 * scale), summed * scale)
        else:
            bound = max(self.rtol * max(scale, largest * tolerance.GRADIENT_LEAST), rounded_by(b.shape) * floor)
        nothing = (tolerance.SUMMATION_64 if self.truth is None else tolerance.BASE_FLOOR_32) * largest
        if scale <= nothing:  # zero but for rounding, as the gradient of a bias before a normalisation
            bound = max(bound, nothing)
        own = relative(error, scale) if np.isfinite(error) else float("inf")
        return not error <= bound, own, f"relative L2 {own:.1e} (bound {relative(bound, scale):.0e})"


def _beside(array: np.ndarray, draw: int) -> np.ndarray:
    """Numbers that differ from a call's by more than rounding; a mask, whole numbers, zeros and infinities stay."""
    if array.dtype.kind != "f" or is_mask(array):
        return array
    rng = np.random.default_rng([array.size, draw])
    return (array * (1 + tolerance.BESIDE * rng.standard_normal(array.shape))).astype(array.dtype)


def other_weights(array: np.ndarray) -> np.ndarray:
    """Other parameters and statistics, none of which is 1 or 0 where it was."""
    return 1.5 * array + 0.25 if array.dtype.kind == "f" else array


def _shapes(args: tuple, kwargs: Mapping[str, Any]) -> ArrayShapes:
    """Of each array, and whether it is of floating numbers: one side's mask may hold numbers, the other's truth values."""
    return [(array.shape, array.dtype.kind == "f") for array in leaves((args, kwargs), np.ndarray)]


def largest_of(named: NamedArrays) -> float:
    """L2 norm of the largest array, infinities and what hides a score left out: they would let everything else pass."""
    found = [value for value in named.values() if value is not None]
    return max((norm(np.where(np.isinf(v) | hidden(v), 0, v) if v.dtype.kind == "f" else v) for v in found), default=0.0)


@dataclass
class Subject:
    """One module that is to blame, with what it was given and what both sides made of it: what a hint is found for."""

    pair: Pair
    path: str
    call: Call
    phase: str
    blame: Blame
    _probes: dict[float, Subject | None] = field(default_factory=dict, repr=False)

    @property
    def layer(self) -> Layer:
        """What the reference's module computes."""
        network = self.pair.reference
        return network.framework.layer(network.modules[self.path])

    @property
    def own_layer(self) -> Layer:
        """What the port's module computes."""
        network = self.pair.port
        return network.framework.layer(network.modules[self.path])

    @property
    def expected_class(self) -> str:
        """The class of the reference's module."""
        return self.layer.title

    def in_one_form(self) -> set[str]:
        """The modules of both sides that the port can call as the reference does: a trace needs not look into them."""
        adapters, reference = self.pair.matching.adapters, self.pair.reference
        other_form = {key.partition("#")[0] for key in self.pair.calls if not self.pair.takes(key)}
        both = set(self.pair.port.modules) & set(reference.modules)
        blocks = {path for path in both if reference.framework.children(reference.modules[path])}
        other_form |= {path for path in both if adapters[path].bare or (adapters[path].made_up_for and path in blocks)}
        return both - other_form

    def weights(self) -> dict[str, np.ndarray]:
        """The reference's parameters and statistics by name within the module, in float64."""
        state = self.pair.reference.state_of(self.path)
        return {name: array.astype(np.float64) if array.dtype.kind == "f" else array for name, array in state.items()}

    def probe(self, scale: float) -> Subject | None:
        """The same layer on normal numbers of a given standard deviation; None where it has children, or cannot take them."""
        if scale not in self._probes:
            self._probes[scale] = self._probe(scale)
        return self._probes[scale]

    def _probe(self, scale: float) -> Subject | None:
        network = self.pair.reference
        if self.pair.truth is not None or network.framework.children(network.modules[self.path]):
            return None
        rng = np.random.default_rng(0)
        drawn = lambda a: scale * rng.standard_normal(a.shape).astype(a.dtype) if a.dtype.kind == "f" else a  # noqa: E731
        call = self.call.changed(drawn)
        ours, theirs = (side.answer(self.path, call) for side in (self.pair.port, network))
        blame = Blame(True, ours=ours, theirs=theirs)
        return None if ours.error or theirs.error else Subject(self.pair, self.path, call, self.phase, blame)

    @property
    def input(self) -> np.ndarray | None:
        """The first array that the module was given."""
        arrays = leaves((self.call.args, self.call.kwargs), np.ndarray)
        return arrays[0] if arrays else None

    @property
    def cotangent(self) -> np.ndarray | None:
        """The gradient of the first array of the output that both modules were given."""
        given = (self.pair.cotangents or ()) if self.path == "" else self.call.gradients
        return given[0] if given else None

    @property
    def output(self) -> np.ndarray | None:
        """The first array that the port's module gave."""
        return self.blame.ours.outputs[0] if self.blame.ours.outputs else None

    @property
    def expected(self) -> np.ndarray | None:
        """The first array that the reference's module gave."""
        return self.blame.theirs.outputs[0] if self.blame.theirs.outputs else None

    @property
    def differing(self) -> int:
        """Number of the first output that is not the same on both sides; 0 where all are."""
        both = enumerate(itertools.zip_longest(self.blame.ours.outputs, self.blame.theirs.outputs))
        return next((n for n, (a, b) in both if a is None or b is None or a.shape != b.shape or (a != b).any()), 0)

    @property
    def ours_at_first(self) -> np.ndarray | None:
        """The port's array at ``differing``."""
        return _at(self.blame.ours.outputs, self.differing)

    @property
    def right_at_first(self) -> np.ndarray | None:
        """The reference's array at ``differing``."""
        return _at(self.blame.theirs.outputs, self.differing)


def _at(outputs: Sequence[np.ndarray], number: int) -> np.ndarray | None:
    return outputs[number] if number < len(outputs) else None


def _titled(name: str, call: Call) -> str:
    """The name of what is compared of a call; an output with its name in the model, too."""
    kind, _, number = name.partition(" ")
    if kind != "output" or not (number or "1").isdecimal():
        return name
    return output_title(int(number or 1) - 1, call.output)


def forward_quantities(answer: Answer) -> NamedArrays:
    """What of a call is compared forward, by name."""
    outputs: NamedArrays = {output_title(i): a for i, a in enumerate(answer.outputs)}
    return outputs | answer.buffers


def backward_quantities(answer: Answer) -> NamedArrays:
    """What of a call is compared backward, by name."""
    inputs: NamedArrays = {_input_gradient(i): gradient for i, gradient in enumerate(answer.input_gradients)}
    return inputs | {f"{GRADIENT_OF}{name}": g for name, g in answer.gradients.items()}


def but_for_nothing(gradients: NamedArrays, others: NamedArrays) -> NamedArrays:
    """Gradients of which those that are exactly zero are none, where the other side has none for what it trains, too."""
    return {
        name: None if array is not None and others.get(name, array) is None and not array.any() else array
        for name, array in gradients.items()
    }


def _input_gradient(place: int) -> str:
    return "gradient of its input" + (f" {place + 1}" if place else "")


def one_ulp(array: np.ndarray, draw: int = 0) -> np.ndarray:
    """Every floating element but zeros and infinities moved by one unit in the last place, up or down at random.

    A mask stays (``is_mask``).
    """
    if array.dtype.kind != "f" or is_mask(array):
        return array
    up = np.random.default_rng([array.size, draw] if draw else array.size).random(array.shape) < 0.5
    still = (array == 0) | np.isinf(array)
    with np.errstate(over="ignore"):  # of the largest number that there is
        return np.where(still, array, np.nextafter(array, np.where(up, np.inf, -np.inf).astype(array.dtype)))


def one_ulp_call(call: Call, draw: int = 0) -> Call:
    """A call with its input moved by one unit in the last place."""
    return call.changed(partial(one_ulp, draw=draw))


def _in_float64(call: Call) -> Call:
    cast = lambda array: array.astype(np.float64) if array.dtype.kind == "f" else array  # noqa: E731
    return call.changed(cast)


def _all_in_float64(arrays: list[np.ndarray | None] | None) -> list[np.ndarray | None] | None:
    return None if arrays is None else [None if a is None else a.astype(np.float64) for a in arrays]
