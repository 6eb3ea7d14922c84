"""The flags of ``bench``."""

from __future__ import annotations

from pathlib import Path

from alignment.flags import PRECISIONS, RESULT
from mobilenetv3_common.config_file import Parser

# Flags of bench -> what heeds them.
HEEDED = {
    "inject": ("faults", "source_faults", "functional_faults"),
    "padiff": ("faults", "layer_faults"),
    **dict.fromkeys(("models", "options"), ("false_alarms",)),
    "localize": ("false_alarms", "mutants"),
    "jobs": ("mutants", "source_faults", "rewrites"),
    "layers": ("together",),
    **dict.fromkeys(("count", "seed"), ("mutants", "together")),
    **dict.fromkeys(("resume", "suite"), ("mutants",)),
}


def bench_parser() -> Parser:
    """The flags of ``bench``."""
    p = Parser(
        prog="python -m alignment bench",
        description="Measure the engine on a project: are its known faults found, does a correct port ever fail, and how much of "
        "the port's source do the steps examine? Exit status: 0 as it should be, 1 not, 2 the input cannot be used.",
    )
    p.add_argument("project", type=Path, help="a Python file that defines PROJECT")
    what = p.add_mutually_exclusive_group()
    what.add_argument("--faults", action="store_true", help="inject every known fault in turn (the default)")
    what.add_argument("--false-alarms", action="store_true", help="run the steps on the correct port with many random weights")
    what.add_argument(
        "--mutants", nargs="+", metavar="PACKAGE", help="run the steps on small changes of these packages, modules or files"
    )
    what.add_argument("--source-faults", action="store_true", help="run the steps on known faults that are edits of the source")
    what.add_argument(
        "--functional-faults",
        action="store_true",
        help="mistakes between the layers, as edits of the source: is the line of each found, and does no correct rewrite fail?",
    )
    what.add_argument(
        "--layer-faults",
        action="store_true",
        help="wrong settings of single layers, from a file that defines PAIRS, and its correct pairs",
    )
    what.add_argument(
        "--together", type=int, metavar="N", help="plant N known faults of the model at once: does one search find all?"
    )
    p.add_argument(
        "--layers",
        type=Path,
        metavar="FILE",
        help="together: also draw from the wrong settings of single layers in this file, e.g. projects/layers/pairs.py",
    )
    what.add_argument("--rewrites", action="store_true", help="run the steps on correct rewrites of the source: none may fail")
    p.add_argument(
        "--steps",
        default=None,
        metavar="1-6",
        help="of the faults, false alarms or mutants (default: all; false alarms: 1,4,5; mutants: those that could detect each)",
    )
    p.add_argument("--inject", metavar="NAME", help="this fault alone")
    p.add_argument("--padiff", type=Path, metavar="DIR", help="also run PaDiff on the faults; DIR is where it is installed")
    p.add_argument("--precision", choices=PRECISIONS, help="steps 1, 4 and 5 in this precision alone")
    p.add_argument("--result-dir", type=Path, default=RESULT, metavar="DIR", help=f"where the results go (default: {RESULT})")
    p.add_argument("--models", nargs="+", metavar="NAME", help="false alarms: of these models (default: all)")
    p.add_argument(
        "--options", nargs="+", metavar="KEY=VALUE", help="false alarms: with these options (default: the variants of each model)"
    )
    p.add_argument("--seeds", type=int, default=20, help="false alarms, correct pairs: random weights of each (default: 20)")
    p.add_argument(
        "--localize",
        action="store_true",
        help="false alarms: what does localisation find in the correct port? mutants: locate each that a step kills",
    )
    p.add_argument("--ranks", type=int, metavar="N", help="the faults, or false alarms, of training on N processes")
    p.add_argument("--jobs", type=int, default=2, help="edits of the source: attempts at a time, one thread each (default: 2)")
    p.add_argument(
        "--count",
        type=int,
        default=100,
        help="mutants: how many, an equal share of each package; together: groups of faults (default: 100)",
    )
    p.add_argument("--seed", type=int, default=0, help="mutants, together: which ones are drawn (default: 0)")
    p.add_argument("--resume", action="store_true", help="mutants: keep what mutants.jsonl in the result folder has")
    p.add_argument("--suite", default="", metavar="COMMAND", help="mutants: also run this command on the survivors")
    return p


def ablate_parser() -> Parser:
    """The flags of ``bench ablate``."""
    p = Parser(
        prog="python -m bench ablate",
        description="Remove the hypotheses of the engine one at a time, run the fast tests of each without it, and list those that "
        "no test misses. Exit status: 0 none survives, 1 some do, 2 the input cannot be used.",
    )
    p.add_argument("families", nargs="*", metavar="FAMILY", help="of these families alone, e.g. convolution (default: all)")
    p.add_argument("--jobs", type=int, default=2, help="hypotheses at a time, one process each (default: 2)")
    p.add_argument("--resume", action="store_true", help="keep what ablate.jsonl in the result folder has of the same source files")
    p.add_argument("--result-dir", type=Path, default=RESULT, metavar="DIR", help=f"where the results go (default: {RESULT})")
    return p


def real_parser() -> Parser:
    """The flags of ``bench real``."""
    p = Parser(
        prog="python -m bench real",
        description="Audit minimal pairs of real bugs from public histories, broken and fixed: is each detected, located and "
        "named, and is the audit silent on the fixed version? Exit status: 0 all detected and no alarm, 1 not, "
        "2 the input cannot be used.",
    )
    p.add_argument("--only", nargs="+", metavar="ID", help="these cases alone (default: all)")
    half = p.add_mutually_exclusive_group()
    half.add_argument("--held-out", action="store_true", help="the half that is kept apart")
    half.add_argument("--open", action="store_true", help="the other half")
    what = p.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="list the cases and their links")
    what.add_argument("--check", action="store_true", help="hold the pairs to what they say, without the engine")
    what.add_argument("--resume", action="store_true", help="keep what real.jsonl in the result folder has")
    p.add_argument("--result-dir", type=Path, default=RESULT, metavar="DIR", help=f"where the results go (default: {RESULT})")
    return p


def patches_parser() -> Parser:
    """The flags of ``bench patches``."""
    p = Parser(
        prog="python -m bench patches",
        description="Make known mistakes in the source of a copy, audit it or run the step that owes each, apply the patch that "
        "is found, and verify the patched copy with other weights. Exit status: 0 at least 85 % end with a verified patch, "
        "1 fewer, 2 unusable.",
    )
    p.add_argument(
        "lists", nargs="*", default=["functional", "layers"], metavar="LIST",
        help="functional, layers or edits, those of a project's source (default: functional and layers)",
    )  # fmt: skip
    p.add_argument("--sample", type=int, metavar="N", help="of each list N mistakes, spread over their kinds (default: all)")
    p.add_argument("--seed", type=int, default=0, help="which ones are drawn (default: 0)")
    p.add_argument("--budget", type=float, default=120.0, metavar="SECONDS", help="for the search of one correction (default: 120)")
    p.add_argument("--resume", action="store_true", help="keep what patches.jsonl in the result folder has")
    p.add_argument("--functional", type=Path, default=Path("projects/functional/project.py"), metavar="FILE",
                   help="project of the functional mistakes")  # fmt: skip
    p.add_argument("--layers", type=Path, default=Path("projects/layers/pairs.py"), metavar="FILE",
                   help="file that defines PAIRS")  # fmt: skip
    p.add_argument("--edits", type=Path, default=Path("projects/mobilenetv3/project.py"), metavar="FILE",
                   help="project that lists edits of its source")  # fmt: skip
    p.add_argument("--steps", metavar="1-6", help="edits that these steps owe (default: all)")
    p.add_argument("--jobs", type=int, default=2, help="edits: candidates at a time, one thread each (default: 2)")
    p.add_argument("--result-dir", type=Path, default=RESULT, metavar="DIR", help=f"where the results go (default: {RESULT})")
    return p


def planted_parser() -> Parser:
    """The flags of ``bench planted``."""
    p = Parser(
        prog="python -m bench planted",
        description="Train both sides on digits, the port with one small difference at a time, and judge the final accuracies by "
        "the test of equivalence. Exit status: 0 no difference above a margin is called equal, 1 one is, 2 unusable.",
    )
    p.add_argument("project", nargs="?", type=Path, default=Path("tests/pairs/two_small.py"), metavar="FILE",
                   help="defines PROJECT, of two sides that train (default: tests/pairs/two_small.py)")  # fmt: skip
    p.add_argument("--seeds", type=int, default=10, metavar="N", help="pairs of runs for each difference (default: 10)")
    p.add_argument("--epochs", type=int, default=12, metavar="N", help="of each run (default: 12)")
    p.add_argument("--margin", type=float, nargs="+", default=[0.15, 1.0], metavar="POINTS", help="(default: 0.15 1)")
    p.add_argument("--names", metavar="NAME,NAME", help="these differences alone (default: all)")
    p.add_argument("--resume", action="store_true", help="keep what planted.jsonl in the result folder has")
    p.add_argument("--result-dir", type=Path, default=RESULT, metavar="DIR", help=f"where the results go (default: {RESULT})")
    return p
