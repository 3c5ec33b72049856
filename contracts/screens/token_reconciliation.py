"""token_reconciliation: usage, the stream and the engine's counters tell the same number of tokens."""

from __future__ import annotations

from contracts.screens.base import Screen, Threshold
from contracts.verdicts import Part, Row, Verdict

LIMIT = Threshold(
    "max_difference",
    0.005,
    "share of tokens",
    "three counts of one thing; half a percent is rounding",
    "docs/design.md",
)


def judge(row: Row) -> list[Part]:
    """Four parts: usage itself; then the witnesses: the stream, counted output, counted prompts.

    At least one witness must speak, or all are unknown.
    """
    missing = None if row["output_missing"] is None else row["output_missing"] + (row["output_counted"] or 0)
    usage = Part("usage", "unknown" if missing is None or missing > 0 else "pass", missing)
    stream, output, prompt = _stream(row), _output(row), _prompt(row)
    if "pass" not in (stream.verdict, output.verdict) and "fail" not in (stream.verdict, output.verdict):
        stream = Part("stream", "unknown", stream.measured)
    return [usage, stream, output, prompt]


def _stream(row: Row) -> Part:
    """Chunks a token. More chunks than tokens cannot be; fewer say that chunks carry several, and count nothing."""
    share = row["chunks_per_token"]
    verdict: Verdict
    if share is None or share < 1 - LIMIT.value:
        verdict = "not_applicable"
    else:
        verdict = "pass" if share <= 1 + LIMIT.value else "fail"
    return Part("stream", verdict, share)


def _output(row: Row) -> Part:
    ratio = row["counter_output_ratio"]
    # Probes inside the window generate tokens that belong to no request of it.
    if ratio is None or row["probes_in_window"]:
        return Part("counted_output", "not_applicable", ratio)
    return Part("counted_output", "pass" if abs(ratio - 1) <= LIMIT.value else "fail", ratio)


def _prompt(row: Row) -> Part:
    ratio, uncached = row["counter_prompt_ratio"], row["counter_uncached_prompt_ratio"]
    if ratio is None or row["probes_in_window"]:
        return Part("counted_prompt", "not_applicable", ratio)
    # Some engines count every prompt token, some only those that they had to compute.
    agrees = abs(ratio - 1) <= LIMIT.value or (uncached is not None and abs(uncached - 1) <= LIMIT.value)
    return Part("counted_prompt", "pass" if agrees else "fail", ratio)


SCREEN = Screen(
    name="token_reconciliation",
    question="Do usage, the streamed chunks and the engine's counters agree on the number of tokens?",
    passes_when="usage, streamed count and engine counters agree within 0.5 %, wherever each can count tokens",
    unknown_when="usage is absent for any request (tokens counted otherwise are another source, never mixed with it), or neither stream nor counters can be held against it",
    not_applicable_when="stream: chunks carry several tokens; counters: absent, or probes ran inside the window; as "
    "long as one other witness speaks",
    next_step="ask for usage in the stream (stream_options.include_usage) and scrape /metrics before and after",
    thresholds=(LIMIT,),
    judge=judge,
)
