"""Levels of the channels against the normalisation that training applies."""

from __future__ import annotations

import numpy as np

from alignment_doctor.data.subject import DataSubject
from alignment_doctor.findings import Outcome, check, judged, not_applicable

MEAN_LIMIT = 2.0  # standard deviations
STD_LIMITS = (1 / 3, 3.0)


@check(
    "data.normalisation",
    "002 dp.01",
    "001 data 3",
    "004 data",
    measures="mean and deviation of the channels after the configured normalisation of pictures in 0..1",
    fix="give mean and deviation of pictures in 0..1 (not 0..255), in the order red, green, blue; the measured ones fit any data",
)
def normalisation(subject: DataSubject) -> Outcome:
    if not subject.good.any():
        return not_applicable("no picture can be decoded")
    mean, std = channel_statistics(subject)
    after = (mean - np.array(subject.expected.mean)) / np.array(subject.expected.std)
    spread = std / np.array(subject.expected.std)
    where = []
    for name, m, s in zip(("red", "green", "blue"), after, spread, strict=True):
        if abs(m) > MEAN_LIMIT:
            where.append(f"{name}: mean {m:.2f} after normalisation, expected within {MEAN_LIMIT:g} of 0")
        if not STD_LIMITS[0] <= s <= STD_LIMITS[1]:
            where.append(f"{name}: deviation {s:.3f} after normalisation, expected {STD_LIMITS[0]:.2f} to {STD_LIMITS[1]:g}")
    said = f"measured mean {_three(mean)}, deviation {_three(std)}"
    return judged(where, f"{said}: not what is configured", f"{said}; after normalisation {_three(after)} and {_three(spread)}")


def channel_statistics(subject: DataSubject) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of red, green and blue over all pixels of the training pictures, in 0..1."""
    chosen = subject.good & subject.of_split("train") if "train" in subject.indices else subject.good
    rows = subject.rows[chosen if chosen.any() else subject.good]
    pixels = (rows["width"].astype(np.float64) * rows["height"])[:, None]
    mean = (rows["mean"] * pixels).sum(0) / pixels.sum()
    square = ((rows["std"].astype(np.float64) ** 2 + rows["mean"].astype(np.float64) ** 2) * pixels).sum(0) / pixels.sum()
    return mean / 255, np.sqrt(np.maximum(square - mean**2, 0)) / 255


def _three(values: np.ndarray) -> str:
    return "(" + ", ".join(f"{value:.3f}" for value in values) + ")"
