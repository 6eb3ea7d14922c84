"""The kinds of mistakes that a hint can name; ``alignment.json`` has their values."""

from __future__ import annotations

import enum


class Kind(str, enum.Enum):
    """What a mistake looks like. ``UNKNOWN`` where no known mistake explains what was measured."""

    UNKNOWN = ""

    # structure and weights
    LAYER_MISSING = "layer_missing"
    LAYER_EXTRA = "layer_extra"
    LAYER_RENAMED = "layer_renamed"
    PARAMETERS_SHARED = "parameters_shared"
    WEIGHTS_MISSING = "weights_missing"
    WEIGHTS_NOT_LOADED = "weights_not_loaded"
    WEIGHTS_SWAPPED = "weights_swapped"
    WEIGHT_TRANSPOSED = "weight_transposed"
    WEIGHT_REORDERED = "weight_reordered"

    # any module
    RAISES = "raises"
    SHAPE = "shape"
    NOT_FINITE = "not_finite"
    ZERO = "zero"
    DOES_NOTHING = "does_nothing"
    SCALED = "scaled"
    PERMUTED = "permuted"
    FEW_ELEMENTS = "few_elements"
    HALF_PRECISION = "half_precision"
    FLOAT32_CONSTANT = "float32_constant"

    # layers
    ACTIVATION = "activation"
    BIAS_MISSING = "bias_missing"
    WEIGHT_FLIPPED = "weight_flipped"
    PADDING = "padding"
    DILATION = "dilation"
    STRIDE = "stride"
    POOLING = "pooling"
    BATCH_NORM_EPS = "batch_norm_eps"
    TRAINING_MODE = "training_mode"
    EVALUATION_MODE = "evaluation_mode"
    STATISTICS_FROZEN = "statistics_frozen"
    BIASED_VARIANCE = "biased_variance"
    UNBIASED_VARIANCE = "unbiased_variance"
    MOMENTUM = "momentum"
    MOMENTUM_INVERTED = "momentum_inverted"
    DROPOUT_ON = "dropout_on"
    DROPOUT_MISSING = "dropout_missing"
    DROPOUT_RATE = "dropout_rate"
    DROPOUT_SCALE = "dropout_scale"

    # containers
    NO_RESIDUAL = "no_residual"
    RESIDUAL_EXTRA = "residual_extra"
    EXTRA_SCALING = "extra_scaling"
    NO_SQUEEZE_EXCITATION = "no_squeeze_excitation"
    LAYER_NOT_CALLED = "layer_not_called"
    CALL_ORDER = "call_order"

    # gradients
    FROZEN = "frozen"
    NOT_FROZEN = "not_frozen"
    DETACHED = "detached"
    GRADIENT_SCALED = "gradient_scaled"

    # data
    CHANNELS_REVERSED = "channels_reversed"
    MIRRORED = "mirrored"
    UPSIDE_DOWN = "upside_down"
    CROP_OFF_BY_ONE = "crop_off_by_one"
    AFFINE = "affine"
    NOT_DIVIDED_BY_255 = "not_divided_by_255"
    WRONG_MEAN = "wrong_mean"
    WRONG_STD = "wrong_std"
    WRONG_MEAN_STD = "wrong_mean_std"
    INTERPOLATION = "interpolation"
    INTERPOLATION_OR_SIZE = "interpolation_or_size"
    FLIP_MISSING = "flip_missing"
    SIGN = "sign"
    MAGNITUDE = "magnitude"
    OPERATION = "operation"
    OTHER_OPERATION = "other_operation"
    ERASE_VALUE = "erase_value"
    LABEL = "label"
    LABEL_OFF_BY_ONE = "label_off_by_one"
    OTHER_SEED = "other_seed"
    OTHER_EPOCH = "other_epoch"
    LAMBDA = "lambda"
    LAMBDA_SWAPPED = "lambda_swapped"
    MIXED_LABELS = "mixed_labels"
    ORDER = "order"
    REVERSED = "reversed"
    NOT_SHUFFLED = "not_shuffled"
    NOT_RESHUFFLED = "not_reshuffled"
    BATCH_DROPPED = "batch_dropped"
    NOT_SHARDED = "not_sharded"
    SHARDS_OVERLAP = "shards_overlap"

    # metric
    ALWAYS_WRONG = "always_wrong"
    ALWAYS_RIGHT = "always_right"
    TIES_RIGHT = "ties_right"
    TIES_WRONG = "ties_wrong"
    NAN_RIGHT = "nan_right"
    SMALLEST = "smallest"
    K_OFF_BY_ONE = "k_off_by_one"
    BATCH = "batch"
    LAST_BATCH_FORGOTTEN = "last_batch_forgotten"
    PADDING_COUNTED = "padding_counted"
    RANKS_NOT_MERGED = "ranks_not_merged"

    # loss
    SUM_FOR_MEAN = "sum_for_mean"
    MEAN_OVER_IGNORED = "mean_over_ignored"
    SMOOTHING = "smoothing"
    SMOOTHING_MISSING = "smoothing_missing"
    SMOOTHING_OVER_OTHERS = "smoothing_over_others"
    SATURATED = "saturated"
    SOFTMAX_TWICE = "softmax_twice"
    SOFT_AS_HARD = "soft_as_hard"
    IGNORE_INDEX = "ignore_index"

    # updates and schedules
    GRADIENT_NOT_CLEARED = "gradient_not_cleared"
    NEVER_UPDATED = "never_updated"
    CLIPPING_MISSING = "clipping_missing"
    CLIPPED_BY_VALUE = "clipped_by_value"
    CLIPPED_BY_TENSOR = "clipped_by_tensor"
    WEIGHT_DECAY_MISSING = "weight_decay_missing"
    NORM_WEIGHT_DECAY = "norm_weight_decay"
    BIAS_WEIGHT_DECAY = "bias_weight_decay"
    NORM_AND_BIAS_WEIGHT_DECAY = "norm_and_bias_weight_decay"
    L2_FOR_DECOUPLED = "l2_for_decoupled"
    LR_SCALED = "lr_scaled"
    MOMENTUM_MISSING = "momentum_missing"
    NESTEROV = "nesterov"
    EPS_INSIDE_ROOT = "eps_inside_root"
    ALPHA = "alpha"
    BETAS = "betas"
    BETAS_SWAPPED = "betas_swapped"
    OPTIMIZER_EPS = "optimizer_eps"
    SCHEDULE_NEVER_STEPPED = "schedule_never_stepped"
    SCHEDULE_OFF_BY_ONE = "schedule_off_by_one"
    SCHEDULE_FACTOR = "schedule_factor"
    SCHEDULE_PERIOD = "schedule_period"

    # whole runs
    RECIPE = "recipe"
    MOVING_AVERAGE = "moving_average"
    EVALUATION = "evaluation"

    def __str__(self) -> str:
        return self.value

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)
