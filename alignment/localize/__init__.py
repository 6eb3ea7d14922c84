"""Where does a port go wrong? ``localize`` compares any Paddle layer with a torch module and names the first own mistake.

Example::

    from alignment.localize import localize

    report = localize(paddle_model, torch_model, images)      # images: float32 array (N, 3, H, W)
    print(report.first.line() if report.first else "no divergence")
    print(report.table())
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import paddle
import torch

from alignment import tolerance
from alignment.exact import exact_paddle, exact_torch
from alignment.localize.finding import Finding, LayerRow, Localization
from alignment.localize.matching import Matching, match_modules
from alignment.localize.modules import Pair, locate_in_models, structure_finding, weights_finding
from alignment.localize.tracing import PaddleNetwork, TorchNetwork, leaves
from alignment.localize.weight_hints import tied_names
from alignment.weights import NameMap, copy_to_paddle
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.weights import COUNTER, State

__all__ = ["Finding", "LayerRow", "Localization", "Pair", "compare_states", "localize", "match_modules"]


def localize(
    layer: paddle.nn.Layer,
    module: torch.nn.Module,
    inputs: np.ndarray | tuple[np.ndarray, ...],
    *,
    names: Mapping[str, str] | None = None,
    training: bool = False,
    rtol: float = tolerance.EXACT_RTOL,
    backward: bool = True,
    weights: bool = True,
) -> Localization:
    """Compare a Paddle layer with a torch module, and name the first module whose own mistake makes them part.

    Copies of both run in float64 with the float32 constants of known kernels taken out (``alignment.exact``), so a
    right port agrees to 1e-13 and there is no threshold to tune. Looked at in this order: the structure, the weights, the
    forward pass with the statistics it leaves behind, the backward pass from a random gradient of the output. The models
    given are left as they are.

    Args:
        layer: the port, holding its weights.
        module: the reference, holding its weights.
        inputs: array, or arrays, for both models' ``forward``; floating ones are used in float64.
        names: Paddle path -> torch path, for modules or whole parts that are called otherwise.
        training: compare in training mode; dropout then draws the same masks on both sides.
        rtol: relative L2 at which modules count as equal; give 1e-6 where a model has other kernels with float32 constants
            inside (elu, label-smoothed cross-entropy).
        backward: compare gradients too.
        weights: compare weights first; without, copy the reference's weights into the port's copy where names fit.

    Returns:
        The first finding, or None, and a table over all modules.

    Raises:
        UserError: the reference itself cannot run on the inputs.
    """
    matching = match_modules(layer, module, names)
    if finding := structure_finding(matching):
        return Localization(finding)
    if weights and (finding := compare_states(layer, module, matching)):
        return Localization(finding)
    ours, theirs = exact_paddle(copy.deepcopy(layer)), exact_torch(copy.deepcopy(module))
    if training:
        _share_dropout(ours, theirs)
    if not weights:
        copy_to_paddle(theirs, ours, {own: other for other, own in matching.paths.items()})
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    args = tuple(np.asarray(a, np.float64) if np.asarray(a).dtype.kind == "f" else np.asarray(a) for a in given)
    pair = Pair(PaddleNetwork(ours, matching.paths), TorchNetwork(theirs), matching, args, None, training, rtol)
    if backward:
        pair.cotangent = random_cotangent(pair)
    return locate_in_models(pair)


def random_cotangent(pair: Pair) -> np.ndarray:
    """A gradient of the output to begin the backward pass with: standard normal, over the output's size."""
    before = pair.ref.model.training
    pair.ref.model.train(pair.training)
    try:
        with torch.no_grad():
            output = leaves(pair.ref.model(*[pair.ref.tensor(a) for a in pair.args]), torch.Tensor)[0]
    except Exception as error:
        raise UserError(f"the reference cannot run on these inputs: {error}") from error
    finally:
        pair.ref.model.train(before)
        pair.ref.put_back()
    return np.random.default_rng(0).standard_normal(tuple(output.shape)) / output.numel()


def compare_states(layer: Any, module: Any, matching: Matching) -> Finding | None:
    """The first weight or statistic in which the port differs from the reference, or that it shares by mistake."""
    mapped = NameMap(layer, {ours: theirs for theirs, ours in matching.paths.items()})
    state = layer.state_dict()
    ours: State = {}
    for entry in mapped.entries:
        array = state[entry.paddle_name].numpy()
        ours[entry.torch_name] = array.T if entry.transposed else array
    theirs = {n: t.detach().cpu().numpy() for n, t in module.state_dict().items() if n.rsplit(".", 1)[-1] != COUNTER}
    groups = tied_names(layer, {e.paddle_name: e.torch_name for e in mapped.entries})
    parameters = dict(module.named_parameters(remove_duplicate=False))
    apart = [g for g in groups if len({id(parameters.get(n)) for n in g}) > 1]
    return weights_finding(ours, theirs, apart)


def _share_dropout(layer: Any, module: Any) -> None:
    import mobilenetv3_paddle.models
    import mobilenetv3_ref.models

    def uniform(shape: tuple[int, ...]) -> np.ndarray:
        return np.random.default_rng(len(shape)).random(shape)

    mobilenetv3_paddle.models.share_dropout(layer, uniform)
    mobilenetv3_ref.models.share_dropout(module, uniform)
