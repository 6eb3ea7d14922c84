"""Logs as training programs write them: every line gets its place in the run, and what gives way is said."""

from __future__ import annotations

import json
import random

import pytest

from alignment_doctor.cli import main
from alignment_doctor.compare import checks
from alignment_doctor.compare.counter import Known, counted
from alignment_doctor.compare.entries import MEAN, OWN, WHOLE, Entry
from alignment_doctor.compare.logs import read_run
from alignment_doctor.compare.subject import RunsSubject
from alignment_doctor.compare.verdict import verdict
from alignment_doctor.findings import examine
from mobilenetv3_common.train_log import TrainLog

LOSSES = (2.0, 1.5, 1.0, 0.5)  # of one run: two epochs of two updates
RATES = (0.1, 0.1, 0.01, 0.01)
RESULTS = (0.25, 0.75)

TORCHVISION = """\
Epoch: [0]  [0/2]  eta: 0:00:03  lr: 0.1  img/s: 41.5  loss: 2.0000 (2.0000)  acc1: 8.8000 (8.8000)  acc5: 43.2 (43.2)  time: 3.0
Epoch: [0]  [1/2]  eta: 0:00:00  lr: 0.1  img/s: 41.5  loss: 1.7500 (1.7500)  acc1: 9.8000 (9.3000)  acc5: 43.2 (43.2)  time: 3.0
Epoch: [0] Total time: 0:00:03
Test:   [0/1]  eta: 0:00:18  loss: 0.8479 (0.8479)  acc1: 74.6094 (74.6094)  acc5: 95.3125 (95.3125)  time: 0.9
Test:  Acc@1 25.000 Acc@5 90.000
Epoch: [1]  [0/2]  eta: 0:00:03  lr: 0.010000000000000002  img/s: 41.5  loss: 1.0000 (1.0000)  acc1: 8.8 (8.8)  time: 3.0
Epoch: [1]  [1/2]  eta: 0:00:00  lr: 0.010000000000000002  img/s: 41.5  loss: 0.7500 (0.7500)  acc1: 8.8 (8.8)  time: 3.0
Epoch: [1] Total time: 0:00:03
Test:  Acc@1 75.000 Acc@5 99.000
Test: EMA Acc@1 12.000 Acc@5 100.000
"""
DEIT = TORCHVISION.replace("Test:  Acc@1 25.000 Acc@5 90.000", "* Acc@1 25.000 Acc@5 90.000 loss 1.234").replace(
    "Test:  Acc@1 75.000 Acc@5 99.000", "* Acc@1 75.000 Acc@5 99.000 loss 0.987"
)
MAE = "".join(f"[10:32:38.444000] {line}\n" for line in DEIT.splitlines())  # a time before each line
PADDLECLAS = """\
[2021/08/15 15:59:37] root INFO: [Train][Epoch 1/2][Iter: 0/2]lr: 0.10000, CELoss: 2.00000, loss: 2.00000, top1: 0.17969, ips: 1
[2021/08/15 15:59:38] root INFO: [Train][Epoch 1/2][Iter: 1/2]lr: 0.10000, CELoss: 1.75000, loss: 1.75000, top1: 0.19922, ips: 1
[2021/08/15 15:59:38] root INFO: [Train][Epoch 1/2][Avg]CELoss: 1.75000, loss: 1.75000, top1: 0.19922
[2021/08/15 15:59:39] root INFO: [Eval][Epoch 1][Iter: 0/4]CELoss: 0.47, loss: 0.47, top1: 0.91797, top5: 0.96094
[2021/08/15 15:59:39] root INFO: [Eval][Epoch 1][Avg]CELoss: 0.5, loss: 0.5, top1: 0.25000, top5: 0.96667
[2021/08/15 15:59:40] root INFO: [Train][Epoch 2/2][Iter: 0/2]lr: 0.01000, CELoss: 1.00000, loss: 1.00000, top1: 0.2, ips: 1
[2021/08/15 15:59:41] root INFO: [Train][Epoch 2/2][Iter: 1/2]lr: 0.01000, CELoss: 0.75000, loss: 0.75000, top1: 0.2, ips: 1
[2021/08/15 15:59:42] root INFO: [Eval][Epoch 2][Avg]CELoss: 0.5, loss: 0.5, top1: 0.75000, top5: 0.96667
"""
OLD_PADDLECLAS = """\
2021-01-31 20:30:07 INFO: epoch:0  , train step:0   , top1: 0.75, top5: 0.92, loss: 2.00000, lr: 0.100000, batch_cost: 0.69 s
2021-01-31 20:30:08 INFO: epoch:0  , train step:1   , top1: 0.75, top5: 0.92, loss: 1.75000, lr: 0.100000, batch_cost: 0.69 s
2021-01-31 20:30:08 INFO: epoch:0  , valid step:50  , top1: 0.75, top5: 0.92, loss: 0.97458, lr: 0.000000, batch_cost: 0.69 s
2021-01-31 20:30:08 INFO: END epoch:0   valid top1: 0.25000, top5: 0.92188, loss: 0.97458, batch_cost: 0.69290 s
2021-01-31 20:30:09 INFO: epoch:1  , train step:0   , top1: 0.75, top5: 0.92, loss: 1.00000, lr: 0.010000, batch_cost: 0.69 s
2021-01-31 20:30:10 INFO: epoch:1  , train step:1   , top1: 0.75, top5: 0.92, loss: 0.75000, lr: 0.010000, batch_cost: 0.69 s
2021-01-31 20:30:10 INFO: END epoch:1   valid top1: 0.75000, top5: 0.92188, loss: 0.97458, batch_cost: 0.69290 s
"""
TIMM = """\
Train: 0 [   0/2 (  0%)]  Loss:  2.000000 (2.0000)  Time: 1.6s,    9.62/s  (1.6s,    9.62/s)  LR: 1.000e-01  Data: 0.4 (0.4)
Train: 0 [   1/2 (100%)]  Loss:  1.500000 (1.7500)  Time: 1.6s,    9.62/s  (1.6s,    9.62/s)  LR: 1.000e-01  Data: 0.4 (0.4)
Test: [   0/29]  Time: 0.560 (0.560)  Loss:  0.6912 (0.6912)  Acc@1: 87.5000 (87.5000)  Acc@5: 100.0000 (100.0000)
Test: [  29/29]  Time: 0.041 (0.064)  Loss:  0.5951 (0.5882)  Acc@1: 81.2500 (25.0000)  Acc@5: 100.0000 (99.3750)
Test (EMA): [  29/29]  Time: 0.024 (0.176)  Loss:  6.8138 (6.9122)  Acc@1:  0.0000 ( 0.1000)  Acc@5:  0.0000 ( 0.5000)
Train: 1 [   0/2 (  0%)]  Loss:  1.000000 (1.0000)  Time: 1.6s,    9.62/s  (1.6s,    9.62/s)  LR: 1.000e-02  Data: 0.4 (0.4)
Train: 1 [   1/2 (100%)]  Loss: 0.5000 (0.750)  Time: 1.6s,    9.62/s  (1.6s,    9.62/s)  LR: 1.000e-02  Data: 0.4 (0.4)
Test: [  29/29]  Time: 0.043 (0.066)  Loss:  0.1036 (0.1876)  Acc@1: 100.0000 (75.0000)  Acc@5: 100.0000 (100.0000)
"""
MMENGINE = """\
2023/06/07 17:46:50 - mmengine - INFO - Epoch(train)   [1][1/2]  base_lr: 9.0e-01 lr: 1.0000e-01  eta: 0:23:59  loss: 2.0000
2023/06/07 17:46:50 - mmengine - INFO - Epoch(train)   [1][2/2]  base_lr: 9.0e-01 lr: 1.0000e-01  eta: 0:23:59  loss: 1.5000
2023/06/07 17:51:13 - mmengine - INFO - Epoch(val) [1][1/2]    eta: 0:00:12  time: 2.449414  data_time: 2.133989
2023/06/07 17:51:13 - mmengine - INFO - Epoch(val) [1][2/2]    accuracy/top1: 25.0000  data_time: 0.0230  time: 0.1408
2023/06/07 17:46:50 - mmengine - INFO - Epoch(train)   [2][1/2]  base_lr: 9.0e-01 lr: 1.0000e-02  eta: 0:23:59  loss: 1.0000
2023/06/07 17:46:50 - mmengine - INFO - Epoch(train)   [2][2/2]  base_lr: 9.0e-01 lr: 1.0000e-02  eta: 0:23:59  loss: 0.5000
2023/06/07 17:51:13 - mmengine - INFO - Epoch(val) [2][2/2]    accuracy/top1: 75.0000  data_time: 0.0230  time: 0.1408
"""
MMCV = """\
2021-07-14 13:52:26,135 - mmcls - INFO - Epoch [1][1/2]\tlr: 1.000e-01, eta: 0:10:35, time: 0.611, memory: 2962, loss: 2.0000
2021-07-14 13:52:30,150 - mmcls - INFO - Epoch [1][2/2]\tlr: 1.000e-01, eta: 0:08:41, time: 0.402, memory: 2962, loss: 1.5000
[>>>>>>>>] 50/50, 163.1 task/s, ETA:     0s2021-07-14 13:52:36,901 - mmcls - INFO - Epoch(val) [1][2]\taccuracy_top-1: 25.0000
2021-07-14 13:52:26,135 - mmcls - INFO - Epoch [2][1/2]\tlr: 1.000e-02, eta: 0:10:35, time: 0.611, memory: 2962, loss: 1.0000
2021-07-14 13:52:30,150 - mmcls - INFO - Epoch [2][2/2]\tlr: 1.000e-02, eta: 0:08:41, time: 0.402, memory: 2962, loss: 0.5000
2021-07-14 13:52:36,901 - mmcls - INFO - Epoch(val) [2][2]\taccuracy_top-1: 75.0000
"""
MMENGINE_SCALARS = """\
{"lr": 0.1, "data_time": 9.0, "loss": 2.0, "acc_pose": 0.0, "time": 9.9, "epoch": 1, "iter": 1, "memory": 3, "step": 1}
{"lr": 0.1, "data_time": 9.0, "loss": 1.5, "acc_pose": 0.0, "time": 9.9, "epoch": 1, "iter": 2, "memory": 3, "step": 2}
{"accuracy/top1": 25.0, "data_time": 0.09, "time": 0.12, "step": 1}
{"lr": 0.01, "data_time": 9.0, "loss": 1.0, "acc_pose": 0.0, "time": 9.9, "epoch": 2, "iter": 3, "memory": 3, "step": 3}
{"lr": 0.01, "data_time": 9.0, "loss": 0.5, "acc_pose": 0.0, "time": 9.9, "epoch": 2, "iter": 4, "memory": 3, "step": 4}
{"accuracy/top1": 75.0, "data_time": 0.07, "time": 0.09, "step": 2}
"""
MMCV_JSON = """\
{"env_info": "sys.platform: linux", "seed": 0, "exp_name": "resnet.py"}
{"mode": "train", "epoch": 1, "iter": 1, "lr": 0.1, "memory": 3086, "data_time": 5.7, "loss": 2.0, "time": 6.4}
{"mode": "train", "epoch": 1, "iter": 2, "lr": 0.1, "memory": 3086, "data_time": 5.7, "loss": 1.5, "time": 6.4}
{"mode": "val", "epoch": 1, "iter": 10, "lr": 0.1, "accuracy_top-1": 25.0, "accuracy_top-5": 98.8}
{"mode": "train", "epoch": 2, "iter": 1, "lr": 0.01, "memory": 3086, "data_time": 5.7, "loss": 1.0, "time": 6.4}
{"mode": "train", "epoch": 2, "iter": 2, "lr": 0.01, "memory": 3086, "data_time": 5.7, "loss": 0.5, "time": 6.4}
{"mode": "val", "epoch": 2, "iter": 10, "lr": 0.01, "accuracy_top-1": 75.0, "accuracy_top-5": 98.8}
"""
LIGHTNING = """\
epoch,lr-SGD,step,train_loss,val_acc,val_loss
,0.1,0,,,
0,,0,2.0,,
,0.1,1,,,
0,,1,1.5,,
0,,1,,0.25,1.1
,0.01,2,,,
1,,2,1.0,,
,0.01,3,,,
1,,3,0.5,,
1,,3,,0.75,0.9
"""
TRAINER = json.dumps(
    {
        "best_metric": None,
        "epoch": 2.0,
        "global_step": 4,
        "log_history": [
            {"epoch": 0.5, "grad_norm": 1.05, "learning_rate": 0.1, "loss": 2.0, "step": 1},
            {"epoch": 1.0, "grad_norm": 1.05, "learning_rate": 0.1, "loss": 1.5, "step": 2},
            {"epoch": 1.0, "eval_accuracy": 0.25, "eval_loss": 1.3, "eval_runtime": 92.0, "step": 2},
            {"epoch": 1.5, "grad_norm": 1.05, "learning_rate": 0.01, "loss": 1.0, "step": 3},
            {"epoch": 2.0, "grad_norm": 1.05, "learning_rate": 0.01, "loss": 0.5, "step": 4},
            {"epoch": 2.0, "eval_accuracy": 0.75, "eval_loss": 1.2, "eval_runtime": 92.0, "step": 4},
            {"epoch": 2.0, "step": 4, "total_flos": 1e17, "train_loss": 1.25, "train_runtime": 8.0, "train_steps_per_second": 0.5},
        ],
        "max_steps": 4,
    },
    indent=2,
)
PRINTED = """\
 25%|##5       | 1/4 [00:01<00:12]\r{'loss': 2.0, 'grad_norm': 37.6, 'learning_rate': 0.1, 'epoch': 0.5}
{'loss': 1.5, 'grad_norm': nan, 'learning_rate': 0.1, 'epoch': 1.0}        \r
{'eval_loss': 1.3, 'eval_accuracy': 0.25, 'eval_runtime': 92.0, 'epoch': 1.0}
{'loss': '1.0', 'grad_norm': '37.6', 'learning_rate': '0.01', 'epoch': '1.5'}
{'loss': 0.5, 'grad_norm': 37.6, 'learning_rate': 0.01, 'epoch': 2.0}
{'eval_loss': 1.3, 'eval_accuracy': 0.75, 'eval_runtime': 92.0, 'epoch': 2.0}
{'train_runtime': 8.0, 'train_samples_per_second': 28.1, 'train_steps_per_second': 0.5, 'train_loss': 1.25, 'epoch': 2.0}
"""
OWN_LOG = """\
mobilenet_v3_small (paddle), 3 classes, 71 training and 18 validation pictures, 1 rank on cpu, 2 updates an epoch
[Epoch 0, iter: 1] top1: 0.75000, lr: 0.100000, loss: 2.00000, avg_reader_cost: 0.05509 sec, avg_batch_cost: 19.1 sec, eta: 0:01
[Epoch 0, iter: 2] top1: 0.75000, top5: 1.00000, lr: 0.100000, loss: 1.50000, avg_reader_cost: 0.05509 sec, memory: 714 MiB
[Eval epoch 0] top1: 0.25000, loss: 0.55035, samples: 18, best top1: 0.25000
[Epoch 1, iter: 1] top1: 0.75000, lr: 0.010000, loss: 1.00000, avg_reader_cost: 0.05509 sec, avg_batch_cost: 19.1 sec, eta: 0:01
[Epoch 1, iter: 2] top1: 0.75000, lr: 0.010000, loss: 0.50000, avg_reader_cost: 0.05509 sec, avg_batch_cost: 19.1 sec, eta: 0:01
[Eval epoch 1] top1: 0.75000, loss: 0.55035, samples: 18, best top1: 0.75000
result: top-1 0.7500 of 18 validation pictures (epoch 2 of 2)
"""
LOGS = {
    "train.log": OWN_LOG,
    "torchvision.txt": TORCHVISION, "deit.txt": DEIT, "paddleclas.log": PADDLECLAS, "old_paddleclas.log": OLD_PADDLECLAS,
    "timm.log": TIMM, "mmengine.log": MMENGINE, "mmcv.log": MMCV, "scalars.json": MMENGINE_SCALARS, "mmcv.log.json": MMCV_JSON,
    "mae.txt": MAE, "metrics.csv": LIGHTNING, "trainer_state.json": TRAINER, "output.txt": PRINTED,
}  # fmt: skip


@pytest.fixture
def written(tmp_path):
    def write(name, text):
        (tmp_path / name).write_text(text, newline="")
        return tmp_path / name

    return write


def problems(one, other, same_start=True):
    subject = RunsSubject(read_run(one), read_run(other), said_same_start=same_start)
    return {finding.check.id for finding in examine(checks, subject) if finding.is_problem}


# --- six programs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOGS)
def test_every_line_of_a_program_s_log_gets_its_place(written, name):
    run = read_run(written(name, LOGS[name]))
    losses = (2.0, 1.75, 1.0, 0.75) if run.averaged == MEAN else LOSSES
    assert [(one.update, one.epoch, one.loss) for one in run.entries] == [*zip(range(1, 5), (0, 0, 1, 1), losses, strict=True)]
    assert [one.lr for one in run.entries] == pytest.approx(RATES)
    assert [(one.unit, one.epoch, one.top1) for one in run.evaluations] == [
        ("epoch", n + 1, top1) for n, top1 in enumerate(RESULTS)
    ]
    assert run.skipped == 0 and not run.counted_lines


@pytest.mark.parametrize("name", LOGS)
def test_a_run_is_equal_in_two_programs_logs_and_a_change_is_found(written, name):
    """The change is in the second epoch, which is where a log whose counter begins again was lost."""
    one, other = written("trusted.csv", LIGHTNING), written(name, LOGS[name])
    assert problems(one, other) == set()
    assert verdict(RunsSubject(read_run(one), read_run(other), said_same_start=True)).startswith(
        "equal but for rounding up to update 4"
    )
    spoilt = LOGS[name]
    for rate in ("0.01,", "0.010", "1.000e-02", "1.0000e-02", "'0.01'"):
        spoilt = spoilt.replace(rate, rate.replace("1", "5", 1))
    assert spoilt != LOGS[name]
    assert problems(one, written(name, spoilt)) == {"compare.learning_rate"}


def test_what_this_project_writes_is_read_as_text_as_on_a_terminal_and_as_json(tmp_path, capsys):
    """The real writer's lines."""
    log = TrainLog(tmp_path, epochs=2, updates_per_epoch=2)
    shown = []
    log.line = lambda text, short=None, line=log.line: (shown.append(short or text), line(text, short))
    for update, (loss, rate) in enumerate(zip(LOSSES, RATES, strict=True)):
        figures = dict.fromkeys(("top1", "top5", "avg_reader_cost", "avg_batch_cost", "avg_samples", "avg_ips"), 0.5)
        log.train(update // 2, update % 2 + 1, update + 1, {**figures, "loss": loss, "lr": rate})
        if update % 2:
            log.evaluation(update // 2, update + 1, {"top1": RESULTS[update // 2], "top5": 1.0, "loss": 1.0, "samples": 8}, 0.9)
            log.evaluation(
                update // 2, update + 1, {"top1": 0.0, "top5": 1.0, "loss": 1.0, "samples": 8}, None
            )  # beside an average
    (tmp_path / "terminal.txt").write_text("".join(f"{line}\n" for line in shown))
    runs = [read_run(tmp_path / name) for name in ("train.log", "train_log.jsonl", "terminal.txt")]
    for run in runs:
        assert [(one.update, one.loss, one.lr) for one in run.entries] == [*zip(range(1, 5), LOSSES, RATES, strict=True)]
        assert run.form == "tools/train.py" and run.averaged == OWN
    assert [[one.top1 for one in run.evaluations] for run in runs[:2]] == [[*RESULTS], [*RESULTS]]


def test_a_log_of_iterations_alone_has_evaluations_by_update(written):
    log = written(
        "iters.log",
        "06/28 03:16:23 - mmengine - INFO - Iter(train) [  50/80000]  lr: 1.0000e-02  eta: 1:00:00  loss: 2.0000\n"
        "06/28 03:16:24 - mmengine - INFO - Iter(train) [ 100/80000]  lr: 1.0000e-02  eta: 1:00:00  loss: 1.0000\n"
        "06/28 03:16:25 - mmengine - INFO - Iter(val) [4/4]    accuracy/top1: 45.8286  data_time: 0.0230\n",
    )
    run = read_run(log)
    assert [one.update for one in run.entries] == [50, 100]
    assert [(one.unit, one.epoch, one.top1) for one in run.evaluations] == [("update", 100, pytest.approx(0.458286))]


def test_trainer_s_output_without_its_end_is_not_compared_with_steps(written, capsys):
    """Its lines have no steps then; with the end of the run they do."""
    cut = written("output.txt", PRINTED[: PRINTED.index("{'train_runtime'")])
    assert read_run(cut).counted_lines and [one.update for one in read_run(cut).entries] == [1, 2, 3, 4]
    assert main(["compare", str(cut), str(cut), "--same-start"]) == 0
    assert main(["compare", str(written("trainer_state.json", TRAINER)), str(cut)]) == 2
    printed = capsys.readouterr()
    assert "output.txt has no steps" in printed.err and "Traceback" not in printed.err


def test_the_steps_of_trainer_s_output_follow_from_the_length_of_the_run(written):
    """5 lines in 2 epochs of 258 updates, an update in 1/4.344 s; epochs have two digits."""
    lines = [f"{{'loss': 1.0, 'learning_rate': 0.1, 'epoch': {round(100 * n / 258, 2)}}}" for n in range(1, 6)]
    lines.append("{'train_runtime': 118.7846, 'train_steps_per_second': 4.344, 'train_loss': 0.3, 'epoch': 2.0}")
    run = read_run(written("output.txt", "\n".join(lines)))
    assert [one.update for one in run.entries] == [100, 200, 300, 400, 500] and "one is 100 updates" in run.notes[0]


@pytest.mark.parametrize(
    ("name", "text", "losses", "top1"),
    [
        ("log.txt", '{"train_loss": 2.0, "epoch": 0}\n{"train_loss": 1.0, "test_acc1": 74.0, "epoch": 1}\n', [2.0, 1.0], [0.74]),
        ("summary.csv", "epoch,train_loss,eval_loss,eval_top1\n0,2.0,3,0.5\n1,1.0,2,60.0\n", [2.0, 1.0], [0.005, 0.6]),
        ("old_timm.csv", "epoch,train_loss,eval_loss,eval_prec1\n0,2.0,3,20\n1,1.0,2,60.0\n", [2.0, 1.0], [0.2, 0.6]),
        ("history.json", '{"loss": [2.0, 1.0], "val_accuracy": [0.2, 0.5], "val_loss": [1, 1]}', [2.0, 1.0], [0.2, 0.5]),  # Keras'
        ("a.csv", "epoch,phase,loss,acc\n0,train,2.0,0.3\n0,val,1.9,0.4\n1,train,1.0,0.5\n1,val,1.1,0.6\n", [2.0, 1.0], [0.4, 0.6]),
        ("rows.json", '[{"epoch": 1, "loss": 2.0}, {"epoch": 2, "loss": 1.0, "val_acc": 0.5}]', [2.0, 1.0], [0.5]),
    ],
)  # fmt: skip
def test_logs_of_whole_epochs_are_read(written, name, text, losses, top1):
    """A percentage below one is one where others of its column are above it."""
    run = read_run(written(name, text))
    assert run.averaged == WHOLE and [(one.update, one.loss) for one in run.entries] == [*enumerate(losses, 1)]
    assert [one.top1 for one in run.evaluations] == pytest.approx(top1)


# --- counters -----------------------------------------------------------------------------------------------------------------


def rows(form, numbers, epochs=None, losses=None):
    """The same lines as a table, as JSON lines, and as text for --pattern."""
    losses = losses or [round(3.0 - 0.1 * place, 3) for place in range(len(numbers))]
    told = [
        {"step": n, "loss": x} | ({"epoch": e} if epochs else {})
        for n, x, e in zip(numbers, losses, epochs or numbers, strict=True)
    ]
    if form == "csv":
        return "\n".join([",".join(told[0]), *(",".join(map(str, row.values())) for row in told)]) + "\n"
    if form == "jsonl":
        return "".join(f"{json.dumps(row)}\n" for row in told)
    ends = [f" of {row['epoch']}" if epochs else "" for row in told]
    return "".join(f"it {row['step']}{end} l={row['loss']}\n" for row, end in zip(told, ends, strict=True))


PATTERN = r"it (?P<update>\d+)(?: of (?P<epoch>\d+))? l=(?P<loss>\S+)"
COUNTERS = {  # numbers, epochs, the updates that they are
    "from 0": ([0, 1, 2, 3], None, [1, 2, 3, 4]),
    "from 1": ([1, 2, 3, 4], None, [1, 2, 3, 4]),
    "anew in each epoch": ([1, 2, 3, 1, 2, 3, 1], None, [1, 2, 3, 4, 5, 6, 7]),
    "anew in each epoch, from 0": ([0, 1, 2, 0, 1, 2, 0], None, [1, 2, 3, 4, 5, 6, 7]),
    "anew in each epoch, which the log says": ([1, 2, 1, 2, 1], [0, 0, 1, 1, 2], [1, 2, 3, 4, 5]),
    "anew in each epoch, from 0, epochs from 1": ([0, 1, 0, 1, 0], [1, 1, 2, 2, 3], [1, 2, 3, 4, 5]),
    "a shorter epoch": ([0, 1, 2, 0, 1, 0, 1], [0, 0, 0, 1, 1, 2, 2], [1, 2, 3, 4, 5, 6, 7]),
    "every tenth": ([10, 20, 30], None, [10, 20, 30]),
    "every tenth, from 0": ([9, 19, 29], None, [10, 20, 30]),
    "every tenth and the first, from 0": ([0, 10, 20], None, [1, 11, 21]),
    "every tenth, anew in each epoch": ([0, 10, 20, 0, 10, 20], [0, 0, 0, 1, 1, 1], [1, 11, 21, 31, 41, 51]),
    "one line an epoch, anew": ([99, 99, 99], [0, 1, 2], [99, 198, 297]),
    "turned around": ([4, 3, 2, 1], None, [4, 3, 2, 1]),
}


@pytest.mark.parametrize("form", ["csv", "jsonl", "txt"])
@pytest.mark.parametrize("name", COUNTERS)
def test_every_update_of_any_counter_keeps_its_loss(written, name, form):
    numbers, epochs, updates = COUNTERS[name]
    path = written(f"a.{form}", rows(form, numbers, epochs))
    run = read_run(path, PATTERN if form == "txt" else None)
    told = {one.update: one.loss for one in run.entries}
    assert told == {update: round(3.0 - 0.1 * place, 3) for place, update in enumerate(updates)}
    plain = numbers[0] == 1 or numbers == [10, 20, 30]
    assert bool(run.notes) == (not plain or "anew" in name), run.notes


def test_a_change_in_an_epoch_that_is_not_the_last_is_found(written, capsys):
    """Such logs were taken as equal: all epochs but the last one were lost."""
    losses = [2.0, 1.8, 1.6, 1.4, 1.2, 1.0]
    one = written("a.csv", rows("csv", [1, 2, 3] * 2, None, losses))
    other = written("b.csv", rows("csv", [1, 2, 3] * 2, None, [2.0, 2.5, *losses[2:]]))
    assert main(["compare", str(one), str(one), "--same-start"]) == 0
    assert "equal but for rounding up to update 6" in capsys.readouterr().out
    assert main(["compare", str(one), str(other), "--same-start"]) == 1
    printed = capsys.readouterr().out
    assert "the runs part at update 2, by the loss" in printed
    assert f"note: {one}: its counter begins again in each of 2 epochs: the updates were counted on" in printed


@pytest.mark.parametrize(
    ("one", "other"), [("from 0", "from 1"), ("from 0", "anew in each epoch, from 0"), ("from 1", "anew in each epoch")]
)
def test_counters_of_two_programs_are_brought_together(written, one, other):
    """A log that counts from 0 beside one that counts from 1 blamed data and weights."""
    paths = [written(f"{n}.csv", rows("csv", *COUNTERS[name][:2])) for n, name in enumerate((one, other))]
    assert problems(*paths) == set()
    spoilt = COUNTERS[other][:2]
    losses = [3.0, 2.5, *(round(3.0 - 0.1 * place, 3) for place in range(2, len(spoilt[0])))]
    assert problems(paths[0], written("c.csv", rows("csv", *spoilt, losses))) == {"compare.second_loss"}


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_steps_from_0_are_compared_with_means_of_an_epoch(written, form):
    """It was a ZeroDivisionError."""
    steps = written(f"a.{form}", rows(form, [0, 1, 2, 3], [0, 0, 1, 1], list(LOSSES)))
    assert problems(steps, written("b.log", PADDLECLAS)) == set()
    assert problems(steps, written("b.log", PADDLECLAS.replace("loss: 2.00000", "loss: 2.10000"))) == {"compare.first_loss"}


RESUMED = {
    "within the run": ([1, 2, 3, 4, 3, 4, 5], None, [1, 2, 3, 4, 5], 2),
    "further back than it comes again": ([1, 2, 3, 4, 2, 3], None, [1, 2, 3], 3),
    "from the start": ([1, 2, 1, 2, 3, 4], None, [1, 2, 3, 4], 2),
    "within an epoch": ([0, 1, 2, 0, 1, 0, 1, 2], [0, 0, 0, 1, 1, 1, 1, 1], [1, 2, 3, 4, 5, 6], 2),
}


@pytest.mark.parametrize("name", RESUMED)
def test_lines_that_a_resumed_run_makes_again_are_replaced_and_that_is_said(written, name):
    numbers, epochs, updates, gone = RESUMED[name]
    run = read_run(written("a.csv", rows("csv", numbers, epochs, list(map(float, range(len(numbers)))))))
    assert [one.update for one in run.entries] == updates and run.entries[-1].loss == len(numbers) - 1
    assert any(f"{gone} lines are left out, of the start before" in note for note in run.notes)
    assert len(run.entries) + gone == len(numbers)


def test_lines_of_one_update_are_merged_and_that_is_said(written):
    """Two processes write the same log."""
    run = read_run(written("a.csv", rows("csv", [1, 1, 2, 2])))
    assert [one.update for one in run.entries] == [1, 2] and "2 lines have the number of the line before" in run.notes[0]


def test_a_line_that_comes_late_is_put_in_its_place(written):
    run = read_run(written("a.csv", rows("csv", [1, 2, 4, 3, 5])))
    assert [one.update for one in run.entries] == [1, 2, 3, 4, 5] and run.notes == ()


def test_rows_that_have_an_epoch_alone_are_updates_where_an_epoch_has_many(written):
    run = read_run(written("a.csv", "epoch,loss\n1,3.0\n1,2.0\n2,1.0\n2,0.5\n"))
    assert [(one.update, one.epoch, one.loss) for one in run.entries] == [(1, 0, 3.0), (2, 0, 2.0), (3, 1, 1.0), (4, 1, 0.5)]
    assert run.averaged == OWN and "each row is taken as one update" in run.notes[0]


def test_rows_without_a_place_are_counted_as_damaged(written):
    run = read_run(
        written(
            "a.jsonl",
            '{"step": 0, "loss": 3}\n{"loss": 2}\n{"step": "x", "loss": 1}\n{"step": 1, "loss": [1]}\n{"step": 1, "loss": 2}\n',
        )
    )
    assert [(one.update, one.loss) for one in run.entries] == [(1, 3.0), (2, 2.0)] and run.skipped == 3


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.jsonl", '{"loss": 1.0}\n', "a.jsonl needs a column update (or step, iteration) or epoch; it has loss"),
        ("a.json", '{"log_history": [{"step": 1, "perplexity": 2.0}]}', "a.json needs a column loss (or train_loss) or val_acc"),
        ("metrics.csv", "epoch,step,val_loss\n0,1,2.2\n", "it has epoch, step, val_loss: rename the one that is meant"),
        ("a.json", '{"log_history": []}', "a.json has no row: the run logged nothing (Trainer logs every logging_steps updates"),
        ("a.json", "null", "a.json has no line of a log"),
        ("a.log", "{'loss': 1.0, 'epoch': 'x'}\n", "a.log has no line of a log"),
    ],
)
def test_a_log_without_a_count_or_a_loss_is_one_line_and_status_2(written, capsys, name, text, said):
    path = str(written(name, text))
    assert main(["compare", path, path]) == 2
    printed = capsys.readouterr()
    assert said in printed.err and printed.err.count("\n") == 1 and not printed.out


def test_no_line_of_a_sound_counter_is_ever_lost():
    """Every way to count, with epochs of any length: as many entries as lines, in order, the first update first."""
    draw = random.Random(0)
    for _ in range(500):
        base, anew, said, first = draw.choice([0, 1]), draw.random() < 0.5, draw.random() < 0.5, draw.choice([0, 1])
        length, every, epochs = draw.randint(2, 40), draw.choice([1, 1, 5]), draw.randint(1, 4)
        lines: list[Entry] = []
        updates: list[int] = []
        for epoch in range(epochs):
            done = length if epoch < epochs - 1 or not anew else draw.randint(1, length)
            for place in range(0, done, every):
                number = base + place + (0 if anew else epoch * length)
                lines.append(Entry(number, first + epoch if said else None, float(len(lines))))
                updates.append(epoch * length + place + 1)
        made = counted(lines)
        assert [one.loss for one in made.entries] == [line.loss for line in lines], (base, anew, said, length, every, epochs)
        if every == 1:
            assert [one.update for one in made.entries] == updates, (base, anew, said, length, epochs)


def test_a_counter_that_is_known_is_not_guessed():
    lines = [Entry(49, 0, 1.0), Entry(99, 0, 0.9), Entry(49, 1, 0.8)]
    made = counted(lines, Known(base=0, first_epoch=0, per_epoch=True, totals=[120] * 3))
    assert [one.update for one in made.entries] == [50, 100, 170] and made.notes == ()


# --- other writings of one table ----------------------------------------------------------------------------------------------

PLAIN = "step,loss\n" + "".join(f"{n},{loss}\n" for n, loss in enumerate(LOSSES, 1))
WRITINGS = {
    "bars": PLAIN.replace(",", "|"),
    "bars with blanks": PLAIN.replace(",", " | "),
    "blanks": PLAIN.replace(",", "  "),
    "numpy.savetxt": "# " + PLAIN.replace(",", " "),
    "a comment": "# run of Monday, step size 0.1\n#\n" + PLAIN,
    "a comment and a header behind a sign": "# by hand\n#" + PLAIN,
    "blank lines": "\n\n" + PLAIN.replace("\n", "\n\n"),
    "CRLF": PLAIN.replace("\n", "\r\n"),
    "semicolons and commas": PLAIN.replace(",", ";").replace(".", ","),
    "UTF-8 with a mark": "\ufeff" + PLAIN,
    **{
        f"a column {name}": PLAIN.replace("step", name)
        for name in ("n_iter", "current_iter", "global_iter", "train_step", "cur-iter")
    },
}


@pytest.mark.parametrize("name", WRITINGS)
def test_a_table_is_read_however_it_is_written(written, name):
    run = read_run(written("a.csv", WRITINGS[name]))
    assert [(one.update, one.loss) for one in run.entries] == [*enumerate(LOSSES, 1)] and run.skipped == 0 and not run.notes


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_lines_with_a_count_and_no_value_are_counted(written, form):
    """A loss that is no number is null in strict JSON, and an empty cell in a table."""
    text = {"jsonl": '{"step": 3, "loss": 1.0}', "csv": "3,1.0"}[form]
    whole = PLAIN if form == "csv" else "".join(f'{{"step": {n}, "loss": {loss}}}\n' for n, loss in enumerate(LOSSES, 1))
    run = read_run(written(f"a.{form}", whole.replace(text, text.replace("1.0", "" if form == "csv" else "null"))))
    assert [one.update for one in run.entries] == [1, 2, 4]
    assert run.notes == ("1 line has a count and no value, as a loss that is no number may be written: left out",)
    assert not any("no value" in note for note in read_run(written("metrics.csv", LIGHTNING)).notes), "others have another value"


@pytest.mark.parametrize(("losses", "equal"), [([2.0, 1.8, 1.6], True), ([2.0, 1.8, 1.2], False), ([2.4, 1.8, 1.6], False)])
def test_few_digits_make_no_two_curves_equal(written, losses, equal):
    """Ten times what the writing rounds is more than a loss of one digit has: 1.6 and 1.2 were equal but for rounding."""
    one = written("a.csv", rows("csv", [7, 8, 9], None, [2.0, 1.8, 1.6]))
    other = written("b.csv", rows("csv", [7, 8, 9], None, losses))
    said = verdict(RunsSubject(read_run(one), read_run(other), said_same_start=True))
    assert said.startswith("equal but for rounding up to update 9") == equal, said


# --- logs without learning rates ----------------------------------------------------------------------------------------------

EXAMPLE = """\
Epoch: [0][1/2]\tTime  1.0 ( 1.0)\tData  0.9 ( 0.9)\tLoss 2.0000e+00 (2.0000e+00)\tAcc@1  10.00 ( 10.00)\tAcc@5  50.00 ( 50.00)
Epoch: [0][2/2]\tTime  1.0 ( 1.0)\tData  0.9 ( 0.9)\tLoss 1.5000e+00 (1.7500e+00)\tAcc@1  10.00 ( 10.00)\tAcc@5  50.00 ( 50.00)
Test: [1/1]\tTime  0.5 ( 0.5)\tLoss 1.3000e+00 (1.3000e+00)\tAcc@1  25.00 ( 25.00)\tAcc@5  60.00 ( 60.00)
 *   Acc@1 25.000 Acc@5 60.000
Epoch: [1][1/2]\tTime  1.0 ( 1.0)\tData  0.9 ( 0.9)\tLoss 1.0000e+00 (1.0000e+00)\tAcc@1  10.00 ( 10.00)\tAcc@5  50.00 ( 50.00)
Epoch: [1][2/2]\tTime  1.0 ( 1.0)\tData  0.9 ( 0.9)\tLoss 5.0000e-01 (7.5000e-01)\tAcc@1  10.00 ( 10.00)\tAcc@5  50.00 ( 50.00)
 *   Acc@1 75.000 Acc@5 90.000
"""
OLD_EXAMPLE = EXAMPLE.replace("][1/2]", "][0/2]").replace("][2/2]", "][1/2]").replace("Acc@", "Prec@")
BAR = """\
Epoch 0:   0%|          | 0/2 [00:00<?, ?it/s]\rEpoch 0:  50%|█████     | 1/2 [00:00<00:00,  5.33it/s]\r\
Epoch 0:  50%|█████     | 1/2 [00:00<00:00,  5.33it/s, v_num=0, train_loss=2.000]\r\
Epoch 0: 100%|██████████| 2/2 [00:00<00:00,  5.33it/s, v_num=0, train_loss=2.000]\r\
Epoch 0: 100%|██████████| 2/2 [00:00<00:00,  5.33it/s, v_num=0, train_loss=1.500]\r
Validation: |          | 0/? [00:00<?, ?it/s]\r
Epoch 0: 100%|██████████| 2/2 [00:01<00:00,  1.33it/s, v_num=0, train_loss=1.500, val_loss=9.000]\r
Epoch 1:   0%|          | 0/2 [00:00<?, ?it/s, v_num=0, train_loss=1.500, val_loss=9.000]\r\
Epoch 1:  50%|█████     | 1/2 [00:00<00:00,  5.33it/s, v_num=0, train_loss=1.000, val_loss=9.000]\r\
Epoch 1: 100%|██████████| 2/2 [00:00<00:00,  5.33it/s, v_num=0, train_loss=0.500, val_loss=9.000]\r
"""
STEPS = BAR.replace("train_loss=", "val_loss=9.0, train_loss_epoch=9.0, train_loss_step=").replace("/2 [", "/? [")
RICH = "".join(
    f"Epoch {n // 2}/1  ━━━ {n % 2 + 1}/2 0:00:01 • 0:00:00 1.5it/s v_num: 0.000 train_loss_step: {loss:.3f} train_loss_epoch: 9\n"
    for n, loss in enumerate(LOSSES)
)


@pytest.mark.parametrize("text", [EXAMPLE, OLD_EXAMPLE, BAR, STEPS, RICH], ids=["example", "old example", "bar", "steps", "rich"])
def test_logs_that_say_no_learning_rate_get_their_places(written, text):
    run = read_run(written("train.log", text))
    losses = (2.0, 1.75, 1.0, 0.75) if run.averaged == MEAN else LOSSES
    assert [(one.update, one.epoch, one.loss) for one in run.entries] == [*zip(range(1, 5), (0, 0, 1, 1), losses, strict=True)]
    assert [one.top1 for one in run.evaluations] == ([*RESULTS] if run.averaged == MEAN else [])
    assert problems(written("trusted.csv", LIGHTNING), written("train.log", text)) == set()
    changed = text.replace("1.0000e+00 (1", "3.0000e+00 (3").replace("=1.000", "=3.000").replace(": 1.000", ": 3.000")
    subject = RunsSubject(run, read_run(written("changed.log", changed)), said_same_start=True)
    assert verdict(subject).startswith("equal but for rounding up to update 2, then further apart")
