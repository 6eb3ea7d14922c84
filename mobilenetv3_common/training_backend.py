"""What a framework offers so that the training loop can run on it.

The loop, evaluation, checkpoints and the learning-rate range test stand in this package, once. Everything that computes
stands in the framework's own package, whose module ``train.backend`` implements ``TrainingBackend``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from mobilenetv3_common import parts
from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.parts import Batch, Judgement, Network, Own, Tensor
from mobilenetv3_common.presets import EvalPreset, TrainPreset
from mobilenetv3_common.samples import Samples
from mobilenetv3_common.sampling import BatchPlan, RunPlan
from mobilenetv3_common.train_config import OptimizerConfig, ScheduleConfig, TrainConfig

Arrays = dict[str, np.ndarray]
Builder = Callable[[int], Any]  # number of classes -> a network of the framework


class TrainingBackend(Protocol):
    """A module with these names. Arguments typed ``Own`` are what the same framework returned before.

    Attributes:
        NAME: the value of ``TrainConfig.framework`` that means it; a checkpoint carries it.
    """

    NAME: str

    # --- processes ---

    def started(
        self, device: str = "auto", timeout: float = 1800.0, deterministic: bool = False
    ) -> contextlib.AbstractContextManager[parts.Ranks]:
        """Choose the device (``"auto"``, ``"cpu"`` or ``"gpu"``), and join the other ranks where a launcher started several.

        Args:
            device: where to compute.
            timeout: seconds that a rank waits for the others in a collective operation.
            deterministic: whether a GPU computes by kernels that repeat to the last bit alone.

        Raises:
            UserError: ``device`` is gpu and there is none; inside the block, another rank did not answer in time.
        """

    def check_config(self, config: TrainConfig, ranks: Own) -> None:
        """Refuse what this framework cannot train with on these ranks' device.

        Raises:
            UserError: naming the setting.
        """

    # --- the parts of a run ---

    def build_model(self, config: TrainConfig, num_classes: int, builder: Builder | None = None) -> Network:
        """The network with its starting weights, float32: fresh from ``config.seed``, or those of ``config.pretrained``.

        Args:
            config: of the run; its BatchNorm settings (``sync_bn``, ``bn_momentum``, ``freeze_bn``), ``grad_checkpointing`` and
                ``channels_last`` are applied.
            num_classes: outputs.
            builder: makes the network; that of ``config.model`` where None.

        Raises:
            UserError: the weights cannot be read or do not fit.
        """

    def place_model(self, model: Network, ranks: Own) -> Network:
        """The model on the ranks' device; the same object where it can be."""

    def parallel(self, model: Network, ranks: Own) -> Network:
        """The model as training calls it: with several ranks, wrapped so that the backward pass averages gradients over them."""

    def compiled(self, model: Network) -> Network:
        """The model with the same weights as ``config.compile`` calls it in training."""

    def train_mode(self, model: Network, freeze_bn: bool) -> None:
        """Set a model to training mode; with ``freeze_bn`` its BatchNorm layers to evaluation mode."""

    def share_dropout(self, model: Network, uniform: Callable[[tuple[int, ...]], np.ndarray]) -> int:
        """Make every dropout of a model take its numbers, in [0, 1), from ``uniform(shape)``; returns how many there were."""

    def CrossEntropyLoss(
        self, label_smoothing: float = 0.0, ignore_index: int = -100, weight: Sequence[float] | None = None
    ) -> Own:
        """The training loss: logits (N, classes) and labels (N,) or (N, classes) to their mean cross-entropy, a scalar."""

    def DistillationLoss(self, criterion: Own, teacher: Network, temperature: float = 4.0, alpha: float = 0.5) -> Any:
        """The criterion's loss, and a share ``alpha`` of the divergence from a teacher.

        Its ``look(images)`` is called before the forward pass of each batch.
        """

    def Precision(self, level: str = "O0", dtype: str = "float16", device: str = "cpu") -> parts.Precision:
        """How a step computes: see ``amp_level`` and ``amp_dtype`` of ``TrainConfig``.

        Raises:
            UserError: the device does not have that.
        """

    def MovingAverage(self, model: Any, decay: float) -> parts.MovingAverage:
        """An average of a model's weights; ``decay`` is the share of the old average, 0 for none at all."""

    def build_optimizer(self, model: Any, config: OptimizerConfig) -> Own:
        """The optimizer for a model's trainable parameters."""

    def build_schedule(self, optimizer: Own, config: ScheduleConfig) -> parts.Schedule:
        """Attach a schedule to an optimizer."""

    def follow_rates(self, optimizer: Own, rates: np.ndarray) -> parts.Schedule:
        """Replace an optimizer's schedule by given learning rates, one a unit; ``rates[0]`` is the optimizer's own rate."""

    def learning_rate(self, optimizer: Own) -> float:
        """The rate of the next update by the schedule."""

    def scale_rates(self, optimizer: Own, factor: float) -> None:
        """Multiply the rates of all parameters from now on; ``learning_rate`` and the schedule do not show it."""

    # --- data ---

    def ImageDataset(
        self,
        index: DatasetIndex,
        preset: EvalPreset | TrainPreset,
        seed: int = 0,
        backend: str = "pil",
        on_bad_image: str = "stop",
    ) -> Samples:
        """The samples of a split, by this framework's transforms; the arguments are those of ``Samples``."""

    def build_loader(
        self, dataset: Samples, plan: BatchPlan | RunPlan, num_workers: int = 0, mix_group: int | None = None
    ) -> Iterable[Sequence[Tensor]]:
        """Batches of images float32 (N, 3, H, W), labels and picture numbers int64 (N,), on the CPU, in the plan's order.

        Labels are int64 (N,), or float32 (N, classes) where the preset mixes. A negative number marks a picture that
        stands in for a damaged one. The loader can be iterated again, over the same batches or the plan's next epoch.

        Args:
            dataset: makes the samples.
            plan: the batches of one epoch or of a whole run.
            num_workers: processes that make samples; 0 makes them in this process.
            mix_group: samples a mixing group; the batch size where None.

        Raises:
            UserError: in the loop, for a damaged picture that ``dataset`` does not skip.
        """

    # --- one update ---

    def Guard(self) -> parts.Guard:
        """What watches one update for numbers that are not finite."""

    def accumulate_gradients(
        self,
        model: Network,
        criterion: Own,
        batches: Sequence[Batch],
        precision: Own = None,
        begin: Callable[[int], None] = ...,
        watch: Callable[[Tensor, Tensor], None] = ...,
    ) -> Tensor:
        """Forward and backward over micro-batches of equal size; gradients are those of their mean loss.

        Args:
            model: in the mode that the caller set.
            criterion: loss of (logits, labels).
            batches: at least one, on the device.
            precision: of the run.
            begin: called with the number of each micro-batch before it.
            watch: called with the logits (N, classes) and labels of each micro-batch after it.

        Returns:
            The mean loss, a scalar on the device without graph.
        """

    def apply_update(self, model: Network, optimizer: Own, clip_norm: float | None = None, precision: Own = None) -> None:
        """Clip the gradients' global L2 norm to ``clip_norm`` where given, update the parameters, clear the gradients."""

    def first_offender(self, model: Network, forward: Callable[[], object]) -> str:
        """The first weight, layer or gradient that is not finite; ``forward`` computes the update's forward pass once more."""

    def count_right(self, logits: Tensor, labels: Tensor) -> Tensor:
        """How many pictures have their label among the one and the five largest logits: float32 (2,), on the device.

        Args:
            logits: (N, classes).
            labels: int64 (N,), or (N, classes) probabilities, of which the largest counts.
        """

    # --- evaluation ---

    def judge_batch(
        self, model: Network, images: Tensor, labels: Tensor, counted: np.ndarray, ranks: Own, precision: Own
    ) -> Judgement:
        """What a model in evaluation mode makes of one batch.

        Args:
            model: on the ranks' device.
            images: float32 (N, 3, H, W), on the CPU.
            labels: int64 (N,), on the CPU.
            counted: bool (N,), True for at least one picture; the others have no part in the loss.
            ranks: whose device computes.
            precision: of the forward pass.
        """

    def average_statistics(self, model: Network, ranks: Own) -> None:
        """Replace BatchNorm's running statistics on every rank by their mean over the ranks. Every rank has to call it."""

    # --- state: to arrays and back to the last bit ---

    def model_arrays(self, model: Network) -> Arrays:
        """Every weight and statistic under the framework's name; half precision as float32."""

    def load_model_arrays(self, model: Network, arrays: Arrays, source: str) -> None:
        """The reverse.

        Raises:
            UserError: keys or shapes differ from the model's, which is then untouched; ``source`` names the arrays.
        """

    def optimizer_arrays(self, model: Network, optimizer: Own, precision: Own) -> Arrays:
        """The optimizer's state as ``accumulator/parameter``, float32 masters as ``master/parameter``."""

    def load_optimizer_arrays(self, model: Network, optimizer: Own, precision: Own, arrays: Arrays) -> None:
        """The reverse.

        Raises:
            UserError: the arrays are another optimizer's.
        """

    def schedule_state(self, optimizer: Own, schedule: Own) -> dict[str, Any]:
        """Where a schedule stands, as JSON values for a checkpoint's ``meta``: ``schedule``, and what else it takes."""

    def load_schedule_state(self, optimizer: Own, schedule: Own, meta: dict[str, Any]) -> None:
        """The reverse, from a checkpoint's whole ``meta``."""
