"""What a stranger's code raises is a finding; what the engine raises by mistake is an internal error, whoever called it."""

from __future__ import annotations

import functools
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from alignment import compare, strangers
from alignment.comparisons import comparison
from alignment.comparisons.result import StepResult, guarded
from alignment.strangers import InternalError, Refused
from mobilenetv3_common.errors import UserError, exit_on_user_error


def theirs(*args):
    """A stranger's function."""
    raise ValueError("theirs")


def caught(run):
    with strangers.strangers("port") as raised:
        run()
    return raised


class Given:
    """A comparison that hands what one side gives to a function of the engine."""

    def __init__(self, port, reference=None):
        self.sides = {"port": port, "reference": np.ones(3) if reference is None else reference}

    def measure(self, context, role):
        return {"distance": compare.distance(self.sides[role], np.ones(3))}


@pytest.mark.parametrize(
    "run",
    [
        theirs,
        lambda: functools.partial(theirs, 1)(),
        lambda: theirs(wrong=1),
        lambda: SimpleNamespace().forward,
        lambda: compare.distance(theirs(), 1),
        lambda: (_ for _ in ()).throw(UserError("a refusal")),
        lambda: (_ for _ in ()).throw(Refused("a refusal")),
    ],
)
def test_what_a_stranger_raises_is_kept(run):
    raised = caught(run)
    assert raised.error is not None
    assert raised.words.partition(":")[0] == type(raised.error).__name__
    assert raised.error.__traceback__ is None or raised.error.__traceback__.tb_frame.f_locals == {}


def test_nothing_is_kept_where_nothing_is_raised():
    raised = caught(lambda: None)
    assert (raised.error, raised.words, raised.place, raised.there) == (None, "", "", "")


@pytest.mark.parametrize("given", [(None, np.ones(3)), ("a", np.ones(3)), (np.ones(3), np.ones(4))])
def test_a_mistake_of_the_engine_is_not_kept(given):
    with pytest.raises(InternalError, match=r"raised \w+Error.*\(alignment/distance.py:\d+\) while the port's code ran"):
        caught(lambda: compare.distance(*given))


@pytest.mark.parametrize("error", [KeyError("k"), RuntimeError("r"), ValueError("v"), TypeError("t"), AttributeError("a")])
def test_a_function_of_the_engine_that_raises_is_the_engines_whoever_calls_it(monkeypatch, error):
    def raises(*args):
        raise error

    monkeypatch.setattr(compare, "relative", raises)
    port = SimpleNamespace(forward=lambda: compare.relative(1.0, 1.0))
    for run in (lambda: compare.relative(1.0, 1.0), port.forward):
        with pytest.raises(InternalError, match=type(error).__name__):
            caught(run)
        with pytest.raises(InternalError):
            guarded(1, lambda run=run: run())


def test_the_ports_values_are_the_ports_where_the_references_went_through():
    result = guarded(3, lambda: comparison.compare(None, StepResult(3, "metric"), Given("no array")))
    assert result.failed
    with pytest.raises(InternalError):
        guarded(3, lambda: comparison.compare(None, StepResult(3, "metric"), Given(np.ones(3), "no array")))


def test_what_was_kept_once_stays_the_strangers():
    raised = caught(theirs)

    def again():
        raise raised.error

    assert caught(again).error is raised.error
    assert caught(again).place == raised.place


def test_alone_everything_is_the_strangers():
    with strangers.strangers("file", alone=True) as raised:
        compare.distance(None, None)
    assert isinstance(raised.error, Exception)
    with strangers.strangers("file", alone=True) as raised:
        sys.exit(3)
    assert raised.words == "SystemExit: 3"


def test_a_command_ends_with_a_status_of_its_own(capsys):
    @exit_on_user_error
    @strangers.engine()
    def main():
        return int(compare.distance("a", np.ones(3)))

    assert main() == 3
    told = capsys.readouterr().err
    assert "Traceback" in told
    assert told.splitlines()[-1].startswith("internal error: the engine itself raised")


def test_what_the_engine_refuses_passes_through_it():
    for error in (UserError("bad input"), OSError(2, "no such file", "x"), InternalError("seen before")):
        with pytest.raises(type(error)) as found, strangers.engine():
            raise error
        assert found.value is error


@pytest.mark.slow
@pytest.mark.parametrize(
    "broken",
    [
        "alignment.comparisons.model.forward.judge_case",
        pytest.param("alignment.compare.judge_measured", marks=pytest.mark.weekly),
    ],
)
def test_a_run_in_which_the_engine_raises_says_so(tmp_path, broken):
    module, _, name = broken.rpartition(".")
    script = f"""
        import sys, {module}

        def raises(*args, **kwargs):
            raise KeyError("planted")

        for one in [one for key, one in sys.modules.items() if key.startswith("alignment") and hasattr(one, "{name}")]:
            one.{name} = raises
        import alignment.comparisons.model.forward
        alignment.comparisons.model.forward.{name} = raises
        from mnv3.align import main
        sys.exit(main(["--steps", "1", "--result-dir", {str(tmp_path / "result")!r}]))
    """
    root = Path(strangers.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], cwd=root, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert done.stderr.splitlines()[-1].startswith("internal error: the engine itself raised KeyError: 'planted'")
    assert "the port" not in done.stdout
