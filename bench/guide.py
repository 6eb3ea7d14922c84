"""What the package reprod_log says of the reproduction guide's five files of a port, made as the guide makes them."""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from alignment.comparisons.context import Context
from alignment.comparisons.data.loading import batches, first_pictures
from alignment.comparisons.metric import right_answers
from alignment.comparisons.update import backward
from alignment.record import save_record
from mobilenetv3_common.presets import EvalPreset

GuideFiles = dict[str, dict[str, np.ndarray]]
THRESHOLDS = {"data": 0.0, "forward": 1e-5, "metric": 0.0, "loss": 1e-5, "losses": 1e-5}  # the guide's, on mean differences


def guide_files(context: Context, role: str) -> GuideFiles:
    """The arrays of one side's five files: float32, evaluation mode; files of parts that the side lacks are left out."""
    lane = context.networks.of(f"{role}32", share_dropout=False)
    side, framework = lane.side, lane.framework
    files: GuideFiles = {"forward": {"logits": lane.outputs(context.fake_inputs(1, small=True))[0]}}
    inputs, labels = context.material.samples(5)
    if context.material.has_pictures and side.data is not None:
        index = first_pictures(context.material.index("val"))
        images, labels, _ = next(batches(side, context, index, EvalPreset(), 0))
        inputs = (images,)
        files["data"] = {"images": images}
    logits = framework.tensor(lane.outputs(inputs)[0])
    if side.metric is not None:
        right = framework.array(right_answers.part(side).top_k_correct(logits, framework.tensor(labels), (1, 5)))
        files["metric"] = {"acc_top1": right[:, 0].mean(keepdims=True), "acc_top5": right[:, 1].mean(keepdims=True)}
    if side.loss is not None:
        value = side.loss.CrossEntropyLoss(0.0)(logits, framework.tensor(labels))
        files["loss"] = {"loss": framework.array(value).reshape(1)}
        if side.train is not None:
            run = replace(backward.RUNS[0], iterations=4, float32_iterations=0)
            losses = [iteration.loss for iteration in backward.iterate(lane, run, *context.material.samples(4, small=True))]
            files["losses"] = {f"loss_{i}": np.asarray(x).reshape(1) for i, x in enumerate(losses)}
    return files


def reprod_log_finds(context: Context, reference: GuideFiles) -> str:
    """The file in which reprod_log sees a difference between the port and the reference, ``""`` for none."""
    from reprod_log import ReprodDiffHelper

    try:
        files = {"port": guide_files(context, "port"), "reference": reference}
    except Exception as error:  # the port does not run: whoever follows the guide sees that, too
        return f"{type(error).__name__}"
    with tempfile.TemporaryDirectory() as folder:
        for role, arrays in files.items():
            for name, content in arrays.items():
                save_record(Path(folder) / f"{name}_{role}.npy", content)
        for name in reference:
            helper = ReprodDiffHelper()
            ours, theirs = (helper.load_info(str(Path(folder) / f"{name}_{role}.npy")) for role in files)
            log = Path(folder) / f"{name}.log"
            try:
                with _quiet():
                    helper.compare_info(ours, theirs)
                    helper.report(path=str(log), diff_threshold=THRESHOLDS[name])
            except Exception as error:
                return f"{name}: {type(error).__name__}"
            if "diff check failed" in log.read_text():
                return name
    return ""


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """With every report reprod_log adds a handler to the root logger, sets it to DEBUG and leaves both, for all to print on."""
    root = logging.getLogger()
    level, before, root.handlers = root.level, root.handlers, []
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        added, root.handlers = root.handlers, before
        root.setLevel(level)
        for handler in added:
            handler.close()
