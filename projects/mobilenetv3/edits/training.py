"""Faults of whole runs: recipe, averages, checkpoints, freezing."""

from .base import AVERAGE, BACKEND, ENGINE, SCHEDULE, STATE, built_run, configured, fault

SHADOW = 'self.shadow[name] * self.decay + tensor.astype("float32") * (1.0 - self.decay)'
IMPORTED = "from mobilenetv3_common.training import micro_batches, save, update\n"
OWN_TENSORS = "        for own, tensor in tensors.items()\n"
TRAIN_MODE = "    model.train()\n    if freeze_bn:\n"


def training(location: str, hint: str, name: str, *changes: tuple[str, str, str]) -> None:
    fault("training", 6, location, hint, name, *changes)


# --- the known ones --------------------------------------------------------------------------------------------------------

training("config.lr", "recipe", "learning_rate_doubled", configured("lr=2 * config.lr"))
training("config.clip_norm", "recipe", "recipe_without_clipping", configured("clip_norm=None"))
training("loss", "smoothing_missing", "run_without_smoothing", built_run("made.criterion.label_smoothing = 0.0"))
training("loss", "dropout_missing", "run_without_dropout", built_run("made.model.classifier[2] = nn.Identity()"))
training("loss", "statistics_frozen", "trained_in_evaluation_mode", (BACKEND, TRAIN_MODE, "    model.train()\n    if True:\n"))
training("micro_batches", "order", "order_of_another_seed", built_run("made.plan.seed += 1"))
training("schedule", "schedule_never_stepped", "run_never_steps_its_schedule", built_run("made.schedule.step = lambda: None"))
training(
    "update.weights", "gradient_not_cleared", "gradients_kept",
    (ENGINE, IMPORTED, "from mobilenetv3_common.training import micro_batches, save\n"
     "from mobilenetv3_common.training import update as whole_update\n"),
    (ENGINE, "def train(", '''def update(run, gathered):
    clear = run.optimizer.clear_grad
    run.optimizer.clear_grad = lambda: None
    whole_update(run, gathered)
    run.optimizer.clear_grad = clear


def train('''),
)  # fmt: skip
training(
    "evaluate_run", "evaluation", "evaluated_wrong",
    (ENGINE, "from mobilenetv3_common.evaluation import Evaluation, evaluate_run, evaluation_loader\n",
     "from mobilenetv3_common.evaluation import Evaluation, evaluation_loader\n"
     "from mobilenetv3_common.evaluation import evaluate_run as whole_evaluation\n"),
    (ENGINE, "def train(", '''def evaluate_run(run, loader):
    return __import__("dataclasses").replace(whole_evaluation(run, loader), top1=0.99)


def train('''),
)  # fmt: skip

# --- averages, checkpoints, freezing ---------------------------------------------------------------------------------------

fault(
    "average", 6, "MovingAverage", "average_decay_inverted|moving_average", "average_decay_inverted",
    (AVERAGE, SHADOW, 'self.shadow[name] * (1.0 - self.decay) + tensor.astype("float32") * self.decay'),
)  # fmt: skip
fault(
    "average", 6, "MovingAverage", "average_without_statistics|moving_average", "average_without_statistics",
    (AVERAGE, "        for name, tensor in state.items():\n            self.shadow[name] = self",
     '        for name, tensor in state.items():\n            if name.endswith(("_mean", "_variance")):\n                continue\n'
     "            self.shadow[name] = self"),
)  # fmt: skip
fault(
    "average", 6, "MovingAverage", "average_start|moving_average", "average_starts_at_zero",
    (AVERAGE, 'tensor.astype("float32").clone() for name', 'paddle.zeros_like(tensor.astype("float32")) for name'),
)  # fmt: skip
fault(
    "average", 6, "MovingAverage", "average_not_applied|moving_average", "average_never_applied",
    (AVERAGE, "            state[name].set_value(tensor.astype(state[name].dtype))\n", "            pass\n"),
)  # fmt: skip
fault(
    "average", 6, "MovingAverage.applied", "average_not_taken_out|moving_average", "average_left_in",
    (AVERAGE, "                state[name].set_value(tensor)\n", "                pass\n"),
)  # fmt: skip
fault(
    "resume", 6, "resume.optimizer", "state_not_restored", "optimizer_state_lost",
    (STATE, "        tensor.set_value(arrays[name])\n\n", "        pass\n\n"),
)  # fmt: skip
fault(
    "resume", 6, "resume.optimizer", "state_not_saved|state_not_restored", "optimizer_state_not_saved",
    (STATE, 'return found | {f"master/', 'return {} if found else found | {f"master/'),
)  # fmt: skip
fault(
    "resume", 6, "resume.optimizer", "state_not_saved", "velocity_of_sgd_lost",
    (STATE, OWN_TENSORS, OWN_TENSORS + '        if kind != "velocity"\n'),
    (STATE, "for own, t in ts.items()}\n", 'for own, t in ts.items() if kind != "velocity"}\n'),
)  # fmt: skip
fault(
    "resume", 6, "resume.schedule", "state_not_restored", "schedule_restarted",
    (SCHEDULE, '    schedule.set_state_dict(meta["schedule"])\n', "    pass\n"),
)  # fmt: skip
fault(
    "resume", 6, "resume.average", "state_not_restored", "average_lost",
    (AVERAGE, "{name: paddle.to_tensor(array) for name, array in arrays.items()}", "{}"),
)  # fmt: skip
fault(
    "freezing", 6, "freeze_bn: features.0.1.bias", "not_frozen", "norm_layers_not_frozen",
    (BACKEND, "                    parameter.stop_gradient = True\n", "                    pass\n"),
)  # fmt: skip
fault(
    "freezing", 6, "freeze_bn: features.0.1.running_mean", "not_frozen", "statistics_not_frozen",
    (BACKEND, "                layer.eval()\n", "                pass\n"),
)  # fmt: skip
fault(
    "training", 6, "update.statistics", "momentum", "momentum_of_the_recipe_ignored",
    (BACKEND, "layer.momentum = config.bn_momentum or layer.momentum", "pass"),
)  # fmt: skip
fault("training", 6, "loss", "dropout_on|order", "dropout_of_another_seed", built_run("made.dropout.seed += 1"))

# --- what a run is built from ----------------------------------------------------------------------------------------------

BUILDER = "functools.partial(MODELS[config.model], width_mult=config.width_mult, dropout=config.dropout)"

training("build_model", "other_seed", "seed_forgotten", (BACKEND, "    paddle.seed(config.seed)\n", ""))
training(
    "build_model", "recipe", "dropout_of_the_recipe_ignored",
    (BACKEND, BUILDER, BUILDER.replace(", dropout=config.dropout", "")),
)  # fmt: skip
training(
    "build_model", "recipe", "width_of_the_recipe_ignored",
    (BACKEND, BUILDER, BUILDER.replace(" width_mult=config.width_mult,", "")),
)  # fmt: skip
training("loss", "statistics_frozen|evaluation_mode", "training_mode_never_set", (BACKEND, TRAIN_MODE, "    if freeze_bn:\n"))
