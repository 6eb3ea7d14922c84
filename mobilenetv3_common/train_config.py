"""A training run as data, for both frameworks: optimizer, schedule, and everything else that tools/train.py takes."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from mobilenetv3_common.class_names import MAX_CLASSES
from mobilenetv3_common.class_weights import FORM as WEIGHTS_FORM
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import IMAGE_BACKENDS
from mobilenetv3_common.param_groups import FORM, GroupRule, parse_rules
from mobilenetv3_common.presets import AUTO_AUGMENT_POLICIES, TTA, EvalPreset, TrainPreset
from mobilenetv3_common.ranges import Range
from mobilenetv3_common.tracking import TRACKERS, trackers_of
from mobilenetv3_common.weights_file import TAKE

OPTIMIZERS = ("sgd", "rmsprop", "adamw", "adam", "adadelta", "lamb", "lion")
SCHEDULES = ("constant", "step", "exponential", "cosine", "multistep", "polynomial", "onecycle", "restarts")
WHOLE_RUN = ("cosine", "polynomial", "onecycle")  # schedules whose every rate depends on the number of epochs


@dataclass(frozen=True)
class OptimizerConfig:
    """One optimizer, in torch's terms.

    Attributes:
        name: ``"sgd"`` (with momentum), ``"rmsprop"`` (eps outside the root), ``"adam"``, ``"adamw"``, ``"adadelta"``,
            ``"lamb"`` (You et al., 2020) or ``"lion"`` (Chen et al., 2023).
        lr: initial learning rate, above 0.
        momentum: of sgd and rmsprop, 0..1.
        nesterov: whether sgd looks ahead; needs a momentum.
        alpha: smoothing constant of rmsprop and adadelta (there called rho), 0..1.
        beta1, beta2: of adam, adamw, lamb and lion, 0..1.
        eps: of all but sgd and lion, above 0.
        weight_decay: L2 penalty added to the gradient (sgd, rmsprop, adam, adadelta), decoupled for adamw and lion; for lamb
            part of the direction whose length the weights' norm replaces (only where there is a decay).
        norm_weight_decay: the same for BatchNorm's weights and biases; ``weight_decay`` where None.
        bias_weight_decay: the same for the biases of all other layers.
        l1_decay: L1 penalty: this times the sign of each weight is added to its gradient, after clipping; not for norm
            layers and biases that have a weight decay of their own.
        rules: of parameters by name: factor of the learning rate, weight decay; see ``mobilenetv3_common.param_groups``.
        layer_decay: factor of the learning rate from each block to the one before it, above 0 to 1.
    """

    name: str = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    alpha: float = 0.9
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 1e-4
    norm_weight_decay: float | None = None
    bias_weight_decay: float | None = None
    nesterov: bool = False
    l1_decay: float = 0.0
    rules: tuple[GroupRule, ...] = ()
    layer_decay: float = 1.0

    def __post_init__(self) -> None:
        if self.name not in OPTIMIZERS:
            raise UserError(f"unknown optimizer {self.name!r}: use one of {', '.join(OPTIMIZERS)}")
        decays = (self.weight_decay, self.norm_weight_decay or 0.0, self.bias_weight_decay or 0.0, self.l1_decay)
        if not self.lr > 0 or not self.eps > 0 or not min(decays) >= 0:
            raise UserError(f"lr and eps must be above 0 and weight decays not negative, found {self}")
        if self.nesterov and (self.name != "sgd" or not self.momentum > 0):
            raise UserError(f"--nesterov needs --optimizer sgd and --momentum above 0, found {self.name} and {self.momentum:g}")

    def in_float32(self) -> OptimizerConfig:
        """Every number rounded to float32: what Paddle's kernels hold, whatever the type of the parameters."""
        numbers = {f.name: getattr(self, f.name) for f in fields(self)}
        rounded: dict[str, Any] = {k: float(np.float32(v)) for k, v in numbers.items() if isinstance(v, float)}
        return replace(self, **rounded)


@dataclass(frozen=True)
class ScheduleConfig:
    """How the learning rate moves; one unit is one call of the schedule's ``step``.

    Attributes:
        name: ``"constant"``, ``"step"`` (x ``gamma`` every ``step_size``), ``"exponential"`` (x ``gamma`` every unit),
            ``"cosine"`` (down to ``lr_min`` over ``total`` units, warm-up included), ``"multistep"`` (x ``gamma`` at each of
            ``milestones``), ``"polynomial"`` (down to ``lr_min`` with ``power`` over ``total`` units, warm-up included),
            ``"onecycle"`` (cosines from lr / ``start_div`` up to lr over the share ``rise`` of ``total``, then down to
            ``lr_min``; it has no other warm-up) or ``"restarts"`` (a cosine down to ``lr_min`` over ``restart`` units, again
            over ``restart_factor`` times as many, and so on).
        warmup: units of linear warm-up from ``warmup_decay`` x lr to lr, 0 for none; the schedule proper begins after.
        milestones: units from the run's beginning, warm-up included, rising.
    """

    name: str = "constant"
    step_size: int = 30
    gamma: float = 0.1
    total: int = 1
    lr_min: float = 0.0
    warmup: int = 0
    warmup_decay: float = 0.01
    milestones: tuple[int, ...] = ()
    power: float = 1.0
    restart: int = 1
    restart_factor: int = 1
    rise: float = 0.3
    start_div: float = 25.0

    def __post_init__(self) -> None:
        if self.name not in SCHEDULES:
            raise UserError(f"unknown schedule {self.name!r}: use one of {', '.join(SCHEDULES)}")
        if self.step_size < 1 or self.warmup < 0 or not 0 < self.warmup_decay <= 1 or not 0 < self.gamma <= 1:
            raise UserError(f"step_size must be at least 1, warmup not negative, gamma and warmup_decay within 0..1, found {self}")
        if self.name in ("cosine", "polynomial") and self.total <= self.warmup:
            raise UserError(f"a {self.name} schedule of {self.total} units ends before its warm-up of {self.warmup}")
        if self.name == "multistep" and (not self.milestones or [*self.milestones] != sorted({*self.milestones})):
            raise UserError("a multistep schedule needs milestones that rise, as in --lr-milestones 30,60,80")
        if self.name == "multistep" and self.milestones[0] <= self.warmup:
            raise UserError("the first of --lr-milestones must lie after the warm-up: lower --warmup-epochs, or leave it out")
        if self.name == "onecycle" and self.warmup:
            raise UserError("a onecycle schedule has a warm-up of its own (--lr-rise, --lr-start-div): leave --warmup-epochs out")
        if self.name == "onecycle" and not 1 < self.rise * self.total <= self.total - 1:
            raise UserError(
                f"a onecycle schedule of {self.total} step(s) cannot rise over {self.rise:g} of them: it needs more than one step "
                "to rise and one to fall; change --lr-rise, train more epochs, or use --lr-unit update"
            )


# The keys of both packages' ``models.MODELS``.
MODELS = ("mobilenet_v3_small", "mobilenet_v3_large")


MANY = 1000  # updates an epoch with which a config checks its schedule before the data are known
COUNT, SWITCHABLE, SHARE, BELOW_ONE = "[1, 1e9]", "[0, 1e9]", "[0, 1]", "[0, 1)"


def option(
    default: Any, help: str, choices: tuple[str, ...] = (), metavar: str | None = None, within: str | None = None, group: str = ""
) -> Any:
    """A field of ``TrainConfig``: default, what its command-line flag says and under which heading, and the range of a number."""
    limits = None if within is None else Range.parse(within)
    return field(default=default, metadata={"help": help, "choices": choices, "metavar": metavar, "range": limits, "group": group})


def _grouped(group: str) -> Any:
    """``option`` under one heading of the help."""
    return functools.partial(option, group=group)


_model, _pictures, _augment = _grouped("model"), _grouped("pictures"), _grouped("augmentation")
_optimization, _schedule, _regularisation = _grouped("optimisation"), _grouped("learning rate"), _grouped("regularisation")
_device, _run = _grouped("precision and device"), _grouped("run")


def flag_of(name: str) -> str:
    """A setting as users know it: ``batch_size`` is ``--batch-size``."""
    return "--" + name.replace("_", "-")


@dataclass(frozen=True)
class TrainConfig:
    """One training run. Each field is a key of a recipe in ``configs/`` and a flag of ``tools/train.py``.

    Raises:
        UserError: a value outside its range, or a combination that cannot work.
    """

    framework: str = _model("paddle", "which of the two trains", ("paddle", "ref"))
    model: str = _model("mobilenet_v3_small", "architecture", MODELS)
    num_classes: int | None = _model(None, "classes; by default those of the training data", within=f"[1, {MAX_CLASSES}]")
    width_mult: float = _model(1.0, "width multiplier of the paper, above 0", within="(0, 16]")
    dropout: float = _model(0.2, "share of features dropped before the last layer, 0 to below 1", within=BELOW_ONE)
    pretrained: str | None = _model(
        None,
        "weights to begin from: a file, or torchvision or torchvision-v2 (fetched once)",
        metavar="FILE",
    )
    checkpoint_weights: str = _model(
        "auto", "of a training checkpoint: its moving average, or the weights themselves; auto: averaged where it has them", TAKE
    )
    reset_classifier: bool = _model(False, "begin with a fresh last layer where the weights have another number of classes")
    match_classes: str = _model(
        "name",
        "classes of training and validation pictures, of --pretrained and of a resumed checkpoint: all have the same names; "
        "or validation may lack some; or names are not compared",
        ("name", "subset", "position"),
    )
    strict_classes: bool = _pictures(False, "a class without a picture is an error; else it keeps its number, and is said")
    val_share: float | None = _pictures(
        None, "hold this share of each class out, by the seed, where the data path has no validation pictures", within="(0, 1)"
    )
    data_path: str = _pictures("", "ImageNet layout, list files or tar shards", metavar="DIR")
    image_backend: str = _pictures("pil", "decoder of pictures", IMAGE_BACKENDS)
    on_bad_image: str = _pictures("stop", "what a damaged picture does: stop the run, or be skipped and counted", ("stop", "skip"))
    check_data: bool = _pictures(False, "decode every picture before the first update, and name those that cannot be read")
    reduced_decoding: bool = _pictures(
        False,
        "training: decode a JPEG at 1/2, 1/4 or 1/8 where both sides keep --resize-size pixels; faster, but other pixels",
    )
    picture_cache: str | None = _pictures(None, "training: keep decoded pictures in this folder; they stay the same", metavar="DIR")
    picture_cache_gb: float = _pictures(10.0, "most bytes of --picture-cache, in 10^9", within="(0, 1e6]")
    workers: int = _pictures(2, "loader processes a rank; 0 loads in the training process", within="[0, 1024]")
    resize_size: int = _pictures(256, "evaluation: shorter side in pixels before the crop", within="[1, 4096]")
    crop_size: int = _pictures(224, "pixels of the network's input", within="[1, 4096]")
    tta: str = _pictures("none", "evaluation: views of each picture whose probabilities are averaged", TTA)
    min_crop_scale: float = _augment(0.08, "smallest random crop as a share of the picture's area, above 0 to 1", within="(0, 1]")
    hflip_prob: float = _augment(0.5, "probability of a horizontal flip", within=SHARE)
    auto_augment: str | None = _augment(None, "automatic augmentation: imagenet, ra or ta_wide")
    random_erase: float = _augment(0.0, "probability of random erasing", within=SHARE)
    mixup_alpha: float = _augment(0.0, "parameter of mixup, 0 for none", within="[0, 1000]")
    cutmix_alpha: float = _augment(0.0, "parameter of cutmix, 0 for none", within="[0, 1000]")
    mix_off_epochs: int = _augment(0, "last epochs without mixup and cutmix", within="[0, 1e6]")
    mix_group: int | None = _augment(None, "samples a mixing group; by default the batch of one rank", within=COUNT)
    epochs: int = _optimization(10, "passes over the training data", within="[1, 1e6]")
    batch_size: int = _optimization(32, "pictures a rank and forward pass", within="[1, 65536]")
    min_updates: int = _optimization(
        1, "updates an epoch has at least: the batch is halved until it has, down to 2, and a line says so", within=COUNT
    )
    drop_last: bool = _optimization(True, "leave the incomplete last batch of an epoch out")
    repeat_augment: int = _augment(
        1, "repeated augmentation: so many augmentations of each picture in a row, in an epoch as long as before", within="[1, 64]"
    )
    accumulate: int = _optimization(1, "forward passes an update", within="[1, 65536]")
    optimizer: str = _optimization("sgd", "optimizer", OPTIMIZERS)
    lr: float = _schedule(0.1, "learning rate", within="(0, inf)")
    scale_lr_from: int | None = _schedule(
        None, "scale lr with the global batch: lr is for this many pictures an update", within=COUNT
    )
    scale_lr_by: str = _schedule("linear", "how --scale-lr-from scales: by the batches' ratio or its root", ("linear", "sqrt"))
    momentum: float = _optimization(0.9, "of sgd and rmsprop", within=BELOW_ONE)
    nesterov: bool = _optimization(False, "sgd with Nesterov momentum")
    alpha: float = _optimization(0.9, "smoothing constant of rmsprop and adadelta (rho)", within=BELOW_ONE)
    beta1: float = _optimization(0.9, "of adam, adamw, lamb and lion", within=BELOW_ONE)
    beta2: float = _optimization(0.999, "of adam, adamw, lamb and lion", within=BELOW_ONE)
    eps: float = _optimization(1e-8, "of all optimizers but sgd and lion", within="(0, 1]")
    weight_decay: float = _optimization(1e-4, "L2 penalty, decoupled for adamw and lion", within=SHARE)
    norm_weight_decay: float | None = _optimization(None, "the same for BatchNorm; by default like all others", within=SHARE)
    bias_weight_decay: float | None = _optimization(
        None, "the same for the biases of other layers; by default like all others", within=SHARE
    )
    l1_decay: float = _schedule(
        0.0,
        "L1 penalty, of the parameters that have --weight-decay: times the sign of a weight, added to its gradient",
        within=SHARE,
    )
    param_groups: str | None = _optimization(
        None,
        f"rates and weight decays by parameters' names, the first pattern that fits counts: {FORM}",
        metavar="RULES",
    )
    layer_decay: float = _optimization(1.0, "factor of the learning rate from each block to the one before it", within="(0, 1]")
    lr_schedule: str = _schedule("cosine", "how the learning rate moves", SCHEDULES, metavar="NAME")
    lr_unit: str = _schedule("update", "what the schedule moves by", ("update", "epoch"))
    lr_step_epochs: int = _schedule(30, "step schedule: epochs between steps", within=COUNT)
    lr_milestones: str | None = _schedule(
        None, "multistep schedule: epochs after which the rate falls, e.g. 30,60,80", metavar="N,N"
    )
    lr_gamma: float = _schedule(0.1, "step, multistep and exponential schedule: factor, for every step or epoch", within="(0, 1]")
    lr_min: float = _schedule(
        0.0, "cosine, restarts, polynomial and onecycle schedule: learning rate at the end", within="[0, inf)"
    )
    lr_power: float = _schedule(1.0, "polynomial schedule: exponent of the share of the run that is left", within="(0, 16]")
    lr_restart_epochs: int = _schedule(10, "restarts schedule: epochs of the first cosine", within=COUNT)
    lr_restart_factor: int = _schedule(1, "restarts schedule: how many times as long each further cosine is", within="[1, 100]")
    lr_rise: float = _schedule(0.3, "onecycle schedule: share of the run in which the rate rises", within="(0, 1)")
    lr_start_div: float = _schedule(25.0, "onecycle schedule: it begins at lr divided by this", within="[1, 1e6]")
    warmup_epochs: int = _schedule(0, "epochs of linear warm-up", within="[0, 1e6]")
    warmup_decay: float = _schedule(0.01, "share of lr at which the warm-up begins", within="(0, 1]")
    label_smoothing: float = _regularisation(0.0, "share of the label spread over all classes, 0 to below 1", within=BELOW_ONE)
    class_weights: str | None = _regularisation(None, f"weights of the classes in the loss: {WEIGHTS_FORM}", metavar="WEIGHTS")
    teacher: str | None = _regularisation(
        None, "distil from these weights: a checkpoint, another file, torchvision or torchvision-v2", metavar="FILE"
    )
    teacher_model: str | None = _regularisation(
        None, f"architecture of --teacher ({', '.join(MODELS)}); by default that of its checkpoint, or --model"
    )
    distill_alpha: float = _regularisation(0.5, "share of the teacher in the loss", within=SHARE)
    distill_temperature: float = _regularisation(
        4.0, "both networks' logits are divided by this, the teacher's part multiplied by its square", within="(0, 1000]"
    )
    clip_norm: float | None = _regularisation(None, "clip the gradients' global norm to this, after unscaling", within="(0, inf)")
    ema_decay: float = _regularisation(0.0, "decay of the moving average of the weights, 0 for none", within=BELOW_ONE)
    ema_warmup: bool = _regularisation(
        False, "the moving average's decay grows with its step n, (1 + n) / (10 + n) at most: for runs of few updates"
    )
    ema_every: int = _regularisation(1, "updates between steps of the moving average", within=COUNT)
    sync_bn: bool = _regularisation(False, "BatchNorm over all ranks' samples")
    bn_momentum: float | None = _regularisation(
        None, "share of each batch in BatchNorm's statistics; by default the model's 0.01", within="(0, 1]"
    )
    freeze_bn: bool = _regularisation(False, "BatchNorm keeps its statistics and does not train")
    device: str = _device("auto", "auto takes a GPU where there is one", ("auto", "cpu", "gpu"))
    amp_level: str = _device("O0", "O0 float32, O1 automatic mixed precision, O2 weights in half precision", ("O0", "O1", "O2"))
    amp_dtype: str = _device("float16", "half-precision type", ("float16", "bfloat16"))
    grad_checkpointing: bool = _device(
        False, "compute each block again in the backward pass in the place of keeping what is in it: less memory, equal gradients"
    )
    deterministic: bool = _device(False, "GPU: kernels that repeat to the last bit alone, some of them slower")
    channels_last: bool = _device(False, "reference: pictures, weights and activations with channels last in memory")
    compile: bool = _device(False, "reference: train with torch.compile; it needs a C++ compiler, and minutes at the first update")
    threads: int = _device(0, "CPU threads of a rank's computations; 0 leaves the framework's choice", within="[0, 1024]")
    seed: int = _run(0, "of order, augmentation, dropout and fresh weights, 0 or more", within="[0, 4294967295]")
    output_dir: str = _run("output", "checkpoints, logs and the effective config go here", metavar="DIR")
    resume: str | None = _run(
        None, "continue from a run's folder or a checkpoint; auto: from output_dir if it has one", metavar="DIR|auto"
    )
    rank_timeout: float = _run(
        1800.0,
        "seconds that a rank waits for the others (at most: 30 inside a backward pass of Paddle's on a CPU)",
        within="[1, 1e6]",
    )
    new_data: bool = _run(False, "resume on other pictures than the checkpoint's, of the same classes")
    print_every: int = _run(10, "updates between log lines", within=COUNT)
    save_every: int = _run(0, "updates between checkpoints besides those at the end of each epoch, 0 for none", within=SWITCHABLE)
    keep: int = _run(3, "checkpoints kept besides latest and best", within=COUNT)
    keep_best: int = _run(1, "best checkpoints kept by top-1: best, and with 2 or more top_TOP1_update_N", within="[1, 1e4]")
    early_stop: int = _run(0, "evaluations in a row without a better top-1 that end the run, 0 for never", within=SWITCHABLE)
    eval_raw: bool = _run(False, "with a moving average, evaluate the weights themselves too")
    eval_every: int = _run(1, "epochs between evaluations; the last is always evaluated", within=COUNT)
    check_every: int = _run(1, "updates between checks that logits and gradients are finite", within=COUNT)
    log_to: str | None = _run(
        None, f"experiment trackers that get the figures too: one or more of {', '.join(TRACKERS)}", metavar="NAME,NAME"
    )
    roll_back: int = _run(
        0, "how often a run that diverges goes back to its last good checkpoint and on with a lower rate", within="[0, 1000]"
    )
    roll_back_factor: float = _run(0.5, "what --roll-back multiplies the learning rates by each time", within="(0, 1)")

    def __post_init__(self) -> None:
        for entry in fields(self):
            value, limits = getattr(self, entry.name), entry.metadata["range"]
            if limits is not None and value is not None:
                _require(value in limits, f"{flag_of(entry.name)} must be {limits}", value)
            if isinstance(value, str):
                _require("\0" not in value, f"{flag_of(entry.name)} must not hold a zero byte", value)
                _require(value.strip() != "" or entry.name == "data_path", f"{flag_of(entry.name)} must not be empty", value)
        for name in ("mixup_alpha", "cutmix_alpha"):  # numpy's beta distribution gives NaN at the smallest numbers
            value = getattr(self, name)
            _require(value == 0 or value >= 1e-3, f"{flag_of(name)} must be 0, or at least 0.001", value)
        policies = AUTO_AUGMENT_POLICIES
        fits = self.auto_augment is None or self.auto_augment in policies
        _require(fits, f"--auto-augment must be one of {', '.join(policies)}", self.auto_augment)
        _require(
            self.resize_size >= self.crop_size, f"--resize-size must be at least --crop-size ({self.crop_size})", self.resize_size
        )
        _require(self.lr_min <= self.lr, f"--lr-min must be at most --lr ({self.lr:g})", self.lr_min)
        _require(self.warmup_epochs < self.epochs, f"--warmup-epochs must be below --epochs ({self.epochs})", self.warmup_epochs)
        _require(not (self.sync_bn and self.freeze_bn), "--sync-bn and --freeze-bn exclude each other: leave one out", "both")
        ends = self.mix_off_epochs == 0 or (self.mix_off_epochs < self.epochs and self.train_preset.mixes)
        _require(ends, f"--mix-off-epochs needs mixup or cutmix, and must be below --epochs ({self.epochs})", self.mix_off_epochs)
        _require(not self.eval_raw or self.ema_decay > 0, "--eval-raw needs a moving average (--ema-decay)", self.ema_decay)
        if self.mix_group is not None:
            fits = self.batch_size % self.mix_group == 0
            _require(fits, f"--mix-group must divide --batch-size ({self.batch_size})", self.mix_group)
        fits = self.teacher_model in (None, *MODELS)
        _require(fits, f"--teacher-model must be one of {', '.join(MODELS)}", self.teacher_model)
        _require(self.teacher_model is None or self.teacher is not None, "--teacher-model needs --teacher", self.teacher_model)
        whole = self.drop_last or self.accumulate == 1
        _require(whole, "--no-drop-last needs batches that are updates: --accumulate must be 1", self.accumulate)
        _require(
            not self.lonely_batch(self.batch_size),
            f"--batch-size 1 with --crop-size {self.crop_size} leaves BatchNorm one value a channel, whose variance is 0: "
            "--batch-size must be at least 2, or give --freeze-bn",
            self.batch_size,
        )
        # What the parts themselves refuse.
        trackers_of(self.log_to)
        self.optimizer_config(1)
        self.schedule_config(MANY)
        self.train_preset, self.eval_preset  # noqa: B018

    def lonely_batch(self, pictures: int) -> bool:
        """Whether a batch of so many pictures leaves BatchNorm one value a channel."""
        small = self.model in MODELS and self.crop_size <= 32
        return small and pictures == 1 and not (self.sync_bn or self.freeze_bn)

    def optimizer_config(self, global_batch: int) -> OptimizerConfig:
        """The optimizer for ``global_batch`` pictures an update."""
        return OptimizerConfig(
            name=self.optimizer,
            lr=self.scaled_lr(global_batch),
            momentum=self.momentum,
            alpha=self.alpha,
            beta1=self.beta1,
            beta2=self.beta2,
            eps=self.eps,
            weight_decay=self.weight_decay,
            norm_weight_decay=self.norm_weight_decay,
            bias_weight_decay=self.bias_weight_decay,
            nesterov=self.nesterov,
            l1_decay=self.l1_decay,
            rules=parse_rules(self.param_groups),
            layer_decay=self.layer_decay,
        )

    def scaled_lr(self, global_batch: int) -> float:
        """The learning rate for ``global_batch`` pictures an update, before the schedule."""
        if not self.scale_lr_from:
            return self.lr
        if self.scale_lr_by == "sqrt":
            return self.lr * math.sqrt(global_batch / self.scale_lr_from)
        return self.lr * global_batch / self.scale_lr_from

    @property
    def milestones(self) -> tuple[int, ...]:
        """``lr_milestones`` as numbers of epochs.

        Raises:
            UserError: it is no list of whole numbers above 0.
        """
        texts = [text.strip() for text in (self.lr_milestones or "").split(",") if text.strip()]
        fit = all(text.isascii() and text.isdecimal() and 0 < int(text[:10]) <= 10**6 for text in texts)
        _require(fit, "--lr-milestones must be whole numbers of epochs with commas between, as in 30,60,80", self.lr_milestones)
        return tuple(map(int, texts))

    def schedule_config(self, updates_per_epoch: int) -> ScheduleConfig:
        """The schedule in its unit; an exponential one decays by ``lr_gamma`` an epoch, whatever the unit."""
        per_epoch = updates_per_epoch if self.lr_unit == "update" else 1
        gamma = self.lr_gamma ** (1 / per_epoch) if self.lr_schedule == "exponential" else self.lr_gamma
        return ScheduleConfig(
            name=self.lr_schedule,
            step_size=self.lr_step_epochs * per_epoch,
            gamma=gamma,
            total=self.epochs * per_epoch,
            lr_min=self.lr_min,
            warmup=self.warmup_epochs * per_epoch,
            warmup_decay=self.warmup_decay,
            milestones=tuple(epoch * per_epoch for epoch in self.milestones),
            power=self.lr_power,
            restart=self.lr_restart_epochs * per_epoch,
            restart_factor=self.lr_restart_factor,
            rise=self.lr_rise,
            start_div=self.lr_start_div,
        )

    def average_decay(self, update: int) -> float:
        """Decay of the moving average at an update, counted from 1."""
        step = update // self.ema_every
        return min(self.ema_decay, (1 + step) / (10 + step)) if self.ema_warmup else self.ema_decay

    def first_weights_left(self, updates: int) -> float:
        """Share of the moving average after so many updates that is still the weights of its first step, 0..1."""
        steps = updates // self.ema_every
        if self.ema_decay == 0 or steps < 1:
            return 0.0
        if not self.ema_warmup:
            return self.ema_decay ** (steps - 1)
        decays = (self.average_decay(step * self.ema_every) for step in range(2, min(steps, 1000) + 1))
        return math.prod(decays) * self.ema_decay ** max(0, steps - 1000)

    @property
    def train_preset(self) -> TrainPreset:
        return TrainPreset(
            crop_size=self.crop_size,
            crop_scale=(self.min_crop_scale, 1.0),
            hflip_prob=self.hflip_prob,
            auto_augment=self.auto_augment,
            random_erase_prob=self.random_erase,
            mixup_alpha=self.mixup_alpha,
            cutmix_alpha=self.cutmix_alpha,
            reduce_to=self.resize_size if self.reduced_decoding else None,
            mix_epochs=self.epochs - self.mix_off_epochs if self.mix_off_epochs else None,
        )

    @property
    def eval_preset(self) -> EvalPreset:
        return EvalPreset(self.resize_size, self.crop_size, tta=self.tta)


def _require(holds: bool, what: str, found: Any) -> None:
    if not holds:
        raise UserError(f"{what}, found {found}")
