"""What PaDiff 0.2.0 finds of a fault: python -m bench.padiff FILE NAME ..., in an environment that has it.

FILE is a project's, or lists pairs of layers, whose faults are called "pair: fault".

PaDiff wraps functions of both frameworks when it is imported, so it runs in a process of its own, with a folder of its own
for it (``pip install --no-deps --target DIR padiff==0.2.0 pyyaml``) and ``diff_log`` written where it runs. It is given the
best of conditions: weights loaded already, its strict comparison instead of that of means, tolerances by which the sound
port passes, a loss and an optimizer. Prints one line a fault: ``NAME<tab>verdict``, the verdict being ``passes``,
``at PLACE`` or what else it said.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from alignment.comparisons.context import Context
from alignment.comparisons.update.runs import SGD
from alignment.faults import LayerPair, injected
from alignment.models.tracing import Network
from alignment.project import Project, load_project
from bench.layer_faults import SOUND, context_of, pairs_of

OPTIONS: dict[str, Any] = {"atol": 1e-4, "rtol": 1e-3, "compare_mode": "strict"}


def verdict(project: Project, name: str | None) -> str:
    """Run PaDiff on the port with one fault inside; None for the sound port."""
    with injected(project, name) as broken:
        context = Context(broken)
        port, reference = context.port, context.reference
        try:
            ours, theirs = (context.networks.of(f"{role}32", share_dropout=False) for role in context.sides)
        except Exception as error:
            return f"not run: {type(error).__name__}"
        images, labels = context.material.photographs(4, 96)
        losses, steps = [], []
        for side, lane in ((port, ours), (reference, theirs)):
            assert side.loss is not None and side.train is not None
            criterion, given = side.loss.CrossEntropyLoss(0.1), side.framework.tensor(labels)
            optimizer = side.train.build_optimizer(lane.model, SGD)
            losses.append(lambda logits, criterion=criterion, given=given: criterion(logits, given))
            steps.append(lambda train=side.train, lane=lane, optimizer=optimizer: train.apply_update(lane.model, optimizer))
        inputs = ({"input": port.framework.tensor(images)}, {"x": reference.framework.tensor(images)})
        return _asked(ours, theirs, inputs, loss_fn=tuple(losses), optimizer=tuple(steps), steps=2)


def layer_verdict(pair: LayerPair, fault: str) -> str:
    """Run PaDiff on a pair of layers whose port has a fault: forward and backward, with its own loss."""
    try:
        context = context_of(pair, pair.port if fault == SOUND else pair.faults[fault][0], 0)
        ours, theirs = (context.networks.of(f"{role}32", share_dropout=False) for role in context.sides)
        (array,) = context.fake_inputs(4)
        inputs = {"x": ours.framework.tensor(array)}, {"x": theirs.framework.tensor(array)}
    except Exception as error:
        return f"not run: {type(error).__name__}"
    return _asked(ours, theirs, inputs)


def _asked(ours: Network, theirs: Network, inputs: tuple[dict[str, Any], dict[str, Any]], **more: Any) -> str:
    """PaDiff's verdict on two networks with equal weights; ``more`` are its own arguments: losses, optimizers, steps."""
    import padiff

    out = io.StringIO()
    for log in Path("diff_log").glob("*.log"):
        log.unlink()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            passed = padiff.auto_diff(ours.model, theirs.model, inputs, False, dict(OPTIONS), **more)
    except Exception as error:
        return f"stops: {type(error).__name__}"
    return "passes" if passed else place(out.getvalue(), theirs.model)


def place(text: str, model: Any) -> str:
    """Where its report points, as a module path of the reference; it marks a layer in a tree that it writes to a file."""
    if "Diff found in loss" in text:
        return "at the loss"
    for phrase, log, what in (
        ("Diff found in model weights", "weight_diff.log", "updated weight"),
        ("Diff found in model grad", "grad_diff.log", "gradient"),
    ):
        if phrase in text:
            found = re.search(r"torch path:\s+(\S+)", _read(log))
            return f"at {what} {found[1].partition('.')[2]}" if found else f"at a {what}"
    lines = _tree(text)
    marked = next((i for i, line in enumerate(lines) if "HERE" in line), None)
    if marked is None:
        return "fails, and names no place"
    call = lines[marked].partition("(api)")[2].split()  # a function, in the module above it
    inside = [i for i in range(marked) if "(api)" not in lines[i] and _depth(lines[i]) < _depth(lines[marked])]
    name = _module(lines, max(inside) if call else marked, model)
    if not name:
        return f"at {type(model).__name__}.forward" + (f", call of {call[0]}" if call else "")
    return f"at {name}"


def _tree(text: str) -> list[str]:
    """The tree of torch's modules and calls that PaDiff writes to a file, or prints where it is small."""
    lines = _read("torch_struct.log").splitlines()
    if not lines and "Torch Model\n" in text:
        lines = text.rpartition("Torch Model\n")[2].partition("Paddle Model\n")[0].partition("\n\n")[0].splitlines()
    return [line for line in lines if re.search(r"[A-Za-z]", line) and "Torch Model" not in line]


def _depth(line: str) -> int:
    """Where a line's name begins."""
    found = re.search(r"\(net\)|\(api\)|[A-Za-z]", line)
    return found.start() if found else 0


def _module(lines: list[str], marked: int, model: Any) -> str:
    """Path of the module of a line of the tree, which leaves some layers out: the next one of each class is meant."""
    modules = [(n, type(m).__name__) for n, m in model.named_modules()]
    position, name = 0, ""
    for line in (one for one in lines[: marked + 1] if "(api)" not in one):
        kind = re.findall(r"[A-Za-z_]\w*", line.replace("(net)", ""))[0]
        while position < len(modules) and modules[position][1] != kind:
            position += 1
        name = modules[position][0] if position < len(modules) else kind
        position += 1
    return name


def _read(name: str) -> str:
    path = Path("diff_log") / name
    return path.read_text() if path.is_file() else ""


def main(argv: list[str]) -> int:
    if any(": " in name for name in argv[1:]):
        pairs = pairs_of(Path(argv[0]))
        for name in argv[1:]:
            pair, _, fault = name.rpartition(": ")
            print(f"{name}\t{layer_verdict(pairs[pair], fault)}", flush=True)
        return 0
    project = load_project(argv[0])
    for name in argv[1:] or ["sound"]:
        print(f"{name}\t{verdict(project, None if name == 'sound' else name)}", flush=True)
    return 0


if __name__ == "__main__":
    np.seterr(all="ignore")
    sys.exit(main(sys.argv[1:]))
