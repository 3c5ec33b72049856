"""Puts the halves of one result together: a summary, its per-request file, its telemetry."""

from __future__ import annotations

from contracts.errors import BadInput
from flows.importers.result import ResultRow

_TIME_SLACK_NS = 60_000_000_000


def pair(rows: list[ResultRow]) -> list[ResultRow]:
    """Rows with their per-request halves and telemetry merged in. Raises BadInput where two halves may be either's."""
    whole = [row for row in rows if row.part_of == "row"]
    for half in (row for row in rows if row.part_of == "requests"):
        owners = [row for row in whole if row.tool == half.tool and not row.requests]
        owner = _owner(half, owners)
        if owner is None:
            half.part_of = "row"
            _count_records(half, len(half.requests))
            whole.append(half)
        else:
            _merge(owner, half)
    for telemetry in (row for row in rows if row.part_of == "telemetry"):
        owner = _telemetry_owner(telemetry, whole)
        if owner is None:
            telemetry.part_of = "row"
            whole.append(telemetry)
        else:
            owner.telemetry = telemetry.telemetry
            owner.gpus = owner.gpus or telemetry.gpus
            owner.evidence["telemetry_file"] = telemetry.source.name
    for row in whole:
        if row.requests and "records_found" not in row.evidence:
            _count_records(row, _claimed(row))
    return whole


def _owner(half: ResultRow, owners: list[ResultRow]) -> ResultRow | None:
    fitting = [row for row in owners if _is_same_run(row, half)]
    if len(fitting) > 1:
        raise BadInput(
            f"{half.source.name} may belong to {len(fitting)} of the summaries",
            evidence=", ".join(row.source.name for row in fitting),
            next_step="import each summary with its own per-request file",
        )
    if fitting:
        return fitting[0]
    return None


def _is_same_run(summary: ResultRow, half: ResultRow) -> bool:
    """AIPerf: the first send is the summary's first timestamp. LLMPerf: as many, with the same mean first token."""
    stamp = summary.evidence.get("min_request_timestamp")
    sends = [request.sent_ns for request in half.requests if request.sent_ns is not None]
    if stamp is not None and sends:
        # The summary keeps its stamp as a float, good to 256 ns at this size.
        last = summary.evidence.get("max_response_timestamp") or stamp
        return stamp - 1_000 <= min(sends) <= last
    latencies = [request.first_token_ns - (request.sent_ns or 0) for request in half.requests
                 if request.outcome == "ok" and request.first_token_ns is not None]  # fmt: skip
    mean = summary.figure("ttft_mean_ms")
    if not latencies or mean is None:
        return False
    ours = sum(latencies) / len(latencies) / 1e6
    return abs(ours - mean) <= 0.001 * mean or len(half.requests) == summary.figure("requests_planned")


def _merge(summary: ResultRow, half: ResultRow) -> None:
    summary.requests = half.requests
    summary.requests_source = half.source
    summary.has_instants = half.has_instants
    summary.notes += half.notes
    summary.evidence |= {key: value for key, value in half.evidence.items() if key not in summary.evidence}
    summary.evidence["requests_file"] = half.source.name
    summary.missing = [entry for entry in summary.missing if not entry.startswith("per-request data")]
    _count_records(summary, _claimed(summary))


def _claimed(summary: ResultRow) -> int:
    counted = [summary.figure(name) for name in ("requests_ok", "requests_failed", "requests_cancelled")]
    known = [count for count in counted if count is not None]
    planned = summary.figure("requests_planned")
    claimed = max(sum(known) if known else 0.0, planned if planned and not known else 0.0)
    return int(claimed) if claimed else len(summary.requests)


def _count_records(row: ResultRow, claimed: int) -> None:
    found = len(row.requests)
    row.evidence["records_found"], row.evidence["records_claimed"] = found, claimed
    if found != claimed:
        row.notes.append(
            f"{found} of {claimed} requests have a record: the raw evidence is incomplete, the row must not publish"
        )


def _telemetry_owner(telemetry: ResultRow, rows: list[ResultRow]) -> ResultRow | None:
    instants = [sample["at_ns"] for sample in telemetry.telemetry]
    for row in rows:
        first, last = row.evidence.get("min_request_timestamp"), row.evidence.get("max_response_timestamp")
        if first is None:
            sends = [request.sent_ns for request in row.requests if request.sent_ns is not None]
            first, last = (min(sends), max(sends)) if sends and row.has_instants else (None, None)
        if first is None or row.tool != telemetry.tool:
            continue
        if min(instants) - _TIME_SLACK_NS <= (last or first) and first <= max(instants) + _TIME_SLACK_NS:
            return row
    return None
