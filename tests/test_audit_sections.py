"""What an audit says by default: a verdict in one line, mistakes, known differences of the frameworks, and what was not checked."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from alignment.cli import main
from alignment.comparisons.grouping import grouped
from alignment.finding import Finding
from alignment.kinds import Kind
from alignment.report.sections import _verdict

TORCH = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.head = nn.Linear(6, 5)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))

class Zeros(Net):
    def __init__(self):
        super().__init__()
        nn.init.zeros_(self.norm.weight)

class Noisy(Net):
    def forward(self, x):
        x = super().forward(x)
        return x + torch.from_numpy(__import__("numpy").random.default_rng().random(x.shape)).to(x) if self.training else x

class NoisyInExactMode(Net):
    def forward(self, x):
        x = super().forward(x)
        noisy = self.training and x.dtype == torch.float64
        return x + torch.from_numpy(__import__("numpy").random.default_rng().random(x.shape)) if noisy else x

class OtherGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        noise = torch.from_numpy(__import__("numpy").random.default_rng().uniform(0.5, 1.5, tuple(gradient.shape)))
        return gradient * noise if gradient.dtype == torch.float64 else gradient

class NoisyGradients(Net):
    def forward(self, x):
        return self.head(OtherGradient.apply(torch.relu(self.norm(self.conv(x))).mean((2, 3))))

class WithLabels(Net):
    def forward(self, x, labels=None):
        if self.training and labels is None:
            raise ValueError("labels are needed in training mode")
        return super().forward(x)

class Biased(nn.BatchNorm2d):
    # A port in the same framework, whose statistics take the biased variance.
    def forward(self, x):
        if self.training:
            with torch.no_grad():
                for own, new in ((self.running_mean, x.mean((0, 2, 3))), (self.running_var, x.var((0, 2, 3), unbiased=False))):
                    own += self.momentum * (new - own)
                self.num_batches_tracked += 1
            return torch.nn.functional.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)
        return super().forward(x)

class OwnBiased(Net):
    def __init__(self):
        super().__init__()
        self.norm = Biased(6)
"""
PADDLE = """
import paddle
from paddle import nn

class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm2D(6)
        self.head = nn.Linear(6, 5)

    def forward(self, x):
        return self.head(nn.functional.relu(self.norm(self.conv(x))).mean([2, 3]))

class Own(nn.Layer):
    # Somebody's own normalisation, right but for the variance that it keeps.
    def __init__(self, width):
        super().__init__()
        self.weight = self.create_parameter([width], default_initializer=nn.initializer.Constant(1.0))
        self.bias = self.create_parameter([width], is_bias=True)
        self.register_buffer("_mean", paddle.zeros([width]))
        self.register_buffer("_variance", paddle.ones([width]))

    def forward(self, x):
        mean, variance = self._mean, self._variance
        if self.training:
            mean, variance = x.mean([0, 2, 3]), x.var([0, 2, 3], unbiased=False)
            with paddle.no_grad():
                self._mean.set_value(0.9 * self._mean + 0.1 * mean)
                self._variance.set_value(0.9 * self._variance + 0.1 * variance)
        shape = [1, -1, 1, 1]
        x = (x - mean.reshape(shape)) / (variance.reshape(shape) + 1e-5).sqrt()
        return x * self.weight.reshape(shape) + self.bias.reshape(shape)
"""
NORM = "nn.BatchNorm2D(6)"


@pytest.fixture
def audit(tmp_path, capsys):
    """A function that audits a port with some of its source replaced: status, standard output, alignment.json."""
    (tmp_path / "theirs.py").write_text(TORCH)

    def run(*flags, before=NORM, after=NORM, reference="Net", port=None):
        assert before in PADDLE
        (tmp_path / "ours.py").write_text(PADDLE.replace(before, after))
        sides = ["--port", port or f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:{reference}"]
        status = main(["audit", *sides, "--input", "2x3x10x8", "--report", str(tmp_path / "report"), *flags])
        file = tmp_path / "report" / "alignment.json"
        return status, capsys.readouterr(), json.loads(file.read_text()) if file.is_file() else {}

    return run


def section(out, title):
    """The lines of one section of what is printed."""
    return next(part for part in out.split("\n\n") if part.startswith(title)).splitlines()


def test_a_right_port_passes_by_default_and_the_frameworks_differences_are_a_line_each(audit, tmp_path):
    status, said, record = audit()
    assert status == 0 and record["passed"], said.out
    assert "\nPASS: no mistake found in the port (2 known differences of the frameworks).\n" in said.out
    assert "FAILED" not in said.out and section(said.out, "Your mistakes") == [
        "Your mistakes: none",
        "  step 1 differed at first only by the differences below; the table compares without them",
    ]
    known = section(said.out, "Known differences")
    assert known[0] == "Known differences of the frameworks (no mistakes of yours; --strict lets them fail):"
    assert [line.split(":")[0].strip() for line in known[1:]] == ["biased_variance", "initialisation"]
    assert [one["kind"] for one in record["known_differences"]] and not record["mistakes"]
    unchecked = section(said.out, "Not checked")
    assert any(line.endswith(": --updates 3") for line in unchecked) and not any("training mode" in line for line in unchecked)
    assert "initialisation" not in "".join(unchecked), "it was compared"
    assert "  training mode" in (tmp_path / "report" / "covered.txt").read_text().splitlines()
    assert "  inputs of 43x73 pixels" in (tmp_path / "report" / "covered.txt").read_text(), "there are no pictures"
    block = (tmp_path / "report" / "report.md").read_text()
    assert 0 < block.index("only by the differences below") < block.index("**Known differences"), "it is said of those that follow"
    page = (tmp_path / "report" / "report.html").read_text()
    assert "PASS: no mistake found in the port" in page and "Known differences of the frameworks (no mistakes of yours" in page


def test_strict_lets_the_frameworks_differences_fail_and_says_so(audit, tmp_path):
    status, said, record = audit("--strict")
    assert status == 1 and not record["mistakes"], said.out
    assert (
        "FAIL: no mistake found in the port, but 2 known differences of the frameworks, which --strict does not let pass."
        in said.out
    )
    assert "Known differences of the frameworks (--strict: they fail):" in said.out
    block = (tmp_path / "report" / "report.md").read_text()
    assert "First mistake" not in block and "conversion not checked" not in block and "converted file: " in block


MISTAKES = {
    "momentum as it is": ("nn.BatchNorm2D(6, momentum=0.1)", "momentum_inverted"),
    "another momentum": ("nn.BatchNorm2D(6, momentum=0.99)", "momentum"),
    "a momentum that is off by little": ("nn.BatchNorm2D(6, momentum=0.9001)", "momentum"),
    "eps": ("nn.BatchNorm2D(6, epsilon=1e-3)", "batch_norm_eps"),
    "eps, and momentum": ("nn.BatchNorm2D(6, epsilon=1.1e-5, momentum=0.99)", "batch_norm_eps"),
    "somebody's own layer": ("Own(6)", "biased_variance"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_of_a_normalisation_is_never_a_known_difference(audit, case):
    after, kind = MISTAKES[case]
    status, said, record = audit(after=after)
    assert status == 1 and not record["passed"], said.out
    assert [one["kind"] for one in record["mistakes"]] == [kind], record["mistakes"]
    assert "FAIL: 1 mistake found in the port." in said.out
    assert "norm" not in [place for one in record["known_differences"] for place in [one["location"], *one["also"]]]


def test_a_port_in_the_same_framework_has_no_differences_of_frameworks(audit, tmp_path):
    status, _, record = audit(port=f"{tmp_path}/theirs.py:OwnBiased")
    assert status == 1 and [one["kind"] for one in record["mistakes"]] == ["biased_variance"]
    assert not record["known_differences"]
    status, _, record = audit(port=f"{tmp_path}/theirs.py:Net")
    assert status == 0 and not record["known_differences"]


FRESH = {
    "one number everywhere": ("weight_attr=nn.initializer.Constant(0.1)", "Net"),
    "another constant": ("", "Zeros"),
}


@pytest.mark.parametrize("case", FRESH)
def test_a_constant_that_no_framework_chooses_is_a_mistake(audit, case):
    more, reference = FRESH[case]
    status, said, record = audit(before="nn.Linear(6, 5)", after=f"nn.Linear(6, 5, {more})", reference=reference)
    assert status == 1 and [one["kind"] for one in record["mistakes"]] == ["initialisation"], said.out
    assert "initialisation" in [one["kind"] for one in record["known_differences"]], "the other tensors"


GIVEN = "nn.Linear(256, 64, weight_attr={})"
INITIALISER = {  # what the port says of a weight that the reference draws by fan_out: mistakes
    "fan_in for fan_out": ("nn.initializer.KaimingNormal(fan_in=256)", 1),
    "the same in an attribute": ("paddle.ParamAttr(initializer=nn.initializer.KaimingNormal(fan_in=256))", 1),
    "an initialiser that is called afterwards": ("None)\n        nn.initializer.KaimingNormal(fan_in=256)(self.fc.weight", 1),
    "the right one, called afterwards": ("None)\n        nn.initializer.Normal(0.0, (2 / 64) ** 0.5)(self.fc.weight", 0),
    "the right one": ("nn.initializer.Normal(0.0, (2 / 64) ** 0.5)", 0),
    "none but a name": ('paddle.ParamAttr(name="fc.%d" % id(self))', 0),
    "the default": ("None", 0),
    "the default, taken apart and put together": (
        "None)\n        nn.utils.remove_weight_norm(nn.utils.weight_norm(self.fc, dim=1)",
        0,
    ),
    "another, taken apart and put together": (
        "nn.initializer.KaimingNormal(fan_in=256))\n        nn.utils.remove_weight_norm(nn.utils.weight_norm(self.fc, dim=1)",
        1,
    ),
}


@pytest.mark.parametrize("case", INITIALISER)
def test_an_initialiser_that_the_ports_source_sets_is_no_default_of_a_framework(audit, case, tmp_path):
    given, count = INITIALISER[case]
    theirs = "\nclass Wide(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(256, 64)\n"
    theirs += '        nn.init.kaiming_normal_(self.fc.weight, mode="fan_out")\n'
    run = "\n    def forward(self, x):\n        return self.fc(x.flatten(1)[:, :240].repeat(1, 2)[:, :256])\n"
    (tmp_path / "theirs.py").write_text(TORCH + theirs + run)
    ours = "\nclass Wide(nn.Layer):\n    def __init__(self):\n        super().__init__()\n"
    ours += f"        self.fc = {GIVEN.format(given)}\n" + run.replace("repeat(1, 2)", "tile([1, 2])")
    (tmp_path / "wide.py").write_text(PADDLE + ours)
    status, said, record = audit(port=f"{tmp_path}/wide.py:Wide", reference="Wide")
    assert [one["location"] for one in record["mistakes"]] == ["fc.weight"] * count, said.out
    assert status == bool(count), said.out
    known = [place for one in record["known_differences"] for place in [one["location"], *one["also"]]]
    assert ("fc.weight" in known) == (case in ("none but a name", "the default", "the default, taken apart and put together")), (
        known
    )
    if count:
        words, line = record["mistakes"][0]["hint"], record["mistakes"][0]["source"]
        assert "fan_in for fan_out" in words and "the port's source sets this initialiser" in words and "wide.py:" in line


HELPER = """
def linear(n_in, n_out, init=None):
    return nn.Linear(n_in, n_out, weight_attr=init or nn.initializer.Normal(0.0, {std}), bias_attr=nn.initializer.Constant(0.0))


class Two(nn.Layer):
    def __init__(self):
        super().__init__()
        self.first = linear(24, 24, nn.initializer.Constant(0.5))
        self.other = linear(24, 24{half})
        self.plain = linear(24, 24)

    def forward(self, x):
        return self.plain(self.other(self.first(x.flatten(1)[:, :24])))
"""
THEIRS = """
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.other, self.plain = nn.Linear(24, 24), nn.Linear(24, 24), nn.Linear(24, 24)
        for one in (self.first, self.other, self.plain):
            nn.init.constant_(one.weight, 0.5)
            nn.init.zeros_(one.bias)
        nn.init.normal_(self.plain.weight, 0.0, 0.1)

    def forward(self, x):
        return self.plain(self.other(self.first(x.flatten(1)[:, :24])))
"""
RIGHT = ", nn.initializer.Constant(0.5)"
SHARED = {
    "a caller's": (0.1, "", "other", "self.other"),
    "the helper's": (0.3, RIGHT, "plain", "return nn.Linear("),
    "none": (0.1, RIGHT, "", ""),
}


@pytest.mark.parametrize("case", SHARED)
def test_where_a_helper_makes_others_rightly_the_line_is_its_callers(audit, case, tmp_path):
    std, half, wrong, line = SHARED[case]
    (tmp_path / "theirs.py").write_text(TORCH + THEIRS)
    (tmp_path / "two.py").write_text(PADDLE + HELPER.format(std=std, half=half))
    status, said, record = audit(port=f"{tmp_path}/two.py:Two", reference="Two")
    assert status == bool(wrong), said.err + said.out
    assert [one["location"] for one in record["mistakes"]] == [f"{wrong}.weight"] * bool(wrong), said.out
    for one in record["mistakes"]:
        number = int(one["source"].rpartition(":")[2])
        assert (tmp_path / "two.py").read_text().splitlines()[number - 1].strip().startswith(line), said.out


def test_without_training_mode_its_mistakes_are_not_seen_and_that_is_said(audit):
    status, said, record = audit("--eval-only", after="nn.BatchNorm2D(6, momentum=0.1)")
    assert status == 0 and "PASS: no mistake found in the port.\n" in said.out
    assert "  training mode and fresh weights: leave --eval-only out" in section(said.out, "Not checked")
    assert record["not_checked"][0] == {"what": "training mode and fresh weights", "flag": "leave --eval-only out"}


def test_a_reference_that_cannot_be_compared_in_training_mode_is_compared_in_evaluation(audit):
    for reference, words in (("Noisy", "random numbers that cannot be shared"), ("WithLabels", "labels are needed")):
        status, said, _ = audit(reference=reference)
        assert status == 0, said.out
        assert [line for line in section(said.out, "Not checked") if line.startswith("  training mode: ") and words in line]
    status, said, _ = audit("--training", reference="WithLabels")
    assert (
        status == 2 and said.err.startswith("error: --training: the reference cannot run in it") and "labels are needed" in said.err
    )
    assert audit(after="nn.BatchNorm2D(6, epsilon=1e-3)", reference="WithLabels")[0] == 1, "evaluation mode is compared"


@pytest.mark.parametrize(("reference", "words"), [
    ("NoisyInExactMode", "Training mode was NOT compared."),
    ("NoisyGradients", "Gradients were NOT compared in full."),
])  # fmt: skip
def test_what_a_reference_draws_in_exact_mode_alone_excuses_nothing(audit, reference, words):
    """One-ulp changes then move it by as much as a wrong port, which passed as zero but for rounding."""
    status, said, record = audit(reference=reference)
    assert status == 0 and f" of the frameworks). {words}\n" in said.out, said.out
    assert not record["mistakes"] and any("cannot be shared" in one["what"] for one in record["not_checked"])


def test_covered_lists_what_was_compared_and_modes_exclude_each_other(audit):
    assert "\ncompared:\n  evaluation mode\n" in audit("--covered", "--eval-only")[1].out
    status, said, _ = audit("--training", "--eval-only")
    assert status == 2 and "not allowed with argument" in said.err


LARGE = """
class Large(Net):
    def __init__(self):
        super().__init__()
        self.act = nn.{act}()

    def forward(self, x):
        return self.head(self.act(self.norm(self.conv(x))).mean({axes}))
"""


@pytest.mark.parametrize(("norm", "act", "kinds"), [
    (NORM, "ReLU6", []),
    (NORM, "ReLU", ["activation"]),
    ("nn.BatchNorm2D(6, momentum=0.1)", "ReLU", ["momentum_inverted", "activation"]),
])  # fmt: skip
def test_a_mistake_that_large_inputs_alone_show_is_named_beside_differences_and_other_mistakes(audit, tmp_path, norm, act, kinds):
    (tmp_path / "theirs.py").write_text(TORCH + LARGE.format(act="ReLU6", axes=(2, 3)))
    (tmp_path / "large.py").write_text(PADDLE.replace(NORM, norm) + LARGE.format(act=act, axes=[2, 3]))
    status, said, record = audit(port=f"{tmp_path}/large.py:Large", reference="Large")
    assert [one["kind"] for one in record["mistakes"]] == kinds, said.out
    assert status == bool(kinds) and "still fails" not in said.out
    assert all("large.py:" in one["source"] for one in record["mistakes"]), record["mistakes"]


def test_one_line_of_blocks_of_two_kinds_is_one_mistake():
    words = "it computes ReLU({0}) + {1}, expected ReLU({0} + {1}): rn.py:{2}: {3}"

    def found(place, beside, line=21, said="relu before +, expected after it"):
        hint = words.format(place, beside, line, said)
        return Finding("forward", place, Kind.ACTIVATION_ORDER, hint, source=f"rn.py:{line}", confirmed=True)

    (one,) = grouped([found("layer1.0", "the input"), found("layer2.0", "layer2.0.downsample")])
    assert one.places == ["layer1.0", "layer2.0"]
    assert len(grouped([found("layer1.0", "the input"), found("layer2.0", "the input", said="tanh before +")])) == 2
    without = [replace(found(place, beside), source="") for place, beside in (("a", "the input"), ("b", "b.downsample"))]
    assert len(grouped(without)) == 2, "where no line is known the words of the module count"


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (("stride 1, expected 2", "stride 2, expected 1"), 2),
        (("stride (1, 1), expected 2", "stride (1, 1), expected (2, 2)"), 1),
        (("kernel size 3, expected 5", "kernel size 3, expected 7"), 1),
        (("a rate of 0.1, expected 0.2", "a rate of 0.3, expected 0.2"), 1),
        (("eps 1e-05, expected 0.001", "eps 1e-05, expected 0.001"), 1),
    ],
)
def test_a_setting_that_is_too_large_here_and_too_small_there_is_two_mistakes(words, count):
    found = [Finding("forward", f"blocks.{number}", Kind.STRIDE, one, source="a.py:9") for number, one in enumerate(words)]
    assert len(grouped(found)) == count


def test_the_verdict_says_how_many_lines_hold_the_mistakes():
    """Two mistakes of different kinds may be in one line."""
    found = [
        Finding("forward", f"blocks.{n}", Kind.ACTIVATION_ORDER, "order", source=line)
        for n, line in enumerate(("a.py:9", "a.py:9"))
    ]
    said = lambda mistakes: _verdict(True, mistakes, [], [], [])  # noqa: E731
    assert said(found) == "FAIL: 2 mistakes found in the port, in 1 line."
    for others in (["a.py:9", "a.py:12"], ["", ""], ["a.py:9", ""]):
        apart = [replace(one, source=line) for one, line in zip(found, others, strict=True)]
        assert said(apart) == "FAIL: 2 mistakes found in the port."
    assert said(found[:1]) == "FAIL: 1 mistake found in the port."


KEEPING = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x, padded):
        return self.second(torch.relu(self.first(x).masked_fill(padded.unsqueeze(-1), 0.0)).cumsum(1))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.head = Block(), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.block(x, x[..., 0] > 0.5))
"""
KEPT = """
import paddle
from paddle import nn

class Block(nn.Layer):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x, kept):
        return self.second(nn.functional.relu(self.first(x)).cumsum(1))

class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.block, self.head = Block(), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.block(x, (x[..., :1] <= 0.5).astype(x.dtype)))
"""


def test_a_part_of_the_reference_that_does_not_fit_into_the_port_is_no_failure_of_the_step(tmp_path, monkeypatch, capsys):
    """Its mask says what is padding, and has another shape than the port's, which says what is kept."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.py").write_text(KEEPING)
    (tmp_path / "ours.py").write_text(KEPT)
    status = main(["audit", "--port", "ours.py:Net", "--reference", "theirs.py:Net", "--input", "2x5x6", "--eval-only"])
    said = capsys.readouterr().out
    assert status == 1 and "Unfit" not in said and "still fails" not in said, said
    assert "step 1 cannot be run again: the reference's own part does not take what the port gives it" in said, said


def test_what_was_not_run_is_listed_where_the_structure_stops_the_steps(tmp_path):
    """A layer that is missing: the forward methods are listed, and the file says why no step ran them."""
    (tmp_path / "theirs.py").write_text(
        "import torch\nclass Net(torch.nn.Sequential):\n    def __init__(self):\n"
        "        super().__init__(torch.nn.Linear(8, 6), torch.nn.LayerNorm(6))\n"
    )
    port = (
        "import paddle\nclass Net(paddle.nn.Layer):\n    def __init__(self):\n        super().__init__()\n"
        "        self.a = paddle.nn.Linear(8, 6)\n        self.b = paddle.nn.LayerNorm(6)\n"
        "    def forward(self, x):\n        return self.b(self.a(x))\n"
    )
    said = {}
    for name, text in (("sound", port), ("missing", port.replace("self.b = paddle.nn.LayerNorm(6)", "self.b = lambda x: x"))):
        (tmp_path / f"{name}.py").write_text(text)
        sides = ["--port", f"{tmp_path / name}.py:Net", "--reference", f"{tmp_path}/theirs.py:Net", "--input", "4x8"]
        assert main(["audit", *sides, "--report", str(tmp_path / name)]) == (name == "missing")
        said[name] = (tmp_path / name / "covered.txt").read_text()
    ran, not_run = said["missing"].partition("run by no step: ")[::2]
    assert "Net.__init__" in ran and "Net.forward" not in ran and "Net.forward" in not_run
    assert "ended early" in not_run and "step 1 and 5" in not_run
    assert "Net.forward" in said["sound"].partition("run by no step: ")[0] and "ended early" not in said["sound"]


OWN = {  # how an own class of the port fills its decay, which the reference draws as the logarithm of uniform values: mistakes
    "without the logarithm": ("default_initializer=nn.initializer.Assign(rate)", 1),
    "without it, in an attribute": ("attr=paddle.ParamAttr(initializer=nn.initializer.Assign(rate))", 1),
    "as the reference": ("default_initializer=nn.initializer.Assign(np.log(rate))", 0),
    "left to the framework": ("", 0),
    "zeros, as the framework fills a bias": ("default_initializer=nn.initializer.Constant(0.0)", 0),
}


@pytest.mark.parametrize("case", OWN)
def test_an_initialiser_that_an_own_class_gives_to_its_tensor_is_no_default_of_a_framework(audit, case, tmp_path):
    given, count = OWN[case]
    run = "\n    def forward(self, x):\n        return x.flatten(1)[:, :48] * (-self.decay.exp()).exp()\n"
    theirs = "\nclass Decays(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    theirs += "        self.decay = nn.Parameter(torch.empty(48).uniform_(1.0, 16.0).log())\n"
    (tmp_path / "theirs.py").write_text(TORCH + theirs + run)
    ours = "import numpy as np\n\nclass Decays(nn.Layer):\n    def __init__(self):\n        super().__init__()\n"
    ours += '        rate = np.random.uniform(1.0, 16.0, 48).astype("float32")\n'
    (tmp_path / "decays.py").write_text(PADDLE + ours + f"        self.decay = self.create_parameter([48], {given})\n" + run)
    status, said, record = audit(port=f"{tmp_path}/decays.py:Decays", reference="Decays")
    assert status == count and [one["location"] for one in record["mistakes"]] == ["decay"] * count, said.out
    known = [one["location"] for one in record["known_differences"]]
    assert known == ["decay"] * (case in ("left to the framework", "zeros, as the framework fills a bias"))
    if count:
        words = record["mistakes"][0]["hint"]
        assert "distributed as exp(x) of the reference's x" in words and "the port's source sets this initialiser" in words
