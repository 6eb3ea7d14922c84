"""Planted training mistakes, each of a real kind: where it was seen, and what the doctor is to say of it.

``tests/mistakes/run.py`` plants them in both frameworks and runs the doctor. The loops, runs and pictures stand in
``tests/watched.py``, ``tests/watched_ranks.py``, ``tests/test_doctor_check.py``, ``tests/test_doctor_data.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

KARPATHY = "Karpathy, A Recipe for Training Neural Networks (2019)"
TRAINCHECK = "Jiang et al., Training with Confidence (TrainCheck), OSDI 2025"
DEEPCHECKER = "Ben Braiek and Khomh, TheDeepChecker (2022)"
HUMBATOVA = "Humbatova et al., Taxonomy of Real Faults in Deep Learning Systems, ICSE 2020"
TORCH_FAQ = "PyTorch documentation: frequently asked questions, reproducibility, autograd"
TORCH_LOSS = "PyTorch documentation: NLLLoss, MSELoss, BCEWithLogitsLoss"
TORCH_INIT = "PyTorch documentation: torch.nn.init"
TORCH_AMP = "PyTorch documentation: automatic mixed precision examples"
TORCH_DDP = "PyTorch documentation: distributed data parallel, data loading"
TIMM = "timm documentation: ModelEmaV2, decay and length of training"
FASTAI = "reports of folders .ipynb_checkpoints, __MACOSX and of EXIF orientation in image data sets"
SEED = "the checklists, "
BEGINS = {  # the loop makes four updates, an evaluation, and one update more
    "stays_in_evaluation": 5, "training_mode": 4, "functional_dropout": 4, "average_left": 4, "state_lost": 4, "spoilt_picture": 2,
    "schedule_not_stepped": 2, "schedule_twice": 2,
}  # fmt: skip

TORCH_ALONE = {"clipped_scaled"}  # Paddle's loss scaler works on a GPU alone


@dataclass(frozen=True)
class Mistake:
    """One planted mistake.

    Attributes:
        name: as the file that plants it has it.
        group: ``code``, ``data``, ``configuration`` or ``ranks``.
        means: what goes wrong.
        source: where such a mistake was seen or is warned of.
        by: the sub-command that is to find it: ``watch``, ``ranks`` (a watch of two), ``check``, ``data`` or ``compare``.
        causes: checks that name the right cause; any other check finds the mistake without its cause; none where no check does.
        begins: the first update at which it acts.
        frameworks: in which it can be planted.
    """

    name: str
    group: str
    means: str
    source: str
    by: str
    causes: tuple[str, ...]
    begins: int = 1
    frameworks: tuple[str, ...] = ("torch", "paddle")


def _of(by: str, group: str, rows: list[tuple[str, str, str, str]]) -> list[Mistake]:
    made = []
    for name, means, source, causes in rows:
        begins = BEGINS.get(name, 1) if by == "watch" else 1
        frameworks = {"data": ("torch",)}.get(by, ("torch",) if name in TORCH_ALONE else ("torch", "paddle"))
        made.append(Mistake(name, group, means, source, by, tuple(causes.split()), begins, frameworks))
    return made


MISTAKES = (
    *_of("watch", "code", [
        ("left_over", "gradients are never cleared", KARPATHY, "watch.left_over"),
        ("lost", "gradients are cleared within an accumulation", HUMBATOVA, "watch.lost"),
        ("cleared_early", "gradients are cleared between backward and step", TRAINCHECK, "watch.no_gradient"),
        ("detached", "a detach cuts the graph", TORCH_FAQ, "watch.no_gradient"),
        ("constant_loss", "the loss does not depend on the output", DEEPCHECKER, "watch.no_gradient"),
        ("left_out", "a layer is not given to the optimizer", SEED + "002 cg.02", "watch.left_out"),
        ("built_before", "the optimizer is built from an earlier model", TRAINCHECK, "watch.left_out"),
        ("head_replaced", "the head is replaced after the optimizer was built", SEED + "004 optimizer", "watch.left_out"),
        ("no_step", "the optimizer never steps", HUMBATOVA, "watch.stands_still"),
        ("frozen_left_on", "layers meant to be frozen train", SEED + "002 cg.02", "watch.frozen_moves"),
        ("frozen_statistics", "statistics of frozen normalisation move", SEED + "002 api.02", "watch.frozen_moves"),
        ("evaluation_mode", "training in evaluation mode", KARPATHY, "watch.evaluation_mode"),
        ("stays_in_evaluation", "no train() after an evaluation", SEED + "001 module 1", "watch.evaluation_mode"),
        ("training_mode", "no eval() before an evaluation", KARPATHY, "watch.training_mode"),
        ("functional_dropout", "functional dropout is active in evaluation", TORCH_FAQ, "watch.random_evaluation"),
        ("average_left", "averaged weights are left in the model", SEED + "000 step 6", "watch.changed_by_evaluation"),
        ("schedule_not_stepped", "the schedule is never stepped", SEED + "004 lr", "watch.rate"),
        ("schedule_twice", "the schedule is stepped twice an update", HUMBATOVA, "watch.rate"),
        ("state_lost", "the optimizer's state is not loaded on resumption", SEED + "000 step 10", "watch.state"),
        ("dead", "an activation gives zero alone", DEEPCHECKER, "watch.dead"),
        ("overflowing", "the loss scale never helps", TORCH_AMP, "watch.scale watch.finite"),
        ("softmax_twice", "the loss is given probabilities for logits", KARPATHY, "watch.probabilities"),
        ("sigmoid_twice", "the model ends with a sigmoid before a loss that has one", DEEPCHECKER, "watch.probabilities"),
        ("likelihood_of_logits", "NLLLoss is given logits", TORCH_LOSS, "watch.likelihood"),
        ("broadcast", "outputs (N, 1) against targets (N,): a loss of (N, N)", TORCH_LOSS, "watch.one_target"),
        ("written_back", "a copy of the weights is written back after each step", TRAINCHECK, "watch.stands_still"),
        ("constant_start", "two layers begin with one value each", DEEPCHECKER, "watch.equal_units"),
        ("unregistered", "layers are kept in a plain list", TORCH_FAQ, "watch.unregistered"),
        ("one_class", "a cross-entropy of one output column", TORCH_LOSS, "watch.no_gradient"),
        ("cut_off", "the model ends with a ReLU before a loss of logits", DEEPCHECKER, "watch.probabilities"),
        ("clipped_scaled", "gradients are clipped before they are unscaled", TORCH_AMP, "watch.clipped_scaled"),
        ("same_batch", "every update has the first batch of a new iterator", HUMBATOVA, ""),
    ]),
    *_of("watch", "data", [
        ("spoilt_picture", "a picture holds NaN", SEED + "002 ds.01", "watch.finite"),
        ("shuffled_labels", "labels are of other pictures", SEED + "002 ds.02", ""),
    ]),
    *_of("watch", "configuration", [
        ("momentum", "momentum of normalisation taken from the other framework", SEED + "001 module 1", "watch.statistics"),
        ("summed", "the loss is scaled up, or the rate is far too high", KARPATHY, "watch.step_size"),
        ("rate_zero", "the learning rate is 0", DEEPCHECKER, "watch.rate"),
    ]),
    *_of("ranks", "ranks", [
        ("start", "ranks begin with different weights", TORCH_DDP, "watch.rank_start"),
        ("gradients", "gradients are not averaged", TORCH_DDP, "watch.rank_gradients"),
        ("weights", "one rank changes its weights", TRAINCHECK, "watch.rank_weights"),
        ("rate", "ranks have different rates", SEED + "003", "watch.rank_rate"),
        ("data", "ranks train on the same pictures", TORCH_DDP, "watch.rank_data"),
        ("statistics", "statistics are not synchronised", SEED + "001 module 1", "watch.rank_statistics"),
    ]),
    *_of("check", "code", [
        ("wrong_loss", "the loss is divided by the batch again", KARPATHY, "check.loss_formula"),
        ("left_out", "a layer is not given to the optimizer", SEED + "004 optimizer", "check.moved"),
        ("trains_in_evaluation", "training in evaluation mode", KARPATHY, "check.modes"),
        ("ignores_freezing", "frozen statistics move", SEED + "001 training 4", "check.moved"),
        ("cut_gradient", "a detach cuts the graph", TORCH_FAQ, "check.gradients"),
        ("mixes_its_batch", "the output depends on the other pictures", KARPATHY, "check.batch_independence"),
        ("large_logits", "the last layer's scale is far off", KARPATHY, "check.first_loss"),
        ("softmax_twice", "the model ends with a softmax before its loss", KARPATHY, "check.probabilities"),
        ("unused_layer", "a layer is not used by forward", SEED + "002 cg.02", "check.gradients"),
        ("multiplied_by_zero", "a branch's weight is 0 and never learnt", DEEPCHECKER, "check.gradients"),
        ("frozen_by_mistake", "a layer is frozen and nothing says so", SEED + "002 cg.02", "check.gradients"),
        ("unseeded", "weights come from a generator that no seed sets", TORCH_FAQ, "check.same_seed"),
        ("zero_weights", "a layer begins with zeros", DEEPCHECKER, "check.initial_weights"),
        ("stock_initialisation", "layers begin as the framework makes them", SEED + "002 wi.01", "check.initialisation"),
        ("fan_in", "convolutions are drawn by fan_in for fan_out", TORCH_INIT, "check.initialisation"),
        ("wide_linear", "a linear layer is drawn ten times as wide", DEEPCHECKER, "check.initialisation"),
        ("not_loaded", "pretrained weights are not loaded", SEED + "002 wi.02", "check.pretrained"),
    ]),
    *_of("check", "data", [
        ("not_divided", "pictures of 0 to 255", SEED + "002 dp.01", "check.input"),
        ("normalised_twice", "pictures are normalised twice", SEED + "001 data 3", "check.input"),
        ("not_normalised", "pictures are not normalised", SEED + "001 data 3", "check.input"),
        ("bgr", "channels are exchanged in evaluation", SEED + "001 data 1", "check.evaluation_pictures"),
        ("label_from_one", "labels begin at 1", SEED + "002 ds.02", "check.labels"),
        ("repeating", "augmentation repeats in each epoch", TORCH_DDP, "check.augmentation"),
        ("same_order", "every epoch has the same order", TORCH_DDP, "check.order"),
        ("workers_alike", "loader workers have copies of one generator", TORCH_FAQ, "check.workers"),
    ]),
    *_of("check", "configuration", [
        ("too_long_a_schedule", "the schedule outlasts the run", SEED + "004 lr", "check.schedule"),
        ("average_of_the_start", "a moving average that outlasts the run", TIMM, "check.average"),
        ("clipped_to_nothing", "gradients are clipped to a millionth", SEED + "002 hp.01", "check.clipping"),
        ("half_never_seen", "the last batch is left out, with half of an epoch", TORCH_DDP, "check.unseen"),
        ("never_lowered", "the steps of the schedule lie behind the run's end", SEED + "004 lr", "check.schedule"),
        ("momentum_of_the_other", "momentum of normalisation from the other framework", SEED + "001 module 1", "check.statistics"),
        ("tiny_rate", "a rate at which nothing is learnt", DEEPCHECKER, "check.learning_rate"),
        ("huge_rate", "a rate at which the run diverges", SEED + "002 hp.01", "check.learning_rate"),
    ]),
    *_of("data", "data", [
        ("not_a_picture", "a page of HTML for a picture", SEED + "002 ds.01", "data.unreadable"),
        ("empty", "an empty file", SEED + "002 ds.01", "data.truncated"),
        ("truncated", "a file cut short", SEED + "001 data 5", "data.truncated"),
        ("constant", "a picture of one colour", SEED + "002 ds.01", "data.constant"),
        ("not_finite", "NaN in a picture", SEED + "002 ds.01", "data.not_finite"),
        ("sixteen_bits", "16 bits a channel, clipped by decoding", SEED + "002 dp.01", "data.depth"),
        ("banner", "a banner that the crop cuts away", SEED + "002 dp.04", "data.size"),
        ("copied", "a picture twice", SEED + "002 ds.04", "data.duplicates"),
        ("coded_again", "a picture twice, coded again", SEED + "002 ds.04", "data.near_duplicates"),
        ("in_both", "a picture in training and validation", KARPATHY, "data.leak"),
        ("in_both_coded_again", "the same, coded again", SEED + "000 step 2", "data.leak"),
        ("two_labels", "one picture under two labels", SEED + "002 ds.02", "data.contradictory"),
        ("class_gone", "a class is missing in validation", SEED + "002 ds.03", "data.class_numbers"),
        ("gap_in_labels", "a class number without pictures", SEED + "002 ds.02", "data.empty_classes"),
        ("rare", "a class with a tenth of another's pictures", SEED + "002 ds.03", "data.imbalance"),
        ("not_a_class", "a folder that a program left counts as a class", FASTAI, "data.folders"),
        ("two_spellings", "a class twice, in upper and in lower case", FASTAI, "data.folders"),
        ("mirrored_in_both", "a picture in training and, mirrored, in validation", KARPATHY, "data.leak"),
        ("other_labels_in_validation", "labels of validation are shifted by one", SEED + "002 ds.02", ""),
        ("turned_by_a_tag", "photographs whose orientation stands in a tag", FASTAI, "data.orientation"),
        ("animation", "files that training does not list", SEED + "002 ds.04", "data.ignored"),
    ]),
)  # fmt: skip
