"""What the documents name exists: tests, files, commands and their flags."""

import re

import pytest

from alignment.cli import parser
from tests.conftest import ROOT

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_every_test_that_is_named_exists():
    text = (ROOT / "docs" / "known_differences.md").read_text()
    named = re.findall(r"`(test_\w+\.py)(?:::(\w+))?`", text)
    assert len(named) > 15
    for file, test in named:
        source = (ROOT / "tests" / file).read_text()
        assert not test or f"def {test}(" in source, f"{file}::{test}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_and_picture_exists(document):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", document.read_text()):
        assert (document.parent / target).exists(), target


def test_the_readmes_align_commands_parse():
    commands = re.findall(r"^python tools/align\.py (.*)$", (ROOT / "README.md").read_text(), re.M)
    assert len(commands) >= 3
    for command in commands:
        parser().parse_args(command.split())


def test_make_knows_the_readmes_commands():
    makefile = (ROOT / "Makefile").read_text()
    for text in (document.read_text() for document in DOCUMENTS):
        for target in re.findall(r"`make (\w+)`|^make (\w+)", text, re.M):
            assert re.search(rf"^{''.join(target)}:", makefile, re.M), target
