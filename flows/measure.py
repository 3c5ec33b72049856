"""The whole job as one flow: run a campaign, then publish what its evidence supports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow

from flows.campaign import campaign
from flows.progress import Display
from flows.publish import publish


@flow(name="measure", flow_run_name="measure {campaign_path}", validate_parameters=False, log_prints=False)
def measure(
    campaign_path: Path,
    raw: Path = Path("raw"),
    warehouse: Path = Path("warehouse"),
    publication: Path = Path("publication"),
    is_resumed: bool = False,
    recipes: list[str] | None = None,
    is_published: bool = True,
    is_rehearsed: bool = False,
    display: Display | None = None,
) -> dict[str, Any]:
    """Run the campaign; then, unless `is_published` is false, build, judge and report.

    is_rehearsed: reference servers play the engines, and what lands is synthetic (docs/multi-gpu.md).

    Returns the campaign's outcome, with the paths of the database, the report and the docs when published.
    """
    display = display or Display()
    outcome = campaign(
        campaign_path,
        raw=raw,
        is_resumed=is_resumed,
        recipes=recipes,
        is_rehearsed=is_rehearsed,
        display=display,
    )
    outcome["raw"] = str(Path(raw) / outcome["campaign"])
    if is_published:
        published = publish(raw=raw, warehouse=warehouse, publication=publication, display=display)
        outcome["database"] = str(published.database)
        outcome["report"] = str(published.report)
        outcome["docs"] = str(published.docs) if published.docs else None
    return outcome
