"""Fresh weights: is every tensor of the port drawn from the distribution that the reference draws it from?

Constants that no training changes (index tables, anchors, masks, frozen encodings of positions) are compared for every model: the
reference's weights overwrite them, so the other steps cannot see that the port's constructor makes them otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial

from alignment.compare import Group, Quantity
from alignment.comparisons.comparison import Searched
from alignment.comparisons.context import Context
from alignment.comparisons.model.fresh_weights import FreshDraws, Verdict, compare, compare_constants
from alignment.comparisons.model.known import of_fresh_weights
from alignment.comparisons.result import StepResult
from alignment.finding import Finding
from alignment.kinds import Kind
from alignment.models.weights import renamed
from mobilenetv3_common.counted import agreed
from mobilenetv3_common.weights import State


def wanted(context: Context) -> bool:
    """Whether fresh weights are compared: where the project says so, else where it makes whole runs that begin with them."""
    project, asked = context.project, context.spec.initialisation
    return asked if asked is not None else not (project.lacks_runs() or project.lacks("data") or project.lacks("loss"))


def judge(context: Context, result: StepResult) -> None:
    """Add a row for all tensors together, and one for each that differs: of constants, and where asked for, of fresh weights."""
    constants = constants_of(context)
    verdicts, seeds = verdicts_of(context) if wanted(context) else ([], 0)
    result.quantities += _rows(context, "constants", constants)
    result.compared.append(Searched(partial(_first, context, constants, verdicts), late=True))
    if not verdicts:
        return
    drawn = sum(verdict.random for verdict in verdicts)
    result.evidence["initialisation"] = f"{drawn} random and {len(verdicts) - drawn} constant tensors, {seeds} seeds"
    result.quantities += _rows(context, "initialisation", verdicts)
    result.cover("initialisation")


def _first(context: Context, constants: Sequence[Verdict], verdicts: Sequence[Verdict]) -> Finding | None:
    """The first tensor that is not initialised as the reference's."""
    wrong = list(_findings(context, constants, verdicts))
    for first in wrong[:1]:
        first.measured += agreed(f"; {len(wrong)} tensors differ")
        return first
    return None


def _findings(context: Context, constants: Sequence[Verdict], verdicts: Sequence[Verdict]) -> Iterator[Finding]:
    """Constants first, then what is drawn."""
    port, reference = cache(partial(_Choices, context, "port")), cache(partial(_Choices, context, "reference"))
    for kind, verdict in [*((Kind.CONSTANT, one) for one in constants), *((Kind.INITIALISATION, one) for one in verdicts)]:
        if not verdict.words:
            continue
        words, known = verdict.words, False
        if kind is Kind.INITIALISATION and (verdict.random or verdict.drawn):
            if port().of(verdict.name):
                words += "; the port's source sets this initialiser"
            elif known := of_fresh_weights(context, verdict):
                known = not reference().beside_default(verdict.name)
                words += "" if known else "; the reference's source sets this initialiser, the port's layer keeps its default"
        yield Finding("initialisation", verdict.name, kind, words, verdict.measured, known=known)


class _Choices:
    """Whether the source of a side says how tensors of a framework's layers are drawn; otherwise the framework's default does."""

    def __init__(self, context: Context, role: str) -> None:
        self.context, self.role, side = context, role, context.sides[role]
        self.framework, self.paired = side.framework, context.paired
        with self.framework.noting_parameters() as self.filled_again:
            options = {**context.spec.options, **context.options}
            self.model = context.spec.port(**options) if role == "port" else context.spec.reference(**options)
        self.modules = self.framework.modules(self.model, every_path=True)

    def of(self, name: str) -> bool:
        own = (self.paired.own_name(name) or name) if self.role == "port" else name
        path, _, tensor = own.rpartition(".")
        module = self.modules.get(path)
        if module is None:
            return False
        return self.framework.chooses_initialiser(module, tensor) or self.filled_again(getattr(module, tensor, None))

    def beside_default(self, name: str) -> bool:
        """Whether the source fills a tensor, and otherwise than the framework's layer would."""
        path, _, tensor = name.rpartition(".")
        filled = path in self.modules and self.filled_again(getattr(self.modules[path], tensor, None))
        return filled and name in self.others

    @cached_property
    def others(self) -> frozenset[str]:
        """The tensors that are not drawn as the framework draws them by default."""
        if not self.framework.draw_defaults(self.model):
            return frozenset()
        by_default, chosen = (partial(_states, self.context, self.role, {}, by_default=one) for one in (True, False))
        return frozenset(one.name for one in compare(by_default, chosen)[0] if one.words)


def findings(context: Context) -> Iterator[Finding]:
    """All mistakes: constants, and what is drawn where fresh weights are compared.

    Raises:
        Exception: what the port raises when it is built.
    """
    return _findings(context, constants_of(context), verdicts_of(context)[0] if wanted(context) else [])


def _rows(context: Context, name: str, verdicts: Sequence[Verdict]) -> list[Quantity]:
    rows = Group(name)
    for verdict in verdicts:
        row, known = Quantity(f"{name}.{verdict.name}", list(verdict.shape)), verdict.name in context.known_fresh
        rows.add(row.fail(f"{verdict.words} ({verdict.measured})") if verdict.words and not known else row)
    return list(rows.rows()) if verdicts else []


def constants_of(context: Context) -> list[Verdict]:
    """Tensors that the reference's constructor fills alike for every seed and no training changes, statistics left out.

    Only those that the port has in the same shape: others are missing, or no part of its weights, and nothing overwrites them.

    Raises:
        Exception: what the port raises when it is built.
    """
    return compare_constants(*_sides(context), context.material.constants) if context.material.constants else []


def verdicts_of(context: Context) -> tuple[list[Verdict], int]:
    """Every tensor but the constants that both sides have in one shape, in the reference's order, and the number of seeds.

    Raises:
        Exception: what the port raises when it is built.
    """
    return compare(*_sides(context), left=context.material.constants)


def _sides(context: Context) -> tuple[FreshDraws, FreshDraws]:
    names = context.paired.matched.matching.renaming()
    return lambda seeds: _states(context, "port", names, seeds), lambda seeds: _states(context, "reference", {}, seeds)


def _states(
    context: Context, role: str, names: Mapping[str, str], seeds: Iterable[int], by_default: bool = False
) -> Iterator[State]:
    """The fresh weights of one side for each seed, under the reference's names; all as the framework draws them by default."""
    framework = context.sides[role].framework
    for seed in seeds:
        framework.seed(seed)
        model = context.networks.fresh(role)
        if by_default:
            framework.draw_defaults(model)
        described = framework.described(model)
        yield {renamed(entry, names): entry.to_canonical(framework.array(tensor)) for entry, tensor in described}
