"""A running recipe as the flow sees it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from contracts.records import FailureClass
from flows.engines import http
from flows.engines.base import Engine, EngineFacts
from flows.engines.processes import Process

TAIL_BYTES = 1 << 16


@dataclass(frozen=True)
class Teardown:
    """How the end went. is_clean: everything ended, every port is free; else `note` says what was not."""

    is_clean: bool
    note: str | None = None


@dataclass(frozen=True)
class Death:
    """A server that ended by itself. exit_code: negative for a signal."""

    failure_class: FailureClass
    summary: str
    exit_code: int | None
    evidence: list[dict[str, Any]]
    log_tail: list[str]


@dataclass
class Served:
    """The endpoints of a recipe that is up. endpoints: base URLs without `/v1`, one per replica (or the router's)."""

    engine: Engine
    endpoints: list[str]
    model: str
    facts: EngineFacts
    command: list[list[str]]
    log_names: list[str]
    started_at: str
    ready_at: str
    ready_s: float
    processes: list[Process]
    run_path: Path
    metrics_urls: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    gpu_check: Callable[[], str | None] | None = None
    _client: httpx.Client | None = field(default=None, repr=False)

    @property
    def client(self) -> httpx.Client:
        if self._client is None:
            self._client = httpx.Client(trust_env=False, headers=self.headers)
        return self._client

    def counters(self) -> list[dict[str, Any]]:
        """Each endpoint's counters now, canonical names, absent is None; `source_names` and `notes` inside."""
        found = []
        roles = [process.spec.role for process in self.processes if process.spec.role != "router"]
        for index, url in enumerate(self.metrics_urls or [f"{base}/metrics" for base in self.endpoints]):
            text = http.get_text(self.client, url) or ""
            role = roles[index] if index < len(roles) else None
            found.append({"endpoint": index, "role": role, **self.engine.read_counters(text)})
        return found

    def is_alive(self) -> bool:
        """Whether every process still runs. An external endpoint has none and counts as alive."""
        return all(process.is_alive for process in self.processes)

    def exit_codes(self) -> dict[str, int]:
        """The exit code of every process that has ended by itself, by its log's name; negative for a signal."""
        return {p.name: p.exit_code for p in self.processes if p.exit_code is not None}

    def death(self) -> Death | None:
        """Why a process is gone, from its log and exit code; None while all live."""
        from flows.engines.start import explain_end

        for process in self.processes:
            if not process.is_alive:
                reading, failure_class, summary = explain_end(self.engine, process)
                return Death(
                    failure_class, summary, process.exit_code, reading.evidence, tail(process.log, 40)
                )
        return None

    def log_tail(self, lines: int = 40) -> list[str]:
        """The last lines of all the logs, each with its log's name when there are several."""
        found = []
        for process in self.processes:
            prefix = f"{process.name}: " if len(self.processes) > 1 else ""
            found += [prefix + line for line in tail(process.log, lines)]
        return found

    @property
    def token_counter_source(self) -> str | None:
        """Where `count_tokens` asks, null when the engine counts no tokens for us."""
        path = getattr(self.engine, "token_counter", None)
        return f"{self.engine.name} POST {path}" if path else None

    def count_tokens(self, text: str) -> int | None:
        """Tokens of a text by the server's own tokenizer, without special tokens; None when it does not say."""
        path = getattr(self.engine, "token_counter", None)
        if not path:
            return None
        body = {
            "model": self.model, "content": text, "prompt": text, "add_special": False, "add_special_tokens": False,
        }  # fmt: skip
        try:
            answer = self.client.post(self.endpoints[0] + path, json=body, timeout=60)
            data = answer.json() if answer.status_code == 200 else {}
        except (httpx.HTTPError, ValueError):
            return None
        if isinstance(data.get("count"), int):
            return int(data["count"])
        return len(data["tokens"]) if isinstance(data.get("tokens"), list) else None

    def stop(self, grace_s: float | None = None) -> Teardown:
        """End every process and say whether all is gone: children, ports, GPU memory. Safe to call twice."""
        notes = []
        for process in reversed(self.processes):
            note = process.end() if grace_s is None else process.end(grace_s)
            if note:
                notes.append(note)
        if self.gpu_check is not None and (gpu_note := self.gpu_check()):
            notes.append(gpu_note)
        if self._client is not None:
            self._client.close()
            self._client = None
        return Teardown(not notes, "; ".join(notes) or None)


def tail(path: Path, lines: int) -> list[str]:
    """The last lines of a log, of at most the last 64 KiB; progress bars show their last state only."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - TAIL_BYTES))
            data = stream.read()
    except OSError:
        return []
    text = data.replace(b"\0", b"").decode("utf-8", "replace")
    rows = [row.rstrip("\r").rsplit("\r", 1)[-1] for row in text.split("\n")]
    return [row for row in rows if row.strip()][-lines:]


def describe_exit(code: int | None) -> str:
    """An exit code in words: `exit code 2`, `killed by SIGKILL`."""
    if code is None:
        return "still running"
    if code < 0 or code > 128:
        number = -code if code < 0 else code - 128
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(number).name}"
    return f"exit code {code}"
