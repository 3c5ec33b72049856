"""clock_sanity: instants are in order, and the clocks agree."""

from __future__ import annotations

from contracts.screens.base import Screen, Threshold
from contracts.verdicts import Part, Row, at_least, at_most

DRIFT = Threshold(
    "max_drift_ms_per_min",
    1.0,
    "ms/min",
    "a clock that is stepped or slewed changes every latency",
    "docs/design.md",
)
NONE = Threshold(
    "max_disordered", 0.0, "requests", "an effect before its cause is a broken clock", "docs/design.md"
)


def judge(row: Row) -> list[Part]:
    """Five parts: order, gaps, their sum, drift, and the client's TTFT never below the engine's."""
    client, engine = row["ttft_from_send_ms_mean"], row["engine_ttft_ms_mean"]
    drift = row["drift_ms_per_min"]
    parts = [
        Part("order", at_most(row["disordered"], NONE.value), row["disordered"]),
        Part("gaps", at_most(row["negative_gaps"], NONE.value), row["negative_gaps"]),
        Part("sums", at_most(row["gaps_not_adding_up"], NONE.value), row["gaps_not_adding_up"]),
        Part("drift", at_most(None if drift is None else abs(drift), DRIFT.value), drift),
    ]
    if client is None or engine is None:
        parts.append(Part("engine_ttft", "not_applicable"))
    else:
        parts.append(Part("engine_ttft", at_least(client - engine, 0.0), client - engine))
    return parts


SCREEN = Screen(
    name="clock_sanity",
    question="Are all instants in order, and do the clocks agree?",
    passes_when="send <= first <= last <= end, no negative gap, gaps sum up to the last token, wall against monotonic "
    "drift <= 1 ms/min, and the client's TTFT is not below the engine's",
    unknown_when="instants or the drift were not recorded",
    not_applicable_when="engine_ttft only: the engine publishes no TTFT",
    next_step="stop clock adjustment (NTP steps, suspended virtual machines) during windows, then repeat the cell",
    thresholds=(DRIFT, NONE),
    judge=judge,
)
