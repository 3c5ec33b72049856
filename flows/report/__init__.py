"""What a reader looks at: tables for a terminal, one HTML page, and the files of a publication.

Reads the published database and nothing else; decides nothing. `write_report` and `write_publication` are the seams.
"""

from __future__ import annotations

from pathlib import Path


def write_report(database: Path, out: Path) -> Path:
    """Write the whole report as one HTML file that needs no network; returns its path. See flows.report.page."""
    from flows.report.page import write_page

    return write_page(database, out)


def write_publication(database: Path, folder: Path) -> list[Path]:
    """Write the files that may be handed on (evidence JSON, CSVs, chart data); returns them. See flows.report.publication."""
    from flows.report.publication import write_files

    return write_files(database, folder)
