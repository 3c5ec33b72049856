"""output_attainment: the answers were as long as asked, ended as planned, and were not empty."""

from __future__ import annotations

from contracts.screens.base import Screen, Threshold
from contracts.verdicts import Part, Row, at_most, within

MIN = Threshold(
    "ratio_min",
    0.98,
    "tokens/asked",
    "two percent is a token or so of the shortest answers",
    "docs/design.md",
)
MAX = Threshold("ratio_max", 1.02, "tokens/asked", "as for ratio_min", "docs/design.md")
SHARE = Threshold(
    "max_off_share",
    0.01,
    "share of requests",
    "as for population: one request in a hundred may go wrong, more of them change what the rest mean",
    "public reports elizaOS/eliza PR #10670 and llmperf-leaderboard: finish_reason=length and empty answers at most 1 %",
)


def judge(row: Row) -> list[Part]:
    """Four parts: total length, single lengths, ends, empty answers."""
    if not row["has_cell_record"]:
        return [Part("total_length", "unknown")]
    is_fixed = row["is_fixed_length"]
    ratio, off = row["output_attainment_ratio"], row["off_length_share"]
    total = Part("total_length", within(ratio, MIN.value, MAX.value) if is_fixed else "not_applicable", ratio)
    single = Part("single_lengths", at_most(off, SHARE.value) if is_fixed else "not_applicable", off)
    if is_fixed and single.verdict == "pass" and row["attainment_unknown"]:
        single = Part("single_lengths", "unknown", off)
    return [total, single, _ends(row), _empty(row)]


def _ends(row: Row) -> Part:
    off = row["off_finish_share"]
    if row["planned_finish_reason"] is None:
        return Part("ends", "not_applicable")
    if row["finish_missing"]:
        return Part("ends", "unknown", off)
    return Part("ends", at_most(off, SHARE.value), off)


def _empty(row: Row) -> Part:
    share = row["empty_answer_share"]
    # An answer of forced length has tokens by construction; a free one may be nothing at all.
    if row["is_fixed_length"]:
        return Part("empty_answers", "not_applicable", share)
    if row["answers_missing"]:
        return Part("empty_answers", "unknown", share)
    return Part("empty_answers", at_most(share, SHARE.value), share)


SCREEN = Screen(
    name="output_attainment",
    question="Did the answers have the asked length, the planned end, and any text?",
    passes_when="of fixed length: 0.98 to 1.02 of the asked tokens in total and for 99 % of requests; at most 1 % end "
    "otherwise than planned; of free length: at most 1 % are empty",
    unknown_when="output tokens, finish reasons or answers were not recorded",
    not_applicable_when="lengths: the length is free; ends: none was planned; empty answers: the length is fixed",
    next_step="ask with ignore_eos and a fixed max_tokens, or raise max_tokens for answers of free length",
    thresholds=(MIN, MAX, SHARE),
    judge=judge,
)
