"""The reference's words in the port's framework, as far as a table can say them; what is left is said as it stands."""

from __future__ import annotations

import ast
import copy
import re
from typing import TypeVar

MODULES = frozenset({"torch", "paddle", "F", "nn", "np", "math", "P", "T", "ops", "mint"})
NAMES = {"torch": "paddle", "Module": "Layer", "SiLU": "Silu", "optim": "optimizer", "RMSprop": "RMSProp", "StepLR": "StepDecay",
         "MultiStepLR": "MultiStepDecay", "ExponentialLR": "ExponentialDecay", "CosineAnnealingLR": "CosineAnnealingDecay",
         "LambdaLR": "LambdaDecay"}  # fmt: skip
CALLS = {"cat": "concat", "clamp": "clip", "permute": "transpose", "view": "reshape", "transpose": "swapaxes", "arctan": "atan",
         "from_numpy": "to_tensor", "zero_grad": "clear_grad"}  # fmt: skip
IN_LISTS = frozenset({"permute", "view", "reshape", "expand", "repeat", "ones", "zeros"})  # several numbers -> a list of them
KEYWORDS = {"dim": "axis", "eps": "epsilon", "bias": "bias_attr", "keepdims": "keepdim"}
GIVEN = {"avg_pool1d": "exclusive", "avg_pool2d": "exclusive", "avg_pool3d": "exclusive"}  # what is true by default there, not here
LEFT_OUT = frozenset({"inplace", "device", "non_blocking"})
N = TypeVar("N", bound=ast.AST)


class _ToPaddle(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = NAMES.get(node.id, node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr == "values" and _is_extreme(node.value):
            return node.value
        in_capitals = re.sub(r"(?<=[123])d(?=$|[A-Z])", "D", node.attr) if node.attr[:1].isupper() else node.attr
        node.attr = NAMES.get(node.attr, in_capitals)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """``x.max(1)[0]`` and ``x.max(1).values`` (below) are ``x.max(1)``."""
        self.generic_visit(node)
        first = isinstance(node.slice, ast.Constant) and node.slice.value == 0
        return node.value if first and _is_extreme(node.value) else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        axes = all(_number(one) for one in node.args)
        if name in IN_LISTS and len(node.args) > 1:
            node.args = [ast.List(node.args, ast.Load())]
        if isinstance(node.func, ast.Attribute) and (name != "transpose" or (axes and len(node.args) == 2)):
            node.func.attr = CALLS.get(name, name)
        node.keywords = [ast.keyword(KEYWORDS.get(k.arg or "", k.arg), k.value) for k in node.keywords if k.arg not in LEFT_OUT]
        if name in GIVEN:
            node.keywords.append(ast.keyword(GIVEN[name], ast.Constant(False)))
        return node


def _is_extreme(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("max", "min", "median")


def _number(node: ast.expr) -> bool:
    node = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(node, ast.Constant)


def translated(node: N, port: str, reference: str) -> N:
    """A tree of the reference's in the words of the port's framework."""
    found = copy.deepcopy(node)
    if (port, reference) == ("paddle", "torch"):
        found = _ToPaddle().visit(found)
    return ast.fix_missing_locations(found)
