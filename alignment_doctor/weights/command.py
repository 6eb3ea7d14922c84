"""Compare two states of one model: what moved, what did not, what shrank or exploded.

python tools/doctor.py weights output/update_000000100.safetensors output
"""

from __future__ import annotations

import argparse

from alignment_doctor.findings import examine
from alignment_doctor.report import Examination, Section
from alignment_doctor.weights import checks
from alignment_doctor.weights.subject import Tensor, WeightsSubject, load_pair
from mobilenetv3_common.drawing import Series, chart, escape, number, table
from mobilenetv3_common.weights_file import TAKE

HELP = "compare two states of one model, tensor by tensor"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The sub-command's flags."""
    parser.add_argument("before", metavar="A", help="a checkpoint, a run's folder, or .pdparams, .pth or .safetensors")
    parser.add_argument("after", metavar="B", help="the same model later, in either framework")
    parser.add_argument(
        "--checkpoint-weights", choices=TAKE, default="raw",
        help="of a training checkpoint: the weights, or their moving average (default: raw)",
    )  # fmt: skip


def run(flags: argparse.Namespace) -> Examination:
    """Examine two states.

    Raises:
        UserError: a file cannot be used.
    """
    subject = load_pair(flags.before, flags.after, flags.checkpoint_weights)
    named = f"{subject.before.path} and {subject.after.path}"
    return Examination("weights", named, examine(checks, subject), {"tensors": _figures(subject)}, _sections(subject))


def _figures(subject: WeightsSubject) -> dict[str, dict[str, float | None]]:
    return {tensor.name: _of(tensor) for tensor in subject.tensors}


def _of(tensor: Tensor) -> dict[str, float | None]:
    before, after = tensor.before, tensor.after
    return {
        "norm_before": tensor.norms[0],
        "norm_after": tensor.norms[1],
        "mean_before": float(before.mean()) if before.size else None,
        "mean_after": float(after.mean()) if after.size else None,
        "std_before": float(before.std()) if before.size else None,
        "std_after": float(after.std()) if after.size else None,
        "movement": tensor.movement,
    }


def _sections(subject: WeightsSubject) -> list[Section]:
    names = [tensor.name for tensor in subject.tensors]
    drawing = chart("Movement of each tensor over its norm", names, [Series("movement", [t.movement for t in subject.tensors])])
    head = ("tensor", "shape", "norm before", "after", "mean before", "after", "deviation before", "after", "movement")
    rows = [
        [
            f"<td>{escape(tensor.name)}</td><td>{escape(' x '.join(map(str, tensor.after.shape)) or 'scalar')}</td>",
            *[f'<td class="n">{number(value)}</td>' for value in _of(tensor).values()],
        ]
        for tensor in subject.tensors
    ]
    return [Section("Movement", drawing), Section("Tensors", table(head, rows, "Tensors"))]
