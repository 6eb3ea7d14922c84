"""Loader workers that end in every way, in one process, for tests/test_loader_workers.py: prints what is told as JSON.

python tests/worker_ends.py paddle|ref
"""

import contextlib
import importlib
import json
import multiprocessing
import os
import resource
import signal
import sys
import time
from pathlib import Path

from mobilenetv3_common.dataset_index import index_dataset
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.loader_workers import delivered
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_common.sampling import BatchPlan

pids = [os.getpid()]  # of this process and all that it has started: shared memory of others is not looked at


def noted(self, start=multiprocessing.process.BaseProcess.start):
    start(self)
    pids.append(self.pid)


multiprocessing.process.BaseProcess.start = noted
PACKAGE = importlib.import_module(f"mobilenetv3_{sys.argv[1]}.data")


class Ending(PACKAGE.ImageDataset):
    """Ends its worker at one picture."""

    at, end = None, None

    def __getitem__(self, key):
        if key.sample == self.at:
            self.end()
        return super().__getitem__(key)


def loader(at=None, end=None, workers=2):
    dataset = Ending(index_dataset("lite_data", "val"), EvalPreset(32, 32))
    dataset.at, dataset.end = at, end
    return PACKAGE.build_loader(dataset, BatchPlan(16, 1), workers)


def all_of(made):
    return sum(1 for _ in delivered(made))


def killed_at_work():
    return all_of(loader(5, lambda: os.kill(os.getpid(), signal.SIGKILL)))


def killed_by_a_bus_error():
    return all_of(loader(5, lambda: os.kill(os.getpid(), signal.SIGBUS)))


def crashed():
    return all_of(loader(5, lambda: os.kill(os.getpid(), signal.SIGSEGV)))


def left_with_a_status():
    return all_of(loader(5, lambda: os._exit(3)))


def left_with_status_0():
    return all_of(loader(5, lambda: os._exit(0)))


def out_of_memory():
    return all_of(loader(5, lambda: bytearray(1 << 60)))


def killed_while_another_loader_is_asked():
    with contextlib.closing(delivered(loader())) as first, contextlib.closing(delivered(loader())) as second:
        next(first)
        own = multiprocessing.active_children()[0].pid
        next(second)
        os.kill(own, signal.SIGKILL)
        time.sleep(0.3)
        return sum(1 for _ in second)


def no_more_files():
    os.close(used := os.dup(0))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 2, limits[1]))
    try:
        return all_of(loader())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def batch_that_cannot_be_sent():
    made = loader()
    if sys.argv[1] == "ref":
        made.collate_fn = lambda samples: lambda: None
        return all_of(made)
    import paddle

    def unsent(tensor):
        raise RuntimeError("no shared memory for it")

    paddle.incubate.multiprocessing.reductions.ForkingPickler.register(paddle.base.core.DenseTensor, unsent)
    return all_of(made)


def left_early():
    for _ in delivered(loader()):
        return 1
    return 0


def left_by_an_error():
    for _ in delivered(loader()):
        raise UserError("of the loop")


def whole():
    return all_of(loader())


def main():
    cases = (
        whole, left_early, left_by_an_error, killed_at_work, killed_by_a_bus_error, crashed, left_with_a_status, left_with_status_0,
        out_of_memory, killed_while_another_loader_is_asked, no_more_files, batch_that_cannot_be_sent, whole,
    )  # fmt: skip
    told = {}
    for case in cases if case_named() is None else [case_named()]:
        if case is whole and "whole" in told and sys.argv[1] == "paddle":
            continue  # its tensors cannot be sent any more
        print(case.__name__, file=sys.stderr, flush=True)
        begun = time.monotonic()
        try:
            said = case()
        except UserError as error:
            said = f"{type(error).__name__} {error.status}: {error.line}"
        seconds = time.monotonic() - begun
        left = [child.pid for child in multiprocessing.active_children()]
        files = [name.name for pid in pids for name in Path("/dev/shm").glob(f"*_{pid}_*")]
        told[case.__name__] = {"said": said, "seconds": seconds, "left": left, "files": files}
    print(json.dumps(told))


def case_named():
    return globals()[sys.argv[2]] if len(sys.argv) > 2 else None


if __name__ == "__main__":
    main()
