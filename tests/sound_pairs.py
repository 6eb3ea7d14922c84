"""Correct ports of other people's kinds of networks, which an audit must pass: python -m tests.sound_pairs [--seeds N ...].

Each pair is audited as ``python -m alignment audit --training`` does: forward and backward in evaluation and training mode, with
other random weights, inputs and dropout masks for every seed. Two differences are no false alarms, since the frameworks have them
themselves: the distribution of fresh weights, and the biased variance of Paddle's BatchNorm.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import mobilenetv3_ref  # noqa: F401  (before anything of torchvision)

import numpy as np  # isort: skip

from alignment.cli import main as alignment
from tests.conftest import ROOT

KNOWN = ("initialisation", "biased_variance")
Arrays = Callable[[np.random.Generator], Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class SoundPair:
    """Files below ``tests/``, the classes in them, and the input: a shape, a function of the reference's file, or arrays."""

    ours: str
    theirs: str
    port: str
    reference: str
    given: str | Arrays


def _words(rng: np.random.Generator) -> Mapping[str, np.ndarray]:
    numbers = rng.integers(1, 20, (9, 9))
    numbers[::3, 7:] = 0  # padding
    return {"x": numbers}


def _graph(rng: np.random.Generator) -> Mapping[str, np.ndarray]:
    edges = np.triu((rng.random((7, 7)) > 0.5).astype(np.float32), 1)
    return {"x": rng.standard_normal((7, 6)).astype(np.float32), "edges": edges + edges.T}


def _sentence(rng: np.random.Generator) -> Mapping[str, np.ndarray]:
    return {"source": rng.integers(1, 20, (3, 7))}


def _tokens(rng: np.random.Generator) -> Mapping[str, np.ndarray]:
    return {"tokens": rng.integers(0, 20, (3, 7))}


def _pairs() -> Iterator[tuple[str, SoundPair]]:
    for port, reference, given in (
        ("ViT", "ViT", "2x3x16x16"), ("ViT", "ViTHead", "2x3x16x16"), ("LSTMNet", "LSTMNet", "2x7x6"),
        ("Gates", "LSTMNet", "2x7x6"), ("Encoder", "Encoder", "2x7x16"), ("Encoder", "EncoderSeq", "2x7x16"),
        ("Towers", "Towers", "2x3x12x10"), ("ResNet", "ResNet", "2x3x16x12"),
    ):  # fmt: skip
        yield f"{port} of {reference}", SoundPair("pairs/ours.py", "pairs/theirs.py", port, reference, given)
    sequences: dict[str, str | Arrays] = {
        **dict.fromkeys(("Classifier", "PreNorm", "Tagger", "Translator"), _words),
        **dict.fromkeys(("Speech", "Fused", "Pooling", "Regressor"), "3x9x6"),
        "Patch": "2x3x16x12", "ConvGRU": "2x3x8x12", "Detector": "2x3x9x12",
    }  # fmt: skip
    outputs: dict[str, str | Arrays] = {
        **dict.fromkeys(("Detector", "UNet", "Segmenter", "Tagger", "MultiTask"), "2x3x13x22"),
        "AutoEncoder": "2x6", "Heads": "2x6", "Pyramid": "2x3x33x21",
        "TextEncoder": "tokens", "Clip": "clip", "Tabular": "columns", "WithLoss": "labelled", "Pair": "two",
    }  # fmt: skip
    forms: dict[str, tuple[str, str | Arrays]] = {
        "Reader": ("form", "2x1x6x9"), "Patches": ("form", "2x3x4x12"), "Styles": ("form", "2x8"), "Tables": ("form", "2x5x8"),
        "Capsules": ("capsules", "2x1x11x11"), "Graph": ("graph", _graph), "Sentence": ("sentence", _sentence),
        "GPT": ("decoder", "tokens"), "Bert": ("decoder", "tokens"), "Seq": ("decoder", "tokens"),
        "Windows": ("windows", "2x16x16"), "Deep": ("branches", "2x3x32x32"), "Text": ("own", "2x7x8"), "Faint": ("own", "4x6"),
        "Wave": ("own", "2x6x9"), "Points": ("own", "2x3x10"), "Places": ("own", "2x3x5x7"), "Grid": ("own", "2x3x5x7"),
        "Style": ("own", "2x7"), "Soft": ("experts", "4x8"), "Square": ("experts", "4x8"), "Bank": ("experts", "4x8"),
        "Sparse": ("experts", _tokens), "Recurrent": ("outer", _tokens), "Relative": ("outer", _tokens),
        **dict.fromkeys(("Conditional", "Additive", "Highway", "Rotary"), ("joined", _tokens)), "Twice": ("joined", "3x4x9"),
        **dict.fromkeys(("Pixels", "Context"), ("joined", "2x3x9x7")), "Angles": ("joined", "4x6"), "Skips": ("joined", "2x6x9"),
        "Scan": ("scan", "2x6x5"),
    }  # fmt: skip
    for name, given in sequences.items():
        yield name, SoundPair("pairs/sequence_ours.py", "pairs/sequence_theirs.py", name, name, given)
    for name, given in outputs.items():
        yield f"{name} with its outputs", SoundPair("outputs/ours.py", "outputs/theirs.py", name, name, given)
    for name, (file, given) in forms.items():
        yield name, SoundPair(f"forms/{file}_ours.py", f"forms/{file}_theirs.py", name, name, given)
    for name, file, given in (("turned", "turned_", "2x3x20x12"), ("carried", "carried_", "2x3x16x16"), ("other", "", "2x3x32x32")):
        yield f"a network of {name} form", SoundPair(f"forms/{file}ours.py", f"forms/{file}theirs.py", "Net", "Net", given)


PAIRS = dict(_pairs())


@dataclass(frozen=True)
class Audited:
    """One audit: exit status, the findings that are not known differences, and the last lines of what was printed."""

    pair: str
    seed: int
    status: int
    findings: tuple[dict[str, Any], ...]
    words: str
    seconds: float


def audited(name: str, pair: SoundPair, seed: int) -> Audited:
    """Audit one pair in this process; a pair may name another file for its port."""
    begun = time.perf_counter()
    ours, theirs = (ROOT / "tests" / file for file in (pair.ours, pair.theirs))
    with tempfile.TemporaryDirectory() as made, contextlib.redirect_stdout(io.StringIO()) as out:
        folder = Path(made)
        if callable(pair.given):
            np.savez(folder / "input.npz", **pair.given(np.random.default_rng(seed)))  # type: ignore[arg-type]
            given = str(folder / "input.npz")
        else:
            given = f"{theirs}:{pair.given}" if pair.given.isidentifier() else pair.given
        accepted = [flag for kind in KNOWN for flag in ("--accept", kind)]
        sides = ["--port", f"{ours}:{pair.port}", "--reference", f"{theirs}:{pair.reference}", "--input", given]
        with contextlib.redirect_stderr(out):
            status = alignment(["audit", *sides, "--training", "--seed", str(seed), "--report", str(folder / "report"), *accepted])
        record = folder / "report" / "alignment.json"
        found = json.loads(record.read_text())["localization"] or {} if record.is_file() else {}
    findings = tuple(one for one in found.get("every", []) if one["kind"] not in KNOWN)
    return Audited(name, seed, status, findings, out.getvalue()[-400:], time.perf_counter() - begun)


def audited_with(name: str, before: str, after: str, folder: Path) -> Audited:
    """Audit one pair with a mistake: a piece of the port's source, which must stand there once, is another one."""
    source = (ROOT / "tests" / PAIRS[name].ours).read_text()
    assert source.count(before) == 1
    (folder / "ours.py").write_text(source.replace(before, after))
    return audited(name, replace(PAIRS[name], ours=str(folder / "ours.py")), 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], metavar="N", help="(default: 0)")
    parser.add_argument("--only", nargs="+", choices=PAIRS, default=list(PAIRS), metavar="NAME", help="(default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every audit here")
    args = parser.parse_args()
    made = []
    for seed, name in itertools.product(args.seeds, args.only):
        made.append(one := audited(name, PAIRS[name], seed))
        alarms = ", ".join(f"{found['kind']} in {found['location']}" for found in one.findings)
        verdict = "silent" if not one.status else f"ALARM: {alarms or one.words}"
        print(f"{name:<28} seed {seed}  {one.seconds:5.1f} s  {verdict}", flush=True)
        if args.json:
            args.json.write_text(json.dumps([asdict(one) for one in made], indent=1) + "\n")
    false, refused = sum(one.status == 1 for one in made), sum(one.status > 1 for one in made)
    print(f"{len(args.only)} correct pairs, {len(made)} audits: {false} with a false alarm, {refused} refused")
    return 1 if false or refused else 0


if __name__ == "__main__":
    sys.exit(main())
