"""How the engine hangs together: which of its folders imports which, as a Mermaid graph, drawn from the imports.

``python -m bench.flow`` prints it; CONTRIBUTING.md shows it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ENGINE = Path(__file__).resolve().parents[1] / "alignment"
DOORS = {"cli", "api"}  # files beside the folders by which everything begins


def imported(file: Path) -> Iterator[tuple[str, ...]]:
    """The engine's modules that a file imports, by their parts below ``alignment``."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("alignment"):
            yield from (tuple(f"{node.module}.{alias.name}".split(".")[1:]) for alias in node.names)


def rooms(folder: Path) -> dict[str, set[str]]:
    """The folders inside one (and the doors), and those that their files import."""
    above = folder.relative_to(ENGINE).parts
    inside = {path.name for path in folder.iterdir() if path.is_dir()} | (set() if above else DOORS)
    found: dict[str, set[str]] = {}
    for file in sorted(folder.rglob("*.py")):
        here = file.relative_to(folder).with_suffix("").parts[0]
        names = {parts[len(above)] for parts in imported(file) if parts[: len(above)] == above and len(parts) > len(above)}
        if here in inside:
            found.setdefault(here, set()).update(names & inside - {here})
    return found


def reduced(edges: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Without the arrows that a longer way says, too; there is no circle."""

    def reached(room: str) -> set[str]:
        return edges[room].union(*map(reached, edges[room]))

    return {room: others - set().union(*map(reached, others)) for room, others in edges.items()}


def arrows(folder: Path) -> list[str]:
    """A line for each; from what imports to what is imported."""
    return [f"    {room} --> {other}" for room, others in sorted(reduced(rooms(folder)).items()) for other in sorted(others)]


def picture() -> str:
    """The graph: the engine's folders, and inside ``comparisons`` the parts."""
    inside = [f"    {line}" for line in arrows(ENGINE / "comparisons")]
    return "\n".join(["graph LR", *arrows(ENGINE), "    subgraph comparisons", *inside, "    end"])


if __name__ == "__main__":
    print(picture())
