"""Decoders of tokens: in float64, then in bfloat16, where the cache and the angles of positions are rounded."""

from __future__ import annotations

import functools
import time
from dataclasses import replace
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import Quantity, distance, norm, relative
from alignment.comparisons.comparison import Searched
from alignment.comparisons.context import Context
from alignment.comparisons.model import decoding
from alignment.comparisons.model.decoding import DTYPE, NAME, TokenDecoding
from alignment.comparisons.precision.low_precision import DRAWS, LANES, judge_all, lacks
from alignment.comparisons.result import StepResult
from alignment.finding import Finding
from alignment.kinds import Kind
from alignment.localize.blame import Pair
from alignment.localize.hypotheses.decoding import decoded
from alignment.models.tracing import Network

CASES = ("full", "prompt", "left.prompt.positions", "beyond")
TITLE = f"{NAME}.{DTYPE}"


def run(context: Context) -> StepResult | None:
    """Compare two decoders; None where the reference is none."""
    start = time.perf_counter()
    found = decoding.run(context)
    if found is None:
        return None
    result, comparison = found
    low = context.but(precision=DTYPE)
    lacking = lacks(low)
    if lacking:
        result.not_run = "; ".join(filter(None, [result.not_run, f"{NAME}: {lacking}"]))
    elif result.passed:
        with low.port.framework.mixed_precision_here(), low.reference.framework.mixed_precision_here():
            _add(low, result, comparison)
    result.seconds = time.perf_counter() - start
    return result


def _add(context: Context, result: StepResult, comparison: TokenDecoding) -> None:
    """Rows in bfloat16: each case against the reference, and the cache against one pass."""
    lanes: dict[str, Network] = {name: context.networks.of(name, share_dropout=False) for name in LANES}
    made: dict[str, dict[str, np.ndarray]] = {}
    cases = [case for case in CASES if f"{NAME}.{case}" in {row.name for row in result.quantities}]
    for name, network in lanes.items():
        network.train_mode(False)
        decoder = replace(comparison.sides["port" if name == "port16" else "reference"], network=network)
        tried = {case: decoded(decoder, comparison.cases[case].batches) for case in cases}
        made[name] = {case: one for case, one in tried.items() if isinstance(one, np.ndarray)}
        if name == "port16" and len(made[name]) < len(tried):  # a kernel may be missing here
            raised = next(one for one in tried.values() if isinstance(one, str))
            result.not_run = "; ".join(filter(None, [result.not_run, f"{TITLE}: the port raises {raised.replace(';', ',')}"]))
    names = [case for case in made["port16"] if all(case in made[lane] for lane in LANES)]
    rows = StepResult(1, TITLE)
    judge_all(rows, TITLE, names, made, DTYPE)
    if "prompt" in names:
        far = {name: relative(distance(one["prompt"], one["full"]), norm(one["full"])) for name, one in made.items()}
        bound = tolerance.LOW_FACTOR * max(far[draw] for draw in DRAWS)
        row = Quantity(f"{TITLE}.prompt.itself", [*made["port16"]["full"].shape], port_error=far["port16"], reference_error=bound)
        words = f"{DTYPE}: token by token it differs from one pass by {far['port16']:.1e}, relative L2"
        rows.extend([row if far["port16"] <= bound else row.fail(f"{words} (bound {bound:.1e})")])
    result.extend(rows.quantities)
    result.cover(*([f"decoding in {DTYPE}"] if names else []))
    wrong = next((row for row in rows.quantities if not row.passed), None)
    if wrong is not None:
        result.stored = True
        result.compared = [Searched(functools.partial(_explain, comparison, lanes, wrong))]


def _explain(comparison: TokenDecoding, lanes: dict[str, Network], row: Quantity) -> Finding:
    """The module that is wrong in bfloat16 alone."""

    def pair(args: tuple[Any, ...]) -> Pair:
        port, theirs, truth, *draws = (lanes[name] for name in ("port16", "reference16", "reference64", *DRAWS[1:]))
        return replace(comparison.pair(args), port=port, reference=theirs, truth=truth, draws=draws, dtype=DTYPE)

    found = comparison.placed(row, replace(comparison.sides["reference"], network=lanes["reference16"]), pair)
    if found.kind is Kind.UNKNOWN:
        words = "something is computed in it that the reference computes in float32, or keeps"
        found.kind, found.hint = Kind.HALF_PRECISION, f"right in float64, and wrong in {DTYPE}: {words}"
    return found
