"""A public pair, and what is known of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from alignment.kinds import Kind
from mobilenetv3_common.errors import UserError
from projects.zoo.public.repository import Repository


@dataclass(frozen=True)
class Difference:
    """A difference that is known, proved without the engine.

    Attributes:
        what: in words.
        file: of the port, below the folder that has its packages.
        text: that the line to change has, and no line before it.
        kinds: of the finding that the audit has to give, each of them right; none where the pair cannot show it.
        places: of the finding, in the reference's names; ``*`` is anything.
    """

    what: str
    file: str
    text: str
    kinds: tuple[Kind, ...] = ()
    places: tuple[str, ...] = ()

    def line(self, folder: Path) -> int:
        """The number of the line.

        Raises:
            UserError: the file has no such line, so it is one of another version.
        """
        file = folder / self.file
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        for number, line in enumerate(lines, 1):
            if self.text in line:
                return number
        raise UserError(f"{file} has no line with {self.text!r}: it is not the version that was audited")


@dataclass(frozen=True)
class PublicPair:
    """A port of a public repository, and its reference.

    Attributes:
        repository: that has the port.
        port: makes the port, given the folder of the check-outs.
        reference: makes the reference.
        model: the installed package that has the reference, and its class there.
        inputs: of both, given a number of samples and a generator.
        known: what is known to differ.
    """

    repository: Repository
    port: Callable[[str | None], Any]
    reference: Callable[[], Any]
    model: str
    inputs: Callable[[int, np.random.Generator], Any]
    known: tuple[Difference, ...] = ()

    @property
    def name(self) -> str:
        """Of the row: the file of this package, and the port's function."""
        return f"{self.port.__module__.rpartition('.')[2]}.{self.port.__name__}"

    @property
    def package(self) -> str:
        """That has the reference."""
        return self.model.partition(" ")[0]

    def shapes(self) -> str:
        """The shapes of an input of two samples, with the names of its arguments."""
        made = self.inputs(2, np.random.default_rng(0))
        arrays = made if isinstance(made, dict) else {"": made}
        return ", ".join(f"{name} {'x'.join(map(str, array.shape))}".strip() for name, array in arrays.items())
