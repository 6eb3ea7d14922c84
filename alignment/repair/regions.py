"""Which functions of the port a finding is about, and what the reference has in their place.

A finding about a module is about its class's forward, the constructor that makes it, and those around it. A finding about another
part of a project names its function or class, found in the port's own files; where the name is that of an entry of a table
(``apply_op:Rotate``), the entry.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import sysconfig
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from alignment.comparisons.context import Context
from alignment.comparisons.every import fresh_port, own_path
from alignment.finding import Finding
from alignment.frameworks.base import Framework, Module
from alignment.localize.source import source_place
from alignment.project import PARTS
from alignment.repair.candidates import Region
from alignment.repair.mirror import Definition
from alignment.repair.source import PortFile
from alignment.strangers import strangers

ENGINE = Path(__file__).resolve().parents[1]
OF_MODEL = ("structure", "weights", "forward", "backward", "initialisation", "train")


def regions_of(context: Context, finding: Finding) -> list[Region]:
    """Where a mistake may be, the likeliest first; nothing outside the port's own files."""
    search = _Regions(context, finding)
    found: list[Region] = []
    for region in search.of_modules() if finding.stage in OF_MODEL else search.by_name():
        if all(region.function is not one.function for one in found):
            found.append(region)
    return found


class _Regions:
    def __init__(self, context: Context, finding: Finding) -> None:
        self.context, self.finding = context, finding
        self.languages = context.port.framework.name, context.reference.framework.name
        self.words = f"{finding.hint} {finding.measured}"
        self._sources: dict[Path, PortFile | None] = {}
        self.files = own_files(context)

    def source(self, file: Path) -> PortFile | None:
        if file not in self._sources:
            try:
                self._sources[file] = PortFile.of(file) if file in self.files else None
            except (OSError, SyntaxError):
                self._sources[file] = None
        return self._sources[file]

    def region(self, source: PortFile, node: ast.AST, line: int = 0, theirs: Sequence[Definition] = ()) -> Region:
        return Region(source, node, line, self.words, tuple(theirs), self.languages)

    # --- modules ----------------------------------------------------------------------------------------------------------

    def of_modules(self) -> Iterator[Region]:
        """The forward of a module, the constructor that makes it, those of the modules around it."""
        if ":" in self.finding.location.partition(" ")[0]:
            yield from self._at_line(self.finding.location)
        port = fresh_port(self.context)
        if port is None:
            return
        framework, theirs = self.context.port.framework, self.context.reference.framework
        ours = framework.modules(port, every_path=True)
        right = theirs.modules(self.context.networks.fresh("reference"), every_path=True)
        place = self.finding.location.removesuffix(".forward").partition(":")[0]
        while place and place not in right:
            place = place.rpartition(".")[0]
        own = own_path(self.context, place)
        line = self._line(framework, port, own)
        seen: set[type] = set()
        while True:
            if own in ours and type(ours[own]) not in seen:
                seen.add(type(ours[own]))
                yield from self._of_class(type(ours[own]), type(right[place]) if place in right else None, line)
            if not own:
                return
            own, place = own.rpartition(".")[0], place.rpartition(".")[0]

    def _line(self, framework: Framework, port: Module, own: str) -> tuple[Path, int] | None:
        name, _, number = self.finding.source.partition(":")
        said = [file for file in self.files if name and str(file).endswith(name)]
        if said and number and ".forward" in self.finding.location:
            return said[0], int(number.partition("-")[0])
        with strangers("port"):
            return source_place(framework, port, own, made=True)
        return None

    def _of_class(self, ours: type, theirs: type | None, line: tuple[Path, int] | None) -> Iterator[Region]:
        found = _class_node(ours)
        source = self.source(found[0]) if found else None
        node = (
            next((n for n in ast.walk(source.tree) if isinstance(n, ast.ClassDef) and n.name == ours.__name__), None)
            if source
            else None
        )
        if source is None or node is None:
            return
        right = _functions(_tree_of(theirs)) if theirs is not None else {}
        methods = [one for one in node.body if isinstance(one, Definition)]
        methods.sort(key=lambda one: not (line and line[0] == source.file and one.lineno <= line[1] <= (one.end_lineno or 0)))
        here = line[1] if line and line[0] == source.file else 0
        for one in methods:
            yield self.region(source, one, here, right.get(one.name, []))
        yield from self._behind(source, [n for one in methods[:1] for n in ast.walk(one) if not here or _on_line(n, here)])

    def _behind(self, source: PortFile, nodes: Sequence[ast.AST]) -> Iterator[Region]:
        """Functions and values of the same file that some nodes name: ``made(6)``, ``epsilon=EPS``."""
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        for node in source.tree.body:
            if isinstance(node, Definition) and node.name in names:
                yield self.region(source, node)
            elif isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id in names for t in node.targets):
                yield self.region(source, node.value)

    def _at_line(self, location: str) -> Iterator[Region]:
        """The function around ``package/file.py:12``."""
        name, _, rest = location.partition(":")
        number = int(re.match(r"\d*", rest)[0] or 0)  # type: ignore[index]
        for file in self.files:
            source = self.source(file) if str(file).endswith(name) else None
            if source and number:
                around = [
                    n for n in ast.walk(source.tree) if isinstance(n, Definition) and n.lineno <= number <= (n.end_lineno or 0)
                ]
                yield from (self.region(source, node, number, self._named(node.name)) for node in around[-1:])

    # --- other parts ------------------------------------------------------------------------------------------------------

    def by_name(self) -> Iterator[Region]:
        """Functions, classes and entries of tables that are called as the finding's location is."""
        names = [_plain(one) for one in re.findall(r"[A-Za-z_]\w*", self.finding.location)]
        for name in reversed(names):  # the last is the narrowest
            for file in self.files:
                source = self.source(file)
                for node in ast.walk(source.tree) if source else ():
                    if isinstance(node, Definition | ast.ClassDef) and _plain(node.name) == name and source:
                        yield from self._parts(source, node)
                    elif isinstance(node, ast.Dict) and source:
                        for key, value in zip(node.keys, node.values, strict=True):
                            if isinstance(key, ast.Constant) and _plain(str(key.value)) == name:
                                yield self.region(source, value)
                                if isinstance(value, ast.Name):
                                    yield from self._called(source, value.id)

    def _parts(self, source: PortFile, node: ast.AST) -> Iterator[Region]:
        for one in [n for n in ast.walk(node) if isinstance(n, Definition)]:
            yield self.region(source, one, 0, self._named(one.name))

    def _called(self, source: PortFile, name: str) -> Iterator[Region]:
        for node in ast.walk(source.tree):
            if isinstance(node, Definition) and node.name == name:
                yield from self._parts(source, node)

    def _named(self, name: str) -> list[Definition]:
        """Functions of this name in the reference's parts and classes."""
        found: list[Definition] = []
        for part in PARTS:
            module = getattr(self.context.reference, part, None)
            for value in vars(module).values() if module is not None else ():
                if inspect.isclass(value) or inspect.isfunction(value):
                    found += _functions(_tree_of(value)).get(name, [])
        return found


def own_files(context: Context) -> set[Path]:
    """The Python files of the port: imported ones that are neither installed, nor the reference's, nor the engine's."""
    installed = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")]
    theirs = {getattr(getattr(context.reference, part), "__name__", "") for part in PARTS}
    theirs.add(getattr(inspect.unwrap(getattr(context.spec.reference, "func", context.spec.reference)), "__module__", ""))
    packages = {name.partition(".")[0] for name in theirs if name}
    found = set()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not file or not file.endswith(".py") or name.partition(".")[0] in packages | {"alignment", "bench", "tests", "__main__"}:
            continue
        path = Path(file).resolve()
        if "site-packages" not in path.parts and not any(path.is_relative_to(one) for one in [*installed, ENGINE]):
            found.add(path)
    return found


def _class_node(kind: type) -> tuple[Path, int] | None:
    try:
        file, (_, line) = inspect.getsourcefile(kind), inspect.getsourcelines(kind)
    except (OSError, TypeError):
        return None
    return (Path(file).resolve(), line) if file else None


def _tree_of(value: object) -> ast.AST | None:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(value)))  # type: ignore[arg-type]
    except (OSError, TypeError, SyntaxError):
        return None


def _functions(tree: ast.AST | None) -> dict[str, list[Definition]]:
    found: dict[str, list[Definition]] = {}
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, Definition):
            found.setdefault(node.name, []).append(node)
    return found


def _on_line(node: ast.AST, line: int) -> bool:
    return getattr(node, "lineno", line + 1) <= line <= (getattr(node, "end_lineno", None) or 0)


def _plain(name: str) -> str:
    return name.replace("_", "").lower()
