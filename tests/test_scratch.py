"""Temporary folders of an audit: nothing is left of them, however the process ends."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from alignment import audit
from alignment.scratch import report_folder, scratch
from mobilenetv3_common.errors import UserError
from tests.conftest import ROOT

HOLDING = """
import time
from alignment.scratch import scratch
with scratch() as folder:
    (folder / "copy.py").write_text("x")
    print(folder, flush=True)
    time.sleep(60)
"""
AUDITED = """
import torch, alignment
made = lambda width=4: torch.nn.Linear(3, width)
wide = lambda: torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
print(alignment.audit(made, made, inputs="2x3", training=False).folder)
print(alignment.audit(wide, made, inputs="2x3", training=False).folder)
"""


@pytest.fixture(autouse=True)
def temporary(own_temporary):
    return own_temporary


def holding():
    process = subprocess.Popen([sys.executable, "-c", HOLDING], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return process, Path(process.stdout.readline().strip())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_process_that_is_asked_to_stop_leaves_nothing(number, temporary):
    process, folder = holding()
    assert folder.parent == temporary and (folder / "copy.py").exists()
    process.send_signal(number)
    assert process.wait(10) == 128 + number and not list(temporary.iterdir())


def test_what_a_killed_process_leaves_is_removed_by_the_next_and_what_is_in_use_stays(temporary):
    (dead, left), (living, used) = holding(), holding()
    dead.kill()
    dead.wait()
    assert left.exists(), "nothing can be done at once"
    with scratch() as own:
        assert sorted(temporary.iterdir()) == sorted([used, own])
        with scratch() as inner:
            assert sorted(temporary.iterdir()) == sorted([used, own, inner])
    assert list(temporary.iterdir()) == [used] and (used / "copy.py").exists()
    living.terminate()
    living.wait()
    assert not list(temporary.iterdir())


def test_folders_of_others_are_left_alone(temporary):
    kept = temporary / "alignment_patch_of_mine"
    kept.mkdir()
    with scratch():
        pass
    assert list(temporary.iterdir()) == [kept]


def test_handlers_are_put_back_and_those_of_the_program_stay(monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    mine = lambda *_: None  # noqa: E731
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with scratch():
            assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        signal.signal(signal.SIGTERM, mine)
        with scratch():
            assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("raised", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_report_that_was_not_made_leaves_nothing(raised, temporary):
    def begun(given):
        with report_folder(given) as folder:
            folder.mkdir(exist_ok=True)
            (folder / "half.html").write_text("")
            raise raised

    with pytest.raises(raised):
        begun(None)
    assert not list(temporary.iterdir())
    with pytest.raises(raised):
        begun(temporary / "given")
    assert (temporary / "given" / "half.html").exists(), "a folder that was given is the caller's"


def test_an_audit_that_cannot_be_made_leaves_nothing(temporary):
    with pytest.raises(UserError, match="port is a int"):
        audit(3, dict)
    assert not list(temporary.iterdir())


def test_a_trial_is_ended_where_its_process_is_asked_to_stop(temporary):
    """The child would otherwise go on, and hold the folder."""
    code = (
        "import multiprocessing, os, signal, threading, time\n"
        "from alignment.audit.trial import answered\n"
        "from alignment.scratch import scratch\n"
        "with scratch() as folder:\n"
        "    threading.Timer(1, os.kill, (os.getpid(), signal.SIGTERM)).start()\n"
        "    answered(multiprocessing.get_context('fork'), time.sleep, (60,), 100)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=40, check=False)
    assert done.returncode == 128 + signal.SIGTERM and not list(temporary.iterdir())


@pytest.mark.slow
def test_the_page_of_a_port_that_passes_goes_with_the_process_and_that_of_one_that_fails_stays():
    said = subprocess.run([sys.executable, "-c", AUDITED], cwd=ROOT, capture_output=True, text=True, timeout=200, check=True)
    passing, failing = map(Path, said.stdout.split())
    assert not passing.exists() and (failing / "report.html").is_file()
