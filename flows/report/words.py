"""How a quantity, a standing or a verdict is said to a reader: labels, units, and numbers of readable length.

Meanings and thresholds live in `contracts/`; this is only how they are written on a page or in a terminal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from contracts.columns import COLUMNS

STANDINGS = ("publishable", "provisional", "held", "invalid")

STANDING_MEANS = {
    "publishable": "every screen that the policy requires passed: these figures may be quoted",
    "provisional": "a required screen could not be decided: unproven, and not to be quoted",
    "held": "a required screen failed: kept as evidence, and not to be quoted",
    "invalid": "the measurement itself broke (engine died, accounts do not add up): no figure holds",
}

# Shapes differ as well as colours, so that a standing survives print, a plain terminal and colour blindness.
STANDING_MARK = {"publishable": "●", "provisional": "△", "held": "◇", "invalid": "✕"}

VERDICT_MARK = {"pass": "✓", "fail": "✕", "unknown": "?", "not_applicable": "–"}

SCREENS = {
    "needle_gate": "planted facts were found at this context on this server",
    "cache_screen": "prefill is not implausibly fast",
    "roofline": "rates stay under the hardware's ceiling",
    "cache_accounting": "cached tokens match what the workload declares",
    "nonce_audit": "no prompt's first block was sent before",
    "output_attainment": "answers have the asked length",
    "token_reconciliation": "usage, stream and engine count the same tokens",
    "population": "planned = ok + failed + cancelled + unsent, and nearly all ok",
    "little_law": "concurrency = throughput × latency",
    "client_lag": "the client itself did not lag",
    "clock_sanity": "instants are in order, clocks agree",
    "steady_state": "no ramp, drain or trend in the window",
    "sample_size": "enough requests for the percentiles shown",
    "stream_granularity": "a chunk is about one token",
    "server_health": "no restart or preemption storm; probes after as good as before",
    "declared_config": "the engine runs what was declared",
}


class Quantity(NamedTuple):
    """A column as a reader meets it: heading, unit, and digits after the point."""

    label: str
    unit: str = ""
    digits: int | None = None


QUANTITIES = {
    "output_tokens_per_s": Quantity("Output", "tokens/s", 1),
    "total_tokens_per_s": Quantity("Input and output", "tokens/s", 1),
    "requests_per_s": Quantity("Requests", "1/s", 2),
    "ttft_ms_p50": Quantity("TTFT p50", "ms", 1),
    "ttft_ms_p90": Quantity("TTFT p90", "ms", 1),
    "ttft_ms_p99": Quantity("TTFT p99", "ms", 1),
    "ttft_ms_mean": Quantity("TTFT mean", "ms", 1),
    "tpot_ms_p50": Quantity("TPOT p50", "ms", 2),
    "tpot_ms_p90": Quantity("TPOT p90", "ms", 2),
    "tpot_ms_p99": Quantity("TPOT p99", "ms", 2),
    "itl_ms_p50": Quantity("ITL p50", "ms", 2),
    "itl_ms_p99": Quantity("ITL p99", "ms", 2),
    "e2e_ms_p50": Quantity("End to end p50", "ms", 1),
    "e2e_ms_p90": Quantity("End to end p90", "ms", 1),
    "e2e_ms_p99": Quantity("End to end p99", "ms", 1),
    "uncached_prefill_tokens_per_s": Quantity("Uncached prefill", "tokens/s", 0),
    "decode_tokens_per_s": Quantity("Decode", "tokens/s", 1),
    "mean_concurrency": Quantity("Achieved concurrency", "requests", 2),
    "window_s": Quantity("Window", "s", 1),
    "concurrency": Quantity("Concurrency", "requests", 0),
    "context_tokens": Quantity("Context", "tokens", 0),
}  # fmt: skip

# A unit ends a column's name (STYLE: units in names), so a mart that this module never saw still gets one.
_UNIT_SUFFIXES = (
    ("_usd_per_gpu_hour", "USD/GPU-hour"), ("_usd_per_mtok", "USD/million tokens"), ("_tokens_per_s", "tokens/s"),
    ("_per_s", "1/s"), ("_tokens", "tokens"), ("_bytes", "bytes"), ("_gb", "GB"), ("_mb", "MB"), ("_pct", "%"),
    ("_ratio", "ratio"), ("_share", "share"), ("_usd", "USD"), ("_ms", "ms"), ("_ns", "ns"), ("_s", "s"),
    ("_w", "W"), ("_j", "J"), ("_at", "UTC"),
)  # fmt: skip

# The tail that says which statistic of a quantity a column holds.
_STATISTICS = (
    "_p50",
    "_p90",
    "_p95",
    "_p99",
    "_mean",
    "_median",
    "_min",
    "_max",
    "_low",
    "_high",
    "_lower",
    "_upper",
)


def unit_of(column: str) -> str:
    """The unit of a column, from the dictionary of columns or from the end of its name; "" where it has none."""
    if column in QUANTITIES:
        return QUANTITIES[column].unit
    if column in COLUMNS:
        return COLUMNS[column].unit.removeprefix("JSON")
    stem = column
    for tail in _STATISTICS:
        if stem.endswith(tail):
            stem = stem.removesuffix(tail)
            break
    for suffix, unit in _UNIT_SUFFIXES:
        if stem.endswith(suffix):
            return unit
    return ""


def label_of(column: str) -> str:
    """A column's heading: its entry, else its name with spaces."""
    return QUANTITIES[column].label if column in QUANTITIES else column.replace("_", " ")


def say_number(value: Any, digits: int | None = None) -> str:
    """A number with thousands separators and at most `digits` decimals; "" for what was not observed.

    Without `digits`, four significant figures, and integers whole: a figure reads alike on a page and in a terminal.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, float):
        return str(value)
    if digits is None:
        size = abs(value)
        if size == 0 or size >= 1000:
            digits = 0
        else:
            digits = next((n for n, least in enumerate((100, 10, 1, 0.1, 0.01), start=1) if size >= least), 6)
    return f"{value:,.{digits}f}"


# Digits after the point by the end of a name, so that a column of figures lines up.
_SUFFIX_DIGITS = (
    ("usd_per_gpu_hour", 2), ("usd_per_mtok", 4), ("usd", 4), ("share", 3), ("score", 3), ("ratio", 2), ("slowdown", 2),
    ("ms", 1), ("tokens_per_s", 1), ("_s", 1), ("hours", 2), ("mfu", 3), ("mbu", 3), ("per_hour", 3),
)  # fmt: skip


def digits_of(column: str) -> int | None:
    """Digits after the point for a column's figures: its entry's, else by the end of its name, else None."""
    if column in QUANTITIES:
        return QUANTITIES[column].digits
    stem = column
    for tail in (*_STATISTICS, "_alone", "_slowest"):
        stem = stem.removesuffix(tail)
    if "usd_per_mtok" in stem:
        return 4
    return next((digits for suffix, digits in _SUFFIX_DIGITS if stem.endswith(suffix)), None)


def say(column: str, value: Any) -> str:
    """A value of `column` as text, with that column's digits and no unit."""
    digits = digits_of(column)
    # What rounding in a formula leaves of zero, such as -1e-17.
    if isinstance(value, float) and abs(value) < 1e-12:
        value = 0.0
    # Prices span cents to thousands; four decimals of a thousand are noise.
    if digits == 4 and isinstance(value, float) and abs(value) >= 1:
        digits = 2
    # A figure too small for its column's digits would read as nothing.
    if isinstance(value, float) and digits is not None and value != 0 and abs(value) < 0.5 * 10**-digits:
        digits = None
    return say_number(value, digits)


def say_tokens(count: int | None) -> str:
    """A context length as people say it: 512, 32K, 1M. K is 1,024 where that is exact, else 1,000."""
    if count is None:
        return ""
    for base in (1024, 1000):
        for power, letter in ((2, "M"), (1, "K")):
            size = base**power
            if count >= size and count % size == 0:
                return f"{count // size}{letter}"
    return f"{count / 1e6:.1f}M" if count >= 1_000_000 else f"{count:,}"


def say_count(count: int, one: str, many: str | None = None) -> str:
    """`1 row`, `2 rows`, `no rows`."""
    noun = one if count == 1 else many or one + "s"
    return f"{count:,} {noun}" if count else f"no {noun}"


def say_share(part: int | None, whole: int | None) -> str:
    """`3 of 3`; "" where nothing was asked."""
    return "" if part is None or not whole else f"{part:,} of {whole:,}"
