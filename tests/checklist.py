"""The items of the checklists, and the checks of the doctor that decide them."""

from __future__ import annotations

import importlib
import re
from collections import defaultdict

from doctor.findings import Check, checks_of

FAMILIES = (
    "doctor.data.checks", "doctor.check.checks", "doctor.watch.checks", "doctor.compare.checks", "doctor.compare.continued_checks",
    "doctor.weights.checks", "doctor.profile.checks",
)  # fmt: skip


def every_check() -> list[Check]:
    return [check for family in FAMILIES for check in checks_of(importlib.import_module(family))]


def checks_of_items() -> dict[str, list[str]]:
    """Item -> ids of its checks; ``001 data 1-3`` stands for three items."""
    found = defaultdict(list)
    for check in every_check():
        for item in check.items:
            many = re.fullmatch(r"(.* )(\d)-(\d)", item)
            items = [f"{many[1]}{n}" for n in range(int(many[2]), int(many[3]) + 1)] if many else [item]
            for one in items:
                found[one].append(check.id)
    return dict(found)
