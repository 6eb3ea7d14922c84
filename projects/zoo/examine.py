"""One pair: its port as it is, its port mended, and the proofs of what is known."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from alignment.aligned import Aligned, Request, align
from alignment.audit.pair import ModelMaker, pair_of
from alignment.comparisons.context import Context
from alignment.report.table import exact_difference
from projects.zoo.backbones import Backbone
from projects.zoo.differences import DIFFERENCES
from projects.zoo.pairs import Pair

STEPS = (1, 5)


class _Mended(ModelMaker):
    """A maker whose models are mended."""

    differences: tuple[str, ...] = ()

    @property
    def function(self) -> Any:  # type: ignore[override]
        make = super().function

        def made() -> Any:
            network = make()
            for name in self.differences:
                mend = DIFFERENCES[name].mend
                assert mend is not None
                mend(network)
            return network

        return made


def examined(pair: Pair, folder: Path) -> dict[str, Any]:
    """What the engine says of a pair, as it is in evaluation mode, and mended in both modes; with gradients.

    Args:
        pair: of the list.
        folder: where the reports go.

    Returns:
        The row of the table, and the proofs.

    Raises:
        AssertionError: a proof does not hold.
    """
    start = time.perf_counter()
    known = [DIFFERENCES[name] for name in pair.differences]
    proofs = {name: DIFFERENCES[name].proof() for name in pair.differences}
    stock = _aligned(pair, (), False, folder / pair.name)
    fails = any(not difference.training for difference in known)
    explained = stock.status == int(fails)
    row: dict[str, Any] = {
        "name": pair.name,
        "shape": "x".join(map(str, pair.shape)),
        "differences": list(pair.differences),
        "as_it_is": _words(stock),
        "proofs": proofs,
    }
    if any(difference.mend is None for difference in known):
        row["mended"] = "another network"
    else:
        mended = _aligned(pair, pair.differences, True, folder / f"{pair.name}-mended")
        row["mended"] = _words(mended)
        explained = explained and mended.status == 0
    row["explained"] = explained
    row["verdict"] = f"{'explained' if explained else 'UNEXPLAINED'}; as it is: {row['as_it_is']}; mended: {row['mended']}"
    row["seconds"] = round(time.perf_counter() - start, 1)
    return row


def examined_backbone(backbone: Backbone, folder: Path) -> dict[str, Any]:
    """What the engine says of a backbone as it is, in evaluation mode, with gradients.

    Args:
        backbone: of the list; its package can be imported.
        folder: where the report goes.

    Returns:
        The row of the table.
    """
    start = time.perf_counter()
    pair = backbone.pair
    said = _aligned(pair, (), False, folder / pair.name)
    words = _words(said)
    explained = said.status == int(bool(backbone.found)) and all(part in words for part in backbone.found)
    return {
        "name": pair.name,
        "shape": "x".join(map(str, pair.shape)),
        "differences": [backbone.why] if backbone.why else [],
        "as_it_is": words,
        "mended": "not mended" if backbone.found else "-",
        "explained": explained,
        "verdict": f"{'explained' if explained else 'UNEXPLAINED'}; as it is: {words}",
        "seconds": round(time.perf_counter() - start, 1),
    }


def _aligned(pair: Pair, mends: tuple[str, ...], training: bool, folder: Path) -> Aligned:
    if mends:
        port: ModelMaker = _Mended("--port", pair.port, pair.port_args)
        object.__setattr__(port, "differences", mends)
    else:
        port = ModelMaker("--port", pair.port, pair.port_args)
    reference = ModelMaker("--reference", pair.reference, pair.reference_args)
    sides = pair_of(port, reference, "x".join(map(str, (2, *pair.shape))), initialisation=False)
    context = Context(sides.project, without_training="" if training else "not asked for")
    return align(context, Request(STEPS, STEPS, folder))


def _words(aligned: Aligned) -> str:
    if aligned.status == 0:
        differences = [exact_difference(result) for result in aligned.results]
        worst = max((one for one in differences if one is not None), default=None)
        return "passed" if worst is None else f"passed ({worst:.0e} in float64)"
    first = aligned.localization.first
    return "failed" if first is None else f"{first.location}: {first.hint or first.measured}".replace("|", "/")
