"""The yml of the core marts, with their enforced contracts, and docs/columns.md: from contracts.columns."""

from __future__ import annotations

import json

from contracts.columns import COLUMNS, MARTS, Column, Mart
from contracts.screens import SCREENS

_VERDICTS = ["pass", "fail", "unknown", "not_applicable"]
_STANDINGS = ["invalid", "held", "provisional", "publishable"]


def outputs() -> dict[str, str]:
    """Path -> content."""
    files = {f"dbt/models/marts/{mart.name}.yml": _yml(mart) for mart in MARTS.values()}
    files["docs/columns.md"] = _page()
    return files


def described(column: Column) -> str:
    """Meaning, unit and null in one sentence, as dbt docs show it."""
    unit = f" Unit: {column.unit}." if column.unit else ""
    null = "Never null." if column.null == "never" else f"Null: {column.null}."
    return f"{column.meaning}{unit} {null}"


def _yml(mart: Mart) -> str:
    lines = [
        "# written by python -m contracts.generate from contracts/columns.py; do not edit",
        "version: 2",
        "models:",
        f"  - name: {mart.name}",
        f"    description: {json.dumps(mart.grain)}",
        "    config:",
        "      contract: {enforced: true}",
        "    constraints:",
        "      - type: primary_key",
        f"        columns: [{mart.key}]",
        "    columns:",
    ]
    for name in mart.columns:
        column = COLUMNS[name]
        lines += [
            f"      - name: {name}",
            f"        data_type: {column.type}",
            f"        description: {json.dumps(described(column))}",
        ]
        constraints = [{"type": "not_null"}] if name in mart.not_null else []
        if name in SCREENS:
            constraints.append({"type": "check", "expression": _one_of(name, _VERDICTS)})
        elif name.startswith("standing") and name != "standing_reason":
            allowed = ["publishable"] if (mart.name, name) == ("gated_rows", "standing") else _STANDINGS
            constraints.append({"type": "check", "expression": _one_of(name, allowed)})
        elif column.type == "double":
            # NaN passes every comparison in DuckDB: what is not finite must not enter a mart
            constraints.append({"type": "check", "expression": f"isfinite({name})"})
        if constraints:
            lines.append("        constraints:")
            lines += [f"          - {json.dumps(one)}" for one in constraints]
    return "\n".join(lines) + "\n"


def _one_of(name: str, words: list[str]) -> str:
    return f"{name} in (" + ", ".join(f"'{word}'" for word in words) + ")"


def _page() -> str:
    lines = [
        "<!-- written by python -m contracts.generate from contracts/columns.py; do not edit -->",
        "# Columns",
        "",
        "One name, one quantity, one unit, everywhere. Absence is null and never 0; NaN is an error.",
        "The columns of the other marts are described in `dbt/models/marts/*.yml` and in `weighbridge docs`.",
    ]
    for mart in MARTS.values():
        lines += ["", f"## marts.{mart.name}", "", mart.grain, f"Key: `{mart.key}`.", ""]
        lines += ["| column | type | unit | meaning | null |", "|---|---|---|---|---|"]
        for name in mart.columns:
            one = COLUMNS[name]
            null = "never" if name in mart.not_null or one.null == "never" else one.null
            lines.append(f"| `{name}` | {one.type} | {one.unit} | {_cell(one.meaning)} | {_cell(null)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
