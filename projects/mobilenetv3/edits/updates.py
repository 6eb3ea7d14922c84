"""Faults of the optimizer, of accumulation, clipping and the schedule."""

from .base import OPTIMIZER, SCHEDULE, STEP, fault

SGD = "config.lr, momentum=config.momentum, use_nesterov=config.nesterov"
SQUARE = "mean_square.scale_(self._alpha).add_(gradient * gradient * (1.0 - self._alpha))"
VELOCITY = (
    "velocity.scale_(self._momentum).add_(gradient / (mean_square.sqrt() + self._epsilon))\n        own.subtract_(velocity * lr)"
)
BETAS = "beta1=config.beta1,\n        beta2=config.beta2,"
GROUPS = '{"params": parameters, "weight_decay": decay}'
NORM_DECAY = '"norm": config.weight_decay if config.norm_weight_decay is None else config.norm_weight_decay'
BIAS_DECAY = '"bias": config.weight_decay if config.bias_weight_decay is None else config.bias_weight_decay'
UPDATE = "    precision.step(optimizer)\n    optimizer.clear_grad()\n"
CLIP = "nn.utils.clip_grad_norm_([p for p in model.parameters() if not p.stop_gradient], clip_norm)"
MICRO_LOSS = "criterion(logits, labels) / len(batches)"
COSINE_DECAY = "CosineAnnealingDecay(lr, config.total - config.warmup"
STEP_DECAY = "StepDecay(lr, config.step_size, config.gamma)"
ATTACHED = "    optimizer.set_lr_scheduler(schedule)\n    return schedule\n\n\ndef follow_rates"


def optimizer(location: str, hint: str, name: str, old: str, new: str) -> None:
    fault("optimizer", 5, location, hint, name, (OPTIMIZER, old, new))


def update(location: str, hint: str, name: str, old: str, new: str) -> None:
    fault("optimizer", 5, location, hint, name, (STEP, old, new))


def schedule(kind: str, hint: str, name: str, old: str, new: str) -> None:
    fault("schedule", 5, f"build_schedule({kind})", hint, name, (SCHEDULE, old, new))


# --- the known ones --------------------------------------------------------------------------------------------------------

optimizer(
    "optimizer.rmsprop", "eps_inside_root", "eps_inside_the_root",
    "(mean_square.sqrt() + self._epsilon)", "(mean_square + self._epsilon).sqrt()",
)  # fmt: skip
optimizer("optimizer.rmsprop", "alpha", "rmsprop_alpha", "alpha=config.alpha,", "alpha=0.99,")
optimizer("optimizer.sgd", "momentum_missing", "momentum_missing", SGD, SGD.replace("momentum=config.momentum", "momentum=0.0"))
optimizer("optimizer.sgd", "nesterov", "nesterov", SGD, SGD.replace("config.nesterov", "True"))
optimizer("optimizer.sgd", "weight_decay_missing", "weight_decay_missing", GROUPS, GROUPS.replace(": decay", ": 0.0 * decay"))
optimizer("optimizer.sgd: features.0.1.weight", "norm_weight_decay", "no_weight_decay_on_norm_layers", NORM_DECAY, '"norm": 0.0')
optimizer("optimizer.adamw", "l2_for_decoupled", "adam_with_l2", "return paddle.optimizer.AdamW(", "return paddle.optimizer.Adam(")
optimizer(
    "optimizer.adamw", "optimizer_eps", "adamw_eps", f"{BETAS}\n        epsilon=config.eps,", f"{BETAS}\n        epsilon=1e-8,"
)
update("apply_update", "gradient_not_cleared", "gradient_not_cleared", UPDATE, "    precision.step(optimizer)\n")
update("apply_update", "never_updated", "never_updated", UPDATE, "    optimizer.clear_grad()\n")
update("apply_update", "clipping_missing", "clipping_missing", "    if clip_norm is not None:\n", "    if False:\n")
update(
    "accumulate_gradients", "sum_for_mean", "micro_batches_summed",
    "precision.scale(loss).backward()", "precision.scale(loss * len(batches)).backward()",
)  # fmt: skip
schedule("step", "schedule_never_stepped", "schedule_never_stepped", STEP_DECAY, "LambdaDecay(lr, lambda _: 1.0)")
schedule(
    "step",
    "schedule_off_by_one",
    "schedule_off_by_one",
    ATTACHED,
    ATTACHED.replace("    return", "    schedule.step()\n    return"),
)
schedule("step", "schedule_factor", "schedule_factor", STEP_DECAY, "StepDecay(lr, config.step_size, 0.1)")

# --- optimizers ------------------------------------------------------------------------------------------------------------

optimizer("optimizer.sgd", "lr_scaled", "sgd_rate_doubled", SGD, SGD.replace("config.lr", "2 * config.lr"))
optimizer("optimizer.sgd", "momentum", "sgd_momentum_of_a_half", SGD, SGD.replace("momentum=config.momentum", "momentum=0.5"))
optimizer("optimizer.adamw", "betas_swapped", "betas_swapped", BETAS, "beta1=config.beta2,\n        beta2=config.beta1,")
optimizer("optimizer.adamw", "betas", "betas_by_default", BETAS, "beta1=0.9,\n        beta2=0.999,")
optimizer(
    "optimizer.rmsprop", "momentum_missing", "rmsprop_without_momentum", "velocity.scale_(self._momentum)", "velocity.scale_(0.0)"
)
optimizer("optimizer.rmsprop", "", "squares_not_squared", "(gradient * gradient * (1.0", "(gradient.abs() * (1.0")
optimizer(
    "optimizer.rmsprop",
    "alpha",
    "shares_of_the_squares_swapped",
    SQUARE,
    "mean_square.scale_(1.0 - self._alpha).add_(gradient * gradient * self._alpha)",
)
optimizer(
    "optimizer.rmsprop",
    "optimizer_eps",
    "rmsprop_eps",
    "epsilon=config.eps,\n        momentum",
    "epsilon=1e-8,\n        momentum",
)
optimizer(
    "optimizer.rmsprop", "lr_in_buffer", "rate_inside_the_velocity", VELOCITY,
    "velocity.scale_(self._momentum).add_(lr * gradient / (mean_square.sqrt() + self._epsilon))\n        own.subtract_(velocity)",
)  # fmt: skip
optimizer("optimizer.sgd: features.0.1.bias", "bias_weight_decay", "no_weight_decay_on_biases", BIAS_DECAY, '"bias": 0.0')
optimizer(
    "optimizer.sgd: features.0.1.weight",
    "weight_decays_swapped",
    "weight_decays_swapped",
    'decays["norm"] if id(parameter) in norm else decays["bias"] if',
    'decays["bias"] if id(parameter) in norm else decays["norm"] if',
)
optimizer("optimizer.adamw", "amsgrad", "amsgrad", f"{BETAS}", f"{BETAS}\n        amsgrad=True,")
optimizer(
    "optimizer.sgd: features.0.1.weight",
    "norm_weight_decay",
    "norm_decay_of_zero_taken_for_none",
    NORM_DECAY,
    '"norm": config.norm_weight_decay or config.weight_decay',
)
optimizer(
    "optimizer.sgd: features.7.block.0.1.weight", "", "rule_of_zero_taken_for_none",
    "decay = decay if rule.decay is None else rule.decay", "decay = rule.decay or decay",
)  # fmt: skip
optimizer("optimizer.sgd", "nesterov", "nesterov_not_passed_on", SGD, SGD.replace(", use_nesterov=config.nesterov", ""))
optimizer("optimizer.sgd: features.0.0.weight", "", "rates_by_name_ignored", '"learning_rate": factor}', '"learning_rate": 1.0}')
optimizer(
    "optimizer.sgd: features.0.1.weight", "", "penalty_on_all",
    "l1 = 0.0 if id(parameter) in own or rule.decay is not None else config.l1_decay", "l1 = config.l1_decay",
)  # fmt: skip
update(
    "apply_update", "clip_norm", "penalty_before_clipping",
    f"    if clip_norm is not None:\n        {CLIP}\n    add_l1_decay(optimizer)\n",
    f"    add_l1_decay(optimizer)\n    if clip_norm is not None:\n        {CLIP}\n",
)  # fmt: skip

# --- updates ---------------------------------------------------------------------------------------------------------------

update("apply_update", "clipped_by_value", "clipped_by_value", CLIP, CLIP.replace("clip_grad_norm_", "clip_grad_value_"))
update(
    "apply_update", "clipped_by_tensor", "clipped_by_tensor", CLIP,
    "for p in model.parameters():\n            if not p.stop_gradient:\n                nn.utils.clip_grad_norm_([p], clip_norm)",
)  # fmt: skip
update("apply_update", "clip_norm", "clipped_to_half", CLIP, CLIP.replace(", clip_norm)", ", clip_norm / 2)"))
update(
    "apply_update",
    "clipped_by_value|clip_norm",
    "clipped_by_the_largest",
    CLIP,
    CLIP.replace(", clip_norm)", ', clip_norm, norm_type=float("inf"))'),
)
update(
    "apply_update",
    "gradient_cleared_early|never_updated",
    "cleared_before_the_update",
    UPDATE,
    "    optimizer.clear_grad()\n    precision.step(optimizer)\n",
)
update(
    "accumulate_gradients", "gradient_cleared_early", "cleared_between_micro_batches",
    "        begin(number)\n", "        begin(number)\n        model.clear_gradients()\n",
)  # fmt: skip
update("accumulate_gradients", "gradient_scaled", "divided_twice", MICRO_LOSS, "criterion(logits, labels) / len(batches) ** 2")
update(
    "accumulate_gradients",
    "gradient_scaled",
    "gradients_doubled",
    "precision.scale(loss).backward()",
    "precision.scale(2.0 * loss).backward()",
)

# --- schedules -------------------------------------------------------------------------------------------------------------

schedule(
    "step",
    "schedule_period|schedule_off_by_one",
    "step_one_unit_longer",
    STEP_DECAY,
    "StepDecay(lr, config.step_size + 1, config.gamma)",
)
schedule(
    "exponential",
    "schedule_factor",
    "exponential_too_slow",
    "ExponentialDecay(lr, config.gamma)",
    "ExponentialDecay(lr, config.gamma**0.5)",
)
schedule("cosine", "schedule_period", "cosine_counts_the_warm_up", COSINE_DECAY, "CosineAnnealingDecay(lr, config.total")
schedule("cosine", "schedule_floor|schedule_minimum", "cosine_to_zero", "config.warmup, config.lr_min)", "config.warmup, 0.0)")
schedule("warm-up", "warmup|warmup_start", "warm_up_from_zero", "start_lr=config.warmup_decay * lr", "start_lr=0.0")
schedule(
    "warm-up",
    "warmup|warmup_length",
    "warm_up_too_long",
    "LinearWarmup(schedule, config.warmup,",
    "LinearWarmup(schedule, config.warmup + 1,",
)
schedule("warm-up", "warmup|warmup_missing", "warm_up_missing", "if config.warmup > 0:", "if False:")
schedule("warm-up", "warmup", "warm_up_to_half", "end_lr=lr)", "end_lr=lr / 2)")
