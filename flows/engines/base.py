"""What every engine file gives, and what a running server looks like to the flow.

An engine file (`flows/engines/<name>.py`) defines one class that satisfies `Engine`. `bring_up` (flows.engines.start)
does what is common: start the processes on a leash, follow their logs, wait for readiness, read facts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from contracts.errors import WeighbridgeError
from contracts.records import FailureClass
from flows.recipe import Recipe


@dataclass(frozen=True)
class ProcessSpec:
    """One server process: argv, environment added to the parent's, the port it listens on, its role."""

    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    port: int | None = None
    role: str = "server"  # server, replica, prefill, decode, router
    gpu_ids: list[int] | None = None


@dataclass
class EngineFacts:
    """What an engine said of itself, in its log or over HTTP. None: it did not say; never computed."""

    version: str | None = None
    kv_tokens: int | None = None
    max_concurrency: float | None = None
    prefix_caching: bool | None = None
    max_running_requests: int | None = None
    max_model_len: int | None = None
    weight_bytes: int | None = None
    load_s: float | None = None
    phases_s: dict[str, float | None] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class LogReading:
    """A log as read by an engine's dialect. evidence: [{file, line, text}], lines counted from 1.

    state: ready, failed, unknown (or "offline_ran" where no server was meant).
    """

    engine: str | None
    state: str = "unknown"
    failure_class: FailureClass | None = None
    facts: EngineFacts = field(default_factory=EngineFacts)
    evidence: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class BringUpFailed(WeighbridgeError):
    """The engine did not come up: a recorded result, not a crash of the flow."""

    def __init__(
        self,
        failure_class: FailureClass,
        summary: str,
        reading: LogReading,
        command: list[list[str]],
        log_paths: list[Path],
        log_tail: list[str],
    ) -> None:
        super().__init__(
            f"{failure_class}: {summary}",
            evidence=str(log_paths[0]) if log_paths else None,
            next_step="weighbridge log FILE shows the lines that decided the class",
        )
        self.failure_class = failure_class
        self.summary = summary
        self.reading = reading
        self.command = command
        self.log_paths = log_paths
        self.log_tail = log_tail


class Engine(Protocol):
    """One engine's dialect. Pure where it can be: no Prefect, no workloads."""

    name: str

    def processes(self, recipe: Recipe, folder: Path) -> list[ProcessSpec]:
        """The command lines of a recipe. Raises BadInput for a recipe that this engine cannot express."""
        ...

    def is_ready(self, base_url: str, log_text: str) -> bool:
        """Whether the engine itself says that it is ready (a one-token request is tried after this)."""
        ...

    def read_log(self, lines: Any) -> LogReading:
        """Facts, state and failure class from log lines (an iterable of str; constant memory)."""
        ...

    def read_counters(self, metrics_text: str) -> dict[str, Any]:
        """Canonical counters (contracts.records.Counters field names) from a /metrics body; absent is None."""
        ...
