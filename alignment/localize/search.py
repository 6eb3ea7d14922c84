"""The first module whose own mistake makes two models diverge, forward or backward, and the table over all modules.

From the whole model downwards the search takes the first child, in the order of computation, that is to blame; where a module
is to blame and none of its children, the mistake lies in how it connects them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import distance, norm, relative, without_masked
from alignment.finding import Argument, Finding, LayerRow, Localization
from alignment.frameworks.base import Call, Piece, leaves, mapped
from alignment.kinds import Kind
from alignment.localize.blame import GRADIENT_OF, Blame, Pair, Subject, one_ulp
from alignment.localize.calls import PairedCalls, aligned
from alignment.localize.form import goes_on_outside, of_another_form
from alignment.localize.hypotheses import hint
from alignment.localize.hypotheses.arrays import close
from alignment.localize.hypotheses.calls import mistakes, parting
from alignment.localize.hypotheses.choices import CHOICES, Attribute
from alignment.localize.hypotheses.hypothesis import Hypothesis
from alignment.localize.hypotheses.proposals import Proposal
from alignment.localize.hypotheses.settings import WRITTEN_OUT
from alignment.localize.hypotheses.stopped import beyond_rounding, stops
from alignment.localize.hypotheses.weights import weight_hint
from alignment.localize.hypotheses.wiring import WIRING
from alignment.localize.structure import UNMATCHED
from alignment.models.counterparts import Unmatched
from alignment.models.forms import CallAdapter, learned
from alignment.models.forms.axes import same_numbers
from alignment.models.tracing import Cotangents, Network, training_mode
from alignment.raised import shown
from alignment.strangers import strangers
from mobilenetv3_common.errors import UserError

MOST_STEPS = 4  # behind a layer, in which its effect must be made up for
# What these say of a module's output is less than which of its calls is wrong.
VAGUE = frozenset({Kind.UNKNOWN, Kind.SHAPE, Kind.RAISES})
AS_FLOAT32 = (
    "in float64 the difference is no larger than the rounding of float32. Look for a number that the port rounds to float32 (a "
    "constant, a table, a cast); if a compiled kernel does it, name a layer that computes the same without it: exact_layers in "
    "docs/projects.md"
)
PASSES = 8  # of a reference that may draw random numbers, some of them seldom


def search(pair: Pair) -> Finding | None:
    """The first own mistake, forward, then backward where cotangents are given."""
    return next(findings(pair), None)


def findings(pair: Pair) -> Iterator[Finding]:
    """The own mistakes one after another, forward, then backward where cotangents are given.

    The search goes on with the reference's module in the place of each that is to blame (``Pair.mend``); where gradients of
    parameters or statistics alone are wrong, these are left out instead. A module whose output is wrong is to blame once. Where the
    reference's module cannot take the place, the search goes on beside it, and says nothing of what surrounds it.
    """
    with training_mode(pair.networks, pair.training):
        pair.calls = pair.reference.trace(pair.args, pair.cotangents)
        for phase in ("forward", "backward") if pair.cotangents is not None else ("forward",):
            if phase == "backward":
                _open_rounded(pair)
            pair.opened = frozenset(pair.mended)
            # In low precision a module's mistake drowns in the rounding of all that surround it, so each is looked at.
            inner_first = list(pair.calls) if phase == "forward" else list(reversed(pair.calls))
            for key in inner_first if pair.draws else [""]:
                yield from _descend(pair, key, phase)


def random_cotangents(pair: Pair) -> list[np.ndarray | None]:
    """Gradients of the outputs to begin the backward pass with: standard normal, over the output's size.

    Raises:
        UserError: the reference cannot run on the inputs.
    """
    network = pair.reference
    with training_mode([network], pair.training):
        outputs = _outputs(network, pair.args)
    rng = np.random.default_rng(0)
    return [rng.standard_normal(o.shape) / max(o.size, 1) if o.dtype.kind == "f" else None for o in outputs]


def _outputs(network: Network, args: tuple) -> list[np.ndarray]:
    """What the reference gives; what a pass changed in it is put back."""
    with strangers("reference") as raised:
        outputs = network.framework.call(network.model, args).outputs
    network.put_back()
    if raised.error is not None:
        raise UserError(f"the reference cannot run on these inputs: {raised.error}") from raised.error
    return outputs


def refuse_randomness(pair: Pair) -> None:
    """See that the reference gives the same whenever it is run: its noise would be taken for the floor, and hide every mistake.

    Raises:
        UserError: it does not, or it cannot run on the inputs.
    """
    network = pair.reference
    with training_mode([network], pair.training):
        first: list[np.ndarray] = []
        for _ in range(PASSES if pair.training else 2):
            outputs = _outputs(network, pair.args)
            first = first or outputs
            both = (without_masked(*one) for one in zip(first, outputs, strict=False))
            pairs = [(a, b) for a, b in both if np.isfinite(a).all()]
            if len(first) != len(outputs) or any(
                a.shape != b.shape or relative(distance(a, b), norm(a)) > tolerance.SAME for a, b in pairs
            ):
                mode = "training" if pair.training else "evaluation"
                raise UserError(
                    f"the reference draws random numbers in {mode} mode that cannot be shared (those of dropout layers can): "
                    "nothing can be compared there; take them out on both sides, or compare the other mode"
                )


def _descend(pair: Pair, key: str, phase: str, form: frozenset[str] | None = None) -> Iterator[Finding]:
    """The findings in a guilty call; none where it is right after all when it runs to its end.

    Args:
        pair: the models.
        key: of the call.
        phase: ``"forward"`` or ``"backward"``.
        form: what of a call that surrounds this one differs in form alone; None where this one is to say so.
    """
    path = key.split("#")[0]
    if not pair.watch.goes_on(path or "the whole model"):
        return
    takes = pair.takes(key)
    hides = any(f"{one}.".startswith(f"{path}." if path else "") for one in pair.opened)
    if takes and path not in pair.mended and not hides and not pair.blame(key, phase).guilty and not pair.bare(path):
        if pair.takes(key):
            return
        takes = False  # it refuses what the port never gives it
    _learn(pair, key if pair.takes(key) else _around(pair, path), path)
    if takes or form is None:
        form = of_another_form(pair, key, phase, _suspects(pair, path))
    yield from _inside(pair, key, phase, form)
    yield from _own(pair, key, phase)


def _inside(pair: Pair, key: str, phase: str, form: frozenset[str]) -> Iterator[Finding]:
    """The findings inside a guilty call; those in modules of another form where it is wrong though all else in it is right."""
    path = key.split("#")[0]
    for child in _ordered(pair, path, phase):
        yield from _in_form(pair, child, phase) if child.split("#")[0] in form else _descend(pair, child, phase, form)
    if phase == "backward" or pair.draws or not pair.takes(key):
        return
    for child in _ordered(pair, path, phase):
        if child.split("#")[0] in form and pair.takes(child) and pair.blame(key, phase, whole=True).guilty:
            yield from _inside(pair, child, phase, of_another_form(pair, child, phase, _suspects(pair, child.split("#")[0])))
    if pair.truth is None and not pair.stored and pair.blame(key, phase, whole=True).guilty:
        for child in _beside_rounding(pair, path, form):
            yield from _descend(pair, child, phase, form)


def _beside_rounding(pair: Pair, path: str, form: frozenset[str], inside: bool = False) -> Iterator[str]:
    """Guilty calls inside others that pass since rounding becomes large there: a mask of -1e9 takes nine digits of the scores."""
    for child in (one for one in _ordered(pair, path, "forward") if one.split("#")[0] not in form):
        blame = pair.blame(child, "forward")  # of one that cannot be called alone nothing is known
        if blame.guilty and inside:
            yield child
        elif not blame.guilty and blame.own > pair.rtol:
            yield from _beside_rounding(pair, child.split("#")[0], form, True)


def _around(pair: Pair, path: str) -> str:
    """The innermost module around one that the port has and calls alike; the whole model where there is none."""
    while path := path.rpartition(".")[0]:
        if path in pair.matching.paths and path in pair.calls and pair.takes(path):
            return path
    return ""


def _learn(pair: Pair, key: str, inside: str) -> None:
    """How the port calls what is right directly inside a module, where the reference calls it otherwise; ``key`` is run to see."""
    path, adapters = key.partition("#")[0], pair.matching.adapters
    if path in pair.mended or pair.draws or pair.truth is not None or pair.bare(path):
        return
    first: dict[str, str] = {}
    for child in _children(pair, inside):
        first.setdefault(child.partition("#")[0], child)
    unlike = {
        name: child
        for name, child in first.items()
        if not adapters.known(name) and name not in pair.mended and name in pair.matching.paths
        and pair.calls[child].attended is None and (pair.blame(child, "forward").guilty or not pair.takes(child))
    }  # fmt: skip
    calls = pair.port.given_inside(path, pair.calls[key], unlike) if unlike else {}
    for name, child in unlike.items():
        if name in calls and (found := learned(calls[name], pair.calls[child])) is not None:
            before, alike = pair.blame(child, "forward") if pair.takes(child) else None, adapters[name]
            after = _blamed_as(pair, child, found)
            if not pair.takes(child) or (after.guilty and before is not None and after.own >= before.own):
                _blamed_as(pair, child, alike)
            elif after.guilty:  # it may be right, and be given a wrong one of several arrays
                others = found.with_others(leaves((pair.calls[child].args, pair.calls[child].kwargs), np.ndarray))
                if all(_blamed_as(pair, child, other).guilty for other in others):
                    _blamed_as(pair, child, found)


def _blamed_as(pair: Pair, key: str, form: CallAdapter) -> Blame:
    """Whether a module is to blame where this is how the port calls it, from now on."""
    path = key.partition("#")[0]
    pair.matching.adapters.learn(path, form)
    pair.look_again(path)
    return pair.blame(key, "forward")


def _in_form(pair: Pair, key: str, phase: str) -> Iterator[Finding]:
    """The findings in a module that differs in form alone: its outputs are no mistake, statistics in it may be wrong."""
    if phase == "backward":
        return  # the gradients of all that is in it are right
    path = key.split("#")[0]
    for child in _ordered(pair, path, phase):
        yield from _in_form(pair, child, phase)
    if not pair.blame(key, phase).in_output:
        yield from _own(pair, key, phase)


def _own(pair: Pair, key: str, phase: str) -> Iterator[Finding]:
    """What is wrong in a call itself, where what is in it is right."""
    path = key.split("#")[0]
    if pair.watch.ended or any(f"{one}.".startswith(f"{path}." if path else "") for one in pair.unmendable):
        return
    while pair.takes(key) and path not in pair.mended and pair.blame(key, phase, whole=True).guilty:
        if phase == "backward" and path in pair.rounded and not _beyond_rounding(pair, key):
            break
        what = pair.blame(key, phase).what
        if phase == "forward" and what.startswith("output") and goes_on_outside(pair, key, _caller(pair, path)):
            pair.matching.adapters.mark(path, made_up_for=True)
            return
        if phase == "backward" and _is_right_in_the_whole(pair, path, what):
            _known(pair, path, what)
            continue
        found = _finding(pair, key, phase)
        yield found
        if phase == "backward":
            _mark_forms(pair, key)
        elif found.kind is Kind.FLOAT32_CONSTANT:
            pair.rounded.add(path)
        if not _known(pair, path, what) and not pair.mend(path):
            pair.unmendable.add(path)
            return
    if phase == "backward" and path in pair.rounded and not pair.mend(path):
        pair.unmendable.add(path)


def _open_rounded(pair: Pair) -> None:
    """Look once more, backward, into modules whose outputs differ by rounding alone, where that cannot be why gradients differ."""
    for path in sorted(pair.rounded):
        closed = pair.unmend(path)
        if any(_beyond_rounding(pair, key) for key in pair.calls if key.partition("#")[0] == path):
            pair.unmendable.discard(path)
        elif closed:
            pair.mend(path)


def _beyond_rounding(pair: Pair, key: str) -> bool:
    blame = pair.blame(key, "backward", whole=True) if pair.takes(key) else None
    return blame is not None and blame.guilty and beyond_rounding(blame)


def _mark_forms(pair: Pair, key: str) -> None:
    """What gives something else by itself, inside a call whose output is right, differs in form alone, also once that is mended."""
    path = key.partition("#")[0]
    if pair.draws or pair.blame(key, "forward").guilty:
        return
    for child in (one for one in pair.calls if one.startswith(f"{path}." if path else "") and one != key):
        if child.partition("#")[0] in pair.matching.paths and pair.blame(child, "forward").in_output:
            pair.matching.adapters.mark(child.partition("#")[0], made_up_for=True)


def _ordered(pair: Pair, path: str, phase: str) -> list[str]:
    children = _children(pair, path)
    return children[::-1] if phase == "backward" else children


def _suspects(pair: Pair, path: str) -> list[str]:
    """The calls right inside a module that can be looked at by themselves, in the order of computation."""
    found = []
    for child in _children(pair, path):
        found += [child] if pair.takes(child) else _suspects(pair, child.split("#")[0])
    return found


def _is_right_in_the_whole(pair: Pair, path: str, what: str) -> bool:
    """Whether the whole port gives a parameter the reference's gradient, which a module of it by itself does not.

    What surrounds the module then stops a gradient that the module would pass on: a row of padding, by ``detach``.
    """
    name = what.removeprefix(GRADIENT_OF)
    if not path or "" not in pair.calls or name not in pair.reference.held(path) or not pair.takes(""):
        return False
    full, whole = f"{path}.{name}", pair.blame("", "backward", whole=True)
    ours, theirs = (answer.gradients.get(full) for answer in (whole.ours, whole.theirs))
    return ours is not None and theirs is not None and bool(theirs.any()) and close(ours, theirs, tolerance.FLOAT32_CONSTANT)


def _known(pair: Pair, path: str, what: str) -> bool:
    """Leave a parameter's gradient or a statistic out from now on, where it alone was wrong; False for all else."""
    name = what.removeprefix(GRADIENT_OF)
    if name not in pair.reference.held(path):
        return False
    pair.known.add(f"{path}.{name}" if path else name)
    pair.forget()
    return True


def _children(pair: Pair, path: str) -> list[str]:
    """Keys of the calls of a module's children, in the order in which the reference made them."""
    names = set(pair.reference.children(path, pair.called))
    return [key for key in pair.calls if key.split("#")[0] in names]


def _finding(pair: Pair, key: str, phase: str) -> Finding:
    path, blame = key.split("#")[0], pair.blame(key, phase)
    blame = pair.in_shape(blame) if pair.matching.adapters[path].fixed else blame
    stage: Any = phase
    inside = [u for u in pair.matching.unmatched if _caller(pair, u.path) == path]
    unmatched = [u for u in inside if u.kind in ("missing", "extra") and not _idle(pair, u)]
    rounded = pair.truth is None and 0 < blame.own < tolerance.FLOAT32_CONSTANT
    light = phase == "forward" and not rounded  # a layer more or less changes more
    explaining = (one for one in unmatched if one.parameters or (light and _explains(pair, one, key, blame)))
    if (found := _of_layers(stage, path, blame, [u for u in inside if u.kind == "moved"], explaining)) is not None:
        return found
    where = path or f"{pair.port.framework.layer(pair.port.model).title}.forward"
    subject = Subject(pair, path, pair.calls[key], phase, blame)
    wrong = mistakes(subject) if phase == "forward" else stops(subject)
    if (chosen := _of_choice(subject, where, wrong)) is not None:
        return chosen
    if blame.ours.error and wrong:
        measured = f"then {blame.ours.place or path} raises {blame.ours.error}, given the reference's own input"
        return _of_calls(pair, Finding(stage, where, wrong[0].kind, _lines(wrong), measured, wrong[0].source), wrong)
    if blame.ours.error and blame.ours.place:
        raised = f"{path or 'the model'} raises {blame.ours.error}"
        return Finding(stage, blame.ours.place, Kind.RAISES, raised, "given the reference's own input")
    kind, words = hint(subject)
    if kind is Kind.NOT_FINITE and phase == "backward" and (inside_it := _underived(pair, path)):
        words += (
            f"; the reference's own gradient in {inside_it} is, too: the input hits a point without a derivative (a root or a norm "
            "of exactly 0, for example), and the port passes on what the reference stops: no layer need be wrong; "
            "give another --input"
        )
    if wrong:
        vague = kind in VAGUE or wrong[0].conclusive or (kind is Kind.ACTIVATION_EXTRA and wrong[0].kind is not Kind.CALL_EXTRA)
        kind, words = (wrong[0].kind, _lines(wrong)) if vague else (kind, f"{words}: {_lines(wrong)}")
        if rounded:
            words += f" ({AS_FLOAT32})"
            kind = Kind.FLOAT32_CONSTANT if kind is Kind.OTHER_FUNCTION else kind  # it makes the same but for rounding
        measured = f"{blame.measured}, {_given(pair, blame)}"
        return _of_calls(pair, Finding(stage, where, kind, words, measured, wrong[0].source), wrong)
    if kind in (Kind.UNKNOWN, Kind.FEW_ELEMENTS) and rounded:
        kind, words = Kind.FLOAT32_CONSTANT, f"no known mistake: {AS_FLOAT32}"
    elif kind is Kind.UNKNOWN and (other := _lacking(subject, unmatched, key)) is not None:
        here, there = ("reference", "port") if other.kind == "missing" else ("port", "reference")
        words = f"the {here} has the layer {other.path} ({other.module}) here, the {there} has none: does it call the function?"
        kind = UNMATCHED[other.kind]
    found = Finding(stage, where, kind, words, f"{blame.measured}, {_given(pair, blame)}")
    if kind is Kind.UNKNOWN and phase == "forward" and pair.truth is None:
        _narrow(found, subject, key)
    return found


def _of_layers(stage: Any, path: str, blame: Blame, moved: Sequence[Unmatched], explaining: Iterator[Unmatched]) -> Finding | None:
    """Layers in another order, which is why the module raises, or one more or less; None where there is neither."""
    if moved and blame.ours.error:
        words = f"other order of layers: {moved[0].path} is {moved[0].own} in the port"
        return Finding(stage, path, Kind.CALL_ORDER, words, blame.measured)
    if (other := next(explaining, None)) is None:
        return None
    side = "the port lacks it" if other.kind == "missing" else "the reference has no such layer"
    return Finding(stage, other.path, UNMATCHED[other.kind], f"{other.module}: {side}", blame.measured)


def _of_choice(s: Subject, where: str, wrong: Sequence[Proposal]) -> Finding | None:
    """An attribute that has another value than the reference's, with the line that sets it; None where that explains nothing.

    Of a number the call that is given it says more.
    """
    chosen = next(CHOICES.confirmed(s), None)
    attribute: Attribute | None = chosen.about if chosen else None
    number = attribute is not None and not isinstance(attribute.found, bool | str)
    if chosen is None or attribute is None or (number and any(one.kind is Kind.CALL_ARGUMENT for one in wrong)):
        return None
    place, kind = f"{shown(attribute.place[0])}:{attribute.place[1]}", type(s.pair.port.modules[s.path]).__name__
    found, expected = attribute.found, attribute.expected
    called = attribute.method or kind
    given = Argument(source=place, function=called, name=attribute.name, given=True, found=found, expected=expected)
    measured = f"{s.blame.measured}, {_given(s.pair, s.blame)}"
    kind_of, words = _said_of_choice(s, chosen, attribute)
    return Finding("forward", where, kind_of, words, measured, place, arguments=[given])


def _said_of_choice(s: Subject, chosen: Hypothesis, attribute: Attribute) -> tuple[Kind, str]:
    """Of a flag what it changes, where that is a known mistake: "residual missing: use_res_connect is False, expected True"."""
    if not isinstance(attribute.found, bool) or attribute.method:
        return chosen.kind, chosen.words
    known, said = WIRING.hint(s)
    return (known, f"{said}: {chosen.words}") if said else (chosen.kind, chosen.words)


def _given(pair: Pair, blame: Blame) -> str:
    """On what a blame was measured; where shapes differ, which are not those of the user's input, its size."""
    shapes = [[array.shape for array in side.outputs] for side in (blame.ours, blame.theirs)]
    size = f", in a pass over {'x'.join(map(str, pair.reduced))}" if pair.reduced and shapes[0] != shapes[1] else ""
    return f"given the reference's own input{size}"


def _narrow(found: Finding, subject: Subject, key: str) -> None:
    """In place: say where a module leaves the reference, for no known mistake."""
    found.measured += _narrowed(subject.pair, key)
    if (apart := parting(subject)) is not None:
        found.hint = f"no known mistake matches; {apart.source}: the reference has no value equal to the result of {apart.words}"
        found.source = apart.source
    found.kind, found.hint = next((one.hint for one in WRITTEN_OUT.confirmed(subject)), (found.kind, found.hint))


def _narrowed(pair: Pair, key: str) -> str:
    """Between which layers inside a module the port leaves the reference, as far as both call them; ``""`` where nothing shows."""
    path, call, framework = key.partition("#")[0], pair.calls[key], pair.reference.framework
    layers = [
        name for name, module in pair.reference.modules.items() if name in pair.port.modules and not framework.children(module)
    ]
    inside = [name for name in layers if name != path and f"{name}.".startswith(f"{path}." if path else "")]
    ours, theirs = (network.given_inside(path, call, inside) for network in (pair.port, pair.reference))
    last = ""
    for name in (name for name in theirs if name in ours):
        given = [leaves((calls[name].args, calls[name].kwargs), np.ndarray) for calls in (ours, theirs)]
        if not all(given) or sorted(given[0][0].shape) != sorted(given[1][0].shape):
            continue  # in another form: it says nothing
        if not same_numbers(given[0][0], given[1][0]):
            return f"; inside, {name} is given other numbers{f', and {last} the same on both sides' if last else ''}"
        last = name
    return ""


def _underived(pair: Pair, path: str) -> str:
    """The first module inside one of which the reference itself has no finite gradient on this input; ``""`` for none."""
    inside = [one for one in sorted(pair.underived) if one != path and f"{one}.".startswith(f"{path}." if path else "")]
    return inside[0] if inside else ""


def _of_calls(pair: Pair, found: Finding, wrong: list[Proposal]) -> Finding:
    """The same with the arguments that are wrong, and the layer of the framework that makes the call."""
    found.arguments = _arguments(wrong)
    alike = len({(one.source, one.words) for one in wrong}) == 1 and all(one.layer is not None for one in wrong)
    if alike and (layer := wrong[0].layer) is not None:
        modules = pair.port.framework.modules(pair.port.model, every_path=True)
        found.layer = next((path for path, module in modules.items() if module is layer), "")
    return found


def _lines(wrong: list[Proposal]) -> str:
    """The words of each, of those about one call of the source the first."""
    found: dict[tuple, list[str]] = {}
    for one in wrong:
        found.setdefault((one.source, one.operation.function, one.operation.site, one.kind), []).append(
            f"{one.source}: {one.words}"
        )
    several = {words[0]: len(words) if len(set(words)) > 1 else 1 for words in found.values()}
    return "; also ".join(f"{words}, and alike in its other calls" if count > 1 else words for words, count in several.items())


def _arguments(wrong: list[Proposal]) -> list[Argument]:
    """The arguments of calls that are wrong; empty where something else is, too."""
    found = [one.arguments for one in wrong]
    return [argument for arguments in found for argument in arguments] if all(found) else []


def _idle(pair: Pair, other: Unmatched) -> bool:
    """Whether a layer that one side alone has computes nothing, so that it explains no difference."""
    network = pair.reference if other.kind == "missing" else pair.port
    module = network.modules.get(other.path)
    return module is not None and network.framework.layer(module).kind == "identity"


def _lacking(subject: Subject, unmatched: Sequence[Unmatched], key: str) -> Unmatched | None:
    """The first layer that one side alone has and whose numbers are nowhere on the other; None where a call is seen to differ."""
    lacking = next((other for other in unmatched if _lacks(subject.pair, other, key)), None)
    return lacking if lacking is None or parting(subject) is None else None


def _lacks(pair: Pair, other: Unmatched, key: str) -> bool:
    """Whether what a layer gives that one side alone has occurs nowhere on the other side, though what it is given does.

    Either side may call a function in place of a layer without parameters; then nothing is lacking.
    """
    path, call = key.partition("#")[0], pair.calls[key]
    if other.kind == "missing" and other.path in pair.calls and pair.reference.drawn(other.path, pair.calls[other.path]):
        return not pair.port.drawn(path, call)  # the port draws, too: its function is there
    having, without = (pair.reference, pair.port) if other.kind == "missing" else (pair.port, pair.reference)
    children = pair.reference.framework.children
    among = {name for name, module in pair.reference.modules.items() if name in pair.port.modules and not children(module)}
    with strangers("port") as raised:  # the arrays are too many to be kept, or it raises
        there, here = having.traced(path, call, among | {other.path}), without.traced(path, call, among)
    if raised.error is not None:
        return False
    if there is None or here is None:
        return False
    both = aligned(here, there, rtol=tolerance.FLOAT32_CONSTANT)
    held = both.held
    made = [one for one in there.operations if one.name == f"call {other.path}" and one.outputs]
    apart = [one for one in made if all(value in held for value in one.inputs) and not all(value in held for value in one.outputs)]
    return any(not _made_up_for(both, one.outputs) for one in apart)


def _made_up_for(pair: PairedCalls, values: Iterable[Any]) -> bool:
    """Whether something computed from values of the reference's that the port lacks occurs there, in whatever layout.

    The port takes steps in another order, or in a function of its own.
    """
    lacking, steps = set(values), 0
    for one in pair.theirs.operations:
        if steps < MOST_STEPS and lacking.intersection(one.inputs):
            steps += 1
            if one.outputs and all(value in pair.held or pair.had_in_any_order(value) for value in one.outputs):
                return True
            lacking.update(one.outputs)
    return False


def _explains(pair: Pair, other: Unmatched, key: str, blame: Blame) -> bool:
    """Whether both sides agree where the layer without parameters that one of them has gives its input back."""
    network, wanted = (pair.reference, blame.ours) if other.kind == "missing" else (pair.port, blame.theirs)
    if not blame.in_output:
        return False  # only a statistic or a gradient differs, and did so without the layer
    answer = network.answer_without(key.partition("#")[0], pair.calls[key], other.path)
    if not wanted.outputs or len(answer.outputs) < len(wanted.outputs):
        return False  # it raises, for a reason of its own
    return all(close(ours, theirs, tolerance.SAME) for ours, theirs in zip(answer.outputs, wanted.outputs, strict=False))


def _caller(pair: Pair, path: str) -> str:
    """The nearest module above a path that the reference's pass called and the port has."""
    while path:
        path = path.rpartition(".")[0]
        if path in pair.called and not pair.matching.adapters[path].bare:
            break
    return path


def table(pair: Pair) -> list[LayerRow]:
    """Every module as both models ran through: difference, noise floor, and its own mistake where that was looked at."""
    with training_mode([pair.port, pair.reference], pair.training):
        theirs = pair.calls = pair.calls or pair.reference.trace(pair.args, pair.cotangents)
        ours, whole = pair.port.calls_until(pair.args, pair.limits())
        if pair.cotangents is not None and whole:
            ours = _traced(pair.port, pair.args, pair.cotangents) or ours
        with moved_weights(pair.reference):
            shaken = pair.reference.trace(mapped(pair.args, np.ndarray, one_ulp), pair.cotangents)
    rows = []
    for phase in ("forward", "backward"):
        keys = list(theirs) if phase == "forward" else list(reversed(theirs))
        for key in keys:
            path = key.split("#")[0]
            truth = _first(theirs[key], phase)
            if truth is None or truth.dtype.kind != "f" or pair.matching.adapters[path].bare:
                continue
            mine = _first(ours[key], phase) if key in ours else None
            noise = _first(shaken[key], phase) if key in shaken else None
            title = pair.reference.framework.layer(pair.reference.modules[path]).title
            rows.append(_row(key, title, phase, mine, truth, noise, pair.blames.get((key, phase))))
    return rows


def _row(key: str, kind: str, phase: str, ours: Any, truth: np.ndarray, noise: Any, blame: Blame | None) -> LayerRow:
    scale = norm(truth)
    own = blame.own if blame else None
    if ours is None or ours.shape != truth.shape:
        return LayerRow(key, kind, phase, float("inf"), 0.0, float("inf"), 0.0, own)
    with np.errstate(invalid="ignore", over="ignore"):
        product = float(ours.reshape(-1).astype(np.float64) @ truth.reshape(-1).astype(np.float64))
        cosine = product / (norm(ours) * scale) if norm(ours) * scale > 0 else float(norm(ours) == scale)
        largest = float(np.abs(ours - truth).max(initial=0.0))
        difference = relative(distance(ours, truth), scale)
    floor = relative(distance(noise, truth), scale) if noise is not None else 0.0
    return LayerRow(key, kind, phase, difference, cosine, largest, floor, own)


def _traced(network: Network, args: tuple, cotangents: Cotangents | None) -> dict[str, Call]:
    with strangers("port"):  # a port that cannot run has no rows; the search has said why
        return network.trace(args, cotangents)
    return {}


def _first(call: Call, phase: str) -> np.ndarray | None:
    arrays = call.gradients if phase == "backward" else leaves(call.output, np.ndarray)
    return arrays[0] if arrays else None


@contextlib.contextmanager
def moved_weights(network: Network, draw: int = 0) -> Iterator[None]:
    """Every weight is moved by one ulp inside the block."""
    framework = network.framework
    parameters = framework.parameters(network.model)
    before = {name: framework.array(tensor) for name, tensor in parameters.items()}
    for name, array in before.items():
        framework.assign(parameters[name], one_ulp(array, draw))
    try:
        yield
    finally:
        for name, array in before.items():
            framework.assign(parameters[name], array)


def locate_in_models(pair: Pair, with_table: bool = True) -> Localization:
    """Search one pair, and make the table over all its modules."""
    start = time.perf_counter()
    first = search(pair)
    layers = table(pair) if with_table else []
    return Localization(first, layers, time.perf_counter() - start)


def weights_finding(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], tied: list[list[str]]) -> Finding | None:
    """The first of ``weights_findings``."""
    return next(iter(weights_findings(ours, theirs, tied)), None)


def weights_findings(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], tied: list[list[str]]) -> list[Finding]:
    """The weights and statistics that are not the reference's; those of which the same can be said are one finding.

    Args:
        ours, theirs: canonical states under the reference's names, of equal shapes.
        tied: groups of names that are one tensor in the port alone.
    """
    found = [
        Finding("weights", g[-1], Kind.PARAMETERS_SHARED, f"the same tensor as {g[0]} in the port", f"{len(g)} names") for g in tied
    ]
    shared = {name for group in tied for name in group}  # one of them has the other's values
    wrong = [name for name, value in theirs.items() if name not in shared and (ours[name] != value).any()]
    alike: dict[tuple, Finding] = {}
    for name in wrong:
        kind, words = weight_hint(name, wrong, ours, theirs)
        if kind is not Kind.UNKNOWN and (kind, words) in alike:
            alike[kind, words].also.append(name)
            continue
        size = relative(distance(ours[name], theirs[name]), norm(theirs[name]))
        measured = f"relative L2 {size:.1e}; {len(wrong)} of {len(theirs)} tensors differ"
        alike[kind, words if kind is not Kind.UNKNOWN else name] = Finding("weights", name, kind, words, measured)
    return [*found, *alike.values()]


def tied_names(described: list, name_of: Callable[[Any], str]) -> list[list[str]]:
    """Groups of names whose parameters are one tensor.

    Args:
        described: ``Framework.described`` of a model.
        name_of: the name that an entry goes by.
    """
    groups: dict[int, list[str]] = {}
    for entry, tensor in described:
        if entry.role == "parameter" and not isinstance(entry, Piece):
            groups.setdefault(id(tensor), []).append(name_of(entry))
    return [group for group in groups.values() if len(group) > 1]
