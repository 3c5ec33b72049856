"""client_lag: the client's own delays are small against what it measured."""

from __future__ import annotations

from contracts.screens.base import Screen, Threshold
from contracts.verdicts import Part, Row, at_most

LAG = Threshold("max_loop_lag_ms", 1.0, "ms", "a late loop stamps tokens late", "docs/design.md")
LAG_SHARE = Threshold(
    "max_loop_lag_share", 0.02, "share of median ITL", "two percent of what is measured", "docs/design.md"
)
DELAY = Threshold(
    "max_send_delay_share",
    0.01,
    "share of median TTFT",
    "waiting in the client is not the server's",
    "docs/design.md",
)
GAP_SHARE = Threshold(
    "max_engine_gap_share",
    0.10,
    "share of the engine's TTFT",
    "what lies between the engine's first token and the client's is HTTP and tokenising, not a tenth of the wait",
    "public report vllm-project/vllm#39963: 134 s with one client, 1.3 s with another, on one server",
)
GAP_MS = Threshold(
    "engine_gap_floor_ms",
    100.0,
    "ms",
    "below this the share is of nothing: tokenising a long prompt alone may take as much",
    "as for max_engine_gap_share",
)


def judge(row: Row) -> list[Part]:
    """Three parts: loop lag, send delay, and the client's TTFT against the engine's own."""
    lag, itl = row["loop_lag_p99_ms"], row["chunk_gap_ms_p50"]
    limit = LAG.value if itl is None else min(LAG.value, LAG_SHARE.value * itl)
    delay, ttft = row["send_delay_p99_ms"], row["ttft_ms_p50"]
    share = delay / ttft if delay is not None and ttft else None
    return [
        Part("loop_lag", at_most(lag, limit), lag),
        Part("send_delay", at_most(share, DELAY.value), share),
        _gap(row),
    ]


def _gap(row: Row) -> Part:
    client, engine = row["ttft_from_send_ms_mean"], row["engine_ttft_ms_mean"]
    if client is None or engine is None:
        return Part("engine_gap", "not_applicable")
    limit = max(GAP_MS.value, GAP_SHARE.value * engine)
    return Part("engine_gap", at_most(client - engine, limit), client - engine)


SCREEN = Screen(
    name="client_lag",
    question="Were the client's own delays small against what it measured?",
    passes_when="loop lag p99 <= min(1 ms, 2 % of the median gap between chunks), send delay p99 <= 1 % of the median "
    "TTFT, and mean TTFT from the send at most 10 % (at least 100 ms) above the engine's own",
    unknown_when="the window has no client certificate (imported files)",
    not_applicable_when="engine_gap only: the engine publishes no TTFT",
    next_step="give the client quiet cores of its own, or more processes",
    thresholds=(LAG, LAG_SHARE, DELAY, GAP_SHARE, GAP_MS),
    judge=judge,
)
