"""Flags as PaddlePaddle/models and torchvision's references spell them: what each is here, or what takes its place.

``Parser`` asks this of every command. A spelling is translated only where the command has not a flag of that name itself, and has
the flag that it stands for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mobilenetv3_common.errors import UserError

SAME = {
    "-b": "--batch-size",
    "-j": "--workers",
    "--opt": "--optimizer",
    "--wd": "--weight-decay",
    "--print-freq": "--print-every",
    "--save-inference-dir": "--output-dir",
    "--img-size": "--crop-size",
    "--apex-opt-level": "--amp-level",
    "--lr-warmup-epochs": "--warmup-epochs",
    "--lr-warmup-decay": "--warmup-decay",
    "--val-resize-size": "--resize-size",
    "--clip-grad-norm": "--clip-norm",
    "--use-deterministic-algorithms": "--deterministic",
}
# A flag that says more than one here: {} is its value.
SEVERAL = {"--lr-step-size": ("--lr-step-epochs {}", "--lr-schedule step --lr-unit epoch")}
_LAUNCHED = "the launcher tells it: python -m paddle.distributed.launch --nproc_per_node N tools/train.py, or torchrun"
# A flag of a command that has the second of these: what to do in its place.
ELSEWHERE = {
    "--start-epoch": ("--resume", "a checkpoint knows its epoch: give --resume DIR, or --resume auto"),
    "--apex": ("--amp-level", "mixed precision is --amp-level O1"),
    "--amp": ("--amp-level", "mixed precision is --amp-level O1"),
    "--cache-dataset": (
        "--picture-cache",
        "the list of pictures is kept by itself; --picture-cache DIR keeps decoded pictures, too",
    ),
    "--world-size": ("--rank-timeout", _LAUNCHED),
    "--dist-url": ("--rank-timeout", _LAUNCHED),
    "--lr-warmup-method": ("--warmup-epochs", "the warm-up is linear: leave it out"),
    "--train-crop-size": ("--crop-padding", "training and evaluation have one size: --crop-size N"),
    "--val-crop-size": ("--crop-size", "training and evaluation have one size: --crop-size N"),
    "--model-ema": (
        "--ema-decay",
        "a moving average of the weights is --ema-decay X, the decay of each step, not divided by the batch",
    ),
    "--model-ema-decay": ("--ema-decay", "--ema-decay X is the decay of each step; torchvision's depends on batch and epochs"),
    "--model-ema-steps": ("--ema-every", "the moving average's steps are --ema-every N, with --ema-decay X"),
    "--ra-sampler": ("--repeat-augment", "repeated augmentation is --repeat-augment N"),
    "--ra-reps": ("--repeat-augment", "repeated augmentation is --repeat-augment N"),
    "--framework": ("--topk", "Paddle computes, with weights of either framework: leave it out"),
    "--pact-quant": (
        "--amp-level",
        "quantisation-aware training (PACT) needs PaddleSlim, which does not run on Paddle 3: train without it, and export with "
        "tools/export_model.py --int8 --calibration-data PICTURES",
    ),
    "--max-batch-size": ("--benchmark", "no largest batch has to be known before: leave it out, --batch-size is the one in use"),
    "--resize-size": ("--benchmark", "an exported model knows its preprocessing (deploy.json): give it to tools/export_model.py"),
    "--crop-size": ("--benchmark", "an exported model knows its preprocessing (deploy.json): give it to tools/export_model.py"),
    "--device": ("--formats", "an export needs no device: leave it out"),
    "--use-gpu": ("--formats", "an export needs no device: leave it out"),
    "--model-path": ("--formats", "weights are exported and quantised in one go: give --pretrained WEIGHTS --int8"),
    "--onnx-file": ("--model-dir", "a model is its folder, with deploy.json in it: give --model-dir DIR --engine onnxruntime"),
    "--use-tensorrt": ("--engine", "there is no TensorRT here: --engine names the engines"),
    "--ir-optim": ("--engine", "the engines always optimise: leave it out"),
}
TRUE, FALSE = ("true", "1", "yes"), ("false", "0", "no")


def translated(arguments: Sequence[str], flags: Collection[str], switches: Collection[str]) -> list[str]:
    """A command line in this project's spelling.

    Args:
        arguments: as given.
        flags: that the command has.
        switches: those of them that take no value.

    Raises:
        UserError: a flag has no counterpart; the message names what takes its place.
    """
    made: list[str] = []
    implied: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*implied, *made, word, *rest]
        name, equals, value = word.partition("=")
        if not name.startswith("-") or (name in flags and name not in switches):
            made.append(word)
            continue
        dashed = name.replace("_", "-") if name not in flags and name.startswith("--") else name
        if dashed == "--use-gpu" and "--device" in flags:
            made += ["--device", "gpu" if _truth(name, value if equals else rest.pop(0) if rest else "") else "cpu"]
        elif dashed in switches and (equals or (rest and rest[0].lower() in ("true", "false"))):
            on = _truth(name, value if equals else rest.pop(0))
            off = f"--no-{dashed.removeprefix('--')}"
            made += [dashed] if on else [off] if off in flags else []
        elif dashed in flags:
            made.append(dashed + equals + value)
        elif SAME.get(dashed) in flags:
            made.append(SAME[dashed] + equals + value)
        elif dashed in SEVERAL and SEVERAL[dashed][0].split()[0] in flags:
            own, others = SEVERAL[dashed]
            made += own.format(value if equals else rest.pop(0) if rest else "").split()
            implied += others.split()  # first: what is said outright wins
        elif name.startswith("-b") and name[2:].isdecimal() and "--batch-size" in flags:
            made += ["--batch-size", name[2:]]
        elif name.startswith("-j") and name[2:].isdecimal() and "--workers" in flags:
            made += ["--workers", name[2:]]
        elif dashed in ELSEWHERE and ELSEWHERE[dashed][0] in flags:
            raise UserError(f"{name}: {ELSEWHERE[dashed][1]}")
        else:
            made.append(word)
    return [*implied, *made]


def _truth(flag: str, value: str) -> bool:
    if value.lower() in TRUE:
        return True
    if value.lower() in FALSE:
        return False
    raise UserError(f"{flag} takes True or False, found {value or 'nothing'}")
