"""Faults of what a person writes to put the reference's weights into the port."""

from .base import PROJECT, after_init, fault

fault(
    "weights", 1, "features.11.block.0.0.weight", "parameters_shared", "parameters_shared",
    after_init("self.features[11].block[0][0].weight = self.features[10].block[0][0].weight"),
)  # fmt: skip

SPEC = "def spec(model: str) -> ModelSpec:"
LOADING = """def load(model, state):
    from alignment.models.weights import load_renamed

    state = {{name: array.copy() for name, array in state.items()}}
{body}    load_renamed(PROJECT.port.framework, model, state)


def spec(model: str) -> ModelSpec:"""


def loading(location: str, hint: str, name: str, *lines: str) -> None:
    """A project whose own loading changes the reference's state before it loads it."""
    body = "".join(f"    {line}\n" for line in lines)
    fault(
        "weights", 1, location, hint, name,
        (PROJECT, SPEC, LOADING.format(body=body)),
        (PROJECT, "        small_shape=(3, 48, 48),\n", "        small_shape=(3, 48, 48),\n        load=load,\n"),
    )  # fmt: skip


fault(
    "weights", 1, "features.0.0.weight", "weights_not_loaded", "weights_not_loaded",
    (PROJECT, "        small_shape=(3, 48, 48),\n", "        small_shape=(3, 48, 48),\n        load=lambda model, state: None,\n"),
)  # fmt: skip
loading(
    "classifier.3.weight", "weight_transposed", "linear_not_transposed",
    'weight = state["classifier.3.weight"]',
    "square = min(weight.shape)",
    "weight[:square, :square] = weight[:square, :square].T.copy()",
)  # fmt: skip
loading(
    "features.1.block.0.0.weight", "weight_transposed", "kernels_transposed",
    "wrong = {n: a.transpose(0, 1, 3, 2) for n, a in state.items() if a.ndim == 4 and a.shape[1] == 1 and a.shape[2] > 1}",
    "state |= wrong",
)  # fmt: skip
loading(
    "features.0.0.weight", "channels_reversed", "weights_for_bgr",
    'state["features.0.0.weight"] = state["features.0.0.weight"][:, ::-1]',
)  # fmt: skip
loading(
    "features.0.1.running_mean", "weights_not_loaded", "statistics_not_loaded",
    'fresh = {"running_mean": np.zeros_like, "running_var": np.ones_like}',
    'state = {n: fresh[n.rsplit(".", 1)[-1]](a) if "running_" in n else a for n, a in state.items()}',
)  # fmt: skip
loading("classifier.3.bias", "weights_not_loaded", "bias_not_loaded", 'state["classifier.3.bias"][:] = 0')
loading(
    "features.0.0.weight", "half_precision", "weights_in_float16",
    "state = {n: a.astype(np.float16).astype(a.dtype) for n, a in state.items()}",
)  # fmt: skip
loading(
    "features.5.block.1.0.weight", "weights_swapped", "weights_swapped",
    'a, b = "features.5.block.1.0.weight", "features.6.block.1.0.weight"',
    "state |= {a: state[b], b: state[a]}",
)  # fmt: skip
