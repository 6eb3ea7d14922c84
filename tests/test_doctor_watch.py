"""A watched run: planted training mistakes are found within two updates with their cause, and sound runs have none."""

from __future__ import annotations

import importlib
import json

import numpy as np
import pytest

from alignment_doctor.cli import main
from alignment_doctor.findings import Verdict, checks_of
from alignment_doctor.watch import Watch, checks
from alignment_doctor.watch.journal import Event, entries
from alignment_doctor.watch.training import Watching
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.train_log import EVENTS
from tests.conftest import LITE_DATA, run_command
from tests.training import train, weights, write_start
from tests.watched import OnTorch, batches, loop

FRAMEWORKS = ["torch", "paddle"]

# mistake -> its check, updates after which it is seen (in the loop of four updates and an evaluation), words of its cause, a place
PLANTED = {
    "left_over": ("watch.left_over", 2, "gradients of the update before are still there", "features.0.weight"),
    "lost": ("watch.lost", 1, "cleared in between", "update 1"),
    "cleared_early": ("watch.no_gradient", 2, "cleared before it", "features.0.weight"),
    "detached": ("watch.no_gradient", 2, "8 of 10 parameters never get a gradient", "features.0.weight"),
    "constant_loss": ("watch.no_gradient", 2, "the loss does not depend on the model's output", "head.bias"),
    "left_out": ("watch.left_out", 1, "2 parameters are not in the optimizer", "head.weight"),
    "built_before": ("watch.left_out", 1, "the optimizer holds none of the model's parameters", "head.weight"),
    "head_replaced": ("watch.left_out", 1, "2 parameters are not in the optimizer", "head.bias"),
    "no_step": ("watch.stands_still", 2, "no weight moves", "features.0.weight"),
    "frozen_left_on": ("watch.frozen_moves", 1, "2 frozen tensors move", "features.0.weight"),
    "frozen_statistics": ("watch.frozen_moves", 1, "4 frozen statistics move", "features.1.running_mean"),
    "momentum": ("watch.statistics", 2, "2 of 4 statistics stand still", "features.1.running_var"),
    "evaluation_mode": ("watch.evaluation_mode", 1, "the model trains in evaluation mode", "dropout"),
    "stays_in_evaluation": ("watch.evaluation_mode", 5, "in evaluation mode, though they did not before", "dropout"),
    "training_mode": ("watch.training_mode", 4, "3 layers are in training mode during the evaluation", "features.4"),
    "functional_dropout": ("watch.random_evaluation", 4, "dropout is active", "the model's output"),
    "average_left": ("watch.changed_by_evaluation", 4, "the evaluation changed 1 tensor", "head.weight"),
    "schedule_not_stepped": ("watch.rate", 2, "0.02, where the schedule has 0.018", "update 2"),
    "schedule_twice": ("watch.rate", 2, "0.0162, where the schedule has 0.018", "update 2"),
    "state_lost": ("watch.state", 4, "none of the optimizer's 10 tensors of state", "update 4"),  # its first update after three
    "spoilt_picture": ("watch.finite", 2, "overflowed", "gradient of features.0.weight"),
    "dead": ("watch.dead", 2, "1 activation is dead", "features.5"),
    "summed": ("watch.step_size", 1, "of their size", None),
    "softmax_twice": ("watch.probabilities", 1, "the loss takes their softmax again", "the model's output"),
    "sigmoid_twice": ("watch.probabilities", 1, "the loss takes their sigmoid again", "the model's output"),
    "likelihood_of_logits": ("watch.likelihood", 1, "the model gives numbers that are none", "the model's output"),
    "broadcast": ("watch.one_target", 2, "to the mean of their targets, not to their own", "the loss"),
    "written_back": ("watch.stands_still", 2, "its steps are undone", "features.0.weight"),
    "constant_start": ("watch.equal_units", 2, "the units of 1 layer are equal and stay equal", "features.0.weight"),
    "unregistered": ("watch.unregistered", 1, "4 parameters get a gradient and are no part of the model", "Linear.weight, layer 1"),
    "one_class": ("watch.no_gradient", 2, "a cross-entropy over one column is 0 whatever the output", "features.0.weight"),
    "cut_off": ("watch.probabilities", 1, "the model ends with a ReLU", "the model's output"),
    "clipped_scaled": ("watch.clipped_scaled", 2, "clipped to 0.5 while they are multiplied by 256", "update 2"),
    "rate_zero": ("watch.rate", 2, "the learning rate is 0", "update 2"),
}
ON_A_GPU = {("clipped_scaled", "paddle"), ("overflowing", "paddle")}  # Paddle's loss scaler works there alone
SLOWER = {  # what takes several looks by its nature
    "overflowing": ("watch.scale", "4 of the last 5 looks had gradients that overflow"),
    "memory": ("watch.memory", "MiB more with every update"),
    "constant_loss": ("watch.loss", "the loss no longer moves: 1 in 20 updates"),
}
WITH = {
    "written_back": {"watch.statistics"},
    "training_mode": {"watch.changed_by_evaluation"},
    "dead": {"watch.no_gradient"},
}  # what follows from a mistake


@pytest.mark.parametrize(
    ("mistake", "framework"),
    [(mistake, framework) for mistake in PLANTED for framework in FRAMEWORKS if (mistake, framework) not in ON_A_GPU],
)
def test_a_planted_mistake_is_found_within_two_updates_with_its_cause(framework, mistake):
    check, update, cause, place = PLANTED[mistake]
    told = loop(framework, mistake, accumulate=2 if mistake == "lost" else 1)
    assert set(told.events) - WITH.get(mistake, set()) == {check}
    event = told.events[check]
    assert event.update == update and cause in event.cause and event.fix
    assert place is None or place in event.where
    assert any(f"[watch {check}] update {update}: {event.cause}" in line for line in told.lines)


@pytest.mark.parametrize(
    ("framework", "mistake"),
    [(framework, mistake) for framework in FRAMEWORKS for mistake in SLOWER if (mistake, framework) not in ON_A_GPU],
)
def test_what_shows_in_time_is_found_in_time(framework, mistake):
    check, cause = SLOWER[mistake]
    # In a process of its own: in one that has used much memory before, what is kept takes the place of what was freed.
    told = f"loop({framework!r}, {mistake!r}, updates=24, every=3, evaluate=False).events[{check!r}].cause"
    run = run_command("-c", f"from tests.watched import loop; print({told})")
    assert run.returncode == 0 and cause in run.stdout, run.stderr[-900:]


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    ("kept", "cause"),
    [
        ("summed_losses", "the graphs of 19 earlier losses are still alive"),  # a tenth of a MiB with every update
        ("listed_losses", "the graphs of 19 earlier losses are still alive"),
        ("listed_outputs", "the graphs of 14 earlier outputs of the model are still alive"),
    ],
)
def test_graphs_that_are_kept_are_counted_however_small_they_are(framework, kept, cause):
    told = loop(framework, kept, updates=20, lr=0.005, evaluate=False)
    assert set(told.events) == {"watch.memory"} and told.events["watch.memory"].update == 20
    assert told.events["watch.memory"].cause.startswith(cause)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_is_kept_without_its_graph_or_for_ten_updates_has_no_event(framework):
    for kept in ("numbers_kept", "summed_by_ten", ""):
        told = loop(framework, kept, updates=45, lr=0.005)
        assert (told.lines, told.events) == ([], {}), kept


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("kind", ["sgd", "adamw", "rmsprop"])
def test_a_sound_loop_has_no_event(framework, kind):
    for seed in range(2):
        for mistake in ("", "resumed", "scaler", "probabilities"):
            told = loop(
                framework,
                mistake,
                updates=12,
                kind=kind,
                seed=seed,
                accumulate=1 + seed,
                every=3,
                lr=0.005,
                evaluate=mistake != "probabilities",
            )
            assert (told.lines, told.events) == ([], {}), (mistake, seed)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_losses_of_one_column_and_of_probabilities_have_no_event(framework):
    """Log-probabilities, a regression, a discriminator whose targets are all 1, and a binary cross-entropy of probabilities."""
    for loss in ("likelihood", "regression", "discriminator", "binary"):
        told = loop(framework, loss, updates=6, lr=0.005, every=1)
        assert (told.lines, told.events) == ([], {}), loss


def test_layers_that_begin_with_one_value_and_learn_have_no_event():
    """A last layer of zeros, a mean as the first depthwise kernel, and a normalisation of two axes."""
    import torch

    torch.manual_seed(0)
    first, last = torch.nn.Conv2d(3, 3, 3, groups=3), torch.nn.Linear(3 * 36, 4)
    torch.nn.init.constant_(first.weight, 1 / 9)
    torch.nn.init.zeros_(last.weight)
    model = torch.nn.Sequential(first, torch.nn.LayerNorm([3, 6, 6]), torch.nn.Flatten(), last)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watch = Watch(model, optimizer, say=lambda line: pytest.fail(line))
    for pictures, labels in batches(4):
        loss = torch.nn.functional.cross_entropy(model(torch.tensor(pictures)), torch.tensor(labels))
        loss.backward()
        watch.before_update(loss)
        optimizer.step()
        optimizer.zero_grad()
        watch.after_update()
    assert watch.findings["watch.equal_units"].outcome.verdict is Verdict.NONE


OF_RANKS = {
    "none": (None, ""),
    "start": ("watch.rank_start", "features.0.weight on rank 1"),
    "gradients": ("watch.rank_gradients", "features.0.weight on rank 1"),
    "weights": ("watch.rank_weights", "head.weight on rank 1"),
    "rate": ("watch.rank_rate", "learning rate on rank 1"),
    "data": ("watch.rank_data", "ranks 0 and 1"),
    "statistics": ("watch.rank_statistics", "features.1.running_mean on rank 1"),
}
QUICK_RANKS = [("torch", "start"), ("paddle", "gradients")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "mistake"),
    [
        pytest.param(framework, mistake, marks=[] if (framework, mistake) in QUICK_RANKS else [pytest.mark.weekly])
        for framework in FRAMEWORKS
        for mistake in OF_RANKS
    ],
)
def test_a_mistake_of_ranks_is_found_at_the_first_update_by_the_real_launchers(framework, mistake, tmp_path):
    check, place = OF_RANKS[mistake]
    events = events_of_ranks(framework, mistake, tmp_path)
    assert [(event[0], event[1]) for event in events] == ([(check, 1)] if check else [])
    assert not check or place in events[0][2]


def events_of_ranks(framework, mistake, folder):
    """What rank 0 of two tells of a planted mistake: check, update, places; logs go to the folder."""
    launchers = {
        "torch": ("torch.distributed.run", "--standalone", "--nproc-per-node=2", f"--log-dir={folder}", "--redirects=3"),
        "paddle": ("paddle.distributed.launch", "--nproc_per_node=2", f"--log_dir={folder}"),
    }
    run = run_command("-m", *launchers[framework], "tests/watched_ranks.py", framework, mistake, PYTHONPATH=".", timeout=200)
    assert run.returncode == 0, run.stdout + run.stderr
    texts = [path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()]
    (told,) = {line for text in texts for line in text.splitlines() if line.startswith("TOLD ")}
    return json.loads(told.removeprefix("TOLD "))


def test_every_check_has_a_planted_mistake():
    found = {check for check, *_ in (*PLANTED.values(), *SLOWER.values())}
    ranks = {check for check, _ in OF_RANKS.values() if check}
    assert {check.id for check in checks_of(checks)} == found | ranks


def test_a_model_that_is_called_in_parts_is_watched_but_for_what_needs_the_whole(tmp_path):
    import torch

    model = OnTorch.Net("")
    optimizer = OnTorch.optimizer(model.parameters(), 0.01, "sgd")
    watch = Watch(model, optimizer, say=lambda line: pytest.fail(line))
    for _ in range(3):
        loss = model.head(model.features(torch.randn(4, 3, 8, 8)).mean((2, 3))).square().mean()
        loss.backward()
        watch.before_update(loss)
        optimizer.step()
        optimizer.zero_grad()
        watch.after_update()
    assert watch.findings["watch.left_over"].outcome.measured.startswith("the model was not called as a whole")
    assert watch.findings["watch.stands_still"].outcome.measured == "10 parameters move"


def test_a_watch_takes_its_hooks_away():
    told = loop("torch", "")
    model = told.watch._eyes.model
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_what_cannot_be_watched_is_one_clear_line():
    with pytest.raises(UserError, match="is not a module of"):
        Watch(object(), None)
    with pytest.raises(UserError, match="every and accumulate must be at least 1"):
        Watch(OnTorch.Net(""), None, every=0)


# --- the command and the journal ------------------------------------------------------------------------------------------------


def test_the_command_shows_what_a_run_told(tmp_path, capsys):
    loop("torch", "left_over", journal=tmp_path / EVENTS)
    assert main(["watch", str(tmp_path), "--json", str(tmp_path / "w.json"), "--html", str(tmp_path / "w.html")]) == 1
    shown = capsys.readouterr().out
    assert "watch.left_over: gradients of the update before are still there" in shown
    assert "update 2, rank 0: features.0.weight" in shown and "optimizer.zero_grad() in torch" in shown
    facts = json.loads((tmp_path / "w.json").read_text())["facts"]
    assert [event["check"] for event in facts["events"]] == ["watch.left_over"]
    assert "watch.left_over" in (tmp_path / "w.html").read_text()
    loop("torch", "", journal=tmp_path / "sound.jsonl")
    assert main(["watch", str(tmp_path / "sound.jsonl")]) == 0
    assert "No problem found" in capsys.readouterr().out


def test_an_event_of_another_version_is_shown(tmp_path, capsys):
    told = {"kind": "event", "update": 3, "check": "watch.later", "rank": 0, "cause": "c", "where": [1], "fix": None}
    (tmp_path / EVENTS).write_text(json.dumps(told) + "\n")
    assert main(["watch", str(tmp_path)]) == 1
    assert "watch.later: c\n  update 3, rank 0: 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no such file; train with --watch"),
        ("", "the run has made no update yet"),
        ("abc\n{}\n", "line 1, is no entry of a watched run"),
        ("[" * 100_000, "line 1, is no entry of a watched run"),
        ('{"kind": "event", "update": 1}\n', "has an event that cannot be read"),
        ('{"kind": "checks", "update": 1, "checks": 5}\n', "has verdicts that cannot be read"),
        ('{"kind": "train", "update": 1}\n{"kind": "train", "update": 2}\n', "line 1, is no entry of a watched run"),
        ("\udcff", "cannot be read"),
    ],
)
def test_an_odd_journal_is_one_clear_line(tmp_path, capsys, text, said):
    if text is not None:
        (tmp_path / EVENTS).write_text(text, errors="surrogateescape")
    assert main(["watch", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_a_run_that_goes_on_drops_what_was_written_beyond_its_place(tmp_path):
    loop("torch", "left_over", journal=tmp_path / EVENTS)
    before = entries(tmp_path / EVENTS)
    with (tmp_path / EVENTS).open("a") as file:
        file.write('{"kind": "event", "upd')  # the half of a line that a killed run left
    Watch(OnTorch.Net(""), OnTorch.optimizer(OnTorch.Net("").parameters(), 0.1, "sgd"), tmp_path / EVENTS, update=1)
    assert entries(tmp_path / EVENTS) == [entry for entry in before if entry["update"] <= 1] != before


# --- tools/train.py -------------------------------------------------------------------------------------------------------------

RECIPE = {
    "data_path": str(LITE_DATA), "crop_size": 32, "resize_size": 36, "width_mult": 0.5, "workers": 0, "batch_size": 4, "epochs": 2,
    "lr": 0.002, "optimizer": "adamw", "device": "cpu", "print_every": 1,
}  # fmt: skip
RECIPES = {
    "adamw": {},
    "sgd": {"optimizer": "sgd", "lr": 0.02, "warmup_epochs": 1},
    "rmsprop": {"optimizer": "rmsprop", "eps": 0.0316, "lr_schedule": "step", "lr_unit": "epoch", "lr_step_epochs": 1},
    "mixing": {"mixup_alpha": 0.2, "cutmix_alpha": 1.0, "label_smoothing": 0.1},
    "averaging": {"ema_decay": 0.9, "clip_norm": 1.0, "lr_schedule": "exponential", "lr_gamma": 0.9},
    "accumulating": {"accumulate": 2, "batch_size": 2},
    "frozen": {"freeze_bn": True, "lr": 0.0005, "pretrained": True},
    "fine_tuning": {"lr": 0.0005, "pretrained": True},
}
QUICK_RECIPES = [("ref", "rmsprop"), ("ref", "averaging"), ("ref", "frozen"), ("paddle", "mixing"), ("paddle", "accumulating")]


def watched(folder, framework, start=None, **settings):
    """A run of training in this process, watched: its observer."""
    if settings.get("pretrained"):
        settings["pretrained"] = str(start)
    config = TrainConfig(**{**RECIPE, "framework": framework, "output_dir": str(folder), **settings})
    observer = Watching()
    assert importlib.import_module(f"mobilenetv3_{framework}.train").train(config, observer=observer) == 0
    return observer


@pytest.fixture(scope="module")
def start(tmp_path_factory, small_state):
    return write_start(tmp_path_factory.mktemp("start"), small_state)


@pytest.mark.parametrize("framework", ["ref", "paddle"])
def test_a_watched_run_trains_to_the_same_bits_and_tells_nothing(framework, tmp_path, capsys):
    observer = watched(tmp_path / "watched", framework)
    shown = capsys.readouterr().out
    assert "watched updates 1 to 8: 0 events" in shown and "[watch" not in shown
    assert importlib.import_module(f"mobilenetv3_{framework}.train").train(
        TrainConfig(**{**RECIPE, "framework": framework, "output_dir": str(tmp_path / "plain")})
    ) == 0  # fmt: skip
    a, b = weights(tmp_path / "plain"), weights(tmp_path / "watched")
    assert a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
    judged = {id: one.outcome.verdict for id, one in observer.watch.findings.items()}
    left = {"watch.state", "watch.loss", "watch.memory", "watch.lost", "watch.scale", "watch.frozen_moves", "watch.clipped_scaled"}
    assert {id for id, verdict in judged.items() if verdict is Verdict.NOT_APPLICABLE and ".rank_" not in id} == left
    assert main(["watch", str(tmp_path / "watched")]) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "recipe"),
    [
        pytest.param(framework, recipe, marks=[] if (framework, recipe) in QUICK_RECIPES else [pytest.mark.weekly])
        for framework in ("ref", "paddle")
        for recipe in RECIPES
    ],
)
def test_sound_recipes_have_no_event(framework, recipe, tmp_path, start):
    observer = watched(tmp_path, framework, start, **RECIPES[recipe], seed=len(recipe))
    assert observer.watch.told == []


@pytest.mark.slow
@pytest.mark.parametrize("framework", [pytest.param("ref", marks=pytest.mark.weekly), "paddle"])
def test_the_flag_watches_a_run_that_goes_on(framework, tmp_path):
    flags = ("--framework", framework, "--device", "cpu", "--watch", "--save-every", "1", "--keep", "9")
    assert train(tmp_path, *flags).returncode == 0
    run = train(tmp_path, *flags, "--resume", str(tmp_path / "update_000000003.safetensors"))
    assert run.returncode == 0, run.stderr
    assert "watched updates 4 to 8: 0 events" in run.stdout and "[watch" not in run.stdout
    states = entries(tmp_path / EVENTS)[-1]["checks"]
    assert states["watch.state"][0] == "none found"


def test_events_are_told_once_and_by_rank():
    event = Event("watch.x", 3, 1, "cause", ("a", "b", "c", "d"), "fix")
    assert event.line() == "[watch watch.x] update 3, rank 1: cause (a, b, c and 1 more); fix"


def test_a_kernel_whose_looked_at_taps_get_no_gradient_does_not_stand_still():
    """Of a 5 x 5 kernel on a small map the outer taps see padding alone."""
    import torch

    model = torch.nn.Sequential(torch.nn.Conv2d(64, 64, 5, padding=2, groups=64, bias=False), torch.nn.Flatten())
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    watch = Watch(model, optimizer, say=lambda line: pytest.fail(line))
    for _ in range(3):
        loss = model(torch.randn(2, 64, 1, 1)).square().mean()  # the tap in the middle alone has a gradient
        loss.backward()
        watch.before_update(loss)
        optimizer.step()
        optimizer.zero_grad()
        watch.after_update()
    assert watch.findings["watch.stands_still"].outcome.measured == "1 parameter moves"
