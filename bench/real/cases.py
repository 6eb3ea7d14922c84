"""The cases: a list with links, and a file of source for each, from which the broken and the fixed version are made."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import yaml

from mobilenetv3_common.errors import UserError

HERE = Path(__file__).resolve().parent
LIST, PAIRS = HERE / "cases.yaml", HERE / "pairs"
FIX, DROP, ADD = "  # fix: ", "  # drop", "# add: "


@dataclass(frozen=True)
class Case:
    """A bug of a public history.

    Attributes:
        id: of the case; its file in ``pairs`` has the same name.
        repository, link, date: where the thread or the commit stands, and when it was written.
        wrong: what was wrong, in a sentence.
        place: module paths of the pair to which a finding may point; ``""`` is the model itself.
        cause: what the fix says.
        words: a finding names the cause if its text contains one of them.
        kind: of the mistake.
    """

    id: str
    repository: str
    link: str
    date: str
    wrong: str
    place: tuple[str, ...]
    cause: str
    words: tuple[str, ...]
    kind: str

    @property
    def held_out(self) -> bool:
        """Whether the case is kept apart: by a digest of its id, so that nobody chose."""
        return hashlib.sha256(self.id.encode()).digest()[0] % 2 == 1

    @property
    def marked(self) -> str:
        """The source of the pair, with the marks of the fix."""
        return (PAIRS / f"{self.id.replace('-', '_')}.py").read_text(encoding="utf-8")

    @property
    def digest(self) -> str:
        """Of all that an outcome depends on, besides the engine."""
        return hashlib.sha256(f"{self}\n{self.marked}".encode()).hexdigest()[:16]


def load_cases(only: list[str] | None = None, held_out: bool | None = None) -> list[Case]:
    """The cases of the list, or some of them.

    Args:
        only: their ids.
        held_out: those that are kept apart, or those that are not; both where None.

    Raises:
        UserError: there is no case of this id.
    """
    entries = yaml.safe_load(LIST.read_text(encoding="utf-8"))
    cases = [Case(**entry | {"place": tuple(entry["place"]), "words": tuple(entry["words"])}) for entry in entries]
    cases = [Case(**vars(case) | {"date": str(case.date)}) for case in cases]
    unknown = set(only or []) - {case.id for case in cases}
    if unknown:
        raise UserError(f"--only {' '.join(sorted(unknown))}: there is no such case; bench/real/cases.yaml lists them")
    return [case for case in cases if (not only or case.id in only) and held_out in (None, case.held_out)]


def versions(marked: str) -> tuple[str, str, list[int]]:
    """The broken source, the fixed source, and the numbers of the broken source's wrong lines.

    A line that ends in ``# fix: CODE`` is CODE in the fixed source; one that ends in ``# drop`` is not in it; a line
    ``# add: CODE`` is only in it. The place of an added line is the line that follows it.
    """
    broken: list[str] = []
    fixed: list[str] = []
    wrong: list[int] = []
    for line in marked.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        code, mark, mended = line.partition(FIX)
        if line.strip().startswith(ADD):
            fixed.append(indent + line.strip()[len(ADD) :])
            wrong.append(len(broken) + 1)
        elif mark:
            broken.append(code)
            fixed.append(indent + mended)
            wrong.append(len(broken))
        elif line.endswith(DROP):
            broken.append(line[: -len(DROP)])
            wrong.append(len(broken))
        else:
            broken.append(line)
            fixed.append(line)
    return "\n".join(broken) + "\n", "\n".join(fixed) + "\n", wrong
