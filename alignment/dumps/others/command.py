"""``audit --port-dump A --reference-dump B`` of dumps that other tools wrote."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import cast

from alignment.aligned import Aligned
from alignment.audit.judged import reported
from alignment.comparisons.context import Context
from alignment.comparisons.material import Weights
from alignment.dumps.others.judge import Comparing
from alignment.dumps.others.recording import DumpOfOthers
from alignment.dumps.store import Reader
from alignment.dumps.stored import StoredModule, StoredSide
from alignment.frameworks.base import Framework, Layer
from alignment.models.counterparts import Matching
from alignment.models.matching import Matched
from alignment.models.names import NameMap, read_map
from alignment.project import ModelSpec, Project, Side
from alignment.report.environment import machine
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import ensure_writable_dir
from mobilenetv3_common.json_output import writable

STEPS = (1, 5)
NOT_COMPARED = (
    "anything in float64: a mistake smaller than float32's rounding is not seen",
    "settings of layers, training mode, updates, fresh weights and other inputs: the dumps hold values of one pass alone",
    "causes: no model runs, so a mistake is located and not named",
)


def audited(args: argparse.Namespace, flags: Sequence[str], port: DumpOfOthers, reference: DumpOfOthers) -> tuple[Aligned, str]:
    """Compare two dumps, and write the report; returns what was found, and the verdict in one line.

    Raises:
        UserError: training mode is asked for, the dumps do not belong together, or a file is damaged.
    """
    if args.training:
        raise UserError(f"--training: a dump of {reference.tool} does not say in which mode it was made; leave the flag out")
    names = NameMap() if args.names is None else read_map(args.names)
    if names.links:
        raise UserError(
            f"--names {args.names}: a dump holds whole tensors: entries under 'tensors' are for an audit in one process"
        )
    comparing = Comparing(port, reference, names.modules)
    steps = [comparing.forward()]
    steps.append(comparing.backward(steps[0]))
    ensure_writable_dir(args.report)
    writable(args.json_file, "--json-file")
    said = [f"port {_named(port)}, reference {_named(reference)}, from dumps of other tools"]
    return reported(args, flags, _context(port, reference), said, lambda: steps, _about(port, reference), STEPS)


def _named(one: DumpOfOthers) -> str:
    return f"{one.folder} ({one.tool}{f', {one.framework}' if one.framework else ''}, {len(one.values)} values)"


def _context(port: DumpOfOthers, reference: DumpOfOthers) -> Context:
    title, empty = f"{port.folder} and {reference.folder}", StoredModule(Layer("other", {}, "dump"))
    sides = [Side(cast(Framework, StoredSide(Reader(one.folder, _side(one), "", None)))) for one in (port, reference)]
    spec = ModelSpec(lambda: empty, lambda: empty, input_shape=(1,))
    context = Context(Project(title, sides[0], sides[1], {title: spec}), given_state={}, not_held=NOT_COMPARED)
    return context.knowing(weights=Weights({}, "the dumps'", {}, False), matched=Matched(Matching(), {}))


def _side(one: DumpOfOthers) -> dict[str, str]:
    """What is known of a side: its name alone."""
    return {"framework": one.framework, "title": one.framework or one.tool}


def _about(port: DumpOfOthers, reference: DumpOfOthers) -> dict[str, str]:
    return {**machine(), **{f"{role} from": _named(one) for role, one in (("port", port), ("reference", reference))}}
