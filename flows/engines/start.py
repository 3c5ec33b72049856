"""What every bring-up does: start the processes, follow their logs, wait until a token comes, read the facts."""

from __future__ import annotations

import os
import re
import signal
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from contracts.errors import BadInput
from contracts.records import FailureClass
from flows.engines import devices, http, layout
from flows.engines.base import BringUpFailed, Engine, EngineFacts, LogReading, ProcessSpec
from flows.engines.processes import Process, launch
from flows.engines.registry import get_engine
from flows.engines.served import Served, describe_exit, tail
from flows.landing import RunFolder, utc_now
from flows.recipe import Recipe

POLL_S = 0.1
LOG_WINDOW_BYTES = 1 << 20  # what readiness is looked for in: the engine says it near the end
RETRY_S = 0.5
REFUSALS = 5  # a 4xx will not go away by waiting
ERRORS = 20  # a 500 may, once or twice
FIRST_TOKEN_TIMEOUT_S = 300.0  # a first request may compile kernels
SECRET_FLAG = re.compile(r"^--?[a-z-]*(api[-_]?key|password|secret|hf[-_]?token)([=].*)?$", re.IGNORECASE)

OnEvent = Callable[[str, dict[str, Any]], None]


def bring_up(recipe: Recipe, run: RunFolder, on_event: OnEvent | None = None) -> Served:
    """Start a recipe's processes and return once a one-token request was answered by every endpoint.

    Logs go to `files/server-<n>.log` of the run, as `.part`; the caller lands them after `stop()`.
    Raises BringUpFailed with the class, the lines that decided it and the log's tail; nothing runs then.
    """
    engine = get_engine(recipe.engine)
    tell = on_event or (lambda _name, _facts: None)
    started_at = utc_now()
    try:
        _refuse_secrets(recipe)
        specs = engine.processes(recipe, run.path)
        layout.key_headers(recipe)
    except BadInput as error:
        raise _never_started(run, error) from error
    command = [spec.argv for spec in specs]
    starting = _Bringing(engine, recipe, run, tell, command)
    try:
        return starting.start(specs, started_at)
    except BaseException:
        starting.end_all()
        raise


class _Bringing:
    def __init__(
        self, engine: Engine, recipe: Recipe, run: RunFolder, tell: OnEvent, command: list[list[str]]
    ) -> None:
        self.engine, self.recipe, self.run, self.tell, self.command = engine, recipe, run, tell, command
        self.processes: list[Process] = []
        self.gpu_check = devices.memory_check(recipe.gpu_ids) if recipe.gpus or recipe.gpu_ids else None
        served_model = getattr(engine, "served_model", layout.served_name)
        self.model: str = served_model(recipe)
        self.headers = layout.key_headers(recipe)

    def start(self, specs: list[ProcessSpec], started_at: str) -> Served:
        begun = time.monotonic()
        deadline = begun + self.recipe.ready_timeout_s
        # A router answers only when what it routes to is up, so it starts last.
        for number, spec in enumerate(sorted(specs, key=lambda one: one.role == "router")):
            if spec.role == "router":
                self._wait_for_all(deadline)
            self.processes.append(launch(spec, number, self.run.path))
            self.tell("process_started", {"name": f"server-{number}", "role": spec.role})
        self._wait_for_all(deadline)
        fronts = [p for p in self.processes if p.spec.role == "router"] or self.processes
        endpoints = [_base_url(p.spec) for p in fronts]
        if not self.processes:
            endpoints = [self.engine.endpoint(self.recipe)]  # type: ignore[attr-defined]
        with httpx.Client(trust_env=False, headers=self.headers) as client:
            for index, endpoint in enumerate(endpoints):
                self._first_token(client, endpoint, fronts[index] if fronts else None, deadline)
            ready_s = time.monotonic() - begun
            ready_at = utc_now()
            facts = self._read_facts(client, endpoints)
        facts.phases_s["ready"] = round(ready_s, 3)
        measured = [_base_url(p.spec) for p in self.processes if p.spec.role != "router"] or endpoints
        self.tell("ready", {"ready_s": ready_s, "endpoints": endpoints})
        return Served(
            engine=self.engine,
            endpoints=endpoints,
            model=self.model,
            facts=facts,
            command=self.command,
            log_names=[f"files/{p.name}.log" for p in self.processes],
            started_at=started_at,
            ready_at=ready_at,
            ready_s=ready_s,
            processes=self.processes,
            run_path=self.run.path,
            metrics_urls=[f"{base}/metrics" for base in measured],
            headers=self.headers,
            gpu_check=self.gpu_check,
        )

    def end_all(self) -> None:
        for process in reversed(self.processes):
            process.end()

    def _wait_for_all(self, deadline: float) -> None:
        waiting = list(self.processes)
        while waiting:
            for process in self.processes:
                if not process.is_alive:
                    raise self._failure(process)
                process.note_output()
            process = waiting[0]
            if self._is_ready(process):
                self.tell("engine_ready", {"name": process.name})
                waiting.pop(0)
                continue
            if time.monotonic() > deadline:
                raise self._failure(process, timed_out=True)
            time.sleep(POLL_S)

    def _is_ready(self, process: Process) -> bool:
        """A router is this project's own, not the engine's: it is up when both sides are, and says so itself."""
        base = _base_url(process.spec)
        if process.spec.role == "router":
            return http.is_ok(f"{base}/health")
        return self.engine.is_ready(base, _log_text(process.log))

    def _first_token(
        self, client: httpx.Client, endpoint: str, process: Process | None, deadline: float
    ) -> None:
        """Ask for one token until it comes, or until the server has said no often enough."""
        why = "not tried"
        refusals = {"4": 0, "500": 0}
        while time.monotonic() < deadline:
            for one in self.processes:
                if not one.is_alive:
                    raise self._failure(one)
            left = max(1.0, min(FIRST_TOKEN_TIMEOUT_S, deadline - time.monotonic()))
            is_served, why = http.ask_one_token(client, endpoint, self.model, left)
            if is_served:
                return
            for sign in refusals:
                refusals[sign] += why.startswith(sign)
            if refusals["4"] >= REFUSALS or refusals["500"] >= ERRORS:
                break
            time.sleep(RETRY_S)
        if process is None:
            raise self._unreachable(endpoint, why)
        answered = why[:1] in ("4", "5")
        raise self._failure(process, timed_out=True, note=f"no first token: {why}", answered=answered)

    def _read_facts(self, client: httpx.Client, endpoints: list[str]) -> EngineFacts:
        """The first server's log and answers; what its siblings say otherwise is noted under `extra`."""
        measured = [p for p in self.processes if p.spec.role != "router"]
        read_facts = getattr(self.engine, "read_facts", None)
        all_facts = []
        for process in measured:
            facts = self.engine.read_log(_lines(process.log)).facts
            facts.phases_s["process"] = process.first_output_s
            if read_facts is not None:
                merge_facts(facts, read_facts(_base_url(process.spec), client))
            all_facts.append(facts)
        if not measured:
            return read_facts(endpoints[0], client) if read_facts is not None else EngineFacts()
        first = all_facts[0]
        if len(all_facts) > 1:
            first.extra["kv_tokens_by_server"] = [facts.kv_tokens for facts in all_facts]
            loads = [facts.load_s for facts in all_facts if facts.load_s is not None]
            first.load_s = max(loads, default=None)
        return first

    def _unreachable(self, endpoint: str, why: str) -> BringUpFailed:
        part = self.run.part("files/server-0.log")
        part.write_text(f"no first token from {endpoint}: {why}\n")
        evidence = [{"file": "files/server-0.log", "line": 1, "text": f"no first token: {why}"}]
        refused = why[:3] in ("401", "403", "404", "400", "422")
        failure_class: FailureClass = "bad_argument" if refused else "timeout"
        reading = LogReading(None, "failed", failure_class, evidence=evidence)
        return BringUpFailed(failure_class, f"no first token: {why}", reading, [], [part], [why])

    def _failure(
        self, process: Process, timed_out: bool = False, note: str | None = None, answered: bool = False
    ) -> BringUpFailed:
        reading, failure_class, summary = explain_end(self.engine, process, timed_out)
        if answered and failure_class == "timeout":
            # It was up and said no: that is no timeout, and the classes have no other word for it.
            failure_class = reading.failure_class = "unknown"
            summary = "the server answers, but gives no token"
        if note:
            summary = f"{summary} ({note})"
        log_tail = tail(process.log, 40)
        self.end_all()
        paths = [p.log for p in self.processes]
        return BringUpFailed(failure_class, summary, reading, self.command, paths, log_tail)


def explain_end(
    engine: Engine, process: Process, timed_out: bool = False
) -> tuple[LogReading, FailureClass, str]:
    """Why a process ended or never became ready: its log's reading, the class and one sentence."""
    reading = engine.read_log(_lines(process.log))
    for line in reading.evidence:
        line["file"] = f"files/{process.name}.log"
    code = process.exit_code
    ending = "not ready in time" if timed_out and code is None else describe_exit(code)
    is_weak = reading.failure_class in ("died_silently", "unknown")
    if reading.failure_class is not None and not (is_weak and _was_oom_killed(process)):
        deciding = reading.evidence[0]["text"].strip() if reading.evidence else "see the log"
        return (
            reading,
            reading.failure_class,
            f"{textwrap.shorten(deciding, 300, placeholder=' …')} ({ending})",
        )
    reading.state = "failed"
    if timed_out and code is None:
        hang: FailureClass = reading.facts.extra.get("failure_class_if_timed_out") or "timeout"
        reading.failure_class = hang
    elif code == 127:
        reading.failure_class = "dependency_missing"
    elif code in (-signal.SIGILL, 128 + signal.SIGILL):
        # Built for instructions that this CPU does not have.
        reading.failure_class = "unsupported_arch"
    elif code in (-signal.SIGKILL, 128 + signal.SIGKILL) and _was_oom_killed(process):
        reading.failure_class = "host_oom"
    else:
        reading.failure_class = "died_silently"
    return reading, reading.failure_class, f"the engine ended without naming a cause: {ending}"


def _was_oom_killed(process: Process) -> bool:
    now = devices.oom_kills()
    return now is not None and process.oom_kills_before is not None and now > process.oom_kills_before


def merge_facts(into: EngineFacts, other: EngineFacts) -> None:
    """Fill what `into` does not know from `other`; what both say stays as the log said it."""
    for name in ("version", "kv_tokens", "max_concurrency", "prefix_caching", "max_running_requests",
                 "max_model_len", "weight_bytes", "load_s"):  # fmt: skip
        if getattr(into, name) is None:
            setattr(into, name, getattr(other, name))
    into.phases_s = {**other.phases_s, **into.phases_s}
    into.extra = {**other.extra, **into.extra}


def _refuse_secrets(recipe: Recipe) -> None:
    for arg in recipe.args:
        if SECRET_FLAG.match(arg):
            raise BadInput(
                f"{arg.split('=')[0]} in a recipe's args would be written to raw with its value",
                next_step="give the key through env (vLLM reads VLLM_API_KEY) and name it in api_key_env",
            )


def _never_started(run: RunFolder, error: BadInput) -> BringUpFailed:
    part = run.part("files/server-0.log")
    with part.open("a") as stream:
        stream.write(f"{error}\n")
    first = str(error).split("\n")[0]
    failure_class: FailureClass = "model_not_found" if "model not found" in first else "bad_argument"
    evidence = [{"file": "files/server-0.log", "line": 1, "text": first}]
    reading = LogReading(engine=None, state="failed", failure_class=failure_class, evidence=evidence)
    return BringUpFailed(failure_class, error.what, reading, [], [part], str(error).split("\n"))


def _base_url(spec: ProcessSpec) -> str:
    return f"http://127.0.0.1:{spec.port}"


def _log_text(path: Path) -> str:
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - LOG_WINDOW_BYTES))
        return stream.read().decode("utf-8", "replace")


def _lines(path: Path) -> Any:
    with path.open("rb") as stream:
        yield from stream
