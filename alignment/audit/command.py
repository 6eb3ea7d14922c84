"""``python -m alignment audit``: is one model that somebody can name the port of another?"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from alignment.accepted import parse
from alignment.aligned import Aligned, Request, align
from alignment.audit import fixes, markdown, tried
from alignment.audit.comparable import check_layers, check_outputs
from alignment.audit.inputs import numbered
from alignment.audit.pair import AuditPair, ModelMaker, arguments, digest, name_map, pair_of
from alignment.audit.trial import Trials
from alignment.comparisons.context import Context
from alignment.finding import Finding
from alignment.flags import audit_name, shown
from alignment.models.names import NameMap, read_map
from alignment.repair import search
from alignment.repair.edits import Fix, base, diff
from alignment.report.environment import commit, machine
from alignment.report.results import print_json
from alignment.report.sections import LEFT_OUT
from alignment.strangers import strangers
from mobilenetv3_common.counted import counted
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open, ensure_writable_dir, regular_file
from mobilenetv3_common.json_output import writable
from mobilenetv3_common.terminal import show

MOST_UPDATES = 100
STEPS = (1, 5)  # those that need no part besides the models


def audit(args: argparse.Namespace, flags: Sequence[str]) -> int:
    """Align the two models of ``alignment.flags.audit_parser``'s flags; exit status 0 where no step failed, else 1.

    Raises:
        UserError: what was given cannot be used.
    """
    port = ModelMaker("--port", args.port, arguments("--port-args", args.port_args))
    reference = ModelMaker("--reference", args.reference, arguments("--reference-args", args.reference_args))
    return audited(args, flags, port, reference).status


Correct = Callable[[argparse.Namespace, Context, Sequence[Finding], list[Fix], list[str]], list[Fix]]


def _searched(
    args: argparse.Namespace, context: Context, mistakes: Sequence[Finding], known: list[Fix], reasons: list[str]
) -> list[Fix]:
    """The corrections that are known; with ``--try-patch`` others are searched for, and ``reasons`` say why there is none."""
    if not args.try_patch:
        return known

    def said(outcome: search.Outcome) -> None:
        show(f"patch: {outcome.line()}")
        reasons.extend([] if outcome.found else [outcome.line()])

    places = [(one.location, str(one.kind)) for one in mistakes]
    likely = [search.likely(context, one) for one in mistakes]
    trials = Trials(tried.job_of(args, context, mistakes))
    reasons.clear()
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
    check_outputs(args.port, args.reference, pair.outputs, context)
    check_layers(context)
    if args.training and (why := context.unshared_randomness):
        raise UserError(f"--training: {why.removeprefix('training mode: ')}; without this flag it is left out")
    with contextlib.redirect_stdout(sys.stderr) if args.json else contextlib.nullcontext():
        show(f"port {args.port} ({context.port.framework.title}), reference {args.reference} ({context.reference.framework.title})")
        show(f"input: {_input(pair)}")
        offer = Offer()
        aligned = align(context, _request(args, flags, functools.partial(_cards, offer, args, correct)))
        _write_patch(args.write_patch, offer)
        written = _write(args.report, context, pair, aligned, flags)
        show(written)
    print_json(args, args.report)
    return aligned


def _request(args: argparse.Namespace, flags: Sequence[str], cards: Any) -> Request:
    command = [*audit_name().split(), *flags]
    wanted = Request(STEPS, STEPS, args.report, flags, args.localize, onward=True, accepts=parse(args.accept), command=command)
    return replace(wanted, strict=args.strict, budget=args.budget, covered=args.covered, cards=cards, searched=args.try_patch)


@dataclass
class Offer:
    """What an audit offers.

    Attributes:
        made: a correction of each mistake, empty where there is none.
        refused: whether the port still fails with a correction of every mistake.
        passed: whether a copy with the corrections passed: mistakes without one of their own went with those that have one.
        lined: whether the line of the first mistake is known.
    """

    made: list[Fix] = field(default_factory=list)
    refused: bool = False
    passed: bool = False
    lined: bool = True

    @property
    def by_hand(self) -> str:
        """What to do without a correction."""
        where = " at the line that the report shows," if self.lined else ""
        return f"correct the first mistake by hand,{where} and run the audit again"


def _cards(
    offer: Offer, args: argparse.Namespace, correct: Correct, context: Context, mistakes: Sequence[Finding]
) -> tuple[list[list[str]], list[str], str, bool]:
    """The card of each mistake, what came of the corrections, which ``offer`` keeps, what to do next, and whether a copy passed."""
    known, unknown = fixes.fixes_of(context, mistakes)
    named = zip(mistakes, unknown, strict=True)
    reasons = [f"no correction is known of {one.location}: {why}" for one, why in named if why and args.write_patch is not None]
    offer.made = made = correct(args, context, mistakes, known, reasons)
    tested = tried.verified(args, [fix for fix in made if fix]) if args.try_patch and any(made) else None
    said = [tested.words, *reasons] if tested else reasons
    offer.passed = tested is not None and tested.passed is True
    if tested and not all(made):
        left = "the others went with them" if offer.passed else "the copy still has the others"
        said.insert(1, f"the patch corrects {_count(made)}; {left}")
    offer.lined = not mistakes or bool(mistakes[0].source)
    offer.refused = tested is not None and tested.passed is False and all(made)
    return fixes.cards(made, [one.source for one in mistakes]), said, _next(args, offer), offer.passed


def _count(made: Sequence[Fix]) -> str:
    return f"{sum(map(bool, made))} of {counted(len(made), 'mistake')}"


def _next(args: argparse.Namespace, offer: Offer) -> str:
    """What to do about the mistakes, for people; nothing where there is none."""
    made = offer.made
    count = f"corrections of {_count(made)}"
    again = "and run the audit again"
    if not made:
        return ""
    if offer.refused:
        return f"do not apply the corrections as they are: with them the port still fails; {offer.by_hand}"
    if not any(made):
        return (
            f"no verified correction was found; {offer.by_hand}"
            if args.try_patch
            else f"{offer.by_hand}; --try-patch searches for corrections"
        )
    whole = all(made) or offer.passed
    if not whole and not args.try_patch:
        return f"{count} are shown; --try-patch searches for more, --write-patch FILE.diff writes them"
    if not whole:
        return f"{count} are shown; apply them, correct the others by hand, {again}"
    if args.write_patch is None:
        return f"apply the corrections that are shown (--write-patch FILE.diff writes them as one diff), {again}"
    return f"apply the corrections in {shown(args.write_patch)} with {_command(args.write_patch, made)}, {again}"


def _command(file: Path, made: Sequence[Fix]) -> str:
    """What applies a patch from the working folder."""
    folder = base(made)
    if folder == Path.cwd():
        return "git apply or patch -p1"
    return f"patch -d {shlex.quote(str(folder))} -p1 < {shlex.quote(shown(file))}"


def _write_patch(file: Path | None, offer: Offer) -> None:
    """Write the corrections where a file is given; where there is none, no file is left, and none of an earlier audit."""
    made = offer.made
    if file is None:
        return
    if any(made):
        with atomic_open(file, "w") as opened:
            opened.write(diff([fix for fix in made if fix]))
        how = "not verified, not to be applied as they are" if offer.refused else f"apply them with {_command(file, made)}"
        show(f"{shown(file)}: corrections of {_count(made)}; {how}")
        return
    earlier = ", and the one of an earlier audit removed" if regular_file(file) else ""
    file.unlink(missing_ok=True)
    why = f"corrections of {_count(made)}" if made else "there is no mistake to correct"
    show(f"{shown(file)}: not written{earlier}: {why}")


def _input(pair: AuditPair) -> str:
    small = pair.inputs.small
    if small is None:
        return pair.inputs.words
    size = "x".join(map(str, small))
    return f"{pair.inputs.words}; gradients and the search run on {size}: smaller, and odd sides show padding that even ones hide"


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
