"""Settings of the network and of the weights that it begins with."""

from __future__ import annotations

from dataclasses import dataclass

from mobilenetv3_common.class_names import MAX_CLASSES
from mobilenetv3_common.train_config.section import BELOW_ONE, Section, option
from mobilenetv3_common.weights_file import TAKE

# The keys of both packages' ``models.MODELS``.
MODELS = ("mobilenet_v3_small", "mobilenet_v3_large")


@dataclass(frozen=True)
class ModelSettings(Section):
    """Which framework trains which network, from which weights."""

    TITLE = "model"

    framework: str = option("paddle", "which of the two trains", ("paddle", "ref"))
    model: str = option("mobilenet_v3_small", "architecture", MODELS)
    num_classes: int | None = option(None, "classes; by default those of the training data", within=f"[1, {MAX_CLASSES}]")
    width_mult: float = option(1.0, "width multiplier of the paper, above 0", within="(0, 16]")
    dropout: float = option(0.2, "share of features dropped before the last layer, 0 to below 1", within=BELOW_ONE)
    pretrained: str | None = option(
        None,
        "weights to begin from: a file, or torchvision or torchvision-v2 (fetched once)",
        metavar="FILE",
    )
    checkpoint_weights: str = option(
        "auto", "of a training checkpoint: its moving average, or the weights themselves; auto: averaged where it has them", TAKE
    )
    reset_classifier: bool = option(False, "begin with a fresh last layer where the weights have another number of classes")
    match_classes: str = option(
        "name",
        "classes of training and validation pictures, of --pretrained and of a resumed checkpoint: all have the same names; "
        "or validation may lack some; or names are not compared",
        ("name", "subset", "position"),
    )
