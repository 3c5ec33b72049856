"""The sources and staging models: one view a record kind, with every field cast and named."""

from __future__ import annotations

from contracts.fields import GAP_FIELDS, USER_GAPS, fields_of
from contracts.records import KINDS

# record kind -> (staging model, grain)
MODELS = {
    "run_start": ("stg_runs", "one row per run folder whose run_start was readable"),
    "node": ("stg_nodes", "one row per run whose node facts were readable"),
    "bring_up": ("stg_bring_ups", "one row per run whose bring-up was readable"),
    "cell": ("stg_cells", "one row per run_id and cell_id"),
    "request": ("stg_requests", "one row per run_id and request_id"),
    "window": ("stg_windows", "one row per run_id and cell_id"),
    "counters": ("stg_counters", "one row per scrape of one endpoint"),
    "grade": ("stg_grades", "one row per graded answer and grader"),
    "telemetry": ("stg_telemetry", "one row per sample of one GPU"),
    "probe": ("stg_probes", "one row per probe"),
    "imported_result": ("stg_imported_results", "one row per run_id and cell_id of an imported run"),
    "run_end": ("stg_run_ends", "one row per run whose end was recorded"),
}
HEADER = "-- written by python -m contracts.generate from contracts/records.py\n"


def outputs() -> dict[str, str]:
    """Path -> content of the staging models and their yml."""
    files = {}
    for kind, (model, grain) in MODELS.items():
        files[f"dbt/models/staging/{model}.sql"] = _model(
            kind, "request" if kind == "request" else kind, grain
        )
    files["dbt/models/staging/stg_requests_new.sql"] = _model(
        "request", "request_new", "one row per run_id and request_id of the runs that this build reads"
    )
    files["dbt/models/staging/sources.yml"] = _sources()
    return files


def _model(kind: str, table: str, grain: str) -> str:
    lines = [HEADER + f"-- grain: {grain}", "select"]
    for field in fields_of(kind):
        name = f'"{field.name}"' if field.name in _RESERVED else field.name
        if field.type == "text" and field.name.endswith("_at"):
            lines.append(f"    try_cast({name} as timestamp) as {name},")
        else:
            lines.append(f"    {name},")
    lines += ["    file,", "    line,"]
    if kind == "request":
        lines += [f"    {name}," for name in (*GAP_FIELDS, USER_GAPS)]
    lines.append(f"from {{{{ source('raw', '{table}') }}}}")
    return "\n".join(lines) + "\n"


_RESERVED = {"user", "index", "at"}


def _sources() -> str:
    lines = [
        "# written by python -m contracts.generate; do not edit",
        "version: 2",
        "sources:",
        "  - name: raw",
        "    schema: raw",
        "    description: >",
        "      Sealed raw evidence as flows.warehouse loaded it: one table a record kind, every line with its file and",
        "      line number; and what was refused, with the reason.",
        "    tables:",
    ]
    notes = {kind: f"{grain}; see contracts/records.py" for kind, (_, grain) in MODELS.items()}
    notes["request_new"] = "the requests of the runs that this build reads for the first time or again"
    notes["files"] = "one row per file of a run folder, with its state against the seal"
    notes["quarantine"] = "one row per refused raw line, with reason, file and line"
    notes["cell_chunks"] = "one row per request file: exact percentiles of the gaps between chunks"
    notes["run_loads"] = "one row per run folder: when and in which state it was read"
    notes["changed_runs"] = "run ids that this build reads, reads again, or found gone"
    assert set(KINDS) <= set(notes)
    for name, note in notes.items():
        lines += [f"      - name: {name}", f'        description: "{note}"']
    return "\n".join(lines) + "\n"
