"""Faults of the network."""

from .base import BLOCK, DROPOUT, FORWARD, GATE, INIT, LAYERS, NET, NORM, POOL, after_init, fault

ACTIVATION = "_ACTIVATIONS[activation]()"
NORM_LAYER = "BatchNorm2D(out_channels, eps=0.001, momentum=0.01)"

# --- the known ones --------------------------------------------------------------------------------------------------------

fault("models", 1, "features.0.1", "batch_norm_eps", "batch_norm_eps", (NET, "eps=0.001", "eps=1e-5"))
fault("models", 1, "features.0.2", "activation", "relu_for_hardswish", (NET, ACTIVATION, "nn.ReLU()"))
fault(
    "models", 1, "features.1.block.1.scale_activation", "activation", "sigmoid_gate",
    (NET, "self.scale_activation = Hardsigmoid()", "self.scale_activation = nn.Sigmoid()"),
)  # fmt: skip
fault("models", 1, "features.3", "no_residual", "no_residual", (NET, BLOCK, "return output"))
fault("models", 1, "features.1.block.1", "no_squeeze_excitation", "no_squeeze_excitation", (NET, GATE, "return input"))
fault("models", 1, "avgpool", "pooling", "max_for_average_pool", (NET, POOL, POOL.replace("AdaptiveAvg", "AdaptiveMax")))
fault(
    "models", 1, "features.0.0", "padding", "padding_off_by_one",
    (NET, "padding = (kernel - 1) // 2 * dilation", "padding = (kernel - 1) // 2 * dilation + int(in_channels == 3)"),
)  # fmt: skip
fault(
    "models", 1, "features.4.block.1.0", "stride", "stride_forgotten",
    (NET, '(5, 96, 40, True, "HS", 2)', '(5, 96, 40, True, "HS", 1)'),
)  # fmt: skip
fault(
    "models", 1, "features.9.block.1.0", "dilation", "dilated_by_mistake",
    (NET, "dilation=config.dilation,", "dilation=2 if expanded == 288 else config.dilation,"),
)  # fmt: skip
fault("models", 1, "MobileNetV3.forward", "permuted", "classes_permuted", (NET, FORWARD, f"{FORWARD}.flip([1])"))
fault(
    "models", 1, "MobileNetV3.forward", "few_elements", "one_logit_off",
    (NET, FORWARD, f"{FORWARD.replace('return', 'logits =')}\n"
     "        return logits + 1e-3 * (paddle.arange(logits.shape[1]) == 7).astype(logits.dtype)"),
)  # fmt: skip
fault("models", 1, "MobileNetV3.forward", "zero", "output_zero", (NET, FORWARD, f"{FORWARD} * 0"))
fault(
    "models", 1, "features.5", "not_finite", "not_a_number",
    (NET, BLOCK, f'output = output * float("nan") if self.use_res_connect and output.shape[1] == 40 else output\n        {BLOCK}'),
)  # fmt: skip
fault(
    "models",
    1,
    "features.2",
    "layer_missing",
    "block_missing",
    (NET, "for config in configs],\n            Conv", "for config in configs[:1] + configs[2:]],\n            Conv"),
)
fault(
    "models", 1, "classifier.2", "layer_extra", "layer_extra",
    (NET, "nn.Dropout(dropout),", "nn.Linear(last_channels, last_channels),\n            nn.Dropout(dropout),"),
)  # fmt: skip
fault(
    "models", 1, "features.4.block.2.fc1", "layer_renamed", "names_exchanged",
    after_init("se = self.features[4].block[2]\n        se.fc1, se.fc2 = se.fc2, se.fc1"),
    (NET, "scale = self.activation(self.fc1(", "fits = self.fc1.weight.shape[1] == input.shape[1]\n        "
     "first, last = (self.fc1, self.fc2) if fits else (self.fc2, self.fc1)\n        scale = self.activation(first("),
    (NET, "self.fc2(scale)", "last(scale)"),
)  # fmt: skip


def rounded_to(dtype: str) -> tuple[str, str, str]:
    """The first layers round their output, in float32 alone."""
    return (
        NET,
        LAYERS,
        f"""{LAYERS}
    def forward(self, input):
        output = super().forward(input)
        half = input.shape[1] == 3 and output.dtype == paddle.float32
        return output.astype("{dtype}").astype(output.dtype) if half else output
""",
    )


fault("models", 1, "features.0", "half_precision", "bfloat16_inside", rounded_to("bfloat16"))
fault("models", 1, "features.0.1", "momentum_inverted", "momentum_inverted", (NET, "momentum=0.01)", "momentum=0.99)"))
fault(
    "models", 1, "features.0.1", "biased_variance", "biased_variance",
    (NORM, "biased_variance * (take * count / (count - 1))", "biased_variance * take"),
)  # fmt: skip
fault(
    "models", 1, "features.0.1", "training_mode", "evaluation_mode_forgotten",
    (NET, INIT, f"{INIT}\n    def eval(self):\n        return self\n"),
)  # fmt: skip
fault("models", 1, "features.0.1", "evaluation_mode", "batch_norm_frozen", (NORM, "if not self.training:", "if True:"))
fault("models", 1, "classifier.2", "dropout_rate", "dropout_rate", (NET, "nn.Dropout(dropout),", "nn.Dropout(0.5),"))
fault(
    "models", 1, "classifier.2", "dropout_scale", "dropout_downscaled",
    (NET, "nn.Dropout(dropout),", 'nn.Dropout(dropout, mode="downscale_in_infer"),'),
)  # fmt: skip
fault("models", 1, "classifier.2", "dropout_missing", "dropout_missing", (NET, "nn.Dropout(dropout),", "nn.Identity(),"))
fault(
    "models", 1, "classifier.2", "dropout_on", "dropout_left_on",
    (NET, "nn.Dropout(dropout),", "AlwaysDropout(dropout),"),
    (NET, "class MobileNetV3(nn.Layer):", """class AlwaysDropout(nn.Layer):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, input):
        return F.dropout(input, self.p)


class MobileNetV3(nn.Layer):"""),
)  # fmt: skip
fault(
    "models", 5, "features.3.block.0.0", "frozen", "parameter_frozen",
    after_init("self.features[3].block[0][0].weight.stop_gradient = True"),
)  # fmt: skip
fault(
    "models", 5, "features.5", "detached", "graph_detached",
    after_init("self.features[5].register_forward_post_hook(lambda layer, inputs, output: output.detach())"),
)  # fmt: skip

# --- structure -------------------------------------------------------------------------------------------------------------

fault(
    "structure", 1, "features.7.block.2", "layer_missing", "one_squeeze_excitation_missing",
    (NET, "if config.use_se:", "if config.use_se and config.expanded_channels != 120:"),
)  # fmt: skip
fault(
    "structure", 1, "features.4.block.2.fc1.weight", "width", "squeeze_width",
    (NET, "make_divisible(expanded // 4)", "make_divisible(expanded // 8)"),
)  # fmt: skip
fault(
    "structure", 1, "features.1.block.2.0.bias", "bias_extra", "bias_in_projections",
    (NET, "bias_attr=False", "bias_attr=None if activation is None else False"),
)  # fmt: skip
fault(
    "structure", 1, "features.1.block.0", "layer_extra", "expansion_where_there_is_none",
    (NET, "if expanded != config.in_channels:", "if expanded >= config.in_channels:"),
)  # fmt: skip
fault(
    "structure", 1, "features.0", "activation_order|call_order", "activation_before_normalisation",
    (NET, f"layers.append({ACTIVATION})", f"layers.insert(1, {ACTIVATION})"),
)  # fmt: skip
fault(
    "structure", 1, "classifier", "activation_order|call_order", "dropout_before_activation",
    (NET, "nn.Hardswish(),\n            nn.Dropout(dropout),", "nn.Dropout(dropout),\n            nn.Hardswish(),"),
)  # fmt: skip
fault(
    "structure", 1, "features.7.block.1.0.weight", "kernel_size", "kernel_of_three",
    (NET, '(5, 120, 48, True, "HS", 1)', '(3, 120, 48, True, "HS", 1)'),
)  # fmt: skip
fault("structure", 1, "features.3.block.0.0.weight", "width", "expanded_channels", (NET, "(3, 88, 24", "(3, 80, 24"))
fault("structure", 1, "features.1.block.0.0.weight", "groups", "groups_forgotten", (NET, "groups=expanded,", "groups=1,"))
fault(
    "structure", 1, "classifier.3.bias", "weights_missing|bias_missing", "no_bias_in_the_last_layer",
    (NET, "nn.Linear(last_channels, num_classes)", "nn.Linear(last_channels, num_classes, bias_attr=False)"),
)  # fmt: skip
fault(
    "structure",
    1,
    f"{NET}:193 in MobileNetV3.__init__",
    "raises",
    "constructor_raises",
    (NET, "nn.Hardswish(),", "nn.HardSwish(),"),
)
fault(
    "structure", 6, "build_model", "recipe|shape|raises", "class_count_ignored",
    (NET, "last_channels, num_classes, dropout)", "last_channels, 1000, dropout)"),
)  # fmt: skip

# --- layers ----------------------------------------------------------------------------------------------------------------

fault("models", 1, "features.1.block.1", "gate_added", "gate_added", (NET, GATE, GATE.replace("*", "+")))
fault(
    "models", 1, "features.1.block.1", "gate_missing|layer_not_called", "gate_without_its_activation",
    (NET, GATE, "return self.fc2(scale) * input"),
)  # fmt: skip
fault(
    "models", 1, "features.1.block.1", "layer_not_called", "squeeze_without_its_activation",
    (NET, "scale = self.activation(self.fc1(self.avgpool(input)))", "scale = self.fc1(self.avgpool(input))"),
)  # fmt: skip
fault(
    "models", 1, "features.1.block.1.activation", "activation", "hardswish_in_the_squeeze",
    (NET, "self.activation = nn.ReLU()", "self.activation = nn.Hardswish()"),
)  # fmt: skip
fault("models", 1, "features.1.block.1.scale_activation", "activation", "gate_slope", (NET, "slope=1 / 6", "slope=0.2"))
fault("models", 1, "features.1.block.1.scale_activation", "activation", "gate_offset", (NET, "offset=0.5", "offset=0.4"))
fault(
    "models", 1, "features.3", "scaled|extra_scaling", "residual_halved",
    (NET, BLOCK, "return (output + input) / 2 if self.use_res_connect else output"),
)  # fmt: skip
fault("models", 1, "features.0", "half_precision", "float16_inside", rounded_to("float16"))
fault(
    "models", 1, "features.0.1", "momentum_inverted", "shares_of_the_average_swapped",
    (NORM, "1.0 - self.momentum, self.momentum", "self.momentum, 1.0 - self.momentum"),
)  # fmt: skip
fault(
    "models", 1, "features.0.1", "statistics_frozen", "mean_never_updated",
    (NORM, "            self._mean.set_value(self._mean * keep + mean * take)\n", ""),
)  # fmt: skip
fault(
    "models", 1, "features.0.1", "batch_norm_eps", "eps_in_evaluation",
    (NORM, "training=False, epsilon=self.eps", "training=False, epsilon=1e-5"),
)  # fmt: skip
fault(
    "models", 1, "features.0.1", "batch_norm_eps", "eps_in_training",
    (NORM, "momentum=0.0, epsilon=self.eps", "momentum=0.0, epsilon=1e-5"),
)  # fmt: skip
fault(
    "models", 1, "features.0.1", "momentum", "momentum_of_a_tenth",
    (NET, NORM_LAYER, "BatchNorm2D(out_channels, eps=0.001, momentum=0.1)"),
)  # fmt: skip
fault(
    "models", 1, "features.1.block.0.0", "stride", "first_block_not_strided",
    (NET, '(3, 16, 16, True, "RE", 2)', '(3, 16, 16, True, "RE", 1)'),
)  # fmt: skip
fault(
    "models", 1, "features.4.block.0.2", "activation", "activation_of_one_row",
    (NET, '(5, 96, 40, True, "HS", 2)', '(5, 96, 40, True, "RE", 2)'),
)  # fmt: skip
fault(
    "models", 1, "features.12.2", "activation", "activation_of_the_last_convolution",
    (NET, 'tail_channels, 1, "HS"', 'tail_channels, 1, "RE"'),
)  # fmt: skip
fault("models", 1, "classifier.1", "activation", "relu_in_the_classifier", (NET, "nn.Hardswish(),", "nn.ReLU(),"))
fault("models", 1, "avgpool", "pooling", "pooling_of_seven", (NET, POOL, POOL.replace("AdaptiveAvgPool2D(1)", "AvgPool2D(7)")))
fault("training", 6, "loss", "dropout_scale", "dropout_not_scaled", (DROPOUT, " / (1.0 - self.p)", ""))

# --- initialisation and variants -------------------------------------------------------------------------------------------

fault(
    "initialisation", 1, "features.0.0.weight", "initialisation", "fan_in_for_fan_out",
    (NET, "fan_out = layer.weight.shape[0]", "fan_out = layer.weight.shape[1]"),
)  # fmt: skip
fault(
    "initialisation",
    1,
    "classifier.0.weight",
    "initialisation",
    "linear_deviation",
    (NET, "Normal(0.0, 0.01)", "Normal(0.0, 0.02)"),
)
fault(
    "initialisation", 1, "features.1.block.1.fc1.bias", "initialisation", "biases_not_zero", (NET, "Constant(0.0)", "Constant(0.1)")
)
fault("initialisation", 1, "features.0.0.weight", "initialisation", "stock_initialisation", (NET, INIT, ""))
fault(
    "variants", 1, "features.9.block.1.0", "stride", "dilated_and_strided",
    (NET, "stride=1 if config.dilation > 1 else config.stride", "stride=config.stride"),
)  # fmt: skip
fault("variants", 1, "features.9.block.1.0", "dilation", "dilation_of_three", (NET, "dilation=2)", "dilation=3)"))
fault(
    "variants",
    1,
    "features.9.block.0.0.weight",
    "width",
    "reduced_tail_begins_early",
    (NET, "if tail_row > 0:", "if tail_row >= 0:"),
)
fault(
    "variants", 1, "classifier.0.weight", "width", "hidden_layer_not_reduced",
    (NET, "last_channels // (2 if reduced_tail else 1)", "last_channels // 1"),
)  # fmt: skip
fault(
    "variants", 1, "classifier.0.weight", "width", "hidden_layer_not_widened",
    (NET, "(2 if reduced_tail else 1) * width_mult", "(2 if reduced_tail else 1)"),
)  # fmt: skip
fault(
    "variants",
    1,
    "features.7.block.2.fc1.weight",
    "width",
    "channels_rounded_down",
    (NET, "rounded < 0.9 * channels", "rounded < 0.5 * channels"),
)
