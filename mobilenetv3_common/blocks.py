"""The blocks of a network, whichever framework made it."""

from __future__ import annotations

from typing import Any

from mobilenetv3_common.errors import UserError


def blocks_of(model: Any, sequential: Any) -> list[Any]:
    """The layers with layers inside in each sequence at the top of a model, or in the model itself where it is one.

    Args:
        model: has ``children()``.
        sequential: the framework's class of a sequence of layers.

    Raises:
        UserError: there are none.
    """
    chains = [model] if isinstance(model, sequential) else [c for c in model.children() if isinstance(c, sequential)]
    blocks = [block for chain in chains for block in chain.children() if list(block.children())]
    if not blocks:
        raise UserError("--grad-checkpointing: the network has no Sequential of blocks at its top; leave it out")
    return blocks
