"""What the two runs were told to do."""

from __future__ import annotations

from alignment_doctor.compare.subject import RunsSubject
from alignment_doctor.compare.verdict import other_rates
from alignment_doctor.findings import Outcome, check, judged, not_applicable

# Where data lies, what is written, and on what: no such setting changes what is learnt.
WITHOUT_EFFECT = {
    "framework", "data_path", "output_dir", "resume", "workers", "device", "threads", "print_every", "save_every", "keep",
    "eval_every", "eval_raw", "check_every", "check_data", "picture_cache", "picture_cache_gb", "rank_timeout", "log_to",
    "keep_best", "new_data", "seed",
}  # fmt: skip


@check(
    "compare.settings",
    "002 phenomenon",
    "000 step 7",
    measures="the settings of both runs that change what is learnt; the seed is not one of them",
    fix="give both runs the same settings, then compare again: what differs here explains what differs below",
)
def settings(subject: RunsSubject) -> Outcome:
    one, two = subject.first.settings, subject.second.settings
    if not one or not two:
        return not_applicable("a config.yaml beside each log is needed")
    keys = [key for key in one.keys() | two.keys() if key not in WITHOUT_EFFECT and one.get(key) != two.get(key)]
    if "batch_size" in keys and _pictures(subject) == {True}:
        keys.remove("batch_size")  # other ranks, the same pictures an update
    where = [f"{key}: {one.get(key)} and {two.get(key)}" for key in sorted(keys)]
    return judged(where, f"{len(where)} settings differ", f"{len(one)} settings, none that matters differs")


def _pictures(subject: RunsSubject) -> set[bool]:
    two = {entry.update: entry.samples for entry in subject.second.entries}
    pairs = [(entry.samples, two.get(entry.update)) for entry in subject.first.entries]
    return {a == b for a, b in pairs if a is not None and b is not None}


@check(
    "compare.pictures",
    "002 hp.03",
    "004 batch size",
    measures="pictures an update, over all ranks and accumulated passes",
    fix="keep batch size x ranks x accumulation the same, or scale the learning rate with it",
)
def pictures(subject: RunsSubject) -> Outcome:
    two = {entry.update: entry.samples for entry in subject.second.entries if entry.samples is not None}
    pairs = [(e.update, e.samples, two[e.update]) for e in subject.first.entries if e.samples is not None and e.update in two]
    if not pairs:
        return not_applicable("the logs do not both say how many pictures an update has")
    where = [f"update {update}: {a:g} and {b:g}" for update, a, b in pairs if a != b]
    return judged(where, "they differ", f"{pairs[0][1]:g} in both")


@check(
    "compare.learning_rate",
    "002 phenomenon",
    "000 step 6",
    "002 hp.01",
    measures="the learning rate at every update that both logs have",
    fix="compare base rate, warm-up, schedule and its unit (update or epoch); the first update named says where they part",
)
def learning_rate(subject: RunsSubject) -> Outcome:
    if not subject.rates:
        return not_applicable("no update has a learning rate in both logs")
    where = [f"update {a.update}: {a.lr:.8g} and {b.lr:.8g}" for a, b in other_rates(subject)]
    count = len(subject.rates)
    return judged(where, f"differs at {len(where)} of {count} updates", f"equal at {count} updates")
