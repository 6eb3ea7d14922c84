"""What PaDiff 0.2.0 finds of a fault: python -m alignment.bench.padiff PROJECT NAME ..., in an environment that has it.

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

from alignment.bench.fault import injected
from alignment.project import Project, load_project
from alignment.steps.backward import SGD
from alignment.steps.context import Context, Lane

OPTIONS: dict[str, Any] = {"atol": 1e-4, "rtol": 1e-3, "compare_mode": "strict"}


def verdict(project: Project, name: str | None) -> str:
    """Run PaDiff on the port with one fault inside; None for the sound port."""
    import padiff

    with injected(project, name) as broken:
        context = Context(broken)
        port, reference = context.port, context.reference
        try:
            ours, theirs = (Lane(context, f"{role}32", share_dropout=False) for role in context.sides)
        except Exception as error:
            return f"not run: {type(error).__name__}"
        images, labels = context.photographs(4, 96)
        losses, steps = [], []
        for side, lane in ((port, ours), (reference, theirs)):
            assert side.loss is not None and side.train is not None
            criterion, given = side.loss.CrossEntropyLoss(0.1), side.framework.tensor(labels)
            optimizer = side.train.build_optimizer(lane.network, SGD)
            losses.append(lambda logits, criterion=criterion, given=given: criterion(logits, given))
            steps.append(lambda train=side.train, lane=lane, optimizer=optimizer: train.apply_update(lane.network, optimizer))
        inputs = ({"input": port.framework.tensor(images)}, {"x": reference.framework.tensor(images)})
        out = io.StringIO()
        for log in Path("diff_log").glob("*.log"):
            log.unlink()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                passed = padiff.auto_diff(
                    ours.network, theirs.network, inputs, False, dict(OPTIONS), None, tuple(losses), tuple(steps), steps=2
                )
        except Exception as error:
            return f"stops: {type(error).__name__}"
    return "passes" if passed else place(out.getvalue(), theirs.network)


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
    leaves = [(n, type(m).__name__) for n, m in model.named_modules() if not list(m.children())]
    lines = [line for line in _read("torch_struct.log").splitlines() if "(net)" in line]
    marked = next((i for i, line in enumerate(lines) if "HERE" in line), None)
    if marked is None:
        return "fails, and names no place"
    if marked == 0:
        return f"at {type(model).__name__}.forward"
    position = 0
    for line in lines[1 : marked + 1]:  # its tree leaves some layers out; the next one of that class is meant
        kind = line.split("(net)")[1].split()[0]
        while position < len(leaves) and leaves[position][1] != kind:
            position += 1
        name = leaves[position][0] if position < len(leaves) else kind
        position += 1
    return f"at {name}"


def _read(name: str) -> str:
    path = Path("diff_log") / name
    return path.read_text() if path.is_file() else ""


def main(argv: list[str]) -> int:
    project = load_project(argv[0])
    for name in argv[1:] or ["sound"]:
        print(f"{name}\t{verdict(project, None if name == 'sound' else name)}", flush=True)
    return 0


if __name__ == "__main__":
    np.seterr(all="ignore")
    sys.exit(main(sys.argv[1:]))
