"""A piece of source that becomes another one, of which all stays that says the same: lines, blanks, comments, quotes, brackets."""

from __future__ import annotations

import ast
import difflib
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass

UNSAID = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
NEEDLESS = frozenset("(),")  # what may be written and change nothing: brackets, a comma at the end


@dataclass(frozen=True)
class _Token:
    """What it says, and where it stands in its text."""

    says: str
    start: int
    end: int


def kept(old: str, new: str, same: Callable[[str], bool], quote: str = '"') -> str:
    """``new``, written as ``old`` where both say the same.

    Args:
        old, new: expressions or statements.
        same: whether a text is the same program as ``new`` in its place; where what is woven of both is not, ``new`` stays.
        quote: of strings that ``old`` does not have.
    """
    both = _Both(old, _tokens(old), new, _tokens(new))
    for needless in (NEEDLESS, frozenset[str]()) if both.ours and both.theirs else ():
        text = old
        for start, end, piece in reversed(list(both.changes(needless))):
            text = text[:start] + _quoted(piece, quote) + text[end:]
        if same(text):
            return text
    return new


def usual_quote(content: str) -> str:
    """The quote of most strings of a file."""
    held = re.findall(r"[(\[{,=:\s]([\"'])(?!\1)", content)
    return "'" if held.count("'") > held.count('"') else '"'


def _tokens(text: str) -> list[_Token]:
    """The tokens of a text; none where it has no such parts."""
    whole = f"({text}\n)"  # in brackets lines and their indents say nothing
    starts = [0]
    for line in whole.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    try:
        read = [one for one in tokenize.generate_tokens(io.StringIO(whole).readline) if one.type not in UNSAID][1:-1]
    except (tokenize.TokenError, SyntaxError):
        return []
    at = [[starts[row - 1] + column - 1 for row, column in (one.start, one.end)] for one in read]
    return [_Token(_said(one), *place) for one, place in zip(read, at, strict=True)]


def _said(token: tokenize.TokenInfo) -> str:
    if token.type in (tokenize.STRING, tokenize.NUMBER) and not token.string.lower().startswith(("f", "rf")):
        return repr(ast.literal_eval(token.string))
    return token.string


Replacement = tuple[int, int, str]  # from and to in the old text, and what stands there then


@dataclass(frozen=True)
class _Both:
    """Two texts and their tokens."""

    old: str
    ours: list[_Token]
    new: str
    theirs: list[_Token]

    def changes(self, needless: frozenset[str]) -> Iterator[Replacement]:
        """In order; tokens that are needless stay."""
        said = [one.says for one in self.ours], [one.says for one in self.theirs]
        for what, a, b, c, d in difflib.SequenceMatcher(None, *said, autojunk=False).get_opcodes():
            if what == "replace":
                while b - a > d - c and said[0][a] in needless and said[0][a] != said[1][c]:
                    a += 1
                while b - a > d - c and said[0][b - 1] in needless and said[0][b - 1] != said[1][d - 1]:
                    b -= 1
                yield self._replaced(a, b, c, d)
            elif what == "insert":
                yield self._inserted(a, c, d)
            elif what == "delete" and not needless.issuperset(said[0][a:b]):
                comma = b - a > 1 and said[0][a] == "," and "," in (said[0][b - 1], *said[0][b : b + 1])
                yield self._deleted(a + comma, b + (comma and said[0][b - 1] != ","), 0 if comma else c)

    def _replaced(self, a: int, b: int, c: int, d: int) -> Replacement:
        """With the blanks around, where it is not token for token."""
        start, end, first, last = self.ours[a].start, self.ours[b - 1].end, self.theirs[c].start, self.theirs[d - 1].end
        if a and c and b - a != d - c and self._blank(self.ours[a - 1].end, start):
            start, first = self.ours[a - 1].end, self.theirs[c - 1].end
        if b < len(self.ours) and d < len(self.theirs) and b - a != d - c and self._blank(end, self.ours[b].start):
            end, last = self.ours[b].start, self.theirs[d].start
        return start, end, self.new[first:last]

    def _inserted(self, place: int, c: int, d: int) -> Replacement:
        """With the blanks around; behind the token before where the next one stands on another line."""
        before, first = (self.ours[place - 1].end, self.theirs[c - 1].end) if place else (0, 0)
        after, last = (self.ours[place].start, self.theirs[d].start) if place < len(self.ours) else (len(self.old), len(self.new))
        if self._blank(before, after):
            return before, after, self.new[first:last]
        return before, before, self.new[first : self.theirs[d - 1].end]

    def _deleted(self, a: int, b: int, c: int) -> Replacement:
        """Whole lines where nothing else stands in them, with their comment; else with the blanks on one side.

        Of a closing bracket the blanks around are those that the new text has, before its token ``c``.
        """
        start, end = self.ours[a].start, self.ours[b - 1].end
        line, below = self.old.rfind("\n", 0, start) + 1, self.old.find("\n", end) + 1
        rest = self.old[end : below - 1].strip()
        if line and below and not self.old[line:start].strip() and (not rest or rest.startswith("#")):
            return line, below, ""
        if a and (b == len(self.ours) or self.ours[b].says in ")]},:"):
            return self.ours[a - 1].end, end, ""
        closes = b - a == 1 and self.ours[a].says in ")]}" and 0 < c < len(self.theirs)
        if closes and b < len(self.ours) and self._blank(end, self.ours[b].start):
            return start, self.ours[b].start, self.new[self.theirs[c - 1].end : self.theirs[c].start]
        return start, self.ours[b].start if b < len(self.ours) else end, ""

    def _blank(self, start: int, end: int) -> bool:
        """Whether nothing but blanks of one line lies between two places of the old text."""
        return self.old[start:end].strip(" ") == ""


def _quoted(text: str, quote: str) -> str:
    """A text's plain strings with another quote."""
    return re.sub(r"(?<!\w)(['\"])([^'\"\\\n]*)\1", lambda found: f"{quote}{found[2]}{quote}", text)
