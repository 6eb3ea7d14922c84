"""The pytest plugin: the fixture ``aligned`` and the marker of the same name; installed with the package.

def test_my_port(aligned):
    aligned(MyPort, reference_model, inputs="2x3x64x64")
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--alignment-artifacts DIR``."""
    group = parser.getgroup("alignment")
    group.addoption(
        "--alignment-artifacts", metavar="DIR", default="alignment-artifacts", help="where the reports of failing audits are kept"
    )


def pytest_configure(config: pytest.Config) -> None:
    """The marker."""
    config.addinivalue_line("markers", "aligned(**options): options of the fixture aligned, as alignment.audit takes them")


@pytest.fixture
def aligned(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """``alignment.assert_aligned``; a failing audit's report is kept in the folder of ``--alignment-artifacts``."""
    marked: dict[str, Any] = {}
    for marker in reversed([*request.node.iter_markers("aligned")]):  # of the module, of the class, of the test
        marked |= marker.kwargs
    calls = itertools.count(1)

    def check(port: Any, reference: Any, **options: Any) -> Any:
        import shutil

        from alignment.api import assert_aligned

        __tracebackhide__ = True
        call = next(calls)
        folder = tmp_path / f"alignment_{call}"
        try:
            return assert_aligned(port, reference, report=folder, **{**marked, **options})
        except AssertionError as error:
            name = re.sub(r"[^\w.-]+", "_", request.node.nodeid) + (f"_{call}" if call > 1 else "")
            kept = Path(request.config.getoption("--alignment-artifacts")).resolve() / name
            if (kept / "alignment.json").is_file():  # of an earlier run
                shutil.rmtree(kept)
            shutil.copytree(folder, kept, dirs_exist_ok=True)
            raise AssertionError(str(error).replace(str(folder), str(kept))) from None

    return check
