"""Layers beyond a CNN's, a pair of small networks each: are wrong settings found, placed and named, and are sound pairs silent?"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from alignment.comparisons.context import Context
from alignment.faults import LayerPair
from alignment.frameworks import framework_of
from alignment.frameworks.base import Module
from alignment.localize import Finding, localize
from alignment.models.calibration import random_values
from alignment.project import ModelSpec, Project, Side, import_file
from bench.padiff_process import check_padiff, padiff_finds
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open

Make = Callable[[], Module]
PLACE = "layer"  # the module of each pair that its faults are in
SOUND = "sound"  # PaDiff is asked about the correct pairs, too
PLAIN = 1e-5  # the reproduction guide's bound on the mean difference of a model's outputs


def random_state(network: Module, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random weights of a reference, as a canonical state; statistics stay as they are, and rows of padding are zero."""
    framework = framework_of(network)
    state = framework.state(network)
    roles = {entry.canonical: entry.role for entry in framework.entries(network)}
    state = {n: array if roles[n] == "buffer" else random_values(rng, n, array) for n, array in state.items()}
    for path, module in framework.modules(network).items():
        row = framework.layer(module).settings.get("padding_idx")
        if row is not None:
            state[f"{path}.weight"][row] = 0
    return state


def finding(pair: LayerPair, port: Make, seed: int) -> Finding | None:
    """The first mistake, in evaluation mode, then in training mode, with random weights of a seed."""
    rng = np.random.default_rng(seed)
    reference = pair.reference()
    framework_of(reference).load(reference, random_state(reference, rng))
    inputs = pair.inputs(rng)
    for training in (False, True) if pair.training else (False,):
        found = localize(port(), reference, inputs, training=training, weights=False).first
        if found is not None:
            return found
    return None


def context_of(pair: LayerPair, port: Make, seed: int) -> Context:
    """A port of the pair, and its reference with random weights of a seed, as the model of a project."""
    rng = np.random.default_rng(seed)
    network = pair.reference()
    state, inputs = random_state(network, rng), pair.inputs(rng)

    def made(samples: int, shape: tuple[int, ...], rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        return (np.resize(inputs, (samples, *inputs.shape[1:])),)

    spec = ModelSpec(port, pair.reference, input_shape=inputs.shape[1:], inputs=made, initialisation=False)
    sides = Side(framework_of(port())), Side(framework_of(network))
    return Context(Project("layer", *sides, {"layer": spec}), given_state=state)


def plain(pair: LayerPair, port: Make) -> str:
    """What a plain comparison of the outputs sees, in float32 and evaluation mode by the guide's bound; ``""`` for nothing."""
    try:
        context = context_of(pair, port, 0)
        outputs = [
            context.networks.of(f"{role}32", share_dropout=False).outputs(context.fake_inputs(4)) for role in ("port", "reference")
        ]
    except Exception as error:  # weights that do not load, a port that does not run: whoever compares sees that
        return type(error).__name__
    for ours, theirs in zip(*outputs, strict=False):
        if ours.shape != theirs.shape:
            return "shape"
        if not np.abs(ours - theirs).mean() <= PLAIN:
            return "output"
    return "" if len(outputs[0]) == len(outputs[1]) else "number of outputs"


def pairs_of(file: Path) -> Mapping[str, LayerPair]:
    """``PAIRS`` of a Python file.

    Raises:
        UserError: it has none.
    """
    found = getattr(import_file(file), "PAIRS", None)
    if not isinstance(found, dict) or not all(isinstance(pair, LayerPair) for pair in found.values()):
        raise UserError(f"{file}: expected a file that defines PAIRS, e.g. projects/layers/pairs.py")
    return found


def branches_of(file: Path) -> tuple[Callable[..., Module], Callable[..., Module]]:
    """``BRANCHES`` of a Python file: what makes a network of named branches, of the port's framework and of the reference's.

    Raises:
        UserError: it has none.
    """
    found = getattr(import_file(file), "BRANCHES", None)
    if not isinstance(found, tuple) or len(found) != 2:
        raise UserError(f"{file}: --layers needs a file that defines BRANCHES beside PAIRS, e.g. projects/layers/pairs.py")
    return found


def _padiff_is_right(words: str) -> bool:
    """Whether PaDiff names the layer, or the function that the network calls there: all but the last, tanh."""
    return words.rpartition(" ")[2].partition(".")[0] == PLACE or (", call of " in words and not words.endswith("tanh"))


def run(file: Path, seeds: int, result_dir: Path, padiff: Path | None = None) -> int:
    """Every sound pair from ``seeds`` weights, and every fault; 0 where no pair alarms, and of the faults all are detected, at
    least 95 % located and 90 % named. Writes layer_faults.json. Beside it, what a plain comparison of outputs sees, and PaDiff.

    Args:
        file: defines ``PAIRS``.
        seeds: of the random weights of each sound pair.
        result_dir: where the file goes.
        padiff: folder into which PaDiff was installed, to ask it too.

    Raises:
        UserError: the file lists no pairs, there is no PaDiff, or the number of seeds is below 1.
    """
    if seeds < 1:
        raise UserError(f"--seeds must be at least 1, found {seeds}")
    if padiff is not None:
        check_padiff(padiff)
    pairs = pairs_of(file)
    alarms = runs = 0
    rows = []
    for name, pair in pairs.items():
        for seed in range(seeds):
            runs += 1
            if (found := finding(pair, pair.port, seed)) is not None:
                alarms += 1
                print(f"{name}, sound, seed {seed}: ALARM: {found.line()}", flush=True)
        for fault, (port, kinds) in pair.faults.items():
            found = finding(pair, port, 0)
            located = found is not None and found.location.partition(".")[0] == PLACE
            named = found is not None and located and found.kind in kinds
            verdict = "named" if named else "located" if located else "detected" if found else "NOT DETECTED"
            print(f"{name}, {fault}: {verdict}{f': {found.line()}' if found else ''}", flush=True)
            line = found.line() if found else ""
            rows.append(
                {"pair": name, "fault": fault, "detected": found is not None, "located": located, "named": named, "line": line,
                 "plain": plain(pair, port)}
            )  # fmt: skip
    if padiff is not None:
        names = [f"{name}: {fault}" for name, pair in pairs.items() for fault in (SOUND, *pair.faults)]
        said = padiff_finds(names, padiff, file)
        for row in rows:
            sound = said.get(f"{row['pair']}: {SOUND}", "no answer")
            row["padiff"] = said.get(f"{row['pair']}: {row['fault']}", "no answer") if sound == "passes" else f"sound pair: {sound}"
    with atomic_open(result_dir / "layer_faults.json", "w") as out:
        json.dump({"pairs": len(pairs), "seeds": seeds, "alarms": alarms, "faults": rows}, out, indent=1)
    count = {what: sum(bool(row[what]) for row in rows) for what in ("detected", "located", "named")}
    print(f"{alarms} false alarms in {runs} runs of {len(pairs)} sound pairs")
    print(f"{len(rows)} faults: " + ", ".join(f"{number} {what}" for what, number in count.items()))
    print(f"a plain comparison of outputs: {sum(bool(row['plain']) for row in rows)} detected; it names no layer")
    if padiff is not None:
        said_of = [str(row["padiff"]) for row in rows]
        seen = [words for words in said_of if words.startswith(("at ", "fails"))]
        right = sum(_padiff_is_right(words) for words in seen)
        unfit = sum(words.startswith("sound pair") for words in said_of)
        print(
            f"PaDiff 0.2.0: {len(seen)} detected, {right} located; {unfit} are of layers whose correct pair it does not pass; "
            "the others it passes, or it stops with an error"
        )
    enough = count["detected"] == len(rows) and count["located"] >= 0.95 * len(rows) and count["named"] >= 0.9 * len(rows)
    return 0 if enough and not alarms else 1
