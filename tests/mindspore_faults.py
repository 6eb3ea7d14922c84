"""Mistakes that ports to MindSpore really have, each an edit of one text: what detects it, where, and what it is called.

``python -m tests.mindspore_faults`` makes them all, or those that are given, and prints how many are detected, located and named.
Its exit status is 1 where one of them is not found as it stands here.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from alignment.cli import main as alignment
from tests.conftest import ROOT

PORT, REFERENCE = ROOT / "tests/pairs/mindspore_port.py", ROOT / "tests/pairs/torch_reference.py"
PARTS_OF = ROOT / "projects/resnet50/in_mindspore"
COPY = "parts_in_mindspore"  # what a copy of the parts is called
STEM = 'nn.Conv2d(3, 8, 3, stride=2, pad_mode="pad", padding=1)'
POOL = 'nn.MaxPool2d(3, stride=2, pad_mode="pad", padding=1)'
SHRINK = "vision.Resize((height, width), Inter.BILINEAR)(image)"
MIDDLE = "round((image.height - size) / 2.0), round((image.width - size) / 2.0)"


@dataclass(frozen=True)
class Fault:
    """One edit, and what has to be said of it.

    Attributes:
        before, after: texts; the first occurrence is replaced.
        location: that is named; ``""`` where nobody can say it.
        words: in the hint; ``""`` where there is none.
        file: of the parts; None for the port's network.
        step: that fails.
    """

    before: str
    after: str
    location: str
    words: str = ""
    file: str | None = None
    step: int = 1


def of_part(file: str, step: int, before: str, after: str, location: str, words: str = "") -> Fault:
    return Fault(before, after, location, words, file, step)


NETWORK = {
    "pad_mode same by default": (STEM, "nn.Conv2d(3, 8, 3, stride=2)", "stem.0", "as TensorFlow's SAME"),
    "pad_mode valid": ('3, pad_mode="pad", padding=1, group', '3, pad_mode="valid", group', "block.conv1", "padding 0, expected"),
    "no bias by default": (", has_bias=True", "", "block.conv2.bias", "the port's Conv2d has no bias"),
    "has_bias": (STEM, STEM[:-1] + ", has_bias=True)", "stem.0.bias", "the port's Conv2d has a bias"),
    "torch's momentum": ("momentum=0.9", "momentum=0.1", "block.bn1", "momentum inverted"),
    "another eps": ("nn.BatchNorm2d(8, eps=1e-3)", "nn.BatchNorm2d(8)", "stem.1", "wrong eps: 1e-05, expected 0.001"),
    "use_batch_statistics": ("momentum=0.9", "use_batch_statistics=True", "block.bn1", "evaluation mode forgotten"),
    "use_batch_statistics off": ("momentum=0.9", "use_batch_statistics=False", "block.bn1", "evaluation mode in training"),
    "affine off": ("nn.BatchNorm2d(channels)", "nn.BatchNorm2d(channels, affine=False)", "block.bn2", "weight gets no gradient"),
    "epsilon by default": (", epsilon=1e-5", "", "norm", "wrong eps 1e-07, expected 1e-05"),
    "alpha by default": ("alpha=0.1", "", "relu", "slope 0.2 of the negative values, expected 0.1"),
    "keep_prob for p": ("p=0.2", "keep_prob=0.2", "drop", "p = 0.8, expected 0.2"),
    "pooling same": (POOL, 'nn.MaxPool2d(3, stride=2, pad_mode="same")', "stem.3", ""),
    "pooling valid by default": (POOL, "nn.MaxPool2d(3, stride=2)", "stem.3", "padding 0, expected 1"),
    "pooling stride 1 by default": (POOL, POOL.replace("stride=2, ", ""), "stem.3", "stride 1, expected 2"),
    "average pooling": (POOL, POOL.replace("Max", "Avg"), "stem.3", "average pooling that counts the padding"),
    "group": (", group=2", "", "block.conv1.weight", "1 group, expected 2"),
    "another activation": ("nn.HSwish()", "nn.ReLU6()", "block.act", "it computes ReLU6, expected Hardswish"),
    "Dense without bias": ("nn.Dense(8, 5)", "nn.Dense(8, 5, has_bias=False)", "fc.bias", "the port's Dense has no bias"),
    "Dense with activation": ("nn.Dense(8, 5)", 'nn.Dense(8, 5, activation="relu")', "fc.activation", "ReLU: the reference has no"),
    "Dense's initialisation": ("nn.Dense(8, 5)", 'nn.Dense(8, 5, weight_init="normal")', "fc.weight", "standard deviation 0.0"),
    "no residual": ("return x + self.bn2", "return self.bn2", "block", "residual missing"),
    "stop_gradient": ("x + self.bn2(self.conv2(out))", "x + ops.stop_gradient(self.bn2(self.conv2(out)))", "block", "detached"),
    "stride": (STEM, STEM.replace("stride=2, ", ""), "stem.0", "stride 1, expected 2"),
    "a layer not called": ("self.bn2(self.conv2(out))", "self.conv2(out)", "block", "block.bn2 is called 0 times"),
    "maximum for mean": ("ops.mean(x, (2, 3))", "ops.amax(x, (2, 3))", "Port.forward", ""),
}  # fmt: skip
PARTS = {
    "hard labels taken for rows": of_part(
        "loss/cross_entropy.py", 4, "labels.ndim == 2:", "labels.ndim == 1:", "CrossEntropyLoss", "raises ValueError"
    ),
    "loss reduction sum": of_part(
        "loss/cross_entropy.py", 4, "loss.sum() / kept.sum()", "loss.sum()", "CrossEntropyLoss", "reduced by sum instead of mean"
    ),
    "reduction none by default": of_part(
        "loss/cross_entropy.py", 4, "loss.sum() / kept.sum()", "loss", "CrossEntropyLoss", "shape (6,), expected ()"
    ),
    "ignored labels counted": of_part(
        "loss/cross_entropy.py",
        4,
        "loss.sum() / kept.sum()",
        "loss.mean()",
        "CrossEntropyLoss",
        "the mean is taken over ignored samples too",
    ),
    "smoothing over the other classes": of_part(
        "loss/cross_entropy.py",
        4,
        "smooth = self.label_smoothing",
        "smooth = self.label_smoothing * logits.shape[1] / (logits.shape[1] - 1)",  # as the recipes of MindSpore's models
        "CrossEntropyLoss",
        "label smoothing spreads over the other classes only",
    ),
    "loss without its logarithm": of_part("loss/cross_entropy.py", 4, "ops.log(", "ops.neg(", "CrossEntropyLoss"),
    "class weights left out": of_part(
        "loss/cross_entropy.py", 4, "self.weight is None else", "True else", "CrossEntropyLoss", "class weights are left out"
    ),
    "ties count as right": of_part(
        "metric/accuracy.py",
        3,
        "ops.logical_and(logits == own, earlier)",
        "logits > own",
        "top_k_correct",
        "equal logits count as right",
    ),
    "NaN counts as right": of_part(
        "metric/accuracy.py", 3, ".sum(axis=1) == 0", ".sum(axis=1) >= 0", "top_k_correct", "a row with NaN counts as right"
    ),
    "padding counts": of_part(
        "metric/accuracy.py", 3, "if mask is not None:", "if False:", "TopKAccuracy.update", "padding counts as right answers"
    ),
    "drop_remainder": of_part(
        "data/loader.py",
        2,
        "list(self.plan)",
        "[keys for keys in self.plan if len(keys) == self.plan.batch_size]",
        "batches",
        "the last, short batch is dropped",
    ),
    "shuffle by default": of_part(
        "data/loader.py", 2, "COLUMNS, shuffle=False, ", "COLUMNS, ", "order", "another order with workers, the right one without"
    ),
    "resizing an array": of_part(
        "data/transforms.py",
        2,
        SHRINK,
        SHRINK.replace("(image)", "(np.asarray(image))").join(("Image.fromarray(", ")")),
        "resize",
        "not antialiased, interpolation, expected bilinear",
    ),
    "bicubic resizing": of_part(
        "data/transforms.py", 2, SHRINK, SHRINK.replace("BILINEAR", "BICUBIC"), "resize", "bicubic interpolation, expected bilinear"
    ),
    "centre crop rounded down": of_part(
        "data/transforms.py", 2, MIDDLE, MIDDLE.replace("round", "int"), "center_crop", "crop off by one"
    ),
    "means of 255": of_part(
        "data/transforms.py", 2, "list(preset.mean)", "[255 * one for one in preset.mean]", "normalize", "wrong mean: (123.675"
    ),
    "solarize by a whole threshold": of_part(
        "data/transforms.py", 2, "math.ceil(threshold)", "int(threshold)", "apply_op:Solarize", "Solarize by 7.5, expected 8.5"
    ),
    "brightness of an array": of_part(
        "data/transforms.py",
        2,
        "vision.AdjustBrightness(1.0 + change)(image)",
        "Image.fromarray(vision.AdjustBrightness(1.0 + change)(np.asarray(image)))",
        "apply_op:Brightness",
        "Brightness is computed otherwise",
    ),
    "weight decay on all": of_part(
        "train/optimizer.py",
        5,
        "config.weight_decay if config.norm_weight_decay is None else config.norm_weight_decay",
        "config.weight_decay",
        "optimizer.sgd: stem.1.weight",
        "norm layers have the weight decay of all others",
    ),
    "clipping forgotten": of_part(
        "train/step.py", 5, "if clip_norm is not None:", "if False:", "apply_update", "gradients are not clipped"
    ),
}
FAULTS = {name: Fault(*row) for name, row in NETWORK.items()} | PARTS


def found(name: str, folder: Path) -> dict[str, object]:
    """Make a fault, and give what the command says: ``status``, ``detected``, ``location`` and ``hint``."""
    fault = FAULTS[name]
    report = folder / "report"
    if fault.file is None:
        port = folder / "port.py"
        edited(PORT, port, fault)
        command = ["audit", "--port", f"{port}:Port", "--reference", f"{REFERENCE}:Reference", "--input", "2x3x32x32"]
        command += ["--training", "--strict", "--report", str(report)]
    else:
        command = ["run", str(project_with(fault, folder)), "--steps", str(fault.step), "--result-dir", str(report)]
    for module in [module for module in sys.modules if module.partition(".")[0] in (COPY, "project_project")]:
        del sys.modules[module]
    sys.path.insert(0, str(folder))
    try:
        status = alignment(command)
    finally:
        sys.path.remove(str(folder))
    content = json.loads((report / "alignment.json").read_text())
    first = content["first_divergence"] or {"location": "", "hint": ""}
    detected = status == 1 and any(not step["passed"] for step in content["steps"] if step["step"] == fault.step or not fault.file)
    return {"status": status, "detected": detected, "location": first["location"], "hint": first["hint"]}


def edited(source: Path, target: Path, fault: Fault) -> None:
    text = source.read_text()
    assert fault.before in text, f"{source} has no {fault.before!r}"
    target.write_text(text.replace(fault.before, fault.after, 1))


def project_with(fault: Fault, folder: Path) -> Path:
    """The small project with a copy of the parts, in which one text is replaced."""
    copied = folder / COPY
    shutil.copytree(PARTS_OF, copied)
    for path in copied.rglob("*.py"):
        path.write_text(path.read_text().replace("projects.resnet50.in_mindspore", COPY))
    assert fault.file is not None
    edited(copied / fault.file, copied / fault.file, fault)
    project = folder / "project.py"
    text = (ROOT / "tests/pairs/mindspore_project.py").read_text()
    project.write_text(text.replace("projects.resnet50.in_mindspore", COPY).replace("parents[2]", f"joinpath({str(ROOT)!r})"))
    return project


def main() -> int:
    """Make the faults that are named, or all, and count."""
    counts = dict.fromkeys(("made", "detected", "located", "named"), 0)
    given = sys.argv[1:] or [*FAULTS]
    if unknown := [name for name in given if name not in FAULTS]:
        print(f"error: unknown fault {unknown[0]!r}: use one of {', '.join(FAULTS)}", file=sys.stderr)
        return 2
    for name in given:
        fault = FAULTS[name]
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            one = found(name, Path(folder))
        right = fault.location != "" and one["location"] == fault.location
        counts["made"] += 1
        counts["detected"] += bool(one["detected"])
        counts["located"] += bool(one["detected"]) and right
        counts["named"] += bool(one["detected"]) and right and fault.words != "" and fault.words in str(one["hint"])
        print(f"{name}: detected {one['detected']}, {one['location']}: {one['hint']}", flush=True)
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    wanted = [FAULTS[name] for name in given]
    least = {"detected": len(given), "located": sum(f.location != "" for f in wanted), "named": sum(f.words != "" for f in wanted)}
    return 0 if all(counts[what] >= least[what] for what in least) else 1


if __name__ == "__main__":
    sys.exit(main())
