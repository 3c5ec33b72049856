"""cache_screen: the published campaign's own rule against prefills that are too fast to be true."""

from __future__ import annotations

from contracts.screens.base import Screen, Threshold
from contracts.verdicts import Part, Row, at_most

LIMIT = Threshold(
    "max_tokens_per_s",
    60_000.0,
    "tokens/s",
    "some 250K prompts of the published campaign came back from cache in under a second; kept by name, although it "
    "errs both ways (see roofline)",
    "series index: 'a 60K tokens/s cache screen'",
)


def judge(row: Row) -> list[Part]:
    """One part: the fastest single prefill of the row, from the actual send."""
    measured = row["uncached_prefill_tokens_per_s"]
    # A first token at the very instant of the send is infinitely fast, and has no rate.
    if row["instant_first_tokens"]:
        return [Part("prefill", "fail", measured)]
    return [Part("prefill", at_most(measured, LIMIT.value), measured)]


SCREEN = Screen(
    name="cache_screen",
    question="Did the fastest request of the row prefill its uncached tokens at a credible rate?",
    passes_when="uncached prompt tokens per second until the first token, of every request, are at most 60,000",
    unknown_when="no request has both a first token and a prompt token count",
    not_applicable_when="never",
    next_step="send prompts that no earlier request of this server shares, or switch prefix caching off",
    thresholds=(LIMIT,),
    judge=judge,
)
