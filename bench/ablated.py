"""``python -m bench.ablated FAMILY NAME FILE...``: run tests without one hypothesis; the exit status is pytest's."""

from __future__ import annotations

import sys

import pytest

from alignment.localize.hypotheses.hypothesis import FAMILIES
from bench.ablate import load


def main(family: str, name: str, files: list[str]) -> int:
    """Remove a hypothesis, none where ``name`` is empty, and run the tests up to the first that fails."""
    load()
    if name:
        FAMILIES[family].remove(name)
    return int(pytest.main(["-x", "-q", "-n", "0", "--noconftest", "-p", "no:cacheprovider", *files]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
