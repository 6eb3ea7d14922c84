"""``python -m alignment audit``: is one model that somebody can name the port of another?"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from alignment.accepted import parse
from alignment.aligned import Aligned, Request, align
from alignment.audit import fixes, markdown, tried
from alignment.audit.inputs import numbered
from alignment.audit.pair import AuditPair, ModelMaker, arguments, digest, name_map, pair_of
from alignment.audit.trial import Trials
from alignment.comparisons.context import Context
from alignment.finding import Finding
from alignment.flags import audit_name, shown
from alignment.models.names import NameMap, read_map
from alignment.repair import search
from alignment.repair.edits import Fix, diff
from alignment.report.environment import commit, machine
from alignment.report.results import print_json
from alignment.report.sections import LEFT_OUT
from alignment.strangers import strangers
from mobilenetv3_common.counted import counted
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open, ensure_writable_dir, regular_file
from mobilenetv3_common.json_output import writable
from mobilenetv3_common.terminal import show

ANEW = (("_g", "_v"), ("_orig", "_u"))  # how tensors of weight and of spectral normalisation end
ALONE = {"port": "missing", "reference": "extra"}  # kind of what a side does not have
MOST_UPDATES = 100
BY_HAND = "correct the first mistake by hand, at the line that the report shows, and run the audit again"
STEPS = (1, 5)  # those that need no part besides the models


def audit(args: argparse.Namespace, flags: Sequence[str]) -> int:
    """Align the two models of ``alignment.flags.audit_parser``'s flags; exit status 0 where no step failed, else 1.

    Raises:
        UserError: what was given cannot be used.
    """
    port = ModelMaker("--port", args.port, arguments("--port-args", args.port_args))
    reference = ModelMaker("--reference", args.reference, arguments("--reference-args", args.reference_args))
    return audited(args, flags, port, reference).status


Correct = Callable[[argparse.Namespace, Context, Sequence[Finding], list[Fix]], list[Fix]]


def _searched(args: argparse.Namespace, context: Context, mistakes: Sequence[Finding], known: list[Fix]) -> list[Fix]:
    """The corrections that are known; with ``--try-patch`` others are searched for."""
    if not args.try_patch:
        return known
    said = lambda outcome: show(f"patch: {outcome.line()}")  # noqa: E731
    places = [(one.location, str(one.kind)) for one in mistakes]
    likely = [search.likely(context, one) for one in mistakes]
    trials = Trials(tried.job_of(args, context, mistakes))
    return search.corrections(known, places, likely, trials, args.patch_budget, said)


def audited(
    args: argparse.Namespace, flags: Sequence[str], port: ModelMaker, reference: ModelMaker, correct: Correct = _searched
) -> Aligned:
    """Align what two callables make, and write the report; ``correct`` adds to the corrections that are known.

    Raises:
        UserError: as ``audit``.
    """
    if args.seed < 0:
        raise UserError(f"--seed must be 0 or more, found {args.seed}")
    if not 0 <= args.updates <= MOST_UPDATES:
        raise UserError(f"--updates must be 0 to {MOST_UPDATES}, found {args.updates}")
    parse(args.accept)  # what cannot be used ends the command at once
    ensure_writable_dir(args.report)
    writable(args.json_file, "--json-file")
    if args.write_patch is not None:
        ensure_writable_dir(args.write_patch.resolve().parent)
        regular_file(args.write_patch)
    pair = pair_of(port, reference, args.input, initialisation=args.training is not False)
    pair.project.use(args.device)
    names = NameMap() if args.names is None else read_map(args.names)
    context = Context(
        pair.project,
        weights_from=args.weights,
        take=args.checkpoint_weights,
        calibrate=args.calibrate,
        names=names.modules,
        links=names.links,
        seed=args.seed,
        device=args.device,
        precision=args.precision or "",
        updates=args.updates,
        without_training=LEFT_OUT if args.training is False else "",
    )
    _check_outputs(args, context, pair)
    _check_reparametrised(context)
    if args.training and (why := context.unshared_randomness):
        raise UserError(f"--training: {why.removeprefix('training mode: ')}; without this flag it is left out")
    with contextlib.redirect_stdout(sys.stderr) if args.json else contextlib.nullcontext():
        show(f"port {args.port} ({context.port.framework.title}), reference {args.reference} ({context.reference.framework.title})")
        show(f"input: {_input(pair)}")
        made: list[tuple[Fix, str]] = []
        aligned = align(context, _request(args, flags, functools.partial(_cards, made, args, correct)))
        _offer(args, made)
        written = _write(args.report, context, pair, aligned, flags)
        show(written)
    print_json(args, args.report)
    return aligned


def _request(args: argparse.Namespace, flags: Sequence[str], cards: Any) -> Request:
    command = [*audit_name().split(), *flags]
    wanted = Request(STEPS, STEPS, args.report, flags, args.localize, onward=True, accepts=parse(args.accept), command=command)
    return replace(wanted, strict=args.strict, budget=args.budget, covered=args.covered, cards=cards, searched=args.try_patch)


def _cards(
    made: list[tuple[Fix, str]], args: argparse.Namespace, correct: Correct, context: Context, mistakes: Sequence[Finding]
) -> tuple[list[list[str]], str]:
    """The card of each mistake, and what to do next; the corrections are kept in ``made``, with why there is none."""
    known, reasons = fixes.fixes_of(context, mistakes)
    found = correct(args, context, mistakes, known)
    made += [(fix, f"{one.location}: {why}") for fix, one, why in zip(found, mistakes, reasons, strict=True)]
    return fixes.cards(found, [one.source for one in mistakes]), _next(args, made)


def _next(args: argparse.Namespace, made: Sequence[tuple[Fix, str]]) -> str:
    """What to do about the mistakes, for people; nothing where there is none."""
    known = sum(bool(fix) for fix, _ in made)
    count = f"corrections of {known} of {counted(len(made), 'mistake')}"
    again = "and run the audit again"
    if not made:
        return ""
    if not known:
        return (
            f"no verified correction was found; {BY_HAND}" if args.try_patch else f"{BY_HAND}; --try-patch searches for corrections"
        )
    if known < len(made) and not args.try_patch:
        return f"{count} are shown; --try-patch searches for more, --write-patch FILE.diff writes them"
    if known < len(made):
        return f"{count} are shown; apply them, correct the others by hand, {again}"
    if args.write_patch is None:
        return f"apply the corrections that are shown (--write-patch FILE.diff writes them as one diff), {again}"
    return f"apply the corrections in {shown(args.write_patch)} with git apply or patch -p1, {again}"


def _offer(args: argparse.Namespace, made: Sequence[tuple[Fix, str]]) -> None:
    """Write the corrections, and try them, where that is asked for."""
    known = [fix for fix, _ in made if fix]
    count = f"{len(known)} of {counted(len(made), 'mistake')}"
    if args.write_patch is not None:
        _write_patch(args.write_patch, known, count, len(made))
        if not args.try_patch:
            for why in (why for fix, why in made if not fix):
                show(f"  no correction is known of {why}")
    if args.try_patch and made:
        show(tried.words(args, known) if known else "patch: no verified correction was found")
        if known and len(known) < len(made):
            show(f"patch: it corrects {count}; the copy still has the others")


def _write_patch(file: Path, known: Sequence[Fix], count: str, mistakes: int) -> None:
    """Write the corrections; where there is none, no file is left, and none of an earlier audit."""
    if known:
        with atomic_open(file, "w") as opened:
            opened.write(diff(known))
        show(f"{shown(file)}: corrections of {count}; apply them with git apply or patch -p1")
        return
    earlier = ", and the one of an earlier audit removed" if regular_file(file) else ""
    file.unlink(missing_ok=True)
    show(f"{shown(file)}: not written{earlier}: {f'corrections of {count}' if mistakes else 'there is no mistake to correct'}")


def _check_outputs(args: argparse.Namespace, context: Context, pair: AuditPair) -> None:
    """See that the two models return so many tensors; where their layers differ, too, these are the finding.

    Raises:
        UserError: they do not.
    """
    ours, theirs = pair.outputs
    if not ours or ours == theirs:
        return
    with strangers("port") as raised:  # whatever the port raises: the steps say so
        context.networks.build("port")
    if raised.error is not None:
        return
    if any(other.parameters for other in context.paired.matched.matching.unmatched):
        return
    raise UserError(
        f"--port {args.port} returns {ours} tensor{'s' if ours > 1 else ''} in evaluation mode, --reference {args.reference} "
        f"{theirs}: outputs that differ in number cannot be paired; give callables whose models return the same ones"
    )


def _check_reparametrised(context: Context) -> None:
    """See that no layer without a counterpart computes its weight anew in each pass: its tensors have none on the other side.

    Raises:
        UserError: one does.
    """
    with strangers("port") as raised:  # whatever the port raises: the steps say so
        alone = [other for other in context.paired.matched.matching.unmatched if other.parameters]
        models = (context.spec.port(), context.spec.reference()) if alone else ()
    if raised.error is not None:
        return
    for role, side, model in zip(context.sides, context.frameworks, models, strict=False):
        own = [entry.own for entry in side.entries(model)]
        for path in [other.own if role == "port" else other.path for other in alone if other.kind != ALONE[role]]:
            if path and (name := _made_anew([one for one in own if one.startswith(f"{path}.")])):
                raise UserError(
                    f"not compared: the {role} computes a weight anew in each pass ({name}: weight or spectral normalisation), and "
                    "the other side has no such tensors. Take it out in the callables of both sides, with "
                    'torch.nn.utils.parametrize.remove_parametrizations(layer, "weight") and '
                    "paddle.nn.utils.remove_weight_norm(layer)"
                )


def _made_anew(names: Sequence[str]) -> str:
    """The first of a module's tensors from which a weight is computed; ``""`` where there is none."""
    for name in names:
        if ".parametrizations." in f".{name}":
            return name
        for end, beside in ANEW:
            if name.endswith(end) and name.removesuffix(end) + beside in names:
                return name
    return ""


def _input(pair: AuditPair) -> str:
    small = pair.inputs.small
    return pair.inputs.words + (f"; {'x'.join(map(str, small))} where many passes are made" if small else "")


def _names(context: Context) -> NameMap:
    """The port's own names; none where it cannot be built, which the steps have said."""
    with strangers("port"):  # whatever a port raises that can be built but once
        return name_map(context.paired.matched, context.frameworks, (context.spec.port(), context.spec.reference()))
    return NameMap()


def _write(folder: Path, context: Context, pair: AuditPair, aligned: Aligned, flags: Sequence[str]) -> str:
    """The Markdown block, and the map of names where the port's own are others; returns what to say of them."""
    about = {
        **machine(),
        "commit": commit(),
        "weights": f"{context.material.weights.name}, SHA-256 {digest(context.material.weights.state)}",
        "input": f"{_input(pair)}; SHA-256 of two samples {digest(numbered(context.fake_inputs(2)))}",
        "seed": str(context.seed),
        "device": context.device,
    }
    command = shlex.join([*audit_name().split(), *flags])
    with atomic_open(folder / "report.md", "w") as file:
        file.write(markdown.block(context, aligned, STEPS, command, about))
    summary = json.loads((folder / "alignment.json").read_text(encoding="utf-8"))
    with atomic_open(folder / "alignment.json", "w") as file:
        json.dump(summary | {"audit": {"command": command, **about}}, file, indent=1)
        file.write("\n")
    names = _names(context)
    if not (names.modules or names.links):
        (folder / "map.yaml").unlink(missing_ok=True)  # of an earlier audit
        return f"{shown(folder / 'report.md')}: to paste into a pull request"
    with atomic_open(folder / "map.yaml", "w") as file:
        file.write(names.text())
    return f"{shown(folder / 'report.md')}: to paste into a pull request; {shown(folder / 'map.yaml')}: which layers were paired"
