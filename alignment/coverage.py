"""What a verdict rests on: the functions of the port that the steps ran, and the recipes and options that they compared.

That a function was run does not prove it, that it was not run proves that nothing is known of it: those are listed. Recipes and
options are noted by the steps beside the comparison itself (``StepResult.cover``).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import pkgutil
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType, ModuleType
from typing import Any

from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult
from alignment.comparisons.topics import TOPICS
from alignment.project import PARTS

WIDTH = 130  # columns of a line below the verdict
BY_SEEDS = "final accuracies"  # covered where as many seeds as were run show that they are equal
SHARED = (2, 4, 5, 6, 7)  # steps whose two sides may share code: there a comparison of them proves what a witness has seen
SPECIAL = ("__init__", "__call__", "__iter__", "__len__", "__getitem__")


@dataclass
class Coverage:
    """What a run's verdict rests on, and what it does not.

    Attributes:
        covered: recipes and options that were compared.
        not_covered: those that the steps which ran could have compared, or that no step compares by default.
        elsewhere: those of steps that were not run.
        run: public functions of the port that the steps ran, ``module.Class.function``.
        not_run: those of the same modules that no step ran.
        packages: parts of the port's package that no step looks at.
    """

    covered: list[str] = field(default_factory=list)
    not_covered: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    run: list[str] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The content of ``coverage`` in alignment.json."""
        return {
            "covered": self.covered,
            "not_covered": [*self.not_covered, *self.elsewhere],
            "packages_not_covered": self.packages,
            "functions_run": self.run,
            "functions_not_run": self.not_run,
        }

    def lines(self) -> list[str]:
        """What is said below the verdict."""
        compared, missing = ([one for one in topics if one != BY_SEEDS] for topics in (self.covered, self.not_covered))
        lines = [f"covered: {', '.join(compared)}"] if compared else []
        if missing := [*missing, *self.packages]:
            lines.append(f"not covered: {', '.join(missing)}")
        if BY_SEEDS in (*self.covered, *self.not_covered):  # a line of its own: it depends on the processor's rounding
            lines.append(f"{BY_SEEDS} equal within the margin: {'yes' if BY_SEEDS in self.covered else 'undecided'}")
        if self.not_run:
            total = len(self.run) + len(self.not_run)
            lines.append(f"not run: {len(self.not_run)} of {total} public functions of the port (listed in alignment.json)")
        return [textwrap.fill(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False) for line in lines]

    def text(self) -> str:
        """The content of covered.txt: a line for each thing that was compared, and for each function that was run."""
        functions = ["", f"{len(self.run)} public functions of the port were run:", *(f"  {name}" for name in self.run)]
        return "\n".join(["compared:", *(f"  {topic}" for topic in self.covered), *(functions if self.run else []), ""])


# --- options and recipes ---------------------------------------------------------------------------------------------------


def options_of(builder: Callable[..., Any]) -> list[str]:
    """The options of a model's builder as topics: ``"dilated=True"`` for a switch, ``"width_mult"`` for a value."""
    try:
        parameters = inspect.signature(builder).parameters.values()
    except (TypeError, ValueError):
        return []
    named = [p for p in parameters if p.default is not p.empty and p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [f"{p.name}={not p.default}" if isinstance(p.default, bool) else p.name for p in named]


def coverage_of(context: Context, results: Sequence[StepResult], seen: Seen) -> Coverage:
    """What the results of a run rest on.

    Args:
        context: the two sides and the model.
        results: of the steps that were asked for.
        seen: what ``watched`` saw while they ran.
    """
    covered, unheard = _compared(context, results)
    if context.device == "gpu":
        covered.append("GPU")
    ran = {0} | {result.step for result in results if result.ran}
    names = {topic.partition("=")[0] for topic in covered} | set(covered)
    missing: dict[bool, list[str]] = {True: [], False: []}
    for step, topics in _universe(context).items():
        missing[step in ran] += [topic for topic in topics if topic not in names]
    missing[True] += [topic for topic in unheard if topic not in missing[True]]
    found = Coverage(covered, missing[True], missing[False], packages=_others(_part_names(context), port_packages(context)))
    for name in seen.known:
        (found.run if name in seen.called else found.not_run).append(name)
    return found


def _compared(context: Context, results: Sequence[StepResult]) -> tuple[list[str], list[str]]:
    """What was compared; and what both sides of a project with shared code agree on, while no witness spoke for it."""
    ran = [result for result in results if result.ran]
    claims = [(result.step, topic) for result in ran for topic in result.covers]
    steps = {result.step for result in ran}
    silent = {topic for witness in context.project.witnesses if witness.step not in steps for topic in witness.topics}
    heard = {topic for result in ran for topic in result.witnessed} - silent
    shared = SHARED if context.project.witnesses else ()
    sure = list(dict.fromkeys(topic for step, topic in claims if step not in shared or topic in heard))
    return sure, list(dict.fromkeys(topic for _, topic in claims if topic not in sure))


def _universe(context: Context) -> dict[int, tuple[str, ...]]:
    """The topics of each step that a project has parts for."""
    project = context.project
    found = {0: TOPICS[0], 1: (*TOPICS[1], *options_of(context.spec.port))}
    if not project.lacks("data"):
        found[2] = TOPICS[2]
    if not project.lacks("loss"):
        found[4] = TOPICS[4]
    if not project.lacks("train"):
        found[5] = TOPICS[5]
    if not project.lacks_runs():
        found[6] = TOPICS[6]
    return found


# --- functions -------------------------------------------------------------------------------------------------------------


@dataclass
class Seen:
    """Public functions of the port by ``module.name``, and which of them were called."""

    known: dict[str, FunctionType] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)


def _first_call(*args: Any, **kwargs: Any) -> Any:
    noted = "what is called in its place"
    return noted(*args, **kwargs)  # type: ignore[operator]


@contextlib.contextmanager
def watched(context: Context) -> Iterator[Seen]:
    """Note which public functions of the port are called inside the block, in any thread.

    Each function's code gives way to one that notes the first call and puts the code back; what follows costs nothing. (Tracing
    all calls, of the frameworks' own functions too, makes the steps a fifth slower.)
    """
    seen = Seen(functions(_modules(port_packages(context))))
    codes = {name: function.__code__ for name, function in seen.known.items()}
    for name, function in seen.known.items():
        function.__code__ = _noting(seen, name, function, codes[name])
    try:
        yield seen
    finally:
        for name, function in seen.known.items():
            function.__code__ = codes[name]


def _noting(seen: Seen, name: str, function: FunctionType, code: CodeType) -> CodeType:
    def noted(*args: Any, **kwargs: Any) -> Any:
        seen.called.add(name)
        function.__code__ = code
        return function(*args, **kwargs)

    template = _first_call.__code__
    consts = tuple(noted if isinstance(const, str) else const for const in template.co_consts)
    return template.replace(co_consts=consts, co_name=code.co_name, co_freevars=code.co_freevars)


def port_packages(context: Context) -> set[str]:
    """Names of the packages and modules that the port's parts and its model are written in."""
    names = _part_names(context)
    builder = context.spec.port
    while isinstance(builder, functools.partial):
        builder = builder.func
    module = getattr(inspect.unwrap(builder), "__module__", "")
    roots = {name.partition(".")[0] for name in names}
    return names | {module.rpartition(".")[0] if module.partition(".")[0] in roots else module}


def _part_names(context: Context) -> set[str]:
    """Names of the packages and modules that the port's parts are."""
    parts = [getattr(context.project.port, part) for part in PARTS]
    return {part.__name__ for part in parts if isinstance(part, ModuleType)}


def _modules(packages: Iterable[str]) -> list[ModuleType]:
    """What is loaded of some packages."""
    inside = lambda name: any(name == own or name.startswith(f"{own}.") for own in packages)  # noqa: E731
    return [found for name, found in sorted(sys.modules.items()) if isinstance(found, ModuleType) and inside(name)]


def functions(modules: Iterable[ModuleType]) -> dict[str, FunctionType]:
    """Public functions and methods that are written in some modules, by ``module.name``."""
    found: dict[str, FunctionType] = {}
    for module in modules:
        for owner, prefix in [(module, ""), *((v, f"{v.__qualname__}.") for v in vars(module).values() if isinstance(v, type))]:
            if isinstance(owner, type) and owner.__module__ != module.__name__:
                continue
            for name, value in vars(owner).items():
                function = _plain(value)
                if function is None or (name.startswith("_") and name not in SPECIAL) or prefix.startswith("_"):
                    continue
                if function.__code__.co_filename == module.__file__:
                    found[f"{function.__module__}.{prefix}{name}"] = function
    return found


def _plain(value: Any) -> FunctionType | None:
    """The function under decorators, properties and the like."""
    if isinstance(value, property):
        value = value.fget
    value = getattr(value, "__func__", value)
    value = inspect.unwrap(value) if callable(value) else value
    return value if isinstance(value, FunctionType) else None


def _others(parts: Iterable[str], known: Collection[str]) -> list[str]:
    """Packages that stand beside the parts under the same root, and are not known. A model of its own package has no such."""
    found = []
    for root in sorted({name.partition(".")[0] for name in parts if "." in name}):
        path = getattr(sys.modules.get(root), "__path__", [])
        found += [name for info in pkgutil.iter_modules(path, f"{root}.") if info.ispkg and (name := info.name) not in known]
    return found
