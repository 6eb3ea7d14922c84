"""Ranks: the port trains under its own launcher, and is held against the reference in one process with the N-fold batch.

Three short runs in exact mode: with statistics of each rank's own, accumulation, dropout, a moving average and an evaluation;
with clipping; and with synchronised BatchNorm. It runs only where it is asked for (``--ranks N``).
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from alignment.compare import distance, norm, relative
from alignment.comparisons.comparison import compare
from alignment.comparisons.context import Context
from alignment.comparisons.ranks.expected import Simulation, mean_gradient
from alignment.comparisons.ranks.judge import REFUSED, OnRanks, on_ranks
from alignment.comparisons.ranks.launch import PATIENCE, Failure, launch
from alignment.comparisons.ranks.plan import (
    CALLED,
    RankCase,
    RankPlan,
    Record,
    by_rank,
    further_cases,
    local_case,
    norm_of,
    start_file,
    write_pictures,
    write_record,
)
from alignment.comparisons.result import StepResult
from alignment.comparisons.run.train import fresh_weights
from alignment.faults import fault_named
from alignment.finding import Finding
from alignment.kinds import Kind
from alignment.project import Project
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.weights import State

NUMBER, NAME = 7, "ranks"
COUNTS = range(2, 9)


def check_count(ranks: int, device: str = "cpu") -> None:
    """See that so many ranks can be run.

    Raises:
        UserError: they cannot.
    """
    if ranks not in COUNTS:
        raise UserError(f"--ranks {ranks}: give {COUNTS[0]} to {COUNTS[-1]} processes")
    if device != "cpu":
        raise UserError(f"--ranks {ranks} runs on the CPU: leave out --device {device}")


def lacks_ranks(context: Context) -> str:
    """Why a project's port cannot be run on several ranks; ``""`` where it can."""
    project, framework = context.project, context.port.framework
    lacking = project.lacks_runs() or project.lacks("data") or project.lacks("loss")
    if lacking:
        return lacking
    if not hasattr(context.port.train, "started"):
        return "the port's train part has no `started`, which joins a process to the other ranks"
    return "" if framework.launch(2, Path()) else f"the engine knows no launcher of {framework.title}"


class RanksTrial:
    """What the reference does, once for any number of launches of the port.

    Args:
        context: the two sides; the reference is run.
        ranks: how many.
        seeds: of order, augmentation, dropout and weights; the runs of each.
    """

    def __init__(self, context: Context, ranks: int, seeds: Sequence[int] = (0,)) -> None:
        self.context, self.ranks = context, ranks
        self.folder = tempfile.TemporaryDirectory()
        self.expected: list[tuple[RankCase, State]] = []
        pictures = write_pictures(Path(self.folder.name, "pictures"), ranks)
        with context.reference.framework.threads(1):
            for seed in seeds:
                local = local_case(context, pictures, ranks, seed)
                start = fresh_weights(context, local.config)
                expected = Simulation(context, local, ranks, start)()
                self.expected.append((local, expected))
                for case in further_cases(local, norm_of(mean_gradient(by_rank(expected, ranks)["0"]))):
                    self.expected.append((case, Simulation(context, case, ranks, start)()))

    def run(
        self, project: Path, injects: Sequence[str | None] = (None,), patience: float = PATIENCE
    ) -> Iterator[tuple[str | None, StepResult]]:
        """Launch the port and compare.

        Args:
            project: the file that each rank loads.
            injects: faults to make in each rank, one after the other; None for the port as it is.
            patience: seconds in which some rank must get on.

        Yields:
            Each of them with its result. One that did not get to the end after another is launched again, alone at first.
        """
        waiting = list(injects)
        while waiting:
            begun = time.perf_counter()
            folder = Path(self.folder.name, "launch")
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            RankPlan(str(project.resolve()), self.context.model, tuple(waiting), tuple(c for c, _ in self.expected)).write(folder)
            for case, expected in self.expected:
                write_record(start_file(folder, case), by_rank(expected, self.ranks)["start"][0])
            failure = launch(self.context.port.framework, folder, self.ranks, patience)
            judged: list[StepResult] = []
            for place in range(len(waiting)):
                result, complete = self._judged(folder / str(place))
                if not complete and place > 0:
                    break
                if not complete:
                    _note_failure(result, failure, self.ranks)
                judged.append(result)
            for result in judged:
                result.seconds = (time.perf_counter() - begun) / len(judged)
                result.called = sorted({name for file in folder.glob(f"rank*{CALLED}") for name in file.read_text().split()})
                yield waiting.pop(0), result

    def _judged(self, folder: Path) -> tuple[StepResult, bool]:
        """The result of what the ranks wrote to a folder, and whether they wrote all of it."""
        result, complete = StepResult(NUMBER, NAME), True
        for case, expected in self.expected:
            one = OnRanks(self.context, case, self.ranks, expected, folder)
            made = compare(self.context, result, one)
            for name, losses in one.losses(made.port).items():
                result.record(name, *losses)
            if line := made.port.get(REFUSED):
                if case.optional:
                    result.not_run = f"{case.kind}: the port refuses it: {line}"
                else:  # what every port of a trained model can do: the refusal is the mistake
                    result.problems.append(f"{case.name}: the port refuses to train on {self.ranks} ranks: {line}")
            elif one.complete(made.port):
                _note(result, case, by_rank(expected, self.ranks))
            else:
                complete = False
        return result, complete


def _note_failure(result: StepResult, failure: Failure | None, ranks: int) -> None:
    if failure is None:
        result.problems.append("the ranks have not recorded everything")
        return
    who = on_ranks(failure.ranks, ranks)
    words = f"{who} did not answer" if not failure.answered else f"{who} did not get to the end"
    result.problems.append(f"{words}: {failure.words}")
    kind = Kind.RAISES if failure.answered else Kind.NO_ANSWER
    result.raised = Finding("ranks", who, kind, words, failure.words)


def _note(result: StepResult, case: RankCase, right: dict[str, list[Record]]) -> None:
    """Evidence that a case had something to compare, and what it covers."""
    first, name, numbers = right["0"], case.name, [str(number) for number in range(case.updates)]
    if "share0" in first[0]:
        own = [record["share0"] for record in first[:2]]
        apart = sum(distance(own[0][n], own[1][n]) ** 2 for n in own[0]) ** 0.5 / norm_of(own[0])
        result.require(f"{name}.gradients_of_two_ranks_differ_by", float(f"{apart:.2g}"), apart > 0.1, "above 0.1 of their norm")
    weights = right[numbers[-1]][0]["state"]
    moved = norm_of({n: a - right["start"][0]["state"][n] for n, a in weights.items()})
    share = relative(moved, norm_of(weights))
    result.require(f"{name}.weights_moved_by", float(f"{share:.2g}"), share > 1e-6, "above 1e-6 of their norm")
    if case.config.clip_norm is not None:
        size = norm_of(mean_gradient(first))
        limit = case.config.clip_norm
        result.require(f"{name}.gradient_norm", float(f"{size:.4g}"), size > limit, f"above the clip of {limit:g}")
        result.cover("gradient clipping")
    if case.kind == "local":
        batches = [tuple(labels.tolist()) for number in numbers for labels in right[number][0]["labels"].values()]
        result.require(f"{name}.different_batches", len(set(batches)), len(set(batches)) == len(batches), "all of them")
        result.cover("ranks", f"{len(first)} ranks", outside=True)  # the reference's own N-fold batch
        result.cover("accumulation", "moving average", "evaluation loop")
    means = [{n: array for n, array in record.get("spread", {}).items() if n.endswith(".means")} for record in first]
    if case.kind == "sync" and any(norm(array - means[1][n]) > 0 for n, array in means[0].items()):
        result.cover("synchronised BatchNorm", outside=True)


def run(context: Context, project: Path, ranks: int, inject: str | None = None) -> StepResult:
    """The whole comparison; not run where the project has no training on ranks.

    Args:
        context: the two sides.
        project: the file that each rank loads.
        ranks: how many processes.
        inject: a fault to make in each of them.
    """
    begun = time.perf_counter()
    lacking = lacks_ranks(context)
    if lacking:
        return StepResult(NUMBER, NAME, not_run=lacking)
    ((_, result),) = RanksTrial(context, ranks).run(project, [inject])
    result.seconds = time.perf_counter() - begun
    return result


def refuse_without_ranks(project: Project, name: str | None) -> None:
    """Raise ``UserError`` for a fault that only ``--ranks`` shows."""
    if name is not None and name != "list" and fault_named(project, name).step == NUMBER:
        raise UserError(f"--inject {name}: this fault shows only on several ranks: give --ranks 2")
