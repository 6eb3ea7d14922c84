"""Faults that only several ranks show.

Those of step 7 are made in each rank of a real launch (``--ranks 2 --inject NAME``).
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import paddle
import paddle.distributed as dist
from paddle import nn

from alignment.faults import replaced
from alignment.project import Project
from mobilenetv3_common import evaluation
from mobilenetv3_common.image import decode_image
from mobilenetv3_common.presets import TrainPreset
from mobilenetv3_common.rank_statistics import merge_statistics
from mobilenetv3_common.sampling import BatchPlan, RunPlan, epoch_order, sample_params
from mobilenetv3_common.weights import is_statistic
from mobilenetv3_paddle.data import ImageDataset, build_loader
from mobilenetv3_paddle.metric import TopKAccuracy
from mobilenetv3_paddle.models import norm
from mobilenetv3_paddle.train import MovingAverage, Ranks, accumulate_gradients, backend, build_run, update

from .base import Kind, fault
from .training import built


class Padded(BatchPlan):
    """Every rank gets equally many batches: the first one again where one is lacking, as many samplers do."""

    def __len__(self):
        return max(len(self.sound(rank)) for rank in range(self.world_size))

    def __iter__(self):
        own = list(self.sound(self.rank))
        return iter(own + own[:1] * (len(self) - len(own)))

    def sound(self, rank: int) -> BatchPlan:
        return BatchPlan(**(dataclasses.asdict(self) | {"rank": rank}))


def padded_loader(dataset, plan, num_workers=0, mix_group=None):
    if isinstance(plan, BatchPlan):
        plan = Padded(**dataclasses.asdict(plan))
    return build_loader(dataset, plan, num_workers, mix_group)


@fault("distributed", 2, "ranks", Kind.NOT_SHARDED)
def every_rank_sees_everything(stack, project):
    def loader(dataset, plan, num_workers=0, mix_group=None):
        if isinstance(plan, BatchPlan):
            plan = dataclasses.replace(plan, rank=0, world_size=1)
        return build_loader(dataset, plan, num_workers, mix_group)

    return project.with_port("data", build_loader=loader)


@fault("distributed", 2, "ranks", Kind.SHARDS_OVERLAP)
def ranks_padded(stack, project):
    return project.with_port("data", build_loader=padded_loader)


@fault("distributed", 3, "TopKAccuracy.merge", Kind.RANKS_NOT_MERGED)
def ranks_not_merged(stack, project):
    class MergesRightAnswersOnly(TopKAccuracy):
        def merge(self, other):
            count = self.count
            super().merge(other)
            self.count = max(count, other.count)

    return project.with_port("metric", TopKAccuracy=MergesRightAnswersOnly)


# --- real ranks: gradients -------------------------------------------------------------------------------------------------

ALL_GRADIENTS = "gradient of every tensor on every rank"


def with_backend(stack: contextlib.ExitStack, project: Project, **names: Any) -> Project:
    """The project whose port's training loop finds other functions under some names."""
    for name, value in names.items():
        stack.enter_context(replaced(backend, name, value))
    return project


def alone(model, ranks):
    """The model as it is: nothing adds up its gradients."""
    return model


def with_gradients(model: nn.Layer, change: Callable[[paddle.Tensor], paddle.Tensor]) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad = change(parameter.grad)


def averaged(gradient: paddle.Tensor) -> paddle.Tensor:
    total = gradient.clone()
    dist.all_reduce(total)
    return total / dist.get_world_size()


def changed_gradients(stack: contextlib.ExitStack, project: Project, change: Callable[[paddle.Tensor], paddle.Tensor]) -> Project:
    """Gradients changed after the ranks' have been averaged."""

    def accumulate(model, *args):
        loss = accumulate_gradients(model, *args)
        with_gradients(model, change)
        return loss

    return with_backend(stack, project, accumulate_gradients=accumulate)


@fault("ranks", 7, ALL_GRADIENTS, Kind.GRADIENT_NOT_REDUCED)
def gradients_not_reduced(stack, project):
    return with_backend(stack, project, parallel=alone)


@fault("ranks", 7, ALL_GRADIENTS, Kind.SUM_FOR_MEAN)
def gradients_summed_over_ranks(stack, project):
    return changed_gradients(stack, project, lambda gradient: gradient * dist.get_world_size())


@fault("ranks", 7, ALL_GRADIENTS, Kind.GRADIENT_SCALED)
def gradients_divided_twice(stack, project):
    return changed_gradients(stack, project, lambda gradient: gradient / dist.get_world_size())


@fault("ranks", 7, ALL_GRADIENTS, Kind.GRADIENT_OF_ONE_RANK)
def gradients_of_rank_0(stack, project):
    def accumulate(model, *args):
        loss = accumulate_gradients(model, *args)
        for parameter in model.parameters():
            if parameter.grad is not None:
                dist.broadcast(parameter.grad, 0)
        return loss

    return with_backend(stack, project, parallel=alone, accumulate_gradients=accumulate)


@fault("ranks", 7, "gradient of classifier.3.weight on every rank", Kind.GRADIENT_NOT_REDUCED)
def one_tensor_not_reduced(stack, project):
    def parallel(model, ranks):
        model.classifier[3].weight.no_sync = True  # what Paddle's DataParallel leaves out
        return paddle.DataParallel(model)

    return with_backend(stack, project, parallel=parallel)


def before_last(stack: contextlib.ExitStack, project: Project, act: Callable[[nn.Layer], None], **names: Any) -> Project:
    """Something done to a model between the first micro-batch of an update and the last."""

    def accumulate(model, criterion, batches, precision, begin, watch):
        def begun(number):
            begin(number)
            if number and number == len(batches) - 1:
                act(model)

        return accumulate_gradients(model, criterion, batches, precision, begun, watch)

    return with_backend(stack, project, accumulate_gradients=accumulate, **names)


@fault("ranks", 7, "gradient of features.1.block.0.0.weight on every rank", Kind.LAST_MICRO_BATCH)
def hook_lost(stack, project):
    def forget(model):
        for name, parameter in model.named_parameters():
            if name.endswith("features.1.block.0.0.weight"):
                parameter.clear_gradient()

    return before_last(stack, project, forget)


@fault("ranks", 7, ALL_GRADIENTS, Kind.RANKS_WEIGHTED)
def micro_batch_lost_on_rank_1(stack, project):
    def lose(model):
        if dist.get_rank() == 1:
            with_gradients(model, paddle.zeros_like)

    return before_last(stack, project, lose)


@fault("ranks", 7, ALL_GRADIENTS, Kind.ACCUMULATION_NOT_REDUCED)
def first_micro_batch_alone_reduced(stack, project):
    return before_last(stack, project, lambda model: with_gradients(model, averaged), parallel=alone)


@fault("ranks", 7, ALL_GRADIENTS, Kind.ACCUMULATION_NOT_REDUCED)
def last_micro_batch_alone_reduced(stack, project):
    def accumulate(model, criterion, batches, precision, begin, watch):
        kept: dict[str, paddle.Tensor] = {}

        def begun(number):
            begin(number)
            if number and number == len(batches) - 1:
                kept.update({p.name: p.grad.clone() for p in model.parameters() if p.grad is not None})
                with_gradients(model, paddle.zeros_like)

        loss = accumulate_gradients(model, criterion, batches, precision, begun, watch)
        with_gradients(model, averaged)
        for parameter in model.parameters():
            if parameter.name in kept:
                parameter.grad = parameter.grad + kept[parameter.name]
        return loss

    return with_backend(stack, project, parallel=alone, accumulate_gradients=accumulate)


@fault("ranks", 7, ALL_GRADIENTS, Kind.CLIPPED_BY_RANK)
def clipped_before_the_ranks_are_averaged(stack, project):
    def step(model, optimizer, clip_norm=None, precision=None):
        if clip_norm is not None:
            nn.utils.clip_grad_norm_([p for p in model.parameters() if not p.stop_gradient], clip_norm)
        with_gradients(model, averaged)
        optimizer.step()
        optimizer.clear_grad()

    return with_backend(stack, project, parallel=alone, apply_update=step)


# --- real ranks: weights, statistics, averages -----------------------------------------------------------------------------


@fault("ranks", 7, "starting weights of features.0.0.weight and 53 more on rank 1", Kind.NOT_BROADCAST)
def weights_not_broadcast(stack, project):
    build_model = backend.build_model

    def build(config, num_classes, builder=None):
        return build_model(dataclasses.replace(config, seed=config.seed + dist.get_rank()), num_classes, builder)

    stack.enter_context(replaced(dist.parallel, "sync_params_buffers", lambda *args, **kwargs: None))
    return with_backend(stack, project, build_model=build)


@fault("ranks", 7, "learning rate on rank 1", Kind.LR_SCALED)
def learning_rate_of_rank_1(stack, project):
    def build(config, ranks, builder=None):
        return build_run(dataclasses.replace(config, lr=config.lr * (1 + ranks.rank)), ranks, builder)

    return project.with_port("train", build_run=build)


@fault("ranks", 7, "evaluated statistics of every tensor on every rank", Kind.STATISTICS_OF_ONE_RANK)
def statistics_not_averaged(stack, project):
    return with_backend(stack, project, average_statistics=lambda model, ranks: None)


@fault("ranks", 7, "evaluated statistics of every tensor on every rank", Kind.STATISTICS_OF_ONE_RANK)
def statistics_of_rank_0(stack, project):
    def average(model, ranks):
        for name, buffer in model.state_dict().items():
            if is_statistic(name):
                dist.broadcast(buffer, 0)

    return with_backend(stack, project, average_statistics=average)


@fault("ranks", 7, "statistics of features.0.1 on every rank", Kind.STATISTICS_NOT_SYNCHRONISED)
def batch_norm_not_synchronised(stack, project):
    def change(run):
        for layer in run.model.sublayers():
            if isinstance(layer, norm.BatchNorm2D):
                layer.synchronized = False

    return built(project, change)


@fault("ranks", 7, "statistics of features.0.1 on every rank", Kind.STATISTICS_NOT_SYNCHRONISED)
def variance_of_each_rank(stack, project):
    calls = 0

    def all_reduce(tensor):
        """Of a layer's forward pass: the mean over the ranks, then each rank's variance as if all had it."""
        nonlocal calls
        calls += tensor.ndim == 1
        if tensor.ndim == 1 and calls % 2 == 0:
            tensor.set_value(tensor * dist.get_world_size())
        else:
            dist.all_reduce(tensor)

    stack.enter_context(replaced(norm, "dist", SimpleNamespace(all_reduce=all_reduce, get_world_size=dist.get_world_size)))
    return project


@fault("ranks", 7, "moving average of every tensor on rank 1", Kind.AVERAGE_OF_ONE_RANK)
def average_of_rank_0(stack, project):
    class Average(MovingAverage):
        def update(self):
            if dist.get_rank() == 0 or not self.shadow:
                super().update()

    return with_backend(stack, project, MovingAverage=Average)


@fault("ranks", 7, "evaluated moving average of the statistics on every rank", Kind.STATISTICS_OF_ONE_RANK)
def average_of_each_ranks_statistics(stack, project):
    def evaluate(run, loader):
        backend.average_statistics(run.model, run.ranks)
        with run.average.applied():
            return evaluation.evaluate(backend, run.model, loader, run.train_index.num_classes, run.ranks, run.precision)

    return project.with_port("train", evaluate_run=evaluate)


# --- real ranks: pictures, random numbers, evaluation ----------------------------------------------------------------------


def with_plan(stack: contextlib.ExitStack, project: Project, change: Callable[[BatchPlan], BatchPlan]) -> Project:
    """Another plan of the training pictures than the loader is given."""

    def loader(dataset, plan, num_workers=0, mix_group=None):
        if isinstance(plan, RunPlan):
            plan = dataclasses.replace(plan, plan=change(plan.plan))
        return build_loader(dataset, plan, num_workers, mix_group)

    return with_backend(stack, project, build_loader=loader)


@fault("ranks", 7, "pictures on rank 1", Kind.NOT_SHARDED)
def pictures_of_rank_0(stack, project):
    return with_plan(stack, project, lambda plan: dataclasses.replace(plan, rank=0))


@fault("ranks", 7, "pictures on rank 1", Kind.SHARDS_OVERLAP)
def training_shards_overlap(stack, project):
    class Early(BatchPlan):
        """Every rank but the first begins half a batch too early."""

        def __iter__(self):
            order = epoch_order(self.size, self.seed, self.epoch, self.shuffle)
            for keys in super().__iter__():
                early = [key.position - (self.rank > 0) * self.batch_size // 2 for key in keys]
                yield [key._replace(sample=int(order[at]), position=at) for key, at in zip(keys, early, strict=True)]

    return with_plan(stack, project, lambda plan: Early(**dataclasses.asdict(plan)))


@fault("ranks", 7, "pictures on rank 1", Kind.NOT_RESHUFFLED)
def epoch_never_set_on_rank_1(stack, project):
    class Still(BatchPlan):
        def set_epoch(self, epoch):
            self.epoch = 0 if self.rank == 1 else epoch

    return with_plan(stack, project, lambda plan: Still(**dataclasses.asdict(plan)))


@fault("ranks", 7, "augmentation on rank 1", Kind.SAME_SEED)
def same_augmentation_on_every_rank(stack, project):
    sizes: list[int] = []

    class Same(ImageDataset):
        """Parameters are drawn for rank 0's pictures."""

        def __getitem__(self, key):
            if not isinstance(self.preset, TrainPreset):
                return super().__getitem__(key)
            order = epoch_order(len(self), self.seed, key.epoch)
            drawn = key._replace(sample=int(order[key.position - dist.get_rank() * sizes[-1]]))
            image = decode_image(self.index.path(key.sample))
            params = sample_params(self.preset, self.seed, drawn, image.height, image.width)
            return self.train_transform(image, self.preset, params), self.index.labels[key.sample], key

    with_backend(stack, project, ImageDataset=Same)
    return built(project, lambda run: sizes.append(run.config.batch_size))


@fault("ranks", 7, "dropout on rank 1", Kind.SAME_SEED)
def same_dropout_on_every_rank(stack, project):
    def change(run):
        at = run.dropout.at
        run.dropout.at = lambda epoch, place: at(epoch, place - run.ranks.rank * run.config.batch_size)

    return built(project, change)


@fault("ranks", 7, "evaluated pictures on rank 1", Kind.PADDING_COUNTED)
def evaluation_padded(stack, project):
    return with_backend(stack, project, build_loader=padded_loader)


@fault("ranks", 7, "evaluation on every rank", Kind.RANKS_NOT_MERGED)
def evaluation_not_merged(stack, project):
    def evaluate(run, loader):
        merge_statistics(run)
        with run.average.applied():
            return evaluation.evaluate(backend, run.model, loader, run.train_index.num_classes, Ranks(), run.precision)

    return project.with_port("train", evaluate_run=evaluate)


@fault("ranks", 7, "TopKAccuracy.all_reduce on every rank", Kind.RANKS_NOT_MERGED)
def counts_not_reduced(stack, project):
    class KeepsItsOwn(TopKAccuracy):
        def all_reduce(self):
            pass

    return project.with_port("metric", TopKAccuracy=KeepsItsOwn)


# --- real ranks that do not get to the end ---------------------------------------------------------------------------------


def on_rank_1(project: Project, act: Callable[[], None]) -> Project:
    """Something that rank 1 does before each update."""

    def change(run, gathered):
        if run.ranks.rank == 1:
            act()
        update(run, gathered)

    return project.with_port("train", update=change)


@fault("ranks", 7, "rank 1", Kind.NO_ANSWER)
def rank_1_hangs(stack, project):
    return on_rank_1(project, lambda: time.sleep(3600))


@fault("ranks", 7, "rank 1", Kind.RAISES)
def rank_1_raises(stack, project):
    def act():
        raise ValueError("rank 1 has had enough")

    return on_rank_1(project, act)
