"""The flow that turns raw into the published warehouse, the report and the dbt docs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect import flow

from flows import tasks
from flows.progress import Display


@dataclass(frozen=True)
class Published:
    """Where everything lies after a publication."""

    build: Any
    database: Path
    report: Path
    docs: Path | None


@flow(name="publish", flow_run_name="publish", validate_parameters=False, log_prints=False)
def publish(
    raw: Path = Path("raw"),
    warehouse: Path = Path("warehouse"),
    publication: Path = Path("publication"),
    with_docs: bool = True,
    display: Display | None = None,
) -> Published:
    """Build and judge the warehouse, then write the report and the docs.

    Raises BuildFailed or PublicationRefused, and so fails the flow, when dbt or a contract refuses; the warehouse
    that was published before stays in place.
    """
    raw, warehouse, publication = Path(raw), Path(warehouse), Path(publication)
    display = display or Display()
    display.step("building the warehouse")
    result = tasks.build_warehouse(raw, warehouse, display)
    display.done("warehouse built and judged")
    display.step("writing the report")
    database = warehouse / "weighbridge.duckdb"
    report = tasks.write_report(database, publication / "report.html")
    display.done("report written")
    docs = None
    if with_docs:
        display.step("writing the dbt docs")
        docs = tasks.write_docs(raw, warehouse, publication / "docs" / "index.html")
        display.done("dbt docs written")
    return Published(build=result, database=database, report=report, docs=docs)
