"""Run by a launcher (test_metric.py): each rank counts its share of 33 samples; all must report the whole's accuracy."""

import sys

import numpy as np

from mobilenetv3_common.sampling import BatchPlan

logits = np.random.default_rng(0).normal(size=(33, 10)).astype(np.float32)
labels = np.random.default_rng(1).integers(0, 10, 33)
if sys.argv[1] == "paddle":
    import paddle as framework
    import paddle.distributed as dist

    from mobilenetv3_paddle.metric import TopKAccuracy

    dist.init_parallel_env()
    tensor = framework.to_tensor
else:
    import torch as framework
    import torch.distributed as dist

    from mobilenetv3_ref.metric import TopKAccuracy

    dist.init_process_group("gloo")
    tensor = framework.from_numpy
metric = TopKAccuracy((1, 5))
for keys in BatchPlan(33, 4, rank=dist.get_rank(), world_size=dist.get_world_size()):
    chosen = [key.sample for key in keys]
    metric.update(tensor(logits[chosen]), tensor(labels[chosen]))
own = metric.count
metric.all_reduce()
with open(f"{sys.argv[2]}/rank{dist.get_rank()}", "w") as file:
    file.write(f"{own} {metric.count} {metric.correct[0]} {metric.correct[1]}")
dist.barrier()
if sys.argv[1] == "torch":
    dist.destroy_process_group()  # without it a rank may be cut down at exit
