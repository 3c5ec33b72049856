"""stream_granularity: the stream came token by token, or its gaps are not inter-token latencies."""

from __future__ import annotations

from contracts.screens.base import Screen, Threshold
from contracts.verdicts import Part, Row, at_most

TOKENS = Threshold(
    "max_tokens_per_chunk",
    1.1,
    "tokens/chunk",
    "about one: a tokenizer that holds back half a character merges some",
    "docs/design.md; public report sgl-project/sglang PR #12064: 8.72 ms published where 3.4 ms was true",
)
BURSTS = Threshold(
    "max_burst_share",
    0.01,
    "share of answers",
    "an answer that arrives at once at its end has no first token: TTFT and TPOT are then another thing",
    "public reports sgl-project/sglang PR #36272 and SGLang-dLoRA: parser buffers, TPOT of -0.00 ms",
)
COALESCED = Threshold(
    "max_coalesced_share",
    0.10,
    "share of chunks",
    "chunks that the client read together have gaps of 0 that are its own; a tenth leaves the median alone",
    "docs/screens.md",
)


def judge(row: Row) -> list[Part]:
    """Three parts: tokens a chunk, answers that came at once, chunks that were read together."""
    tokens, bursts, coalesced = row["tokens_per_chunk"], row["burst_share"], row["coalesced_share"]
    drafts = row["draft_tokens"]
    # Declared speculation: several tokens a step are its point, and ITL is shown per chunk, never per token.
    if tokens is not None and drafts and TOKENS.value < tokens <= 1 + drafts:
        chunks = Part("tokens_per_chunk", "not_applicable", tokens)
    else:
        chunks = Part("tokens_per_chunk", at_most(tokens, TOKENS.value), tokens)
    if row["long_answers"] == 0:
        burst = Part("bursts", "not_applicable")
    else:
        burst = Part("bursts", at_most(bursts, BURSTS.value), bursts)
    return [chunks, burst, Part("coalesced", at_most(coalesced, COALESCED.value), coalesced)]


SCREEN = Screen(
    name="stream_granularity",
    question="Did the answers stream token by token?",
    passes_when="chunks carry about one token each, answers do not arrive at once, and the client read nearly every "
    "chunk by itself; else ITL is per chunk and is not shown as per token",
    unknown_when="chunks or output tokens were not recorded",
    not_applicable_when="tokens_per_chunk: the recipe declares speculation and chunks carry no more than a step can "
    "give; bursts: no answer has eight tokens",
    next_step="switch buffering parsers and stream intervals off, or declare the speculation in the recipe",
    thresholds=(TOKENS, BURSTS, COALESCED),
    judge=judge,
)
