"""The publication contract: what must hold of every row of `gated_rows`, checked outside dbt.

Pandera checks the frame eagerly (on a lazy frame it would look at types only); then every required screen is judged
again in Python from the row's evidence, so that neither a wrong model nor a hand in the database publishes a row.
"""

from __future__ import annotations

from typing import Any

import pandera.polars as pa
import polars as pl
from pandera.errors import SchemaErrors

from contracts.errors import PublicationRefused
from contracts.policies import required_screens
from contracts.screens import SCREENS
from contracts.verdicts import worst

VERDICTS = ["pass", "fail", "unknown", "not_applicable"]


def gated_schema() -> pa.DataFrameSchema:
    """The schema of gated_rows: publishable rows with keys, closed verdicts and finite, non-negative figures."""
    columns: dict[str, pa.Column] = {
        "row_id": pa.Column(str, unique=True),
        "run_id": pa.Column(str),
        "source": pa.Column(str, pa.Check.isin(["measured", "imported", "synthetic"])),
        "policy": pa.Column(str),
        "standing": pa.Column(str, pa.Check.equal_to("publishable")),
        "window_state": pa.Column(str, pa.Check.equal_to("complete")),
        "quarantined_lines": pa.Column(pl.Int64, pa.Check.equal_to(0)),
        "requests_ok": pa.Column(pl.Int64, pa.Check.greater_than(0)),
    }
    columns |= {name: pa.Column(str, pa.Check.isin(VERDICTS)) for name in SCREENS}
    for name in ("output_tokens_per_s", "total_tokens_per_s", "requests_per_s", "window_s", "ttft_ms_p50"):
        columns[name] = pa.Column(
            pl.Float64, [pa.Check(_is_finite, name="finite"), pa.Check.ge(0)], nullable=True
        )
    return pa.DataFrameSchema(columns, strict=False)


def _is_finite(data: Any) -> pl.LazyFrame:
    return data.lazyframe.select(pl.col(data.key).is_finite())


def check_publication(gated: pl.DataFrame, evidence: pl.DataFrame) -> None:
    """Raise PublicationRefused, naming rows and reasons, unless every gated row may be there.

    evidence: the rows of `int_row_evidence` of the same row_ids.
    """
    try:
        gated_schema().validate(gated, lazy=True)
    except SchemaErrors as error:
        raise _refused(_schema_faults(error, gated)) from error
    faults = screen_faults(gated, evidence)
    if faults:
        raise _refused(faults)


def screen_faults(gated: pl.DataFrame, evidence: pl.DataFrame) -> list[str]:
    """What speaks against the rows: a required screen that does not pass, in SQL's word or in Python's."""
    by_row = {row["row_id"]: row for row in evidence.iter_rows(named=True)}
    faults = []
    for row in gated.iter_rows(named=True):
        proof = by_row.get(row["row_id"])
        for name in required_screens(row["policy"]):
            if row[name] not in ("pass", "not_applicable"):
                faults.append(f"{row['row_id']} fails {name}: its verdict is {row[name]}")
            elif proof is None:
                faults.append(f"{row['row_id']} has no evidence for {name}")
            else:
                parts = SCREENS[name].judge(proof)
                verdict = worst(part.verdict for part in parts)
                if verdict != row[name]:
                    bad = [
                        f"{part.name} {part.verdict} at {part.measured}"
                        for part in parts
                        if part.verdict == verdict
                    ]
                    faults.append(
                        f"{row['row_id']} fails {name}: gated as {row[name]}, judged again {verdict} ({', '.join(bad)})"
                    )
    return faults


def _schema_faults(error: SchemaErrors, gated: pl.DataFrame) -> list[str]:
    faults = []
    ids = gated["row_id"].to_list() if "row_id" in gated.columns else []
    for case in error.failure_cases.iter_rows(named=True):
        index = case.get("index")
        where = ids[index] if isinstance(index, int) and index < len(ids) else "gated_rows"
        faults.append(f"{where}: {case['column']} is {case['failure_case']}, required {case['check']}")
    return faults


def _refused(faults: list[str]) -> PublicationRefused:
    more = f"; and {len(faults) - 5} more" if len(faults) > 5 else ""
    return PublicationRefused(
        "; ".join(faults[:5]) + more,
        measured=f"{len(faults)} violation(s)",
        required="none",
        evidence="marts.gated_rows of the refused build",
        next_step="the published warehouse is unchanged; weighbridge explain ROW_ID shows the row's screens",
    )
