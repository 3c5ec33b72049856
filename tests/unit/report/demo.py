"""A small published database made by hand, so that what a reader sees can be tested without a build.

Two recipes of one model: `steady` publishes, `shaky` has one row of every other standing; a third failed, a fourth
rescued it. Every number is chosen, none measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

SCREENS = (
    "needle_gate", "cache_screen", "roofline", "cache_accounting", "nonce_audit", "output_attainment",
    "token_reconciliation", "population", "little_law", "client_lag", "clock_sanity", "steady_state", "sample_size",
    "stream_granularity", "server_health", "declared_config",
)  # fmt: skip

ROW_TYPES = {
    "row_id": "varchar", "source": "varchar", "campaign": "varchar", "run_id": "varchar", "recipe": "varchar",
    "engine": "varchar", "engine_version": "varchar", "model": "varchar", "layout": "varchar", "gpus": "bigint",
    "gpu_name": "varchar", "workload": "varchar", "variant": "varchar", "concurrency": "bigint",
    "context_tokens": "bigint", "repeat": "bigint", "attempt": "bigint", "users": "bigint", "window_s": "double",
    "requests_planned": "bigint", "requests_ok": "bigint", "requests_failed": "bigint", "requests_cancelled": "bigint",
    "requests_unsent": "bigint", "prompt_tokens": "bigint", "cached_tokens": "bigint", "output_tokens": "bigint",
    "output_tokens_per_s": "double", "total_tokens_per_s": "double", "requests_per_s": "double",
    "ttft_ms_mean": "double", "ttft_ms_p50": "double", "ttft_ms_p90": "double", "ttft_ms_p99": "double", "tpot_ms_p50": "double",
    "tpot_ms_p90": "double", "e2e_ms_p50": "double", "uncached_prefill_tokens_per_s": "double",
    "decode_tokens_per_s": "double", "mean_concurrency": "double", "needles_found": "bigint",
    "needles_asked": "bigint", **dict.fromkeys(SCREENS, "varchar"), "policy": "varchar", "standing": "varchar",
    "standing_original": "varchar", "standing_strict": "varchar", "standing_reason": "varchar",
    "window_state": "varchar", "opened_at": "timestamptz",
}  # fmt: skip

RUN_TYPES = {
    "run_id": "varchar", "campaign": "varchar", "recipe": "varchar", "engine": "varchar", "engine_version": "varchar",
    "model": "varchar", "state": "varchar", "failure_class": "varchar", "failure_summary": "varchar",
    "evidence": "json", "rescues": "varchar", "node_id": "varchar", "gpus": "bigint", "policy": "varchar",
    "ready_s": "double", "started_at": "timestamptz",
}  # fmt: skip


def row(
    recipe: str, workload: str, concurrency: int, standing: str = "publishable", **given: Any
) -> dict[str, Any]:
    """One row of measured_rows; screens pass unless given."""
    cell = f"{workload}-c{concurrency}-{given.get('context_tokens', 600)}-{given.get('users', 1)}"
    made = {
        "row_id": f"20261201T100000-{recipe}/{cell}", "source": "measured", "campaign": "demo",
        "run_id": f"20261201T100000-{recipe}", "recipe": recipe, "engine": "llamacpp", "engine_version": "2026.10",
        "model": "toy-1m", "gpus": 0, "workload": workload, "variant": "", "concurrency": concurrency,
        "context_tokens": 600, "repeat": 0, "attempt": 1, "window_s": 12.5, "requests_planned": 8, "requests_ok": 8,
        "requests_failed": 0, "requests_cancelled": 0, "requests_unsent": 0, "prompt_tokens": 4800, "cached_tokens": 0,
        "output_tokens": 256, "output_tokens_per_s": 60.0 * concurrency**0.5,
        "total_tokens_per_s": 400.0 * concurrency**0.5, "requests_per_s": 0.64, "ttft_ms_mean": 220.0 * concurrency, "ttft_ms_p50": 210.0 * concurrency,
        "ttft_ms_p90": 260.0 * concurrency, "tpot_ms_p50": 15.0, "e2e_ms_p50": 700.0 * concurrency,
        "decode_tokens_per_s": 66.0, "mean_concurrency": concurrency * 0.99, **dict.fromkeys(SCREENS, "pass"),
        "policy": "original", "standing": standing, "standing_original": standing, "standing_strict": "provisional",
        "standing_reason": None, "window_state": "complete", "opened_at": "2026-12-01 10:00:00+00",
        "sample_size": "unknown",
    }  # fmt: skip
    return made | given


ROWS = [
    *(row("steady", "sweep", c) for c in (1, 2, 4)),
    row("steady", "fresh_document", 1, needles_found=3, needles_asked=3),
    row("steady", "conversation_ramp", 1, users=1, needles_found=4, needles_asked=4),
    row("shaky", "sweep", 1, "provisional", needle_gate="unknown", standing_reason="needle_gate unknown"),
    row("shaky", "sweep", 2, "held", cache_screen="fail", standing_reason="cache_screen fail: 81,000 > 60,000 tokens/s",
        output_tokens_per_s=990.0),
    row("shaky", "sweep", 4, "invalid", population="fail", standing_reason="the engine died in the window",
        window_state="engine_died", requests_ok=3, requests_failed=5, ttft_ms_p90=None),
]  # fmt: skip

RUNS = [
    {"run_id": "20261201T100000-steady", "recipe": "steady", "state": "served", "ready_s": 2.5},
    {"run_id": "20261201T100000-shaky", "recipe": "shaky", "state": "engine_died", "ready_s": 2.7},
    {"run_id": "20261201T100100-greedy", "recipe": "greedy", "state": "failed", "failure_class": "host_oom",
     "failure_summary": "the KV cache of 900 GB cannot be allocated",
     "evidence": '[{"file": "server.log", "line": 41, "text": "failed to allocate buffer <kv>"}]'},
    {"run_id": "20261201T100200-modest", "recipe": "modest", "state": "served", "ready_s": 2.4, "rescues": "greedy"},
]  # fmt: skip
for _run in RUNS:
    _run |= {"campaign": "demo", "engine": "llamacpp", "engine_version": "2026.10", "model": "toy-1m", "gpus": 0,
             "policy": "original", "node_id": "node-1", "started_at": "2026-12-01 09:59:00+00"}  # fmt: skip


def make_warehouse(
    path: Path, tables: dict[str, list[dict[str, Any]]] | None = None, *, is_empty: bool = False
) -> Path:
    """Write the database; `tables` adds marts (types as DuckDB reads them). is_empty: tables, and no rows in them."""
    with duckdb.connect(str(path)) as connection:
        connection.execute("create schema marts")
        for name, types, rows in (("measured_rows", ROW_TYPES, ROWS), ("runs", RUN_TYPES, RUNS)):
            create(connection, name, types)
            for each in [] if is_empty else rows:
                insert(connection, f"marts.{name}", each)
        connection.execute(
            "create view marts.gated_rows as from marts.measured_rows where standing = 'publishable'"
        )
        for name, rows in (tables or {}).items():
            columns = {
                key: value for each in reversed(rows) for key, value in each.items() if value is not None
            }
            create(connection, name, {column: _type(value) for column, value in columns.items()})
            for each in rows:
                insert(connection, f"marts.{name}", {k: v for k, v in each.items() if k in columns})
    return path


def create(connection: Any, name: str, types: dict[str, str]) -> None:
    columns = ", ".join(f'"{column}" {kind}' for column, kind in types.items())
    connection.execute(f"create table marts.{name} ({columns})")


def insert(connection: Any, table: str, values: dict[str, Any]) -> None:
    names = ", ".join(f'"{name}"' for name in values)
    connection.execute(
        f"insert into {table} ({names}) values ({', '.join('?' * len(values))})", list(values.values())
    )


def _type(value: Any) -> str:
    for kind, name in ((bool, "boolean"), (int, "bigint"), (float, "double"), (list, "varchar[]")):
        if isinstance(value, kind):
            return name
    return "varchar"
