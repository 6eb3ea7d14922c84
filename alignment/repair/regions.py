"""Which functions of the port a finding is about, and what the reference has in their place.

A finding about a module is about its class's forward, the constructor that makes it, and those around it. A finding about another
part of a project names its function or class, found in the port's own files; where the name is that of an entry of a table
(``apply_op:Rotate``), the entry; where it is that of a field, its default. Behind these come the part's other functions,
those first that mention what the finding names.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import sys
import sysconfig
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from alignment.comparisons.context import Context
from alignment.comparisons.lines import fresh_port
from alignment.finding import Finding
from alignment.frameworks.base import Framework, Module
from alignment.localize.source import source_place
from alignment.project import PARTS
from alignment.raised import shown
from alignment.repair.mirror import Definition, is_constant
from alignment.repair.region import Region
from alignment.repair.source import PortFile
from alignment.strangers import strangers

ENGINE = Path(__file__).resolve().parents[1]
PART_OF = {
    "data": "data",
    "metric": "metric",
    "loss": "loss",
    "update": "train",
    "schedule": "train",
    "train": "train",
    "ranks": "train",
}
FURTHER = 12  # functions of the part besides those that the finding names
STEM = 6  # letters of a word that others of its family share: shuffled, shuffle; and rank, ranks
OF_PLACE = 4  # how much more a word of the finding's place says than one of its kind
ALIKE = 0.3  # share of their names that two functions must have in common to be taken for each other
OF_MODEL = ("structure", "weights", "forward", "backward", "initialisation")


def regions_of(context: Context, finding: Finding, sources: Callable[[Path], bool] = lambda file: True) -> list[Region]:
    """Where a mistake may be, the likeliest first; nothing outside the port's own files, of which ``sources`` may omit some."""
    search = _Regions(context, finding, sources)
    found: list[Region] = []
    of_model = finding.stage in OF_MODEL
    model = itertools.chain(search.of_modules(), search.of_building())
    made = itertools.chain(search.of_loading(), model if of_model else (), search.by_name())
    further = itertools.chain(search.called_by(found), () if of_model else search.of_part())
    further = itertools.chain(further, model if finding.stage == "train" else ())  # a run may be wrong by its model
    for region in itertools.chain(made, further):
        if not _says_nothing(region.function) and all(region.function is not one.function for one in found):
            found.append(region)
    return found


def named_in_source(context: Context, finding: Finding) -> str:
    """Where the port's part that is wrong defines what a finding names, ``package/file.py:12``; empty where it does not.

    Where it does not, the code that it imports may, which both sides share: there the whole name counts, and one place alone may
    have it. Of a finding about shared code itself nothing else counts.
    """
    if finding.shared:
        return _in_shared_code(context, finding, _Regions(context, finding, lambda one: True))
    file = getattr(getattr(context.port, PART_OF.get(finding.stage, ""), None), "__file__", None)
    if not file:
        return ""
    whole = Path(file).resolve()
    inside = whole.parent if whole.name == "__init__.py" else whole
    search = _Regions(context, finding, lambda one: one == inside or inside in one.parents)  # shared code has such names, too
    named = list(search.by_name())
    if named:
        first, line = next(((one, line) for one in named if (line := _set_otherwise(one))), (named[0], 0))
        return f"{shown(first.source.file)}:{line or first.function.lineno}"  # type: ignore[attr-defined]
    return _in_shared_code(context, finding, search)


def _in_shared_code(context: Context, finding: Finding, search: _Regions) -> str:
    """Where code that the port imports, and not the reference, defines what a finding names; empty where no place alone does."""
    packages = {name for source in map(search.source, search.files) if source for name in _packages_imported(source)}
    shared = {path for name, path in _loaded() if name in packages - _packages_of_reference(context)}
    name, *_ = re.findall(r"[\w.]+", finding.location) or [""]
    mention = [one for one in sorted(shared) if name.rpartition(".")[2] in one.read_text(encoding="utf-8")]
    found = [f"{shown(one)}:{line}" for one in mention for line in _defined(PortFile.of(one), name)]
    return found[0] if len(found) == 1 else ""


def _set_otherwise(region: Region) -> int:
    """The line of the first argument that the finding names and to which the reference's function passes something else; or 0."""
    ours, *others = (
        {n.arg: n.value for n in ast.walk(one) if isinstance(n, ast.keyword) and n.arg} for one in (region.function, *region.theirs)
    )
    for name, value in ours.items():
        right = [ast.unparse(theirs[name]) for theirs in others if name in theirs]
        if right and ast.unparse(value) not in right and re.search(rf"\b{name}\b", region.words):
            return value.lineno
    return 0


def _packages_imported(source: PortFile) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _defined(source: PortFile, name: str) -> Iterator[int]:
    """The lines where a file defines ``function``, ``file.function``, ``Class`` or ``Class.method``."""
    for node in source.tree.body:
        if isinstance(node, Definition | ast.ClassDef) and name in (node.name, f"{source.file.stem}.{node.name}"):
            yield node.lineno
        for part in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(part, Definition) and name == f"{node.name}.{part.name}":  # type: ignore[attr-defined]
                yield part.lineno


class _Regions:
    def __init__(self, context: Context, finding: Finding, sources: Callable[[Path], bool]) -> None:
        self.context, self.finding = context, finding
        self.languages = context.port.framework.name, context.reference.framework.name
        self.words = f"{finding.kind}: {finding.hint}"  # what was measured is of the outputs
        self._sources: dict[Path, PortFile | None] = {}
        self.files = [file for file in own_files(context) if sources(file)]
        self._right: dict[str, list[tuple[str, str, Definition]]] | None = None

    def source(self, file: Path) -> PortFile | None:
        if file not in self._sources:
            try:
                self._sources[file] = PortFile.of(file) if file in self.files else None
            except (OSError, SyntaxError):
                self._sources[file] = None
        return self._sources[file]

    def region(self, source: PortFile, node: ast.AST, line: int = 0, theirs: Sequence[Definition] = ()) -> Region:
        theirs = theirs or (self.counterparts(source, node) if isinstance(node, Definition) else ())
        return Region(source, node, line, self.words, tuple(theirs), self.languages)

    def counterparts(self, source: PortFile, node: Definition) -> list[Definition]:
        """The reference's functions of this name: those of a class and a file of the same names alone, where there are any.

        Where none has the name, the function that says most alike in the file of the same name.
        """
        if self._right is None:
            own = _class_node(type(self.context.networks.described)) if self.finding.stage in OF_MODEL else None
            self._right = _definitions([*_files_of(_packages_of_reference(self.context)), *([own[0]] if own else [])])
        place = source.file.stem, _class_of(source, node)
        held = [
            (sum(a == b for a, b in zip(place, one[:2], strict=True)), one[2]) for one in self._right.get(_plain(node.name), [])
        ]
        if not held:
            beside = [one[2] for some in self._right.values() for one in some if one[0] == source.file.stem]
            closest = max(beside, key=lambda one: _alike(node, one), default=None)
            return [closest] if closest is not None and _alike(node, closest) >= ALIKE else []
        best = max(score for score, _ in held)
        found = [function for score, function in held if score == best]
        return found if best or len(found) == 1 else [max(found, key=lambda one: _alike(node, one))]

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
        right = theirs.modules(self.context.networks.described, every_path=True)
        place = self.finding.location.removesuffix(".forward").partition(":")[0]
        while place and place not in right:
            place = place.rpartition(".")[0]
        own = self.context.paired.own_path(place)
        line = self._line(framework, port, own)
        seen: set[type] = set()
        while True:
            if own in ours and type(ours[own]) not in seen:
                seen.add(type(ours[own]))
                yield from self._of_class(type(ours[own]), type(right[place]) if place in right else None, line)
            if not own:
                return
            own, place = own.rpartition(".")[0], place.rpartition(".")[0]

    def of_building(self) -> Iterator[Region]:
        """The function that builds the port."""
        made = inspect.unwrap(getattr(self.context.spec.port, "func", self.context.spec.port))
        found = _class_node(made) if inspect.isfunction(made) else None
        source = self.source(found[0]) if found else None
        for node in source.tree.body if source else ():
            if isinstance(node, Definition) and node.name == made.__name__ and source:
                yield self.region(source, node)

    def _line(self, framework: Framework, port: Module, own: str) -> tuple[Path, int] | None:
        name, _, number = self.finding.source.partition(":")
        said = [file for file in self.files if name and str(file).endswith(name)]
        if said and number:
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
            elif isinstance(node, ast.Assign) and names & _bound(node):
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
                yield from (self.region(source, node, number) for node in around[-1:])

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
            yield self.region(source, one)
        for part in node.body if isinstance(node, ast.ClassDef) else ():
            default = part.value if isinstance(part, ast.AnnAssign) else None
            if isinstance(part, ast.AnnAssign) and default and _mentions(self.finding.location, ast.unparse(part.target)):
                yield self.region(source, default)

    def _called(self, source: PortFile, name: str) -> Iterator[Region]:
        for node in ast.walk(source.tree):
            if isinstance(node, Definition) and node.name == name:
                yield from self._parts(source, node)

    def called_by(self, found: Sequence[Region]) -> Iterator[Region]:
        """Functions and values of the port's own files that those functions name, which are known by then, and what these name."""
        for region in itertools.islice(found, FURTHER):  # grows meanwhile
            for name in _called(region.function) if region.named else ():
                for source in filter(None, map(self.source, self.files)):
                    if source is region.source or name in _imported(region.source):
                        made = [n for n in source.tree.body if name in _bound(n)]
                        yield from (self.region(source, getattr(n, "value", n)) for n in made)

    def of_part(self) -> Iterator[Region]:
        """Functions of the port's part that is wrong: those that mention what the finding names, from the first such line."""
        part = getattr(self.context.port, PART_OF.get(self.finding.stage, ""), None)
        file = getattr(part, "__file__", None)
        inside = Path(file).resolve().parent if file and Path(file).name == "__init__.py" else None
        place, kind = (re.findall(r"[a-z]{3,}", f"{text}".lower()) for text in (self.finding.location, self.finding.kind))
        stems = {_stem(word): weight for weight, words in ((1, kind), (OF_PLACE, place)) for word in words}
        parts = set[ast.AST]()
        said: list[tuple[PortFile, Definition, dict[str, int]]] = []  # each function, and the line of its first mention of a word
        for source in filter(None, map(self.source, self.files)):
            for node in [one for one in ast.walk(source.tree) if isinstance(one, Definition)]:
                first = {word: line for word, line in _first_lines(node).items() if word in stems}
                if inside is not None and source.file.is_relative_to(inside):  # the port's may be the very word that is wrong
                    right = [word for one in self.counterparts(source, node) for word in _first_lines(one) if word in stems]
                    first = dict.fromkeys(right, 0) | first
                    parts.add(node)
                said.append((source, node, first))
        often = Counter(word for *_, words in said for word in words)  # a word that few functions mention says more

        def likely(one: tuple[PortFile, Definition, dict[str, int]]) -> float:
            _, node, words = one
            return sum(stems[word] / often[word] for word in words) * (2 if node in parts else 1)

        said.sort(key=likely, reverse=True)
        own = [one for one in said if one[1] in parts][: FURTHER * 2 // 3]
        rest = [one for one in said if one[1] not in parts and likely(one)][: FURTHER - len(own)]
        for source, node, words in sorted([*own, *rest], key=likely, reverse=True):
            line = words[min(words, key=lambda one: often[one] / stems[one])] if words else 0
            yield replace(self.region(source, node, line), named=False)

    def of_loading(self) -> Iterator[Region]:
        """Where the port is told to load its weights otherwise, if they are wrong and it is."""
        if self.finding.stage == "weights" and self.context.spec.load is not None:
            for source in filter(None, map(self.source, self.files)):
                for node in [one for one in ast.walk(source.tree) if isinstance(one, Definition)]:
                    calls = [one for one in ast.walk(node) if isinstance(one, ast.Call) and _called_with(one, "load")]
                    said = f"{self.words}; its own load is to blame"
                    yield from (replace(self.region(source, one), words=said) for one in calls[:1])


def _says_nothing(node: ast.AST) -> bool:
    """Whether a function has no body of its own, as those of a protocol."""
    return isinstance(node, Definition) and all(isinstance(s, ast.Pass | ast.Raise) or is_constant(s) for s in node.body)


def _first_lines(node: ast.AST) -> dict[str, int]:
    """The words in a function's names, shortened, each with the line of its first mention."""
    found: dict[str, int] = {}
    for one in ast.walk(node):
        name = getattr(one, "attr", None) or getattr(one, "id", None) or getattr(one, "arg", None) or getattr(one, "name", None)
        for word in re.findall(r"[a-z]{3,}", name.lower()) if isinstance(name, str) else ():
            line = getattr(one, "end_lineno" if isinstance(one, ast.Attribute) else "lineno", 0)
            found[_stem(word)] = min(found.get(_stem(word), line), line)
    return found


def _stem(word: str) -> str:
    return word[:STEM].removesuffix("s")


def _called(node: ast.AST) -> list[str]:
    return list(dict.fromkeys(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)))


def _imported(source: PortFile) -> set[str]:
    return {one.asname or one.name for node in source.tree.body if isinstance(node, ast.ImportFrom) for one in node.names}


def _called_with(call: ast.Call, argument: str) -> bool:
    return any(one.arg == argument for one in call.keywords)


def _mentions(text: str, name: str) -> bool:
    return _plain(name) in [_plain(word) for word in re.findall(r"[A-Za-z_]\w*", text)]


def _alike(one: ast.AST, other: ast.AST) -> float:
    a, b = ({getattr(n, "attr", getattr(n, "id", "")) for n in ast.walk(f)} - {""} for f in (one, other))
    return len(a & b) / max(len(a | b), 1)


def _class_of(source: PortFile, node: ast.AST) -> str:
    around = source.parents.get(node)
    return around.name if isinstance(around, ast.ClassDef) else ""


def _definitions(files: Sequence[Path]) -> dict[str, list[tuple[str, str, Definition]]]:
    """Name of a function, as ``_plain`` has it -> the stem of its file, its class, and itself."""
    found: dict[str, list[tuple[str, str, Definition]]] = {}
    for file in files:
        source = PortFile.of(file)
        for node in ast.walk(source.tree):
            if isinstance(node, Definition):
                found.setdefault(_plain(node.name), []).append((file.stem, _class_of(source, node), node))
    return found


def _packages_of_reference(context: Context) -> set[str]:
    """The packages, and modules outside a package, of the reference's parts and of what makes its model."""
    theirs = {getattr(getattr(context.reference, part), "__name__", "") for part in PARTS}
    theirs.add(getattr(inspect.unwrap(getattr(context.spec.reference, "func", context.spec.reference)), "__module__", ""))
    return {name.partition(".")[0] for name in theirs if name}


def _loaded() -> Iterator[tuple[str, Path]]:
    """Packages and files of the modules that are imported and not installed."""
    installed = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")]
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        path = Path(file).resolve() if file and file.endswith(".py") else None
        outside = path and "site-packages" not in path.parts and not any(path.is_relative_to(one) for one in [*installed, ENGINE])
        if path and outside and path.is_file():  # torch.classes says "_classes.py", which there is not
            yield name.partition(".")[0], path


def _files_of(packages: set[str]) -> list[Path]:
    return sorted({path for name, path in _loaded() if name in packages})


def own_files(context: Context) -> list[Path]:
    """The Python files of the port: imported ones that are neither installed, nor the reference's, nor the engine's."""
    others = _packages_of_reference(context) | {"alignment", "bench", "tests", "__main__"}
    return sorted({path for name, path in _loaded() if name not in others})


def _bound(node: ast.stmt) -> set[str]:
    """What a statement of a file defines: a function, or the names of a value."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    return {node.name} if isinstance(node, Definition) else {one.id for one in targets if isinstance(one, ast.Name)}


def _class_node(kind: Callable) -> tuple[Path, int] | None:
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
