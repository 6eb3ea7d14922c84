"""Mistakes between the layers, each in one line of the port, and rewrites of it that compute the same."""

from alignment.faults import Edits

EDITS = Edits()


def fault(model: str, hint: str, name: str, old: str, new: str) -> None:
    """One mistake in the forward of a model: the text of its port, and the text in its place."""
    EDITS.fault(model, 1, f"{model}.forward", hint, name, ("port.py", old, new))


def rewrite(name: str, *changes: tuple[str, str]) -> None:
    """The same in other words."""
    EDITS.rewrite(name, *(("port.py", old, new) for old, new in changes))


SCORES = "scores = q @ k.transpose([0, 1, 3, 2]) / 8**0.5"
WEIGHTS = "weights = F.softmax(scores, axis=-1)"
OUT = "out = (weights @ v).transpose([0, 2, 1, 3]).reshape([samples, tokens, width])"
fault("Attention", "softmax_axis", "softmax_over_queries", WEIGHTS, "weights = F.softmax(scores, axis=-2)")
fault("Attention", "softmax_axis", "softmax_over_heads", WEIGHTS, "weights = F.softmax(scores, axis=1)")
fault("Attention", "call_missing", "scale_missing", SCORES, "scores = q @ k.transpose([0, 1, 3, 2])")
fault("Attention", "call_argument", "scale_of_the_whole_width", SCORES, "scores = q @ k.transpose([0, 1, 3, 2]) / 16**0.5")
fault("Attention", "call_missing", "heads_not_moved_back", OUT, "out = (weights @ v).reshape([samples, tokens, width])")
fault(
    "Attention",
    "call_argument",
    "wrong_axes_moved_back",
    OUT,
    "out = (weights @ v).transpose([0, 2, 3, 1]).reshape([samples, tokens, width])",
)
fault(
    "Attention",
    "call_argument",
    "heads_before_parts",
    "qkv = self.qkv(x).reshape([samples, tokens, 3, 2, 8]).transpose([2, 0, 3, 1, 4])",
    "qkv = self.qkv(x).reshape([samples, tokens, 2, 3, 8]).transpose([3, 0, 2, 1, 4])",
)
fault("Attention", "operand", "parts_in_another_order", "q, k, v = qkv.unbind(0)", "k, v, q = qkv.unbind(0)")
fault("Attention", "no_residual", "residual_omitted", "return x + self.proj(out)", "return self.proj(out)")
fault("Attention", "combined_otherwise", "residual_subtracted", "return x + self.proj(out)", "return x - self.proj(out)")

fault(
    "MaskedAttention",
    "call_argument",
    "einsum_letters",
    '"bid,bjd->bij", self.q(x)',
    '"bid,bjd->bji", self.q(x)',
)
fault("MaskedAttention", "call_argument", "mask_constant", "scores = scores + later * -5.0", "scores = scores + later * -100.0")
fault("MaskedAttention", "call_argument", "mask_off_by_one", "dtype=x.dtype), diagonal=1)", "dtype=x.dtype), diagonal=0)")
fault("MaskedAttention", "operand", "query_and_key_swapped", "self.q(x), self.k(x))", "self.k(x), self.q(x))")

fault("Residual", "activation_order", "residual_after_the_activation", "y = F.relu(y + x)", "y = F.relu(y) + x")
fault("Residual", "call_missing", "residual_forgotten", "y = F.relu(y + x)", "y = F.relu(y)")
fault("Residual", "call_extra", "activation_before_the_residual", "y = self.conv2(y)", "y = F.relu(self.conv2(y))")
fault("Residual", "call_argument", "padding_not_counted", ", exclusive=False)", ")")
fault(
    "Residual",
    "other_function",
    "maximum_for_mean_in_windows",
    "F.avg_pool2d(y, 3, stride=2, padding=1, exclusive=False)",
    "F.max_pool2d(y, 3, stride=2, padding=1)",
)

HIDDEN = "hidden = F.gelu(value) * F.sigmoid(gate)"
fault("Gate", "other_function|gate_added", "gate_added", HIDDEN, "hidden = F.gelu(value) + F.sigmoid(gate)")
fault("Gate", "call_argument", "gelu_approximate", HIDDEN, "hidden = F.gelu(value, approximate=True) * F.sigmoid(gate)")
fault("Gate", "operand", "chunks_swapped", "value, gate, rest = paddle", "gate, value, rest = paddle")
fault("Gate", "other_function", "tanh_for_sigmoid", HIDDEN, "hidden = F.gelu(value) * F.tanh(gate)")
fault("Gate", "call_argument", "slope", "F.leaky_relu(rest, 0.2)", "F.leaky_relu(rest)")
fault("Gate", "operand", "gate_of_the_value", HIDDEN, "hidden = F.gelu(value) * F.sigmoid(value)")
fault("Gate", "call_argument", "sizes_of_the_parts", "[8, 8, 8]", "[8, 4, 12]")

fault("Head", "call_missing", "flattened_channels_first", "x.transpose([0, 2, 3, 1]).flatten(1)", "x.flatten(1)")
fault(
    "Head",
    "call_argument",
    "flattened_columns_first",
    "x.transpose([0, 2, 3, 1]).flatten(1)",
    "x.transpose([0, 3, 2, 1]).flatten(1)",
)
fault("Head", "other_function", "maximum_for_mean", "mean = x.mean(axis=[2, 3])", "mean = x.max(axis=[2, 3])")
fault("Head", "operand", "concat_in_another_order", "paddle.concat([flat, mean], axis=1)", "paddle.concat([mean, flat], axis=1)")

fault("Fuse", "call_argument", "align_corners", "align_corners=False)", "align_corners=True)")
fault("Fuse", "call_argument", "nearest", 'mode="bilinear", align_corners=False)', 'mode="nearest")')
fault("Fuse", "operand", "skip_behind", "both = paddle.concat([high, up], axis=1)", "both = paddle.concat([up, high], axis=1)")
fault("Fuse", "call_argument", "sides_of_the_padding", "F.pad(both, [0, 1, 2, 1]", "F.pad(both, [1, 0, 1, 2]")
fault("Fuse", "call_argument", "mode_of_the_padding", 'mode="reflect"', 'mode="replicate"')
fault("Fuse", "call_argument", "bounds_of_clip", "-1.0, 6.0)", "0.0, 6.0)")

VARIANCE = "variance = (x - mean).pow(2).mean(1, keepdim=True)"
fault("Norm", "call_argument", "eps", "paddle.sqrt(variance + 1e-3)", "paddle.sqrt(variance + 1e-5)")
fault("Norm", "call_missing", "root_forgotten", "paddle.sqrt(variance + 1e-3)", "(variance + 1e-3)")
fault("Norm", "call_argument", "mean_over_the_picture", VARIANCE, "variance = (x - mean).pow(2).mean([2, 3], keepdim=True)")
fault(
    "Norm",
    "call_argument",
    "normalised_by_another_norm",
    "F.normalize(x.mean([2, 3]), axis=1)",
    "F.normalize(x.mean([2, 3]), p=1, axis=1)",
)
fault(
    "Norm",
    "call_argument",
    "normalised_over_the_samples",
    "F.normalize(self.directions, axis=1)",
    "F.normalize(self.directions, axis=0)",
)

fault("Shift", "call_argument", "rolled_the_other_way", "shifts=[-1, -2]", "shifts=[1, 2]")
fault("Shift", "call_argument|permuted", "windows_across", ".transpose([0, 1, 3, 2, 4, 5])", ".transpose([0, 3, 1, 2, 4, 5])")
fault("Shift", "other_function", "mean_for_maximum", "windows.max(axis=1)", "windows.mean(axis=1)")

fault("Squeeze", "call_argument", "slope_of_the_gate", "F.hardsigmoid(scale)", "F.hardsigmoid(scale, slope=0.2)")
fault("Squeeze", "call_missing", "activation_forgotten", "self.fc2(F.relu(self.fc1(scale)))", "self.fc2(self.fc1(scale))")
fault("Squeeze", "other_function", "largest_for_mean", "F.adaptive_avg_pool2d(x, 1)", "F.adaptive_max_pool2d(x, 1)")

fault("Distance", "call_missing", "squares_for_distances", "distances = paddle.sqrt(squares)", "distances = squares")
fault("Distance", "call_missing", "sign_forgotten", "F.softmax(-distances * 3.0", "F.softmax(distances * 3.0")
fault("Distance", "call_argument", "stacked_behind", "[distances, near], axis=1)", "[distances, near], axis=2)")
fault("Distance", "call_argument", "temperature", "-distances * 3.0", "-distances * 0.3")

BY_HAND = "e = paddle.exp(scores - scores.max(-1, keepdim=True))\n        weights = e / e.sum(-1, keepdim=True)"
rewrite("factor_for_division", (SCORES, "scores = (q * 8**-0.5) @ k.transpose([0, 1, 3, 2])"))
rewrite(
    "matmul_for_einsum", ('paddle.einsum("bid,bjd->bij", self.q(x), self.k(x))', "self.q(x).matmul(self.k(x), transpose_y=True)")
)
rewrite("softmax_by_hand", (WEIGHTS, BY_HAND))
rewrite("reshape_for_flatten", (".flatten(1)\n", ".reshape([x.shape[0], -1])\n"))
rewrite("two_swaps_for_transpose", ("x.transpose([0, 2, 3, 1])", "x.swapaxes(1, 3).swapaxes(1, 2)"))
rewrite("chunks_for_split", ("paddle.split(self.up(x), [8, 8, 8], axis=-1)", "self.up(x).chunk(3, axis=2)"))
rewrite("gelu_by_hand", ("F.gelu(value)", "(0.5 * value * (1 + paddle.erf(value / 2**0.5)))"))
rewrite("operands_exchanged", ("y = F.relu(y + x)", "y = paddle.maximum(paddle.add(x, y), paddle.zeros_like(y))"))
rewrite("sum_for_mean", ("mean = x.mean(axis=[2, 3])", "mean = x.sum([2, 3]) / (x.shape[2] * x.shape[3])"))
rewrite(
    "indices_for_concat_of_padding",
    (
        'F.pad(both, [0, 1, 2, 1], mode="reflect")',
        "paddle.concat([both[:, :, 2:3], both[:, :, 1:2], both, both[:, :, -2:-1]], axis=2)\n"
        "        both = paddle.concat([both, both[:, :, :, -2:-1]], axis=3)",
    ),
)
rewrite("rsqrt_for_division", ("x = (x - mean) / paddle.sqrt(variance + 1e-3)", "x = (x - mean) * paddle.rsqrt(variance + 1e-3)"))
rewrite("variance_of_squares", (VARIANCE, "variance = (x * x).mean(1, keepdim=True) - mean * mean"))
rewrite("rolled_twice", ("x = paddle.roll(x, shifts=[-1, -2], axis=[1, 2])", "x = x.roll(3, axis=1).roll(4, axis=2)"))
rewrite(
    "norm_for_root_of_squares", ("distances = paddle.sqrt(squares)", "distances = (x.unsqueeze(2) - self.prototypes).norm(axis=-1)")
)
rewrite("mean_for_adaptive_pooling", ("F.adaptive_avg_pool2d(x, 1)", "x.mean([2, 3], keepdim=True)"))
rewrite("gate_by_relu6", ("F.hardsigmoid(scale)", "(F.relu6(scale + 3) / 6)"))
