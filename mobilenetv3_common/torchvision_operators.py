"""Make ``import torchvision`` work beside a CPU build of torch. It is given torch, and imports no framework."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

_library: Any = None


def declare_missing_operators(torch: Any) -> None:
    """Declare the schemas of ``torchvision::nms`` and ``qnms`` where torchvision's own C++ operators cannot be loaded.

    PyPI's torchvision wheel is built against CUDA torch. Beside a CPU torch its operator library is not loaded, and
    ``import torchvision`` raises "operator torchvision::nms does not exist" while it registers shapes for them. Models
    and transforms use neither operator; calling one still fails with a clear message from torch. Where torch is a CUDA
    build, or torchvision is imported already, this does nothing.

    Args:
        torch: the imported package.

    Raises:
        ModuleNotFoundError: torchvision is not installed.
    """
    global _library
    if _library is not None or "torchvision" in sys.modules or _operators_load(torch):
        return
    _library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        _library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def _operators_load(torch: Any) -> bool:
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("torchvision is not installed: install the extra 'ref' of this project")
    libraries = sorted(Path(spec.origin).parent.glob("_C.*so")) + sorted(Path(spec.origin).parent.glob("_C.pyd"))
    if not libraries:
        return False
    try:
        torch.ops.load_library(str(libraries[0]))
    except OSError:
        return False
    return hasattr(torch.ops.torchvision, "nms")
