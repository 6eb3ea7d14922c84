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
    LAYER_REPLACED = "layer_replaced"
    WIDTH = "width"
    CLASS_COUNT = "class_count"
    KERNEL_SIZE = "kernel_size"
    GROUPS = "groups"
    BIAS_EXTRA = "bias_extra"
    NORM_AFFINE = "norm_affine"
    PARAMETERS_SHARED = "parameters_shared"
    PARAMETERS_UNTIED = "parameters_untied"
    WEIGHTS_MISSING = "weights_missing"
    WEIGHTS_EXTRA = "weights_extra"
    WEIGHTS_NOT_LOADED = "weights_not_loaded"
    WEIGHTS_SWAPPED = "weights_swapped"
    WEIGHT_TRANSPOSED = "weight_transposed"
    WEIGHT_REORDERED = "weight_reordered"

    INITIALISATION = "initialisation"
    CONSTANT = "constant"

    # any module
    RAISES = "raises"
    SHAPE = "shape"
    NOT_FINITE = "not_finite"
    ZERO = "zero"
    DOES_NOTHING = "does_nothing"
    SCALED = "scaled"
    PERMUTED = "permuted"
    BOX_FORM = "box_form"
    FEW_ELEMENTS = "few_elements"
    HALF_PRECISION = "half_precision"
    FLOAT32_CONSTANT = "float32_constant"
    OVERFLOW = "overflow"
    AUTOCAST_LIST = "autocast_list"
    GLOBAL_GENERATOR = "global_generator"

    # layers
    ACTIVATION = "activation"
    BIAS_MISSING = "bias_missing"
    WEIGHT_FLIPPED = "weight_flipped"
    PADDING = "padding"
    DILATION = "dilation"
    STRIDE = "stride"
    POOLING = "pooling"
    BATCH_NORM_EPS = "batch_norm_eps"
    NORM_EPS = "norm_eps"
    NORM_SETTING = "norm_setting"
    AXIS = "axis"
    PADDING_INDEX = "padding_index"
    INDICES = "indices"
    ALIGN_CORNERS = "align_corners"
    OUTPUT_PADDING = "output_padding"
    HEADS = "heads"
    ATTENTION_SCALE = "attention_scale"
    MASK = "mask"
    POSITIONS = "positions"
    CACHE = "cache"
    NORM_POSITION = "norm_position"
    BATCH_FIRST = "batch_first"
    EPS_OUTSIDE_ROOT = "eps_outside_root"
    SCALE_MISSING = "scale_missing"
    AFFINE_MISSING = "affine_missing"
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
    DROPOUT_SHAPE = "dropout_shape"

    # quantisation
    QUANTISED_SCALE = "quantised_scale"
    QUANTISED_PER_TENSOR = "quantised_per_tensor"
    QUANTISED_AXIS = "quantised_axis"
    QUANTISED_TWICE = "quantised_twice"
    ZERO_POINT = "zero_point"
    CALIBRATION = "calibration"
    NOT_QUANTISED = "not_quantised"
    QUANTISED_EXTRA = "quantised_extra"

    # containers
    NO_RESIDUAL = "no_residual"
    RESIDUAL_EXTRA = "residual_extra"
    EXTRA_SCALING = "extra_scaling"
    GATE_ADDED = "gate_added"
    GATE_MISSING = "gate_missing"
    COMBINED_OTHERWISE = "combined_otherwise"
    ACTIVATION_ORDER = "activation_order"
    ACTIVATION_EXTRA = "activation_extra"
    NO_SQUEEZE_EXCITATION = "no_squeeze_excitation"
    LAYER_NOT_CALLED = "layer_not_called"
    CALL_ORDER = "call_order"

    # calls of functions in a module's own forward
    CALL_ARGUMENT = "call_argument"
    SOFTMAX_AXIS = "softmax_axis"
    OTHER_FUNCTION = "other_function"
    OPERAND = "operand"
    CALL_MISSING = "call_missing"
    CALL_EXTRA = "call_extra"
    SETTING = "setting"

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
    CROP = "crop"
    AXES_SWAPPED = "axes_swapped"
    LAYOUT = "layout"
    BOX = "box"
    AFFINE = "affine"
    NOT_DIVIDED_BY_255 = "not_divided_by_255"
    DIVIDED_OTHERWISE = "divided_otherwise"
    MEAN_STD_SWAPPED = "mean_std_swapped"
    WRONG_MEAN = "wrong_mean"
    WRONG_STD = "wrong_std"
    WRONG_MEAN_STD = "wrong_mean_std"
    INTERPOLATION = "interpolation"
    INTERPOLATION_OR_SIZE = "interpolation_or_size"
    TARGET_SIZE = "target_size"
    FLIP_MISSING = "flip_missing"
    FLIP_INVERTED = "flip_inverted"
    SIGN = "sign"
    MAGNITUDE = "magnitude"
    OPERATION = "operation"
    OTHER_OPERATION = "other_operation"
    ERASE_VALUE = "erase_value"
    LABEL = "label"
    LABEL_OFF_BY_ONE = "label_off_by_one"
    OTHER_SEED = "other_seed"
    OTHER_EPOCH = "other_epoch"
    SAMPLED = "sampled"
    LAMBDA = "lambda"
    LAMBDA_SWAPPED = "lambda_swapped"
    MIXED_LABELS = "mixed_labels"
    MIX_PARTNER = "mix_partner"
    ORDER = "order"
    REVERSED = "reversed"
    NOT_SHUFFLED = "not_shuffled"
    NOT_RESHUFFLED = "not_reshuffled"
    BATCH_DROPPED = "batch_dropped"
    NOT_SHARDED = "not_sharded"
    SHARDS_OVERLAP = "shards_overlap"
    PRESET = "preset"
    DISTRIBUTION = "distribution"
    RANGE = "range"
    UNIFORM_FOR_LOG = "uniform_for_log"
    POSITION = "position"
    PROBABILITY = "probability"
    NOT_INDEPENDENT = "not_independent"

    # metric
    ALWAYS_WRONG = "always_wrong"
    ALWAYS_RIGHT = "always_right"
    TIES_RIGHT = "ties_right"
    TIES_WRONG = "ties_wrong"
    NAN_RIGHT = "nan_right"
    SMALLEST = "smallest"
    K_OFF_BY_ONE = "k_off_by_one"
    SAME_K = "same_k"
    INVERTED = "inverted"
    COUNT = "count"
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
    MEAN_OVER_CLASSES = "mean_over_classes"
    EXP_OVERFLOWS = "exp_overflows"
    DIVERGENCE = "divergence"
    CLASS_WEIGHTS = "class_weights"
    DISTILLATION = "distillation"
    LOGARITHM = "logarithm"
    IGNORE_INDEX = "ignore_index"

    # updates and schedules
    GRADIENT_NOT_CLEARED = "gradient_not_cleared"
    GRADIENT_CLEARED_EARLY = "gradient_cleared_early"
    NEVER_UPDATED = "never_updated"
    CLIPPING_MISSING = "clipping_missing"
    CLIPPED_BY_VALUE = "clipped_by_value"
    CLIPPED_BY_TENSOR = "clipped_by_tensor"
    CLIP_NORM = "clip_norm"
    WEIGHT_DECAY_MISSING = "weight_decay_missing"
    NORM_WEIGHT_DECAY = "norm_weight_decay"
    BIAS_WEIGHT_DECAY = "bias_weight_decay"
    NORM_AND_BIAS_WEIGHT_DECAY = "norm_and_bias_weight_decay"
    WEIGHT_DECAY = "weight_decay"
    WEIGHT_DECAYS_SWAPPED = "weight_decays_swapped"
    L2_FOR_DECOUPLED = "l2_for_decoupled"
    DECOUPLED_FOR_L2 = "decoupled_for_l2"
    L1_FOR_L2 = "l1_for_l2"
    L2_FOR_L1 = "l2_for_l1"
    DECAY_NOT_TIMES_LR = "decay_not_times_lr"
    LR_SCALED = "lr_scaled"
    LR_IN_BUFFER = "lr_in_buffer"
    LR_NOT_FOLLOWED = "lr_not_followed"
    MOMENTUM_MISSING = "momentum_missing"
    NESTEROV = "nesterov"
    DAMPENING = "dampening"
    EPS_INSIDE_ROOT = "eps_inside_root"
    EPS_BEFORE_CORRECTION = "eps_before_correction"
    BIAS_CORRECTION = "bias_correction"
    AMSGRAD = "amsgrad"
    CENTERED = "centered"
    ALPHA = "alpha"
    BETAS = "betas"
    BETAS_SWAPPED = "betas_swapped"
    OPTIMIZER_EPS = "optimizer_eps"
    SCHEDULE_NEVER_STEPPED = "schedule_never_stepped"
    SCHEDULE_OFF_BY_ONE = "schedule_off_by_one"
    SCHEDULE_FACTOR = "schedule_factor"
    SCHEDULE_PERIOD = "schedule_period"
    SCHEDULE_MINIMUM = "schedule_minimum"
    SCHEDULE_UNIT = "schedule_unit"
    OTHER_SCHEDULE = "other_schedule"
    WARMUP_MISSING = "warmup_missing"
    WARMUP_START = "warmup_start"
    WARMUP_LENGTH = "warmup_length"

    # mixed precision
    UNSCALE_MISSING = "unscale_missing"
    UNSCALE_AFTER_CLIPPING = "unscale_after_clipping"
    UPDATE_NOT_SKIPPED = "update_not_skipped"
    LOSS_SCALE = "loss_scale"
    MASTER_WEIGHTS_MISSING = "master_weights_missing"

    # whole runs
    RECIPE = "recipe"
    SHARED = "shared"
    MOVING_AVERAGE = "moving_average"
    AVERAGE_DECAY = "average_decay"
    AVERAGE_DECAY_INVERTED = "average_decay_inverted"
    AVERAGE_START = "average_start"
    AVERAGE_WITHOUT_STATISTICS = "average_without_statistics"
    AVERAGE_NOT_APPLIED = "average_not_applied"
    AVERAGE_NOT_TAKEN_OUT = "average_not_taken_out"
    STATE_NOT_SAVED = "state_not_saved"
    STATE_NOT_RESTORED = "state_not_restored"
    NOT_STOPPED = "not_stopped"
    EVALUATION = "evaluation"
    TOP_K = "top_k"
    CONFUSION_TRANSPOSED = "confusion_transposed"
    MEAN_OF_BATCH_MEANS = "mean_of_batch_means"

    # ranks
    NO_ANSWER = "no_answer"
    NOT_BROADCAST = "not_broadcast"
    SAME_SEED = "same_seed"
    GRADIENT_NOT_REDUCED = "gradient_not_reduced"
    GRADIENT_OF_ONE_RANK = "gradient_of_one_rank"
    LAST_MICRO_BATCH = "last_micro_batch"
    ACCUMULATION_NOT_REDUCED = "accumulation_not_reduced"
    CLIPPED_BY_RANK = "clipped_by_rank"
    RANKS_WEIGHTED = "ranks_weighted"
    STATISTICS_OF_ONE_RANK = "statistics_of_one_rank"
    STATISTICS_NOT_SYNCHRONISED = "statistics_not_synchronised"
    AVERAGE_OF_ONE_RANK = "average_of_one_rank"

    def __str__(self) -> str:
        return self.value

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)

    @property
    def words(self) -> str:
        """For the title of a card."""
        return _TITLES.get(self, self.value.replace("_", " ") or "a difference")


# Kinds whose names alone do not read as words.
_TITLES = {
    Kind.LAYER_MISSING: "a missing layer",
    Kind.LAYER_EXTRA: "an extra layer",
    Kind.LAYER_RENAMED: "a renamed layer",
    Kind.LAYER_REPLACED: "another layer",
    Kind.LAYER_NOT_CALLED: "another number of calls of a layer",
    Kind.BIAS_EXTRA: "an extra bias",
    Kind.BIAS_MISSING: "a missing bias",
    Kind.RAISES: "an error",
    Kind.SCALED: "another scale",
    Kind.NO_RESIDUAL: "a missing residual connection",
    Kind.RESIDUAL_EXTRA: "an extra residual connection",
    Kind.EXTRA_SCALING: "an extra scaling",
    Kind.GATE_ADDED: "a gate that is added and not multiplied",
    Kind.GATE_MISSING: "a missing gate",
    Kind.COMBINED_OTHERWISE: "parts combined in another way",
    Kind.ACTIVATION: "another activation",
    Kind.ACTIVATION_ORDER: "an activation in another place",
    Kind.ACTIVATION_EXTRA: "an extra activation",
    Kind.NO_SQUEEZE_EXCITATION: "a missing squeeze-and-excitation",
    Kind.CALL_ORDER: "calls in another order",
    Kind.L1_FOR_L2: "an L1 penalty in place of an L2 penalty",
    Kind.L2_FOR_L1: "an L2 penalty in place of an L1 penalty",
    Kind.CALL_ARGUMENT: "another argument of a call",
    Kind.CALL_MISSING: "a missing call",
    Kind.CALL_EXTRA: "an extra call",
    Kind.OTHER_FUNCTION: "another function",
    Kind.OPERAND: "another operand",
}


# Kinds that say what is seen, and not what computes the port's numbers: a second mistake in the same place would change nothing.
NOT_EXPLAINED = frozenset(
    {
        Kind.UNKNOWN, Kind.RAISES, Kind.SHAPE, Kind.NOT_FINITE, Kind.ZERO, Kind.FEW_ELEMENTS, Kind.LAYER_MISSING, Kind.LAYER_EXTRA,
        Kind.LAYER_REPLACED, Kind.LAYER_NOT_CALLED, Kind.CALL_ORDER, Kind.HALF_PRECISION, Kind.FLOAT32_CONSTANT, Kind.OVERFLOW,
        Kind.AUTOCAST_LIST, Kind.DETACHED, Kind.CALL_ARGUMENT, Kind.CALL_MISSING, Kind.CALL_EXTRA,
    }
)  # fmt: skip
