"""The audit from Python, and the pytest plugin."""

import dataclasses
import html
import inspect
import pydoc
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import paddle
import pytest
import torch

import alignment.api
from alignment import Dump, Place, Result, assert_aligned, audit, dump, load
from alignment.audit.given import as_arguments_of_audit
from alignment.comparisons.result import StepResult
from alignment.report.table import not_run
from mobilenetv3_common.errors import UserError
from tests.conftest import ROOT

pytestmark = pytest.mark.usefixtures("own_temporary")  # reports that are given no folder


def reference():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU())


def port(momentum=0.9, padding=1):
    n = paddle.nn
    return n.Sequential(n.Conv2D(3, 8, 3, padding=padding), n.BatchNorm2D(8, momentum=momentum), n.ReLU())


def test_the_api_reference_has_the_real_signatures():
    page = (ROOT / "docs" / "api.md").read_text()
    for function in (alignment.api.audit, assert_aligned, dump, load):
        assert f"\n{function.__name__}{inspect.signature(function)}\n".replace("'", "") in page, function
    for made in (Result, Place, Dump):
        (row,) = re.findall(rf"^\| `{made.__name__}`.*\| (.*) \|$", page, re.M)
        fields, _, more = row.partition("; ")
        own = [one.name for one in dataclasses.fields(made) if not one.name.startswith("_")]
        assert re.findall(r"`(\w+)`", fields) == own, made
        public = [name for name in vars(made) if not name.startswith("_") and name not in own]
        assert re.findall(r"`(\w+)(?:\(\))?`", more) == public, made


def test_assert_aligned_leaves_nothing_of_a_port_that_passes_and_says_where_the_report_of_another_is(own_temporary, tmp_path):
    made = lambda: torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())  # noqa: E731
    other = lambda: torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh())  # noqa: E731
    given = {"inputs": "2x3", "training": False}
    assert assert_aligned(made, made, **given).passed and not list(own_temporary.iterdir())
    with pytest.raises(AssertionError, match="The report is kept: ") as failed:
        assert_aligned(other, made, **given)
    page = Path(str(failed.value).rpartition("The report is kept: ")[2])
    assert page.is_file() and page.parent.parent == own_temporary
    assert assert_aligned(made, made, report=tmp_path / "kept", **given).passed and (tmp_path / "kept" / "report.html").is_file()


def test_a_difference_that_is_meant_to_be_is_accepted_as_the_message_says(tmp_path):
    made = lambda: torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())  # noqa: E731
    other = lambda: torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh())  # noqa: E731
    given = {"inputs": "2x3", "training": False, "report": tmp_path}
    with pytest.raises(AssertionError, match=r'accept=\["activation@1"\]'):
        assert_aligned(other, made, **given)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert assert_aligned(other, made, accept="activation@1", **given).passed
    with pytest.warns(UserWarning, match='accept="padding": no such difference was found'):
        assert assert_aligned(made, made, accept=["padding"], **given).passed


def test_inputs_may_be_a_dictionary_by_the_names_of_the_arguments(tmp_path):
    class Two(torch.nn.Module):
        def __init__(self, sign=1.0):
            super().__init__()
            self.linear, self.sign = torch.nn.Linear(3, 3), sign

        def forward(self, first, second):
            return self.linear(first) - self.sign * second

    given = {"second": torch.randn(4, 3), "first": torch.randn(4, 3)}
    said = audit(Two, Two, inputs=given, training=False, report=tmp_path)
    assert (said.passed and "first and second by name" in said.to_markdown()) or "second and first by name" in said.to_markdown()
    assert not audit(lambda: Two(-1.0), Two, inputs=given, training=False, report=tmp_path).passed


class Masked(torch.nn.Module):
    """As models of a hub: it takes further arguments, and the mask stands before the kinds of tokens."""

    def __init__(self):
        super().__init__()
        self.table, self.kinds = torch.nn.Embedding(9, 4), torch.nn.Embedding(2, 4)

    def forward(self, ids=None, mask=None, kinds=None, **kwargs):
        made = self.table(ids) + (0 if kinds is None else self.kinds(kinds))
        return made if mask is None else made * mask[..., None]


class Unmasked(Masked):
    def forward(self, ids, kinds=None, mask=None):
        return super().forward(ids, mask, kinds)


def test_arrays_go_by_name_where_a_model_takes_further_arguments_and_has_others_before(tmp_path):
    given = {"ids": np.array([[1, 2, 8], [0, 3, 5]]), "kinds": np.array([[0, 1, 1], [0, 0, 1]])}
    result = audit(Unmasked, Masked, inputs=given, report=tmp_path)
    assert result.passed and "ids and kinds by name" in result.to_markdown(), result.mistakes


class Cached(torch.nn.Module):
    """Its second argument holds a tensor for each of two layers: as many as there are samples, by chance."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)])

    def forward(self, x, cache):
        for layer, held in zip(self.layers, cache, strict=True):
            x = torch.relu(layer(x)) + held
        return x


def test_arrays_that_cannot_be_cut_into_single_samples_are_given_whole(tmp_path):
    result = audit(Cached, Cached, inputs={"x": np.eye(4)[:2] + 1, "cache": np.ones((2, 2, 4))}, report=tmp_path)
    assert result.passed and "not cut into samples" in result.to_markdown(), result.mistakes


def test_a_right_port_passes_though_the_frameworks_differ(tmp_path):
    result = audit(port, reference, inputs="4x3x16x16", report=tmp_path)
    assert isinstance(result, Result) and result.passed and not result.mistakes, str(result)
    assert result.verdict.startswith("PASS")
    assert "biased_variance" in [one.kind for one in result.differences]
    assert len(result.quantities) > 5 and result.to_markdown().startswith("### ")
    assert (tmp_path / "report.html").is_file()
    assert "Known differences" in result._repr_html_() and "Mistakes" not in result._repr_html_()


def test_a_card_says_its_line_once():
    mistake = Place("forward", "call_argument", "net.py:21: gelu approximate True, expected False", "1e-4", "net.py:21")
    assert mistake.card().count("net.py:21") == 1 and "what: gelu approximate True" in mistake.card()
    assert "what: net.py:9: gelu" in dataclasses.replace(mistake, words="net.py:9: gelu").card()
    for seen in ("8 of 16 values are NaN or infinite: net.py:21: softmax axis 1", "no known mistake matches; net.py:21: no value"):
        card = dataclasses.replace(mistake, words=seen).card()
        assert card.count("net.py:21") == 1 and f"what: {seen.replace('net.py:21: ', '')}" in card


@pytest.mark.parametrize(("inputs", "size"), [("4x3x64x64", ", in a pass over 3x27x45"), ("4x3x16x16", "")])
def test_a_shape_that_is_not_of_the_users_input_says_of_which_it_is(tmp_path, inputs, size):
    result = audit(lambda: port(padding=0), reference, inputs=inputs, training=False, report=tmp_path)
    (one,) = result.mistakes
    assert one.measured.endswith(f"given the reference's own input{size}") and "shape (4, 8, " in one.measured, one.measured


def test_a_model_is_called_by_its_class_where_the_callable_does_not_name_it(tmp_path):
    class Encoder(torch.nn.Sequential):
        pass

    def build():
        return Encoder(torch.nn.Linear(3, 4))

    def small_encoder():
        return build()

    for made, title in ((build, "Encoder"), (small_encoder, "small_encoder")):
        audit(build, made, inputs="2x3", training=False, report=tmp_path)
        assert f"<h1>Alignment of {title}</h1>" in (tmp_path / "report.html").read_text(), made


def test_a_reference_is_not_built_once_more_for_each_place_that_is_looked_up():
    built = []

    def norms(of, count):
        def make():
            built.append(of)
            n = torch.nn if of == "torch" else paddle.nn
            conv, norm = (n.Conv2d, n.BatchNorm2d) if of == "torch" else (n.Conv2D, n.BatchNorm2D)
            return n.Sequential(conv(3, 8, 3), *(norm(8) for _ in range(count)), n.ReLU())

        return make

    counts = []
    for count in (1, 5):
        built.clear()
        result = audit(norms("paddle", count), norms("torch", count), inputs="4x3x8x8")
        assert result.passed and "biased_variance" in [one.kind for one in result.differences]
        counts.append(built.count("torch"))
    assert counts[0] == counts[1], counts


def test_momentum_taken_over_as_it_is_fails_in_training_mode_alone():
    wrong = lambda: port(momentum=0.1)  # noqa: E731
    result = audit(wrong, reference, inputs="4x3x16x16")
    assert not result.passed and [one.kind for one in result.mistakes] == ["momentum_inverted"], str(result)
    assert audit(wrong, reference, inputs="4x3x16x16", training=False).passed, "evaluation cannot see it"


def test_a_model_itself_may_be_given_and_the_message_is_the_cards():
    with pytest.raises(AssertionError, match=r"FAIL: 1 mistake.*\n\n1\. padding(.|\n)*measured: (.|\n)*report\.html"):
        assert_aligned(port(padding=0), reference(), inputs="4x3x16x16", training=False)
    assert assert_aligned(port(), reference(), inputs="4x3x16x16", training=False).passed


@pytest.mark.parametrize("built", ["port", "reference", "both"])
def test_the_weights_of_a_model_that_is_built_are_no_initialisation(built):
    sides = {"port": port, "reference": reference}
    given = {name: made() if built in (name, "both") else made for name, made in sides.items()}
    result = audit(**given, inputs="4x3x16x16")
    assert result.passed, str(result)
    assert any("initialisation: give the class or function" in line for line in result.not_checked), result.not_checked
    assert not any("initialisation" in line for line in audit(port, reference, inputs="4x3x16x16").not_checked)


def test_a_model_without_a_parameter_has_no_gradients_to_compare_and_passes_where_it_is_right():
    of = {"reference": "tests/pairs/formulas.py:ReferenceStep", "inputs": "tests/pairs/formulas.py:weight_and_gradient"}
    result = audit("tests/pairs/formulas.py:PortStep", **of)
    assert result.passed, str(result)
    assert any("neither side has a parameter that is trained" in one for one in result.not_checked)
    wrong = audit("tests/pairs/formulas.py:PortStepOfAnotherRate", **of)
    assert not wrong.passed and len(wrong.mistakes) == 1, str(wrong)


def test_enlarged_inputs_that_leave_the_range_of_the_references_formula_are_not_compared():
    of = {"reference": "tests/pairs/formulas.py:ReferenceShare", "inputs": "tests/pairs/formulas.py:noise_and_share"}
    result = audit("tests/pairs/formulas.py:PortShare", **of)
    assert result.passed, str(result)
    wrong = audit("tests/pairs/formulas.py:PortShareOfAnotherPower", **of)
    assert not wrong.passed and len(wrong.mistakes) == 1, str(wrong)


def test_strict_counts_differences_of_the_frameworks():
    result = audit(port, reference, inputs="4x3x16x16", strict=True)
    assert not result.passed and "biased_variance" in [one.kind for one in result.mistakes]


def test_what_cannot_be_used_is_named():
    with pytest.raises(UserError, match="port is a int"):
        audit(3, reference)
    with pytest.raises(UserError, match="no argument 'sed'"):
        audit(port, reference, sed=3)
    with pytest.raises(UserError, match=r"no argument 'input': what the command calls --input is inputs="):
        audit(port, reference, input="2x3x16x16")
    with pytest.raises(UserError, match=r"no argument 'trainig': did you mean training\?"):
        audit(port, reference, trainig=True)
    with pytest.raises(UserError, match="the reference does not run on it") as refused:
        audit(port, reference, inputs="2x16x16x3")
    assert {Path(one.path).name for one in refused.traceback} <= {"test_api.py", "__init__.py", "api.py"}, (
        "not the engine's own calls"
    )


def test_flags_are_said_as_the_arguments_that_a_program_gives():
    """Errors and notes named flags of the command, of which a program has none."""
    for said, right in (
        ("--input 2x16x16x3: the reference", 'inputs="2x16x16x3": the reference'),
        ("--input: none; give e.g. --input 2x3x224x224", 'inputs: none; give e.g. inputs="2x3x224x224"'),
        ("--accept padding: no such difference", 'accept="padding": no such difference'),
        ("--port a:B returns 2 tensors, --reference c.py:D 1", 'port="a:B" returns 2 tensors, reference="c.py:D" 1'),
        ("give its arguments with --port-args '{...}'", "give its arguments with port_args={...}"),
        ("--updates must be 0 to 100, found 300", "updates must be 0 to 100, found 300"),
        ("updates of the weights: --updates 3", "updates of the weights: updates=3"),
        ("GPU: --device gpu", 'GPU: device="gpu"'),
        ("leave --eval-only out", "leave training=False out"),
        ("which --strict does not let pass", "which strict=True does not let pass"),
        ("paired by order of use (--names sets other pairs)", "paired by order of use (names sets other pairs)"),
        ("python -m alignment run PROJECT --weights A --port-weights B",) * 2,
    ):
        assert as_arguments_of_audit(said) == right
    with pytest.raises(UserError, match=r'^accept="pading": no such kind; did you mean padding\?'):
        audit(port, reference, inputs="2x3x16x16", accept=["pading"])
    with pytest.raises(UserError, match="what the command calls --eval-only is training=False"):
        audit(port, reference, eval_only=True)


def test_help_shows_the_function_that_the_import_gives():
    assert inspect.signature(audit) == inspect.signature(alignment.api.audit)
    assert inspect.getdoc(alignment.api.audit) in pydoc.plain(pydoc.render_doc(audit)).replace("\n    ", "\n")


def test_what_a_model_that_is_built_does_not_take_is_not_called_unchecked():
    """The arguments of the copy were: memo and _nil."""
    result = audit(port(), reference(), inputs="4x3x16x16", training=False)
    assert result.passed and not any("port_args" in line for line in result.not_checked), result.not_checked
    made = audit(port, reference, inputs="4x3x16x16", training=False).not_checked
    assert made[-1] == "other values of momentum, padding: port_args and reference_args", made


def test_inputs_may_be_a_function_as_they_may_be_on_the_command_line(tmp_path):
    def drawn(samples, rng):
        return {"tokens": rng.standard_normal((samples, 3)), "lengths": rng.integers(1, 9, samples)}

    result = audit(Sized, Sized, inputs=drawn, training=False, report=tmp_path)
    assert result.passed and ":test_inputs_may_be_a_function" in result.to_markdown()
    wrong = audit(lambda: Sized(sign=-1.0), Sized, inputs=drawn, training=False, report=tmp_path)
    assert [one.measured.partition(":")[0] for one in wrong.mistakes] == ["output 2 (second)"]
    with pytest.raises(UserError, match=r"called with .2, generator. it must return arrays of 2 samples"):
        audit(Sized, Sized, inputs=lambda samples, rng: PAIR, training=False, report=tmp_path)


def test_updates_that_are_not_made_are_named():
    result = audit(lambda: port(padding=0), reference, inputs="4x3x16x16", training=False, updates=2)
    assert "updates of the weights: forward differs, and so would they" in result.not_checked
    steps = [StepResult(5, "backward"), StepResult(5, "updates", not_run="updates of the weights: forward differs")]
    assert not_run(steps) == ["step 5 backward, in part not run: updates of the weights: forward differs"]


def test_an_accept_that_fits_nothing_is_noted_with_what_would_fit():
    result = audit(lambda: port(momentum=0.1), reference, inputs="4x3x16x16", accept=["momentum"])
    said = 'accept="momentum": no such difference was found; the kinds that were found: momentum_inverted'
    assert [note for note in result.notes if note.startswith("accept=")] == [said] and f"\n\nnote: {said}" in str(result)
    assert html.escape(said) in result._repr_html_()
    fits = audit(lambda: port(momentum=0.1), reference, inputs="4x3x16x16", accept=["momentum_inverted"])
    assert fits.passed and not any("accept=" in note for note in fits.notes) and "note:" not in str(fits)


def test_importing_it_loads_no_framework():
    code = (
        "import alignment, sys; from alignment import audit, assert_aligned, Result; print({'torch', 'paddle'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT) == "set()\n"


def test_the_plugin_keeps_the_page_of_a_failing_audit(tmp_path):
    (tmp_path / "test_own.py").write_text(
        "import pytest\nfrom alignment import audit\nfrom tests.test_api import port, reference\n"
        "@pytest.mark.aligned(inputs='4x3x16x16', training=False)\n"
        "def test_right(aligned):\n    aligned(port, reference)\n"
        "@pytest.mark.aligned(inputs='4x3x16x16', training=False)\n"
        "def test_wrong(aligned):\n    aligned(lambda: port(padding=0), reference)\n"
        "def test_twice(aligned):\n    for number in (1, 2):\n"
        "        with pytest.raises(AssertionError):\n"
        "            aligned(lambda: port(padding=0), reference, inputs='4x3x16x16', training=False)\n"
        "@pytest.mark.aligned(accept=['padding'])\n"
        "class TestMarked:\n"
        "    @pytest.mark.aligned(inputs='4x3x16x16', training=False)\n"
        "    def test_accepted(self, aligned):\n        aligned(lambda: port(padding=0), reference)\n"
        "def test_refused(aligned):\n    aligned(port, reference, inputs='2x16x16x3')\n"
        "def test_refused_without_a_fixture():\n    audit(port, reference, inputs='2x16x16x3')\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "alignment.pytest_plugin", "-p", "no:cacheprovider", "--strict-markers"]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    where = ["--rootdir", str(tmp_path), "-c", "/dev/null", "test_own.py"]
    done = subprocess.run([*command, *where], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "3 failed, 3 passed" in done.stdout, done.stdout + done.stderr
    (page,) = (tmp_path / "alignment-artifacts").glob("*test_wrong/report.html")
    assert len([*(tmp_path / "alignment-artifacts").glob("*test_twice*/report.html")]) == 2, "one for each call"
    assert str(page) in done.stdout and "1. padding" in done.stdout
    assert 'UserError: inputs="2x16x16x3"' in done.stdout and not re.search(
        r"(?<!test_)api\.py:|__init__|contextlib", done.stdout
    ), "the engine's code is no help"


class Sized(torch.nn.Module):
    """A model of a configuration, with two inputs and a named output."""

    def __init__(self, width=4, sign=1.0, **others):
        super().__init__()
        self.linear, self.sign = torch.nn.Linear(3, width), sign

    def forward(self, tokens, lengths):
        made = self.linear(tokens)
        return {"first": made, "second": self.sign * (made.sum(1) / lengths)}


PAIR = (np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32), np.arange(1, 5, dtype=np.float32))


def test_the_arguments_of_what_makes_a_model_are_handed_on(tmp_path):
    """They were taken, and had no effect."""
    given = {"inputs": PAIR, "training": False, "report": tmp_path}
    result = audit(Sized, Sized, port_args={"width": 5}, **given)
    assert [one.kind for one in result.mistakes] == ["width"]
    assert audit(f"{__name__}:Sized", Sized, port_args={"width": 5}, reference_args='{"width": 5}', **given).passed
    for value, words in (
        ({"width": Sized}, "port_args: Object of type type is not JSON"),
        ("[5]", "port_args .5.: expected a JSON object"),
    ):
        with pytest.raises(UserError, match=words):
            audit(Sized, Sized, port_args=value, **given)
    with pytest.raises(UserError, match="port_args: port is a model, which is built already"):
        audit(Sized(), Sized, port_args={"width": 5}, **given)


def test_files_are_given_as_paths_or_as_texts_and_the_report_says_the_command(tmp_path):
    """A path was an internal error."""
    file = tmp_path / "sized.pth"
    torch.save(Sized(width=5).state_dict(), file)
    for weights in (file, str(file)):
        given = {"inputs": PAIR, "weights": weights, "training": False, "report": tmp_path / "report"}
        assert audit(Sized, Sized, port_args={"width": 5}, reference_args={"width": 5}, **given).passed
    said = (tmp_path / "report" / "report.md").read_text()
    assert (
        "--input inputs.npz" in said
        and f"--weights {file}" in said
        and "--port-args '{\"width\": 5}'" in said
        and "--eval-only" in said
    )


def test_what_a_flag_does_not_take_is_refused_in_the_words_of_a_program(tmp_path):
    given = {"training": False, "report": tmp_path}
    with pytest.raises(UserError, match="weights: expected what --weights takes, a text, a path or a number; found OrderedDict"):
        audit(Sized, Sized, inputs=PAIR, weights=Sized().state_dict(), **given)
    with pytest.raises(UserError, match=r"^inputs: no argument of the models is called 'token': did you mean 'tokens'"):
        audit(Sized, Sized, inputs={"token": PAIR[0], "lengths": PAIR[1]}, **given)
    with pytest.raises(UserError, match=r"^inputs: the reference does not run on it"):
        audit(Sized, Sized, inputs=PAIR[0], **given)


def test_an_output_is_called_as_the_model_calls_it(tmp_path):
    wrong = audit(lambda: Sized(sign=-1.0), Sized, inputs=PAIR, training=False, report=tmp_path)
    assert [one.measured.partition(":")[0] for one in wrong.mistakes] == ["output 2 (second)"]


def test_the_title_of_a_layer_that_is_called_too_often_does_not_say_that_it_is_not_called():
    words = Place("a", "layer_not_called", "b is called 2 times in the port's forward, expected 1", "output: 1").card()
    assert words.startswith("another number of calls of a layer at a")


def test_a_line_that_stands_beside_a_finding_is_not_said_twice():
    from alignment.finding import Finding
    from alignment.kinds import Kind
    from alignment.report.page_cards import cards

    one = Finding("forward", "Net.forward", Kind.CALL_EXTRA, "port.py:18: + is superfluous", "output: 1", "port.py:18")
    page = cards([one], [[]], [])
    assert page.replace("<wbr>", "").count("port.py:18") == 1 and "+ is superfluous" in page
    seen = dataclasses.replace(one, hint="no known mistake matches; port.py:18: the reference has no value equal to it")
    assert cards([seen], [[]], []).replace("<wbr>", "").count("port.py:18") == 1
