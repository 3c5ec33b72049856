"""What STYLE asks of SQL and sqlfluff cannot hold: the grain stands first, and a list ends in a comma."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DBT = Path(__file__).resolve().parents[2] / "dbt"
MODELS = sorted((DBT / "models").rglob("*.sql"))


def name(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", MODELS, ids=name)
def test_the_grain_stands_before_the_query(path: Path) -> None:
    opening = re.split(r"^(?:with|select)\b", path.read_text(encoding="utf-8"), maxsplit=1, flags=re.M)[0]
    assert re.search(r"^-- grain: one row per \S", opening, re.M)


@pytest.mark.parametrize("path", MODELS, ids=name)
def test_a_select_list_over_several_lines_ends_in_a_comma(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        begins = re.match(r"^( *)(?:with )?select(?: distinct)?$", line)
        if not begins:
            continue
        indent = begins.group(1)
        end = next(
            n
            for n in range(number + 1, len(lines))
            if re.match(rf"^{indent}(?:from\b|\)|union\b|{{)", lines[n])
        )
        listed = [
            text
            for text in lines[number + 1 : end]
            if text.strip() and not text.strip().startswith(("--", "{%", "{#"))
        ]
        assert listed[-1].rstrip().endswith((",", "*", "%}")), f"{path.name}:{end}: {listed[-1].strip()!r}"
