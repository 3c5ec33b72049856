"""roofline: no rate above what the devices, the precision and the model allow."""

from __future__ import annotations

from contracts.screens.base import Screen, Threshold
from contracts.verdicts import Part, Row, Verdict

SHARE = Threshold(
    "max_share",
    1.0,
    "share of ceiling",
    "a ceiling is physics: peak arithmetic and bandwidth from the vendor's data sheet, with nothing lost",
    "docs/screens.md, dbt/seeds/gpu_peaks.csv",
)
CACHED = Threshold(
    "cpu_cached_weight_bytes",
    float(64 << 20),
    "bytes",
    "weights up to this size may stay in a processor's caches, whose bandwidth then is the ceiling",
    "last-level caches of server processors, 32 to 64 MiB a socket for most",
)


def judge(row: Row) -> list[Part]:
    """Three parts: prefill, decode of the whole window, decode of the fastest single request."""
    return [
        _share("prefill", row["prefill_tokens_per_s"], row["prefill_ceiling_tokens_per_s"]),
        _share("decode", row["decode_tokens_per_s"], row["decode_ceiling_tokens_per_s"]),
        _single(row["decode_rate_max"], row["single_ceiling_tokens_per_s"]),
    ]


def _share(name: str, rate: float | None, ceiling: float | None) -> Part:
    if rate is None or not ceiling:
        return Part(name, "unknown")
    return Part(name, _judge(rate / ceiling), rate / ceiling)


def _single(rate: float | None, ceiling: float | None) -> Part:
    # Answers of fewer than eight tokens have no rate of their own; the window's rate still stands.
    if rate is None:
        return Part("single_decode", "not_applicable")
    if not ceiling:
        return Part("single_decode", "unknown")
    return Part("single_decode", _judge(rate / ceiling), rate / ceiling)


def _judge(share: float) -> Verdict:
    return "pass" if share <= SHARE.value else "fail"


SCREEN = Screen(
    name="roofline",
    question="Are the prefill and decode rates below the physical ceilings of these devices for this model?",
    passes_when="prefill and decode rates are at most the ceilings from model facts, precision, GPU peak and bandwidth",
    unknown_when="model facts, precision, the device's peaks or the rates are missing",
    not_applicable_when="single_decode only: no answer of the row has eight tokens",
    next_step="check the token counts and the clock; for unknown, give the model's path so that its facts can be read",
    thresholds=(SHARE, CACHED),
    judge=judge,
)
