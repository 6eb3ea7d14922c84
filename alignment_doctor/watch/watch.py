"""``Watch``: the rules of the checklists, held to a run while it trains."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import numbers
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from alignment_doctor.findings import Finding, Verdict, checks_of
from alignment_doctor.frameworks import probe_of
from alignment_doctor.frameworks.base import Held
from alignment_doctor.watch import checks
from alignment_doctor.watch import ranks as over_ranks
from alignment_doctor.watch.checks.gradients import PATIENT
from alignment_doctor.watch.eyes import Eyes
from alignment_doctor.watch.journal import Event, Journal
from alignment_doctor.watch.kept import Marks
from alignment_doctor.watch.look import Evaluation, Look, Seen, Settings
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.parts import Ranks
from mobilenetv3_common.train_log import peak_memory_mib

FIRST = 3  # updates that are looked at after the start
KEPT = 16  # looks
AT_MOST = 5  # events of one check in a run


class Watch:
    """Watches a training loop in Paddle or torch.

    It keeps the loss of every update. The first three updates, then one in ``every`` (20), and the first after each evaluation are
    looked at in full: gradients, weights, statistics, modes, optimizer, memory, and the same on all ranks. An event is one line
    for people, and one JSON line in the journal. Nothing of the run is changed.

        watch = Watch(model, optimizer, "watch.jsonl")
        for images, labels in loader:
            loss = criterion(model(images), labels)
            loss.backward()
            watch.before_update(loss)
            optimizer.step()
            optimizer.zero_grad()
            watch.after_update()
        with watch.evaluating():
            evaluate(model)
        watch.close()

    Args:
        model: the network itself, not the wrapper of several ranks.
        optimizer: the framework's own; a list of them where several train the model.
        journal: file of JSON lines, written by rank 0; None for none.
        frozen: patterns (as of files) of names of tensors and modules that are not to change, e.g. ``"features.*"``.
        rates: number of an update, from 1 -> the learning rate meant for it, or a sequence of them.
        scaler: the loss scaler, where there is one.
        accumulate: backward passes an update.
        update: updates done before, for a resumed run.
        ranks: this process among the others; by default those of the framework's own process group.
        shared_statistics: whether the ranks compute the statistics of normalisation together.
        owners: ``id`` of a parameter -> the tensor that the optimizer holds in its place.
        every: updates from look to look.
        say: takes the line of an event; by default rank 0 prints it to standard error.

    Attributes:
        events: what this rank saw.
        told: what was told of all ranks; empty on all but rank 0.
        findings: check -> its latest outcome.

    Raises:
        UserError: the model is of no framework that is known, or the journal cannot be written.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        journal: str | os.PathLike | None = None,
        *,
        frozen: Sequence[str] = (),
        rates: Callable[[int], float | None] | Sequence[float] | None = None,
        scaler: Any = None,
        accumulate: int = 1,
        update: int = 0,
        ranks: Ranks | None = None,
        shared_statistics: bool = False,
        owners: Mapping[int, Any] | None = None,
        every: int = 20,
        say: Callable[[str], None] | None = None,
    ) -> None:
        if every < 1 or accumulate < 1 or update < 0:
            raise UserError(
                f"every and accumulate must be at least 1 and update not negative, found {every}, {accumulate}, {update}"
            )
        self.rates, self.scaler, self.every = rates, scaler, every
        self.optimizers = list(optimizer) if isinstance(optimizer, list | tuple) else [optimizer]
        self.owners = dict(owners or {})
        self.engine, self.probe = probe_of(model)
        model = self.probe.watchable(model)
        self._held()  # refuses what is no optimizer
        found = ranks or self.probe.ranks()
        self.ranks = found if found is not None and found.world_size > 1 else None
        rank, size = (self.ranks.rank, self.ranks.world_size) if self.ranks else (0, 1)
        scaled = scaler is not None and self._scale() is not None
        self.seen = Seen(Settings(tuple(frozen), accumulate, update, scaled, rank, size, shared_statistics))
        self.update = update
        self.events: list[Event] = []
        self.told: list[Event] = []
        self.findings: dict[str, Finding] = {}
        self.journal = Journal(Path(journal) if journal is not None and rank == 0 else None, say or _to_standard_error, update)
        self._eyes = Eyes(model, self.engine, self.probe)
        self._eyes.passes = accumulate
        self._checks = checks_of(checks)
        self._losses: list[tuple[int, Any]] = []
        self._graphs = Marks()
        self._written: dict[str, str] = {}
        self.seen.start = self._eyes.samples()
        self._equal = self._eyes.equal_units()
        self._begun, self._doubts = update, 0
        self._arm()

    # --- the loop's calls --------------------------------------------------------------------------------------------------

    def before_update(self, loss: Any) -> None:
        """After the last backward pass of an update, before the optimizer's step and before the gradients are cleared.

        Args:
            loss: of the update, a scalar tensor of any kind or a number, not scaled.
        """
        self._losses.append((self.update + 1, float(loss) if isinstance(loss, numbers.Real) else self.probe.detached(loss)))
        if isinstance(loss, self.engine.tensor_type) and self.engine.trainable(loss):
            self._graphs.put(loss)
        look = self._eyes.look
        if look is None:
            return
        eyes = self._eyes
        look.update = self.update + 1
        look.before = look.before or eyes.samples()
        look.trainable = [name for name, tensor in eyes.parameters.items() if self.engine.trainable(tensor)]
        look.gradients, look.stale = eyes.gradients(), eyes.stale()
        late = self.update - self._begun >= FIRST and self.seen.looks
        stood = (n for n in look.gradients if n in self.seen.looks[-1].after and not self.seen.looks[-1].moved(n))
        look.pulls = eyes.pulls(stood if late else look.gradients)
        look.alike = eyes.alike(name for name in self._equal if name in look.trainable)
        held = self._held()
        owner = {name: id(self.owners.get(id(tensor), tensor)) for name, tensor in eyes.parameters.items()}
        look.rates = {name: held.rates[id] for name, id in owner.items() if id in held.rates}
        look.state_before, look.own_steps, look.scale_before = held.state, held.own_steps, self._scale()
        self._foreign = {n: t for n, t in eyes.foreign().items() if id(t) not in held.rates}
        look.unregistered = list(self._foreign)
        self._stood = self.probe.samples(list(self._foreign.values()))
        if look.scale_before is not None and not all(self.probe.unscaled(self.scaler, one) for one in self.optimizers):
            look.clipped_at = float(np.linalg.norm(list(look.gradients.values())))
        look.rate, look.meant, look.begun = self.engine.learning_rate(self.optimizers[0]), self._meant(look.update), True

    def after_update(self) -> None:
        """After the optimizer's step; before or after the gradients are cleared and the schedule steps."""
        self.update += 1
        look = self._eyes.look
        if look is not None and not look.begun:
            look.update = self.update + 1  # an update of which the watch was not told before
        elif look is not None and look.update == self.update:
            look.after = self._eyes.samples()
            look.state_after, look.scale, look.memory = self._held().state, self._scale(), self._memory()
            look.losses, look.held, look.held_outputs = self._taken_losses(), self._graphs.held(), self._eyes.graphs.held()
            still = map(np.array_equal, self._stood, self.probe.samples(list(self._foreign.values())))
            look.unregistered = list(itertools.compress(look.unregistered, still))  # others are trained elsewhere
            if self.ranks:
                over_ranks.share(look, self.ranks, self._eyes.data)
            self._eyes.close()
            self.seen.looks = [*self.seen.looks[1 - KEPT :], look]
            self._judge(look.update)
        if self.update - self._begun < FIRST or (self.update + 1) % self.every == 0 or (look is not None and self._in_doubt(look)):
            self._arm()

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Around an evaluation, all of whose forward passes are without gradient."""
        before, self._eyes.evaluation = self._eyes.samples(), Evaluation()
        try:
            yield
        finally:
            evaluation, self._eyes.evaluation = self._eyes.evaluation, None
        after, moving = self._eyes.samples(), self._eyes.statistics
        loose = {name: 1e-6 if name in moving else 0.0 for name in after}  # the mean over ranks of equal numbers may be rounded
        near = {n: np.allclose(before[n], after[n], rtol=loose[n], atol=0, equal_nan=True) for n in after if n in before}
        evaluation.changed = [name for name, equal in near.items() if not equal]
        self.seen.evaluation = evaluation
        if self.seen.looks:
            self._judge(self.update)
        self._arm()

    def went_back(self, update: int) -> None:
        """The run was put back to an earlier state, of which so many updates are done."""
        self.update = self._begun = update
        self.seen.looks = []
        self._losses = []
        self._arm()

    def close(self) -> None:
        """Take the hooks off and write what every check said last."""
        self._eyes.leave()
        self._write_states(True)

    # --- inside ------------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Look at the next update."""
        if self._eyes.look is None:
            self._eyes.open(Look(self.update + 1), len(self.seen.looks) < FIRST)

    def _in_doubt(self, look: Look) -> bool:
        """Whether the next updates show if parameters without a gradient belong to an output whose turn it was not."""
        doubtful = bool(look.idle) and any(not look.gradients.get(name, 0.0) for name in look.trainable)
        self._doubts = self._doubts + 1 if doubtful else 0
        return 0 < self._doubts <= PATIENT

    def _held(self) -> Held:
        every = [self.probe.held(one) for one in self.optimizers]
        rates = {id: rate for one in every for id, rate in one.rates.items()}
        return Held(rates, sum(one.state for one in every), any(one.own_steps for one in every))

    def _taken_losses(self) -> list[tuple[int, float]]:
        tensors = [loss for _, loss in self._losses if not isinstance(loss, float)]
        values = iter(self.probe.numbers(tensors).tolist())
        taken = [(update, loss if isinstance(loss, float) else next(values)) for update, loss in self._losses]
        self._losses = []
        return taken

    def _meant(self, update: int) -> float | None:
        if self.rates is None or callable(self.rates):
            return self.rates(update) if self.rates is not None else None
        return float(self.rates[update - 1]) if update <= len(self.rates) else None

    def _scale(self) -> float | None:
        state = self.scaler.state_dict() if self.scaler is not None else {}
        value = state.get(self.engine.scaler.get("scale", "scale")) if state else None
        return None if value is None else float(np.asarray(value).reshape(-1)[0])

    def _memory(self) -> float:
        return resident_mib() + self.probe.device_mib()

    def _judge(self, update: int) -> None:
        """Run the checks; every rank does, and rank 0 tells what all of them found."""
        new = []
        for check in self._checks:
            outcome, before = check.run(self.seen), self.findings.get(check.id)
            finding = Finding(check, outcome)
            if before is not None and outcome.verdict is Verdict.NOT_APPLICABLE:
                continue  # what was found stays until it is looked for again
            self.findings[check.id] = finding
            told = sum(event.check == check.id for event in self.events)
            if finding.is_problem and not (before and before.is_problem) and told < AT_MOST:
                new.append(Event(check.id, update, self.seen.settings.rank, outcome.measured, outcome.where, check.fix))
        self.seen.evaluation = None
        self.events += new
        for event in self._of_all_ranks(new):
            self.told.append(event)
            self.journal.event(event)
        self._write_states(False)

    def _of_all_ranks(self, events: list[Event]) -> list[Event]:
        """What rank 0 tells: its own events, and those of other ranks that it did not see itself."""
        if self.ranks is None:
            return events
        lists = over_ranks.brought_together(self.ranks, [vars(event) | {"where": list(event.where)} for event in events])
        if not self.ranks.first:
            return []
        told: dict[str, Event] = {}
        for one in (Event(**{**values, "where": tuple(values["where"])}) for values in itertools.chain(*lists)):
            told.setdefault(one.check, one)
        return list(told.values())

    def _write_states(self, at_the_end: bool) -> None:
        """The verdicts, where one has changed since they were written."""
        verdicts = {id: one.outcome.verdict.value for id, one in self.findings.items()}
        if verdicts and (at_the_end or verdicts != self._written):
            self._written = verdicts
            self.journal.checks(self.update, {id: (v, self.findings[id].outcome.measured) for id, v in verdicts.items()})


def resident_mib() -> float:
    """Memory of this process in RAM without that of mapped files, which the system takes back, MiB; its peak where nobody tells.

    What glibc keeps of freed memory is given back first: in the pieces that a training loop leaves it grows for many updates.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    try:
        with open("/proc/self/statm") as file:
            resident, files = file.read().split()[1:3]
            return (int(resident) - int(files)) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except (OSError, ValueError, IndexError):
        return peak_memory_mib()


def _to_standard_error(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
