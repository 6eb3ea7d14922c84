"""Witnesses of ``mobilenetv3_common``, which every project shares whose two sides train by it: see ``alignment.witness``.

A witness computes by the shared code and holds the values against torch's, torchvision's, Pillow's or OpenCV's own, against a
closed formula, or against a table that was written by hand. They need seconds, and none of the two packages under test.
"""

from __future__ import annotations

from alignment.comparisons.topics import AUGMENTATIONS
from alignment.kinds import Kind
from alignment.witness import Witness
from mobilenetv3_common.train_config import OPTIMIZERS, SCHEDULES
from projects.witnesses import batches, listing, parameters, pictures, settings
from projects.witnesses.loop import cases
from projects.witnesses.loop import ends as early

HAND, SCRIPT = "a table by hand", "a plain script"
DRAWN = ("random resized crop", "horizontal flip", "random erasing", *AUGMENTATIONS.values())
LOOP = (
    "accumulation",
    "label smoothing",
    "gradient clipping",
    "dropout",
    "scaled learning rate",
    "norm weight decay",
    "bias weight decay",
)
ENDS = (
    "moving average",
    "freezing",
    "evaluation loop",
    "diverging run",
    "gradient checkpointing",
    "pretrained",
    "final accuracies",
)
DECAYS = ("norm weight decay", "bias weight decay", "L1 decay", "layer-wise decay")

MODEL = (Witness("weights", (), "layouts by hand", listing.conversion, 1),)
DATA = (
    Witness("run.training_plan", ("kept last batch", "repeated augmentation", "order of batches", "batches over ranks"),
            "torch's DataLoader over its DistributedSampler", batches.training_plan, 2),
    Witness("TrainConfig.train_preset", DRAWN, HAND, settings.presets, 2, Kind.PRESET),
    Witness("TrainPreset.mixes_in", ("mixing off at the end", "mixup", "cutmix"), "the number of epochs", settings.mixing, 2),
    Witness("Samples.__getitem__", (*DRAWN, "training pictures", "damaged pictures"), "the draw of each sample's own key",
            batches.sample, 2),
    Witness("samples.collate", ("mixing groups", "mixup", "cutmix"), "groups that are counted", batches.collate, 2),
    Witness("image.orientation", ("evaluation pictures",), "Pillow's ImageOps.exif_transpose", pictures.orientation, 2),
    Witness("image: formats", ("evaluation pictures", "training pictures"), 'Pillow\'s convert("RGB")', pictures.formats, 2),
    Witness("Rules.reduction", ("reduced decoding",), "OpenCV's and Pillow's own reduced decoding", pictures.reduced, 2),
    Witness("image.crop_and_resize", ("OpenCV backend",), "OpenCV's own resize", pictures.crops, 2, Kind.INTERPOLATION),
    Witness("preprocess", ("evaluation pictures", "several views"), "torchvision's functions", pictures.views, 2),
    Witness("PictureCache", (), "what was put in", pictures.cached, 2),
    Witness("dataset_index", ("training pictures", "evaluation pictures"), HAND, listing.folders, 2, Kind.LABEL),
    Witness("cifar", (), "pixels and labels that were written", listing.cifar, 2),
    Witness("shards", (), "pictures and labels that were written", listing.shards, 2),
    Witness("published", (), "torchvision's weights", listing.of_torchvision, 2, Kind.PRESET),
    Witness("held_out.index_held_out", (), HAND, batches.held, 2),
)  # fmt: skip
LOSS = (
    Witness("class_weights", ("class weights",), "scikit-learn's balanced weights", batches.weights, 4, Kind.CLASS_WEIGHTS),
    Witness("distilling", ("distillation",), SCRIPT, cases.teacher, 4, Kind.DISTILLATION),
)
UPDATES = (
    Witness("TrainConfig.optimizer_config", (*OPTIMIZERS, *DECAYS, "Nesterov momentum", "parameter groups"), HAND,
            settings.optimizer, 5, Kind.RECIPE),
    Witness("TrainConfig.scaled_lr", ("scaled learning rate", "square-root scaling"), "Goyal et al. 2017, Krizhevsky 2014",
            settings.scaled_rates, 5, Kind.LR_SCALED),
    Witness("TrainConfig.schedule_config", (*(f"{name} schedule" for name in SCHEDULES), "warm-up", "warm-up by epoch"), HAND,
            settings.schedule, 5, Kind.RECIPE),
    Witness("param_groups.rule_of", ("parameter groups", "freezing by name"), "a table of names by hand", parameters.rules, 5),
    Witness("param_groups.rate_factors", ("layer-wise decay", "parameter groups"), "powers by hand", parameters.factors, 5),
    Witness("training.update", LOOP, SCRIPT, cases.updates, 5),
)  # fmt: skip
RUNS = (
    Witness("TrainConfig: defaults", (), "the documented defaults", settings.defaults, 6, Kind.RECIPE),
    Witness("config_file.add_flags", (), "each flag's own name", settings.flags, 6, Kind.RECIPE),
    Witness("config_file.make_config", (), HAND, settings.precedence, 6, Kind.RECIPE),
    Witness("run.fitted", (), "halving by hand", batches.fitted, 6),
    Witness("DropoutStream", ("dropout",), "the places of the samples", batches.dropout, 6),
    Witness("TrainConfig.average_decay", ("moving average",), "timm's warm-up of a moving average", settings.average, 6,
            Kind.AVERAGE_DECAY),
    Witness("training", ENDS, SCRIPT, cases.runs, 6),
    Witness("run.restore", ("resumed run",), "the run that was not interrupted", cases.resumed, 6, Kind.STATE_NOT_RESTORED),
    Witness("training: early ends", ("diverging run", "resumed run"), "the run that was not interrupted", early.ends, 6),
    Witness("evaluation_record", (), HAND, listing.records, 6, Kind.EVALUATION),
    Witness("CheckpointFolder", (), HAND, listing.kept, 6, Kind.STATE_NOT_SAVED),
    Witness("as_trained", (), "the checkpoint's own settings", listing.trained_so, 6, Kind.RECIPE),
    Witness("rank_statistics", (), "means by hand", listing.statistics, 6, Kind.STATISTICS_OF_ONE_RANK),
    Witness("lr_range", (), "curves whose places are known", parameters.range_test, 6),
)  # fmt: skip
WITNESSES = (*MODEL, *DATA, *LOSS, *UPDATES, *RUNS)
