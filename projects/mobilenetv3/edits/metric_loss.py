"""Faults of the metric and of the loss."""

from .base import EVALUATE, LOSS, METRIC, fault

AHEAD = "ahead = (logits > own) | ((logits == own) & earlier)"
RIGHT = "right = top_k_correct(logits, labels, self.ks)"
KEPT = (
    "            kept = labels != self.ignore_index\n"
    "            index = paddle.where(kept, labels, paddle.zeros_like(labels)).unsqueeze(1)\n"
)
SMOOTH = "        smooth = self.label_smoothing\n"
MEAN = "return loss.sum() / paddle.where(kept, counts, paddle.zeros_like(counts)).sum()"
SHIFTED = "shifted = logits - logits.detach().max(axis=1, keepdim=True)"


def metric(location: str, hint: str, name: str, old: str, new: str) -> None:
    fault("metric", 3, location, hint, name, (METRIC, old, new))


def loss(hint: str, name: str, old: str, new: str) -> None:
    fault("loss", 4, "CrossEntropyLoss", hint, name, (LOSS, old, new))


# --- the known ones --------------------------------------------------------------------------------------------------------

metric("top_k_correct", "ties_right", "ties_count_as_right", AHEAD, "ahead = logits > own")
metric(
    "top_k_correct", "nan_right", "nan_counts_as_right",
    "valid = ~paddle.isnan(logits).any(axis=1)", 'valid = paddle.ones([len(labels)], "bool")',
)  # fmt: skip
metric("top_k_correct", "k_off_by_one", "top5_is_top4", "(rank < k)", "(rank < (1 if k == 1 else k - 1))")
metric("TopKAccuracy.update", "padding_counted", "padding_counted", RIGHT, f"mask = None\n        {RIGHT}")
fault(
    "distributed", 3, "TopKAccuracy.merge", "ranks_not_merged", "ranks_not_merged",
    (METRIC, "self.count += other.count", "self.count = max(self.count, other.count)"),
)  # fmt: skip
loss("sum_for_mean", "loss_summed", MEAN, "return loss.sum()")
loss("smoothing_missing", "smoothing_forgotten", SMOOTH, "        smooth = 0.0\n")
loss(
    "ignore_index", "ignore_index_unheeded", KEPT,
    '            kept = paddle.ones_like(labels, dtype="bool")\n'
    "            index = labels.clip(0, logits.shape[1] - 1).unsqueeze(1)\n",
)  # fmt: skip
loss("softmax_twice", "softmax_twice", SMOOTH, f"{SMOOTH}        logits = paddle.nn.functional.softmax(logits)\n")
loss(
    "saturated", "paddles_own_cross_entropy", SMOOTH,
    f"{SMOOTH}        if labels.ndim == 1 and smooth == 0 and not bool((labels == self.ignore_index).any()):\n"
    "            return paddle.nn.functional.cross_entropy(logits, labels)\n",
)  # fmt: skip

# --- metric ----------------------------------------------------------------------------------------------------------------

metric("top_k_correct", "smallest", "smallest_logits", AHEAD, AHEAD.replace(">", "<"))
metric("top_k_correct", "k_off_by_one", "one_rank_too_many", "(rank < k)", "(rank <= k)")
metric("top_k_correct", "ties_wrong", "ties_in_reverse_order", "unsqueeze(0) < labels", "unsqueeze(0) > labels")
metric("top_k_correct", "same_k", "top5_is_top1", "(rank < k)", "(rank < ks[0])")
metric(
    "TopKAccuracy.update", "count", "right_answers_of_the_last_batch",
    'self.correct = [total + new for total, new in zip(self.correct, counts, strict=True)]', "self.correct = counts",
)  # fmt: skip
metric(
    "TopKAccuracy.update",
    "padding_counted",
    "padding_in_the_count",
    "if mask is not None else labels.shape[0]",
    "* 0 + labels.shape[0] if mask is not None else labels.shape[0]",
)
metric(
    "TopKAccuracy.merge",
    "ranks_not_merged",
    "counts_of_the_other_rank_alone",
    "self.count += other.count",
    "self.count = other.count",
)
metric("top_k_correct", "nan_right", "one_nan_counts_as_right", ".any(axis=1)", ".all(axis=1)")
metric(
    "TopKAccuracy.update",
    "count",
    "batches_counted",
    "if mask is not None else labels.shape[0]",
    "if mask is not None else 1",
)
metric("TopKAccuracy.compute", "scaled", "shares_in_percent", "correct / self.count for", "100.0 * correct / self.count for")
fault(
    "metric", 3, "TopKAccuracy.update", "", "counts_shared_by_all",
    (METRIC, "    def __init__(self, ks: Sequence[int] = (1, 5)) -> None:", "    correct = [0, 0]\n\n"
     "    def __init__(self, ks: Sequence[int] = (1, 5)) -> None:"),
    (METRIC, "        self.correct = [0] * len(self.ks)\n", ""),
    (METRIC, "        self.correct = [total + new for total, new in zip(self.correct, counts, strict=True)]\n",
     "        for place, new in enumerate(counts):\n            self.correct[place] += new\n"),
)  # fmt: skip
fault(
    "evaluation", 6, "evaluate_run", "top_k|evaluation|same_k", "evaluation_counts_top1_twice",
    (EVALUATE, "top_k_correct(logits, labels, (1, 5)).numpy()", "top_k_correct(logits, labels, (1, 1)).numpy()"),
)  # fmt: skip
fault(
    "evaluation", 6, "evaluate_run", "confusion_transposed", "confusion_transposed",
    (EVALUATE, "labels.numpy(), logits.argmax(1).numpy()", "logits.argmax(1).numpy(), labels.numpy()"),
)  # fmt: skip
fault(
    "evaluation", 6, "evaluate_run", "evaluation|smoothing", "evaluation_with_smoothing",
    (EVALUATE, "CrossEntropyLoss(ignore_index=-1)", "CrossEntropyLoss(0.1, ignore_index=-1)"),
)  # fmt: skip
fault(
    "evaluation", 6, "evaluate_run", "evaluation", "evaluation_of_bgr",
    (EVALUATE, "precision.full(model(images))", "precision.full(model(images.flip([1])))"),
)  # fmt: skip

# --- loss ------------------------------------------------------------------------------------------------------------------

loss("mean_over_ignored", "mean_over_ignored", "paddle.where(kept, counts, paddle.zeros_like(counts)).sum()", "loss.shape[0]")
loss("exp_overflows", "exponentials_overflow", SHIFTED, "shifted = logits")
loss("softmax_axis", "maximum_over_the_batch", "max(axis=1", "max(axis=0")
loss("logarithm", "logarithm_to_base_two", "_sum_classes(paddle.exp(shifted)).log()", "_sum_classes(paddle.exp(shifted)).log2()")
loss("scaled", "loss_halved", MEAN, f"{MEAN} / 2")
loss("smoothing", "smoothing_halved", SMOOTH, "        smooth = self.label_smoothing / 2\n")
loss(
    "smoothing_over_others|smoothing",
    "smoothing_over_the_others",
    "spread = _mean_classes(shifted * share)",
    "spread = (_sum_classes(shifted) - shifted.max(axis=1)) / (logits.shape[1] - 1)",
)
loss(
    "detached|gradient_scaled",
    "normaliser_detached",
    "log_sum = _sum_classes(paddle.exp(shifted)).log()",
    "log_sum = _sum_classes(paddle.exp(shifted)).log().detach()",
)
loss("ignore_index", "another_ignore_index", "ignore_index: int = -100", "ignore_index: int = -1")
loss("mean_over_classes", "mean_over_classes", MEAN, f"{MEAN} / logits.shape[1]")
loss(
    "soft_as_hard",
    "soft_labels_as_hard",
    "if labels.ndim == 2:",
    "labels = labels if labels.ndim == 1 else labels.argmax(1)\n        if labels.ndim == 2:",
)
loss(
    "smoothing",
    "smoothing_of_a_tenth",
    "self.label_smoothing = label_smoothing",
    "self.label_smoothing = 0.1 if label_smoothing else 0.0",
)
loss(
    "smoothing",
    "smoothing_takes_the_largest",
    "spread = _mean_classes(shifted * share)",
    "spread = shifted.max(axis=1)",
)
loss(
    "smoothing",
    "smoothing_takes_the_sum",
    "spread = _mean_classes(shifted * share)",
    "spread = _sum_classes(shifted)",
)
loss("smoothing_missing", "soft_labels_not_smoothed", "if smooth > 0.0:", "if smooth > 0.0 and labels.ndim == 1:")
loss(
    "saturated",
    "eps_in_the_logarithm",
    "_sum_classes(paddle.exp(shifted)).log()",
    "(_sum_classes(paddle.exp(shifted)) + 1e-7).log()",
)
