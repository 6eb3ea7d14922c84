"""Runs that diverge go back to their last good checkpoint and on with a lower rate, as often as they may and no oftener."""

import dataclasses
import os
import signal

import numpy as np
import pytest

from alignment_doctor.watch.training import Watching
from mobilenetv3_common.checkpoint import LATEST, CheckpointFolder, read_checkpoint
from mobilenetv3_common.errors import Diverged, UserError
from mobilenetv3_common.observer import Observer
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.train_log import read_json_lines
from tests.test_train_loop import BUILDERS, CONFIG
from tests.test_train_options import own_signals  # noqa: F401
from tests.training import curve, train

PACKAGES = pytest.mark.parametrize(("package", "builder"), BUILDERS, ids=["paddle", "ref"])
# Epoch 0 trains at 2^-10, epoch 1 at 2^89: its second update is not finite. The factor makes 2^-7 of that.
WILD = dataclasses.replace(
    CONFIG, epochs=3, lr=2.0**90, lr_unit="epoch", lr_schedule="constant", warmup_epochs=2, warmup_decay=2.0**-100,
    roll_back=1, roll_back_factor=2.0**-96, print_every=1,
)  # fmt: skip


class StopsAt(Observer):
    """Asks the run to stop after an update."""

    def __init__(self, update):
        self.update = update

    def after_update(self, run):
        if run.update == self.update:
            os.kill(os.getpid(), signal.SIGTERM)


def same(one, other):
    arrays = [read_checkpoint(folder / LATEST).arrays for folder in (one, other)]
    assert arrays[0].keys() == arrays[1].keys()
    return all(np.array_equal(array, arrays[1][name]) for name, array in arrays[0].items())


@PACKAGES
@pytest.mark.usefixtures("own_signals")
def test_a_run_goes_back_and_on_and_resumes_as_if_it_had_not_stopped(package, builder, tmp_path):
    whole, part = (dataclasses.replace(WILD, output_dir=str(tmp_path / name), ema_decay=0.5) for name in ("whole", "part"))
    assert package.train(whole, builder) == 0
    text = (tmp_path / "whole" / "train.log").read_text()
    assert (
        "in epoch 2 of " in text
        and ", update 2 of it" in text
        and "rolled back to update 4 (1 of 1), learning rates are 1.26218e-29 of the" in text
    )
    assert [entry["update"] for entry in read_json_lines(tmp_path / "whole")] == list(range(1, 13)), "no line twice"
    rates = curve(tmp_path / "whole", "lr")[::4]
    assert np.allclose(rates, [2.0**-10, 2.0**-7, 2.0**-6], rtol=1e-3)
    meta = read_checkpoint(tmp_path / "whole" / LATEST).meta
    assert (meta["rollbacks"], meta["rate_factor"], meta["epoch"]) == (1, 2.0**-96, 3)
    for stop in (2, 5, 7):  # 5: its checkpoint is not good, though finite
        assert package.train(dataclasses.replace(part, resume="auto"), builder, StopsAt(stop)) == 143
    assert package.train(dataclasses.replace(part, resume="auto"), builder) == 0
    assert same(tmp_path / "whole", tmp_path / "part")


@PACKAGES
@pytest.mark.usefixtures("own_signals")
def test_without_a_checkpoint_it_is_the_run_of_the_lower_rate(package, builder, tmp_path):
    """Every number is a power of two: the schedule's rate times the factor is the lower rate to the last bit."""
    wild = dataclasses.replace(WILD, warmup_epochs=0, epochs=1, output_dir=str(tmp_path / "wild"), momentum=0.5)
    tame = dataclasses.replace(wild, lr=2.0**-6, roll_back=0, output_dir=str(tmp_path / "tame"))
    assert package.train(wild, builder, Watching()) == 0, "watched, since the watch builds an optimizer of its own"
    assert package.train(tame, builder) == 0
    assert "rolled back to update 0 (1 of 1)" in (tmp_path / "wild" / "train.log").read_text()
    assert same(tmp_path / "wild", tmp_path / "tame")
    assert curve(tmp_path / "wild").tolist() == curve(tmp_path / "tame").tolist()


@PACKAGES
@pytest.mark.usefixtures("own_signals")
def test_weights_that_cannot_be_evaluated_are_not_gone_back_to(package, builder, tmp_path):
    """One update an epoch: the second leaves weights that are finite, and logits of validation pictures that are not."""
    config = dataclasses.replace(WILD, batch_size=16, output_dir=str(tmp_path))
    with pytest.raises(Diverged, match="logits of validation pictures are not finite"):
        package.train(dataclasses.replace(config, roll_back=0), builder)
    assert package.train(dataclasses.replace(config, resume="auto"), builder) == 0, "switched on afterwards"
    assert "rolled back to update 1 (1 of 1)" in (tmp_path / "train.log").read_text()
    assert [path.name for path in CheckpointFolder(tmp_path).numbered()] == [f"update_{n:09d}.safetensors" for n in (1, 2, 3)]
    assert read_json_lines(tmp_path, "eval")[-1]["update"] == 3


@PACKAGES
@pytest.mark.usefixtures("own_signals")
def test_it_ends_where_it_may_not_go_back_any_more(package, builder, tmp_path):
    config = dataclasses.replace(WILD, roll_back=2, roll_back_factor=0.5, output_dir=str(tmp_path))
    with pytest.raises(Diverged, match=r"not finite, first in .*\(rolled back 2 times already\)"):
        package.train(config, builder)
    assert read_checkpoint(tmp_path / LATEST).meta["update"] == 4
    with pytest.raises(UserError, match="--roll-back-factor must be above 0 to below 1"):
        TrainConfig(roll_back_factor=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["paddle", "ref"])
def test_all_ranks_go_back_together(framework, tmp_path):
    wild = ("--epochs", "3", "--lr", str(2.0**90), "--lr-unit", "epoch", "--lr-schedule", "constant", "--warmup-epochs", "2")
    wild += ("--warmup-decay", str(2.0**-100), "--roll-back", "1", "--roll-back-factor", str(2.0**-97), "--batch-size", "2")
    wild += ("--framework", framework, "--crop-size", "32", "--resize-size", "32")
    launcher = {"ref": ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
                "paddle": ("-m", "paddle.distributed.launch", "--nproc_per_node=2", f"--log_dir={tmp_path / 'log'}")}  # fmt: skip
    run = train(tmp_path / "out", *wild, launcher=launcher[framework])
    assert run.returncode == 0, run.stdout + run.stderr
    assert "rolled back to update 4 (1 of 1)" in (tmp_path / "out" / "train.log").read_text()
    assert read_checkpoint(tmp_path / "out" / LATEST).meta["update"] == 12
