from __future__ import annotations

import pytest

from contracts.screens import NAMES
from flows.report.words import (
    SCREENS,
    STANDING_MARK,
    STANDINGS,
    say,
    say_count,
    say_number,
    say_share,
    say_tokens,
    unit_of,
)


@pytest.mark.parametrize(
    ("count", "said"),
    [(None, ""), (512, "512"), (1024, "1K"), (32768, "32K"), (32000, "32K"), (1048576, "1M"), (1000000, "1M"),
     (1500, "1,500"), (1234567, "1.2M")],
)  # fmt: skip
def test_a_context_is_said_as_people_say_it(count: int | None, said: str) -> None:
    assert say_tokens(count) == said


@pytest.mark.parametrize(
    ("column", "unit"),
    [("ttft_ms_p99", "ms"), ("output_tokens_per_s", "tokens/s"), ("usd_per_mtok_output", ""), ("window_s", "s"),
     ("cost_usd_per_mtok", "USD/million tokens"), ("weight_bytes", "bytes"), ("opened_at", "UTC"), ("recipe", ""),
     ("new_metric_ms_median", "ms"), ("kv_tokens", "tokens")],
)  # fmt: skip
def test_a_unit_is_read_from_the_end_of_a_name(column: str, unit: str) -> None:
    assert unit_of(column) == unit


def test_what_was_not_observed_is_blank_and_zero_is_zero() -> None:
    assert say("ttft_ms_p50", None) == ""
    assert say_number(0) == "0"
    assert say_number(0.0) == "0"
    assert say_share(0, 3) == "0 of 3"
    assert say_share(None, 3) == ""
    assert say_share(0, 0) == ""


def test_numbers_keep_four_figures() -> None:
    assert say_number(4237.158) == "4,237"
    assert say_number(129.44) == "129.4"
    assert say_number(3.6) == "3.600"
    assert say_number(0.1514) == "0.1514"
    assert say_number(1600000) == "1,600,000"


def test_counts_agree_with_their_noun() -> None:
    assert [say_count(n, "row") for n in (0, 1, 2)] == ["no rows", "1 row", "2 rows"]
    assert say_count(2, "query", "queries") == "2 queries"


def test_every_standing_has_a_mark_of_its_own() -> None:
    assert len({STANDING_MARK[standing] for standing in STANDINGS}) == 4


def test_the_page_has_words_for_every_screen_and_no_other() -> None:
    assert tuple(SCREENS) == NAMES
