"""The fault benchmark: every known fault of a project is injected, detected, located and named, or not.

Detection is the steps' own, on smaller cases (pictures of 96 pixels, four updates), in order until one fails; a fault
counts as detected only where that is the step that owes it. What plain reprod_log finds in the guide's files of the same
broken port stands beside it, and what PaDiff 0.2.0 finds (``bench.padiff``) where it is installed.
"""

from __future__ import annotations

import gc
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from alignment.comparisons import NAMES, STEPS, guarded, lacks
from alignment.comparisons.comparison import Measurement
from alignment.comparisons.context import Context
from alignment.comparisons.explain import locate
from alignment.comparisons.material import Weights
from alignment.comparisons.model import forward
from alignment.comparisons.result import StepResult
from alignment.comparisons.run import runs, train
from alignment.comparisons.run.evaluation import RunEvaluation
from alignment.comparisons.update import backward
from alignment.faults import Fault, injected
from alignment.finding import Finding
from alignment.project import Project
from bench.guide import GuideFiles, guide_files, reprod_log_finds
from bench.padiff_process import check_padiff, padiff_finds
from mobilenetv3_common.digits import write_digits
from mobilenetv3_common.files import atomic_open

SHORT = train.Plan(iterations=5, draws=2, seeds=1, epochs=1, train_per_class=4, val_per_class=2)
RUNS = {"sgd.train": 4, "rmsprop.eval": 2, "adamw.train": 2, "sgd.train.accumulate2.clip": 2}  # of step 5: updates


@dataclass
class Outcome:
    """What became of one fault.

    Attributes:
        step: the first step that failed; None where none did.
        found: what localisation said.
        reprod_log: the guide's file in which reprod_log sees a difference, ``""`` for none.
        padiff: what PaDiff says; None where it was not asked.
    """

    fault: Fault
    step: int | None
    found: Finding | None
    seconds: float
    reprod_log: str = ""
    padiff: str | None = None

    @property
    def detected(self) -> bool:
        return self.step == self.fault.step

    @property
    def located(self) -> bool:
        return self.detected and self.found is not None and self.found.location == self.fault.location

    @property
    def hinted(self) -> bool:
        return self.detected and self.found is not None and self.found.kind == self.fault.hint

    def as_json(self) -> dict:
        expected = {"step": self.fault.step, "location": self.fault.location, "hint": self.fault.hint}
        verdicts = {"detected": self.detected, "located": self.located, "hinted": self.hinted}
        found = asdict(self.found) if self.found else None
        beside = {"reprod_log": self.reprod_log, "padiff": self.padiff}
        return {"name": self.fault.name, "area": self.fault.area, "expected": expected, "found": found, "step": self.step} | (
            verdicts | {"seconds": round(self.seconds, 2)} | beside
        )


class Bench:
    """The steps on small cases; what the reference does in step 6 is done once.

    Args:
        project: sound; its first model is used, with its calibrated weights.
    """

    def __init__(self, project: Project) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.project = project
        self.weights: Weights = Context(project).material.weights
        self._reference: Measurement | None = None
        self._guide: GuideFiles | None = None
        write_digits(self.folder.name, SHORT.train_per_class, SHORT.val_per_class)

    def context(self, project: Project) -> Context:
        return Context(project, given_state=self.weights.state)

    def steps(self, context: Context) -> Iterator[StepResult]:
        """The results of the steps that the project can run, in order."""
        short = {1: self._forward, 5: self._backward, 6: self._train}
        for number, step in STEPS.items():
            if not lacks(number, context):
                yield guarded(number, lambda step=step, number=number: short.get(number, step)(context))  # type: ignore[misc]

    def _forward(self, context: Context) -> StepResult:
        if not context.material.has_pictures:
            return forward.run(context)
        photos, _ = context.material.photographs(8, min(96, context.shape()[-1]))
        cases = [
            forward.PassCase("eval.photos.b4", (photos[:4],), False),
            forward.PassCase("train.photos.b4", (photos[4:],), True),
        ]
        return forward.run(context, cases)

    def _backward(self, context: Context) -> StepResult:
        short = [replace(r, iterations=RUNS[r.name], float32_iterations=1) for r in backward.RUNS if r.name in RUNS]
        return backward.run(context, tuple(short))

    def _train(self, context: Context) -> StepResult:
        """Step 6's curves and accuracy; so short a run learns nothing, so its evidence does not count."""
        trial = train.RunTrial(context, SHORT, self.folder.name)
        self._reference = self._reference or trial.measure(context, "reference")
        result = StepResult(6, NAMES[6])
        runs.add(result, trial, trial.measure(context, "port"), self._reference)
        if result.differs:
            runs.compare(context, result, [RunEvaluation])
        result.problems.clear()
        return result

    def run(self, fault: Fault) -> Outcome:
        """Inject one fault, run the steps until one fails, and localise."""
        start = time.perf_counter()
        with injected(self.project, fault.name) as broken:
            context = self.context(broken)
            failed = next((result for result in self.steps(context) if not result.passed), None)
            found = locate(context, [failed], with_table=False).first if failed else None
            seconds = time.perf_counter() - start
            self._guide = self._guide or guide_files(context, "reference")
            compared = reprod_log_finds(context, self._guide)
        gc.collect()  # networks and their hooks refer to one another; ninety pairs of them fill the memory
        return Outcome(fault, failed.step if failed else None, found, seconds, compared)


def table(outcomes: list[Outcome]) -> str:
    """One row a fault, and the counts."""
    tell = {True: "yes", False: "NO"}
    asked = any(o.padiff is not None for o in outcomes)
    head = f"{'fault':30} {'area':11} {'step':4} {'detected':8} {'located':7} {'hint':4} {'seconds':>7}  {'reprod_log':14}"
    lines = [head + (f" {'PaDiff 0.2.0':40}" if asked else "") + " found at"]
    for o in outcomes:
        place = f"{o.found.location} [{o.found.kind or 'no hint'}]" if o.found else "-"
        other = f" {(o.padiff or '-')[:40]:40}" if asked else ""
        lines.append(
            f"{o.fault.name:30} {o.fault.area:11} {o.step or '-':<4} {tell[o.detected]:8} {tell[o.located]:7} {tell[o.hinted]:4} "
            f"{o.seconds:7.1f}  {o.reprod_log or 'passes':14}{other} {place}"
        )
    return "\n".join([*lines, *summary(outcomes)])


def summary(outcomes: list[Outcome]) -> list[str]:
    count = len(outcomes)
    share = lambda n: f"{n} of {count} ({100 * n / count:.0f} %)"  # noqa: E731
    lines = [
        f"this project: detected {share(sum(o.detected for o in outcomes))}, located exactly "
        f"{share(sum(o.located for o in outcomes))}, right hint {share(sum(o.hinted for o in outcomes))}, "
        f"{sum(o.seconds for o in outcomes):.0f} s",
        f"reprod_log on the guide's files: detected {share(sum(bool(o.reprod_log) for o in outcomes))}; it names a file, "
        "never a place",
    ]
    if any(o.padiff is not None for o in outcomes):
        seen = [o for o in outcomes if (o.padiff or "").startswith(("at ", "fails"))]
        right = [o for o in seen if _module(o.padiff or "") == _module(f"at {o.fault.location}")]
        lines.append(f"PaDiff 0.2.0: detected {share(len(seen))}, located {share(len(right))}, where the right module is enough")
    return lines


def _module(place: str) -> str:
    """The module of a place that PaDiff names: it speaks of modules, and of gradients and updates of their tensors."""
    name = place.removeprefix("at ").removeprefix("gradient ").removeprefix("updated weight ")
    head, _, last = name.rpartition(".")
    return head if last in ("weight", "bias", "running_mean", "running_var") else name


def enough(outcomes: Sequence[Outcome]) -> bool:
    """Whether all faults are detected, 95 % located and 80 % named."""
    count = len(outcomes)
    located, hinted = sum(o.located for o in outcomes), sum(o.hinted for o in outcomes)
    return all(o.detected for o in outcomes) and located >= 0.95 * count and hinted >= 0.8 * count


def write(path: Path, outcomes: Sequence[Outcome]) -> None:
    """The outcomes as JSON."""
    with atomic_open(path, "w") as file:
        json.dump([outcome.as_json() for outcome in outcomes], file, indent=1)
        file.write("\n")


def run_all(
    project: Project,
    faults: Sequence[Fault],
    progress: Callable[[int, Outcome], None] = lambda number, outcome: None,
    padiff: Path | None = None,
    file: Path | None = None,
) -> list[Outcome]:
    """Run the benchmark on a project's first model with its calibrated weights.

    Args:
        project: sound.
        faults: of the project.
        progress: called after each with its number, from 1.
        padiff: folder into which PaDiff was installed, to ask it too.
        file: the project's, which PaDiff's process loads.
    """
    if padiff is not None:
        check_padiff(padiff)
    bench = Bench(project)
    outcomes = []
    for number, fault in enumerate(faults, start=1):
        outcomes.append(bench.run(fault))
        progress(number, outcomes[-1])
    if padiff is not None:
        assert file is not None
        said = padiff_finds([o.fault.name for o in outcomes], padiff, file)
        for outcome in outcomes:
            outcome.padiff = said.get(outcome.fault.name, "no answer")
    return outcomes
