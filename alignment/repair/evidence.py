"""How likely a change of a function is the correction: what speaks for it, and how much.

A weight is a logarithm of odds: of the function (those that the finding names come first), of what made the change, divided by how
many such changes the function allows, and of each thing that speaks for this one. The numbers were fitted (softmax over all
changes of a mistake, with an L2 penalty) to 64 mistakes that projects/mobilenetv3 lists as edits of its source; in five-fold
cross-validation the right change is among the first 150 of some 3,000 in 48 of the 64. Those of ``activation_moved``,
``as_expected``, ``layer_where_it_is_missing``, ``shares_exchanged`` and ``unbiased`` were set by hand: they make few changes, of
what the finding itself names. That of ``restores`` was, too: where two functions are written alike in both frameworks, a statement
that only one has is rare. So were those of ``agrees`` (the same of a call), ``called`` (what the finding says is missing is called
then), ``vain`` (code without an effect goes), ``row`` (the changed row of a table holds numbers that the finding says),
``ordered`` (calls then come in the reference's order), ``lacked`` (the reference has no such method) and ``alone`` (what is left
out calls something that the file calls nowhere else, and the reference's function neither).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from alignment.repair.edits import SourceEdit
from alignment.repair.region import NUMBER, Region, numbers_of

FEW = 9  # numbers up to this stand in every row of a table
EXCHANGES = ("statements_exchanged", "arguments_exchanged", "regrouped")  # what changes an order
LETTERS = 3  # of a word that says nothing: the, not
EXPECTED = re.compile(r"expected \(?(-?[\w.]*\w)")
# What a finding is called or says -> what undoes that.
UNDOES = {
    "sign": "sign other_way invert", "arguments_exchanged": "swapped exchanged transposed reversed order axes",
    "statements_exchanged": "order early before", "slice_left_out": "reversed dropped", "name_alone": "reversed missing swapped",
    "operand_left_out": "scaled doubled twice extra off_by_one percent recipe", "call_left_out": "twice extra scaled detach",
    "other_function": "interpolation activation operation pooling other sum_for_mean logarithm",
    "neighbour": "interpolation channels",
    "constant": "off_by_one axis ignored", "one_more_or_less": "off_by_one", "override_left_out": "label order seed reversed",
    "statement_left_out": "extra twice cleared early frozen", "argument_forgotten": "missing recipe seed ignored by_default",
    "layer_not_called": "missing not_called", "line_of_the_other": "missing frozen", "unread_operand": "missing mean not_divided",
    "unused_name": "missing activation initialisation", "uncalled_function": "missing initialisation activation",
    "namesake": "recipe", "names_exchanged": "swapped exchanged", "activation_moved": "activation_order",
    "shares_exchanged": "swapped exchanged inverted alpha rho momentum decay", "unbiased": "biased_variance",
}  # fmt: skip
SPEAKS = {
    "place": -0.9, "named": 1.9, "count": -0.5, "size": -0.1, "near": 0.5, "undoes": 1.1, "more": 1.3, "expected": 1.0,
    "exchanged": 1.8, "less": 1.7, "restores": 4.0, "row": 1.2, "ordered": 2.5, "lacked": 2.0, "alone": 0.8,
    "agrees": 3.0, "called": 4.0, "vain": 4.0,
}  # fmt: skip
MADE_BY = {
    "activation_moved": 3.0, "as_expected": 2.0, "layer_where_it_is_missing": 3.0, "shares_exchanged": 1.5, "unbiased": 3.0,
    "argument_forgotten": -0.4, "argument_left_out": 0.4, "as_elsewhere": -0.2, "as_the_reference": 1.9, "call_left_out": -0.3,
    "condition": 0.8, "constant": -0.1, "element_left_out": -0.7, "end_of_a_list": 0.7, "layer_not_called": -1.1, "name": -1.4,
    "line_of_the_other": -0.1, "name_alone": 0.8, "names_exchanged": -0.4, "namesake": 0.5, "number": -0.7, "operator": 0.6,
    "one_more_or_less": -0.7, "operand_left_out": 0.8, "other_function": -0.1, "override_left_out": -0.4, "regrouped": 0.4,
    "residual": 0.2, "sign": -0.9, "slice_left_out": 0.7, "statement_left_out": -0.2, "statements_exchanged": -0.6,
    "unread_argument": -0.1, "unread_operand": 0.4, "unused_name": -0.7, "unused_setting": 1.1, "value_of_the_function": -0.3,
}  # fmt: skip


def signals(region: Region, place: int, name: str, edit: SourceEdit, count: int) -> Iterator[tuple[str, float]]:
    """What speaks for and against an edit, each with its size.

    Args:
        region: the function, the ``place``-th of those that may hold the mistake.
        name: of what made the edit.
        edit: the change.
        count: how many changes this made of the function.
    """
    before, after, said = _words(region.source.content[edit.start : edit.end].decode()), _words(edit.text), _words(region.words)
    said |= {word.removesuffix("ed") for word in said}  # "detached": the call of ``detach``
    expected = {word for one in EXPECTED.findall(region.words) for word in _words(one)}
    more, less = (after - before) & said, (before - after) & said
    yield "place", math.log1p(place)
    yield "named", float(region.named)
    yield "count", math.log(count)
    yield "size", math.log1p(edit.end - edit.start + len(edit.text))
    yield "near", float(edit.line in region.lines)
    yield "undoes", float(any(word in region.words.replace(" ", "_") for word in UNDOES.get(name, "").split()))
    yield "more", float(bool(more))
    yield "expected", float(bool(more & expected))
    yield "exchanged", float(bool(more and less))
    yield "less", float(bool(less and not more))
    yield "restores", float(region.restores(edit))
    yield "agrees", float(region.restores_call(edit))
    yield "vain", float(region.undoes_what_is_vain(edit))
    yield "called", float(region.calls_what_is_missing(edit))
    yield "row", float(min(len(region.row_of(edit) & said_numbers(region.words)), 2))
    yield "ordered", float(name in EXCHANGES and region.puts_in_order(edit))
    yield "lacked", float(name == "override_left_out" and not region.theirs)
    yield "alone", float(region.leaves_out_alone(edit))


def said_numbers(words: str) -> set[float]:
    """The numbers of a finding that may tell one row of a table from another."""
    return {value for value in numbers_of(words) if value > FEW}


def weight(region: Region, place: int, name: str, edit: SourceEdit, count: int) -> float:
    """How likely an edit is the correction; the arguments are those of ``signals``."""
    return MADE_BY.get(name, 0.0) + sum(SPEAKS.get(key, 0.0) * size for key, size in signals(region, place, name, edit, count))


def _words(text: str) -> set[str]:
    """The longer words of a text, and its numbers."""
    numbers = {str(float(one)).lstrip("-") for one in NUMBER.findall(text)}
    return numbers | {word for word in re.findall(r"[a-z]+", text.lower()) if len(word) > LETTERS}
