"""Functions of a process that runs already get the code that a changed file gives them, so that nothing is imported again.

Only what a change of bodies of functions can mean is done so. Another constant of a module, a default, a decorator, a field of a
class, or a function that runs while modules are imported takes effect by an import alone; then nothing is changed here.
"""

from __future__ import annotations

import ast
import functools
import gc
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType

Path_ = tuple[tuple[str, int], ...]  # names of the functions and classes around a function, each with its number among namesakes
Definition = ast.FunctionDef | ast.AsyncFunctionDef


class LiveFunctions:
    """The functions and the caches of this process that some files define.

    Args:
        files: as they were imported.
    """

    def __init__(self, files: Collection[Path]) -> None:
        self.files = {str(file): file.read_text(encoding="utf-8") for file in files}
        self.early = _run_early([ast.parse(text) for text in self.files.values()])
        self._held: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        self._caches = []
        for one in gc.get_objects():
            if type(one) is FunctionType and one.__code__.co_filename in self.files:
                self._held[one.__code__.co_filename, one.__code__.co_name, one.__code__.co_firstlineno].append(one)
            elif type(one) is functools._lru_cache_wrapper:
                self._caches.append(one)

    def take(self, changed: Mapping[Path, str]) -> set[str] | None:
        """Give the functions of changed files other code; returns the names of those that say something else now.

        What functions kept of earlier calls is forgotten. Where other code would not do, nothing is changed, and there is None.
        """
        new: list[tuple[FunctionType, CodeType]] = []
        names: set[str] = set()
        for file, text in changed.items():
            found = self._codes(str(file), text)
            if found is None:
                return None
            new += found[0]
            names |= found[1]
        for function, code in new:
            function.__code__ = code
        for one in self._caches:
            if getattr(getattr(one, "__wrapped__", None), "__module__", "").partition(".")[0] in self._packages():
                one.cache_clear()
        return names

    @functools.cache  # noqa: B019 (there is one such object in a process)
    def _packages(self) -> frozenset[str]:
        return frozenset(one.__module__.partition(".")[0] for some in self._held.values() for one in some if one.__module__)

    def _codes(self, file: str, text: str) -> tuple[list[tuple[FunctionType, CodeType]], set[str]] | None:
        """The live functions of a file and their code after a change, and the names of those that it is of.

        None where it is of more than bodies.
        """
        old = self.files.get(file)
        if old is None:
            return None
        before, after = ast.parse(old), ast.parse(text)
        if _without_bodies(before) != _without_bodies(after):
            return None
        changed = _otherwise(before, after)
        if self.early & {name for pair in changed for name in pair if name}:
            return None
        ours, theirs = (dict(_functions(compile(one, file, "exec", dont_inherit=True))) for one in (old, text))
        found = []
        for path, code in ours.items():
            for function in self._held.get((file, code.co_name, code.co_firstlineno), ()):
                other = theirs.get(path)
                if other is None or other.co_freevars != code.co_freevars:
                    return None
                found.append((function, other))
        return found, {name for _, name in changed}


def _functions(code: CodeType, around: Path_ = ()) -> Iterator[tuple[Path_, CodeType]]:
    """The functions in a code object, by what is around each."""
    count: dict[str, int] = defaultdict(int)
    for one in code.co_consts:
        if isinstance(one, CodeType):
            count[one.co_name] += 1
            path = (*around, (one.co_name, count[one.co_name]))
            yield path, one
            yield from _functions(one, path)


class _Bodiless(ast.NodeTransformer):
    def _cut(self, node: ast.AST) -> ast.AST:
        node.body = []  # type: ignore[attr-defined]
        return self.generic_visit(node)

    visit_FunctionDef = visit_AsyncFunctionDef = _cut


def _without_bodies(tree: ast.Module) -> str:
    """What a file says outside the bodies of its functions."""
    return ast.dump(_Bodiless().visit(ast.parse(ast.unparse(tree))))


def _by_name(tree: ast.AST, around: str = "") -> Iterator[tuple[str, str, Definition]]:
    """Functions outside of functions: each with its class, empty where there is none, and its name."""
    for node in getattr(tree, "body", []):
        if isinstance(node, Definition):
            yield around, node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _by_name(node, node.name)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _by_name(node, around)


def _otherwise(before: ast.Module, after: ast.Module) -> set[tuple[str, str]]:
    """Class and name of the functions that read otherwise after a change."""
    pairs = zip(_by_name(before), _by_name(after), strict=True)
    return {(kind, name) for (kind, name, one), (_, _, other) in pairs if ast.dump(one) != ast.dump(other)}


def _run_early(trees: Collection[ast.Module]) -> set[str]:
    """Names of functions and classes that may run while the files are imported: called outside of functions, or by those."""
    bodies: dict[str, list[ast.AST]] = defaultdict(list)
    for tree in trees:
        for kind, name, node in _by_name(tree):
            bodies[kind or name].append(node)
    shells = [_Bodiless().visit(ast.parse(ast.unparse(tree))) for tree in trees]
    waiting = {"__init_subclass__", "__set_name__", "__class_getitem__", *(name for one in shells for name in _called(one))}
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting |= {other for one in bodies.get(name, ()) for other in _called(one)} - found
    return found


def _called(tree: ast.AST) -> Iterator[str]:
    """Names of what a tree calls, decorates with, or inherits from."""
    for node in ast.walk(tree):
        named = [node.func] if isinstance(node, ast.Call) else []
        named += node.decorator_list if isinstance(node, Definition | ast.ClassDef) else []
        for one in named:
            yield getattr(one, "attr", getattr(one, "id", ""))
