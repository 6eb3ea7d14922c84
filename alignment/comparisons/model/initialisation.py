"""Fresh weights: is every tensor of the port drawn from the distribution that the reference draws it from?

Constants that no training changes (index tables, anchors, masks, frozen encodings of positions) are compared for every model: the
reference's weights overwrite them, so the other steps cannot see that the port's constructor makes them otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial

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
    chosen_by_port = cache(partial(_Choices, context))
    for kind, verdict in [*((Kind.CONSTANT, one) for one in constants), *((Kind.INITIALISATION, one) for one in verdicts)]:
        if verdict.words:
            chosen = kind is Kind.INITIALISATION and (verdict.random or verdict.drawn) and chosen_by_port().of(verdict.name)
            known = kind is Kind.INITIALISATION and of_fresh_weights(context, verdict, chosen)
            words = f"{verdict.words}; the port's source sets this initialiser" if chosen else verdict.words
            yield Finding("initialisation", verdict.name, kind, words, verdict.measured, known=known)


class _Choices:
    """Whether the port's source says how tensors of a framework's layers are drawn; otherwise the framework's default does."""

    def __init__(self, context: Context) -> None:
        self.framework, self.paired = context.port.framework, context.paired
        with self.framework.noting_parameters() as self.filled_again:
            port = context.spec.port(**{**context.spec.options, **context.options})
        self.modules = self.framework.modules(port, every_path=True)

    def of(self, name: str) -> bool:
        path, _, tensor = (self.paired.own_name(name) or name).rpartition(".")
        module = self.modules.get(path)
        if module is None:
            return False
        return self.framework.chooses_initialiser(module, tensor) or self.filled_again(getattr(module, tensor, None))


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


def _states(context: Context, role: str, names: Mapping[str, str], seeds: Iterable[int]) -> Iterator[State]:
    """The fresh weights of one side for each seed, under the reference's names."""
    framework = context.sides[role].framework
    for seed in seeds:
        framework.seed(seed)
        described = framework.described(context.networks.fresh(role))
        yield {renamed(entry, names): entry.to_canonical(framework.array(tensor)) for entry, tensor in described}
