"""A data set's samples: pixels, label, and the parameters that it draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from alignment.comparisons.comparison import Measurement
from alignment.comparisons.context import Context
from alignment.comparisons.data.eval_transform import EVAL, TRAIN
from alignment.comparisons.data.loading import arrays_of, first_pictures, measured_sides, part
from alignment.comparisons.data.transformed import Transform, Transformed, found
from alignment.finding import Finding
from alignment.kinds import Kind
from alignment.localize.hypotheses.augmentations import SAMPLED
from alignment.localize.hypotheses.pictures import in_every_case
from alignment.project import Side
from mobilenetv3_common.image import decode_image
from mobilenetv3_common.presets import TrainPreset
from mobilenetv3_common.sampling import SampleKey, SampleParams, sample_params

SAMPLES = 6
EPOCH = 1


class SampleCalls(Transformed):
    """Samples of both sides, and the reference's with other random parameters."""

    def __init__(self, context: Context, backend: str) -> None:
        self.index, self.backend, self.seed = first_pictures(context.material.index("train")), backend, context.seed
        presets = {"evaluation": EVAL, "training": replace(TRAIN, auto_augment="ra", random_erase_prob=0.5)}
        keys = [SampleKey(EPOCH, number, number) for number in range(min(SAMPLES, len(self.index)))]
        super().__init__({name: {f"{key.sample}": (preset, key) for key in keys} for name, preset in presets.items()})

    def _sample(self, side: Side, seed: int, preset: Any, key: SampleKey) -> tuple[Any, int, SampleKey]:
        return part(side).ImageDataset(self.index, preset, seed, self.backend)[key]

    def call(self, context: Context, side: Side, args: tuple[Any, ...]) -> np.ndarray:
        return np.asarray(self._sample(side, self.seed, *args)[0])

    def measure(self, context: Context, role: str) -> dict[str, np.ndarray]:
        made = super().measure(context, role)
        for prefix, side in measured_sides(context, role).items():
            for calls in self.stages.values():
                for name, (preset, key) in calls.items():
                    made[f"{prefix}label/{name}"] = np.array(self._sample(side, self.seed, preset, key)[1])
                    if role == "reference" and isinstance(preset, TrainPreset):
                        right = made[f"{prefix}training/{name}"]
                        for words, other in self._otherwise(side, preset, key, right).items():
                            made[f"{prefix}other/{name}/{words}"] = other
        return made

    def _otherwise(self, side: Side, preset: TrainPreset, key: SampleKey, right: np.ndarray) -> dict[str, np.ndarray]:
        """A sample with the parameters of another seed or epoch, or with one of its own changed."""
        made = {}
        for seed in (self.seed + 1, self.seed - 1, self.seed + 2):
            if seed >= 0:
                made[f"seed {seed}, expected those of {self.seed}"] = self._sample(side, seed, preset, key)[0]
        for epoch in (0, 2):
            other = self._sample(side, self.seed, preset, key._replace(epoch=epoch))[0]
            made[f"epoch {epoch}, expected those of {EPOCH}"] = other
        picture = decode_image(self.index.path(key.sample))
        drawn = sample_params(preset, self.seed, key, picture.height, picture.width)
        applied = lambda params: np.asarray(part(side).train_transform(picture, preset, params))  # noqa: E731
        if self.backend == "pil" and np.array_equal(applied(drawn), right):  # else the side draws in another way
            made |= {words: applied(params) for words, params in _changed(drawn, picture.height, picture.width).items()}
        return {words: np.asarray(other) for words, other in made.items()}

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        ours, right = arrays_of(port), arrays_of(reference)
        for name in self.stages["evaluation"]:
            label, expected = int(ours[f"label/{name}"]), int(right[f"label/{name}"])
            if label != expected:
                kind = Kind.LABEL_OFF_BY_ONE if abs(label - expected) == 1 else Kind.LABEL
                return Finding("data", "labels", kind, f"label {label}, expected {expected}", f"picture {name}")
        return super().explain(port, reference)

    def explain_stage(self, stage: str, calls: Sequence[Transform], reference: Measurement) -> Finding:
        if stage == "evaluation":
            return found("ImageDataset", calls)
        if any(one.random for one in calls):
            return found("sampling", calls)
        cases = []
        for one in calls:
            begin = f"other/{one.args[1].sample}/"
            others = {key.removeprefix(begin): array for key, array in reference.items() if key.startswith(begin)}
            cases.append(one.observed(others))
        hint = in_every_case(SAMPLED, cases)
        return found("sampling" if hint[0] else "ImageDataset", calls, hint)


def _changed(drawn: SampleParams, height: int, width: int) -> dict[str, SampleParams]:
    """The parameters with one that is not applied, or is another; the names are those of the hypotheses."""
    return {
        "the flip is inverted": replace(drawn, flip=not drawn.flip),
        "no automatic augmentation": replace(drawn, ops=()),
        "the first operation alone": replace(drawn, ops=drawn.ops[:1]),
        "the operations in the reverse order": replace(drawn, ops=drawn.ops[::-1]),
        "magnitudes without their random sign": replace(drawn, ops=tuple((name, abs(size)) for name, size in drawn.ops)),
        "nothing is erased": replace(drawn, erase=None),
        "the whole picture, not a crop": replace(drawn, crop=(0, 0, height, width)),
    }
