"""What a call of the port's module is in the reference's terms, on plain arrays: calls, outputs and gradients, there and back."""

from __future__ import annotations

import numpy as np
import pytest

from alignment.frameworks.base import Call, leaves
from alignment.localize.blame import Pair
from alignment.models.counterparts import Matching
from alignment.models.forms import Adapters, CallAdapter, learned, told
from tests.plain import PlainFramework, PlainNetwork, function

RNG = np.random.default_rng(0)
PICTURE = RNG.standard_normal((2, 3, 5, 7))
X, STATE, LIST = RNG.standard_normal((2, 5, 3)), RNG.standard_normal((2, 4)), RNG.standard_normal((2, 3, 5))


def turned(array):
    return array.transpose(1, 0, 2)


# By form: a call of the reference, and the same of the port; (args, kwargs, output) each.
CALLS = {
    "length first": (((X,), {}, X + 1), ((turned(X),), {}, turned(X + 1))),
    "channels last": (((LIST,), {}, (LIST * 2,)), ((LIST.transpose(0, 2, 1),), {}, [LIST.transpose(0, 2, 1) * 2])),
    "pictures with channels last": (
        ((PICTURE,), {}, PICTURE - 1),
        ((PICTURE.transpose(0, 2, 3, 1),), {}, PICTURE.transpose(0, 2, 3, 1) - 1),
    ),
    "a dictionary for a tuple": (((X, STATE), {}, (X + 1, STATE)), ((), {"x": X, "state": STATE}, {"a": X + 1, "b": STATE})),
    "arguments exchanged": (((X, STATE), {}, X), ((STATE, X), {}, X)),
    "a state and the length first": (((X, STATE), {}, (X * 3, STATE + 1)), ((turned(X), [STATE]), {}, (turned(X * 3), STATE + 1))),
}


def call_of(form, number):
    args, kwargs, output = CALLS[form][number]
    return Call(args, kwargs, output)


def arrays_of(call):
    return leaves((call.args, call.kwargs), np.ndarray), leaves(call.output, np.ndarray)


def same(found, expected):
    return len(found) == len(expected) and all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def same_call(found, expected):
    a, b = arrays_of(Call(*found)), arrays_of(Call(*expected))
    return same(a[0], b[0]) and found[1].keys() == expected[1].keys() and len(found[0]) == len(expected[0])


@pytest.mark.parametrize("form", CALLS)
def test_a_call_and_its_outputs_are_said_in_the_other_sides_terms_and_back(form):
    its, mine = call_of(form, 0), call_of(form, 1)
    adapter = learned(mine, its)
    assert adapter is not None and adapter.back() is not None
    assert same_call(adapter.given(its.args, its.kwargs), (mine.args, mine.kwargs))
    assert same(adapter.outputs(arrays_of(mine)[1]), arrays_of(its)[1])
    back = adapter.back()
    assert same_call(back.given(mine.args, mine.kwargs), (its.args, its.kwargs))
    returned = back.returned(its.output)
    assert type(returned) is type(mine.output) and same(arrays_of(Call((), {}, returned))[1], arrays_of(mine)[1])


@pytest.mark.parametrize("form", CALLS)
def test_gradients_are_said_in_the_other_sides_terms_and_back(form):
    """The gradient of an array that stands otherwise stands so itself."""
    its, mine = call_of(form, 0), call_of(form, 1)
    adapter = learned(mine, its)
    (given, gives), (wanted, right) = arrays_of(mine), arrays_of(its)
    assert same(adapter.cotangents(right), gives) and same(adapter.inputs(given, (its.args, its.kwargs)), wanted)
    back = adapter.back()
    assert same(back.cotangents(gives), right) and same(back.inputs(wanted, (mine.args, mine.kwargs)), given)


def test_an_array_that_is_given_twice_gets_the_sum_of_the_gradients():
    its, mine = Call((X,), {}, X), Call((X, X), {}, X)
    adapter = learned(mine, its)
    (found,) = adapter.inputs([X, 2 * X], ((X,), {}))
    assert np.array_equal(found, 3 * X)


def test_what_the_port_makes_itself_and_outputs_that_it_lacks_are_said():
    its, mine = Call((X, STATE), {}, (X, STATE)), Call((X,), {}, X)
    adapter = learned(mine, its)
    assert adapter.unused([X, STATE]) == {1} and adapter.gives(2) == 1
    assert adapter.back() is None, "its call lacks one of the reference's arrays"


def test_what_the_port_returns_besides_stands_behind_the_references_outputs():
    adapter = learned(Call((turned(X),), {}, (turned(X), STATE)), Call((X,), {}, X))
    assert same(adapter.outputs([turned(X), STATE]), [X, STATE]) and adapter.gives(1) == 1


@pytest.mark.parametrize(
    "mine",
    [Call((X,), {}, X + 1), Call((X + 1,), {"factor": 3}, X), Call((RNG.standard_normal((7, 2)),), {}, X)],
    ids=["called alike", "a number of its own", "an array of its own"],
)
def test_nothing_is_learned_where_nothing_shows_a_form(mine):
    assert learned(mine, Call((X,), {}, X + 1)) is None


def test_an_adapter_keeps_what_is_known_of_its_module_besides():
    adapters = Adapters()
    assert not adapters.known("a") and not adapters
    adapters.mark("a", bare=True)
    adapters.learn("a", learned(call_of("length first", 1), call_of("length first", 0)))
    assert adapters.known("a") and adapters["a"].bare and adapters["a"].orders == ((1, 0, 2),)
    adapters.learn("a", CallAdapter())
    assert not adapters.known("a") and adapters["a"].bare and adapters["a"].orders == ()


def test_what_one_pass_learns_of_a_port_all_its_networks_know():
    module = function("relu", lambda x: x)
    networks = [PlainNetwork(module) for _ in range(3)]
    matching = Matching({"": ""})
    Pair(networks[0], networks[1], matching, (X,), truth=networks[2])
    matching.adapters.mark("", bare=True)
    assert all(network.adapters[""].bare for network in networks)


def test_a_layer_that_is_no_attention_tells_nothing():
    assert told((PlainFramework(), function("relu", np.abs)), Call((X,), {})) is None
