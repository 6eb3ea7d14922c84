"""tools/doctor.py compare: planted differences of two runs are found where they begin, and sound pairs do not part."""

from __future__ import annotations

import importlib
import json
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import yaml

from alignment_doctor.cli import main
from alignment_doctor.compare import checks
from alignment_doctor.compare.logs import MEAN, Entry, RunLog, epoch_means, read_run
from alignment_doctor.compare.subject import RunsSubject
from alignment_doctor.compare.verdict import verdict
from alignment_doctor.findings import Verdict, checks_of, examine
from mobilenetv3_common.config_file import make_config
from mobilenetv3_common.train_config import TrainConfig
from tests.conftest import LITE_DATA, run_command
from tests.training import write_start

SMALL = {
    "data_path": str(LITE_DATA), "crop_size": 32, "resize_size": 32, "width_mult": 0.5, "workers": 0, "batch_size": 4, "epochs": 2,
    "print_every": 1, "lr": 0.02, "framework": "ref", "device": "cpu",
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(small_state, tmp_path_factory):
    """Trains for eight updates and returns the run's folder; equal settings are trained once."""
    folder = tmp_path_factory.mktemp("runs")
    start = write_start(folder, small_state)
    done = {}
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def train(**changes):
        key = json.dumps(changes, sort_keys=True, default=str)
        if key not in done:
            target = folder / str(len(done))
            settings = {**SMALL, "pretrained": str(start), "output_dir": str(target), **changes}
            config = make_config(TrainConfig, None, settings)
            assert importlib.import_module(f"mobilenetv3_{config.framework}.train").train(config) == 0
            done[key] = Path(config.output_dir)
        return done[key]

    yield train
    for number, handler in handlers.items():
        signal.signal(number, handler)


def problems(first, second, repeats=(), same_start=None):
    subject = RunsSubject(read_run(first), read_run(second), [read_run(path) for path in repeats], same_start)
    return {one.check.id: one.outcome.where for one in examine(checks, subject) if one.is_problem}


def verdicts(first, second, repeats=(), same_start=None):
    subject = RunsSubject(read_run(first), read_run(second), [read_run(path) for path in repeats], same_start)
    return {one.check.id: one.outcome.verdict for one in examine(checks, subject)}


def said(first, second, repeats=(), same_start=None):
    return verdict(RunsSubject(read_run(first), read_run(second), [read_run(path) for path in repeats], same_start))


# --- sound pairs ------------------------------------------------------------------------------------------------------------


def test_the_same_training_in_both_frameworks_does_not_part(trained):
    one, other = trained(), trained(framework="paddle")
    told = verdicts(one, other, [trained(seed=1)])
    assert Verdict.FOUND not in told.values()
    assert all(told[f"compare.{name}"] is Verdict.NONE for name in ("first_loss", "second_loss", "curve", "learning_rate"))
    assert said(one, one) == "equal but for rounding up to update 8, the last one of both"
    assert said(one, other, [trained(seed=1)]).startswith("equal but for rounding up to update ")


@pytest.mark.slow
def test_a_resumed_run_does_not_part(trained, tmp_path):
    target = tmp_path / "resumed"
    shutil.copytree(trained(), target)
    for number in (4, 8):
        assert (target / f"update_{number:09d}.safetensors").is_file()
    again = trained(resume=str(target / "update_000000004.safetensors"), output_dir=str(target))
    assert problems(trained(), again) == {}
    assert said(trained(), again) == "equal but for rounding up to update 8, the last one of both"
    assert [entry.update for entry in read_run(target).entries] == [*range(1, 9)]


@pytest.mark.slow
def test_another_seed_is_chance(trained):
    assert problems(trained(), trained(seed=3), [trained(seed=1), trained(seed=2)]) == {}


# --- planted differences ------------------------------------------------------------------------------------------------------

FIRST = {
    "hflip_prob": 1.0,
    "min_crop_scale": 0.9,
    "mixup_alpha": 0.4,
    "random_erase": 1.0,
    "crop_size": 48,
    "dropout": 0.5,
    "auto_augment": "ra",
    "cutmix_alpha": 1.0,
    "class_weights": "1,2,3,4,5,6,7,8",
}
SECOND = {"clip_norm": 0.01, "optimizer": "adamw", "warmup_epochs": 1, "weight_decay": 1.0, "nesterov": True, "layer_decay": 0.5}
WITH_THE_RATE = {"lr", "warmup_epochs"}


FIRST_NOW, SECOND_NOW = {"label_smoothing": 0.2}, {"lr": 0.06}


@pytest.mark.parametrize("name", [*FIRST_NOW, *(pytest.param(name, marks=pytest.mark.slow) for name in FIRST)])
def test_a_difference_before_the_first_update_is_found_there(trained, name):
    changed = {name: (FIRST_NOW | FIRST)[name], **({"resize_size": 48} if name == "crop_size" else {})}
    found = problems(trained(), without_settings(trained(**changed)), same_start=True)
    assert "compare.first_loss" in found and "compare.second_loss" not in found
    assert said(trained(), trained(**changed), same_start=True) == "the runs part at update 1, by the loss"
    assert any(place.startswith(f"{name}: ") for place in problems(trained(), trained(**changed))["compare.settings"])


@pytest.mark.parametrize("name", [*SECOND_NOW, *(pytest.param(name, marks=pytest.mark.slow) for name in SECOND)])
def test_a_difference_of_the_update_is_found_at_the_second_loss(trained, name):
    found = problems(trained(), without_settings(trained(**{name: (SECOND_NOW | SECOND)[name]})), same_start=True)
    assert "compare.second_loss" in found and "compare.first_loss" not in found
    assert ("compare.learning_rate" in found) == (name in WITH_THE_RATE)
    parting = "update 1, by the learning rate" if name in WITH_THE_RATE else "update 2, by the loss"
    assert said(trained(), trained(**{name: (SECOND_NOW | SECOND)[name]}), same_start=True) == f"the runs part at {parting}"


def test_another_number_of_pictures_an_update_is_found(trained):
    """A double batch, and half a batch twice an update, which is a whole one again."""
    assert problems(trained(), trained(batch_size=8))["compare.pictures"][0] == "update 1: 4 and 8"
    assert verdicts(trained(), trained(batch_size=2, accumulate=2, lr=0.002))["compare.pictures"] is Verdict.NONE


def test_what_is_evaluated_and_written_besides_is_no_difference(trained, tmp_path):
    """Evaluations of the weights themselves are no updates, and no setting of theirs changes what is learnt."""
    averaged = {"ema_decay": 0.5}
    more = trained(**averaged, eval_raw=True, keep_best=2, check_data=True, picture_cache=str(tmp_path / "cache"))
    assert (more / "eval_raw.csv").is_file()
    assert problems(trained(**averaged), more) == {}
    assert [entry.lr for entry in read_run(more).entries] == [entry.lr for entry in read_run(trained(**averaged)).entries]


def test_updates_that_are_counted_from_0_are_judged_by_their_place(tmp_path):
    def log(name, losses):
        lines = [json.dumps({"update": number, "loss": loss, "lr": float("nan")}) for number, loss in enumerate(losses)]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        return tmp_path / name

    one, other = log("a.jsonl", [3.0, 2.0, 1.5, 1.2]), log("b.jsonl", [3.0, 2.2, 1.5, 1.2])
    assert set(problems(one, other, same_start=True)) == {"compare.second_loss"}
    spoilt = log("c.jsonl", [3.0, 2.0, float("nan"), 1.2])
    assert "compare.finite" in problems(one, one, [spoilt])


@pytest.mark.slow
def test_another_momentum_is_found_at_the_third_loss(trained):
    """It has no part in the first update."""
    assert said(trained(), trained(momentum=0.5), [trained(framework="paddle")]) == "the runs part at update 3, by the loss"


@pytest.mark.slow
@pytest.mark.weekly
def test_two_ranks_are_equal_to_one_but_for_rounding(trained, tmp_path):
    """With frozen statistics: others are those of a rank's own pictures."""
    one = trained(freeze_bn=True)
    settings = {**read_run(one).settings, "output_dir": str(tmp_path / "two"), "batch_size": 2}
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(settings))
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    run = run_command(*launcher, "tools/train.py", "--config", tmp_path / "two.yaml", PYTHONPATH=".")
    assert run.returncode == 0, run.stderr[-900:]
    assert problems(one, tmp_path / "two") == {}
    assert said(one, tmp_path / "two") == "equal but for rounding up to update 8, the last one of both"


@pytest.mark.slow
def test_another_schedule_is_found_at_the_update_where_it_differs(trained):
    assert said(trained(), trained(lr_schedule="step")) == "the runs part at update 2, by the learning rate"
    found = problems(trained(), trained(lr_schedule="step"))
    assert found["compare.learning_rate"][0].startswith("update 2: ")


def without_settings(run):
    """The same run without its config, as other people's logs are."""
    target = run.with_name(f"{run.name}_bare")
    target.mkdir(exist_ok=True)
    shutil.copy(run / "train_log.jsonl", target)
    return target


def test_a_change_in_the_middle_is_found_where_it_begins(trained, tmp_path):
    run = tmp_path / "changed"
    run.mkdir()
    lines = [json.loads(line) for line in (trained() / "train_log.jsonl").read_text().splitlines()]
    for line in lines:
        if line["kind"] == "train" and line["update"] >= 6:
            line["loss"] *= 3
    (run / "train_log.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = problems(trained(), run, [trained(framework="paddle")])
    assert found["compare.curve"][0].startswith("update 6: ")
    assert said(trained(), run, [trained(framework="paddle")]) == "the runs part at update 6, by the loss"
    assert "no update is said to be the first" in said(trained(), trained(seed=1))


# --- judged by numbers alone --------------------------------------------------------------------------------------------------


def a_log(path, losses, top1=None, samples=10_000, lr=0.1):
    lines = [{"kind": "train", "epoch": 0, "update": n + 1, "loss": loss, "lr": lr} for n, loss in enumerate(losses)]
    if top1 is not None:
        lines.append({"kind": "eval", "epoch": 0, "top1": top1, "samples": samples})
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def test_accuracy_is_judged_by_repeated_runs_else_by_the_number_of_pictures(tmp_path):
    def run(name, top1, samples=50_000):
        return a_log(tmp_path / f"{name}.jsonl", [1.0], top1, samples)

    first, repeats = run("a", 0.670), [run("r1", 0.671), run("r2", 0.669)]
    assert "compare.final_accuracy" not in problems(first, run("b", 0.6685), repeats)
    assert "compare.final_accuracy" in problems(first, run("c", 0.660), repeats)
    assert "compare.final_accuracy" not in problems(first, run("d", 0.669))
    assert "compare.final_accuracy" in problems(first, run("e", 0.650))
    assert "compare.final_accuracy" not in problems(run("f", 0.60, 20), run("g", 0.70, 20)), "twenty pictures tell little"


FINAL = {  # right answers of both runs, of so many pictures -> verdict
    (18, 9, 18): Verdict.FOUND, (16, 3, 16): Verdict.FOUND, (30, 12, 30): Verdict.FOUND, (6700, 6450, 10_000): Verdict.FOUND,
    (18, 12, 18): Verdict.NOT_APPLICABLE, (2, 2, 16): Verdict.NOT_APPLICABLE, (3, 0, 3): Verdict.NOT_APPLICABLE,
    (670, 650, 1000): Verdict.NONE, (6700, 6690, 10_000): Verdict.NONE,
}  # fmt: skip


@pytest.mark.parametrize("counts", FINAL)
def test_accuracy_of_few_pictures_is_judged_exactly_and_it_is_said_where_they_do_not_decide(tmp_path, counts, capsys):
    """All of 18 pictures against half of them lay within three deviations of the larger of two approximate ones."""
    one, other, samples = counts
    paths = [a_log(tmp_path / f"{n}.jsonl", [1.0], right / samples, samples) for n, right in enumerate((one, other))]
    main(["compare", *map(str, paths), "--json", str(tmp_path / "out.json")])
    (told,) = [
        check for check in json.loads((tmp_path / "out.json").read_text())["checks"] if check["id"] == "compare.final_accuracy"
    ]
    assert told["verdict"] == FINAL[counts].value and f"{one} and {other} of {samples} pictures, p = " in told["measured"]
    few = FINAL[counts] is Verdict.NOT_APPLICABLE
    assert few == ("; not judged: the final accuracy (" in capsys.readouterr().out.splitlines()[-1])


def test_a_loss_that_is_no_number_is_found(tmp_path):
    sound = a_log(tmp_path / "a.jsonl", [1.0, 0.9])
    assert problems(sound, a_log(tmp_path / "b.jsonl", [1.0, float("nan")]))["compare.finite"] == (
        f"update 2 of {tmp_path}/b.jsonl: nan",
    )


def test_nothing_is_said_of_runs_that_may_begin_otherwise(tmp_path):
    told = verdicts(a_log(tmp_path / "a.jsonl", [1.0, 0.9]), a_log(tmp_path / "b.jsonl", [1.4, 0.7]))
    assert told["compare.first_loss"] is told["compare.second_loss"] is told["compare.curve"] is Verdict.NOT_APPLICABLE


# --- other people's logs ------------------------------------------------------------------------------------------------------

PADDLECLAS = """\
[2024/07/31 20:24:32] ppcls INFO: [Train][Epoch 1/2][Iter: 0/2]lr(PiecewiseDecay): 0.00100000, top1: 0.25000, CELoss: 2.00000, \
loss: 2.00000, batch_cost: 0.61280s, reader_cost: 0.12493, ips: 26.10981 samples/s, eta: 5:01:10
[2024/07/31 20:24:38] ppcls INFO: [Train][Epoch 1/2][Iter: 1/2]lr(PiecewiseDecay): 0.00100000, top1: 0.30000, CELoss: 1.50000, \
loss: 1.50000, batch_cost: 0.62808s, reader_cost: 0.12837, ips: 25.47451 samples/s, eta: 5:08:34
[2024/07/31 20:24:44] ppcls INFO: [Train][Epoch 2/2][Iter: 0/2]lr(PiecewiseDecay): 0.00010000, top1: 0.97619, CELoss: 0.50000, \
loss: 0.50000, batch_cost: 0.62088s, reader_cost: 0.12821, ips: 25.76972 samples/s, eta: 5:04:56
[2024/07/31 20:25:44] ppcls INFO: [Eval][Epoch 2][Avg]CELoss: 0.06, loss: 0.06, top1: 0.98211, top5: 1.00000
"""
TORCHVISION = """\
Epoch: [0]  [0/2]  eta: 4:43:31  lr: 0.001  img/s: 13.6  loss: 2.0000 (2.0000)  acc1: 25.0 (25.0)  acc5: 0.0 (0.9)  max mem: 3
Epoch: [0]  [1/2]  eta: 4:43:31  lr: 0.001  img/s: 13.6  loss: 1.2000 (1.5000)  acc1: 25.0 (30.0)  acc5: 0.0 (0.9)  max mem: 3
Epoch: [1]  [0/2]  eta: 4:43:31  lr: 0.0001  img/s: 13.6  loss: 0.5000 (0.5000)  acc1: 25.0 (97.6)  acc5: 0.0 (0.9)  max mem: 3
Test:   [0/5]  eta: 0:00:01  loss: 1.0 (1.0)  acc1: 90.0 (90.0)
Test:  Acc@1 50.000 Acc@5 90.000
Test:  Acc@1 98.211 Acc@5 100.000
Test: EMA Acc@1 12.000 Acc@5 100.000
"""
TIMM = """\
Train: 0 [   0/2 (  0%)]  Loss: 2.000 (2.00)  Time: 4.0s,  31.9/s  (4.0s,  31.9/s)  LR: 1.000e-03  Data: 2.0 (2.0)
Train: 0 [   1/2 (100%)]  Loss: 1.000 (1.50)  Time: 4.0s,  31.9/s  (4.0s,  31.9/s)  LR: 1.000e-03  Data: 2.0 (2.0)
Train: 1 [   0/2 (  0%)]  Loss: 0.500 (0.50)  Time: 4.0s,  31.9/s  (4.0s,  31.9/s)  LR: 1.000e-04  Data: 2.0 (2.0)
"""
MINDSPORE = (
    "epoch: 1 step: 1, loss is 2.00000\nepoch: 1 step: 2, loss is 1.00000\nEpoch time: 12 ms\nepoch: 2 step: 1, loss is 0.50000\n"
)
CSV = "step,epoch,loss,lr\n1,0,2.00000,0.001\n2,0,1.00000,0.001\n3,1,0.50000,0.0001\n"
FORMS = {"PaddleClas": PADDLECLAS, "torchvision": TORCHVISION, "timm": TIMM, "MindSpore": MINDSPORE, "CSV": CSV}


@pytest.mark.parametrize("form", FORMS)
def test_a_log_of_another_program_is_read(tmp_path, form):
    path = tmp_path / ("log.csv" if form == "CSV" else "log.txt")
    path.write_text(FORMS[form])
    run = read_run(path)
    assert run.form == form and [entry.update for entry in run.entries] == [1, 2, 3]
    assert [entry.loss for entry in run.entries] == [2.0, 1.5 if run.averaged == MEAN else 1.0, 0.5]
    if form != "MindSpore":
        assert [entry.lr for entry in run.entries] == [0.001, 0.001, 0.0001]
    if run.averaged == MEAN:
        assert run.entries[1].top1 == pytest.approx(0.3) and run.evaluations[-1].top1 == pytest.approx(0.98211)
        assert run.evaluations[-1].epoch == 2


@pytest.mark.parametrize("one", FORMS)
@pytest.mark.parametrize("other", FORMS)
def test_equal_runs_in_two_forms_are_equal_and_a_change_is_found(tmp_path, one, other):
    """Every log above is of the same run; where one has means of the epoch, both are brought to them."""
    paths = [tmp_path / f"{name}{'.csv' if form == 'CSV' else '.txt'}" for name, form in (("a", one), ("b", other))]
    for path, form in zip(paths, (one, other), strict=True):
        path.write_text(FORMS[form])
    assert problems(*paths, same_start=True) == {}
    for old, new in (("2.00000", "2.10000"), ("2.0000", "2.1000"), ("2.000", "2.100")):
        paths[1].write_text(paths[1].read_text().replace(old, new))
    assert set(problems(*paths, same_start=True)) == {"compare.first_loss"}


def test_a_pattern_reads_any_log(tmp_path):
    path = tmp_path / "own.log"
    path.write_text("it 1 / l=2.00\nnoise\nit 2 / l=1.00\n")
    run = read_run(path, r"it (?P<update>\d+) / l=(?P<loss>\S+)")
    assert [(entry.update, entry.loss, entry.rounding) for entry in run.entries] == [(1, 2.0, 0.005), (2, 1.0, 0.005)]


def test_a_run_in_progress_is_read_without_its_last_half_line(tmp_path, capsys):
    whole = a_log(tmp_path / "a.jsonl", [1.0, 0.9, 0.8])
    cut = tmp_path / "b.jsonl"
    cut.write_text(whole.read_text()[:-20])
    assert main(["compare", str(whole), str(cut), "--same-start"]) == 0
    assert "b.jsonl: 1 damaged line left out" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("deep.jsonl", "[" * 100_000, "deep.jsonl has no line of a log"),
        ("infinite.jsonl", '{"update": Infinity, "loss": 1}', "infinite.jsonl has no line of a log"),
        ("infinite.csv", "step,loss\n1e400,2", "infinite.csv has no line of a log"),
        ("long.csv", "step,loss\n1," + "9" * 200_000, "long.csv is no table of a run's losses (field larger"),
    ],
)
def test_a_damaged_log_is_one_line_and_status_2(tmp_path, capsys, name, text, said):
    (tmp_path / name).write_text(text)
    assert main(["compare", str(tmp_path / name), str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_losses_that_are_no_numbers_are_drawn(tmp_path, capsys):
    for losses in ([float("nan")] * 2, [float("inf"), float("-inf")]):
        log = a_log(tmp_path / "a.jsonl", losses, lr=float("nan"))
        assert main(["compare", str(log), str(log), "--same-start", "--html", str(tmp_path / "c.html")]) == 1
        assert "compare.finite: 4 losses" in capsys.readouterr().out and 'nan"' not in (tmp_path / "c.html").read_text()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("semicolons.csv", b"step;loss\n1;2\n2;1\n"),
        ("marked.csv", b"\xef\xbb\xbfstep,loss\n1,2\n2,1\n"),
        ("wide.log", "epoch: 1 step: 1, loss is 2.0\nepoch: 1 step: 2, loss is 1.0\n".encode("utf-16")),
        ("spoilt.jsonl", b'{"update": 1, "loss": 2, "avg_samples": "many"}\n{"update": 1, "loss": 2}\n{"update": 2, "loss": 1}\n'),
        ("long.log", b"epoch: 1 step: 1, loss is 2\nepoch: 1 step: 2, loss is 1\nepoch: 1 step: " + b"9" * 5000 + b", loss is 2\n"),
    ],
)
def test_logs_as_other_programs_write_them_are_read(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    assert [(entry.update, entry.loss) for entry in read_run(tmp_path / name).entries] == [(1, 2.0), (2, 1.0)]


def test_means_of_an_epoch_follow_from_the_single_losses():
    losses = np.array([3.0, 1.0, 2.0, 5.0, 1.0])
    entries = [Entry(n + 1, n // 3, float(loss)) for n, loss in enumerate(losses)]
    assert [entry.loss for entry in epoch_means(entries)] == [3.0, 2.0, 2.0, 5.0, 3.0]
    every_second = [Entry(2, 0, 2.0), Entry(3, 0, 2.0), Entry(5, 1, 3.0)]
    assert [entry.loss for entry in epoch_means(every_second)] == [2.0, 2.0, 3.0]


def test_a_log_without_epochs_is_not_compared_with_one_of_means(tmp_path):
    a_mean = tmp_path / "a.txt"
    a_mean.write_text(PADDLECLAS)
    own = RunLog(tmp_path / "b", "CSV", "own", (Entry(1, None, 2.0), Entry(2, None, 1.0)))
    told = {one.check.id: one.outcome for one in examine(checks, RunsSubject(read_run(a_mean), own))}
    assert told["compare.form"].verdict is Verdict.FOUND


@pytest.mark.parametrize(
    ("text", "entries", "top1"),
    [
        ("step;loss;lr\n1;2,5;0,001\n2;1,5;0,001\n", [(1, 2.5), (2, 1.5)], []),  # a spreadsheet's commas
        ("epoch,step,train_loss,val_acc\n0,1,2.0,\n0,2,1.0,\n0,2,,0.5\n", [(1, 2.0), (2, 1.0)], [0.5]),  # Lightning's
        ('Step,"run - train/loss","run - train/loss__MIN"\n1,2.0,1.9\n2,1.0,0.9\n', [(1, 2.0), (2, 1.0)], []),  # wandb's
        ("Wall time,Step,Value\n1.5,1,2.0\n2.5,2,1.0\n", [(1, 2.0), (2, 1.0)], []),  # TensorBoard's
        ("epoch,accuracy,loss,val_accuracy\n0,0.1,2.0,0.2\n1,0.2,1.0,0.5\n", [(1, 2.0), (2, 1.0)], [0.2, 0.5]),  # Keras'
        ("Epoch,Train Loss,Val Acc\n1,2.0,20.0%\n2,1.0,50 %\n", [(1, 2.0), (2, 1.0)], [0.2, 0.5]),
        ("step,loss\n1,2.0\n2,9.0\n3,8.0\n2,1.0\n3,0.5\n", [(1, 2.0), (2, 1.0), (3, 0.5)], []),  # resumed
    ],
)
def test_tables_as_other_programs_and_people_write_them_are_read(tmp_path, text, entries, top1):
    (tmp_path / "a.csv").write_text(text)
    run = read_run(tmp_path / "a.csv")
    assert [(entry.update, entry.loss) for entry in run.entries] == entries and run.skipped == 0
    assert [one.top1 for one in run.evaluations] == pytest.approx(top1)


def test_a_log_that_was_resumed_holds_nothing_of_the_start_before(tmp_path):
    """The first start went on to update 4, the second one began again at 2 and is at 3; its terminal had colours."""
    lines = [
        f"\x1b[32mepoch: 1 step: {n}, loss is {x}\x1b[0m" for n, x in ((1, 2.0), (2, 9.0), (3, 9.0), (4, 9.0), (2, 1.0), (3, 0.5))
    ]
    (tmp_path / "a.log").write_text("\n".join(lines))
    assert [(entry.update, entry.loss) for entry in read_run(tmp_path / "a.log").entries] == [(1, 2.0), (2, 1.0), (3, 0.5)]


def test_a_table_of_epochs_is_compared_with_a_log_of_updates_by_epochs(tmp_path, capsys):
    (tmp_path / "updates.csv").write_text("step,epoch,loss\n1,0,3\n2,0,1\n3,1,1\n4,1,0.5\n5,2,0.25\n")  # its third epoch goes on
    (tmp_path / "epochs.csv").write_text("epoch,loss\n1,2\n2,0.75\n3,0.1\n")
    flags = ["compare", str(tmp_path / "updates.csv"), str(tmp_path / "epochs.csv"), "--same-start"]
    assert main(flags) == 0
    assert "equal but for rounding up to epoch 2, the last one of both" in capsys.readouterr().out
    (tmp_path / "other.csv").write_text("epoch,loss\n1,2\n2,0.5\n3,0.1\n")
    again = RunsSubject(
        *(read_run(tmp_path / f"{name}.csv") for name in ("updates", "other")), [read_run(tmp_path / "epochs.csv")], True
    )
    assert verdict(again) == "the runs part at epoch 2, by the loss"


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("step,loss\n1,2\n", "step,loss\n7,2\n8,1\n", "nothing can be compared: "),
        ("step,loss\n1,2\n", "step,entropy\n1,2\n", "needs a column loss (or train_loss) or val_acc; it has step, entropy"),
        ("step,loss\n1,2\n", "epoch,loss\n0,2\n", "nothing can be compared: "),
    ],
)
def test_logs_that_have_nothing_in_common_are_one_line_and_status_2(tmp_path, capsys, first, second, said):
    (tmp_path / "a.csv").write_text(first)
    (tmp_path / "b.csv").write_text(second)
    assert main(["compare", str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]) == 2
    printed = capsys.readouterr()
    assert said in printed.err and printed.err.count("\n") == 1 and not printed.out


# --- the command --------------------------------------------------------------------------------------------------------------


def test_the_command_draws_the_curves(trained, tmp_path, capsys):
    page, figures = tmp_path / "c.html", tmp_path / "c.json"
    flags = ["--html", str(page), "--json", str(figures), "--repeats", str(trained(seed=1)), str(trained(framework="paddle"))]
    assert main(["compare", str(trained()), str(trained(lr=0.06)), *flags]) == 1
    printed = capsys.readouterr().out
    assert "lr: 0.02 and 0.06" in printed and "update 1: 0.02 and 0.06" in printed
    assert page.read_text().count("<svg") == 3 and len(json.loads(figures.read_text())["facts"]["spread_of_repeats"]) == 8


def test_every_check_says_something_of_itself():
    assert len(checks_of(checks)) == 9
    for one in checks_of(checks):
        assert one.items and one.measures and one.fix and one.id.startswith("compare.")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["nowhere", "nowhere"], "no such run or log: nowhere"),
        (["lite_data", "lite_data"], "lite_data holds no train_log.jsonl"),
        (["README.md", "README.md"], "README.md has no line of a log of tools/train.py"),
        (["README.md", "README.md", "--pattern", "("], "--pattern is not a regular expression"),
        (["README.md", "README.md", "--pattern", "x"], "--pattern needs the named groups"),
    ],
)
def test_bad_input_is_one_line_and_status_2(flags, said, capsys, monkeypatch):
    monkeypatch.chdir(LITE_DATA.parent)
    assert main(["compare", *flags]) == 2
    printed = capsys.readouterr()
    assert said in printed.err and printed.err.count("\n") == 1 and not printed.out
