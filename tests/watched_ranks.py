"""One of two ranks that train a small model, watched, with a planted mistake: FRAMEWORK MISTAKE; prints rank 0's events."""

from __future__ import annotations

import json
import sys
from typing import Any

from alignment_doctor.watch import Watch
from tests.watched import SIDES, batches


def joined(framework: str) -> tuple[int, Any]:
    """This rank's number, and what wraps a model."""
    if framework == "torch":
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        dist.init_process_group("gloo")
        return dist.get_rank(), DistributedDataParallel
    import paddle
    import paddle.distributed as dist

    dist.init_parallel_env()
    return dist.get_rank(), paddle.DataParallel


def left(framework: str) -> None:
    """Leave the other rank; gloo's threads abort a torch process that ends in its group (half of the runs on a busy machine)."""
    if framework == "torch":
        import torch.distributed as dist

        dist.barrier()
        dist.destroy_process_group()


def averaged(framework: str, model: Any) -> None:
    """Average the gradients, as who writes it by hand does."""
    if framework == "torch":
        import torch.distributed as dist
    else:
        import paddle.distributed as dist
    for parameter in model.parameters():
        if parameter.grad is not None:
            gradient = parameter.grad.detach()  # shares its memory
            dist.all_reduce(gradient)
            gradient.scale_(0.5) if framework == "paddle" else gradient.div_(2)


def main(framework: str, mistake: str) -> None:
    side = SIDES[framework]
    rank, wrapper = joined(framework)
    side.seed(rank if mistake == "start" else 0)
    model = side.Net("")
    by_hand = mistake == "start"
    parallel = model if by_hand or mistake == "gradients" else wrapper(model)
    optimizer = side.optimizer(model.parameters(), 0.02 * (1 + (rank if mistake == "rate" else 0)), "sgd")
    told: list[str] = []
    watch = Watch(model, optimizer, say=told.append, shared_statistics=mistake == "statistics")
    for pictures, labels in batches(3, 0 if mistake == "data" else 10 + rank):
        loss = side.cross_entropy(parallel(side.tensor(pictures)), side.tensor(labels))
        loss.backward()
        if by_hand:
            averaged(framework, model)
        watch.before_update(loss)
        optimizer.step()
        side.clear(optimizer)
        if mistake == "weights" and rank == 1:
            side.shrink(model.head.weight)
        watch.after_update()
    watch.close()
    if rank == 0:
        print("TOLD", json.dumps([[event.check, event.update, list(event.where)] for event in watch.told]), flush=True)
    left(framework)


if __name__ == "__main__":
    main(*sys.argv[1:])
