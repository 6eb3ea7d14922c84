"""The flags of the engine's commands."""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from mobilenetv3_common.config_file import Parser
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import IMAGE_BACKENDS
from mobilenetv3_common.weights_file import TAKE

RESULT = Path("result")
BROKEN = "3 the engine itself failed, which says nothing about the models"
PRECISIONS = ("bfloat16", "float16")
# The benchmark has its own model, data and weights.
NOT_BENCHED = (
    "model", "data_path", "weights", "port_weights", "checkpoint_weights",
    "names", "device", "calibrate", "input", "fake_label", "image_backend", "seed", "localize", "config", "precision", "json",
    "json_file",
)  # fmt: skip


def _add_material(p: Parser) -> None:
    """Pictures, weights, names and recipe."""
    p.add_argument(
        "--data-path", type=Path, metavar="DIR", help="ImageNet layout or list files (default: the project's own sample pictures)"
    )
    p.add_argument(
        "--weights",
        metavar="FILE|NAME",
        help="a .pth, .pdparams, .ckpt or .safetensors file; it also sets class count and width; or the name of weights that the "
        "project fetches, e.g. torchvision (default: calibrated weights, made once)",
    )
    _add_take(p)
    _add_calibrate(p)
    p.add_argument(
        "--port-weights",
        metavar="FILE",
        help="the same weights converted for the port: loaded unchanged, and compared with --weights tensor by tensor",
    )
    p.add_argument(
        "--input",
        "--fake-data",
        type=Path,
        metavar="FILE.npy",
        help="the fake_data.npy of the guide, or its folder with fake_label.npy: samples in place of the fake data of steps 1, 4 "
        "and 5 (default: drawn by --seed)",
    )
    p.add_argument(
        "--fake-label",
        type=Path,
        metavar="FILE.npy",
        help="fake_label.npy of the guide: whole numbers, one a sample; steps 4 and 5 then take --input (default: pictures)",
    )
    p.add_argument(
        "--names",
        type=Path,
        metavar="FILE.yaml",
        help="lines 'port path: reference path' for modules, or whole parts, with other names (default: paired by "
        "type, shape and order of use)",
    )
    p.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="a recipe of tools/train.py: steps 5 and 6 compare its optimizer, schedule and other training settings, on a small "
        "scale (default: the project's own recipe; its model is aligned unless --model names one)",
    )


def _add_json(p: Parser) -> None:
    """alignment.json besides where the results go."""
    p.add_argument("--json", action="store_true", help="print alignment.json instead of the table, which goes to standard error")
    p.add_argument("--json-file", metavar="FILE", help="write alignment.json here, too")


def _add_faults(p: Parser) -> None:
    """Faults that are injected on purpose."""
    p.add_argument("--inject", metavar="NAME", help="break the port on purpose by one known fault ('list' prints their names)")
    p.add_argument(
        "--bench-faults",
        action="store_true",
        help="inject every known fault (of --steps) into the project's first model in turn and count what is found",
    )
    p.add_argument(
        "--padiff",
        type=Path,
        metavar="DIR",
        help="with --bench-faults: also run PaDiff from DIR; pip install --no-deps --target DIR padiff==0.2.0 pyyaml puts it there",
    )


def run_parser(project: Path | None = None, result: Path = RESULT, prog: str | None = None) -> Parser:
    """The flags of ``run``; with a project given, those of a command of its own."""
    p = Parser(
        prog=prog,
        description="Verify numerically that a port equals its reference, in the steps of the reproduction guide. "
        f"Exit status: 0 all steps passed, 1 a step failed, 2 the input cannot be used, {BROKEN}.",
    )
    if project is None:
        p.add_argument("project", type=Path, help="a Python file that defines PROJECT, e.g. projects/mobilenetv3/project.py")
    p.add_argument("--model", default="", metavar="NAME", help="one of the project's models (default: its first)")
    if project is None:
        p.add_argument("--port", default="", metavar="NAME", help="one of the ports of a file with several (default: all of them)")
    p.add_argument(
        "--steps",
        default=None,
        metavar="1-6",
        help="e.g. 1-6, 3 or 1,4 (default: all; 8 is what a project deploys)",
    )
    _add_material(p)
    p.add_argument("--device", default="cpu", help="cpu or gpu (default: cpu)")
    p.add_argument("--image-backend", choices=IMAGE_BACKENDS, default="pil", help="decoder of pictures (default: pil)")
    p.add_argument(
        "--precision",
        choices=PRECISIONS,
        help="also compare steps 1, 4 and 5 in this precision, under automatic mixed precision (default: off)",
    )
    p.add_argument("--seed", type=int, default=0, help="of fake data, sample order and augmentation (default: 0)")
    p.add_argument("--result-dir", type=Path, default=result, metavar="DIR", help=f"where results go (default: {shown(result)})")
    p.add_argument(
        "--keep",
        action="store_true",
        help="keep the other steps that --result-dir has of an earlier run with the same models, versions and flags",
    )
    p.add_argument(
        "--localize",
        action="store_true",
        help="make the table over all modules even if every step passes (a failure is always localised)",
    )
    p.add_argument(
        "--ranks",
        type=int,
        metavar="N",
        help="also train on N processes with the port's launcher, and compare with the reference in one: step 7 of --steps",
    )
    _add_json(p)
    _add_faults(p)
    return p


def weights_parser() -> Parser:
    """The flags of ``weights``."""
    p = Parser(
        prog=command_name("weights"),
        description="Write the weights with which a project's model is aligned to a file, so that other tools can use them. "
        f"Exit status: 0 written, 2 the input cannot be used, {BROKEN}.",
    )
    p.add_argument("project", type=Path, help="a Python file that defines PROJECT")
    p.add_argument("--model", default="", metavar="NAME", help="one of the project's models (default: its first)")
    p.add_argument("--weights", metavar="FILE|NAME", help="as for run (default: calibrated weights)")
    _add_take(p)
    p.add_argument(
        "--side", choices=("port", "reference"), default="reference", help="whose names and layout it has (default: reference)"
    )
    p.add_argument("--output", type=Path, required=True, metavar="FILE", help=".pth, .safetensors or .pdparams")
    return p


def command_name(name: str) -> str:
    """What the person who asked calls a command of the engine; a function is called as the command that does the same."""
    return f"alignment {name}" if Path(sys.argv[0]).name == "alignment" else f"python -m alignment {name}"


def audit_name() -> str:
    """``command_name`` of an audit, which ``mnv3`` has, too."""
    return "mnv3 audit" if sys.argv[0] == "mnv3 audit" else command_name("audit")


def audit_parser() -> Parser:
    """The flags of ``audit``."""
    p = Parser(
        prog=audit_name(),
        description="Is one model the port of another? Two callables are enough: structure, outputs and gradients are compared "
        "with the same weights on both sides, in evaluation and training mode. Exit status: 0 no mistake found, "
        f"1 a mistake found, 2 the input cannot be used, {BROKEN}.",
    )
    _add_sides(p)
    p.add_argument(
        "--input",
        metavar="SHAPE|FILE.npy|FILE.npz|MODULE:CALLABLE",
        help="number of samples and shape of one, e.g. 2x3x224x224; or arrays, samples first; or a function of (samples, numpy "
        "generator) that returns them (default: a shape that the reference accepts)",
    )
    p.add_argument("--weights", metavar="FILE", help="of either side, for both (default: random, calibrated on the input)")
    _add_take(p)
    _add_calibrate(p)
    p.add_argument("--names", type=Path, metavar="FILE.yaml", help="lines 'port path: reference path', as map.yaml of a report")
    _add_what_counts(p)
    p.add_argument("--precision", choices=PRECISIONS, help="also compare in this precision (default: off)")
    p.add_argument("--localize", action="store_true", help="make the table over all modules even if nothing differs")
    p.add_argument("--device", default="cpu", help="cpu or gpu (default: cpu)")
    p.add_argument("--seed", type=int, default=0, help="of inputs, ulp changes and dropout masks (default: 0)")
    p.add_argument("--report", type=Path, default=RESULT, metavar="DIR", help=f"where the report goes (default: {RESULT})")
    _add_json(p)
    return p


def dump_parser() -> Parser:
    """The flags of ``dump``."""
    p = Parser(
        prog=command_name("dump"),
        description="Write the results of one model to a folder, on a machine without the other one's framework: first the "
        f"reference, then the port with --reference-dump. Exit status: 0 written, 2 the input cannot be used, {BROKEN}.",
    )
    p.add_argument("model", metavar="MODULE:CALLABLE", help="makes the model, as --port and --reference of audit")
    p.add_argument("--framework", metavar="NAME", help="framework of the model: torch or paddle (default: detected)")
    p.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the dump goes")
    p.add_argument("--reference-dump", type=Path, metavar="DIR", help="the model is the port of this dump's reference")
    p.add_argument("--args", metavar="JSON", help="keyword arguments of the callable, e.g. '{\"num_classes\": 10}'")
    p.add_argument("--input", metavar="SHAPE|FILE.npy|FILE.npz|MODULE:CALLABLE", help="of the reference, as for audit")
    p.add_argument("--weights", metavar="FILE", help="of the reference (default: random, calibrated on the input)")
    _add_take(p)
    p.add_argument("--names", type=Path, metavar="FILE.yaml", help="of the port: lines 'port path: reference path'")
    p.add_argument("--training", action="store_true", help="also dump training mode")
    p.add_argument("--device", default="cpu", help="cpu or gpu (default: cpu)")
    p.add_argument("--seed", type=int, default=0, help="of the reference's inputs, ulp changes and dropout masks (default: 0)")
    return p


def parse_steps(text: str | None, known: Sequence[int]) -> list[int]:
    """``"1-3,5"`` to [1, 2, 3, 5]; None to all known steps.

    Raises:
        UserError: not of that form, or a step that does not exist.
    """
    if text is None:
        return list(known)
    chosen: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", part)
        if match is None:
            raise UserError(f"--steps {text!r}: expected numbers and ranges such as 1-6 or 1,4")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last or first not in known or last not in known:
            apart = [number for number in known if number - 1 not in known[:-1] and number != known[0]]
            end = next(number for number in known if number + 1 not in known)
            raise UserError(f"--steps {text!r}: the steps are {known[0]} to {end}{''.join(f' and {one}' for one in apart)}")
        chosen.update(number for number in known if first <= number <= last)
    return sorted(chosen)


_COPIES: dict[Path, Path] = {}


def stands_for(copy: Path, original: Path) -> None:
    """What lies in a folder is shown as what lies in the one of which it is a copy."""
    _COPIES[copy] = original


def shown(path: Path) -> str:
    """A path as short as it can be written from here; one in an edited copy of a project is that of the project."""
    here = Path.cwd()
    for copy, original in _COPIES.items():
        if path.is_relative_to(copy):
            path = original / path.relative_to(copy)
    return str(path.relative_to(here) if path.is_absolute() and path.is_relative_to(here) else path)


def _add_calibrate(p: Parser) -> None:
    p.add_argument(
        "--calibrate",
        action="store_true",
        help="with --weights FILE: keep its kernels and matrices, and calibrate the rest, since under fresh weights outputs hardly "
        "depend on the input (default: off)",
    )


def _add_take(p: Parser) -> None:
    p.add_argument(
        "--checkpoint-weights", choices=TAKE, default="auto",
        help="of a training checkpoint: its moving average, or the weights themselves (default: averaged where it has them)",
    )  # fmt: skip


def _add_sides(p: Parser) -> None:
    """The two models of an audit, or their dumps."""
    maker = "MODULE:CALLABLE"
    p.add_argument("--port", metavar=maker, help="makes the port, e.g. my_port.py:Net; or is an .onnx file")
    p.add_argument("--reference", metavar=maker, help="makes the reference, e.g. torchvision.models:resnet50; or as --port")
    p.add_argument(
        "--port-dump", type=Path, metavar="DIR", help="instead of --port: its dump (python -m alignment dump), or another tool's"
    )
    p.add_argument(
        "--reference-dump", type=Path, metavar="DIR", help="instead of --reference: the dump that the port's dump was made with"
    )
    p.add_argument(
        "--float-layers", metavar="NAMES",
        help="of a quantised .onnx file: modules or nodes that are meant to stay in float32, with commas between them",
    )  # fmt: skip
    p.add_argument("--port-args", metavar="JSON", help="keyword arguments of the port's callable, e.g. '{\"num_classes\": 10}'")
    p.add_argument("--reference-args", metavar="JSON", help="keyword arguments of the reference's callable")


def _add_budget(p: Parser) -> None:
    p.add_argument(
        "--budget", type=seconds, default=math.inf, metavar="SECONDS",
        help="how long mistakes are searched for once a step has failed; what was not searched is said (default: to the end)",
    )  # fmt: skip


def seconds(text: str) -> float:
    """A number of seconds above 0."""
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"must be above 0, found {text}")
    return value


def _add_patches(p: Parser) -> None:
    """What is done about the mistakes."""
    p.add_argument("--write-patch", type=Path, metavar="FILE.diff", help="write the corrections that are known as one unified diff")
    p.add_argument(
        "--try-patch",
        action="store_true",
        help="search for corrections that are not known at once, apply all to a copy of the port's source, and audit the copy with "
        "other weights",
    )
    p.add_argument(
        "--patch-budget",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="--try-patch: how long corrections are searched for (default: 300)",
    )


def _add_what_counts(p: Parser) -> None:
    """What an audit compares besides evaluation mode, and what fails it."""
    modes = p.add_mutually_exclusive_group()
    modes.add_argument(
        "--training",
        action="store_const",
        const=True,
        default=None,
        dest="training",
        help="compare training mode and fresh weights, too, and stop if the reference cannot run in it (default: compare them "
        "where the reference can)",
    )
    modes.add_argument(
        "--eval-only",
        action="store_const",
        const=False,
        default=None,
        dest="training",
        help="leave out training mode and fresh weights",
    )
    p.add_argument(
        "--updates",
        type=int,
        default=0,
        metavar="N",
        help="update both N times by their frameworks' own gradient descent, and compare the weights after each (default: 0)",
    )
    p.add_argument(
        "--accept",
        action="append",
        default=[],
        metavar="KIND[@PLACE]",
        help="a difference that you know, e.g. padding@features.0: still reported, but does not fail (may be repeated)",
    )
    p.add_argument(
        "--strict",
        action="store_true",
        help="differences that the frameworks have by themselves fail, too (biased variance, fresh weights)",
    )
    _add_budget(p)
    _add_patches(p)
    p.add_argument("--covered", action="store_true", help="list all that was compared, which otherwise is written to covered.txt")
