"""Mistakes that the layers and their tensors' shapes show, before anything is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from alignment.finding import Finding, Hint
from alignment.frameworks.base import Layer, Module, Piece
from alignment.kinds import Kind
from alignment.models.counterparts import Matching, Sides, Unmatched

Shapes = dict[str, tuple[int, ...]]
MOST_NAMED = 4  # tensors that one side alone has
GATES = {"lstm": 4, "gru": 3, "rnn": 1}  # rows of a recurrent layer's matrices for each of its hidden numbers
UNMATCHED = {
    "missing": Kind.LAYER_MISSING,
    "extra": Kind.LAYER_EXTRA,
    "replaced": Kind.LAYER_REPLACED,
    "moved": Kind.CALL_ORDER,
}


def structure_finding(
    port: Module,
    reference: Module,
    matching: Matching,
    sides: Sides,
    used: Callable[[], Sequence[str]] = lambda: (),
    last_layer: str | None = None,
) -> Finding | None:
    """The first of ``structure_findings``; it says how many more there are."""
    found = structure_findings(port, reference, matching, sides, used, last_layer)
    if more := len(found) - 1:
        for first in found[:1]:
            first.measured += f"; {more} more layer{'s' if more > 1 else ''} with other weights"
    return found[0] if found else None


def structure_findings(
    port: Module,
    reference: Module,
    matching: Matching,
    sides: Sides,
    used: Callable[[], Sequence[str]] = lambda: (),
    last_layer: str | None = None,
) -> list[Finding]:
    """The layers with weights, in the order of computation, that only one side has or that have other tensors.

    Args:
        port, reference: the models.
        matching: which module is which.
        sides: frameworks of the port and of the reference.
        used: gives the paths of the reference's modules in the order of use; that of definition stands where it is empty.
        last_layer: path of the layer whose outputs are the classes.
    """
    found: list[tuple[str, bool, Finding]] = []
    moved = tuple(f"{u.path}." for u in matching.unmatched if u.kind == "moved" and u.alters)
    layers = _layers(port, reference, matching, sides)
    for path, layer in layers.items():
        if layer.ours != layer.theirs and not f"{path}.".startswith(moved):
            found.append((path, False, _layer_finding(path, layer, layers, last_layer)))
    held = _held(port, reference, sides)
    others = [u for u in matching.unmatched if u.parameters and not (u.kind == "replaced" and held(u.path))]
    if not (found or moved or any(u.kind != "moved" for u in others)):
        return []  # what has moved alone may be right there: the forward pass tells
    found += [(u.follows or u.path, u.kind == "extra", _unmatched_finding(u)) for u in others]
    order = list(used()) or list(sides[1].modules(reference))
    return [one[2] for one in sorted(found, key=lambda one: _rank(one[0], one[1], one[2].location, order))]


def _held(port: Module, reference: Module, sides: Sides) -> Callable[[str], bool]:
    """Whether the port has all tensors of a module of the reference that holds other modules: in others, it is no other layer."""
    ours = {entry.canonical: entry.shape for entry in sides[0].entries(port)}
    theirs = {entry.canonical: entry.shape for entry in sides[1].entries(reference)}
    modules = list(sides[1].modules(reference, every_path=True))

    def held(path: str) -> bool:
        inside = [name for name in theirs if name.startswith(f"{path}.")]
        return any(one.startswith(f"{path}.") for one in modules) and all(ours.get(name) == theirs[name] for name in inside)

    return held


def _rank(place: str, extra: bool, location: str, order: Sequence[str]) -> float:
    """Where a module computes: at its first layer; an extra one behind the module that it follows, or at its parent's beginning."""
    inside = [number for number, path in enumerate(order) if f"{path}.".startswith(f"{place}." if place else "")]
    if not inside:
        return float(len(order))
    if not extra:
        return float(min(inside))
    return min(inside) - 0.5 if place == location.rpartition(".")[0] else max(inside) + 0.5


def _unmatched_finding(other: Unmatched) -> Finding:
    called = f", called {other.own} in the port" if other.own not in ("", other.path) else ""
    words = {
        "missing": f"the layer {other.module} is missing in the port",
        "extra": f"the port has a layer {other.module} that the reference does not have{called}",
        "replaced": f"{other.instead}, expected {other.module}{called}",
        "moved": f"other order of layers: {other.path} ({other.module}) is {other.own} in the port",
    }[other.kind]
    place = other.path.rpartition(".")[0] if other.kind == "moved" else other.path
    return Finding("structure", place, UNMATCHED[other.kind], words, f"{other.parameters:,} parameters")


@dataclass
class _Tensors:
    """Canonical shapes of a matched module's own tensors on both sides, by last name, and what the module computes."""

    port: Layer
    reference: Layer
    ours: Shapes = field(default_factory=dict)
    theirs: Shapes = field(default_factory=dict)


def _layers(port: Module, reference: Module, matching: Matching, sides: Sides) -> dict[str, _Tensors]:
    """Matched modules that have tensors on either side, by the reference's path, in its order."""
    modules = [side.modules(model, every_path=True) for side, model in zip(sides, (port, reference), strict=True)]
    back = matching.renaming()
    pieces = {entry.canonical for entry in sides[0].entries(port) if isinstance(entry, Piece)}
    found: dict[str, _Tensors] = {}
    for number, model in ((1, reference), (0, port)):
        for entry in sides[number].entries(model):
            if isinstance(entry, Piece) or entry.canonical in pieces:
                continue  # its counterpart has its shape
            path, _, last = entry.canonical.rpartition(".")
            theirs = path if number else back.get(path)
            if theirs is None or theirs not in matching.paths or theirs not in modules[1]:
                continue
            if theirs not in found:
                mine = sides[0].layer(modules[0][matching.paths[theirs]])
                found[theirs] = _Tensors(mine, sides[1].layer(modules[1][theirs]))
            (found[theirs].theirs if number else found[theirs].ours)[last] = entry.shape
    return found


def _layer_finding(path: str, layer: _Tensors, layers: Mapping[str, _Tensors], last_layer: str | None) -> Finding:
    """What is wrong with the tensors of one layer."""
    ours, theirs = layer.ours, layer.theirs
    name = next(n for n in [*theirs, *ours] if ours.get(n) != theirs.get(n))
    place = f"{path}.{name}" if path else name
    above = path.rpartition(".")[0]
    for other, there in layers.items():
        if other != path and other.rpartition(".")[0] == above and ours == there.theirs and there.ours == theirs != ours:
            words = f"the port's layers {path} and {other} have each other's names: {_shapes(name, layer)}"
            return Finding("structure", path, Kind.LAYER_RENAMED, words, f"{len(theirs)} tensors")
    if ours.keys() != theirs.keys():
        kind, words = _other_tensors(layer)
        if kind is Kind.LAYER_REPLACED:
            return Finding("structure", path or place, kind, words, _counts(ours, theirs))
        side = "port" if name not in ours else "reference"
        return Finding("structure", place, kind, f"the {side} has no such tensor: {words}", _counts(ours, theirs))
    kind, words = _other_shape(name, layer)
    if kind is Kind.WIDTH and path == last_layer and ours[name][1:] == theirs[name][1:]:
        kind, words = Kind.CLASS_COUNT, f"{ours[name][0]} classes, expected {theirs[name][0]}"
    hint = ": ".join(filter(None, (words, _shapes(name, layer))))
    return Finding("structure", place, kind, hint, _counts(ours, theirs))


def _shapes(name: str, layer: _Tensors) -> str:
    return f"shape {layer.ours[name]}, expected {layer.theirs[name]}"


def _counts(ours: Shapes, theirs: Shapes) -> str:
    extra, missing = len(ours.keys() - theirs.keys()), len(theirs.keys() - ours.keys())
    other = sum(ours[n] != theirs[n] for n in ours.keys() & theirs.keys())
    counted = ((extra, "superfluous in the port"), (missing, "missing in the port"), (other, "of another shape"))
    said = ", ".join(f"{count} {'is' if count == 1 else 'are'} {what}" for count, what in counted if count)
    return f"of the tensors of this layer, {said}"


def _other_tensors(layer: _Tensors) -> Hint:
    """Why two layers have tensors of other names."""
    ours, theirs = layer.ours, layer.theirs
    extra, missing = ours.keys() - theirs.keys(), theirs.keys() - ours.keys()
    kinds = {layer.port.kind, layer.reference.kind}
    if len(kinds) > 1 and (extra | missing != {"bias"} or "conv_transpose" in kinds):
        lacks = "; ".join(
            f"{words} {', '.join(f'{name} {shapes[name]}' for name in sorted(names))}"
            for words, names, shapes in (("without", missing, theirs), ("with", extra, ours))
            if 0 < len(names) <= MOST_NAMED
        )
        return Kind.LAYER_REPLACED, f"{layer.port.title}, expected {layer.reference.title}{f': {lacks}' if lacks else ''}"
    if (extra or missing) == {"weight", "bias"} and not (extra and missing):
        words = "does not scale and shift" if missing else "scales and shifts"
        return Kind.NORM_AFFINE, f"the port's {layer.reference.title} {words} (affine={not missing})"
    if extra == {"bias"} and not missing:
        return Kind.BIAS_EXTRA, f"the port's {layer.port.title} has a bias"
    if missing == {"bias"} and not extra:
        return Kind.BIAS_MISSING, f"the port's {layer.port.title} has no bias"
    return Kind.WEIGHTS_MISSING, f"{layer.port.title} against {layer.reference.title}"


def _other_shape(name: str, layer: _Tensors) -> Hint:
    """Why a tensor has another shape."""
    a, b = layer.ours[name], layer.theirs[name]
    kinds = {layer.port.kind, layer.reference.kind}
    if kinds == {"conv", "linear"} and {*a[2:], *b[2:]} == {1}:
        return _other_kernel(a[:2], b[:2], 1, 1)
    if len(a) != len(b) or "conv_transpose" in kinds != {"conv_transpose"}:
        return Kind.LAYER_REPLACED, f"{layer.port.title}, expected {layer.reference.title}"
    if len(a) == 2 and a == b[::-1]:
        return Kind.WEIGHT_TRANSPOSED, "weight transposed"
    if layer.reference.kind == "conv_transpose" and len(a) > 2:  # (inputs, outputs of a group, *kernel)
        groups = [int(side.settings.get("groups", 1)) for side in (layer.port, layer.reference)]
        if groups[0] != groups[1] and a[1] * groups[0] == b[1] * groups[1]:
            return Kind.GROUPS, f"{groups[0]} groups, expected {groups[1]}"
    if layer.reference.kind == "conv" and len(a) > 2:
        return _other_kernel(a, b, *(int(side.settings.get("groups", 1)) for side in (layer.port, layer.reference)))
    if (gates := GATES.get(layer.reference.kind)) and a[0] != b[0]:
        return Kind.WIDTH, f"{a[0] // gates} hidden numbers, expected {b[0] // gates}"
    if len(a) == 1:
        return Kind.WIDTH, f"{a[0]} channels, expected {b[0]}"
    if layer.reference.kind == "linear":
        widths = [(what, x, y) for what, x, y in zip(("outputs", "inputs"), a, b, strict=True) if x != y]
        return Kind.WIDTH, ", ".join(f"{x} {what}, expected {y}" for what, x, y in widths)
    return Kind.SHAPE, ""


def _other_kernel(a: tuple[int, ...], b: tuple[int, ...], groups: int, expected: int) -> Hint:
    """Convolutions of canonical weights (outputs, inputs of a group, *kernel)."""
    found: list[Hint] = []
    depthwise = groups == a[0] > 1, expected == b[0] > 1
    if groups != expected and depthwise != (True, True):
        found.append((Kind.GROUPS, f"{groups} groups, expected {expected}"))
    if a[0] != b[0]:
        found.append((Kind.WIDTH, f"{a[0]} output channels, expected {b[0]}"))
    if a[1] * groups != b[1] * expected and depthwise != (True, True):
        found.append((Kind.WIDTH, f"{a[1] * groups} input channels, expected {b[1] * expected}"))
    if a[2:] != b[2:]:
        sizes = ["x".join(map(str, shape[2:])) for shape in (a, b)]
        found.append((Kind.KERNEL_SIZE, f"kernel {sizes[0]}, expected {sizes[1]}"))
    return (found[0][0], ", ".join(words for _, words in found)) if found else (Kind.SHAPE, "")
