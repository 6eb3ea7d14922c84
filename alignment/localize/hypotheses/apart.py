"""Where the calls of two forwards part, of which the forms may differ."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from alignment.frameworks.base import Operation
from alignment.localize.calls import LAYOUT, PairedCalls, main, varied
from alignment.localize.roles import Roles

STEPS = 6  # calls in which another form is made up for
PARTS = frozenset({"getitem", "split", "unbind"})  # calls that take a part, in the order in which it stands


def first_apart(pair: PairedCalls) -> Operation | None:
    """The first call of the port whose result the reference has nowhere, and neither has it what is computed from that."""
    ours, roles = pair.ours, Roles(pair.ours)
    for one in itertools.chain(pair.candidates(tables=True, beyond=True), pair.candidates(tables=True)):
        if one.outputs and all(pair.flat[value] for value in main(one)):
            continue  # the reference's numbers in another shape, or several times
        if one.name in LAYOUT and not pair.known(one):
            continue  # a weight of the port's own, of two layers in one
        following = [user for user, _ in roles.below(one.outputs, frozenset(other.name for other in ours.operations))]
        reorders = bool(one.outputs) and one.name not in PARTS and ours.values[one.outputs[0]].dtype.kind == "f"
        moved = reorders and pair.in_any_order(one.outputs[0])
        again = pair.other_numbers(one) and any(user.outputs and not pair.diverges(user) for user in following)
        if again or (not moved and any(_recurs(pair, user) for user in following)):
            continue
        earlier = from_right(pair)
        if one.outputs and ours.values[one.outputs[0]].dtype.kind != "f" and earlier is not None and earlier not in following:
            return earlier  # positions or a mask, and another call is wrong before they are used
        return earlier if earlier is not None and earlier.number < one.number else one
    return from_right(pair)


def from_right(pair: PairedCalls) -> Operation | None:
    """The first call that is given what the reference has, and from whose result a wrong output is made of wrong values alone.

    A value that the reference has in another order of its numbers, too, is right: the layouts of the two sides differ. So is
    one from which a few calls make such a value: the forms differ.
    """
    values, roles, had = pair.ours.values, Roles(pair.ours), dict[int, bool]()

    def right(value: int) -> bool:
        if value not in had:
            had[value] = bool(pair.flat[value]) or (varied(values[value]) and pair.in_any_order(value))
        return had[value]

    wrong = {value for value in pair.ours.results if not right(value)}
    for one in reversed(pair.ours.operations):
        if wrong.intersection(one.outputs):
            wrong.update(value for value in one.inputs if not right(value))
    made = {value for one in pair.ours.operations for value in one.outputs} | set(pair.ours.given)
    for one in (one for one in pair.ours.operations if one.file and wrong.intersection(main(one))):
        given = [value for value in one.inputs if value in made]
        told = values[one.outputs[0]].dtype.kind != "f" or varied(values[one.outputs[0]])
        if given and told and all(map(right, given)) and not _made_up_for(roles, one.outputs, right):
            return one
    return None


def _recurs(pair: PairedCalls, user: Operation) -> bool:
    """Whether the reference has what a call computes, laid out otherwise."""
    values = [value for value in user.outputs if varied(pair.ours.values[value])]
    return user.name not in LAYOUT and any(map(pair.in_any_order, values))


def _made_up_for(roles: Roles, values: Sequence[int], right: Callable[[int], bool]) -> bool:
    """Whether a few calls behind some values give one that is right again."""
    for _ in range(STEPS):
        users = {user.number: user for value in values for user in roles.users[value] if user.outputs}.values()
        if any(all(map(right, main(user))) for user in users):
            return True
        values = [value for user in users for value in user.outputs]
    return False
