"""MobileNetV3's weights under the names of timm, PaddleClas and MMPretrain, as this project and torchvision have them.

Names are mapped by structure, so that any width and class count fits. Where an architecture differs from torchvision's and the
difference can be moved into the weights, so that the network in evaluation mode computes the same, it is moved:

- BatchNorm's epsilon (1e-5 in timm and PaddleClas, 1e-3 here) goes into its weights;
- PaddleClas's gate of squeeze-excitation, clip(0.2 x + 0.5), goes into the layer before it, and its dropout, which scales by 0.8 in
  evaluation, into the last layer.

What cannot be moved is said: the asymmetric padding of TensorFlow's weights in timm. Other layers, as PaddleClas's first expansion
and its hidden layer of 1280 channels at every width, are those of an ``Architecture``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from mobilenetv3_common.counted import counted
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.weights import State

EPS = 1e-3  # of this project's BatchNorm, which is torchvision's
SLOPES = 0.2 * 6  # PaddleClas's slope of the hard sigmoid over the paper's
KEPT = 0.8  # by which PaddleClas's dropout ("downscale_in_infer", p 0.2) multiplies in evaluation
KNOWN_PREFIXES = ("module.", "model.", "net.", "network.", "student.", "Student.", "timm_model.", "backbone.")


@dataclass
class Translated:
    """A state under torchvision's names.

    Attributes:
        state: canonical.
        source: whose names it had: ``"torchvision"``, ``"timm"``, ``"paddleclas"`` or ``"mmpretrain"``.
        notes: what was changed or differs, for people.
    """

    state: State
    source: str
    notes: list[str] = field(default_factory=list)


def translated(state: State, source: str = "auto", eps: float | None = None, trained_as: str | None = None) -> Translated | None:
    """A MobileNetV3's weights under this project's names; None where the names are nobody's that is known.

    Args:
        state: arrays in torch's layout, without counters.
        source: one of ``SOURCES`` or ``"auto"``.
        eps: of the BatchNorm with which they were trained; None for the trainer's default.
        trained_as: the architecture's name at the trainer, where the file has it.

    Raises:
        UserError: the names are not those of ``source``, or several networks are in the state.
    """
    for name, (anchor, translate) in SOURCES.items():
        if source not in ("auto", name):
            continue
        prefix = prefix_of(state, anchor)
        if prefix is None:
            continue
        own, outside = within(state, prefix)
        refuse_other_types(own)
        if longest := [n for n in own if re.search(r"\.\d{4,}\.", n)]:
            raise UserError(f"the weights have a layer {longest[0]}, which no network of {name}'s has")
        try:
            found = translate(own, eps, trained_as)
        except (KeyError, ValueError, IndexError) as error:
            raise UserError(f"the weights have {name}'s names, but not its tensors: {error}") from error
        found.notes[:0] = ([f"names begin with {prefix}"] if prefix else []) + outside
        return found
    if source != "auto":
        raise UserError(f"the weights have not {source}'s names: they begin with {', '.join(list(state)[:3])}")
    return None


def prefix_of(state: Mapping[str, np.ndarray], anchor: str) -> str | None:
    """What stands before a known name in a state, ``""`` for nothing; None where the name is not there.

    Raises:
        UserError: several networks have it.
    """
    found = [name.removesuffix(anchor) for name in state if name == anchor or name.endswith(f".{anchor}")]
    if len(found) > 1:
        known = [prefix for prefix in found if prefix in ("", *KNOWN_PREFIXES)]
        if len(known) != 1:
            raise UserError(f"the weights hold several networks ({', '.join(found)}): save the one that is meant alone")
        found = known
    return found[0] if found else None


def refuse_other_types(state: State) -> None:
    """Refuse tensors of a network that are no floating numbers; metrics beside it may be of any type.

    Raises:
        UserError: names the first.
    """
    for name, array in state.items():
        if array.dtype.kind != "f" and array.ndim:
            raise UserError(f"{name} is of type {array.dtype}, which weights are not: save them as float32")


def within(state: State, prefix: str) -> tuple[State, list[str]]:
    """The tensors whose names begin with a prefix, without it, and a note on the others."""
    own = {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}
    outside = [name for name in state if not name.startswith(prefix)]
    return own, [f"left out {counted(len(outside), 'tensor')} outside the network, first {outside[0]}"] if outside else []


# --- whose names -----------------------------------------------------------------------------------------------------------


def _torchvision(state: State, eps: float | None, trained_as: str | None) -> Translated:
    found = Translated(state, "torchvision")
    _other_eps(found, EPS if eps is None else eps)
    return found


def _timm(state: State, eps: float | None, trained_as: str | None) -> Translated:
    """Inverted residuals have conv_pw, conv_dw, conv_pwl; the first block conv_dw, conv_pw; the last one is a convolution."""
    paths = {"conv_stem": "features.0.0", "bn1": "features.0.1", "conv_head": "classifier.0", "classifier": "classifier.3"}
    blocks = sorted({tuple(map(int, m[1].split("."))) for name in state if (m := re.match(r"blocks\.(\d+\.\d+)\.", name))})
    for number, (stage, index) in enumerate(blocks, 1):
        here, there = f"blocks.{stage}.{index}", f"features.{number}"
        if f"{here}.conv.weight" in state:
            paths |= {f"{here}.conv": f"{there}.0", f"{here}.bn1": f"{there}.1"}
            continue
        inverted = f"{here}.conv_pwl.weight" in state
        convs = ("conv_pw", "conv_dw", "se", "conv_pwl") if inverted else ("conv_dw", "se", "conv_pw")
        norms = iter(("bn1", "bn2", "bn3"))
        present = [part for part in convs if part != "se" or f"{here}.se.conv_reduce.weight" in state]
        for place, part in enumerate(present):
            layer = f"{there}.block.{place}"
            if part == "se":
                paths |= {f"{here}.se.conv_reduce": f"{layer}.fc1", f"{here}.se.conv_expand": f"{layer}.fc2"}
            else:
                paths |= {f"{here}.{part}": f"{layer}.0", f"{here}.{next(norms)}": f"{layer}.1"}
    found = Translated(_as_linear(_renamed(state, paths), "classifier.0.weight"), "timm", ["timm's names"])
    tensorflow = (trained_as or "").startswith("tf_")
    if tensorflow:
        found.notes.append(f"{trained_as} pads asymmetrically where the stride is 2, which this network does not: outputs differ")
    elif trained_as is None and eps is None:
        found.notes.append("the file names no model: one of timm's tf_ models pads asymmetrically and needs --bn-eps 0.001")
    _other_eps(found, eps if eps is not None else EPS if tensorflow else 1e-5)
    return found


def _paddleclas(state: State, eps: float | None, trained_as: str | None) -> Translated:
    last = 1 + max((int(m[1]) for name in state if (m := re.match(r"blocks\.(\d+)\.", name))), default=0)
    paths = {"conv.conv": "features.0.0", "conv.bn": "features.0.1", "last_conv": "classifier.0", "fc": "classifier.3"}
    paths |= {f"last_second_conv.{one}": f"features.{last + 1}.{place}" for place, one in enumerate(("conv", "bn"))}
    for number in range(last):
        parts = ["expand_conv", "bottleneck_conv", "mid_se", "linear_conv"]
        if f"blocks.{number}.mid_se.conv1.weight" not in state:
            parts.remove("mid_se")
        for place, part in enumerate(parts):
            names = (("conv1", "fc1"), ("conv2", "fc2")) if part == "mid_se" else (("conv", "0"), ("bn", "1"))
            paths |= {f"blocks.{number}.{part}.{a}": f"features.{number + 1}.block.{place}.{b}" for a, b in names}
    found = Translated(_as_linear(_renamed(state, paths), "classifier.0.weight"), "paddleclas", ["PaddleClas's names"])
    new = found.state
    if "classifier.0.weight" in new and "classifier.0.bias" not in new:
        new["classifier.0.bias"] = np.zeros(new["classifier.0.weight"].shape[0], np.float32)
    for gate in [name.removesuffix(".fc2.weight") for name in new if name.endswith(".fc2.weight")]:
        new |= {f"{gate}.fc2.{of}": new[f"{gate}.fc2.{of}"] * np.float32(SLOPES) for of in ("weight", "bias")}
    if "classifier.3.weight" in new:
        new["classifier.3.weight"] = new["classifier.3.weight"] * np.float32(KEPT)
    found.notes.append("its hard sigmoid of slope 0.2 and its dropout, which scales by 0.8 in evaluation, moved into weights")
    _other_eps(found, 1e-5 if eps is None else eps)
    return found


def _mmpretrain(state: State, eps: float | None, trained_as: str | None) -> Translated:
    state = {name.removeprefix("backbone."): array for name, array in state.items()}
    paths = {"head.layers.0.fc": "classifier.0", "head.layers.1.fc": "classifier.3"}
    for number in sorted({int(m[1]) for name in state if (m := re.match(r"layer(\d+)\.", name))}):
        here, there = f"layer{number}", f"features.{number}"
        paths |= {f"{here}.conv": f"{there}.0", f"{here}.bn": f"{there}.1"}
        present = [
            p for p in ("expand_conv", "depthwise_conv", "se", "linear_conv") if any(n.startswith(f"{here}.{p}.") for n in state)
        ]
        for place, part in enumerate(present):
            names = (("conv1.conv", "fc1"), ("conv2.conv", "fc2")) if part == "se" else (("conv", "0"), ("bn", "1"))
            paths |= {f"{here}.{part}.{a}": f"{there}.block.{place}.{b}" for a, b in names}
    found = Translated(_renamed(state, paths), "mmpretrain", ["MMPretrain's names"])
    _other_eps(found, EPS if eps is None else eps)
    return found


# Whose names -> a name by which they are known, and what translates them.
SOURCES: dict[str, tuple[str, Callable[[State, float | None, str | None], Translated]]] = {
    "torchvision": ("features.0.0.weight", _torchvision),
    "timm": ("conv_stem.weight", _timm),
    "paddleclas": ("last_second_conv.conv.weight", _paddleclas),
    "mmpretrain": ("backbone.layer0.conv.weight", _mmpretrain),
}


# --- what is done to them --------------------------------------------------------------------------------------------------


def _renamed(state: State, paths: Mapping[str, str]) -> State:
    """Tensors of the layers of ``paths`` under the other paths; others keep their names, so that they are refused where they do."""
    found = {}
    for name, array in state.items():
        path, _, last = name.rpartition(".")
        found[f"{paths[path]}.{last}" if path in paths else name] = array
    return found


def _as_linear(state: State, name: str) -> State:
    """A convolution of one pixel as the linear layer that it is."""
    if name in state and state[name].ndim == 4 and state[name].shape[2:] == (1, 1):
        state[name] = np.ascontiguousarray(state[name][:, :, 0, 0])
    return state


def _other_eps(found: Translated, eps: float) -> None:
    """Move another epsilon of BatchNorm into its weights: w / sqrt(v + eps) = w' / sqrt(v + EPS)."""
    if eps == EPS:
        return
    for name in [name for name in found.state if name.endswith(".running_var")]:
        weight = name.replace("running_var", "weight")
        if weight in found.state:
            variance = found.state[name].astype(np.float64)
            scaled = found.state[weight] * np.sqrt((variance + EPS) / (variance + eps))
            found.state[weight] = scaled.astype(found.state[weight].dtype)
    found.notes.append(f"BatchNorm's eps {eps:g} moved into its weights (here it is {EPS:g})")
