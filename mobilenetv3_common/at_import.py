"""What this project's environment puts right when a package of somebody else's is imported.

``install`` writes one ``.pth`` file into the environment's site-packages, by which every script that this Python runs gets the two
corrections below; ``make setup`` calls it. They are made at the import of the package they concern:

- ``import torchvision`` works where torchvision was built for another torch (PyPI's wheel beside a CPU build of torch);
- ``paddle.distributed.launch --gpus 0,1`` on a machine without these GPUs is one line and exit status 2, no traceback of its
  launcher that ends in "substring not found".

Every Python of the environment imports this file at its start, so it imports next to nothing itself.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

_kept: dict[str, ModuleType] = {}  # what was imported here and forgotten: torch's declarations end with their module
PTH = "mobilenetv3_at_import.pth"
# What it imports is forgotten: where a script runs beside a copy of this project, the copy's own files are imported after it.
LINE = (
    """import sys; exec("try:\\n from mobilenetv3_common.at_import import watch; watch()\\nexcept ImportError:\\n pass\\n"""
    """for n in ('mobilenetv3_common.at_import', 'mobilenetv3_common'):\\n sys.modules.pop(n, None)")\n"""
)


def torchvision_loads() -> None:
    """Before torchvision is imported: what its own library does not declare beside this torch."""
    import importlib

    new = "mobilenetv3_common" not in sys.modules
    operators = importlib.import_module("mobilenetv3_common.torchvision_operators")
    if new:  # as after LINE
        _kept.update({name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "mobilenetv3_common"})
    operators.declare_missing_operators(importlib.import_module("torch"))  # torchvision imports it in any case


def launcher_names_devices(module: ModuleType) -> None:
    """After Paddle's launcher has its devices: one that is not there is named, and the fix with it."""
    selected = module.Device.get_selected_devices

    def checked(self: Any, devices: str = "") -> list[str]:
        missing = [one.strip() for one in (devices or "").split(",") if one.strip() and one.strip() not in self.labels]
        if missing:
            gpus = [label for label in self.labels if label] if self.dtype == "gpu" else []
            fix = f"leave {', '.join(missing)} out" if gpus else f"use --nproc_per_node {len(devices.split(','))} in its place"
            print(f"error: --gpus {devices}: this Paddle sees the GPUs: {', '.join(gpus) or 'none'}; {fix}", file=sys.stderr)
            raise SystemExit(2)
        return list(selected(self, devices))

    module.Device.get_selected_devices = checked


BEFORE: dict[str, Callable[[], None]] = {"torchvision": torchvision_loads}
AFTER: dict[str, Callable[[ModuleType], None]] = {"paddle.distributed.launch.context.device": launcher_names_devices}


class _Loader:
    """A module's own loader, with what is to happen before and after it."""

    def __init__(self, name: str, loader: Any) -> None:
        self.name, self.loader = name, loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        if self.name in BEFORE:
            BEFORE[self.name]()
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:  # what the module sees of itself is as without this
            module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        if self.name in AFTER:
            AFTER[self.name](module)


class _Finder:
    """Finds the modules of the two tables where the other finders find them."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if (name not in BEFORE and name not in AFTER) or name in self.asked:
            return None
        self.asked.add(name)  # the others are asked through this one, too
        try:
            found = (finder.find_spec(name, path, target) for finder in sys.meta_path if hasattr(finder, "find_spec"))
            spec = next((one for one in found if one is not None), None)
        finally:
            self.asked.discard(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(name, spec.loader)  # type: ignore[assignment]
        return spec


def watch() -> None:
    """Be asked for every import of this process from now on; a second call does nothing."""
    if not any((type(one).__module__, type(one).__name__) == (__name__, _Finder.__name__) for one in sys.meta_path):
        sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type]


def install() -> str:
    """Write the file by which every Python of this environment calls ``watch`` at its start; returns its path."""
    import sysconfig

    file = f"{sysconfig.get_paths()['purelib']}/{PTH}"
    with open(file, "w") as stream:
        stream.write(LINE)
    return file
