"""Public repositories: where a check-out or an installed package of one lies."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from mobilenetv3_common.errors import UserError

REFERENCES = {"timm": "1.0.31", "transformers": "5.24.0", "diffusers": "0.42.1"}


@dataclass(frozen=True)
class Repository:
    """A repository on GitHub.

    Attributes:
        name: ``OWNER/NAME``.
        version: the commit or the tag that was audited.
        holds: the folder of a package, or another one that is needed, below ``root``.
        root: the folder in which its packages lie.
        package: one that pip may have installed in place of a check-out; ``""`` where there is none.
    """

    name: str
    version: str
    holds: str
    root: str = ""
    package: str = ""

    def found(self, checkouts: str | Path | None) -> Path:
        """The folder that has its packages: of a check-out, otherwise of the installed package.

        Args:
            checkouts: has a folder for each repository, with its name, in whatever case.

        Raises:
            UserError: there is none.
        """
        for folder in Path(checkouts).iterdir() if checkouts and Path(checkouts).is_dir() else ():
            if folder.name.lower() == self.name.partition("/")[2].lower() and (folder / self.root / self.holds).is_dir():
                return (folder / self.root).resolve()
        spec = importlib.util.find_spec(self.package) if self.package else None
        for location in (spec.submodule_search_locations or ()) if spec else ():
            if (Path(location).parent / self.holds).is_dir():
                return Path(location).parent
        there = f"{checkouts} has none" if checkouts else "give --checkouts DIR, a folder that has one"
        raise UserError(f"a check-out of github.com/{self.name} (version {self.version}) is needed: {there}")


def check_reference(package: str) -> None:
    """See that the references are here; ``UserError`` where not."""
    if importlib.util.find_spec(package) is None:
        raise UserError(f"{package} is not installed: pip install --no-deps {package}=={REFERENCES[package]}")
