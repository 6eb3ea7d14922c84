"""What a verdict rests on: the functions of the port that the steps ran, and the recipes and options that they compared.

That a function was run does not prove it, that it was not run proves that nothing is known of it: those are listed. Recipes and
options are noted by the steps beside the comparison itself (``StepResult.cover``).
"""

from __future__ import annotations

import inspect
import pkgutil
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from alignment import called
from alignment.called import Seen
from alignment.comparisons.context import Context
from alignment.comparisons.deploy import deployed as deploy
from alignment.comparisons.result import StepResult
from alignment.comparisons.topics import TOPICS

WIDTH = 130  # columns of a line below the verdict
BY_SEEDS = "final accuracies"  # covered where as many seeds as were run show that they are equal
WHY = (  # of what was compared beside the inputs that were asked for
    (re.compile(r".* of \d+x\d+ pixels"), "beside --input, because a pooling or a padding can be right in one size alone"),
    (
        re.compile(r"inputs .* times as large"),
        "because behind a normalisation hardly a value tells ReLU6 from ReLU",
    ),
)
SHARED = (2, 4, 5, 6, 7)  # steps whose two sides may share code: there a comparison of them proves what a witness has seen


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
        stopped: steps that ended before they compared anything: the two models are built differently, or cannot be run.
    """

    covered: list[str] = field(default_factory=list)
    not_covered: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    run: list[str] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)
    stopped: list[int] = field(default_factory=list)

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
        lines = ["compared:", *(f"  {topic}{_why(topic)}" for topic in self.covered)]
        for names, words in ((self.run, "run by the steps"), (self.not_run, "run by no step")):
            lines += (
                ["", f"public functions of the port that were {words}: {len(names)}", *(f"  {name}" for name in names)]
                if names
                else []
            )
        if self.stopped:
            steps = " and ".join(map(str, self.stopped))
            lines += ["", f"ended early, because the models are built differently or cannot be run: step {steps}"]
            lines += [
                "what stands above was compared with the mistakes put right in memory; functions that ran then are not listed"
            ]
        return "\n".join([*lines, ""])


def _why(topic: str) -> str:
    """Why inputs were compared that nobody asked for, after a colon; empty of other topics."""
    return next((f": {why}" for pattern, why in WHY if pattern.fullmatch(topic)), "")


# --- options and recipes ---------------------------------------------------------------------------------------------------


def options_of(builder: Callable[..., Any]) -> list[str]:
    """The options of a model's builder as topics: ``"dilated=True"`` for a switch, ``"width_mult"`` for a value."""
    try:
        parameters = inspect.signature(builder).parameters.values()
    except (TypeError, ValueError):
        return []
    named = [p for p in parameters if p.default is not p.empty and p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [f"{p.name}={not p.default}" if isinstance(p.default, bool) else p.name for p in named]


def watched(context: Context) -> AbstractContextManager[Seen]:
    """Note which public functions of the port are called inside the block."""
    return called.watched(context.project, context.spec.port)


def coverage_of(context: Context, results: Sequence[StepResult], seen: Seen) -> Coverage:
    """What the results of a run rest on.

    Args:
        context: the two sides and the model.
        results: of the steps that were asked for.
        seen: what ``watched`` saw while they ran.
    """
    project = context.project
    covered, unheard = _compared(context, results)
    if context.device == "gpu":
        covered.append("GPU")
    ran = {0} | {result.step for result in results if result.ran}
    names = {topic.partition("=")[0] for topic in covered} | set(covered)
    missing: dict[bool, list[str]] = {True: [], False: []}
    for step, topics in _universe(context).items():
        missing[step in ran] += [topic for topic in topics if topic not in names]
    missing[True] += [topic for topic in unheard if topic not in missing[True]]
    known = called.port_packages(project, context.spec.port)
    if deploy.NUMBER in ran:
        known |= {f"{name.rpartition('.')[0]}.deploy" for name in known}
    found = Coverage(
        covered,
        missing[True],
        missing[False],
        packages=_others(called.part_names(project), known),
        stopped=[result.step for result in results if result.ran and not result.quantities],
    )
    names_called = seen.called.union(*(result.called for result in results))
    for name in seen.known:
        (found.run if name in names_called else found.not_run).append(name)
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


def _others(parts: Iterable[str], known: Collection[str]) -> list[str]:
    """Packages that stand beside the parts under the same root, and are not known. A model of its own package has no such."""
    found = []
    for root in sorted({name.partition(".")[0] for name in parts if "." in name}):
        path = getattr(sys.modules.get(root), "__path__", [])
        found += [name for info in pkgutil.iter_modules(path, f"{root}.") if info.ispkg and (name := info.name) not in known]
    return found
