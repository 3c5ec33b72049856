from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from flows.report.tables import Column, fit_table, print_rows

STANDINGS = ("publishable", "provisional", "held", "invalid")


def printed(database: Path, width: int, campaign: str | None = None) -> str:
    stream = io.StringIO()
    print_rows(database, Console(file=stream, width=width), campaign)
    return stream.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 160, 220])
def test_no_line_is_wider_than_the_terminal(demo_database: Path, width: int) -> None:
    assert max(cell_len(line) for line in printed(demo_database, width).splitlines()) <= width


def test_a_narrow_table_keeps_the_standing_and_names_what_it_left_out(demo_database: Path) -> None:
    text = printed(demo_database, 60)
    assert all(standing in text for standing in STANDINGS)
    assert "Too narrow for:" in text
    assert "Too narrow for:" not in printed(demo_database, 220)


def test_the_policy_is_named_and_what_strict_would_publish(demo_database: Path) -> None:
    assert "Standing under policy original. Strict would publish 0 of 8." in printed(demo_database, 120)


def test_another_campaign_has_no_rows(demo_database: Path) -> None:
    assert "nothing has been measured" in printed(demo_database, 100, campaign="another")


def test_an_empty_warehouse_says_so(empty_database: Path) -> None:
    assert "nothing has been measured" in printed(empty_database, 100)


def test_the_column_of_the_highest_rank_goes_first() -> None:
    columns = [
        Column("keep", lambda row: "k" * 20),
        Column("second", lambda row: "s" * 20, rank=1),
        Column("first", lambda row: "f" * 20, rank=2),
    ]
    stream = io.StringIO()
    Console(file=stream, width=50).print(fit_table([{}], columns, 50))
    assert "s" * 20 in stream.getvalue()
    assert "f" * 20 not in stream.getvalue()
