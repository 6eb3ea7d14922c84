"""Faults that only several ranks show."""

from __future__ import annotations

import dataclasses

from mobilenetv3_common.sampling import BatchPlan
from mobilenetv3_paddle.data import build_loader
from mobilenetv3_paddle.metric import TopKAccuracy

from .base import Kind, fault


@fault("distributed", 2, "ranks", Kind.NOT_SHARDED)
def every_rank_sees_everything(stack, project):
    def loader(dataset, plan, num_workers=0, mix_group=None):
        if isinstance(plan, BatchPlan):
            plan = dataclasses.replace(plan, rank=0, world_size=1)
        return build_loader(dataset, plan, num_workers, mix_group)

    return project.with_port("data", build_loader=loader)


@fault("distributed", 2, "ranks", Kind.SHARDS_OVERLAP)
def ranks_padded(stack, project):
    class Padded(BatchPlan):
        """Every rank gets equally many batches: the first one again where one is lacking, as many samplers do."""

        def __len__(self):
            return max(len(self.sound(rank)) for rank in range(self.world_size))

        def __iter__(self):
            own = list(self.sound(self.rank))
            return iter(own + own[:1] * (len(self) - len(own)))

        def sound(self, rank: int) -> BatchPlan:
            return BatchPlan(**(dataclasses.asdict(self) | {"rank": rank}))

    def loader(dataset, plan, num_workers=0, mix_group=None):
        if isinstance(plan, BatchPlan):
            plan = Padded(**dataclasses.asdict(plan))
        return build_loader(dataset, plan, num_workers, mix_group)

    return project.with_port("data", build_loader=loader)


@fault("distributed", 3, "TopKAccuracy.merge", Kind.RANKS_NOT_MERGED)
def ranks_not_merged(stack, project):
    class MergesRightAnswersOnly(TopKAccuracy):
        def merge(self, other):
            count = self.count
            super().merge(other)
            self.count = max(count, other.count)

    return project.with_port("metric", TopKAccuracy=MergesRightAnswersOnly)
