"""Reads other tools' result files into raw, so that the same screens judge them.

Everything is read before anything is written: a file that is refused leaves raw as it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contracts.errors import BadInput
from flows.importers.contamination import compare_rows, read_dumps
from flows.importers.evidence import gather
from flows.importers.formats import FORMATS, read_rows
from flows.importers.land import land_run
from flows.importers.pairing import pair
from flows.importers.reading import read_document
from flows.importers.recompute import recompute
from flows.importers.result import RefusedResult, ResultRow, UnknownResult
from flows.landing import RunFolder

__all__ = ["FORMATS", "RefusedResult", "ResultRow", "UnknownResult", "import_files", "read_files"]


def read_files(
    paths: Sequence[Path], *, metrics_before: Path | None = None, metrics_after: Path | None = None
) -> tuple[list[list[ResultRow]], Any]:
    """Parse files into rows, grouped by server lifetime, with every check done; writes nothing.

    Returns (groups, dumps). Raises UnknownResult, RefusedResult or BadInput.
    """
    if not paths:
        raise BadInput("no file to import", next_step="weighbridge import FILE...")
    dumps = read_dumps(metrics_before, metrics_after)
    rows = pair([row for path in _distinct(paths) for row in read_rows(read_document(path))])
    for row in rows:
        if is_mock(row):
            row.evidence["is_mock"] = True
            row.notes.append("the server was a mock: such a row is a test of the tool and never publishes")
        recompute(row)
        gather(row)
    groups: dict[Any, list[ResultRow]] = defaultdict(list)
    for row in rows:
        groups[_lifetime(row)].append(row)
    if dumps is not None and len(groups) > 1:
        raise BadInput(
            f"metrics dumps belong to one server, these files are of {len(groups)}",
            evidence=", ".join(sorted({row.source.name for row in rows})),
            next_step="import the files of one server with their dumps",
        )
    return [compare_rows(group, dumps) for group in groups.values()], dumps


def import_files(
    paths: Sequence[Path],
    raw: Path,
    *,
    campaign: str = "imported",
    metrics_before: Path | None = None,
    metrics_after: Path | None = None,
) -> list[RunFolder]:
    """Read result files and land them under `raw/<campaign>/`, one run a server lifetime. Returns the run folders."""
    groups, dumps = read_files(paths, metrics_before=metrics_before, metrics_after=metrics_after)
    return [land_run(group, raw, campaign, dumps) for group in groups]


def is_mock(row: ResultRow) -> bool:
    """Whether the file itself says that no real engine served: a model or engine called mock, echo or dummy-server."""
    words = {word for text in (row.model, row.engine) for word in text.lower().replace("/", "-").split("-")}
    return bool(words & {"mock", "mocker", "echo"})


def _distinct(paths: Sequence[Path]) -> list[Path]:
    seen: dict[Path, Path] = {}
    for path in paths:
        seen.setdefault(path.resolve(), path)
    names = [path.name for path in seen.values()]
    if len(set(names)) != len(names):
        raise BadInput("two files have the same name", evidence=", ".join(sorted(names)))
    return list(seen.values())


def _lifetime(row: ResultRow) -> tuple[Any, ...]:
    """Rows that may be of one server: same tool, model and server settings. A sweep restarts for each setting."""
    settings = tuple(sorted((key, str(value)) for key, value in row.server_settings.items()))
    return (row.tool, row.tool_version, row.model, row.engine, settings)
