"""The fault benchmark: every fault of ``alignment.faults`` is injected, detected, located and named, or not.

Detection is the steps' own, on smaller cases (pictures of 96 pixels, four updates), in order until one fails; a fault
counts as detected only where that is the step that owes it. What plain reprod_log finds in the guide's files of the same
broken port stands beside it, and what PaDiff 0.2.0 finds (``alignment.padiff_bench``) where it is installed.
"""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from alignment import diagnosis
from alignment.faults import FAULTS, Fault, injected
from alignment.localize.finding import Finding
from alignment.record import save_record
from alignment.sides import PaddleSide
from alignment.steps import backward, data, forward, guarded, loss, metric, train
from alignment.steps.context import Context, Lane, StepResult
from mobilenetv3_common.digits import write_digits
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_common.weights import State

SHORT = train.Plan(iterations=5, draws=2, seeds=1, epochs=1, train_per_class=4, val_per_class=2)
GuideFiles = dict[str, dict[str, np.ndarray]]
GUIDE = {"data": 0.0, "forward": 1e-5, "metric": 0.0, "loss": 1e-5, "losses": 1e-5}  # the guide's thresholds, on mean differences


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
        model, state, options: as for ``Context``.
    """

    def __init__(self, model: str = "mobilenet_v3_small", state: State | None = None, options: dict | None = None) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.model, self.state, self.options = model, state, options or {}
        self._reference: train.Outcome | None = None
        self._guide: GuideFiles | None = None
        write_digits(self.folder.name, SHORT.train_per_class, SHORT.val_per_class)

    def context(self, side: PaddleSide | None = None) -> Context:
        return Context(model=self.model, given_state=self.state, options=self.options, paddle=side or PaddleSide())

    def steps(self, context: Context) -> Iterator[StepResult]:
        photos, _ = context.photographs(8, 96)
        cases = [forward.Case("eval.photos.b4", photos[:4], False), forward.Case("train.photos.b4", photos[4:], True)]
        chosen = {"sgd.train": 4, "rmsprop.eval": 2, "adamw.train": 2, "sgd.train.accumulate2.clip": 2}
        runs = tuple(replace(r, iterations=chosen[r.name], float32_iterations=1) for r in backward.RUNS if r.name in chosen)
        plan: dict[int, Callable[[], StepResult]] = {
            1: lambda: forward.run(context, cases),
            2: lambda: data.run(context),
            3: lambda: metric.run(context),
            4: lambda: loss.run(context),
            5: lambda: backward.run(context, runs),
            6: lambda: self._train(context),
        }
        for number, step in plan.items():
            yield guarded(number, step)

    def _train(self, context: Context) -> StepResult:
        """Step 6's curves and accuracy; so short a run learns nothing, so its evidence does not count."""
        trial = train.Trial(context, SHORT, self.folder.name)
        self._reference = self._reference or trial.reference()
        result = StepResult(6, "train")
        train.judge(result, SHORT, trial.paddle(), self._reference)
        result.problems.clear()
        return result

    def run(self, fault: Fault) -> Outcome:
        """Inject one fault, run the steps until one fails, and localise."""
        start = time.perf_counter()
        with injected(fault.name) as side:
            context = self.context(side)
            failed = next((result for result in self.steps(context) if not result.passed), None)
            found = diagnosis.diagnose(context, [failed], with_table=False).first if failed else None
            seconds = time.perf_counter() - start
            self._guide = self._guide or guide_files(context, "ref")
            compared = reprod_log_finds(context, self._guide)
        gc.collect()  # networks and their hooks refer to one another; ninety pairs of them fill the memory
        return Outcome(fault, failed.step if failed else None, found, seconds, compared)


def reprod_log_finds(context: Context, reference: GuideFiles) -> str:
    """What the package reprod_log says of the guide's five files, made as the guide makes them: in float32, evaluation mode."""
    from reprod_log import ReprodDiffHelper

    try:
        files = {"paddle": guide_files(context, "paddle"), "ref": reference}
    except Exception as error:  # the port does not run: whoever follows the guide sees that, too
        return f"{type(error).__name__}"
    with tempfile.TemporaryDirectory() as folder:
        for side, arrays in files.items():
            for name, content in arrays.items():
                save_record(Path(folder) / f"{name}_{side}.npy", content)
        for name, threshold in GUIDE.items():
            helper = ReprodDiffHelper()
            ours, theirs = (helper.load_info(str(Path(folder) / f"{name}_{side}.npy")) for side in ("paddle", "ref"))
            log = Path(folder) / f"{name}.log"
            try:
                with _quiet():
                    helper.compare_info(ours, theirs)
                    helper.report(path=str(log), diff_threshold=threshold)
            except Exception as error:
                return f"{name}: {type(error).__name__}"
            if "diff check failed" in log.read_text():
                return name
    return ""


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """With every report reprod_log adds a handler to the root logger, sets it to DEBUG and leaves both, for all to print on."""
    root = logging.getLogger()
    level, before, root.handlers = root.level, root.handlers, []
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        added, root.handlers = root.handlers, before
        root.setLevel(level)
        for handler in added:
            handler.close()


def guide_files(context: Context, name: str) -> GuideFiles:
    """The arrays of one side's five files."""
    lane = Lane(context, f"{name}32", share_dropout=False)
    side = lane.side
    index = data.first_pictures(context.index("val"))
    images, labels, _ = next(data.batches(side, context, index, EvalPreset(), 0))
    with side.no_grad():
        fake = side.array(lane.network(side.tensor(context.fake_data(1, 96))))
        logits = side.array(lane.network(side.tensor(images)))
    right = side.array(side.metric.top_k_correct(side.tensor(logits), side.tensor(labels), (1, 5)))
    value = side.array(side.loss.CrossEntropyLoss(0.0)(side.tensor(logits), side.tensor(labels)))
    photos, targets = context.photographs(4, 48)
    run = replace(backward.RUNS[0], iterations=4, float32_iterations=0)
    losses = [iteration.loss for iteration in backward.iterate(lane, run, photos, targets)]
    return {
        "data": {"images": images},
        "forward": {"logits": fake},
        "metric": {"acc_top1": right[:, 0].mean(keepdims=True), "acc_top5": right[:, 1].mean(keepdims=True)},
        "loss": {"loss": value.reshape(1)},
        "losses": {f"loss_{i}": np.asarray(x).reshape(1) for i, x in enumerate(losses)},
    }


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


def run_all(
    names: list[str] | None = None, progress: Callable[[Outcome], None] = lambda outcome: None, padiff: Path | None = None
) -> list[Outcome]:
    """Run the benchmark on the small model with its calibrated weights.

    Args:
        names: of the faults; all by default.
        progress: called after each.
        padiff: folder into which PaDiff was installed, to ask it too.
    """
    if padiff is not None:
        check_padiff(padiff)
    bench = Bench()
    bench.state = bench.context().state
    outcomes = []
    for name in names or list(FAULTS):
        outcomes.append(bench.run(FAULTS[name]))
        progress(outcomes[-1])
    if padiff is not None:
        said = padiff_finds([o.fault.name for o in outcomes], padiff)
        for outcome in outcomes:
            outcome.padiff = said.get(outcome.fault.name, "no answer")
    return outcomes


def check_padiff(folder: Path) -> None:
    """Raise ``UserError`` where a folder has no PaDiff."""
    if not (folder / "padiff").is_dir():
        raise UserError(f"{folder} has no PaDiff: pip install --no-deps --target {folder} padiff==0.2.0 pyyaml")


def padiff_finds(names: list[str], folder: Path) -> dict[str, str]:
    """Ask PaDiff, in a process of its own, for its verdict on each fault."""
    root = Path(__file__).resolve().parents[1]
    path = os.pathsep.join([str(folder.resolve()), str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory() as work:
        run = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "alignment.padiff_bench", *names],
            cwd=work,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
    return dict(line.split("\t", 1) for line in run.stdout.splitlines() if "\t" in line)
