"""Lands imported rows in raw: one run folder a server lifetime, one cell a row, sealed like everything else."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from contracts.records import (
    BringUp,
    Cell,
    Counters,
    ImportedResult,
    NodeFacts,
    Request,
    RunEnd,
    RunStart,
    Telemetry,
    Window,
)
from flows import __version__
from flows.importers.contamination import Dumps
from flows.importers.reading import read_document
from flows.importers.result import RequestRow, ResultRow
from flows.landing import RunFolder, utc_now

PRICE = {
    "usd_per_gpu_hour": None,
    "key": "unknown",
    "source": "imported: the file states no price",
    "as_of": None,
}


def land_run(rows: list[ResultRow], raw: Path, campaign: str, dumps: Dumps | None) -> RunFolder:
    """Land rows of one server lifetime as one run. The files lie beside, under `files/`, without their texts."""
    first = rows[0]
    name = re.sub(r"[^a-z0-9._-]+", "-", f"{first.tool}-{first.model.rsplit('/', 1)[-1]}".lower()).strip(
        "-."
    )[:60]
    run_id = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{name}-{secrets.token_hex(2)}"
    run = RunFolder.create(raw, campaign, run_id)
    own: dict[str, Any] = {"campaign": campaign, "run_id": run_id}
    started = min((row.started_at for row in rows if row.started_at), default=utc_now())
    run.land_records("run_start.jsonl", [_run_start(rows, name, started, own)])
    run.land_records(
        "node.jsonl", [NodeFacts(**own, node_id="imported", read_at=utc_now(), facts={"node_id": "imported"})]
    )
    run.land_records("bring_up.jsonl", [_bring_up(first, own)])
    for place, row in enumerate(rows):
        _land_cell(run, row, f"c{place:03d}", dumps, own, only_row=len(rows) == 1)
    for source in _sources(rows):
        _land_source(run, source)
    for source in dumps.paths if dumps else ():
        run.land_file(source.name, source)
    run.land_records("run_end.jsonl", [RunEnd(**own, state="served", ended_at=utc_now(), note="imported")])
    return run


def _sources(rows: list[ResultRow]) -> list[Path]:
    return sorted({path for row in rows for path in (row.source, row.requests_source) if path is not None})


def _land_source(run: RunFolder, source: Path) -> None:
    """The file as it was given, less what people wrote and models answered, and less keys: those never enter raw."""
    document = read_document(source)
    if document.kind == "csv":
        run.land_file(source.name, source)
        return
    kept = without_texts(document.data)
    lines = kept if document.kind == "jsonl" else [kept]
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    run.part(f"files/{source.name}").write_bytes(data)
    run.land(f"files/{source.name}")


# Always texts or secrets; and names that also stand for settings, which are texts when they hold words.
_TEXTS = {
    "generated_text", "generated_texts", "request_args", "request_inputs", "response_outputs", "response_chunks",
    "request", "response", "messages", "payload", "payloads", "api_key", "authorization", "headers", "reasoning_text",
}  # fmt: skip
_TEXTS_IF_WORDS = {"prompt", "prompts", "output", "outputs", "text", "texts", "content", "input", "inputs"}
LEFT_OUT = "left out by the importer"


def without_texts(value: Any) -> Any:
    """The same data with prompts, answers and keys replaced by a word that says so."""
    if isinstance(value, dict):
        return {
            key: LEFT_OUT if _is_text(key, inner) else without_texts(inner) for key, inner in value.items()
        }
    if isinstance(value, list):
        return [without_texts(inner) for inner in value]
    return value


def _is_text(key: str, value: Any) -> bool:
    name = key.lower()
    if value is None or value == "" or value == []:
        return False
    if name in _TEXTS:
        return True
    words = value if isinstance(value, list) else [value]
    return name in _TEXTS_IF_WORDS and all(isinstance(word, str) for word in words)


def _run_start(rows: list[ResultRow], name: str, started: str, own: dict[str, Any]) -> RunStart:
    first = rows[0]
    return RunStart(
        **own,
        source="imported",
        recipe=name,
        engine=first.engine,
        model=first.model,
        node_id="imported",
        gpus=max((row.gpus for row in rows if row.gpus), default=1),
        policy="strict",
        price=PRICE,
        recipe_settings={key: value for key, value in first.server_settings.items() if _is_plain(value)},
        weighbridge_version=__version__,
        started_at=started,
        importer={
            "tool": first.tool,
            "tool_version": first.tool_version,
            "files": [{"name": path.name, "sha256": _sha256(path)} for path in _sources(rows)],
            "imported_at": utc_now(),
            "gpus_known": any(row.gpus for row in rows),
            "axis": "instants of requests stand on a synthetic monotonic axis: the tool's own clock where it kept one, "
            "else every request from 0; `_at` is null where the tool gave no wall time",
        },
    )


def _bring_up(row: ResultRow, own: dict[str, Any]) -> BringUp:
    return BringUp(**own, state="served", command=[], served_model=row.model)


def _land_cell(
    run: RunFolder, row: ResultRow, cell_id: str, dumps: Dumps | None, own: dict[str, Any], *, only_row: bool
) -> None:
    planned = row.figure("requests_planned") or _claimed_of_torn(row)
    concurrency = row.figure("asked_concurrency")
    run.land_records(
        f"cells/{cell_id}.jsonl",
        [
            Cell(
                **own,
                cell_id=cell_id,
                workload=row.label,
                variant=row.variant or (f"row{row.row_in_file}" if row.row_in_file else ""),
                # 0 is "no limit was asked for" here, as in a shape; what was reached is in the headline or unknown.
                concurrency=int(concurrency) if concurrency is not None else 0,
                seed=0,
                shape={"kind": row.kind, "concurrency": concurrency, "rate_rps": row.figure("asked_rps")},
                asked_prompt_tokens=row.asked_prompt_tokens,
                asked_output_tokens=row.asked_output_tokens,
                is_fixed_length=row.is_fixed_length,
                planned_requests=int(planned or 0),
                cache_budget_min=0.0,
                cache_budget_max=0.01,
                params={key: value for key, value in row.client_settings.items() if _is_plain(value)},
                window_state="complete",
                window_note="imported: no window of this project's client",
                opened_at=row.started_at,
            )
        ],
    )
    run.land_records(f"imported/{cell_id}.jsonl", [_result(row, cell_id, own)])
    if row.requests:
        _land_requests(run, row, cell_id, own)
    if row.telemetry:
        run.land_records(
            f"telemetry/{cell_id}.jsonl",
            [Telemetry(**own, cell_id=cell_id, **sample) for sample in row.telemetry],
        )
    if dumps is not None and (row.evidence.get("span_is_own") or row.evidence.get("is_repeat_confirmed")):
        run.land_records(f"counters/{cell_id}.jsonl", _counters(row, dumps, cell_id, own))


def _claimed_of_torn(row: ResultRow) -> int:
    """Requests that the summary counts where their file holds other ones; 0 stands for not known."""
    found, claimed = row.evidence.get("records_found"), row.evidence.get("records_claimed")
    return int(claimed) if claimed is not None and found != claimed else 0


def _result(row: ResultRow, cell_id: str, own: dict[str, Any]) -> ImportedResult:
    return ImportedResult(
        **own,
        cell_id=cell_id,
        tool=row.tool,
        tool_version=row.tool_version,
        source_file=row.source.name,
        source_sha256=_sha256(row.source),
        row_in_file=row.row_in_file,
        headline=row.headline,
        recomputed=row.recomputed,
        differences=row.differences,
        has_requests=bool(row.requests),
        has_instants=row.has_instants,
        evidence={key: value for key, value in row.evidence.items() if value is not None},
        missing=row.missing,
        notes=row.notes,
    )


def _land_requests(run: RunFolder, row: ResultRow, cell_id: str, own: dict[str, Any]) -> None:
    run.land_records(
        f"requests/{cell_id}.jsonl",
        (_request(request, row, cell_id, place, own) for place, request in enumerate(row.requests)),
    )
    sends = [request.sent_ns for request in row.requests if request.sent_ns is not None]
    ends = [request.end_ns for request in row.requests if request.end_ns is not None]
    if not row.has_instants or not sends or not ends:
        return
    outcomes = [request.outcome for request in row.requests]
    opened, closed = min(sends), max(ends)
    asked = row.figure("asked_concurrency")
    run.land_records(
        f"windows/{cell_id}.jsonl",
        [
            Window(
                **own,
                cell_id=cell_id,
                opened_ns=opened,
                closed_ns=closed,
                opened_at=_wall(row, opened),
                closed_at=_wall(row, closed),
                processes=1,
                asked_concurrency=int(asked) if asked is not None else None,
                planned=row.evidence.get("records_claimed") or len(outcomes),
                ok=outcomes.count("ok"),
                failed=outcomes.count("failed"),
                cancelled=outcomes.count("cancelled"),
                unsent=outcomes.count("unsent"),
            )
        ],
    )


def _request(request: RequestRow, row: ResultRow, cell_id: str, place: int, own: dict[str, Any]) -> Request:
    sent = (
        request.sent_ns if request.sent_ns is not None else 0 if request.first_token_ns is not None else None
    )
    return Request(
        **own,
        cell_id=cell_id,
        request_id=f"{own['run_id']}/{cell_id}/{place}",
        index=place,
        session_id=request.session_id,
        turn=request.turn,
        outcome=request.outcome,  # type: ignore[arg-type]
        error_detail=request.error_detail,
        http_status=request.http_status,
        planned_ns=request.planned_ns if request.planned_ns is not None else sent,
        sent_ns=sent,
        sent_at=request.sent_at,
        first_token_ns=request.first_token_ns,
        last_token_ns=request.last_token_ns,
        end_ns=request.end_ns,
        chunk_gap_ns=request.chunk_gap_ns,
        chunk_count=len(request.chunk_gap_ns),
        event_count=len(request.chunk_gap_ns),
        prompt_tokens=request.prompt_tokens,
        cached_tokens=request.cached_tokens,
        output_tokens=request.output_tokens,
        reasoning_tokens=request.reasoning_tokens,
        output_token_source=request.token_source if request.output_tokens is not None else None,  # type: ignore[arg-type]
        finish_reason=request.finish_reason,
        asked_output_tokens=row.asked_output_tokens if row.is_fixed_length else None,
    )


def _counters(row: ResultRow, dumps: Dumps, cell_id: str, own: dict[str, Any]) -> Iterable[Counters]:
    """The dumps as they are: before, and after. The axis is synthetic, so their instants are 0 and 1."""
    fields = set(Counters.__struct_fields__)
    before = {key: value for key, value in dumps.before.items() if key in fields}
    after = {key: value for key, value in dumps.after.items() if key in fields}
    yield Counters(**own, cell_id=cell_id, at="before", at_ns=0, scraped_at=utc_now(), **before)
    yield Counters(**own, cell_id=cell_id, at="after", at_ns=1, scraped_at=utc_now(), **after)


def _wall(row: ResultRow, instant_ns: int) -> str:
    """The instant as wall time where the tool's clock is one (after the year 2001), else the file's own start."""
    if instant_ns > 10**18:
        return (
            datetime.fromtimestamp(instant_ns / 1e9, UTC)
            .isoformat(timespec="microseconds")
            .replace("+00:00", "Z")
        )
    return row.started_at or utc_now()


def _is_plain(value: Any) -> bool:
    return isinstance(value, (str, int, bool)) or (
        isinstance(value, float) and value == value and abs(value) != float("inf")
    )


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
