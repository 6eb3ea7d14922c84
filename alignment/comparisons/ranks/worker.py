"""One rank: started by the port's launcher, it trains as the plan says and writes down what it has.

``worker.py FOLDER``: the folder holds the plan and the starting weights, and gets the records.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from alignment.called import watched
from alignment.comparisons.context import Context
from alignment.comparisons.ranks.plan import (
    CALLED,
    FIGURES,
    METRIC_KS,
    RankCase,
    RankPlan,
    begin,
    evaluation_batches,
    in_float64,
    metric_counts,
    read_start,
    record_file,
    write_record,
)
from alignment.comparisons.run.train import engine, next_epoch
from alignment.faults import injected
from alignment.project import load_project
from alignment.strangers import strangers
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.weights import State


class Rank:
    """What one rank does.

    Args:
        context: the two sides; the port's is run.
        folder: of the plan.
        records: where the records go.
        ranks: this process among the others, as the port's ``started`` says.
    """

    def __init__(self, context: Context, folder: Path, records: Path, ranks: Any) -> None:
        self.context, self.folder, self.records, self.ranks = context, folder, records, ranks
        self.framework, self.train = context.port.framework, engine(context, "port")
        self.gradients: State = {}
        self.ticks = 0
        self.counter = os.open(folder / f"rank{ranks.rank}.ticks", os.O_WRONLY | os.O_CREAT)

    def note(self, place: str) -> None:
        """Say how far this rank is."""
        (self.folder / f"rank{self.ranks.rank}.place").write_text(place)

    def _tick(self, *_: Any) -> None:
        """Count a layer that has been computed: of ranks that hang, the one with the fewest keeps the others waiting."""
        self.ticks += 1
        os.pwrite(self.counter, b"%12d" % self.ticks, 0)

    def write(self, case: RankCase, number: int | str, **parts: State) -> None:
        write_record(record_file(self.records, case, number, self.ranks.rank), parts)

    def work(self, case: RankCase) -> None:
        """Make one short run and record it."""
        self.note(f"{case.name}, build_run")
        try:
            run = begin(self.context, "port", case.config, self.ranks)
        except UserError as error:  # a recipe that the port does not offer on this device
            (self.records / f"{case.name}.refused").write_text(error.line)
            return
        self.write(case, "start", state=self.framework.state(run.model))
        self.context.networks.load("port", run.model, read_start(self.folder, case))
        self._watch_optimizer(run)
        for module in self.framework.modules(run.model).values():
            self.framework.hook(module, after=self._tick)
        batches = self.train.micro_batches(run)
        for number in range(case.updates):
            self.note(f"{case.name}, update {number}")
            self._update(run, case, number, batches)
        if case.evaluates:
            self.note(f"{case.name}, evaluation")
            self._evaluate(run, case)

    def _watch_optimizer(self, run: Any) -> None:
        step = run.optimizer.step

        @functools.wraps(step)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self.gradients = self.framework.gradients(run.model)
            return step(*args, **kwargs)

        run.optimizer.step = watched

    def _update(self, run: Any, case: RankCase, number: int, batches: Iterator[Any]) -> None:
        gathered, pictures = [], []
        for _ in range(case.config.accumulate):
            (images, labels), skipped = next(batches)
            pictures.append((self.framework.array(images), self.framework.array(labels)))
            gathered.append(((in_float64(self.context, "port", images), labels), skipped))
        self.gradients = {}
        with self.framework.precision("float64"):
            self.train.update(run, gathered)
        loss = float(self.framework.array(run.meter.loss))
        run.meter = type(run.meter)()
        self.write(
            case,
            number,
            pixels={str(part): pixels for part, (pixels, _) in enumerate(pictures)},
            labels={str(part): labels for part, (_, labels) in enumerate(pictures)},
            figures={"loss": np.array(loss), "rate": np.array(run.rate)},
            gradients=self.gradients,
            state=self.framework.state(run.model),
            average=self._average(run),
        )
        next_epoch(run)

    def _evaluate(self, run: Any, case: RankCase) -> None:
        batches = evaluation_batches(self.context, "port", run)
        arrays = [(self.framework.array(labels), self.framework.array(numbers)) for _, labels, numbers in batches]
        seen = [labels[numbers >= 0] for labels, numbers in arrays] or [np.zeros(0, np.int64)]
        self.write(case, "pictures", pictures={"labels": np.concatenate(seen)})
        with self.framework.precision("float64"):
            result = self.train.evaluate_run(run, batches)
        figures = {name: np.array(getattr(result, name)) for name in FIGURES}
        figures |= self._counted()
        state = self.framework.state(run.model)
        self.write(case, "evaluation", figures=figures, state=state, average=self._average(run))

    def _counted(self) -> State:
        """Counts of the metric, other ones on each rank, added up over the ranks; nothing where it cannot do that."""
        metric = self.context.port.metric
        counted: Any = metric.TopKAccuracy(METRIC_KS) if metric is not None else None
        if not hasattr(counted, "all_reduce"):
            return {}
        *counted.correct, counted.count = metric_counts(self.ranks.rank)
        counted.all_reduce()
        return {"counts": np.array([*counted.correct, counted.count])}

    def _average(self, run: Any) -> State:
        arrays = run.average.arrays()
        return self.framework.canonical(run.model, arrays, "the moving average") if arrays else {}


def main(folder: Path) -> None:
    """Run the plan; an error is left in a file for the process that started the ranks."""
    plan = RankPlan.read(folder)
    own = load_project(plan.project)
    number = os.environ.get(own.port.framework.rank_variable, "0")
    (folder / f"rank{number}.pid").write_text(str(os.getpid()))
    with strangers("port", alone=True) as raised:  # a rank tells the process that started it, whatever ended it
        train: Any = own.port.train
        with train.started("cpu") as ranks, watched(own, own.models[plan.model].port) as seen:
            for place, inject in enumerate(plan.injects):
                records = folder / str(place)
                records.mkdir(exist_ok=True)
                with injected(own, inject) as project:
                    rank = Rank(Context(project, model=plan.model), folder, records, ranks)
                    for case in plan.cases:
                        rank.work(case)
                gc.collect()  # networks and their hooks refer to one another
                ranks.sum([1.0])  # nobody goes on with a fault of its own
        (folder / f"rank{number}{CALLED}").write_text("\n".join(sorted(seen.called)))
        (folder / f"rank{number}.done").touch()
    if raised.error is not None:
        traceback.print_exception(raised.error)
        last = (str(raised.error).strip().splitlines() or ["no message"])[-1]
        (folder / f"rank{number}.error").write_text(f"{type(raised.error).__name__}: {last}")
        sys.stdout.flush()
        os._exit(1)
    os._exit(0)  # an orderly exit takes leave of the other ranks, and can wait for one that has gone already


if __name__ == "__main__":
    main(Path(sys.argv[1]))
