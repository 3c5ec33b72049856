"""The dbt docs as one static page: every model, column and exposure, with the lineage graph. Needs no network."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from contracts.errors import BadInput, BuildFailed
from flows.warehouse.build import DATABASE
from flows.warehouse.dbt import PROJECT, DbtProcess

# dbt asks its catalog query of an open database. Opened read-only, the published one is never held or changed.
_PROFILE = """\
weighbridge:
  target: docs
  outputs:
    docs:
      type: duckdb
      path: {path}
      threads: 2
      config_options: {{access_mode: read_only}}
"""


def write_docs(raw: Path, warehouse: Path, out: Path) -> Path:
    """Write the docs of the published warehouse to `out`, whole or not at all; returns `out`.

    raw is not read: it is taken so that the flow calls every step alike. Raises BadInput where nothing is published,
    BuildFailed when dbt does not succeed.
    """
    database = Path(warehouse).resolve() / DATABASE
    if not database.exists():
        raise BadInput(f"there is no warehouse at {database}", next_step="weighbridge build")
    out = Path(out)
    with tempfile.TemporaryDirectory(prefix="weighbridge-docs-") as scratch:
        folder = Path(scratch)
        (folder / "profiles.yml").write_text(_PROFILE.format(path=database), encoding="utf-8")
        target = folder / "target"
        with DbtProcess(folder, target, profiles=folder) as dbt:
            dbt.run(["docs", "generate", "--static"])
        page = target / "static_index.html"
        if not page.exists():
            raise BuildFailed("dbt wrote no docs", evidence=str(target))
        out.parent.mkdir(parents=True, exist_ok=True)
        part = out.with_suffix(".part")
        part.write_text(_without_local_paths(page.read_text(encoding="utf-8"), folder), encoding="utf-8")
        os.replace(part, out)
    return out


def _without_local_paths(page: str, scratch: Path) -> str:
    """The page is published: where the project lies on this machine is nobody's business."""
    for path, name in ((scratch, "."), (PROJECT.parent, ".")):
        page = page.replace(str(path) + os.sep, "").replace(str(path), name)
    return page
