"""Every mistake of a model, not the first alone: what is found is put right in memory, and the search goes on behind it.

In each place that is to blame the reference's module takes the port's place (``alignment.models.mending``). Where a hypothesis
explained the difference to rounding (``Finding.confirmed``), that undoes the very mistake. Elsewhere the reference's own
module stands in for a part that is not understood, and a second mistake inside its forward would not be seen: ``remarks`` says so.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Sequence

from alignment.comparisons.comparison import of_both
from alignment.comparisons.context import Context
from alignment.comparisons.grouping import alike_of, grouped
from alignment.comparisons.lines import describe, fresh_port
from alignment.comparisons.model import explain as models
from alignment.comparisons.model import initialisation, known
from alignment.comparisons.model.dropouts import Dropouts
from alignment.comparisons.model.embeddings import Paddings
from alignment.comparisons.precision import low_precision
from alignment.finding import Finding, Localization
from alignment.frameworks.base import Module
from alignment.kinds import NOT_EXPLAINED, Kind
from alignment.localize import Pair, states_compared, tied_by_mistake, untied_by_mistake
from alignment.localize.search import findings, random_cotangents
from alignment.localize.structure import structure_findings
from alignment.localize.watch import Watch
from alignment.models.matching import order_of_use
from alignment.strangers import strangers

MODES = ("evaluation mode", "training mode")
# Of a layer's weights: how their fresh values are drawn may follow.
SIZES = frozenset({Kind.WIDTH, Kind.KERNEL_SIZE, Kind.GROUPS, Kind.SHAPE, Kind.LAYER_REPLACED})


class EveryMistake:
    """The search of one pair of models.

    Args:
        context: the two sides.
        watch: the time of the search.

    Attributes:
        context: the same; of the port whose weights fit in part where its structure or weights are wrong.
        found: the mistakes so far.
        mended: modules that compute what the reference's compute, from now on.
        known: names of parameters and statistics that are known to go wrong.
        remarks: how far the search came, for people.
        covers: what was compared, in the words of ``StepResult.cover``.
        unmendable: modules to blame whose place the reference's cannot take: nothing is said of what surrounds them.
    """

    def __init__(self, context: Context, watch: Watch | None = None) -> None:
        self.context, self.watch = context, watch or Watch()
        self.found: list[Finding] = []
        self.mended: list[str] = []
        self.known: set[str] = set()
        self.remarks: list[str] = []
        self.covers: list[str] = []
        self.unmendable: set[str] = set()
        self.followed: frozenset[str] = frozenset()  # fresh weights of a layer of another size, whose bounds follow from it
        self.untied: dict[str, list[str]] = {}  # place of the finding -> names that are one tensor in the reference alone

    def run(self) -> None:
        """Structure, weights and modules, in the order in which ``alignment.comparisons.explain`` looks at the model."""
        if not self._built():
            return
        training = () if self.context.unshared_randomness else (True,)
        for mode in (False, *training):
            self._pair(lambda mode=mode: models.pair(self.context, mode), MODES[mode])  # type: ignore[misc]
        self._by_layers()
        if not self.unmendable:
            self._other_precisions(training)
        if self.watch.ended and initialisation.wanted(self.context):
            self.watch.left.append("fresh weights")
        elif not self.watch.ended:
            self._fresh_weights()

    def _other_precisions(self, training: tuple[bool, ...]) -> None:
        """What float64 does not have; what is wrong there and stays so would be called wrong in float32 alone."""
        for mode in (False, *training):
            make = lambda mode=mode: models.pair(self.context, mode, "32")  # noqa: E731
            self._pair(make, f"{MODES[mode]} in float32", ", in float32 alone", backward=False)  # type: ignore[arg-type]
        if self.context.precision and not low_precision.lacks(self.context):
            for mode in (False, *training):
                make = lambda mode=mode: low_precision.pair(self.context, mode)  # noqa: E731
                self._pair(make, f"{MODES[mode]} in {self.context.precision}", f", in {self.context.precision}")  # type: ignore[arg-type]

    def corrected(self, found: list[Finding]) -> Context:
        """The two sides with findings put right in memory, as far as a module or the weights can be."""
        wrong = [one for one in found if one.stage in ("structure", "weights", "forward", "backward")]
        places = [place for one in wrong for place in one.places if self.nearest(place) or not known.is_variance(one)]
        places = [_above_all(self.untied.get(place, [place])) for place in places]
        mended = tuple(path for path in dict.fromkeys(map(self.nearest, places)) if path not in self.unmendable)
        fresh = frozenset(place for one in found if one.stage == "initialisation" for place in one.places) | self.followed
        fresh |= {name for one in found for place in one.places for name in self.untied.get(place, [])[1:]}
        return self.context.but(mended=mended, known_fresh=fresh)

    def _built(self) -> bool:
        """Structure and weights; returns whether the port can be built."""
        context = self.context
        with strangers("port") as raised:  # whatever the port raises
            port, matching = context.networks.fresh("port"), context.paired.matched.matching
        if raised.error is not None:
            place = raised.place or context.model
            self.found.append(Finding("structure", place, Kind.RAISES, "the model cannot be built", raised.words))
            return False
        reference = context.networks.build("reference")
        used = lambda: order_of_use(context.reference.framework, reference, context.fake_inputs(2, small=True))  # noqa: E731
        structure = structure_findings(port, reference, matching, context.frameworks, used, context.spec.last_layer)
        weights: list[Finding] = []
        with strangers("port") as raised:
            loaded = context.networks.build("port")
        if raised.error is not None:
            if not structure:
                words = "the weights do not load"
                weights = [Finding("weights", raised.place or "load", Kind.RAISES, words, raised.words)]
            elif (loaded := context.networks.loaded_in_part()) is not None:
                weights = states_compared(loaded, reference, matching, context.frameworks)
        else:
            weights = states_compared(loaded, reference, matching, context.frameworks)
        self.found += structure + weights
        if self.found:
            self.context = context.but(fitting=True)
        for finding in structure:
            self._mend(self.nearest(finding.location))
        for name in (name for group in tied_by_mistake(port, reference, matching, context.frameworks) for name in group):
            self.known.add(name)
            self._mend(self.nearest(name))
        for group, apart in untied_by_mistake(port, reference, matching, context.frameworks):
            self.known.update(group)
            self.untied[apart[-1]] = group
        return True

    def nearest(self, place: str) -> str:
        """The module that both sides have at a place, or above it."""
        while place and place not in self.context.paired.matched.matching.paths:
            place = place.rpartition(".")[0]
        return place

    def _mend(self, path: str) -> None:
        if path not in self.mended:
            self.mended.append(path)
            self.context = self.context.but(mended=tuple(self.mended))

    def _pair(self, make: Callable[[], Pair], mode: str, remark: str = "", backward: bool = True) -> None:
        """The modules' own mistakes in one mode and precision."""
        if not self.watch.goes_on(mode):
            self.watch.left.append(mode)
            return
        with strangers("port") as raised:  # the port may raise anything where it is not mended
            pair = make()
            pair.watch = self.watch
            pair.mended, pair.known, pair.unmendable = set(self.mended), set(self.known), self.unmendable - self._rounded
            if backward:
                pair.cotangents = random_cotangents(pair)
            for finding in findings(pair):
                finding.measured += remark
                self._add(finding)
        if self.watch.ended:
            self.watch.left.append(f"the rest of {mode}")
        if raised.error is not None:
            if place := raised.place:
                self._add(Finding("forward", place, Kind.RAISES, "the port cannot run", raised.words))
            else:
                self.remarks.append(f"the search ended early: {raised.words}")
            return
        # Where one mode shows rounding alone, another one may show a mistake.
        for path in [path for path in pair.mended if path not in {*self.mended, *self._rounded}]:
            self._mend(path)
        self.known |= pair.known
        for path in sorted(pair.unmendable - self.unmendable):
            self.unmendable.add(path)
            self.remarks.append(f"{path}: the reference's module cannot take its place, so nothing is said of what surrounds it")

    @property
    def _rounded(self) -> set[str]:
        """Modules in which a mode that was looked at shows rounding alone."""
        return {self.nearest(place) for one in self.found if one.kind is Kind.FLOAT32_CONSTANT for place in one.places}

    def _add(self, finding: Finding) -> None:
        same = [one for one in self.found if finding.location in one.places]
        if any(one.kind is finding.kind or one.stage == "structure" for one in same):
            return  # said before it was loaded
        finding.confirmed = finding.kind not in NOT_EXPLAINED
        self.found.append(finding)
        if not (finding.kind in known.VARIANCES and self._of_the_frameworks(finding)):  # no mistake, and at many places
            self.watch.found(finding.line(), " ".join(map(str, alike_of(finding))), finding.location)

    def _of_the_frameworks(self, finding: Finding) -> bool:
        model, own = self._fresh_port, self.context.paired.own_path(finding.location)
        return model is not None and known.of_statistics(self.context, model, finding, own)

    @functools.cached_property
    def _fresh_port(self) -> Module | None:
        return fresh_port(self.context)

    def _by_layers(self) -> None:
        """What layers show by themselves, beside what is computed with them."""
        for comparison in (Dropouts(), Paddings()):
            for finding in comparison.findings(*of_both(self.context, comparison)):
                if not any(finding.location in one.places for one in self.found):
                    self._add(finding)

    def _fresh_weights(self) -> None:
        with strangers("port") as raised:  # the port cannot be built, which has been said
            again = {name for group in self.untied.values() for name in group[1:]}  # drawn by themselves, as tensors of their own
            sized = {self.nearest(place) for one in self.found if one.kind in SIZES for place in one.places}
            drawn = [one for one in initialisation.findings(self.context) if one.location not in again]
            self.followed = frozenset(one.location for one in drawn if self.nearest(one.location) in sized)
            self.found += [one for one in drawn if one.location not in self.followed]
            self.covers += ["initialisation"] if initialisation.wanted(self.context) else []
        if raised.error is not None:
            return


def _above_all(places: Sequence[str]) -> str:
    """The place itself, or the module that is around several."""
    first, *others = (place.split(".") for place in places)
    same = itertools.takewhile(lambda part: all(one[part[0] : part[0] + 1] == [part[1]] for one in others), enumerate(first))
    return ".".join(name for _, name in same)


def every_mistake(context: Context, watch: Watch | None = None) -> tuple[Localization, EveryMistake]:
    """All mistakes of the model, those of one kind that read alike as one.

    Args:
        context: the two sides.
        watch: the time of the search; it may last for ever where None.

    Returns:
        What was found, and the search, whose context has the mistakes put right.
    """
    start = time.perf_counter()
    search = EveryMistake(context, watch)
    search.run()
    search.remarks += filter(None, [search.watch.words()])
    describe(context, search.found)
    outcome = Localization(notes=context.notes(), every=grouped(search.found), remarks=search.remarks)
    outcome.first = outcome.every[0] if outcome.every else None
    outcome.doubts = _hidden([one for one in outcome.every if one.location not in search.unmendable])
    outcome.remarks += outcome.doubts
    outcome.seconds = time.perf_counter() - start
    return outcome, search


def _hidden(found: list[Finding]) -> list[str]:
    """What may still be wrong behind findings that no hypothesis explains; behind rounding to float32 it would be larger."""
    found = [one for one in found if one.kind is not Kind.FLOAT32_CONSTANT]
    places = [f.location for f in found if f.stage in ("forward", "backward", "structure") and not f.confirmed]
    if not places:
        return []
    return [
        f"{', '.join(places)}: the reference's own part replaced the port's in memory; a further mistake in its forward shows "
        "only after this one is corrected"
    ]
