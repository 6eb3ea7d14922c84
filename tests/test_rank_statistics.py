"""Statistics that each rank has of its own: in a checkpoint beside their means, back again to the last bit, merged once."""

import ctypes
import os
import signal
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from mobilenetv3_common.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.rank_statistics import add_statistics, merge_statistics, restore_statistics, statistics_of_ranks
from mobilenetv3_common.run_control import undisturbed

MEAN, VAR, WEIGHT = "bn.running_mean", "bn.running_var", "bn.weight"


class Threads:
    """Ranks that are threads of this process."""

    def __init__(self, world_size):
        self.world_size, self.barrier, self.given = world_size, threading.Barrier(world_size), {}

    def each(self, do):
        """What ``do(rank)`` gives on every rank."""
        done = {}

        def one(rank):
            try:
                done[rank] = do(rank)
            except UserError as error:
                done[rank] = error
                self.barrier.abort()

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(self.world_size)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        return [done[rank] for rank in range(self.world_size)]

    def of(self, rank):
        def total(values):
            self.given[rank] = np.asarray(values, dtype=np.float64)
            self.barrier.wait(10)
            found = np.sum([self.given[other] for other in range(self.world_size)], axis=0)
            self.barrier.wait(10)
            return found

        return SimpleNamespace(rank=rank, world_size=self.world_size, first=rank == 0, sum=total)


class Average:
    def __init__(self, arrays):
        self.held = arrays

    def arrays(self):
        return dict(self.held)

    def load(self, arrays):
        self.held = dict(arrays)


def average_statistics(model, ranks):
    """As both frameworks do it: float32, summed and divided."""
    for name in (MEAN, VAR):
        model[name] = (ranks.sum(model[name]).astype(np.float32) / np.float32(ranks.world_size)).astype(np.float32)


def load(model, arrays, source):
    model.update(arrays)


BACKEND = SimpleNamespace(model_arrays=dict, load_model_arrays=load, average_statistics=average_statistics)


def run_of(ranks, seed, ema=True, sync_bn=False):
    rng = np.random.default_rng(seed)

    def state():
        return {name: rng.normal(size=(5, 2)).astype(np.float32) for name in (MEAN, VAR)} | {WEIGHT: np.ones(3, np.float32)}

    model, averages = state(), state()
    config = SimpleNamespace(sync_bn=sync_bn)
    return SimpleNamespace(backend=BACKEND, config=config, ranks=ranks, model=model, average=Average(averages if ema else {}))


def whole(run):
    return {f"model/{name}": array for name, array in run.model.items()} | {f"ema/{n}": a for n, a in run.average.arrays().items()}


def saved(world, path, ema=True):
    """Runs of each rank, and their checkpoint as rank 0 wrote it."""
    threads = Threads(world)
    runs = [run_of(threads.of(rank), rank, ema) for rank in range(world)]
    before = [whole(run) for run in runs]
    statistics = threads.each(lambda rank: statistics_of_ranks(runs[rank]))
    checkpoint = Checkpoint(whole(runs[0]), {"update": 3})
    add_statistics(checkpoint, statistics[0])
    write_checkpoint(path, checkpoint)
    same = [np.array_equal(whole(run)[name], array) for run, held in zip(runs, before, strict=True) for name, array in held.items()]
    assert all(same), "to save changes nothing"
    return runs, read_checkpoint(path)


@pytest.mark.parametrize("ema", [True, False])
@pytest.mark.parametrize("world", [2, 3])
def test_each_rank_gets_its_own_back_and_the_file_holds_the_means(world, ema, tmp_path):
    runs, found = saved(world, tmp_path / "a.safetensors", ema)
    for kind in ("model", "ema")[: 1 + ema]:
        held = np.stack([whole(run)[f"{kind}/{MEAN}"] for run in runs])
        assert np.array_equal(found.part(kind)[MEAN], held.mean(0, dtype=np.float64).astype(np.float32))
    assert not [name for name in found.arrays if name.startswith("rank") and WEIGHT in name], "what is equal is kept once"
    threads = Threads(world)
    again = [run_of(threads.of(rank), 50 + rank, ema) for rank in range(world)]
    assert threads.each(lambda rank: restore_statistics(again[rank], found, "a")) == [0] * world
    for one, other in zip(runs, again, strict=True):
        names = [name for name in whole(one) if WEIGHT not in name]
        assert len(names) == 2 + 2 * ema and all(np.array_equal(whole(one)[name], whole(other)[name]) for name in names)


def test_another_number_of_ranks_goes_on_with_the_means_and_says_of_how_many(tmp_path):
    _, found = saved(3, tmp_path / "a.safetensors")
    threads = Threads(2)
    again = [run_of(threads.of(rank), rank) for rank in range(2)]
    before = [whole(run) for run in again]
    assert threads.each(lambda rank: restore_statistics(again[rank], found, "a")) == [3, 3]
    assert all(np.array_equal(whole(r)[n], a) for r, held in zip(again, before, strict=True) for n, a in held.items())


def test_a_checkpoint_from_before_ranks_were_kept_apart_restores_nothing(tmp_path):
    threads = Threads(2)
    again = [run_of(threads.of(rank), rank) for rank in range(2)]
    old = Checkpoint(whole(again[0]), {})
    assert threads.each(lambda rank: restore_statistics(again[rank], old, "a")) == [0, 0]


@pytest.mark.parametrize("change", ["missing", "extra", "shape"])
def test_damaged_statistics_are_refused_on_every_rank_alike(change, tmp_path):
    _, found = saved(2, tmp_path / "a.safetensors")
    name = f"rank1/model/{VAR}"
    if change == "missing":
        del found.arrays[name]
    else:
        found.arrays[name if change == "shape" else "rank1/model/other.running_var"] = np.zeros(3, np.float32)
    threads = Threads(2)
    again = [run_of(threads.of(rank), rank) for rank in range(2)]
    told = threads.each(lambda rank: restore_statistics(again[rank], found, "FILE"))
    assert all(isinstance(error, UserError) and "the statistics of rank 1 in checkpoint FILE" in str(error) for error in told), told


@pytest.mark.parametrize("world", [2, 3, 5])
def test_merged_once_or_twice_it_is_the_same(world):
    """A sum of equal numbers, divided, need not give the number: of three ranks one of six differs."""
    threads = Threads(world)
    runs = [run_of(threads.of(rank), rank) for rank in range(world)]
    assert threads.each(lambda rank: merge_statistics(runs[rank])) == [None] * world
    once = [whole(run) for run in runs]
    assert threads.each(lambda rank: merge_statistics(runs[rank])) == [None] * world
    assert threads.each(lambda rank: statistics_of_ranks(runs[rank])) == [{}] * world
    for run, held in zip(runs, once, strict=True):
        assert all(np.array_equal(whole(run)[name], array) and np.array_equal(once[0][name], array) for name, array in held.items())


def test_one_rank_and_synchronised_statistics_send_nothing():
    run = run_of(SimpleNamespace(rank=0, world_size=1, sum=None), 0)
    assert statistics_of_ranks(run) == {} and statistics_of_ranks(run_of(SimpleNamespace(world_size=2), 0, sync_bn=True)) == {}


def test_no_signal_interrupts_a_system_call_where_none_may():
    """Paddle's store takes an interrupted call for a failure; the signal is handled afterwards."""
    noted = []
    before = signal.signal(signal.SIGCHLD, lambda number, frame: noted.append(number))
    try:
        sleep = ctypes.CDLL(None).usleep
        for inside in (False, True):
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGCHLD)).start()
            if inside:
                with undisturbed():
                    assert sleep(300_000) == 0
            else:
                assert sleep(300_000) == -1, "the test's own signal arrives"
        assert noted == [signal.SIGCHLD] * 2
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
