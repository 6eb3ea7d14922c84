"""A run that kills itself (SIGKILL) at a given event, for tests of what is left then.

As a program it trains: python tests/killed.py KIND AT RANK SEED [flags of tools/train.py]. With KIND ``none`` nothing is killed.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys

from mobilenetv3_common import checkpoint, train_log

KINDS = ("temporary", "rename", "evaluation", "logging", "update")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class Killer:
    """Ends this process at the ``at``-th event of a kind (from 1): before it, after it, or in its middle.

    Args:
        kind: ``temporary``: a checkpoint's file is being written. ``rename``: it, or a link to it, gets its name.
            ``evaluation``: a batch is judged. ``logging``: a line is appended to a log. ``update``: the weights are changed.
        at: which of them.
        rng: says where in the event.
    """

    def __init__(self, kind: str, at: int, rng: random.Random) -> None:
        self.kind, self.left, self.share, self.before = kind, at, rng.random(), rng.random() < 0.5

    def due(self) -> bool:
        self.left -= 1
        return self.left == 0

    def install(self, backend) -> None:
        """Change this process's own functions; ``backend`` is the package's ``TrainingBackend``."""
        if self.kind == "temporary":
            checkpoint.atomic_open = self.half_written(checkpoint.atomic_open)
        elif self.kind == "rename":
            for name in ("replace", "link"):
                setattr(os, name, self.around(getattr(os, name), lambda source, target: str(target).endswith(".safetensors")))
        elif self.kind == "logging":
            train_log.TrainLog._append = self.half_appended(train_log.TrainLog._append)
        elif self.kind in ("evaluation", "update"):
            name = "judge_batch" if self.kind == "evaluation" else "apply_update"
            setattr(backend, name, self.around(getattr(backend, name)))

    def around(self, function, counts=lambda *args: True):
        def wrapped(*args, **options):
            due = counts(*args) and self.due()
            if due and self.before:
                die()
            result = function(*args, **options)
            if due:
                die()
            return result

        return wrapped

    def half_written(self, atomic_open):
        @contextlib.contextmanager
        def wrapped(path, mode="wb"):
            with atomic_open(path, mode) as file:
                if str(path).endswith(".safetensors") and self.due():
                    file.write = lambda data, write=file.write: (write(data[: int(len(data) * self.share)]), file.flush(), die())
                yield file

        return wrapped

    def half_appended(self, append):
        def wrapped(log, name, text):
            if self.due():
                with open(log.folder / name, "a", encoding="utf-8") as file:
                    file.write((text + "\n")[: int((len(text) + 2) * self.share)])
                die()
            append(log, name, text)

        return wrapped


def main() -> int:
    kind, at, rank, seed, *flags = sys.argv[1:]
    if kind in KINDS and os.environ.get("PADDLE_TRAINER_ID", os.environ.get("RANK", "0")) == rank:
        if "ref" in flags:
            from mobilenetv3_ref.train import backend
        else:
            from mobilenetv3_paddle.train import backend
        Killer(kind, int(at), random.Random(int(seed))).install(backend)
    from tools.train import main as train

    return train(flags)


if __name__ == "__main__":
    sys.exit(main())
