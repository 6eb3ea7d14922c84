"""The weights that the steps run with: calibrated ones made here, torchvision's published ones, or a file.

A freshly initialised MobileNetV3 gives logits of about 1e-10, against which every absolute threshold passes, whatever
is wrong. Calibrated weights keep random convolutions but give every other parameter a value that matters: BatchNorm
weights, all biases, running statistics taken from the photographs of lite_data, and a last layer scaled to logits of
standard deviation 1 that names some of the photographs rightly and others not.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

from alignment.weights import NameMap, load_torch_state
from mobilenetv3_common.dataset_index import index_dataset
from mobilenetv3_common.errors import UserError, exit_on_user_error
from mobilenetv3_common.files import atomic_open, ensure_writable_dir, sha256_of
from mobilenetv3_common.image import decode_image
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_common.weights import State, as_paddle, write_state

ROOT = Path(__file__).resolve().parents[1]
LITE_DATA = ROOT / "lite_data"
CALIBRATION_VERSION = 1  # raise it when calibration changes, so that kept files are made anew
TORCHVISION_HOST = "https://download.pytorch.org/models"
# file name -> full SHA-256 where known; every name carries the first 8 digits of its own.
PUBLISHED = {
    "mobilenet_v3_small": ("mobilenet_v3_small-047dcff4.pth", "047dcff4addef86ea5bc2eff13c9614dc11f47ab1160d0a71a25e7db994f4e1f"),
    "mobilenet_v3_large": ("mobilenet_v3_large-8738ca79.pth", None),
    "mobilenet_v3_large_v2": ("mobilenet_v3_large-5c1a4163.pth", None),
}


def cache_dir() -> Path:
    """Where weights are kept: ``$MOBILENETV3_CACHE``, or ``.cache`` in the project's folder."""
    return ensure_writable_dir(os.environ.get("MOBILENETV3_CACHE") or ROOT / ".cache")


def obtain_state(weights: str | None, model: str, names: NameMap) -> tuple[State, str]:
    """The torch state to align with, and where it comes from.

    Args:
        weights: None for calibrated weights, ``"torchvision"`` (or ``"torchvision-v2"``, large only) for the published
            file, or a path of any kind ``alignment.weights.read_state`` reads.
        model: ``"mobilenet_v3_small"`` or ``"mobilenet_v3_large"``.
        names: the model's name map.

    Raises:
        UserError: the weights cannot be had, are damaged or do not fit.
    """
    if weights is None:
        path = cache_dir() / f"{model}-calibrated-v{CALIBRATION_VERSION}.safetensors"
        if not path.is_file():
            write_state(path, calibrated_state(model))
        return load_torch_state(path, names), "calibrated"
    if weights in ("torchvision", "torchvision-v2"):
        path = fetch_published(model + ("_v2" if weights.endswith("v2") else ""))
        return load_torch_state(path, names), path.name
    return load_torch_state(weights, names), weights


def fetch_published(name: str, host: str = TORCHVISION_HOST, directory: Path | None = None) -> Path:
    """Fetch one of torchvision's published weight files, check its SHA-256 and keep it.

    A kept file is checked again; a damaged one is fetched anew. A file that does not match is never kept.

    Raises:
        UserError: unknown name, no network, or the file that arrived is not the published one.
    """
    if name not in PUBLISHED:
        raise UserError(f"torchvision publishes no weights {name}: use one of {', '.join(PUBLISHED)}")
    file_name, digest = PUBLISHED[name]
    wanted = digest or file_name.rsplit("-", 1)[1].removesuffix(".pth")
    path = (directory or cache_dir()) / file_name
    if path.is_file() and sha256_of(path).startswith(wanted):
        return path
    url = f"{host}/{file_name}"
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            content = response.read()
            announced = response.headers.get("Content-Length")
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise UserError(f"cannot fetch {url}: {reason}; fetch it elsewhere and give its path with --weights") from error
    except Exception as error:  # http.client.IncompleteRead and its kin
        raise UserError(f"fetching {url} broke off: {error}; try again") from error
    if announced is not None and len(content) != int(announced):
        raise UserError(f"fetching {url} broke off after {len(content)} of {announced} bytes; try again")
    found = hashlib.sha256(content).hexdigest()
    if not found.startswith(wanted):
        raise UserError(f"{url} is not the published file: SHA-256 {found[:16]}..., expected {wanted[:16]}...; it was not kept")
    with atomic_open(path) as file:
        file.write(content)
    return path


# --- calibration -------------------------------------------------------------------------------------------------------


def calibrated_state(model: str, seed: int = 0, size: int = 224, **options: Any) -> State:
    """Random weights under which every parameter of the network matters; a pure function of its arguments.

    Args:
        model: ``"mobilenet_v3_small"`` or ``"mobilenet_v3_large"``.
        seed: of the random values.
        size: of the calibration pictures, in pixels.
        options: of the model's constructor.

    Returns:
        A torch state, float32, with counters.
    """
    import torch

    from mobilenetv3_ref.models import MODELS

    network = MODELS[model](**options)
    rng = np.random.default_rng(seed)
    state = {k: torch.tensor(_random_tensor(rng, k, tuple(v.shape))) for k, v in network.state_dict().items()}
    network.load_state_dict(state)
    network.double()
    photos, labels = _photographs(size)
    noise = rng.normal(size=(len(photos) // 2, 3, size, size))
    with torch.no_grad():
        _set_running_statistics(network, torch.tensor(np.concatenate([photos, noise])))
        _set_last_layer(network, torch.tensor(photos), labels, rng)
    return {k: v.numpy().astype(np.float32) if v.is_floating_point() else v.numpy() for k, v in network.state_dict().items()}


def _random_tensor(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    if name.endswith("num_batches_tracked"):
        return np.zeros(shape, dtype=np.int64)
    if name.endswith(("running_mean", "running_var")):
        return np.full(shape, float(name.endswith("var")), dtype=np.float32)  # set from the photographs below
    if len(shape) == 4:  # convolution: He normal over fan_out, as the network starts out
        return rng.normal(0, (2 / (shape[0] * shape[2] * shape[3])) ** 0.5, shape).astype(np.float32)
    if len(shape) == 2:
        return rng.normal(0, shape[1] ** -0.5, shape).astype(np.float32)
    if name.endswith("weight"):  # BatchNorm
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    return rng.normal(0, 0.2, shape).astype(np.float32)


def _photographs(size: int) -> tuple[np.ndarray, np.ndarray]:
    """All pictures of lite_data, training first, normalised; float64 (32, 3, size, size) and their labels."""
    from mobilenetv3_ref.data import eval_transform

    preset = EvalPreset(resize_size=size * 8 // 7, crop_size=size)
    pictures: list[np.ndarray] = []
    labels: list[int] = []
    for split in ("train", "val"):
        index = index_dataset(LITE_DATA, split)
        pictures += [eval_transform(decode_image(index.path(i)), preset).numpy() for i in range(len(index))]
        labels += index.labels
    return np.stack(pictures).astype(np.float64), np.array(labels)


def _set_running_statistics(network: Any, images: Any) -> None:
    import torch

    momenta = {m: m.momentum for m in network.modules() if isinstance(m, torch.nn.BatchNorm2d)}
    for norm in momenta:
        norm.momentum = None  # a cumulative average: after one batch, the statistics of that batch
    network.train()
    network.features(images)
    network.eval()
    for norm, momentum in momenta.items():
        norm.momentum = momentum
        norm.num_batches_tracked.zero_()


def _set_last_layer(network: Any, photos: Any, labels: np.ndarray, rng: np.random.Generator) -> None:
    """Logits of standard deviation 1 on the validation pictures; rows lean to their class's mean training features.

    The lean is the weakest of a fixed scale at which at least a third of the validation pictures are named rightly.
    """
    import torch

    last = network.classifier[3]
    features = network.classifier[:2](torch.flatten(network.avgpool(network.features(photos)), 1))
    features_train, features_val = features.chunk(2)
    centre, spread = features.mean(0), features.std()
    last.weight /= (features @ last.weight.T).std()
    last.bias.copy_(torch.tensor(rng.normal(0, 0.2, last.bias.shape)))
    classes = min(int(labels.max()) + 1, last.out_features)
    label_train, label_val = (torch.tensor(part) for part in np.split(labels, 2))
    prototypes = torch.stack([features_train[label_train == c].mean(0) - centre for c in range(classes)])
    prototypes /= spread * prototypes.norm(dim=1, keepdim=True)
    original = last.weight.clone()
    for lean in np.linspace(0.0, 4.0, 81):
        last.weight[:classes] = original[:classes] + lean * prototypes
        right = (last(features_val).argmax(1) == label_val).double().mean()
        if right >= 1 / 3:
            break
    scale = last(features_val).std()
    last.weight /= scale
    last.bias /= scale


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    """Write weights to a file: python -m alignment.reference_weights --model NAME --output FILE [--weights torchvision]"""
    from mobilenetv3_paddle.models import MODELS

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--model", choices=sorted(MODELS), default="mobilenet_v3_small")
    parser.add_argument("--weights", help="torchvision, or torchvision-v2, for the published file (default: calibrated weights)")
    parser.add_argument("--output", required=True, metavar="FILE", help=".pdparams, .pth or .safetensors")
    args = parser.parse_args(argv)
    state, name = obtain_state(args.weights, args.model, NameMap(MODELS[args.model]()))
    write_state(args.output, as_paddle(state) if args.output.endswith(".pdparams") else state)
    print(f"{args.output}: {name} weights of {args.model}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
