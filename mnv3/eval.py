"""Evaluate weights on the validation pictures, each counted once, by one process or by several ranks.

    python tools/eval.py --config configs/digits.yaml --data-path digits --pretrained output/best.safetensors
    python -m paddle.distributed.launch --nproc_per_node 2 tools/eval.py ...

A checkpoint's own model, sizes, decoder and classes are used, whatever the recipe says; a flag overrides them, and a line says so.
The other settings are those of tools/train.py; a run's config.yaml gives them all.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import mobilenetv3_common.quiet_ctrl_c  # noqa: F401
from mobilenetv3_common.as_trained import as_trained, without_trained
from mobilenetv3_common.checkpoint import BEST, LATEST
from mobilenetv3_common.config_file import Parser, add_flags, make_config
from mobilenetv3_common.errors import UserError, exit_on_user_error
from mobilenetv3_common.evaluation import index_for_weights
from mobilenetv3_common.evaluation_record import Record, shown_figures, write_record
from mobilenetv3_common.files import atomic_open, ensure_writable_dir
from mobilenetv3_common.json_output import Outputs, add_output_flags, outputs_of, writable
from mobilenetv3_common.packages import training_package
from mobilenetv3_common.published import with_published
from mobilenetv3_common.run_page import Page, write_page
from mobilenetv3_common.terminal import show
from mobilenetv3_common.train_config import TrainConfig

FLAGS = (
    "framework", "model", "num_classes", "match_classes", "strict_classes", "width_mult", "pretrained", "checkpoint_weights",
    "data_path", "val_share", "seed", "image_backend", "on_bad_image", "workers",
    "resize_size", "crop_size", "mean", "std", "tta", "batch_size", "device", "amp_level", "amp_dtype", "threads",
)  # fmt: skip
NOTHING = Outputs()


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    parser = Parser(description=__doc__)
    parser.add_argument("--config", metavar="FILE", help="a recipe of configs/, or the config.yaml of a run")
    add_flags(parser, TrainConfig, FLAGS)
    add_output_flags(parser, "the figures and the confusion matrix", "class, precision, recall, pictures")
    parser.add_argument("--report", metavar="DIR", help="write a page into this folder: classes, confusion, mistakes as pictures")
    parser.add_argument("--confusion", metavar="FILE.png", help="draw the confusion matrix here")
    flags = vars(parser.parse_args(argv))
    outputs = outputs_of(flags, table=True)
    picture, report = flags.pop("confusion"), flags.pop("report")
    return evaluate(flags.pop("config"), flags, outputs, picture, report)


def evaluate(
    recipe: str | None, flags: dict[str, Any], outputs: Outputs = NOTHING, picture: str | None = None, report: str | None = None
) -> int:
    """Evaluate, print the figures, and write what is asked for; returns the exit status.

    Args:
        recipe: file of a recipe.
        flags: settings that win over it.
        outputs: of the figures.
        picture, report: the file and the folder to write, as the command's flags name them.

    Raises:
        UserError: the data or the weights are missing or cannot be used, or a file cannot be written.
    """
    config = make_config(TrainConfig, recipe, without_trained(flags))
    for name, what in (("data_path", "pictures with labels"), ("pretrained", "the weights to evaluate")):
        if not getattr(config, name):
            raise UserError(f"--{name.replace('_', '-')} is missing: give {what}")
    config, said = as_trained(with_published(config, flags), flags)
    if said:
        show(f"note: {said}", sys.stderr)
    writable(picture, "--confusion")
    if report:
        if any((Path(report) / name).exists() for name in (LATEST, BEST)):
            raise UserError(f"--report {report} is the folder of a run, which has a page of its own: give another folder")
        ensure_writable_dir(report)
    if config.threads:
        os.environ["OMP_NUM_THREADS"] = str(config.threads)
    package = training_package(config.framework)
    with outputs.for_people(), package.started(config.device) as ranks:
        result, classes = package.evaluate_config(config, ranks)
        if not ranks.first:
            return 0
    figures = {"model": config.model, "framework": config.framework, "pretrained": config.pretrained, **result.figures()}
    told = shown_figures(figures, len(classes))
    with outputs.for_people():
        show(", ".join(f"{name}: {value:.5f}" if isinstance(value, float) else f"{name}: {value}" for name, value in told.items()))
        if report:
            print(f"page: {write_report(report, config, result, classes)}")
    each = Record(result.figures(), classes, result.confusion, ()).of_classes()
    rows = [(one.name, _share(one.precision), _share(one.recall), one.support) for one in each]
    whole = {**figures, "classes": list(classes), "confusion": result.confusion.tolist()}
    outputs.write(whole, ("class", "precision", "recall", "pictures"), rows, indent=None)
    if picture:
        draw_confusion(picture, result.confusion, classes, f"{config.model}: top-1 {result.top1:.2%} of {result.samples}")
    return 0


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"


def write_report(folder: str, config: TrainConfig, result: Any, classes: tuple[str, ...]) -> Path:
    """Write the page of an evaluation, and its figures as ``evaluation.json``; returns the page."""
    record = Record(result.figures(), classes, result.confusion, result.mistakes)
    write_record(Path(folder), record)
    index = index_for_weights(config)
    facts = [
        ("model", f"{config.model} ({config.framework})"),
        ("weights", config.pretrained),
        ("pictures", f"{len(index)} of {index.source}"),
        ("preprocessing", f"shorter side {config.resize_size}, crop {config.crop_size} pixels, decoder {config.image_backend}"),
    ]
    page = Page(f"{config.model} on {config.data_path}", record, index, facts, backend=config.image_backend)
    return write_page(Path(folder), page)


def draw_confusion(path: str, confusion: Any, classes: tuple[str, ...], title: str) -> None:
    """Draw counts as shares of each true class; numbers and names where there is room for them.

    Args:
        path: of the PNG file.
        confusion: (classes, classes); row the true class, column the predicted one.
        classes: names.
        title: above the picture.
    """
    import matplotlib

    matplotlib.use("Agg")
    import numpy as np
    from matplotlib import pyplot as plt

    shares = confusion / np.maximum(confusion.sum(1, keepdims=True), 1)
    size = min(4 + 0.45 * len(classes), 16)
    figure, axis = plt.subplots(figsize=(size, size), layout="constrained")
    image = axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axis.set(title=title, xlabel="predicted class", ylabel="true class")
    figure.colorbar(image, shrink=0.7, label="share of the true class")
    if len(classes) <= 40:
        axis.set_xticks(range(len(classes)), classes, rotation=90)
        axis.set_yticks(range(len(classes)), classes)
        for row, column in np.argwhere(confusion > 0):
            colour = "white" if shares[row, column] > 0.5 else "black"
            axis.text(column, row, str(confusion[row, column]), ha="center", va="center", color=colour, fontsize=8)
    with atomic_open(path) as file:
        figure.savefig(file, format="png", dpi=100)
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())
