"""Step 1, model structure: logits and every block's output, in evaluation and training mode."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from alignment import tolerance
from alignment.compare import Lanes, Quantity, judge_equal, judge_measured
from alignment.sides import Trace
from alignment.steps.context import Context, Lane, StepResult


@dataclass(frozen=True)
class Case:
    """One forward pass: its name, the pictures (N, 3, H, W) and the mode."""

    name: str
    images: np.ndarray
    training: bool


def cases(context: Context) -> list[Case]:
    """Photographs and fake data, several batch sizes, both modes."""
    photos, _ = context.photographs(16)
    return [
        Case("eval.photos.b1", photos[:1], False),
        Case("eval.photos.b3", photos[1:4], False),
        Case("eval.photos.b16", photos, False),
        Case("eval.fake.b2", context.fake_data(2), False),
        Case("train.photos.b8", photos[::2], True),
        Case("train.fake.b4", context.fake_data(4), True),
    ]


def run(context: Context, chosen: list[Case] | None = None) -> StepResult:
    """Compare every case (or the chosen ones); in training mode the running statistics that the pass leaves behind too."""
    result = StepResult(1, "forward")
    lanes = [Lane(context, name) for name in ("paddle32", "ref32", "ulp32", "paddle64", "ref64")]
    blocks = block_names(context)
    result.require("blocks", len(blocks), len(blocks) > 10, "more than 10")
    for case in cases(context) if chosen is None else chosen:
        runs = {lane.name: forward(context, lane, case, blocks) for lane in lanes}
        names = list(dict.fromkeys([*runs["ref32"], *runs["paddle32"]]))
        for name in names:
            values = Lanes(**{lane: trace.get(name) for lane, trace in runs.items()})
            result.quantities.append(judge_measured(f"{case.name}.{name}", values))
            if name == "logits" or case.name == "eval.fake.b2":
                result.record(f"{case.name}.{name}", values.paddle32, values.ref32)
        if case.name.startswith("eval.photos") and len(case.images) > 1:
            logits = runs["ref32"]["logits"]
            low, high = tolerance.LOGITS_STD
            spread, apart = float(logits.std()), float(logits.std(axis=0).mean())
            result.require("logits_std", round(spread, 4), low <= spread <= high, f"{low} to {high}")
            result.require("logits_std_between_pictures", round(apart, 4), apart > 0.05, "above 0.05")
    result.quantities += dropout_profile(context)
    return result


def block_names(context: Context) -> list[str]:
    """Every block and layer whose output is compared, in forward order, as the reference names them."""
    network = context.ref.models.MODELS[context.model](**context.options)
    names = [f"features.{number}" for number in range(len(network.features))]
    return [*names, "avgpool", "classifier.0", "classifier.1", "classifier.3"]


def forward(context: Context, lane: Lane, case: Case, blocks: list[str]) -> Trace:
    """One pass; returns block outputs, ``logits`` and, in training mode, the running statistics after it."""
    side, network = lane.side, lane.network
    network.train() if case.training else network.eval()
    trace: Trace = {}
    with side.no_grad(), side.traced_outputs(network, blocks, trace):
        trace["logits"] = side.array(network(side.tensor(lane.images(case.images))))
    if case.training:
        state = side.state(network)
        trace.update({k: v for k, v in state.items() if k.endswith(("running_mean", "running_var"))})
        lane.reset()
    return trace


def dropout_profile(context: Context) -> list[Quantity]:
    """The dropout layers themselves, which share_dropout stands in for: probability, scaling, identity in evaluation.

    Returns:
        One row a layer of [p, output for a kept 1 in training, output for 1 in evaluation].
    """
    rows: list[Quantity] = []
    profiles: list[Trace] = []
    for side in (context.paddle, context.ref):
        network = side.build(context.model, context.state, **context.options)
        profile: Trace = {}
        for name, module in side.named_modules(network).items():
            if side.is_dropout(module):
                ones = side.tensor(np.ones((64, 256), dtype=np.float32))
                module.train()
                dropped = side.array(module(ones + 0.0))
                module.eval()
                kept = side.array(module(ones + 0.0))
                profile[name] = np.array([module.p, dropped.max(), kept.mean()], dtype=np.float32)
                share = float((dropped == 0).mean())
                if abs(share - module.p) > 0.03:  # 7 standard deviations of 16,384 draws
                    rows.append(Quantity(f"dropout.{name}.share", []).fail(f"{side.name} drops {share:.3f}, p is {module.p}"))
        profiles.append(profile)
    for name in dict.fromkeys([*profiles[1], *profiles[0]]):
        rows.append(judge_equal(f"dropout.{name}", profiles[0].get(name), profiles[1].get(name)))
    return rows
