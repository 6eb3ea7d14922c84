"""ResNet-50 and -18 in MindSpore, Paddle and torch: plan, convert weights, evaluate, train, and see where the time goes.

    python tools/resnet50.py plan --config projects/resnet50/cifar10.yaml
    python tools/resnet50.py convert resnet50.pth resnet50.ckpt --model resnet50
    python tools/resnet50.py infer --pretrained resnet50.ckpt --data-path cifar10
    python tools/resnet50.py train --config projects/resnet50/cifar10.yaml --data-path cifar10
    python tools/resnet50.py profile --config projects/resnet50/cifar10.yaml --data-path cifar10

Paddle trains by default; --framework mindspore and --framework ref (torch) do the same with the same settings. Exit status: 0 done,
1 a problem in a profile, 2 the input cannot be used or the run diverged, 143 or 130 stopped after a checkpoint.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the code of this folder, wherever another is installed

from mobilenetv3_common.as_trained import as_trained, without_trained
from mobilenetv3_common.config_file import Parser, add_flags, make_config
from mobilenetv3_common.errors import exit_on_user_error, shown
from mobilenetv3_common.json_output import add_output_flags, outputs_of, writable
from projects.resnet50.config import MODELS, NOT_HERE, PACKAGES, ResNetConfig
from projects.resnet50.plan import plan

SETTINGS = tuple(name for name in ResNetConfig.__dataclass_fields__ if name not in (*NOT_HERE, "teacher_model"))
OF_INFER = (
    "framework", "model", "num_classes", "match_classes", "strict_classes", "pretrained", "data_path", "val_share", "seed",
    "image_backend", "on_bad_image", "workers",
    "resize_size", "crop_size", "mean", "std", "tta", "batch_size", "device", "amp_level", "amp_dtype", "threads",
)  # fmt: skip


def parser() -> Parser:
    """The flags of all sub-commands."""
    whole = Parser(description=__doc__)
    commands = whole.add_subparsers(dest="command", metavar="COMMAND", required=True)
    convert = commands.add_parser("convert", help="weights of one framework as weights of another, strictly")
    convert.add_argument("input", help="weights: .pth, .pdparams, .ckpt or .safetensors")
    convert.add_argument("output", help="weights of the other framework; its own kind of file, or .safetensors")
    convert.add_argument("--model", choices=tuple(MODELS), default="resnet50_cifar", help="architecture of the weights")
    convert.add_argument(
        "--to",
        choices=tuple(PACKAGES),
        help="framework of the output (default: that of its suffix; else mindspore, or ref for MindSpore's)",
    )
    convert.add_argument("--list", action="store_true", help="print every tensor of both sides with its name and shape, too")
    told = {
        "plan": ("the checklist of tricks with which a migration begins, filled from a recipe", SETTINGS),
        "infer": ("evaluate weights on the validation pictures", OF_INFER),
        "train": ("train", SETTINGS),
        "profile": ("where the time and the memory of a run go: phases, operators, transforms", SETTINGS),
    }
    made: dict[str, argparse.ArgumentParser] = {}
    for name, (text, only) in told.items():
        made[name] = commands.add_parser(name, help=text)
        made[name].add_argument("--config", metavar="FILE", help="a recipe, or the config.yaml of a run")
        add_flags(made[name], ResNetConfig, only)
    add_output_flags(made["infer"], "the figures and the confusion matrix")
    from alignment_doctor.profile.command import add_own_flags

    add_own_flags(made["profile"])
    made["profile"].add_argument("--html", metavar="FILE", help="write one self-contained page here")
    add_output_flags(made["profile"], "everything that was found")
    return whole


@exit_on_user_error
def main(argv: Sequence[str] | None = None) -> int:
    flags = vars(parser().parse_args(argv))
    command = flags.pop("command")
    if command == "convert":
        from projects.resnet50.commands import convert_file

        print(convert_file(flags["input"], flags["output"], flags["model"], flags["to"], listed=flags["list"]))
        return 0
    own = {name: flags.pop(name) for name in [*flags] if name not in ResNetConfig.__dataclass_fields__}
    given = without_trained(flags) if command == "infer" else flags
    config = make_config(ResNetConfig, own.pop("config"), given)
    if command == "plan":
        print(plan(config))
        return 0
    if config.threads:
        os.environ["OMP_NUM_THREADS"] = str(config.threads)  # before a framework is imported
    from projects.resnet50 import commands

    commands.needed(config, "data_path")
    if command == "infer":
        config, said = as_trained(config, flags)
        if said:
            print(f"note: {said}", file=sys.stderr)
    if command == "profile":
        return _profile(config, own)
    if command == "infer":
        return _infer(config, own)
    return commands.train(config)


def _infer(config: ResNetConfig, own: dict[str, Any]) -> int:
    from projects.resnet50 import commands

    commands.needed(config, "pretrained")
    outputs = outputs_of(own)
    with outputs.for_people():
        result, classes = commands.infer(config)
    figures = {"model": config.model, "framework": config.framework, "pretrained": config.pretrained, **result.figures()}
    with outputs.for_people():
        print(
            ", ".join(f"{name}: {value:.5f}" if isinstance(value, float) else f"{name}: {value}" for name, value in figures.items())
        )
    outputs.write({**figures, "classes": list(classes), "confusion": result.confusion.tolist()}, indent=None)
    return 0


def _profile(config: ResNetConfig, own: dict[str, Any]) -> int:
    from alignment_doctor import report
    from alignment_doctor.profile.command import profiled
    from projects.resnet50 import commands

    page = writable(own.pop("html"), "--html")
    outputs = outputs_of(own)
    backend, builder = commands.parts(config)
    named = f"{config.model} ({config.framework}) on {config.data_path}"
    with outputs.for_people():
        examination = profiled(backend, config, argparse.Namespace(**own), named, builder)
        print(shown(report.text(examination)), flush=True)
    report.write(examination, page, outputs)
    return examination.status


if __name__ == "__main__":
    sys.exit(main())
