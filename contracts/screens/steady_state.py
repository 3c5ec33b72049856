"""steady_state: the window shows a settled server, not its start, its end or a drift."""

from __future__ import annotations

import math

from contracts.screens.base import Screen, Threshold
from contracts.verdicts import Part, Row, at_most

REQUESTS = Threshold(
    "min_requests", 40.0, "requests", "twenty in each half, or halves cannot be compared", "docs/screens.md"
)
LATENCIES = Threshold(
    "min_latencies",
    5.0,
    "median latencies",
    "the steady part must be long against one request; in seconds the bound would differ for every model",
    "docs/screens.md",
)
EDGES = Threshold(
    "max_ramp_effect",
    0.03,
    "share of the rate",
    "ramp-up and drain may move the rate by as much as the halves may differ",
    "docs/design.md",
)
HALVES = Threshold("max_half_difference", 0.03, "share of the rate", "halves within 3 %", "docs/design.md")
PROBABILITY = Threshold(
    "trend_z", 1.959964, "standard normal quantile", "p > 0.05, two-sided", "docs/design.md"
)
DRIFT = Threshold(
    "trend_materiality",
    0.01,
    "share over the window",
    "with many requests a drift of nothing is significant; a third of what the halves may differ is a drift",
    "docs/screens.md",
)


def t_limit(degrees: float) -> float:
    """The two-sided 5 % point of Student's t, by the Cornish-Fisher expansion (Abramowitz and Stegun 26.7.5)."""
    z = PROBABILITY.value
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / degrees + second / degrees**2


def judge(row: Row) -> list[Part]:
    """Four parts: length, edges, halves, trend; a window that is too short leaves the others unknown."""
    if row["shape_kind"] == "sessions":
        return [Part("length", "not_applicable")]
    count, latencies = row["steady_requests"], row["steady_latencies"]
    long_enough = (
        count is not None
        and latencies is not None
        and count >= REQUESTS.value
        and latencies >= LATENCIES.value
    )
    if not long_enough:
        return [Part("length", "unknown", count)]
    edge, half = row["ramp_effect"], row["half_difference"]
    return [
        Part("length", "pass", count),
        Part("edges", at_most(None if edge is None else abs(edge), EDGES.value), edge),
        Part("halves", at_most(None if half is None else abs(half), HALVES.value), half),
        _trend(row, count),
    ]


def _trend(row: Row, count: float) -> Part:
    t, drift = row["trend_t"], row["trend_drift"]
    # Latencies that are all equal have no correlation, and no trend.
    if t is None or not math.isfinite(t):
        return Part("trend", "unknown" if drift is None else ("pass" if drift == 0 else "fail"), drift)
    is_trend = abs(t) > t_limit(count - 2) and abs(drift) > DRIFT.value
    return Part("trend", "fail" if is_trend else "pass", drift)


SCREEN = Screen(
    name="steady_state",
    question="Does the window show a settled server?",
    passes_when="the whole window's rate is within 3 % of the steady part's, its halves are within 3 % of each other, "
    "and latency has no trend (p > 0.05, or under 1 % over the window)",
    unknown_when="the steady part has fewer than 40 requests or is shorter than 5 median latencies",
    not_applicable_when="sessions: their context grows turn by turn, by plan",
    next_step="send more requests per stream; discard a warm-up of twice the concurrency",
    thresholds=(REQUESTS, LATENCIES, EDGES, HALVES, PROBABILITY, DRIFT),
    judge=judge,
)
