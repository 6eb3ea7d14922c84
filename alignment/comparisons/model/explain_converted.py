"""Where a converted file of weights differs from its original."""

from __future__ import annotations

from alignment.comparisons.context import Context
from alignment.comparisons.model.converted import entries, extra, in_file, read_converted
from alignment.finding import Finding
from alignment.kinds import Kind
from alignment.localize.search import weights_finding


def finding(context: Context) -> Finding | None:
    """The first tensor of the converted file that is not its original's; None where none, or where no such file was given."""
    if context.port_weights is None:
        return None
    wanted, expected = entries(context), context.material.weights.state
    state = read_converted(context, wanted)
    held = {entry.canonical: (entry, in_file(entry, state)) for entry in wanted}
    wrong = [name for name, (_, given) in held.items() if given is None or given.shape != expected[name].shape]
    others = extra(context, state, wanted)
    counts = f"{len(wrong)} of {len(held)} tensors missing or of another shape, {len(others)} extra"
    if not wrong and not others:
        right = {name: expected[name] for name in held}
        ours = {name: given.astype(right[name].dtype) for name, (_, given) in held.items() if given is not None}
        return weights_finding(ours, right, [])
    if not wrong:
        return Finding("weights", others[0], Kind.WEIGHTS_EXTRA, "the original has no such tensor", counts)
    entry, given = held[wrong[0]]
    if given is None:
        words = f"the converted file has no tensor {entry.own}"
        return Finding("weights", wrong[0], Kind.WEIGHTS_MISSING, words, counts)
    words = f"shape {state[entry.own].shape} in the file, expected {entry.own_shape}"
    turned = given.ndim == 2 and given.shape == expected[wrong[0]].shape[::-1]
    kind = Kind.WEIGHT_TRANSPOSED if turned else Kind.SHAPE
    return Finding("weights", wrong[0], kind, f"weight transposed: {words}" if turned else words, counts)
