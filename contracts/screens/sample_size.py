"""sample_size: enough requests for what is shown."""

from __future__ import annotations

from contracts.screens.base import Screen, Threshold
from contracts.verdicts import Part, Row, at_least, at_most

FLOORS = "MLPerf LoadGen, early stopping: the fewest queries at which a percentile holds with 99 % confidence when one "
P50 = Threshold(
    "min_p50", 11.0, "requests", "fewest for a median", FLOORS + "is over it; 0.5^n (1 + n) <= 0.01"
)
P90 = Threshold(
    "min_p90", 64.0, "requests", "fewest for a 90th percentile", FLOORS + "is over it: 64 for p90"
)
P99 = Threshold(
    "min_p99", 662.0, "requests", "fewest for a 99th percentile", FLOORS + "is over it: 662 for p99"
)
INTERVAL = Threshold(
    "max_interval",
    0.05,
    "half width / mean",
    "a figure that is quoted to two digits must be known to five percent",
    "docs/design.md",
)


def judge(row: Row) -> list[Part]:
    """Two parts. Percentiles below their floor are not shown at all, so the median's floor decides."""
    count, interval = row["e2e_count"], row["e2e_interval_share"]
    return [
        Part("floor", at_least(count, P50.value), count),
        Part("interval", at_most(interval, INTERVAL.value), interval),
    ]


SCREEN = Screen(
    name="sample_size",
    question="Are there enough requests for the percentiles that are shown, and is the mean known well enough?",
    passes_when="at least 11 requests (64 to show p90, 662 to show p99), and the 95 % interval of the mean latency is "
    "within 5 %",
    unknown_when="the number of served requests or their spread is not known",
    not_applicable_when="never",
    next_step="send more requests; percentiles without enough of them stay null",
    thresholds=(P50, P90, P99, INTERVAL),
    judge=judge,
)
