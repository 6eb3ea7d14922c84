"""Differences of the frameworks themselves, whoever ports: they are listed, and are no mistakes of the port.

There are three: how a batch's variance enters the running statistics, how fresh weights are drawn, and a difference of float32's
rounding in exact mode that nothing explains. Each of the first two counts as known only
where the frameworks' own layers compute, with the same momentum and eps on both sides. What the port's author wrote never does,
but for a class derived from such a layer that calls its forward and adds to it.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from alignment import tolerance
from alignment.comparisons.context import Context
from alignment.comparisons.model.fresh_weights import Verdict
from alignment.comparisons.result import StepResult
from alignment.finding import Finding
from alignment.frameworks.base import Framework, Module
from alignment.kinds import Kind
from alignment.localize.syntax import class_trees

GROUPED = re.compile(r"\d+ of \d+ failed, first ")  # the reason of a row of many tensors; those that failed have their own
UNEXPLAINED = "no known mistake"
STATISTICS = ("mean", "var", "std")
WRITING = {"set_value", "assign", "register_buffer"}  # what a forward calls that keeps statistics itself
VARIANCES = (Kind.BIASED_VARIANCE, Kind.UNBIASED_VARIANCE)


def mark_rounding(findings: Sequence[Finding], results: Sequence[StepResult]) -> None:
    """Let what no hypothesis explains be known where every row that fails does so by less than the reference's own float32 is off.

    So it is where one side rounds a number to float32 that the other computes anew: a table of positions. Where nothing else is
    found and a row fails in float32, such a finding stays a mistake. Beside a mistake the rows say nothing of it: what no
    hypothesis explains, and is no larger than rounding for the reference's own input, is known until the mistake is corrected.
    """
    unknown = [one for one in findings if not one.known]
    rounded = [one for one in unknown if one.kind is Kind.FLOAT32_CONSTANT]
    elsewhere = [place for one in findings if one.known and one.kind in VARIANCES for place in one.places]
    alone = len(rounded) == len([one for one in unknown if one.stage != "initialisation"])
    if not alone:
        rounded = [one for one in rounded if one.hint.startswith(UNEXPLAINED)]
    if not alone or _fail_by_rounding(results, elsewhere):
        for one in rounded:
            one.known = True


def _fail_by_rounding(results: Sequence[StepResult], elsewhere: Collection[str] = ()) -> bool:
    """Whether every row that fails does so by rounding; variances in these modules, and fresh weights, are left out."""
    rows = [row for result in results for row in result.quantities if not row.passed and not GROUPED.match(row.reason)]
    rows = [row for row in rows if not _is_variance(row.name, elsewhere) and not row.name.startswith("initialisation.")]
    return all(row.is_rounding for row in rows) and not any(result.problems for result in results)


def _is_variance(row: str, places: Collection[str]) -> bool:
    """Whether a row is of a running variance in one of some modules, or of a part of one."""
    path, _, last = row.rpartition(".")
    return last.partition("[")[0] == "running_var" and any(f".{place}." in f"{path}." for place in places)


def is_variance(finding: Finding) -> bool:
    """Whether a finding says that the frameworks keep another running variance."""
    return finding.known and finding.kind in VARIANCES


def pass_variances(findings: Sequence[Finding], results: Sequence[StepResult], whole: Callable[[str], bool]) -> None:
    """Let running variances pass where the frameworks keep others and that shows in the whole model alone.

    The reference's model cannot take the place of the whole port: it would then be compared with itself.

    Args:
        findings: of the search.
        results: of the steps.
        whole: whether a place is the whole model.
    """
    if any(is_variance(one) and any(map(whole, one.places)) for one in findings):
        for row in (row for result in results for row in result.quantities if not row.passed):
            if row.name.rpartition(".")[2].partition("[")[0] == "running_var":
                row.passed = True
                row.note("known variance")


def pass_rounding(findings: Sequence[Finding], results: Sequence[StepResult], unmendable: Collection[str]) -> None:
    """Let steps pass that fail by known rounding alone, made in a module whose place the reference's cannot take."""
    rounded = {place for one in findings if one.known and one.kind is Kind.FLOAT32_CONSTANT for place in one.places}
    if rounded.isdisjoint(unmendable) or not _fail_by_rounding(results):
        return
    for result in results:
        for row in result.quantities:
            if not row.passed:
                row.passed = True
                row.note("known rounding")


def _frameworks_differ(context: Context) -> bool:
    return context.port.framework.name != context.reference.framework.name


def of_fresh_weights(context: Context, verdict: Verdict, chosen: bool) -> bool:
    """Whether a tensor is drawn otherwise as frameworks do: another distribution, or a vector of one value on one side alone.

    These are mistakes: a weight that is one number everywhere or equal for every seed, another constant than the reference's, and a
    distribution that the port's source chooses (``chosen``).
    """
    return verdict.drawn and not chosen and _frameworks_differ(context)


def of_statistics(context: Context, port: Module | None, finding: Finding, own: str) -> bool:
    """Whether running statistics differ because the two frameworks' own layers keep another variance.

    Args:
        context: the two sides.
        port: the port's model as it is built; None where it cannot be.
        finding: a mistake in one place.
        own: this place by the port's own path.
    """
    if port is None or finding.kind not in VARIANCES or finding.stage != "forward" or not _frameworks_differ(context):
        return False
    ours = _normalisations(context.port.framework, port, own)
    theirs = _normalisations(context.reference.framework, context.networks.described, finding.location)
    if not ours or not theirs:
        return False
    pairs = zip(ours, theirs, strict=True) if len(ours) == len(theirs) else itertools.product(ours, theirs)  # one may be several
    return all(_same(mine, right) for mine, right in pairs)


def _normalisations(framework: Framework, model: Module, path: str) -> list[Mapping[str, Any]]:
    """The settings of each batch normalisation at a path or below it; nothing where a class of somebody's own computes one.

    What is no path is the whole model's ``forward``.
    """
    found, modules = [], framework.modules(model, every_path=True)
    path = path if path in modules else ""
    for name, module in modules.items():
        if not (name == path or f"{name}.".startswith(f"{path}." if path else "")):
            continue
        layer = framework.layer(module)
        if layer.kind != "batch_norm" and not _calls_batch_norm(framework, type(module)):
            continue
        if not _by_framework(framework, type(module)):
            return []
        found.append(layer.settings if layer.kind == "batch_norm" else {})
    return found


def _by_framework(framework: Framework, kind: type) -> bool:
    """Whether a class computes statistics by the framework's own code; one derived from it may add an activation behind."""
    package = framework.module_type.__module__.partition(".")[0]
    computing = getattr(kind, framework.computing)
    if computing.__module__.partition(".")[0] == package:
        return True
    if _calls_batch_norm(framework, kind):
        return True
    stock = any(one.__module__.partition(".")[0] == package and one is not framework.module_type for one in kind.__mro__)
    used = getattr(getattr(computing, "__code__", None), "co_names", ())
    return stock and ("batch_norm" in used or {"super", framework.computing} <= set(used))


def _calls_batch_norm(framework: Framework, kind: type) -> bool:
    """Whether a class of somebody's own leaves its running statistics to the framework's ``F.batch_norm(x, self.mean, ...)``.

    One whose forward computes statistics and writes them besides does that itself; writing back what the function changed is no
    computation.
    """
    package = framework.module_type.__module__.partition(".")[0]
    computing: Any = getattr(kind, framework.computing)
    if computing.__module__.partition(".")[0] == package:
        return False
    for _, tree in class_trees(kind, framework.module_type):
        own = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == framework.computing]
        nodes = [node for one in own for node in ast.walk(one)]
        called = [node.func for node in nodes if isinstance(node, ast.Call)]
        functions = [_named(func, computing.__globals__) for func in called if _last_name(func) == "batch_norm"]
        written = any(isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) for node in nodes)
        written = written or any(_last_name(func) in WRITING or _last_name(func).endswith("_") for func in called)
        computed = any(isinstance(node, ast.BinOp) for node in nodes) or any(_last_name(func) in STATISTICS for func in called)
        if own:
            return bool(functions) and not (written and computed) and all(_is_of(one, package) for one in functions)
    return False


def _named(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """What a name, or attributes of one, stands for in a module; None for another expression."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    return getattr(_named(node.value, names), node.attr, None) if isinstance(node, ast.Attribute) else None


def _last_name(node: ast.expr) -> str:
    return getattr(node, "attr", "") or getattr(node, "id", "")


def _is_of(function: Any, package: str) -> bool:
    return str(getattr(function, "__module__", "")).partition(".")[0] == package


def _same(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Whether momentum and eps are equal, but for how a float is rounded; those that a call gives show in the values."""
    if not ours or not theirs:
        return True
    pairs = [(ours.get(name), theirs.get(name)) for name in ("momentum", "eps")]
    return all(
        a == b or (a is not None and b is not None and math.isclose(float(a), float(b), rel_tol=tolerance.BASE_FLOOR_32))
        for a, b in pairs
    )
