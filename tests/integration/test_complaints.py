"""Every complaint of docs/complaints.md, by its number: the row that shows it does not publish, for the right screen.

The complaints are public reports of invalid benchmarks; what each row has wrong is in warehouse_scenarios.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

# complaint numbers, what happened, the row, the screen, its verdict, the part that shows it
CAUGHT = [
    (
        "1",
        "prefix hits by the engine's counters on a cold sweep",
        "hits-by-counters",
        "cache_accounting",
        "counters",
    ),
    ("2", "the same seed twice against one server", "same-seed", "nonce_audit", "first_blocks"),
    ("3", "one identical prompt for every request", "one-prompt", "nonce_audit", "first_blocks"),
    ("4", "only half of the planned prompt was sent", "prefix-only", "declared_config", "prompt_length"),
    ("5", "92.9 % prefix hits by counters on random data", "hits-93-percent", "cache_accounting", "counters"),
    (
        "7",
        "gaps per verify step given as per token",
        "chunks-of-four",
        "stream_granularity",
        "tokens_per_chunk",
    ),
    ("8", "a parser buffers the answer", "buffered", "stream_granularity", "tokens_per_chunk"),
    (
        "13",
        "the client waits a hundred times longer than the engine",
        "slow-client",
        "client_lag",
        "engine_gap",
    ),
    ("14", "half of the asked concurrency was achieved", "half-the-load", "little_law", "achieved"),
    ("15", "sends took 1.45 times the planned time", "late-sends", "little_law", "achieved"),
    ("19", "the first wave met a compiler", "compiled-inside", "server_health", "first_wave"),
    ("21", "the warm-up did not cover the measured shape", "compiled-inside", "server_health", "first_wave"),
    ("22", "every request failed", "all-failed", "population", "served"),
    ("25", "prompts are half as long as the label", "prefix-only", "declared_config", "prompt_length"),
    (
        "26",
        "the engine switched prefix caching off by itself",
        "cache-off",
        "declared_config",
        "prefix_caching",
    ),
    ("28", "kernels of another precision than declared", "wrong-kernel", "declared_config", "precision"),
    ("31", "speculation measured on random tokens", "random-drafts", "declared_config", "draft_prompts"),
    (
        "33",
        "a third of the requests failed, survivors' latencies stand",
        "third-failed",
        "population",
        "served",
    ),
    ("34", "one answer in ten ended by length", "length-stops", "output_attainment", "ends"),
    ("35", "thinking that was switched off and seen", "still-thinking", "declared_config", "thinking"),
]


@pytest.mark.parametrize(
    ("number", "what", "run", "screen", "part"), CAUGHT, ids=[f"complaint_{one[0]}" for one in CAUGHT]
)
def test_complaint_is_held_by_its_screen(
    judged: Any, number: str, what: str, run: str, screen: str, part: str
) -> None:
    row, result = judged.row(f"{run}/sweep-c4"), judged.screen(f"{run}/sweep-c4", screen)
    assert (row["standing"], result["verdict"], result["part"]) == ("held", "fail", part), what
    assert screen in row["standing_reason"]


def test_complaint_9_negative_gaps_are_refused_and_answers_at_once_have_no_itl(judged: Any) -> None:
    assert judged.screen("negative-gap/sweep-c4", "clock_sanity")["part"] == "gaps"
    row = judged.row("buffered/sweep-c4")
    assert row["itl_ms_p50"] is None
    assert row["standing"] == "held"


def test_complaint_10_tokens_come_from_usage_and_never_from_chunks(judged: Any) -> None:
    row = judged.row("chunks-of-four/sweep-c4")
    assert row["output_tokens"] == 64 * 64
    # 64 answers of 64 tokens, 4 at a time, 0.04 + 63 x 0.005 s each and 0.1 ms after: 720 tokens/s
    assert row["output_tokens_per_s"] == pytest.approx(4 * 64 / (0.04 + 63 * 0.005 + 0.0001), rel=0.01)


def test_complaint_11_counted_tokens_are_not_taken_for_usage(judged: Any) -> None:
    result = judged.screen("counted-tokens/sweep-c4", "token_reconciliation")
    assert (result["verdict"], result["part"]) == ("unknown", "usage")
    assert judged.row("counted-tokens/sweep-c4")["standing"] == "provisional"


def test_complaint_16_waiting_in_the_client_counts_in_ttft(judged: Any) -> None:
    # 40 ms at the server after 1,000 ms behind the client's own limit
    assert judged.row("waited/sweep-c4")["ttft_ms_p50"] == pytest.approx(1040, rel=0.01)
    assert judged.row("clean/sweep-c4")["ttft_ms_p50"] == pytest.approx(40, rel=0.01)


def test_complaint_17_another_client_is_another_configuration(judged: Any) -> None:
    (found,) = judged.rows(
        "select distinct client from intermediate.int_configurations where run_id = 'clean'"
    )
    assert found["client"] == "weighbridge"


def test_complaint_23_a_peak_is_no_evidence_of_achieved_concurrency(judged: Any) -> None:
    result = judged.screen("peak-of-six/sweep-c4", "little_law")
    achieved = next(part for part in result["parts"] if part["part"] == "achieved")
    assert achieved["measured"] == pytest.approx(1.0, abs=0.02)
    assert judged.row("peak-of-six/sweep-c4")["mean_concurrency"] == pytest.approx(2.0, abs=0.02)


def test_complaint_30_waiting_with_an_empty_cache_is_called_slot_limited(judged: Any) -> None:
    assert judged.row("slot-limited/sweep-c4")["is_slot_limited"] is True
    assert judged.row("clean/sweep-c4")["is_slot_limited"] is False


def test_complaint_36_a_scorer_that_finds_nothing_strictly_is_a_broken_measurement(judged: Any) -> None:
    row = judged.row("strict-zero/sweep-c4")
    assert row["standing"] == "invalid"
    assert "scorer failure" in row["standing_reason"]


def test_every_complaint_of_the_page_has_a_test() -> None:
    page = (ROOT / "docs" / "complaints.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| (\d+) \|", page, re.M))
    source = Path(__file__).read_text(encoding="utf-8")
    tested = {one[0] for one in CAUGHT} | set(re.findall(r"def test_complaint_(\d+)_", source))
    assert listed
    assert listed == tested


def test_no_public_complaint_is_missing_from_the_page(shared_cases: Path) -> None:
    public = set(
        re.findall(r"^\| (\d+) \|", (shared_cases / "complaints.md").read_text(encoding="utf-8"), re.M)
    )
    page = (ROOT / "docs" / "complaints.md").read_text(encoding="utf-8")
    assert public == set(re.findall(r"^\| (\d+) \|", page, re.M))
