"""``bench --together N``: several known faults in one port at once, and whether one search finds all of them.

With ``--layers FILE`` faults of single layers (``bench.layer_faults``) are drawn beside those of the model. Such a port
has several branches, each with an input and an output of its own: the model, and the small network around each wrong layer.
"""

from __future__ import annotations

import contextlib
import gc
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from alignment.comparisons.context import Context
from alignment.comparisons.every import every_mistake
from alignment.faults import Fault, LayerPair, faults_of
from alignment.finding import Finding
from alignment.frameworks.base import Module
from alignment.kinds import Kind
from alignment.project import ModelSpec, Project
from bench.layer_faults import PLACE, branches_of, pairs_of, random_state
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open

AREAS = ("models", "weights")  # what a search of the model alone owes
SHIFTING = frozenset({Kind.LAYER_MISSING, Kind.LAYER_EXTRA})  # planted last, since the others find their layers by name
MODEL = "model"  # the branch of the project's model


@dataclass(frozen=True)
class LayerFault:
    """A wrong setting of a layer, in a branch of its own.

    Attributes:
        pair: name of the correct pair.
        setting: name of the fault.
        place: the branch.
        kinds: what it may be called.
    """

    pair: str
    setting: str
    place: str
    kinds: Sequence[Kind]

    @property
    def name(self) -> str:
        return f"{self.pair}: {self.setting}"


@dataclass(frozen=True)
class Pool:
    """What the groups are drawn from.

    Attributes:
        project: whose first model has the faults.
        pairs: layers with faults of their own; none where faults of the model alone are drawn.
        branches: make a network of named branches, of the port's framework and of the reference's.
    """

    project: Project
    pairs: Mapping[str, LayerPair]
    branches: tuple[Callable, Callable] | None = None

    @classmethod
    def of(cls, project: Project, layers: Path | None) -> Pool:
        """Of a project, and of a file that defines ``PAIRS`` and ``BRANCHES``."""
        return cls(project, pairs_of(layers), branches_of(layers)) if layers else cls(project, {})

    def faults(self) -> list[Fault | LayerFault]:
        of_layers = [
            LayerFault(name, setting, f"layer{number}", kinds)
            for number, (name, pair) in enumerate(self.pairs.items(), start=1)
            for setting, (_, kinds) in pair.faults.items()
        ]
        return [f for f in faults_of(self.project).values() if f.area in AREAS and f.step in (1, 5)] + of_layers


@dataclass
class Outcome:
    """What came of some faults in one port.

    Attributes:
        faults: that were planted.
        found: by one search, each with all its places.
        seconds: that it took.
    """

    faults: Sequence[Fault | LayerFault]
    found: list[Finding]
    seconds: float

    def _at(self, fault: Fault | LayerFault) -> list[Finding]:
        if isinstance(fault, LayerFault):  # a layer may have modules of its own
            layer = f"{fault.place}.{PLACE}"
            return [one for one in self.found if any(f"{place}.".startswith(f"{layer}.") for place in one.places)]
        place = fault.location
        if any(isinstance(one, LayerFault) for one in self.faults):  # the model is a branch, its own forward a module's
            place = MODEL if place.endswith(".forward") else f"{MODEL}.{place}"
        return [one for one in self.found if place in one.places]

    def located(self, fault: Fault | LayerFault) -> bool:
        return bool(self._at(fault))

    def named(self, fault: Fault | LayerFault) -> bool:
        kinds = fault.kinds if isinstance(fault, LayerFault) else (fault.hint,)
        return any(one.kind in kinds for one in self._at(fault))

    @property
    def complete(self) -> bool:
        """Whether every fault is found at its place."""
        return all(self.located(fault) for fault in self.faults)

    def as_json(self) -> dict:
        faults = [{"name": f.name, "located": self.located(f), "named": self.named(f)} for f in self.faults]
        return {"faults": faults, "found": [vars(one) for one in self.found], "seconds": round(self.seconds, 2)}


def drawn(pool: Pool, number: int, count: int, seed: int) -> list[list[Fault | LayerFault]]:
    """So many groups of different faults at different places, at most one of them in the weights.

    Two faults at one place cannot be told apart, and one file of weights hides another. The project's way of loading weights fits
    its own model, so a fault of the weights goes with faults of the model alone.

    Raises:
        UserError: there are too few faults.
    """
    known = pool.faults()
    rng, groups = np.random.default_rng(seed), []
    for _ in range(1000 * count):
        chosen = [known[i] for i in rng.choice(len(known), number, replace=False)] if len(known) >= number else []
        places = {fault.place if isinstance(fault, LayerFault) else fault.location for fault in chosen}
        of_weights = sum(isinstance(fault, Fault) and fault.area == "weights" for fault in chosen)
        of_layers = sum(isinstance(fault, LayerFault) for fault in chosen)
        if chosen and len(places) == number and of_weights <= (0 if of_layers else 1):
            groups.append(chosen)
        if len(groups) == count:
            return groups
    name = pool.project.name
    raise UserError(f"--together {number}: {name} lists too few faults of its model for {count} groups of {number}")


def run_all(
    pool: Pool, number: int, count: int, seed: int, progress: Callable[[int, Outcome], None] = lambda number, outcome: None
) -> list[Outcome]:
    """Search every group of ``drawn`` once, in the project's first model with its calibrated weights."""
    outcomes = []
    groups = drawn(pool, number, count, seed)
    state = dict(Context(pool.project).material.weights.state)
    for index, faults in enumerate(groups, start=1):
        outcomes.append(searched(pool, faults, state))
        progress(index, outcomes[-1])
        gc.collect()  # networks and their hooks refer to one another
    return outcomes


def searched(pool: Pool, faults: Sequence[Fault | LayerFault], state: Mapping[str, np.ndarray]) -> Outcome:
    """Plant faults in one port and search once; ``state`` holds the weights of the project's model, where it is in the port."""
    start = time.perf_counter()
    with contextlib.ExitStack() as stack:
        broken = pool.project
        of_model = [fault for fault in faults if isinstance(fault, Fault)]
        of_layers = [fault for fault in faults if isinstance(fault, LayerFault)]
        for fault in sorted(of_model, key=lambda fault: fault.hint in SHIFTING):
            broken = fault.make(stack, broken)
        if of_layers:
            broken, state = _in_branches(pool, broken, bool(of_model), of_layers, state)
        outcome, _ = every_mistake(Context(broken, given_state=dict(state)))
    return Outcome(faults, outcome.every, time.perf_counter() - start)


def _in_branches(
    pool: Pool, broken: Project, model: bool, faults: Sequence[LayerFault], state: Mapping[str, np.ndarray]
) -> tuple[Project, dict[str, np.ndarray]]:
    """The project with one model, whose branches are its own model, if wanted, and the pair of every fault; and its weights."""
    assert pool.branches is not None
    ports, references = pool.branches
    spec, pairs = next(iter(broken.models.values())), {fault.place: pool.pairs[fault.pair] for fault in faults}
    wrong = {fault.place: pool.pairs[fault.pair].faults[fault.setting][0] for fault in faults}
    given = {f"{MODEL}.{name}": array for name, array in state.items()} if model else {}
    for place, pair in pairs.items():
        given |= {f"{place}.{name}": array for name, array in random_state(pair.reference(), np.random.default_rng(0)).items()}

    def port() -> Module:
        return ports(**({MODEL: spec.port(**spec.options)} if model else {}), **{p: make() for p, make in wrong.items()})

    def reference() -> Module:
        own = {MODEL: spec.reference(**spec.options)} if model else {}
        return references(**own, **{place: pair.reference() for place, pair in pairs.items()})

    def inputs(samples: int, shape: tuple[int, ...], rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        arrays = [rng.standard_normal((samples, *shape)).astype(np.float32)] if model else []
        return (*arrays, *(np.resize(array, (samples, *array.shape[1:])) for array in (p.inputs(rng) for p in pairs.values())))

    together = ModelSpec(
        port,
        reference,
        input_shape=spec.input_shape,
        small_shape=spec.small_shape,
        inputs=inputs,
        last_layer=f"{MODEL}.{spec.last_layer}" if model and spec.last_layer else None,
        initialisation=False,  # the layers' own, of either framework
    )
    return replace(broken, models={"branches": together}), given


def run(project: Project, layers: Path | None, number: int, count: int, seed: int, result_dir: Path) -> int:
    """The benchmark, printed and written to together.json; 0 where all faults are found in at least 90 % of the groups.

    Raises:
        UserError: a number is below 1, or there are too few faults.
    """
    for flag, value in (("together", number), ("count", count)):
        if value < 1:
            raise UserError(f"--{flag} must be at least 1, found {value}")

    def progress(index: int, outcome: Outcome) -> None:
        said = [
            f"{f.name} {'named' if outcome.named(f) else 'located' if outcome.located(f) else 'MISSED'}" for f in outcome.faults
        ]
        print(f"{index:3}/{count} {outcome.seconds:5.1f} s  {', '.join(said)}", flush=True)

    outcomes = run_all(Pool.of(project, layers), number, count, seed, progress)
    with atomic_open(result_dir / "together.json", "w") as file:
        json.dump([outcome.as_json() for outcome in outcomes], file, indent=1)
        file.write("\n")
    complete = sum(outcome.complete for outcome in outcomes)
    pairs = [(outcome, fault) for outcome in outcomes for fault in outcome.faults]
    located, named = (sum(getattr(o, what)(f) for o, f in pairs) for what in ("located", "named"))
    print(f"all {number} found in one search: {complete} of {count}; of {len(pairs)} faults located {located}, named {named}")
    return 0 if complete >= 0.9 * count else 1
