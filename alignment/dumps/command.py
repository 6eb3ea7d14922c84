"""``python -m alignment dump``, and ``audit --port-dump A --reference-dump B``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from alignment.aligned import Aligned
from alignment.audit.command import STEPS
from alignment.audit.inputs import chosen_inputs
from alignment.audit.judged import reported
from alignment.audit.pair import ModelMaker, arguments
from alignment.dumps import judge, make
from alignment.dumps.others import command as others
from alignment.dumps.others.recording import DumpOfOthers, opened
from alignment.dumps.store import Reader, is_own, read
from alignment.flags import shown
from alignment.frameworks import framework_of
from alignment.models.names import NameMap, read_map
from alignment.report.environment import machine, versions
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import ensure_writable_dir
from mobilenetv3_common.json_output import writable


def dump(args: argparse.Namespace) -> int:
    """Write what one side computes to a folder; exit status 0.

    Raises:
        UserError: what was given cannot be used.
    """
    return dumped(args, ModelMaker("dump", args.model, arguments("--args", args.args)))


def dumped(args: argparse.Namespace, maker: ModelMaker) -> int:
    """Write what the model of a callable computes; as ``dump``.

    Raises:
        UserError: as ``dump``.
    """
    _refuse(args)
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
    return audited(args, flags)[0].status


def audited(args: argparse.Namespace, flags: Sequence[str]) -> tuple[Aligned, str]:
    """Compare two dumps, and write the report; returns what was found, and the verdict in one line.

    Raises:
        UserError: as ``audit``.
    """
    if foreign := _of_others(args):
        return others.audited(args, flags, *foreign)
    if args.names is not None:
        raise UserError("--names does not go with two dumps of this engine: the port's was made with its map")
    port = read("--port-dump", args.port_dump, "port")
    reference = read("--reference-dump", args.reference_dump, "reference")
    dumps = judge.opened(port, reference)
    ensure_writable_dir(args.report)
    writable(args.json_file, "--json-file")
    said = [
        f"port {_named(port)}, reference {_named(reference)}, from dumps",
        f"input: {reference.content['input']['words']}; {dumps.context.material.weights.name} weights",
    ]
    return reported(args, flags, dumps.context, said, lambda: judge.compared(dumps, bool(args.training)), _about(dumps), STEPS)


def _of_others(args: argparse.Namespace) -> tuple[DumpOfOthers, DumpOfOthers] | None:
    """Both dumps, where other tools wrote them; None where they are this engine's, or nothing that is known.

    Raises:
        UserError: one alone is another tool's, or damaged.
    """
    given = {"--port-dump": args.port_dump, "--reference-dump": args.reference_dump}
    found = {flag: None if is_own(place) else opened(flag, place) for flag, place in given.items()}
    port, reference = found.values()
    if port is not None and reference is not None:
        return port, reference
    if other := next((one for one in (port, reference) if one is not None), None):
        flag, place = next((flag, place) for flag, place in given.items() if found[flag] is None)
        if is_own(place):
            raise UserError(
                f"{flag} {place} is a dump of this engine, the other one of {other.tool}: they were made with other weights and "
                "inputs; dump both sides with one of the two"
            )
    return None


def _named(reader: Reader) -> str:
    return f"{reader.content['model']} ({reader.content['title']})"


def _about(dumps: judge.Dumps) -> dict[str, str]:
    """The environments of both dumps."""
    sides = {"port": dumps.port.content, "reference": dumps.reference.content}
    return {
        **{f"{role} made by": ", ".join(f"{k} {v}" for k, v in one["environment"].items()) for role, one in sides.items()},
        **{f"{role} on": one["device"] for role, one in sides.items()},
        "weights": f"{dumps.context.material.weights.name}, SHA-256 {sides['reference']['weights']['sha256']}",
        "input": f"{sides['reference']['input']['words']}; SHA-256 of two samples {sides['reference']['input']['sha256']}",
        "seed": str(dumps.context.seed),
    }
