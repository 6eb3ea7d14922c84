"""torchvision's published weights, and the folder in which weights are kept."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar

from mobilenetv3_common.called import in_checkout
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open, ensure_writable_dir, sha256_of

ROOT = Path(__file__).resolve().parents[1]
TORCHVISION_HOST = "https://download.pytorch.org/models"
# file name -> full SHA-256 where known; every name carries the first 8 digits of its own.
PUBLISHED = {
    "mobilenet_v3_small": ("mobilenet_v3_small-047dcff4.pth", "047dcff4addef86ea5bc2eff13c9614dc11f47ab1160d0a71a25e7db994f4e1f"),
    "mobilenet_v3_large": ("mobilenet_v3_large-8738ca79.pth", None),
    "mobilenet_v3_large_v2": ("mobilenet_v3_large-5c1a4163.pth", None),
}
PUBLISHED_NAMES = {"torchvision": "", "torchvision-v2": "_v2"}  # as flags name them -> what follows the model in PUBLISHED


def cache_dir() -> Path:
    """Where weights are kept: ``$MOBILENETV3_CACHE``, or ``.cache`` in the project's folder, or ``~/.cache/mobilenetv3``."""
    default = ROOT / ".cache" if in_checkout() else Path.home() / ".cache" / "mobilenetv3"
    return ensure_writable_dir(os.environ.get("MOBILENETV3_CACHE") or default)


V2_RESIZE = 232  # pixels of the shorter side: the preprocessing of torchvision's second weights
Config = TypeVar("Config")


def pretrained_file(given: str, model: str, flag: str = "--pretrained") -> str:
    """The file that ``--pretrained`` means: ``torchvision`` and ``torchvision-v2`` are fetched once, all else is a path.

    Args:
        given: what was given.
        model: the architecture, e.g. ``mobilenet_v3_small``.
        flag: what it was given as.

    Raises:
        UserError: as ``fetch_published``, or there is no such file of this model.
    """
    if given not in PUBLISHED_NAMES:
        return given
    key = model + PUBLISHED_NAMES[given]
    if key not in PUBLISHED:
        raise UserError(f"{flag} {given}: torchvision publishes no such weights of {model}; use {flag} torchvision")
    return str(fetch_published(key))


def with_published(config: Config, given: Collection[str]) -> Config:
    """A run's config with the file in the place of a published name, and with the preprocessing of those weights; a file for its
    teacher, too.

    Args:
        config: a ``mobilenetv3_common.train_config.TrainConfig``.
        given: names of the settings that were given as flags; those stay.
    """
    teacher, of = config.teacher, config.teacher_model or config.model  # type: ignore[attr-defined]
    if teacher in PUBLISHED_NAMES:
        fetched = pretrained_file(teacher, of, "--teacher")
        config = dataclasses.replace(config, teacher=fetched)  # type: ignore[type-var]
    name = config.pretrained  # type: ignore[attr-defined]
    if name not in PUBLISHED_NAMES:
        return config
    changed: dict[str, Any] = {"pretrained": pretrained_file(name, config.model)}  # type: ignore[attr-defined]
    if name == "torchvision-v2" and "resize_size" not in given:
        changed["resize_size"] = V2_RESIZE
    return dataclasses.replace(config, **changed)  # type: ignore[type-var]


def fetch_published(name: str, host: str | None = None, directory: Path | None = None) -> Path:
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
    url = f"{host or TORCHVISION_HOST}/{file_name}"
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            content = response.read()
            announced = response.headers.get("Content-Length")
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise UserError(f"cannot fetch {url}: {reason}; fetch it elsewhere and put it at {path}") from error
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
