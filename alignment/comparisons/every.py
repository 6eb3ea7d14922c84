"""Every mistake of a model, not the first alone: what is found is put right in memory, and the search goes on behind it.

In each place that is to blame the reference's module takes the port's place (``alignment.models.mending``). Where a hypothesis
explained the difference to rounding (``Finding.confirmed``), that undoes the very mistake. Elsewhere the reference's own
module stands in for a part that is not understood, and a second mistake inside its forward would not be seen: ``remarks`` says so.
"""

from __future__ import annotations

import functools
import itertools
import re
import time
from collections.abc import Callable, Sequence

from alignment.comparisons.comparison import of_both
from alignment.comparisons.context import Context
from alignment.comparisons.model import explain as models
from alignment.comparisons.model import initialisation, known
from alignment.comparisons.model.dropouts import Dropouts
from alignment.comparisons.model.embeddings import Paddings
from alignment.comparisons.precision import low_precision
from alignment.finding import OF_LINES, Finding, Localization
from alignment.frameworks.base import Module
from alignment.kinds import NOT_EXPLAINED, Kind
from alignment.localize import Pair, states_compared, tied_by_mistake, untied_by_mistake
from alignment.localize.given import Givers
from alignment.localize.hypotheses.tables import SAID as CONSTANTS
from alignment.localize.last_set import by_caller, first_made, last_set
from alignment.localize.search import findings, random_cotangents
from alignment.localize.source import noting_lines, number_of, source_line
from alignment.localize.structure import structure_findings
from alignment.localize.watch import Watch
from alignment.models.matching import order_of_use
from alignment.raised import shown
from alignment.strangers import strangers

MODES = ("evaluation mode", "training mode")
SETTING = re.compile(r"(?<![\d.e-])(\d+)(?:, \d+)*\)?, expected \(?(\d+)(?![\d.e])")  # whole numbers
# Of a layer's weights: how their fresh values are drawn may follow.
SIZES = frozenset({Kind.WIDTH, Kind.KERNEL_SIZE, Kind.GROUPS, Kind.SHAPE, Kind.LAYER_REPLACED})
NUMBERS = str.maketrans("", "", "0123456789.")
VAGUE = "or in another order"  # words of calls on other values, which may follow from a mistake in the same line of another block


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
        places = [place for one in found if one.stage in ("structure", "weights", "forward", "backward") for place in one.places]
        places = [_above_all(self.untied.get(place, [place])) for place in places]
        mended = tuple(path for path in dict.fromkeys(map(self._nearest, places)) if path not in self.unmendable)
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
            self._mend(self._nearest(finding.location))
        for name in (name for group in tied_by_mistake(port, reference, matching, context.frameworks) for name in group):
            self.known.add(name)
            self._mend(self._nearest(name))
        for group, apart in untied_by_mistake(port, reference, matching, context.frameworks):
            self.known.update(group)
            self.untied[apart[-1]] = group
        return True

    def _nearest(self, place: str) -> str:
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
            pair.mended, pair.known, pair.unmendable = set(self.mended), set(self.known), set(self.unmendable)
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
        for path in [path for path in pair.mended if path not in self.mended]:
            self._mend(path)
        self.known |= pair.known
        for path in sorted(pair.unmendable - self.unmendable):
            self.unmendable.add(path)
            self.remarks.append(f"{path}: the reference's module cannot take its place, so nothing is said of what surrounds it")

    def _add(self, finding: Finding) -> None:
        same = [one for one in self.found if finding.location in one.places]
        if any(one.kind is finding.kind or one.stage == "structure" for one in same):
            return  # said before it was loaded
        finding.confirmed = finding.kind not in NOT_EXPLAINED
        self.found.append(finding)
        if not (finding.kind in known.VARIANCES and self._of_the_frameworks(finding)):  # no mistake, and at many places
            self.watch.found(finding.line(), " ".join(map(str, _alike(finding))), finding.location)

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
            sized = {self._nearest(place) for one in self.found if one.kind in SIZES for place in one.places}
            drawn = [one for one in initialisation.findings(self.context) if one.location not in again]
            self.followed = frozenset(one.location for one in drawn if self._nearest(one.location) in sized)
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


def describe(context: Context, findings: Sequence[Finding]) -> None:
    """Give findings the line of the port to change, the port's own name, and whether the frameworks themselves differ so."""
    model = fresh_port(context)
    known_givers = functools.cache(lambda: givers(context, model))
    for finding in findings:
        if model is not None and finding.stage != "structure":  # there the location may be in one side alone
            finding.own = finding.own or context.paired.own_name(finding.location)
        if not finding.source:
            finding.source, *helpers = _lines(context, model, finding, known_givers)
            finding.via = ", ".join(helpers)
        if model is not None:
            finding.known = finding.known or known.of_statistics(context, model, finding, context.paired.own_path(finding.location))
        if model is not None and finding.layer:
            _where_layer_is(context, model, finding)
    if model is not None:
        _where_made(context, model, findings)
        _where_set(context, model, findings)


def _where_layer_is(context: Context, model: Module, finding: Finding) -> None:
    """Give a call that a layer of the framework makes the line that makes the layer; the line that calls it is then on the way."""
    place = source_line(context.port.framework, model, context.paired.as_built(finding.layer), made=True)
    if place and place != finding.source:
        finding.hint = finding.hint.replace(f"{finding.source}: ", f"{place}: ", 1)
        finding.source, finding.via = place, finding.source


def _where_made(context: Context, model: Module, findings: Sequence[Finding]) -> None:
    """Give constants that the constructor makes otherwise the line that makes them."""
    modules, framework = context.port.framework.modules(model, every_path=True), context.port.framework
    for finding in (one for one in findings if one.kind is Kind.CONSTANT and one.hint.startswith(CONSTANTS)):
        path, _, name = finding.hint.removeprefix(CONSTANTS).split()[0].rpartition(".")
        own = context.paired.own_path(path)
        tensor = getattr(modules.get(own), name, None)
        with strangers("port"):
            values = framework.array(tensor) if isinstance(tensor, framework.tensor_type) else None
            place = None if values is None else first_made(framework, lambda: _build_port(context), values)
            finding.source = f"{shown(place[0])}:{place[1]}" if place else finding.source


def _where_set(context: Context, model: Module, findings: Sequence[Finding]) -> None:
    """Give what is initialised otherwise the line that does it: of those that read alike, the first."""
    fresh = {_alike(one): one for one in reversed(findings) if one.stage == "initialisation" and not one.known}
    modules, wanted = context.port.framework.modules(model, every_path=True), list[tuple[Finding, str, str]]()
    for finding in fresh.values():
        path, _, name = (context.paired.own_name(finding.location) or finding.location).rpartition(".")
        if path in modules and number_of(modules[path]) is not None:
            wanted.append((finding, path, name))
    if not wanted:
        return
    wrong = {context.paired.own_name(place) or place for one in findings if one.stage == "initialisation" for place in one.places}
    asked = [(number_of(modules[path]) or 0, name) for _, path, name in wanted]
    with strangers("port"):
        places = last_set(context.port.framework, lambda: _build_port(context), asked)
        for (finding, path, name), place in zip(wanted, places, strict=True):
            having = [one for at, one in modules.items() if f"{at}.{name}" not in wrong]
            right = [one for one in having if name in context.port.framework.own_tensors(one)]
            place = by_caller(place, modules[path], right) if place else None
            finding.source = f"{shown(place[0])}:{place[1]}" if place else finding.source


def grouped(found: list[Finding]) -> list[Finding]:
    """Findings of the same stage and kind as one with several places.

    Where a mistake is confirmed, its words have to be the same but for numbers, or what they say of the line of the source: blocks
    of two kinds may be made with it. Else the line has to be the same.
    """
    together: dict[tuple, Finding] = {}
    for finding in found:
        key = _alike(finding)
        if key in together:
            _join(together[key], finding)
        else:
            together[key] = finding
    return _without_vague(list(together.values()))


def _join(first: Finding, other: Finding) -> None:
    """In place: the places of another finding are places of the first."""
    first.also += other.places
    if first.arguments != other.arguments:
        first.arguments = []


def _without_vague(found: list[Finding]) -> list[Finding]:
    """The findings without those that name no cause, where another one of the same line names it."""
    named = [one for one in found if one.kind is not Kind.UNKNOWN and VAGUE not in one.hint and one.source]
    kept = []
    for one in found:
        vague = one.kind is Kind.UNKNOWN or VAGUE in one.hint
        same = [other for other in named if (other.stage, other.source) == (one.stage, one.source)] if vague else []
        if not same:
            kept.append(one)
        else:
            _join(same[0], one)
    return kept


def _alike(finding: Finding) -> tuple:
    """What findings of the same mistake have in common."""
    of_line = finding.hint.find(f"{finding.source}: ") if finding.source else -1
    words = finding.hint[max(of_line, 0) :]
    if of_line >= 0:  # what is inside the module has its name, in each block another one
        words = words.replace(f"{finding.location}.", "")
    words = words.translate(NUMBERS)
    sure = finding.confirmed or finding.stage == "initialisation"
    alike = words if sure else finding.source or finding.location
    return finding.stage, finding.kind, finding.known, alike, _too_large(finding.hint)


def _too_large(words: str) -> bool | None:
    """Whether a whole number is too large: a stride of 1 for 2, and one of 2 for 1, are two mistakes; None without a number."""
    found = SETTING.search(words)
    return int(found[1]) > int(found[2]) if found else None


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


def fresh_port(context: Context) -> Module | None:
    """The port as it is built, its modules known by its own paths; None where it cannot be."""
    with strangers("port"), noting_lines(context.port.framework):  # the finding says where
        return _build_port(context)
    return None


def _build_port(context: Context) -> Module:
    return context.spec.port(**{**context.spec.options, **context.options})


def givers(context: Context, port: Module) -> Givers:
    """Which caller gives a layer of the port what makes its settings wrong."""
    theirs, paths = context.reference.framework, context.paired.matched.matching.paths
    right = theirs.modules(context.networks.described, every_path=True)
    layers = {context.paired.own_path(place): theirs.layer(module) for place, module in right.items() if place in paths}
    return Givers(context.port.framework, port, layers)


def _lines(context: Context, model: Module | None, finding: Finding, known_givers: Callable[[], Givers]) -> list[str]:
    """``file.py:12`` of the port, as far as it is known, else ``""``; and the lines of helpers between it and the layer.

    For a layer it is where the class above it assigns it, or where a caller gives the setting that is wrong; for a module that has
    others inside, its own forward; for a layer that is missing, where the layer beside it is made.
    """
    if model is None or finding.known or ":" in finding.location:
        return [""]
    if finding.stage not in OF_LINES:
        return [""]
    place = finding.location
    if place.endswith(".forward") and place.rpartition(".")[0] == type(model).__name__:
        place = ""
    if finding.kind is Kind.LAYER_MISSING and (beside := _beside(context, place)):
        return [source_line(context.port.framework, model, context.paired.own_path(beside), made=True)]
    made, own = finding.stage in ("structure", "weights", "initialisation"), context.paired.own_path(place)
    lines = [] if made else [f"{shown(file)}:{line}" for file, line in known_givers().lines(own)]
    if not made and (given := known_givers().of(own)) is not None:
        first = f"{shown(given.file)}:{given.node.lineno}"
        return [first, *(line for line in lines if line != first)]
    return lines if len(lines) > 1 else [source_line(context.port.framework, model, own, made=made)]


def _beside(context: Context, place: str) -> str:
    """The reference's path of a layer that the port has in the same module, before a place or else behind it; ``""`` if none."""
    theirs, paths = context.reference.framework, context.paired.matched.matching.paths
    parent, _, name = place.rpartition(".")
    modules = theirs.modules(context.networks.described, every_path=True)
    names = [child for child, _ in theirs.children(modules[parent])] if parent in modules else []
    at = names.index(name) if name in names else 0
    held = [f"{parent}.{one}" if parent else one for one in [*names[:at][::-1], *names[at:]]]
    return next((one for one in held if one in paths), "")
