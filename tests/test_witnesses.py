"""Shared code with a mistake: a witness says it, in the right place; right rewrites are silent."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from alignment.compare import Quantity
from alignment.comparisons import witnessed
from alignment.comparisons.comparison import Compared
from alignment.comparisons.explain import locate
from alignment.comparisons.result import StepResult
from alignment.coverage import coverage_of
from alignment.finding import Finding
from alignment.kinds import Kind
from alignment.report.table import table
from alignment.witness import Told, Witness
from projects.witnesses import WITNESSES
from tests.shared_edits import Edit, heard

CONFIG, SAMPLING, IMAGE = "train_config/config.py", "sampling.py", "image.py"
EDITS = {
    "the short last batch is kept": Edit("run.py", "pad=not config.drop_last,", "pad=True,", "run.training_plan", "11 pictures"),
    "weight decay is lost": Edit(
        CONFIG, "rules=rules, **self.optimizer_numbers)", "rules=rules, **{**self.optimizer_numbers, 'weight_decay': 0.0})",
        "TrainConfig.optimizer_config", "weight_decay is 0.0, expected 0.021",
    ),
    "rules are lost": Edit(CONFIG, "self.scaled_lr(global_batch), rules=rules,", "self.scaled_lr(global_batch),",
                            "TrainConfig.optimizer_config", "rules"),
    "orientation transposed": Edit(
        IMAGE, "6: Image.Transpose.ROTATE_270", "6: Image.Transpose.ROTATE_90", "image.orientation", "orientation 6",
    ),
    "orientation in training": Edit(
        "picture_format.py", 'TRAINING = Rules((*FORMATS, "PPM"))', 'TRAINING = Rules((*FORMATS, "PPM"), orient=True)',
        "image.orientation", "as stored in training",
    ),
    "reduced by the longer side": Edit(
        "picture_format.py", "shorter = min(width, height)", "shorter = max(width, height)", "Rules.reduction", "divided by",
    ),
    "one colour order in reduced decoding": Edit(
        IMAGE, "flags = cv2.IMREAD_COLOR_RGB |",
        "flags = (cv2.IMREAD_COLOR if rules.reduction(width, height) > 1 else cv2.IMREAD_COLOR_RGB) |",
        "image._pixels_cv2", "OpenCV",
    ),
    "areas by the longer side": Edit(
        IMAGE, "area = min(height, width) > 2 * size", "area = max(height, width) > 2 * size", "image.crop_and_resize",
        "alone shrinks",
    ),
    "augmentation of epoch 0 in every epoch": Edit(
        "samples.py", "sample_params(self.preset, self.seed, key, height, width)",
        "sample_params(self.preset, self.seed, key._replace(epoch=0), height, width)", "Samples.__getitem__", "epoch=4",
    ),
    "mixing one epoch too long": Edit(
        "presets.py", "epoch < self.mix_epochs)", "epoch <= self.mix_epochs)", "TrainPreset.mixes_in", "the last 2 without mixing",
    ),
    "mixing ends one epoch early": Edit(
        CONFIG, "mix_epochs=self.epochs - self.mix_off_epochs if", "mix_epochs=self.epochs - self.mix_off_epochs - 1 if",
        "TrainConfig.train_preset", "mix_epochs is 6, expected 7",
    ),
    "a rule matched by prefix": Edit(
        "param_groups.py", "fnmatch.fnmatchcase(name, self.pattern)", 'name.startswith(self.pattern.rstrip(".*"))',
        "param_groups.rule_of", "features.1.*",
    ),
    "the last rule counts": Edit(
        "param_groups.py", "next((rule for rule in rules if", "next((rule for rule in reversed(rules) if",
        "param_groups.rule_of", "first",
    ),
    "mix_group ignored": Edit(
        "samples.py", "mix_groups(keys, mix_group)", "mix_groups(keys, len(keys))", "samples.collate", "groups of 4",
    ),
    "erasing lost": Edit(CONFIG, "random_erase_prob=self.random_erase,", "random_erase_prob=0.0,", "TrainConfig.train_preset"),
    "random resized crops of one epoch's draw": Edit(
        SAMPLING, "at = (seed, key.epoch, key.sample,", "at = (seed, 0, key.sample,", "Samples.__getitem__", "differ",
    ),
    "dropout drawn by the batch's place": Edit(
        SAMPLING, "advance(self.position * math.prod(shape[1:]))", "advance(self.position)", "DropoutStream", "places 4",
    ),
    "exponential decay by the unit": Edit(
        "train_config/learning_rate.py", 'if self.lr_schedule == "exponential":', "if False:", "TrainConfig.schedule_config",
        "exponential",
    ),
    "warm-up in updates": Edit(
        "train_config/learning_rate.py", 'schedule="warmup", in_epochs=True', 'schedule="warmup"',
        "TrainConfig.schedule_config", "warmup is 5, expected 65",
    ),
    "balanced weights not divided by the classes": Edit(
        "class_weights.py", "counts.sum() / (len(counts) * counts)", "counts.sum() / counts", "class_weights", "balanced",
    ),
    "another default": Edit(
        "train_config/optimizer.py", "option(1e-4, ", "option(1e-5, ", "TrainConfig: defaults", "--weight-decay is not given",
    ),
    "views in another order": Edit(
        "preprocess.py", "corners = [(0, 0), (right, 0), (0, bottom), (right, bottom)]",
        "corners = [(0, 0), (0, bottom), (right, 0), (right, bottom)]", "preprocess", "five_crop",
    ),
}  # fmt: skip
# Of what is listed, converted, kept and told beside training.
EDITS |= {
    "CIFAR's columns for rows": Edit("cifar.py", ".transpose(1, 2, 0).tobytes()", ".transpose(2, 1, 0).tobytes()", "cifar",
    "pictures"),
    "CIFAR's label one byte late": Edit(
        "cifar.py", '"labels": rows[:, 0].tolist()', '"labels": rows[:, 1].tolist()', "cifar", "",
    ),
    "linear weights are not transposed": Edit(
        "weights.py", 'transposed = last == "weight" and len(shape) == 2', "transposed = False", "weights", "",
    ),
    "labels are not moved among the model's classes": Edit(
        "dataset_index.py", "return replace(self, labels=Labels(moved[np.asarray(self.labels)]), classes=classes)",
        "return replace(self, classes=classes)", "dataset_index", "",
    ),
    "precision and recall exchanged": Edit(
        "evaluation_record.py", "_share(r, t), _share(r, s)", "_share(r, s), _share(r, t)", "evaluation_record", "precision",
    ),
    "statistics of rank 0": Edit(
        "rank_statistics.py", "rows.mean(0, dtype=np.float64)", "rows[0]", "rank_statistics", "means",
    ),
    "held out rounded down": Edit(
        "held_out.py", "max(round(share * len(places)), 1)", "max(int(share * len(places)), 1)", "held_out", "0.18",
    ),
    "an evaluation at another size": Edit(
        "as_trained.py", '"width_mult", "resize_size",', '"width_mult",', "as_trained", "resize_size",
    ),
    "another size of the second weights": Edit("published.py", "V2_RESIZE = 232", "V2_RESIZE = 236", "published",
    "236, expected 232"),
}  # fmt: skip
LOOP, RUN = "training.py", "run.py"
# The same of the whole loop.
LOOP_EDITS = {
    "smoothing left out": Edit(
        RUN, "backend.CrossEntropyLoss(config.label_smoothing, weight=weight)", "backend.CrossEntropyLoss(weight=weight)",
        "run.build_run: the loss", "label smoothing: update 1: loss",
    ),
    "class weights left out": Edit(
        RUN, "config.label_smoothing, weight=weight)", "config.label_smoothing)", "run.build_run: the loss",
        "class weights: update 1: loss",
    ),
    "dropout at the update's place": Edit(
        LOOP, "run.plan.place(first + number)[0]", "run.plan.place(first)[0]", "training.update: dropout's place",
        "accumulation: update 1",
    ),
    "dropout at the micro-batch's number": Edit(
        LOOP, "run.plan.place(first + number)[0]", "run.plan.place(number)[0]", "training.update: dropout's place",
        "update 2: dropped",
    ),
    "dropout of epoch 0": Edit(
        LOOP, "run.dropout.at(run.epoch, ", "run.dropout.at(0, ", "training.update: dropout's place", "update 6: dropped",
    ),
    "training mode is not restored": Edit(
        LOOP, "        run.train_mode()\n        while run.iteration", "        while run.iteration",
        "training._loop: training mode", "update 6: modes",
    ),
    "a short accumulation leaks into the next epoch": Edit(
        LOOP, "run.iteration * config.accumulate, used)", "run.iteration * config.accumulate)", "training.micro_batches",
        "accumulation: update 3",
    ),
    "the teacher in training mode": Edit(
        "distilling.py", "    teacher.eval()\n", "", "distilling: the teacher's mode", "update 1: teacher",
    ),
    "the teacher's own weights for its average": Edit(
        "distilling.py", '"checkpoint_weights": "auto",', '"checkpoint_weights": "raw",', "distilling._teacher",
        "moving average",
    ),
    "the teacher's temperature and share exchanged": Edit(
        "distilling.py", "config.distill_temperature, config.distill_alpha)", "config.distill_alpha, config.distill_temperature)",
        "distilling.build_criterion", "a teacher",
    ),
    "clipping left out": Edit(
        LOOP, "run.optimizer, config.clip_norm, run.precision", "run.optimizer, None, run.precision",
        "training.update: clip_norm", "clipping",
    ),
    "the schedule by update where it is by epoch": Edit(
        LOOP, 'if config.lr_unit == "update" or run.iteration == run.updates_per_epoch:', "if True:",
        "training.update: the schedule", "step by epoch",
    ),
    "lr scaled by a batch without accumulation": Edit(
        RUN, "config.batch_size * ranks.world_size * config.accumulate", "config.batch_size * ranks.world_size",
        "training.update: the schedule", "scaled rate",
    ),
    "the schedule of all batches": Edit(
        RUN, "config.schedule_config(updates_per_epoch)", "config.schedule_config(len(plan))", "training", "",
    ),
    "mix_group ignored by the loop": Edit(
        LOOP, "dataset, plan, config.workers, config.mix_group)", "dataset, plan, config.workers)", "training.micro_batches",
        "mixing: update 1",
    ),
    "the seed of pictures": Edit(
        LOOP, "preset, config.seed, config.image_backend", "preset, 0, config.image_backend", "training.micro_batches",
        "update 1: pictures",
    ),
    "the average at every update": Edit(
        LOOP, "if run.update % config.ema_every == 0:", "if True:", "training.update: moving average", "moving average",
    ),
    "the average's decay without warm-up": Edit(
        LOOP, "        run.average.decay = config.average_decay(run.update)\n", "", "training.update: moving average",
        "warm-up",
    ),
    "the average is not evaluated": Edit(
        "evaluation.py", "with run.average.applied() if averaged else", "with run.average.applied() if False else",
        "evaluation.evaluate",
    ),
    "an evaluation in training mode": Edit("evaluation.py", "    model.eval()\n", "", "evaluation.evaluate", "line"),
    "mean of the means of batches": Edit(
        "evaluation.py", "loss += judged.loss * int(counted.sum())", "loss += judged.loss * 4", "evaluation.evaluate", "loss is",
    ),
    "the confusion transposed": Edit(
        "evaluation.py", "(judged.labels[counted], judged.predicted[counted])",
        "(judged.predicted[counted], judged.labels[counted])",
        "evaluation.evaluate", "true class",
    ),
    "the last epoch is not evaluated": Edit(
        LOOP, "run.epoch % config.eval_every == 0 or run.epoch == config.epochs", "run.epoch % config.eval_every == 0",
        "training._loop: evaluations", "evaluation every 2 epochs",
    ),
    "early stop one evaluation late": Edit(
        LOOP, "0 < run.config.early_stop <= run.stale", "0 < run.config.early_stop < run.stale", "training._loop: updates",
        "early stop",
    ),
    "the log's loss of all updates": Edit(
        LOOP, '"loss": loss / meter.updates / run.ranks.world_size', '"loss": loss / run.ranks.world_size',
        "training.averages", "line 1",
    ),
    "the log's interval is never begun": Edit(
        LOOP, "                begin_interval(run, watch)\n", "", "training.averages", "line 2",
    ),
    "resumed without its place in the epoch": Edit(
        LOOP, "run.iteration * config.accumulate, used)", "run.iteration, used)", "training.micro_batches", "resumed",
    ),
    "resumed without its best": Edit(
        RUN, 'meta["epoch"], meta["iteration"], meta["best"]', 'meta["epoch"], meta["iteration"], -1.0',
        "training._loop: the run's end", "resumed",
    ),
    "resumed without its stale evaluations": Edit(
        RUN, 'run.stale = int(meta.get("stale", 0))', "run.stale = 0", "training._loop: the run's end", "no better",
    ),
    "resumed without its optimizer": Edit(
        RUN, "    backend.load_optimizer_arrays(run.model, run.optimizer, run.precision, checkpoint.part(\"optimizer\"))\n", "",
        "training.update: weights", "resumed",
    ),
    "resumed without its schedule": Edit(
        RUN, "        backend.load_schedule_state(run.optimizer, run.schedule, meta)\n", "        pass\n",
        "training.update: the schedule", "resumed",
    ),
    "rates not lowered after going back": Edit(
        "rolling_back.py", "    again.lower_rates(run.rate_factor * config.roll_back_factor / again.rate_factor)\n", "",
        "rolling_back", "rate",
    ),
    "infinite gradients are not looked at": Edit(
        LOOP, "gradients=not run.precision.scales", "gradients=False", "training._healthy", "infinite",
    ),
    "damaged pictures are counted": Edit(
        "evaluation.py", "        samples += int(counted.sum())", "        samples += len(counted)", "evaluation.evaluate",
        "damaged",
    ),
    "going back a second time lowers nothing": Edit(
        "rolling_back.py", "run.rate_factor * config.roll_back_factor / again.rate_factor",
        "config.roll_back_factor / again.rate_factor", "rolling_back", "twice",
    ),
    "the factor of the rates is replaced": Edit(
        RUN, "self.rate_factor *= factor", "self.rate_factor = factor", "Run.lower_rates", "twice",
    ),
    "one cache for every decoding": Edit(
        LOOP, '{config.image_backend} {preset.reduce_to}"', '{config.image_backend}"', "training.micro_batches: picture cache", "",
    ),
}  # fmt: skip
# The same of runs that end before their end, and of repeated samples.
LOOP_EDITS |= {
    "what is to be evaluated is not saved": Edit(
        RUN, '            "to_evaluate": run.to_evaluate,\n', "", "run.checkpoint_of", "to be evaluated: [10, None]",
    ),
    "what is to be evaluated is not restored": Edit(
        RUN, '    run.to_evaluate = bool(meta.get("to_evaluate", False))\n', "", "run.restore: to_evaluate", "evaluations after",
    ),
    "an epoch is saved after its evaluation alone": Edit(
        LOOP, "        save(run, folder, best=False)  # before the evaluation: whatever happens there, the epoch is not lost\n", "",
        "run.checkpoint_of", "to be evaluated: [5, False]",
    ),
    "weights that are no numbers are saved": Edit(
        LOOP, "spoilt = [name for name, array in checkpoint.arrays.items() if not np.isfinite(array).all()]",
        "spoilt = list[str]()", "training.save", "[2, 4, 5], expected [2, 4]",
    ),
    "evaluations without a better top-1 are counted from the beginning": Edit(
        LOOP, "0 if best else run.stale + 1, False", "run.stale + (not best), False", "training._loop", "early stop",
    ),
}  # fmt: skip
EDITS |= {
    "repeated samples are not rounded to the ranks": Edit(
        SAMPLING, "or self.size) // self.world_size * self.world_size", "or self.size)", "run.training_plan", "3 times",
    ),
    "repetitions on one rank": Edit(
        SAMPLING, "turns = [(number * self.batch_size + at) * self.world_size + self.rank for at in range(count)]",
        "turns = [start + at for at in range(count)]", "run.training_plan", "3 times, rank 0 of 3",
    ),
}  # fmt: skip
# Of decoding, listing and checkpoints: the first of each kind is quick.
EDITS |= {
    "CMYK through OpenCV": Edit(
        IMAGE, "return jpeg_components(data) == 4", "return jpeg_components(data) == 3", "image: formats", "CMYK",
    ),
    "classes in order without case": Edit(
        "class_folders.py", "    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):\n        path =",
        "    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name.lower()):\n        path =", "dataset_index",
        "'cow', 'Yak'], expected ['Yak'",
    ),
    "files in order without case": Edit(
        "class_folders.py", 'key=lambda path: path.rsplit("/", 1)', 'key=lambda path: path.lower().rsplit("/", 1)',
        "dataset_index", "folders: files",
    ),
    "raw weights before their average": Edit(
        "checkpoint.py", 'self.part("ema") or self.part("model")', 'self.part("model") or self.part("ema")', "Checkpoint.weights",
        "of model/a, ema/a",
    ),
}  # fmt: skip
LOOP_REWRITES = {
    "the mode at the epoch's end": Edit(
        LOOP, "        run.train_mode()\n        while run.iteration",
        "        run.backend.train_mode(run.model, config.freeze_bn)\n        while run.iteration",
    ),
    "the place by hand": Edit(
        LOOP, "run.plan.place(first + number)[0]", "(first + number) * run.global_batch + run.ranks.rank * config.batch_size",
    ),
    "the average's condition the other way": Edit(
        LOOP, "if run.update % config.ema_every == 0:", "if not run.update % config.ema_every:",
    ),
    "a mean by hand": Edit(
        "evaluation.py", "loss += judged.loss * int(counted.sum())",
        "loss += float(judged.loss) * len([one for one in counted if one])",
    ),
    "the plan's used batches by islice": Edit(
        SAMPLING, "yield from itertools.islice(plan, skip, self.batches)",
        "for number, keys in enumerate(plan):\n                if skip <= number and number < (self.batches or 10**9):\n"
        "                    yield keys",
    ),
    "the loss with its default": Edit(
        RUN, "backend.CrossEntropyLoss(config.label_smoothing, weight=weight)",
        "backend.CrossEntropyLoss(weight=weight, label_smoothing=config.label_smoothing)",
    ),
}  # fmt: skip
QUICK = ("the short last batch is kept", "weight decay is lost", "orientation transposed", "a rule matched by prefix")
LOOPED = ("distilling", "training.update", "training", "training: early ends", "run.restore")  # witnesses that train
TORCHVISION = ("preprocess", "published")  # the witness that imports it
# What the same code may look like.
REWRITES = {
    "as it is": None,
    "rules by a loop": Edit(
        "param_groups.py", 'return next((rule for rule in rules if rule.fits(name)), GroupRule("*"))',
        'for rule in rules:\n        if rule.fits(name):\n            return rule\n    return GroupRule("*")',
    ),
    "the batch's place by hand": Edit("run.py", "last = plan.place(len(plan) - 1)[1]", "last = len(list(plan)[-1])"),
    "the shorter side otherwise": Edit("picture_format.py", "shorter = min(width, height)", "shorter = sorted((height, width))[0]"),
    "turned in two steps": Edit(
        IMAGE, "return rgb if turn is None else rgb.transpose(turn)",
        "return rgb if turn is None else Image.fromarray(np.asarray(rgb.transpose(turn)))",
    ),
    "preset by name": Edit(
        CONFIG, "mix_epochs=self.epochs - self.mix_off_epochs if self.mix_off_epochs else None",
        "mix_epochs=None if self.mix_off_epochs == 0 else self.epochs - self.mix_off_epochs",
    ),
    "the root otherwise": Edit(
        "train_config/learning_rate.py", "self.lr * math.sqrt(global_batch / self.scale_lr_from)",
        "self.lr * (global_batch / self.scale_lr_from) ** 0.5",
    ),
    "balanced by shares": Edit(
        "class_weights.py", "counts.sum() / (len(counts) * counts)", "1 / (len(counts) * (counts / counts.sum()))",
    ),
}  # fmt: skip


TOGETHER = {  # edits whose first witness is one of a special run; what all of them say together
    "an evaluation leaves pictures out": Edit(
        "evaluation.py", "plan = BatchPlan(len(index), config", "plan = BatchPlan(len(index) - 2, config",
        "evaluation._validation", "plain: line 4 of the log",
    ),
    "the share of the teacher is ignored": Edit(
        "distilling.py", "config.distill_temperature, config.distill_alpha)", "config.distill_temperature, 0.5)",
        "distilling.build_criterion", "a teacher by its weights: update 1: loss",
    ),
    "the average is not evaluated": Edit(
        "evaluation.py", "with run.average.applied() if averaged else", "with run.average.applied() if False else",
        "evaluation.evaluate_run", "moving average",
    ),
    "an evaluation in training mode": Edit("evaluation.py", "    model.eval()\n", "", "evaluation.evaluate", "plain: line 4"),
}  # fmt: skip


def assert_found(name, findings):
    edit = {**EDITS, **LOOP_EDITS}[name]
    assert findings, f"{name}: no witness says it"
    place, _, hint, measured = findings[0]
    assert place.startswith(edit.place) and edit.words in hint, findings
    assert "both sides share this code" in measured or "raises" in hint


def test_some_mistakes_of_shared_code_are_said_in_their_place_and_sound_code_is_silent():
    found = heard({"as it is": None, **{name: EDITS[name] for name in QUICK}}, (*TORCHVISION, *LOOPED))
    assert found.pop("as it is") == [] and len(found) == len(QUICK)
    for name, findings in found.items():
        assert_found(name, findings)


SLOW_TURNS = [
    pytest.param(0, marks=pytest.mark.slow),
    *(pytest.param(n, marks=[pytest.mark.slow, pytest.mark.weekly]) for n in (1, 2)),
]


def third(edits, turn):
    """Every third edit: each takes a process of its own."""
    return dict(list(edits.items())[turn::3])


@pytest.mark.parametrize("turn", SLOW_TURNS)
def test_mistakes_of_shared_code_are_said_in_their_place(turn):
    given = third({name: edit for name, edit in EDITS.items() if name not in QUICK}, turn)
    for name, findings in heard(given, LOOPED).items():
        assert_found(name, findings)


@pytest.mark.parametrize("turn", SLOW_TURNS)
def test_mistakes_of_the_shared_loop_are_said_in_their_place(turn):
    for name, findings in heard(third(LOOP_EDITS, turn), [one.place for one in WITNESSES if one.place not in LOOPED]).items():
        assert_found(name, findings)


@pytest.mark.parametrize("turn", SLOW_TURNS)
def test_sound_code_and_right_rewrites_are_silent(turn):
    given = third({**REWRITES, **LOOP_REWRITES}, turn)
    found = heard(given)
    assert found.keys() == given.keys()
    assert {name: findings for name, findings in found.items() if findings} == {}


# --- the mechanism ---------------------------------------------------------------------------------------------------------


def witness(*told, topics=("sgd",), step=5, place="shared.thing"):
    return Witness(place, topics, "a table by hand", lambda: iter(told), step)


def listened(context, *witnesses, result=None):
    sound = context()
    given = context(dataclasses.replace(sound.project, witnesses=witnesses))
    return given, witnessed.listen(given, 5, result or StepResult(5, "backward", covers=["sgd", "adam"], problems=["x"]))


def raises():
    yield Told("one", 1, 1)
    raise ValueError("not so")


@pytest.mark.parametrize(
    ("computed", "expected", "words"),
    [
        (1.0, 1.0 + 1e-12, ""),
        (1.0, 1.001, "1.0, expected 1.001"),
        (float("nan"), float("nan"), ""),
        (0.0, float("nan"), "0.0, expected nan"),
        (float("nan"), 0.0, "nan, expected 0.0"),
        ([1, 2], [1, 2, 3], "[1, 2], expected [1, 2, 3]"),
        ([[1], [2, 3]], [[1], [2, 3]], ""),
        ([[1], [2, 3]], [[1], [2, 4]], "[[1], [2, 3]], expected [[1], [2, 4]]"),
        ({"a": 1, "b": None}, {"a": 1, "b": None}, ""),
        ({"a": 1}, {"a": 1, "b": 2}, "b is missing, expected 2"),
        ({"a": 1, "c": 2}, {"a": 1}, "c is 2, expected missing"),
        (None, 0.0, "None, expected 0.0"),
        (0.0, None, "0.0, expected None"),
        (False, None, "False, expected None"),
        (("a", 1.0), ("a", 1.0), ""),
        (("a", 1.0), ("a", 2.0), "('a', 1.0), expected ('a', 2.0)"),
        ([np.zeros(2), np.ones(2)], [np.zeros(2), np.zeros(2)], "number 2 of 2: [1. 1.], expected [0. 0.]"),
        ("a", "b", "a, expected b"),
    ],
)
def test_values_agree_or_are_said(computed, expected, words):
    assert witnessed.apart(computed, expected) == words


def test_a_witness_fails_the_step_before_all_else(context):
    wrong = witness(Told("a case", 2, 3, "shared.part", Kind.RECIPE), place="b")
    _, result = listened(context, witness(Told("fine", 1, 1)), wrong)
    assert [row.name for row in result.quantities] == ["witness.shared.thing", "witness.b"]
    assert [row.passed for row in result.quantities] == [True, False] and result.quantities[1].reason == "a case: 2, expected 3"
    assert result.compared[0].explain() is None
    found = result.compared[1].explain()
    assert (found.stage, found.location, found.kind) == ("backward", "shared.part", Kind.RECIPE)
    assert found.measured == "against a table by hand; both sides share this code"


def test_a_witness_that_raises_or_tells_nothing_fails(context):
    broken = Witness("shared.thing", (), "x", raises, 5)
    _, result = listened(context, broken)
    assert result.quantities[0].reason == "raises ValueError: not so"
    assert result.compared[0].explain().kind is Kind.RAISES
    _, result = listened(context, witness())
    assert not result.quantities[0].passed


def test_of_several_witnesses_the_plainest_case_is_said_and_the_others_are_named():
    special = witness(Told("a teacher: line 1", 1, 2, "loop.loss", features=3), place="distilling")
    plain = [Told("plain: loss", 1, 1), Told("plain: line 1", 3, 2, "evaluate", features=0, instead="evaluate.loader")]
    several = Told("smoothing: line 1", 1, 2, "evaluate", features=1)
    for by_itself, place in (((), "evaluate"), ((2, 2), "evaluate.loader"), ((1, 2), "evaluate")):
        alone = [Told("by itself", *by_itself, "evaluate", features=1, alone=True)] if by_itself else []
        heard = [
            witnessed.Testimony(one) for one in (special, witness(several, *plain, place="training"), witness(*alone, place="last"))
        ]
        for one in heard:
            one.measure(None, "port")
        found = witnessed.headline(heard)
        assert found.location == place and found.hint.startswith("plain: line 1: 3, expected 2; also seen: a teacher, smoothing")
        assert ("by itself" in found.hint) == (by_itself == (1, 2))
    assert witnessed.headline(heard[:1]).location == "loop.loss" and witnessed.headline([]) is None


def test_a_plain_mistake_is_said_plainly_though_a_special_run_belongs_to_an_earlier_step(context):
    """The later step was not run: its witness is heard once the first has failed."""
    special = Witness("distilling", (), "x", lambda: iter([Told("a teacher: loss", 1, 2, features=3)]), 4)
    for right, place in ((2, "evaluate"), (1, "distilling")):
        plain = Witness("training", (), "x", lambda right=right: iter([Told("plain: loss", 1, right, "evaluate")]), 6)
        given = context(dataclasses.replace(context().project, witnesses=(special, plain)))
        step = witnessed.listen(given, 4, StepResult(4, "loss", stored=True))
        assert locate(given, [step], with_table=False).first.location == place
        step.quantities.append(Quantity("model.loss", [], mean_abs_diff=0.0))
        assert "FAILED" in (said := table([step])) and "yes" not in said, "that both sides agree says nothing"


@pytest.mark.slow
def test_mistakes_of_what_every_run_does_are_said_of_the_plain_run():
    found = heard({name: edit[:3] for name, edit in TOGETHER.items()}, TORCHVISION, together=True)
    for name, (*_, place, words) in TOGETHER.items():
        assert found[name][0][0] == place and words in found[name][0][2], found[name]


def test_a_topic_is_covered_only_where_its_witness_was_heard(context):
    given, result = listened(context, witness(Told("fine", 1, 1)))
    found = coverage_of(given, [result], coverage_seen())
    assert found.covered == ["sgd"] and "adam" in found.not_covered
    later = witness(Told("fine", 1, 1), step=6)  # one of two, of a step that was not run
    given, result = listened(context, witness(Told("fine", 1, 1)), later)
    assert "sgd" in coverage_of(given, [result], coverage_seen()).not_covered
    without = context(dataclasses.replace(context().project, witnesses=()))
    plain = StepResult(5, "backward", covers=["sgd", "adam"], problems=["x"])
    assert coverage_of(without, [plain], coverage_seen()).covered == ["sgd", "adam"], "a project whose sides share nothing"


def coverage_seen():
    from alignment.coverage import Seen

    return Seen()


def test_the_project_has_witnesses_of_every_step_with_shared_code():
    assert {one.step for one in WITNESSES} == {1, 2, 4, 5, 6}
    assert len({one.place for one in WITNESSES}) == len(WITNESSES)


def test_what_is_imported_while_a_run_is_held_stays_imported():
    """A second copy of a module, imported later, would not be the one that runs: an injected mistake had no effect."""
    import importlib
    import sys

    from projects.witnesses.loop.cases import undisturbed

    sys.modules.pop("colorsys", None)
    with undisturbed():
        inside = importlib.import_module("colorsys")
    assert importlib.import_module("colorsys") is inside


class Unexplained:
    """A comparison whose difference no hypothesis explains."""

    def explain(self, port, reference):
        return Finding("backward", "schedule_config(constant)", Kind.UNKNOWN, "no known mistake matches")


def test_a_cause_in_shared_code_says_more_than_a_difference_without_one(context):
    def heard(expected):
        told = [Told("warm-up", np.float64(5), expected)]
        witness = Witness("TrainConfig.schedule_config", (), "a table by hand", lambda: told, 5)
        testimony = witnessed.Testimony(witness)
        both = testimony.measure(None, "port"), testimony.measure(None, "reference")
        step = StepResult(5, "backward", problems=["apart"], stored=True)
        step.compared = [Compared(Unexplained(), {}, {}), Compared(testimony, *both)]
        return locate(context(), [step], with_table=False).first

    found = heard(65)
    assert found.shared and (found.location, found.hint) == ("TrainConfig.schedule_config", "warm-up: 5.0, expected 65")
    assert heard(5.0).hint == "no known mistake matches"
