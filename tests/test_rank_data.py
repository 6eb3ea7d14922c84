"""Ranks that list different pictures are refused when a run begins, on every rank, by one line."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier

import numpy as np
import pytest

from mobilenetv3_common.dataset_index import index_splits
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.rank_data import refuse_unlike_ranks
from tests.conftest import LITE_DATA
from tests.test_train_ranks import free_port
from tests.training import QUICK, run_command


@dataclass
class Together:
    """A rank among threads."""

    rank: int
    world_size: int
    meeting: Barrier
    given: list

    def sum(self, values):
        self.given[self.rank] = np.asarray(values, dtype=np.float64)
        self.meeting.wait(20)
        return np.sum(self.given, axis=0)


def said(folders):
    """What each rank says of its own folder; ``""`` where it goes on."""
    meeting, given = Barrier(len(folders)), [None] * len(folders)

    def one(rank):
        try:
            refuse_unlike_ranks(*index_splits(folders[rank]), Together(rank, len(folders), meeting, given))
        except UserError as error:
            return error.line
        return ""

    with ThreadPoolExecutor(len(folders)) as pool:
        return list(pool.map(one, range(len(folders))))


@pytest.fixture
def copy(tmp_path):
    """Another copy of the data set, without list files."""

    def of(name="copy"):
        shutil.copytree(LITE_DATA, tmp_path / name, ignore=shutil.ignore_patterns("*_list.txt", "classes.txt"))
        return tmp_path / name

    return of


def test_ranks_with_copies_of_one_data_set_go_on(copy):
    assert said([copy("a"), copy("b"), copy("c")]) == ["", "", ""]
    assert said([LITE_DATA]) == [""]


def test_a_missing_picture_is_said_on_every_rank(copy):
    whole, less = copy("a"), copy("b")
    next((less / "train").rglob("cat_0.JPEG")).unlink()
    told = said([whole, less, whole, whole])
    assert len(set(told)) == 1
    assert told[0].startswith(
        "the ranks do not list the same training pictures: ranks 0, 2-3 have 16 and 16 pictures of 8 classes, "
        "rank 1 has 15 and 16 pictures of 8 classes (training, validation); give every machine the same pictures"
    )


def test_another_name_label_or_class_is_said_with_equal_numbers(copy):
    whole, other = copy("a"), copy("b")
    picture = next((other / "val").rglob("*.JPEG"))
    picture.rename(picture.with_name("z.JPEG"))
    (told, _) = said([whole, other])
    assert "the same validation pictures:" in told and "of equal numbers the names or labels differ" in told
    shutil.rmtree(other)
    other = copy("b")
    for split in ("train", "val"):
        (other / split / "cat").rename(other / split / "tiger")
    assert "the same training pictures and validation pictures and classes:" in said([whole, other])[0]


def test_many_groups_are_not_all_told(copy):
    folders = [copy(f"{number}") for number in range(5)]
    for number, folder in enumerate(folders):
        for picture in sorted((folder / "train").rglob("*_1.JPEG"))[:number]:
            picture.unlink()
    (told, *_) = said(folders)
    assert told.count("pictures of") == 3 and "2 more groups" in told


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["paddle", "ref"])
def test_two_machines_with_different_pictures_are_refused_on_both(framework, copy, tmp_path):
    """Two launchers on loopback, each a machine of one rank. The real run of two equal machines is in tests/test_train_ranks.py."""
    data = (copy("a"), copy("b"))
    next((data[1] / "train").rglob("cat_0.JPEG")).unlink()
    host, port = "127.0.0.1", free_port()

    def machine(rank):
        launcher = {
            "paddle": ("-m", "paddle.distributed.launch", "--master", f"{host}:{port}", "--nnodes", "2", "--rank", str(rank),
                       "--nproc_per_node", "1", "--log_dir", str(tmp_path / f"log{rank}")),
            "ref": ("-m", "torch.distributed.run", "--master-addr", host, "--master-port", str(port), "--nnodes", "2",
                    "--node-rank", str(rank), "--nproc-per-node", "1"),
        }[framework]  # fmt: skip
        flags = (*QUICK, "--framework", framework, "--output-dir", tmp_path / "out", "--data-path", data[rank])
        run = run_command(*launcher, "tools/train.py", *flags, timeout=300, PYTHONPATH=".")
        logs = "".join(path.read_text() for path in (tmp_path / f"log{rank}").rglob("*") if path.is_file())
        return run.returncode, run.stdout + run.stderr + logs

    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(machine, (0, 1)))
    for status, told in runs:
        assert status != 0 and "error: the ranks do not list the same training pictures: rank 0 has 16 and 16" in told, told
        assert 'tools/train.py", line' not in told
