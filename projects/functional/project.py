"""What lies between the layers: python -m alignment bench projects/functional/project.py --functional-faults"""

from alignment.frameworks.paddle import Paddle
from alignment.frameworks.torch import Torch
from alignment.project import ModelSpec, Project, Side
from projects.functional import port, reference
from projects.functional.faults import EDITS

SHAPES = {
    "Attention": (7, 16),
    "MaskedAttention": (6, 8),
    "Residual": (8, 9, 7),
    "Gate": (5, 8),
    "Head": (6, 4, 5),
    "Norm": (6, 5, 4),
    "Shift": (4, 6, 8),
    "Squeeze": (8, 5, 6),
    "Distance": (5, 4),
}


def two_pictures(samples, shape, rng):
    """A small picture of six channels, and a large one of four."""
    return tuple(rng.standard_normal((samples, *shape)).astype("float32") for shape in ((6, 5, 7), (4, 10, 14)))


MODELS = {
    name: ModelSpec(getattr(port, name), getattr(reference, name), input_shape=shape, last_layer=None)
    for name, shape in SHAPES.items()
}
MODELS["Fuse"] = ModelSpec(port.Fuse, reference.Fuse, input_shape=(6, 5, 7), inputs=two_pictures)
PROJECT = Project("functional", Side(Paddle()), Side(Torch()), MODELS, edits=lambda: EDITS)
