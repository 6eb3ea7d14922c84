"""Which modules of a port draw random numbers from the other end of the interval: the masks differ, their distribution does not.

``rand() < keep`` keeps a value as often as ``floor(keep + rand())`` does, but another one of the same numbers; noise may be added
or subtracted. Such a module of the port is given the mirrored numbers, with which it does what the reference's does.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType, FunctionType

from alignment import tolerance
from alignment.compare import distance, norm, relative
from alignment.frameworks._dropout import mirror
from alignment.frameworks.base import Framework, Module
from alignment.models.tracing import Answer, Network, training_mode
from alignment.strangers import strangers

# Functions of which it is not known what the numbers are for.
DRAWING = frozenset(["rand", "rand_like", "uniform", "uniform_", "randn", "randn_like", "normal", "normal_", "standard_normal"])


def draws(framework: Framework, kind: type, named: frozenset[str] = DRAWING) -> bool:
    """Whether the forward of a class, or a function that it calls, names such a function; a framework's own layers are known."""
    package = framework.module_type.__module__.partition(".")[0]
    seen: set[CodeType] = set()

    def within(function: object) -> bool:
        if not isinstance(function, FunctionType) or function.__module__.partition(".")[0] == package or function.__code__ in seen:
            return False
        seen.add(function.__code__)
        names = set(_names(function.__code__))
        called = (one for name in names for one in (function.__globals__.get(name), getattr(kind, name, None)))
        return bool(names & named) or any(within(one) for one in called)

    return within(getattr(kind, framework.computing, None))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def any_draws(framework: Framework, model: Module, named: frozenset[str] = DRAWING) -> bool:
    """Whether a module of a model does."""
    return any(draws(framework, kind, named) for kind in {type(module) for module in framework.modules(model).values()})


def choose(port: Network, reference: Network, inputs: tuple) -> frozenset[str]:
    """The modules of the port, by its own paths, that give what the reference's give only where their numbers are mirrored.

    Each is given the reference's own input.

    Args:
        port, reference: in exact mode, with the same weights and the same numbers to draw.
        inputs: of both, float64.
    """
    chosen: set[str] = set()
    with training_mode([port, reference], True), strangers("reference"):  # it may need labels: there is nothing to compare then
        for path, call in reference.trace(inputs).items():
            both = [(side.framework, side.modules.get(path)) for side in (port, reference)]
            if any(module is None for _, module in both) or not any(draws(framework, type(module)) for framework, module in both):
                continue
            right = reference.answer(path, call)
            if alike(port.answer(path, call), right):
                continue
            own = _drawing(port, reference, path)
            mirror(own.values())
            if alike(port.answer(path, call), right):
                chosen.update(own)
            else:
                mirror(own.values(), False)
    return frozenset(chosen)


def apply(framework: Framework, model: Module, paths: frozenset[str]) -> None:
    """Let these modules of a model draw mirrored numbers."""
    modules = framework.modules(model, every_path=True) if paths else {}
    mirror(modules[path] for path in paths)


def _drawing(port: Network, reference: Network, path: str) -> dict[str, Module]:
    """A module of the port with the dropout layers in it that the reference has none for, by the port's own paths."""
    framework, module, own = port.framework, port.modules[path], (port.paths or {}).get(path, path)
    layers = {theirs for theirs, one in reference.modules.items() if reference.framework.layer(one).kind == "dropout"}
    paired = {id(port.modules[theirs]) for theirs in layers if theirs in port.modules}
    found = {own: module}
    for name, one in framework.modules(module).items():
        if name and framework.layer(one).kind == "dropout" and id(one) not in paired:
            found[f"{own}.{name}" if own else name] = one
    return found


def alike(ours: Answer, theirs: Answer) -> bool:
    """Whether two sides give the same but for rounding."""
    pairs = zip(ours.outputs, theirs.outputs, strict=False)
    return len(ours.outputs) == len(theirs.outputs) > 0 and all(
        a.shape == b.shape and relative(distance(a, b), norm(b)) < tolerance.FLOAT32_CONSTANT for a, b in pairs
    )
