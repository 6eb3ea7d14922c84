"""``python -m alignment dump``, and ``audit --port-dump A --reference-dump B``."""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from alignment.aligned import Aligned
from alignment.audit import markdown
from alignment.audit.command import STEPS
from alignment.audit.inputs import chosen_inputs
from alignment.audit.pair import ModelMaker, arguments
from alignment.comparisons.explain import locate
from alignment.coverage import Coverage
from alignment.dumps import judge, make
from alignment.dumps.store import Reader, read
from alignment.flags import shown
from alignment.frameworks import framework_of
from alignment.models.names import NameMap, read_map
from alignment.report import results, table
from alignment.report.environment import machine, versions
from alignment.report.results import print_json
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open, ensure_writable_dir
from mobilenetv3_common.json_output import writable


def dump(args: argparse.Namespace) -> int:
    """Write what one side computes to a folder; exit status 0.

    Raises:
        UserError: what was given cannot be used.
    """
    _refuse(args)
    maker = ModelMaker("dump", args.model, arguments("--args", args.args))
    network = maker.made()
    try:
        framework = framework_of(network)
    except UserError as error:
        raise UserError(f"{maker.title} makes a {type(network).__name__}: {error.line}") from error
    if args.framework not in (None, framework.name):
        raise UserError(f"--framework {args.framework}: {args.model} makes a model of {framework.title} ({framework.name})")
    ensure_writable_dir(args.out)
    framework.use(args.device)
    subject = make.DumpSubject(maker, framework, network, args.training)
    reader = None if args.reference_dump is None else read("--reference-dump", args.reference_dump, "reference")
    if reader is None:
        inputs = chosen_inputs(args.input, framework, network)
        writer, content = make.reference(
            subject, inputs, weights_from=args.weights, take=args.checkpoint_weights, seed=args.seed, device=args.device
        )
    else:
        if args.training and not reader.content["training"]:
            raise UserError(f"--training: --reference-dump {args.reference_dump} was made without --training")
        names = NameMap() if args.names is None else read_map(args.names)
        if names.links:
            raise UserError(
                f"--names {args.names}: a dump holds whole tensors: entries under 'tensors' are for an audit in one process"
            )
        writer, content = make.port(subject, reader, names.modules, args.device)
    about = {
        "framework": framework.name,
        "title": framework.title,
        "model": args.model,
        "arguments": dict(maker.arguments),
        "training": args.training,
        "device": args.device,
        "seed": args.seed if reader is None else reader.content["seed"],
        "environment": {**machine(), **versions()},
    }
    writer.save(args.out, {**content, **about})
    print(f"{shown(args.out)}: dump of the {content['role']} {args.model} ({framework.title})")
    if reader is None:
        print(f"input: {content['input']['words']}; {content['weights']['name']} weights")
    elif content["problem"]:
        print(f"the port could not be run: {content['problem']['words']}; the audit says where")
    return 0


def _refuse(args: argparse.Namespace) -> None:
    """See that the flags go together.

    Raises:
        UserError: they do not.
    """
    if args.seed < 0:
        raise UserError(f"--seed must be 0 or more, found {args.seed}")
    given = [flag for flag in ("input", "weights") if getattr(args, flag) is not None] + (["seed"] if args.seed else [])
    if args.reference_dump is not None and given:
        raise UserError(f"--{given[0]} does not go with --reference-dump, which holds the weights and the input")
    if args.names is not None and args.reference_dump is None:
        raise UserError("--names goes with --reference-dump: it says what the port calls the reference's modules")


def audit(args: argparse.Namespace, flags: Sequence[str]) -> int:
    """Compare two dumps; exit status 0 where no step failed, else 1.

    Raises:
        UserError: a dump cannot be used, or the two do not belong together.
    """
    port = read("--port-dump", args.port_dump, "port")
    reference = read("--reference-dump", args.reference_dump, "reference")
    dumps = judge.opened(port, reference)
    context = dumps.context
    ensure_writable_dir(args.report)
    writable(args.json_file, "--json-file")
    with contextlib.redirect_stdout(sys.stderr) if args.json else contextlib.nullcontext():
        print(f"port {_named(port)}, reference {_named(reference)}, from dumps")
        print(f"input: {reference.content['input']['words']}; {context.material.weights.name} weights")
        steps = judge.compared(dumps, bool(args.training))
        for one in steps:
            print(f"step {one.step} {one.name} ... {one.verdict} in {one.seconds:.1f} s")
        localization = locate(context, steps, with_table=False)
        covered = Coverage(list(dict.fromkeys(topic for one in steps for topic in one.covers)))
        results.write_results(
            args.report, context, steps, localization, covered, STEPS, flags, ["python", "-m", "alignment", "audit", *flags]
        )
        print(f"\n{table.table(steps)}\n")
        said = table.explanation(steps, localization) or [table.verdict(context, steps, STEPS), *covered.lines()]
        print("\n".join([*said, *table.notes(context)]))
        _write(args.report, dumps, Aligned(steps, localization, covered), flags)
        print(f"{shown(args.report / 'report.md')}: to paste into a pull request")
    print_json(args)
    return 1 if any(one.failed for one in steps) else 0


def _named(reader: Reader) -> str:
    return f"{reader.content['model']} ({reader.content['title']})"


def _write(folder: Path, dumps: judge.Dumps, aligned: Aligned, flags: Sequence[str]) -> None:
    """The Markdown block, and the environments of both dumps in alignment.json."""
    sides = {"port": dumps.port.content, "reference": dumps.reference.content}
    about = {
        **{f"{role} made by": ", ".join(f"{k} {v}" for k, v in one["environment"].items()) for role, one in sides.items()},
        **{f"{role} on": one["device"] for role, one in sides.items()},
        "weights": f"{dumps.context.material.weights.name}, SHA-256 {sides['reference']['weights']['sha256']}",
        "input": f"{sides['reference']['input']['words']}; SHA-256 of two samples {sides['reference']['input']['sha256']}",
        "seed": str(dumps.context.seed),
    }
    command = shlex.join(["python", "-m", "alignment", "audit", *flags])
    with atomic_open(folder / "report.md", "w") as file:
        file.write(markdown.block(dumps.context, aligned, STEPS, command, about))
    summary = json.loads((folder / "alignment.json").read_text(encoding="utf-8"))
    with atomic_open(folder / "alignment.json", "w") as file:
        json.dump(summary | {"audit": {"command": command, **about}}, file, indent=1)
        file.write("\n")
