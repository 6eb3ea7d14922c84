"""The same port in other words: no step may fail on any of them."""

from .base import (
    BLOCK,
    FORWARD,
    GATE,
    LAYERS,
    LOADER,
    LOSS,
    METRIC,
    MIXING,
    NET,
    NORM,
    OPTIMIZER,
    POOL,
    PREPROCESS,
    SCHEDULE,
    STEP,
    TRANSFORMS,
    rewrite,
)

SE_POOL = "        self.avgpool = nn.AdaptiveAvgPool2D(1)\n        self.fc1"
SIGMOID = "return F.hardsigmoid(input, slope=1 / 6, offset=0.5)"
MEAN = "return loss.sum() / paddle.where(kept, counts, paddle.zeros_like(counts)).sum()"
TARGET = "paddle.take_along_axis(shifted, index, axis=1).squeeze(1)"
AHEAD = "ahead = (logits > own) | ((logits == own) & earlier)"
SQUARE = "mean_square.scale_(self._alpha).add_(gradient * gradient * (1.0 - self._alpha))"
EVALUATION = "return F.batch_norm(input, self._mean, self._variance, self.weight, self.bias, training=False, epsilon=self.eps)"
CLIP = "nn.utils.clip_grad_norm_([p for p in model.parameters() if not p.stop_gradient], clip_norm)"

# --- stock layers and other formulas in the network ------------------------------------------------------------------------

rewrite("stock_hardsigmoid", (NET, "self.scale_activation = Hardsigmoid()", "self.scale_activation = nn.Hardsigmoid()"))
rewrite("hardsigmoid_by_relu6", (NET, SIGMOID, "return F.relu6(input + 3.0) / 6.0"))
rewrite("hardsigmoid_by_clipping", (NET, SIGMOID, "return paddle.clip(input / 6.0 + 0.5, 0.0, 1.0)"))
rewrite(
    "average_by_mean",
    (NET, "features = self.avgpool(self.features(input))", "features = self.features(input).mean([2, 3], keepdim=True)"),
)
rewrite("squeeze_by_mean", (NET, "self.fc1(self.avgpool(input))", "self.fc1(input.mean([2, 3], keepdim=True))"))
rewrite("pooling_of_two_sides", (NET, POOL, POOL.replace("AdaptiveAvgPool2D(1)", "AdaptiveAvgPool2D((1, 1))")))
rewrite("residual_first", (NET, BLOCK, "return input + output if self.use_res_connect else output"))
rewrite(
    "residual_by_if",
    (NET, BLOCK, "if not self.use_res_connect:\n            return output\n        return paddle.add(input, output)"),
)
rewrite("gate_on_the_right", (NET, GATE, "return input * self.scale_activation(self.fc2(scale))"))
rewrite("gate_by_multiply", (NET, GATE, "return paddle.multiply(input, self.scale_activation(self.fc2(scale)))"))
rewrite("flattened_by_reshape", (NET, FORWARD, "return self.classifier(features.reshape([features.shape[0], -1]))"))
rewrite("flattened_by_squeeze", (NET, FORWARD, "return self.classifier(features.squeeze([2, 3]))"))
rewrite("padding_by_pairs", (NET, "padding = (kernel - 1) // 2 * dilation", "padding = [(kernel - 1) // 2 * dilation] * 2"))
rewrite("normalisation_by_hand", (NORM, EVALUATION, """shape = [1, -1, 1, 1]
            scale = self.weight / paddle.sqrt(self._variance + self.eps)
            return input * scale.reshape(shape) + (self.bias - self._mean * scale).reshape(shape)"""))  # fmt: skip
rewrite(
    "normalisation_centred_by_hand",
    (NORM, EVALUATION, """shape = [1, -1, 1, 1]
            centred = input - self._mean.reshape(shape)
            normal = centred / paddle.sqrt(self._variance + self.eps).reshape(shape)
            return normal * self.weight.reshape(shape) + self.bias.reshape(shape)"""),
)  # fmt: skip
rewrite(
    "running_statistics_by_difference",
    (
        NORM,
        "self._mean.set_value(self._mean * keep + mean * take)",
        "self._mean.set_value(self._mean + (mean - self._mean) * take)",
    ),
)
rewrite("calls_by_loop", (NET, LAYERS, f"""{LAYERS}
    def forward(self, input):
        for layer in self.children():
            input = layer(input)
        return input
"""))  # fmt: skip
rewrite(
    "activation_by_a_condition",
    (NET, "_ACTIVATIONS[activation]()", 'nn.ReLU() if activation == "RE" else nn.Hardswish()'),
)
rewrite("linear_squeeze", (NET, SE_POOL, f"        self.width = channels\n{SE_POOL}"))

# --- metric and loss -------------------------------------------------------------------------------------------------------

rewrite(
    "rank_by_not_smaller",
    (METRIC, AHEAD, "ahead = (logits > own) | (paddle.logical_not(logits < own) & paddle.logical_not(logits > own) & earlier)"),
)
rewrite(
    "mean_by_weights",
    (LOSS, MEAN, "counts = counts * kept.astype(loss.dtype)\n        return (loss * kept.astype(loss.dtype)).sum() / counts.sum()"),
)
rewrite(
    "target_by_one_hot",
    (LOSS, TARGET, "(paddle.nn.functional.one_hot(index.squeeze(1), logits.shape[1]).astype(shifted.dtype) * shifted).sum(axis=1)"),
)
rewrite(
    "stock_log_sum_exp", (LOSS, "log_sum = _sum_classes(paddle.exp(shifted)).log()", "log_sum = paddle.logsumexp(shifted, axis=1)")
)

rewrite(
    "classifier_called_head",
    (NET, "self.classifier = nn", "self.head = nn"),
    (NET, "self.classifier(", "self.head("),
)

# --- training --------------------------------------------------------------------------------------------------------------

rewrite("squares_by_square", (OPTIMIZER, SQUARE, "mean_square.scale_(self._alpha).add_(gradient.square() * (1.0 - self._alpha))"))
rewrite("exponential_by_steps", (SCHEDULE, "ExponentialDecay(lr, config.gamma)", "StepDecay(lr, 1, config.gamma)"))
rewrite("constant_by_milestones", (SCHEDULE, "LambdaDecay(lr, lambda _: 1.0)", "MultiStepDecay(lr, [2**31])"))
rewrite(
    "clipping_of_a_tuple",
    (
        STEP,
        CLIP,
        "trained = tuple(p for p in model.parameters() if not p.stop_gradient)\n"
        "        nn.utils.clip_grad_norm_(trained, max_norm=clip_norm)",
    ),
)
rewrite(
    "loss_scaled_first",
    (STEP, "loss = criterion(logits, labels) / len(batches)", "loss = criterion(logits, labels) * (1.0 / len(batches))"),
)

# --- data ------------------------------------------------------------------------------------------------------------------

rewrite(
    "flip_by_pillow", (TRANSFORMS, "picture = F.hflip(picture)", "picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)")
)
rewrite(
    "erased_by_slice",
    (
        TRANSFORMS,
        "pixels[:, top : top + height, left : left + width] = 0.0",
        "pixels[..., slice(top, top + height), slice(left, left + width)].fill(0.0)",
    ),
)
rewrite("resize_by_longer_side", (PREPROCESS, "other = int(size * long / short)", "other = size * long // short"))
rewrite("mixed_by_index", (MIXING, "np.roll(one_hot, 1, axis=0) * other", "one_hot[np.arange(-1, len(one_hot) - 1)] * other"))
rewrite(
    "batches_by_generator",
    (LOADER, "yield from map(_sound, batches)", "yield from (_sound(one) for one in batches)"),
    (LOADER, "yield from map(_sound, received)", "yield from (_sound(one) for one in received)"),
)
