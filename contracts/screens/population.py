"""population: every planned request is accounted for, and nearly all of them were served."""

from __future__ import annotations

from contracts.screens.base import Screen, Threshold
from contracts.verdicts import Part, Row, Verdict, at_least

RATIO = Threshold(
    "min_ok_share",
    0.99,
    "ok/planned",
    "latencies of the survivors flatter a server that drops the slow ones",
    "docs/design.md; public report llmperf-leaderboard bedrock_70b: 49 of 150 failed, latencies of 101 published",
)


def judge(row: Row) -> list[Part]:
    """Three parts: the sum, the share that was served, errors after a 200."""
    planned, recorded, ok = row["planned_requests"], row["requests_recorded"], row["requests_ok"]
    counts = [row["requests_failed"], row["requests_cancelled"], row["requests_unsent"]]
    total: Verdict = "unknown"
    difference = None
    if planned is not None and recorded is not None and ok is not None:
        known = ok + sum(count or 0 for count in counts)
        window = row["window_planned"]
        difference = planned - known
        adds_up = planned == known == recorded and row["is_window_count_right"] and window in (None, planned)
        total = "pass" if adds_up else "fail"
    # A window that stops by the clock plans more than it can send; what it never reached was never due.
    due = planned
    if planned is not None and row["stop_after_s"] is not None:
        due = planned - (row["requests_unsent"] or 0)
    share = ok / due if ok is not None and due else None
    served = "fail" if ok == 0 or due == 0 else at_least(share, RATIO.value)
    late = row["ok_with_error"]
    after: Verdict = "not_applicable" if late is None else ("pass" if late == 0 else "fail")
    return [
        Part("sum", total, difference),
        Part("served", served, share),
        Part("errors_after_200", after, late),
    ]


SCREEN = Screen(
    name="population",
    question="Are all planned requests accounted for, and were at least 99 % of them served?",
    passes_when="planned = ok + failed + cancelled + unsent, by records and by the window; ok/planned >= 0.99; no "
    "request counts as served that ended in an error or without a token",
    unknown_when="the number of planned or served requests is not known",
    not_applicable_when="errors_after_200 only: an imported file without requests",
    next_step="see the failed requests' error classes; lower the load or fix the server, then repeat the cell",
    thresholds=(RATIO,),
    judge=judge,
)
