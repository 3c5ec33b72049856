"""The seeds that carry what contracts.screens and contracts.policies decide into dbt."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from contracts.policies import POLICIES
from contracts.screens import SCREENS


def outputs() -> dict[str, str]:
    """Path -> content of screens.csv (one row a threshold) and policies.csv (one row a required screen)."""
    thresholds = [
        (screen.name, one.name, repr(one.value), one.unit, one.reason, one.source)
        for screen in SCREENS.values()
        for one in screen.thresholds
    ]
    required = [(policy, screen) for policy, screens in POLICIES.items() for screen in screens]
    described = [
        (order, s.name, s.question, s.passes_when, s.unknown_when, s.not_applicable_when, s.next_step)
        for order, s in enumerate(SCREENS.values(), start=1)
    ]
    return {
        "dbt/seeds/screens.csv": _csv(
            ("screen", "threshold", "value", "unit", "reason", "source"), thresholds
        ),
        "dbt/seeds/policies.csv": _csv(("policy", "screen"), required),
        "dbt/seeds/screen_texts.csv": _csv(
            (
                "screen_order",
                "screen",
                "question",
                "passes_when",
                "unknown_when",
                "not_applicable_when",
                "next_step",
            ),
            described,
        ),
    }


def _csv(header: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return stream.getvalue()
