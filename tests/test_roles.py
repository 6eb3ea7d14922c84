"""What a call is for is told from the calls that follow; a call that is used otherwise is told nothing of."""

import numpy as np
import pytest

from alignment.frameworks.base import Operation, Trace
from alignment.localize.roles import Roles, between, reordered, shifted

X, Y = np.arange(6.0).reshape(2, 3) + 1, np.arange(6.0).reshape(2, 3) - 2
MASK, BIG = np.array([[True, False, True]] * 2), np.array([[0.0, -np.inf, 0.0]] * 2)


def traced(*steps, given=(X,), results=None, scalar=False):
    """A trace of steps (name, numbers of the values that go in, attributes, what comes out)."""
    values, operations = list(given), []
    for number, (name, inputs, *rest) in enumerate(steps):
        attributes = next((one for one in rest if isinstance(one, dict)), {})
        out = next((one for one in rest if isinstance(one, np.ndarray)), X + number + 10)
        values.append(out)
        operations.append(
            Operation(number, name, name, list(inputs), [len(values) - 1], attributes, dict(attributes), "port.py", number)
        )
    if scalar:
        values[-1] = np.array(1.0)
    return Trace(values, operations, list(range(len(given))), [len(values) - 1] if results is None else results)


ATTENTION = [("matmul", [0, 0]), ("mul", [1], {"constant": 0.5}), ("softmax", [2]), ("matmul", [3, 0])]
# Role -> number of the call, the trace, and one in which the same call is for something else.
CASES = {
    "eps under the root": (
        0,
        traced(("add", [0], {"constant": 1e-5}), ("rsqrt", [1])),
        traced(("add", [0], {"constant": 1.0}), ("rsqrt", [1])),
    ),
    "eps in a denominator": (
        1,
        traced(("std", [0]), ("add", [1], {"constant": 1e-5}), ("div", [0, 2])),
        traced(("std", [0]), ("add", [1], {"constant": 1e-5}), ("mul", [0, 2])),
    ),
    "a square root": (0, traced(("pow", [0], {"by": 0.5})), traced(("mul", [0], {"constant": 0.5}))),
    "a square": (0, traced(("pow", [0], {"by": 2.0})), traced(("mul", [0], {"constant": 2.0}))),
    "the scale of the attention scores": (1, traced(*ATTENTION), traced(*ATTENTION[:3])),
    "the mask of the attention scores": (
        1,
        traced(("matmul", [0, 0]), ("where", [1, 2]), ("softmax", [3]), ("matmul", [4, 0]), given=(X, MASK)),
        traced(("matmul", [0, 0]), ("where", [1, 2]), ("relu", [3]), ("matmul", [4, 0]), given=(X, MASK)),
    ),
    "the bias of the attention scores": (
        1,
        traced(("matmul", [0, 0]), ("mul", [1, 1]), ("add", [2, 3]), ("softmax", [4]), ("matmul", [5, 0]), given=(X, Y)),
        traced(("matmul", [0, 0]), ("mul", [1, 1]), ("add", [2, 3]), ("sigmoid", [4]), given=(X, Y)),
    ),
    "the angles of sine and cosine": (
        0,
        traced(("mul", [0], {"constant": 3.0}), ("sin", [1]), ("cos", [1])),
        traced(("mul", [0], {"constant": 3.0}), ("sin", [1]), ("tanh", [1])),
    ),
    "on the table of sines and cosines: its scale": (
        1,
        traced(("cos", [0]), ("mul", [1], {"constant": 2.0})),
        traced(("tanh", [0]), ("mul", [1], {"constant": 2.0})),
    ),
    "what is rotated by sine and cosine: neighbouring values or halves": (
        1,
        traced(("cos", [0]), ("split", [1]), ("mul", [3, 2]), given=(X, Y)),
        traced(("tanh", [0]), ("split", [1]), ("mul", [3, 2]), given=(X, Y)),
    ),
    "the index of gather": (
        0,
        traced(("clip", [1]), ("gather", [0, 2]), given=(X, Y)),
        traced(("clip", [1]), ("gather", [2, 0]), given=(X, Y)),
    ),
    "positions or numbers that table looks up": (
        0,
        traced(("cumsum", [0], np.arange(3)), ("call table", [1])),
        traced(("cumsum", [0]), ("call table", [1])),
    ),
    "a residual connection": (
        1,
        traced(("call layer", [0]), ("add", [0, 1])),
        traced(("call layer", [0]), ("add", [1, 2]), given=(X, Y)),
    ),
    "the weight of a term of the loss": (
        0,
        traced(("mul", [0], {"constant": 0.25}), ("mean", [1]), scalar=True),
        traced(("mul", [0], {"constant": 0.25}), ("mean", [1])),
    ),
}  # fmt: skip


@pytest.mark.parametrize("words", CASES)
def test_a_role_is_told_from_what_follows(words):
    number, trace, other = CASES[words]
    for one in (trace, other):
        for step in one.operations:
            for title in (step.name.removeprefix("call "),) if step.name.startswith("call ") else ():
                step.title = title
    assert Roles(trace).of(trace.operations[number]) == words
    assert Roles(other).of(other.operations[number]) != words


def test_hidden_scores_are_a_mask_and_others_a_bias():
    steps = [("mul", [1, 1], BIG), ("matmul", [0, 0]), ("add", [3, 2]), ("softmax", [4]), ("matmul", [5, 0])]
    trace = traced(*steps, given=(X, Y))
    assert Roles(trace).of(trace.operations[0]) == "the mask of the attention scores"


def step(name, **attributes):
    return Operation(0, name, name, [], [], attributes)


def test_arithmetic_is_called_by_its_name():
    assert between(step("add"), step("mul")) == "a sum, expected a product"
    assert between(step("add"), step("add")) == between(step("add"), step("relu")) == ""


def test_the_same_numbers_in_another_order_are_told_from_others():
    assert reordered(np.array([5, 9]), np.array([9, 5])) == "the same numbers in another order"
    for other in ([5, 9], [5, 8], [9, 5, 5]):
        assert reordered(np.array([5, 9]), np.array(other)) == ""


def test_labels_that_are_shifted_are_told_from_parts_of_something():
    ahead, behind = (
        step("getitem", index=f"(slice(None, None, None), {part})") for part in ("slice(None, -1, None)", "slice(1, None, None)")
    )
    assert shifted([], [ahead, behind]) == "labels are shifted by one position"
    assert shifted([ahead, behind], []) == "labels are shifted by one position too far"
    assert shifted([ahead], [ahead]) == shifted([ahead, behind], [ahead, behind]) == ""
