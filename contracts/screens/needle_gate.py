"""needle_gate: the server found every needle at this row's context, or its speed there says nothing."""

from __future__ import annotations

from contracts.screens.base import Screen, Threshold
from contracts.verdicts import Part, Row

DEPTHS = "Part 12: the three depths of the published campaign's one-shot test (10/50/90%)"


def judge(row: Row) -> list[Part]:
    """One part: the needles of the nearest probed context that covers the row's."""
    asked = row["needles_asked_at_context"]
    if not asked:
        return [Part("needles", "unknown")]
    found, ungraded = row["needles_found_at_context"], row["needles_ungraded_at_context"]
    missed = asked - found
    if missed > ungraded:
        return [Part("needles", "fail", missed)]
    is_complete = ungraded == 0 and row["has_required_needle_depths"]
    return [Part("needles", "pass" if is_complete else "unknown", missed)]


SCREEN = Screen(
    name="needle_gate",
    question="Did this server find every needle planted at this row's context or at the nearest one above it?",
    passes_when="every needle at 10, 50 and 90 % depth was found on this server at (at least) this row's context",
    unknown_when="not probed at that context, a depth is missing, or a needle could not be graded",
    not_applicable_when="never: an imported file without needles is unknown",
    next_step="run fresh_document at this row's context or above, with depths 10, 50 and 90, in the same run",
    thresholds=(
        Threshold("depth_low_pct", 10.0, "%", "the first depth that must be probed", DEPTHS),
        Threshold("depth_middle_pct", 50.0, "%", "the second depth that must be probed", DEPTHS),
        Threshold("depth_high_pct", 90.0, "%", "the third depth that must be probed", DEPTHS),
        Threshold(
            "depth_tolerance_pct",
            1.0,
            "%",
            "a needle goes between two sentences, so its depth is met to about one percent of the document",
            "flows/workloads/fresh_document.py",
        ),
    ),
    judge=judge,
)
