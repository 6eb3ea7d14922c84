"""This copy of the data set against another one."""

from __future__ import annotations

from alignment_doctor.data import manifest
from alignment_doctor.data.subject import DataSubject
from alignment_doctor.findings import Outcome, check, judged, not_applicable


@check(
    "data.manifest",
    "002 ds.04",
    "002 dp.05",
    measures="files, contents, labels and order against a manifest that was written where the data is right",
    fix="copy the named files again; where the order alone differs, use list files, which order them the same everywhere",
)
def same_as_manifest(subject: DataSubject) -> Outcome:
    if subject.expected.manifest is None:
        return not_applicable("no manifest was given: --compare-manifest FILE")
    own = manifest.entries(subject)
    where = manifest.differences(list(subject.expected.manifest), own)
    return judged(where, f"{len(where)} differences", f"{len(own)} pictures agree in content, label and order")
