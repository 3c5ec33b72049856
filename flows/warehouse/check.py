"""The last look at a built database, outside dbt: do counts reconcile, may these rows publish?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contracts.errors import BuildFailed


def check_database(database: Path) -> dict[str, Any]:
    """Check the built database; a summary of it for BuildResult.

    Raises BuildFailed when a raw line is neither staged nor quarantined, PublicationRefused when gated_rows holds a
    row that must not be there.
    """
    import duckdb

    from contracts.publication import check_publication

    with duckdb.connect(str(database), read_only=True) as connection:
        _check_reconciliation(connection)
        gated = connection.sql("select * from marts.gated_rows order by row_id").pl()
        evidence = connection.sql(
            "select * from intermediate.int_row_evidence where row_id in (select row_id from marts.gated_rows)"
            " order by row_id"
        ).pl()
        check_publication(gated, evidence)
        standings = dict(
            connection.execute(
                "select standing, count(*) from marts.measured_rows group by 1 order by 1"
            ).fetchall()
        )
        one = connection.execute(
            "select (select count(*) from raw.quarantine),"
            " (select count(*) from raw.files where state not in ('loaded', 'artefact'))"
        ).fetchall()[0]
    return {
        "rows": sum(standings.values()),
        "standings": standings,
        "quarantined_lines": one[0],
        "refused_files": one[1],
    }


def _check_reconciliation(connection: Any) -> None:
    lost = connection.execute(
        "select file, sealed_lines, staged_lines, quarantined_lines from raw.files"
        " where state = 'loaded' and sealed_lines != staged_lines + quarantined_lines order by file limit 5"
    ).fetchall()
    if lost:
        file, sealed, staged, quarantined = lost[0]
        raise BuildFailed(
            f"{len(lost)} file(s) whose lines do not reconcile with the seal",
            measured=f"{staged} staged + {quarantined} quarantined",
            required=f"{sealed} sealed",
            evidence=str(file),
            next_step="this is a fault of the loader: please report it with the file",
        )
