"""Shared code with a mistake in it, and what the witnesses of it say: in a process of its own, without either package.

Each edit is made in memory, as the module is imported: the files stay as they are.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import json
import subprocess
import sys
from typing import NamedTuple

from tests.conftest import ROOT

OWN = ("mobilenetv3_common", "projects.witnesses", "alignment.witness", "alignment.comparisons.witnessed")


class Edit(NamedTuple):
    """A change of the shared package's source.

    Attributes:
        file: in ``mobilenetv3_common``.
        before, after: what is replaced; it stands there once.
        place: of the finding, or its beginning; empty for a right rewrite.
        words: that the hint holds.
    """

    file: str
    before: str
    after: str
    place: str = ""
    words: str = ""


class Edited(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Imports one module from another text than its file's."""

    def __init__(self, name, file, text):
        self.name, self.file, self.text = name, file, text

    def find_spec(self, name, path, target=None):
        return importlib.util.spec_from_file_location(name, self.file, loader=self) if name == self.name else None

    def get_filename(self, name):
        return str(self.file)

    def get_data(self, path):
        return self.text.encode()

    def path_stats(self, path):
        raise OSError  # nothing compiled is kept


def module_of(file):
    """``train_config/config.py`` as a module's name."""
    return "mobilenetv3_common." + file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def told(edit, skip=(), together=False):
    """The findings of all witnesses but some on shared code with one edit, in this process: place, kind, hint of each.

    ``together`` gives what they say together, as first finding.
    """
    finder = None
    if edit is not None:
        file = ROOT / "mobilenetv3_common" / edit.file
        text = file.read_text()
        assert text.count(edit.before) == 1, f"{edit.file}: {edit.before!r} stands there {text.count(edit.before)} times"
        finder = Edited(module_of(edit.file), file, text.replace(edit.before, edit.after))
    for name in [name for name in sys.modules if name.startswith(OWN)]:
        del sys.modules[name]
    if finder is not None:
        sys.meta_path.insert(0, finder)
    try:
        witnesses = importlib.import_module("projects.witnesses").WITNESSES
        witnessed = importlib.import_module("alignment.comparisons.witnessed")
        found, asked = [], []
        for witness in [witness for witness in witnesses if witness.place not in skip]:
            one = witnessed.Testimony(witness)
            values = one.measure(None, "port"), one.measure(None, "reference")
            failed = not all(row.passed for row in one.judge(*values))
            finding = one.explain(*values)
            assert failed == (finding is not None), witness.place
            found += [finding] if finding is not None else []
            asked.append(one)
        found = [witnessed.headline(asked), *found] if together and found else found
        return [[one.location, str(one.kind), one.hint, one.measured] for one in found]
    finally:
        if finder is not None:
            sys.meta_path.remove(finder)


def heard(edits, skip=(), together=False):
    """What the witnesses but some say of each edit, by its name: made one after the other in one fresh process."""
    given = json.dumps([list(skip), together, {name: edit and list(edit) for name, edit in edits.items()}])
    ended = subprocess.run(
        [sys.executable, "-m", "tests.shared_edits"], input=given, text=True, capture_output=True, cwd=ROOT, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


if __name__ == "__main__":
    left_out, as_one, given = json.loads(sys.stdin.read())
    print(json.dumps({name: told(edit and Edit(*edit), left_out, as_one) for name, edit in given.items()}))
