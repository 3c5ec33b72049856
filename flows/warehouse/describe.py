"""Writes the yml of the staging and intermediate models: the columns of a built database, the dictionary's words.

`python -m flows.warehouse.describe DATABASE`, after a model's columns changed. A test compares the yml with a build.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import duckdb

from contracts.columns import COLUMNS
from contracts.generated.marts import described
from contracts.inner_columns import INNER_COLUMNS
from flows.warehouse.dbt import PROJECT

FOLDERS = {"staging": PROJECT / "models" / "staging", "intermediate": PROJECT / "models" / "intermediate"}


def describe(database: Path) -> dict[Path, str]:
    """Path -> content of the yml of both folders. Raises KeyError for a column that nobody described."""
    files = {}
    with duckdb.connect(str(database), read_only=True) as connection:
        for schema, folder in FOLDERS.items():
            lines = ["# written by python -m flows.warehouse.describe; do not edit", "version: 2", "models:"]
            for path in sorted(folder.rglob("*.sql")):
                lines += [
                    f"  - name: {path.stem}",
                    f"    description: {json.dumps(_note(path))}",
                    "    columns:",
                ]
                for (name,) in connection.execute(
                    "select column_name from information_schema.columns where table_schema = ? and table_name = ?"
                    " order by ordinal_position",
                    [schema, path.stem],
                ).fetchall():
                    text = INNER_COLUMNS.get(name) or described(COLUMNS[name])
                    lines += [f"      - name: {name}", f"        description: {json.dumps(text)}"]
            files[folder / f"{schema}_columns.yml"] = "\n".join(lines) + "\n"
    return files


def _note(path: Path) -> str:
    """The comment that stands at the head of a model: its grain, and why it is as it is."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("--"):
            break
        if "written by" not in line:
            lines.append(line.removeprefix("--").strip())
    text = re.sub(r"^grain: (.*)$", r"Grain: \1.", "\n".join(lines), count=1, flags=re.M)
    return " ".join(text.split())


if __name__ == "__main__":
    for target, content in describe(Path(sys.argv[1])).items():
        target.write_text(content, encoding="utf-8")
        print(target.relative_to(PROJECT.parent))  # noqa: T201
