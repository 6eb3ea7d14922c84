"""The words in which steps note what they compared, and all that they could have compared."""

from __future__ import annotations

from mobilenetv3_common.train_config import OPTIMIZERS, SCHEDULES

# What each step could compare, in the words of ``StepResult.cover``; 0 is what no step compares by default.
TOPICS: dict[int, tuple[str, ...]] = {
    0: ("converted file", "bfloat16", "float16", "automatic mixed precision", "ranks", "GPU"),
    1: ("training mode", "initialisation"),
    2: (
        "random resized crop", "horizontal flip", "autoaugment", "randaugment", "trivialaugment", "random erasing", "mixup",
        "cutmix", "OpenCV backend", "kept last batch", "repeated augmentation",
    ),
    4: ("class weights", "distillation"),
    5: (
        *OPTIMIZERS, *(f"{name} schedule" for name in SCHEDULES), "warm-up", "warm-up by epoch", "norm weight decay",
        "bias weight decay", "gradient clipping", "accumulation", "label smoothing", "scaled learning rate",
        "square-root scaling", "Nesterov momentum", "L1 decay", "parameter groups", "layer-wise decay",
    ),
    6: (
        "moving average", "freezing", "freezing by name", "mixing off at the end", "resumed run", "evaluation loop",
        "diverging run", "gradient checkpointing", "several views", "pretrained",
        "final accuracies",
    ),
}  # fmt: skip
AUGMENTATIONS = {"imagenet": "autoaugment", "ra": "randaugment", "ta_wide": "trivialaugment"}  # of recipes, in these words
