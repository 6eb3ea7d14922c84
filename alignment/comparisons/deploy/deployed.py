"""Step 8, deploy: the exported network in every engine, from picture files to classes, against the reference.

It is there for a project that says how it deploys (``Project.deploy``).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from alignment.compare import Lanes, Quantity, judge_equal, judge_measured
from alignment.comparisons.comparison import Measurement, compare
from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult
from alignment.finding import Finding
from alignment.project import Deployed
from mobilenetv3_common.image import decode_image
from mobilenetv3_common.presets import EvalPreset

NUMBER = 8
MOST = 8  # pictures
BATCHES = (1, MOST)
LANES = ("reference32", "ulp32", "reference64")


class Deployment:
    """Pixels, logits and classes of some pictures, by the deployed chain and by the reference."""

    def measure(self, context: Context, role: str) -> dict[str, np.ndarray]:
        index, size = context.material.index("val"), context.shape()[-1]
        files = [Path(index.path(number)) for number in range(min(MOST, len(index)))]
        if role == "reference":
            return _reference(context, files, size)
        assert context.project.deploy is not None
        context.networks.of("port32").outputs(context.fake_inputs(1))  # what notes first calls is gone when the source is read
        with tempfile.TemporaryDirectory() as folder:
            made = context.project.deploy(context.model, context.networks.build("port"), Path(folder), size)
            return _deployed(made, files)

    def judge(self, port: Measurement, reference: Measurement) -> Sequence[Quantity]:
        ours, theirs = ({name: np.asarray(one) for name, one in side.items()} for side in (port, reference))
        rows = [judge_equal("deploy.pixels", ours["pixels"], theirs["pixels"])]
        for name, logits in ours.items():
            if name.startswith("logits."):
                lanes = {lane: theirs[lane][: len(logits)] for lane in LANES}
                # float32 alone: an engine has no other precision, so the truth stands in the place of its exact result
                rows.append(judge_measured(f"deploy.{name}", Lanes(port32=logits, port64=lanes["reference64"], **lanes)))
                rows[-1].float64_diff = None
            elif name.startswith("classes."):
                rows.append(judge_equal(f"deploy.{name}", logits, theirs["reference64"].argmax(1)))
        return rows

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        wrong = next((row for row in self.judge(port, reference) if not row.passed), None)
        if wrong is None:
            return None
        _, what, *engine = wrong.name.split(".")
        place = engine[0] if engine else "preprocessing"
        hint = f"{what} of the deployed chain are not the network's" + (
            "; audit --port model.onnx says which node" if engine else ""
        )
        return Finding("deploy", place, hint=hint, measured=wrong.reason)


def _deployed(made: Deployed, files: Sequence[Path]) -> dict[str, Any]:
    pixels = np.stack([made.preprocess(file) for file in files])
    found: dict[str, Any] = {"pixels": pixels}
    for name, engine in made.engines.items():
        for count in BATCHES:
            found[f"logits.{name}.b{count}"] = engine(pixels[:count])
        found[f"classes.{name}"] = np.array(made.predict(name, files))
    return found


def _reference(context: Context, files: Sequence[Path], size: int) -> dict[str, Any]:
    part = context.reference.data
    assert part is not None
    preset = EvalPreset(resize_size=size * 8 // 7, crop_size=size)
    pixels = np.stack([np.asarray(part.eval_transform(decode_image(file, context.image_backend), preset)) for file in files])
    lanes: Mapping[str, Any] = {lane: context.networks.of(lane).outputs((pixels,))[0] for lane in LANES}
    return {"pixels": pixels, **lanes}


def run(context: Context) -> StepResult:
    """Compare what the project deploys."""
    result = StepResult(NUMBER, "deploy")
    whole = compare(context, result, Deployment())
    result.require("pictures", len(whole.reference["pixels"]), len(whole.reference["pixels"]) > 1, "2 or more")
    engines = [name.removeprefix("classes.") for name in whole.port if name.startswith("classes.")]
    result.require("engines", len(engines), bool(engines), "1 or more")
    result.cover(*(f"{name} engine" for name in engines))
    return result


def lacks(context: Context) -> str:
    """Why the step cannot run; ``""`` where it can."""
    if context.project.deploy is None:
        return "the project does not say how it deploys"
    return "" if context.material.has_pictures else "there are no pictures to deploy it on"
