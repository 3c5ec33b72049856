"""What an importer reads: one row of another tool's result file, before anything is written down."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contracts.errors import BadInput

LATENCIES = ("ttft", "tpot", "itl", "e2e")
STATISTICS = ("mean", "p50", "p90", "p95", "p99")


class UnknownResult(BadInput):
    """No importer knows this file."""


class RefusedResult(BadInput):
    """A file of a known tool that cannot be read as what it says it is."""


@dataclass
class RequestRow:
    """One request of a result file. Instants are ns on the file's own clock; null is not known.

    A request without `sent_ns` has no place on a common clock; its own latencies are then relative to 0.
    chunk_gap_ns: gaps between content chunks, the first one from the send.
    """

    outcome: str = "ok"
    sent_ns: int | None = None
    planned_ns: int | None = None
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    end_ns: int | None = None
    sent_at: str | None = None
    chunk_gap_ns: list[int] = field(default_factory=list)
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    token_source: str | None = None
    error_class: str | None = None
    error_detail: str | None = None
    http_status: int | None = None
    session_id: str | None = None
    turn: int | None = None
    finish_reason: str | None = None


@dataclass
class ResultRow:
    """One result row: canonical headline figures, requests where the tool kept them, and what is missing.

    headline, evidence and missing are those of contracts.records.ImportedResult. server_settings are what the
    file says of the server (they tell server lifetimes apart); client_settings what it says of the load.
    """

    tool: str
    tool_version: str | None
    source: Path
    row_in_file: int = 0
    model: str = "unknown"
    engine: str = "unknown"
    started_at: str | None = None
    label: str = "imported"
    variant: str = ""
    kind: str = "closed"
    headline: dict[str, Any] = field(default_factory=dict)
    asked_prompt_tokens: int | None = None
    asked_output_tokens: int | None = None
    is_fixed_length: bool = False
    requests: list[RequestRow] = field(default_factory=list)
    requests_source: Path | None = None
    has_instants: bool = False
    telemetry: list[dict[str, Any]] = field(default_factory=list)
    gpus: int | None = None
    server_settings: dict[str, Any] = field(default_factory=dict)
    client_settings: dict[str, Any] = field(default_factory=dict)
    evidence: dict[str, Any] = field(default_factory=dict)
    recomputed: dict[str, Any] = field(default_factory=dict)
    differences: list[dict[str, Any]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    part_of: str = "row"  # row, requests (per-request half of a summary) or telemetry

    def figure(self, name: str) -> float | None:
        """A headline figure as a float, or None where the file does not hold it."""
        value = self.headline.get(name)
        return None if value is None else float(value)

    def put(self, name: str, value: Any) -> None:
        """Take a headline figure; what is absent, not a number or infinite stays absent."""
        found = number(value)
        if found is not None:
            self.headline[name] = found

    def drop_zeros_of_nothing(self) -> None:
        """Where no request completed, every latency of 0.0 stands for nothing observed: absence is null."""
        if self.headline.get("requests_ok") != 0:
            return
        kept = {"requests_planned", "requests_ok", "requests_failed", "requests_cancelled", "duration_s"}
        kept |= {"asked_concurrency", "asked_rps", "sent_rps"}
        dropped = [name for name in self.headline if name not in kept]
        for name in dropped:
            del self.headline[name]
        self.notes.append(
            "no request completed: every latency and rate in the file is a zero of nothing observed"
        )


def number(value: Any) -> float | int | None:
    """A finite number, also one that stands as a string; else None (inf, NaN, N/A, null, text)."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        try:
            value = float(value.replace(",", ""))
        except ValueError:
            return None
        value = int(value) if value.is_integer() else value
    if isinstance(value, (int, float)) and math.isfinite(value):
        return value
    return None


def whole(value: Any) -> int | None:
    """A count, or None."""
    found = number(value)
    return None if found is None else round(found)


def to_ns(seconds: Any) -> int | None:
    """Seconds as integer nanoseconds, or None."""
    found = number(seconds)
    return None if found is None else round(found * 1e9)


def seconds_to_ms(value: Any) -> float | None:
    """Seconds as milliseconds, or None."""
    found = number(value)
    return None if found is None else found * 1e3
