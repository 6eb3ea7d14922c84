"""What the two sides are compared with: weights, pictures and inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from alignment.comparisons.given import Given, once
from alignment.comparisons.paired import Paired
from alignment.frameworks._low import BITS, rounded_at_random
from alignment.frameworks.base import STATISTICS
from alignment.models import calibration
from alignment.models.weights import load_file, translated
from alignment.strangers import strangers
from mobilenetv3_common.dataset_index import DatasetIndex, index_dataset
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import decode_image
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_common.pretrained import not_usable
from mobilenetv3_common.weights import State, canonical_state, own_state, read_state

ULP_SEED = 20


class Weights(NamedTuple):
    """The weights that the steps run with.

    Attributes:
        state: canonical, float32, without counters.
        name: where they come from.
        options: of the builders, which fit them.
        calibrated: whether they are made so that outputs have a known spread, and accuracies are neither 0 nor 1.
    """

    state: State
    name: str
    options: Mapping[str, Any]
    calibrated: bool


class SharedMaterial:
    """What the two sides are compared with: weights, pictures and inputs.

    Args:
        given: where it comes from.
        paired: the two models.
        known: what is computed already, by name.
    """

    def __init__(self, given: Given, paired: Paired, known: dict[str, Any]) -> None:
        self.given, self.paired, self.known = given, paired, known

    @once
    def weights(self) -> Weights:
        """The reference's weights.

        Raises:
            UserError: they cannot be had, are damaged or do not fit.
        """
        own = {**self.given.spec.options, **self.given.options}
        if self.given.given_state is not None:
            counters = self.given.reference.framework.layout.counters
            state = {name: array for name, array in self.given.given_state.items() if name.rpartition(".")[2] not in counters}
            return Weights(self.regrouped(state, own), "given", own, True)
        if self.given.weights_from is None:
            return Weights(self.regrouped(self._calibrated(own), own), "calibrated", own, True)
        path = self._weights_file(self.given.weights_from)
        with strangers("port") as raised:  # a port that cannot be built is a finding of the steps, not a reason to read no file
            shown = self.paired.matched.shown
        if raised.error is not None:
            shown = {}
        options = {**own, **self._options_of(path, shown)}
        with strangers("port") as raised:
            port = self.paired.named("port", self.paired.made("port", options))
        if raised.error is not None:
            port = None
        reference = self.paired.named("reference", self.paired.made("reference", options))
        sides = (self.given.reference.framework, reference), (self.given.port.framework, port)
        name = path.name if self.given.weights_from in self.given.spec.published else self.given.weights_from
        state = load_file(path, sides, self.given.take)
        if broken := not_usable(state, masks=True):
            raise UserError(f"{path}: {broken}: nothing can be compared with them; take an earlier checkpoint")
        if self.given.calibrate:
            whole = self.regrouped(state, options, whole=True)
            made = calibration.calibrated_state(
                self.given.project, self.given.model, kept=whole, **{**self.given.options, **options}
            )
            return Weights(self.regrouped(made, options), f"{name} (calibrated)", options, True)
        return Weights(state, name, options, False)

    def regrouped(self, state: State, options: Mapping[str, Any], whole: bool = False) -> State:
        """The reference's state in the pieces by which the engine knows its tensors, from whole tensors; or the other way round."""
        if not (self.paired.matches and self.paired.matched.forms[1]):
            return state
        network = self.paired.made("reference", options)
        described = self.given.reference.framework.described(network)
        plain = [entry for entry, _ in described]
        pieces = self.given.reference.framework.entries(self.paired.named("reference", network))
        first = {id(tensor): entry.own for entry, tensor in reversed(described)}
        known = {entry.own for entry in pieces}
        unknown = {entry.own: tensor for entry, tensor in described if entry.own not in known}  # second names, and constants
        if whole:
            own = own_state(state, pieces, "the weights")
            for name, tensor in unknown.items():
                other = first[id(tensor)]
                own[name] = own[other] if other in own else self.given.reference.framework.array(tensor)
            return canonical_state(own, plain, "the weights")
        own = own_state(state, plain, "the weights")
        return canonical_state({n: array for n, array in own.items() if n not in unknown}, pieces, "the weights")

    def _weights_file(self, weights: str) -> Path:
        if weights in self.given.spec.published:
            return self.given.spec.published[weights]()
        path = Path(weights)
        if not path.suffix and not path.exists():
            known = ", ".join(self.given.spec.published) or "none"
            raise UserError(f"--weights {weights}: neither a file nor published weights of {self.given.model} (those are: {known})")
        return path

    def _options_of(self, path: Path, shown: Mapping[str, str]) -> Mapping[str, Any]:
        """Class count, width and the like, read off the tensors of a file, which may go by the port's own paths."""
        if self.given.spec.options_of is None:
            return {}
        return self.given.spec.options_of(
            {translated(name, shown): array for name, array in read_state(path, self.given.take).items()}
        )

    def _calibrated(self, options: Mapping[str, Any]) -> State:
        def make() -> State:
            return calibration.calibrated_state(self.given.project, self.given.model, **self.given.options)

        if self.given.project.cache is None or self.given.options:
            return make()
        file = self.given.project.cache() / f"{self.given.model}-calibrated-v{calibration.VERSION}.safetensors"
        return calibration.kept_state(file, self.given.reference.framework, self.paired.made("reference", options), make)

    @once
    def constants(self) -> tuple[str, ...]:
        """Names of the reference's tensors that no training changes: neither trained nor running statistics."""
        framework = self.given.reference.framework
        network = self.paired.named("reference", self.paired.made("reference", self.weights.options))
        return tuple(
            entry.canonical
            for entry, tensor in framework.described(network)
            if entry.canonical.rpartition(".")[2] not in STATISTICS and (entry.role == "buffer" or not framework.trainable(tensor))
        )

    @once
    def num_classes(self) -> int:
        """Outputs of the reference."""
        if self.given.spec.last_layer is not None:
            return int(self.weights.state[f"{self.given.spec.last_layer}.weight"].shape[0])
        framework = self.given.reference.framework
        with framework.loaded_next():
            network = self.paired.named("reference", self.paired.made("reference", self.weights.options))
        network = framework.place(network)
        framework.load(network, self.weights.state)
        framework.set_training(network, False)
        shape = framework.call(network, self.given.fake_inputs(1)).outputs[0].shape
        return int(shape[-1]) if shape else 1

    @property
    def has_pictures(self) -> bool:
        """Whether the model takes pictures, and the project has some."""
        takes = self.given.spec.inputs is None and len(self.given.spec.input_shape) == 3 and self.given.spec.input_shape[0] == 3
        return takes and self.given.reference.data is not None and self.given.data_path is not None

    def index(self, split: str) -> DatasetIndex:
        """The pictures of a split.

        Raises:
            UserError: there are none, or a label is beyond the model's classes.
        """
        if self.given.data_path is None:
            raise UserError(f"the project {self.given.project.name} has no pictures of its own: give --data-path")
        index = index_dataset(self.given.data_path, split, self.num_classes)
        if index.places is not None:
            raise UserError(f"{self.given.data_path} holds tar shards, which the steps do not read: give their folder")
        return index

    def photographs(self, count: int, size: int = 224) -> tuple[np.ndarray, np.ndarray]:
        """The first ``count`` validation pictures (repeated where there are fewer), preprocessed by the reference.

        Returns:
            float32 (count, 3, size, size) and int64 (count,) labels.
        """
        assert self.given.reference.data is not None
        index = self.index("val")
        preset = EvalPreset(resize_size=size * 8 // 7, crop_size=size)
        chosen = [i * len(index) // count if len(index) >= count else i % len(index) for i in range(count)]
        transform = self.given.reference.data.eval_transform
        pictures = {i: np.asarray(transform(decode_image(index.path(i), self.given.image_backend), preset)) for i in set(chosen)}
        return np.stack([pictures[i] for i in chosen]), np.array([index.labels[i] for i in chosen], dtype=np.int64)

    def labelled(self, count: int, small: bool = False) -> tuple[tuple[Any, ...], np.ndarray]:
        """As ``samples``; where fake labels are given, the fake data with these, in their own size."""
        if self.given.fake is None or self.given.fake_labels is None:
            return self.samples(count, small)
        return self.given.fake_inputs(count), self.given.fake_labels[np.arange(count) % len(self.given.fake_labels)]

    def samples(self, count: int, small: bool = False) -> tuple[tuple[Any, ...], np.ndarray]:
        """Inputs and labels: photographs where there are some, numbers drawn at random otherwise.

        Returns:
            Arrays with ``count`` as first axis, and int64 (count,) labels.
        """
        if self.has_pictures:
            images, labels = self.photographs(count, self.given.shape(small)[-1])
            return (images,), labels
        labels = np.random.default_rng([self.given.seed, count, 1]).integers(0, self.num_classes, count)
        return self.given.fake_inputs(count, small), labels

    def ulp_changed(self, arrays: Mapping[str, np.ndarray], dtype: str, draw: int = 0) -> dict[str, np.ndarray]:
        """Floating arrays with every element moved by one unit in the last place of ``dtype``, up or down at random.

        In bfloat16 and float16, those of two and more dimensions are put on one of their two neighbours in that type, at random.

        Zeros stay: they have no last place, and are exact wherever they come from. (A bias of 5e-324 instead of 0 puts whole
        feature maps of a zero-initialised residual branch on the other side of their ReLU.)
        """
        rng = np.random.default_rng([self.given.seed, ULP_SEED, *([draw] if draw else [])])
        changed = {}
        for name, array in arrays.items():
            if array.dtype.kind != "f":
                changed[name] = array
                continue
            if dtype in BITS:  # what mixed precision rounds: the inputs, matrices and kernels
                changed[name] = rounded_at_random(array, dtype, rng) if array.ndim > 1 else array
                continue
            changed[name] = moved_by_one_ulp(array.astype(dtype), rng)
        return changed


def moved_by_one_ulp(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """In place: every element but 0, infinities and NaN becomes the next number of its type, up or down at random.

    As ``np.nextafter`` towards one of the two infinities, at a third of its time.
    """
    bits = values.view(f"i{values.itemsize}")
    away = (rng.random(values.shape) < 0.5) == (values < 0)  # from 0: down for a negative number
    bits += np.where((values == 0) | ~np.isfinite(values), 0, 2 * away.astype(np.int8) - 1).astype(bits.dtype)
    return values
