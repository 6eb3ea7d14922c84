"""What a module carries besides the layer that it is: an activation inside a normalisation, as a layer or as a function."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from alignment.frameworks.base import Framework, Handle, Module


def stock_of(framework: Framework, module: Module) -> type | None:
    """The framework's own layer class whose forward the class of a module calls and adds functions to; None for all others.

    Args:
        framework: of the module.
        module: e.g. one of ``class BatchNormAct(nn.BatchNorm2d)`` with ``return F.relu(super().forward(x))``.
    """
    kind = type(module)
    names = getattr(getattr(getattr(kind, framework.computing, None), "__code__", None), "co_names", ())
    if not {"super", framework.computing} <= set(names) or kind.__module__.partition(".")[0] == __name__.partition(".")[0]:
        return None  # the engine's own classes replace stock layers, and compute as they do
    if not _of_super(getattr(kind, framework.computing)):
        return None
    package = framework.module_type.__module__.partition(".")[0]
    own = [one for one in kind.__mro__ if one.__module__.partition(".")[0] == package and one is not framework.module_type]
    return own[0] if own else None


def _of_super(forward: Callable) -> bool:
    """Whether all that a method returns is made of what ``super()`` gives: else it computes something of its own, too."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(forward)))
    except (OSError, TypeError, SyntaxError):
        return True  # as far as it can be read
    made = {"super"}
    names = lambda node: {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}  # noqa: E731
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value is not None and made & names(node.value):
            made |= {name for target in getattr(node, "targets", [getattr(node, "target", None)]) for name in names(target)}
    return all(made & names(one.value) for one in ast.walk(tree) if isinstance(one, ast.Return) and one.value is not None)


@dataclass(frozen=True)
class _AsStock:
    """A module that computes as its stock class does, until this is removed."""

    framework: Framework
    module: Module

    def remove(self) -> None:
        delattr(self.module, self.framework.computing)


def alone(framework: Framework, module: Module, layers: Iterable[Module]) -> list[Handle]:
    """Let a module compute without what it carries, until the handles are removed.

    Args:
        framework: of the module.
        module: any.
        layers: those inside that give their input back.
    """
    handles: list[Handle] = [
        framework.hook(layer, after=lambda module, args, kwargs, output: args[0] if args else None) for layer in layers
    ]
    stock = stock_of(framework, module)
    if stock is not None and framework.computing not in vars(module):  # else another forward stands in its place
        setattr(module, framework.computing, functools.partial(getattr(stock, framework.computing), module))
        handles.append(_AsStock(framework, module))
    return handles


def put_below(framework: Framework, module: Module, stock: type) -> None:
    """Let what was supplied for a module (``Framework.supply``) take the place of its stock class alone.

    Between the module's class and the stock class comes one that computes what was supplied: what ``super()`` finds there. So the
    module goes on adding its functions.
    """
    computed, kind = vars(module)[framework.computing], type(module)
    delattr(module, framework.computing)
    supplied = type(stock.__name__, (stock,), {framework.computing: lambda self, *args, **kwargs: computed(*args, **kwargs)})
    supplied.__module__ = stock.__module__
    module.__class__ = type(kind.__name__, (kind, supplied), {"__module__": kind.__module__})
