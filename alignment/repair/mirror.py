"""The function that is to blame beside the reference's: where the two read otherwise, and the port's text as it would then be.

The reference's function is first written in the port's framework (``vocabulary``); two expressions are the same where they are
equal but for how a function is called (``F.relu(x)``, ``x.relu()``) and what its arguments are called. Parts of the port that are
the same are kept as they are written. What a difference means is not judged here: every one is a candidate, to be tried.
"""

from __future__ import annotations

import ast
import copy
import difflib
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from alignment.repair.edits import SourceEdit
from alignment.repair.source import PortFile
from alignment.repair.vocabulary import MODULES, translated

ALIKE = 0.5  # from which two statements are taken for the same one
Definition = ast.FunctionDef | ast.AsyncFunctionDef


def key(node: ast.AST) -> str:
    """What an expression or a statement says, without how its functions are called."""
    if isinstance(node, ast.Call):
        return f"{_name(node)}({','.join([*map(key, _given(node)), *(f'{k.arg}={key(k.value)}' for k in node.keywords)])})"
    if isinstance(node, ast.List | ast.Tuple):
        return f"[{','.join(map(key, node.elts))}]"
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant):
        return (
            repr(float(node.value))
            if isinstance(node.value, int | float) and not isinstance(node.value, bool)
            else repr(node.value)
        )
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return f"Assign({key(node.target)},{key(node.value)})"
    fields = [value for name, value in ast.iter_fields(node) if name not in ("ctx", "annotation", "returns", "type_comment")]
    return f"{type(node).__name__}({','.join(_part(value) for value in fields)})"


def _part(value: object) -> str:
    if isinstance(value, ast.AST):
        return key(value)
    return f"[{','.join(map(_part, value))}]" if isinstance(value, list) else repr(value)


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else key(call.func)


def _of_function(call: ast.Call) -> bool:
    """Whether a function is called, and is given something first; no method of a value."""
    module = call.func.value if isinstance(call.func, ast.Attribute) else None
    named = isinstance(call.func, ast.Name) or (isinstance(module, ast.Name) and module.id in MODULES)
    return named and bool(call.args)


def _given(call: ast.Call) -> list[ast.expr]:
    """A call's arguments in order: the tensor itself first, a list in its parts; ``self.layer(x)`` has no such tensor."""
    own = call.func.value if isinstance(call.func, ast.Attribute) else None
    of_module = own is None or (isinstance(own, ast.Name) and own.id in (*MODULES, "self"))
    given = [*([] if of_module or own is None else [own]), *call.args]
    return given


class Mirror:
    """One function of the port beside one of the reference.

    Args:
        source: the port's file.
        ours: the port's function.
        theirs: the reference's.
        languages: names of the two frameworks, the port's first.
    """

    def __init__(self, source: PortFile, ours: Definition, theirs: Definition, languages: tuple[str, str]) -> None:
        self.source, self.ours = source, ours
        self.theirs = translated(_inlined(ours, _renamed(ours, theirs)), *languages)
        self._known = {node.id for node in ast.walk(source.tree) if isinstance(node, ast.Name)}
        self._layers = _name_of_layers(source.tree, languages[0])
        self._own = {key(node): node for node in ast.walk(ours) if isinstance(node, ast.expr)}

    def changes(self) -> Iterator[SourceEdit]:
        """Each difference as an edit, the smallest ones of a statement first."""
        return self._block(self.ours.body, self.theirs.body)

    def _block(self, ours: Sequence[ast.stmt], theirs: Sequence[ast.stmt]) -> Iterator[SourceEdit]:
        ours = [one for one in ours if not is_constant(one)]
        theirs = [one for one in theirs if not is_constant(one)]
        at = 0  # of the port's statements
        for tag, a, b, c, d in difflib.SequenceMatcher(None, [key(s) for s in ours], [key(s) for s in theirs], False).get_opcodes():
            if tag == "equal":
                continue
            left, right, partner = list(ours[a:b]), list(theirs[c:d]), dict[ast.stmt, ast.stmt]()
            at = b
            for one in list(left):
                best = max(right, key=lambda other: _similar(one, other), default=None)
                if best is not None and _similar(one, best) >= ALIKE:
                    left.remove(one)
                    right.remove(best)
                    partner[best] = one
                    yield from self._statement(one, best)
            if len(left) == len(right):
                yield from (self._in_place(one, other) for one, other in zip(left, right, strict=True))
            yield from (self.source.without(one) for one in left if len(ours) > 1)
            for one in right if ours else ():
                behind = [partner[other] for other in theirs[theirs.index(one) : d] if other in partner]
                put = self.source.before if behind or at < len(ours) else self.source.after
                yield put(behind[0] if behind else ours[min(at, len(ours) - 1)], ast.unparse(self.rendered(one)))
            if b - a > 1 and d > c:
                yield self._together(ours[a:b], theirs[c:d])

    def _together(self, ours: Sequence[ast.stmt], theirs: Sequence[ast.stmt]) -> SourceEdit:
        """Statements that stand together, all of them as the reference has them."""
        (start, _), (_, end) = self.source.span(ours[0]), self.source.span(ours[-1])
        text = self.source.indented(ours[0], "\n".join(ast.unparse(self.rendered(one)) for one in theirs))
        return SourceEdit(self.source.file, start, end, text, ours[0].lineno)

    def _in_place(self, ours: ast.stmt, theirs: ast.stmt) -> SourceEdit:
        return self.source.replaced(ours, self.source.indented(ours, ast.unparse(self.rendered(theirs))))

    def _statement(self, ours: ast.stmt, theirs: ast.stmt) -> Iterator[SourceEdit]:
        for name in ("test", "target", "value", "iter", "items", "targets", "exc"):
            a, b = getattr(ours, name, None), getattr(theirs, name, None)
            if isinstance(a, list) and isinstance(b, list) and len(a) == len(b) == 1:
                a, b = a[0], b[0]
            if isinstance(a, ast.expr) and isinstance(b, ast.expr):
                yield from sorted(self._expressions(a, b), key=lambda edit: edit.end - edit.start)
        for name in ("body", "orelse"):
            a, b = getattr(ours, name, None), getattr(theirs, name, None)
            if isinstance(a, list) and isinstance(b, list):
                yield from self._block(a, b)
        if key(ours) != key(theirs) and not hasattr(ours, "body"):
            yield self._in_place(ours, theirs)  # what is not an expression of it differs: "=" and "+="

    def _expressions(self, ours: ast.expr, theirs: ast.expr) -> Iterator[SourceEdit]:
        if key(ours) == key(theirs) or isinstance(ours, ast.Starred) != isinstance(theirs, ast.Starred):
            return
        yield self.source.replaced(ours, ast.unparse(self.rendered(theirs)))
        if type(ours) is not type(theirs):
            return
        if isinstance(ours, ast.Call) and isinstance(theirs, ast.Call):
            yield from self._calls(ours, theirs)
            return
        for name, mine in ast.iter_fields(ours):
            other = getattr(theirs, name, None)
            both = zip(mine, other, strict=False) if isinstance(mine, list) and isinstance(other, list) else [(mine, other)]
            for a, b in both:
                if isinstance(a, ast.expr) and isinstance(b, ast.expr):
                    yield from self._expressions(a, b)

    def _calls(self, ours: ast.Call, theirs: ast.Call) -> Iterator[SourceEdit]:
        if _name(ours) != _name(theirs) and isinstance(ours.func, ast.Attribute | ast.Name):
            end = self.source.span(ours.func)[1]
            start = end - len((ours.func.attr if isinstance(ours.func, ast.Attribute) else ours.func.id).encode())
            yield SourceEdit(self.source.file, start, end, _name(theirs), ours.lineno)
        mine, other = _given(ours), _given(theirs)
        if mine and other and key(mine[0]) != key(other[0]) and _of_function(ours) and _of_function(theirs):
            yield self.source.replaced(ours, self._with_own_first(ours, theirs))
        for a, b in zip(mine, other, strict=False):
            yield from self._expressions(a, b)
        held = {one.arg: one.value for one in theirs.keywords}
        for one in ours.keywords:
            if one.arg in held:
                yield from self._expressions(one.value, held[one.arg])
        if more := [one for one in theirs.keywords if one.arg not in {own.arg for own in ours.keywords}]:
            added = [ast.keyword(one.arg, self.rendered(one.value)) for one in more]  # type: ignore[call-overload]
            yield self.source.replaced(ours, ast.unparse(ast.Call(ours.func, ours.args, [*ours.keywords, *added])))

    def _with_own_first(self, ours: ast.Call, theirs: ast.Call) -> str:
        """The reference's call with what the port's is given first: ``StepDecay(lr, 2)`` for ``StepLR(optimizer, 2)``."""
        made = self.rendered(theirs)
        assert isinstance(made, ast.Call)
        return ast.unparse(ast.Call(made.func, [ours.args[0], *made.args[1:]], made.keywords))

    def rendered(self, node: ast.AST) -> ast.AST:
        """The reference's expression with the port's own text where it says the same."""
        own, layers, known = self._own, self._layers, self._known

        class Kept(ast.NodeTransformer):
            def visit(self, node: ast.AST) -> ast.AST:
                if isinstance(node, ast.expr) and not isinstance(node, ast.Name | ast.Constant) and key(node) in own:
                    return copy.deepcopy(own[key(node)])
                base = node.value if isinstance(node, ast.Attribute) else None
                if layers and isinstance(base, ast.Name) and base.id not in known and node.attr[:1].isupper():  # type: ignore[attr-defined]
                    base.id = layers  # the reference calls its framework's layers otherwise
                return self.generic_visit(node)

        return ast.fix_missing_locations(Kept().visit(copy.deepcopy(node)))


def _name_of_layers(tree: ast.Module, framework: str) -> str:
    """What a file calls its framework's package of layers; ``""`` where it does not import it by a name of its own."""
    for node in tree.body:
        for one in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            whole = f"{node.module}.{one.name}" if isinstance(node, ast.ImportFrom) else one.name
            if whole == f"{framework}.nn" and (one.asname or isinstance(node, ast.ImportFrom)):
                return one.asname or one.name
    return ""


def is_constant(statement: ast.stmt) -> bool:
    """A docstring, or three dots."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _similar(a: ast.stmt, b: ast.stmt) -> float:
    if type(a) is not type(b) and not {type(a), type(b)} <= {ast.Assign, ast.AnnAssign, ast.AugAssign}:
        return 0.0
    same = getattr(a, "targets", None) and getattr(b, "targets", None) and key(a.targets[0]) == key(b.targets[0])  # type: ignore[attr-defined]
    if same or isinstance(a, ast.Return):
        return 1.0
    return difflib.SequenceMatcher(None, key(a), key(b), False).ratio()


def _renamed(ours: Definition, theirs: Definition) -> Definition:
    """The reference's function with the port's names of the arguments, and of what both assign in the same places."""
    names = {b.arg: a.arg for a, b in zip(_arguments(ours), _arguments(theirs), strict=False)}
    held = {node.id for node in ast.walk(ours) if isinstance(node, ast.Name)}
    mine, other = _assigned(ours), _assigned(theirs)
    if len(mine) == len(other):
        names |= {b: a for a, b in zip(mine, other, strict=True) if b not in held and b not in names}

    class Renamed(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.Name:
            return ast.copy_location(ast.Name(names.get(node.id, node.id), node.ctx), node)

    found: Definition = Renamed().visit(copy.deepcopy(theirs))
    return found


def _inlined(ours: Definition, theirs: Definition) -> Definition:
    """The reference's function without names that it assigns once and the port does not have: ``stride`` becomes its value."""
    held = {node.id for node in ast.walk(ours) if isinstance(node, ast.Name)} | {one.arg for one in _arguments(theirs)}
    stored = Counter(node.id for node in ast.walk(theirs) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    values: dict[str, ast.expr] = {}

    class Inlined(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            known = isinstance(node.ctx, ast.Load) and node.id in values
            return copy.deepcopy(values[node.id]) if known else node

    body: list[ast.stmt] = []
    for one in theirs.body:
        Inlined().visit(one)
        target = one.targets[0] if isinstance(one, ast.Assign) and len(one.targets) == 1 else None
        if isinstance(target, ast.Name) and stored[target.id] == 1 and target.id not in held:
            values[target.id] = one.value  # type: ignore[attr-defined]
        else:
            body.append(one)
    theirs.body = body or theirs.body
    return theirs


def bound_by(tree: ast.AST) -> set[str]:
    """Names that a tree binds."""
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    found |= {node.name for node in ast.walk(tree) if isinstance(node, Definition | ast.ClassDef)}
    found |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    return found | {(one.asname or one.name).partition(".")[0] for node in imports for one in node.names}


def names_read(text: str) -> set[str]:
    """Names that a part of a file reads and does not bind itself; none where it is no whole expression or statement."""
    try:
        tree = ast.parse(textwrap.dedent(text.strip("\n")).strip())
    except SyntaxError:
        return set()
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - bound_by(tree)


def _arguments(function: Definition) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _assigned(function: Definition) -> list[str]:
    found = [node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return list(dict.fromkeys(found))
