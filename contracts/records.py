"""Raw records: what a run writes down, one JSON object a line.

Every record names its kind (`record`) and the version of this module's shapes (`schema_version`).
Readers of raw (dbt staging) take unknown fields as a quarantine reason, never in silence.

Clocks: `_ns` is an integer reading of CLOCK_MONOTONIC of the machine that ran the load; `_at` is UTC
wall time, ISO 8601 with microseconds and `Z`. Absence is null and never 0.

Where each kind lies in `raw/<campaign>/<run_id>/`:

    run_start.jsonl              RunStart, one line, landed before the engine is started
    node.jsonl                   NodeFacts, one line
    bring_up.jsonl               BringUp, one line: served or failed, and what the engine said
    cells/<cell_id>.jsonl        Cell, one line: what was planned and how its window ended
    requests/<cell_id>.jsonl     Request, one line per request, warm-up included
    windows/<cell_id>.jsonl      Window, one line: the client's certificate
    counters/<cell_id>.jsonl     Counters: the engine's own, before, during (sampled) and after
    grades/<cell_id>.jsonl       Grade, one line per graded answer
    telemetry/<cell_id>.jsonl    Telemetry, one line per sample and GPU (absent without GPUs)
    imported/<cell_id>.jsonl     ImportedResult, one line: what another tool's file claims (imported runs only)
    probes/<phase>.jsonl         Probe, one line per probe; phase before, after or during_<cell_id>
    run_end.jsonl                RunEnd, one line
    files/                       logs and artefacts as the engine wrote them (sealed, not JSONL)
    seal.jsonl                   Seal, one line per landed file, appended as each file lands

History: version 1 is the first.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

SCHEMA_VERSION = 1

Outcome = Literal["ok", "failed", "cancelled", "unsent"]
ErrorClass = Literal[
    "connect_failed", "connect_timeout", "first_token_timeout", "chunk_timeout", "total_timeout", "window_deadline",
    "http_4xx", "http_429", "http_5xx", "http_503", "error_in_stream", "not_a_stream", "reset", "truncated",
    "bad_chunk", "no_tokens", "aborted",
]  # fmt: skip
WindowState = Literal["complete", "interrupted", "engine_died", "deadline", "client_failed"]
FailureClass = Literal[
    "bad_argument", "model_not_found", "unsupported_arch", "quant_unsupported", "tp_not_divisible",
    "max_model_len_rejected", "kv_too_small", "device_oom", "host_oom", "graph_capture_failed",
    "cuda_illegal_memory_access", "state_pool_exhausted", "comm_hang", "watchdog_timeout", "peer_lost",
    "port_in_use", "dependency_missing", "died_silently", "timeout", "unknown",
]  # fmt: skip


class Record(msgspec.Struct, kw_only=True):
    """Fields that every record carries."""

    record: str
    schema_version: int = SCHEMA_VERSION
    campaign: str
    run_id: str


class RunStart(Record, kw_only=True):
    """One bring-up of one recipe, written before anything is started.

    source: measured (this project's flows on an engine), imported (another tool's file) or synthetic (made without
    an engine: by the generator, or on the reference server, which plays one).
    recipe_settings: the recipe as resolved, flattened to `name -> value`; comparisons diff it for confounders.
    price: {usd_per_gpu_hour, key, source, as_of}; `gpus` counts the devices that the price multiplies
    (1 for a CPU node, priced as one CPU hour). execution_id: the `weighbridge run` that this run belongs to;
    a resumed execution keeps its id. lifecycle_start: which restart of a lifecycle workload this bring-up is
    (`cold-0`, `warm-1`); is_start_only: the run ends after that start's cells.
    """

    record: str = "run_start"
    source: Literal["measured", "imported", "synthetic"] = "measured"
    recipe: str
    engine: str
    model: str
    model_path: str | None = None
    node_id: str
    gpus: int
    gpu_ids: list[int] | None = None
    layout: str | None = None
    claimed_precision: str | None = None
    claimed_context_tokens: int | None = None
    policy: str
    price: dict[str, Any]
    recipe_settings: dict[str, Any]
    rescues: str | None = None
    rescue_change: dict[str, Any] | None = None
    rescue_attempt: int | None = None
    execution_id: str | None = None
    resumes_run_id: str | None = None
    reproduces_run_id: str | None = None
    lifecycle_start: str | None = None
    is_start_only: bool = False
    model_facts: dict[str, Any] | None = None
    campaign_sha256: str | None = None
    weighbridge_version: str
    started_at: str
    importer: dict[str, Any] | None = None


class NodeFacts(Record, kw_only=True):
    """The machine as it was read; flows.node writes `facts`, whose keys are documented there."""

    record: str = "node"
    node_id: str
    read_at: str
    facts: dict[str, Any]


class BringUp(Record, kw_only=True):
    """How a recipe came up, or how it failed.

    phases_s: seconds by start-up phase (process, weights, compile, graph_capture, kv, ready).
    facts: effective settings the engine itself stated; keys absent when it did not say.
    evidence: the log lines that decided the class, as [{file, line, text}].
    """

    record: str = "bring_up"
    state: Literal["served", "failed"]
    failure_class: FailureClass | None = None
    failure_summary: str | None = None
    evidence: list[dict[str, Any]] = []
    command: list[list[str]]
    endpoints: list[str] = []
    served_model: str | None = None
    engine_version: str | None = None
    kv_tokens: int | None = None
    max_concurrency: float | None = None
    prefix_caching: bool | None = None
    max_running_requests: int | None = None
    max_model_len: int | None = None
    weight_bytes: int | None = None
    phases_s: dict[str, float | None] = {}
    load_s: float | None = None
    ready_s: float | None = None
    is_warm_start: bool | None = None
    facts: dict[str, Any] = {}
    server_started_at: str | None = None
    ready_at: str | None = None


class Cell(Record, kw_only=True):
    """What one cell asked for, and how its window ended. Written after the window.

    variant: what tells this cell from another of the same workload, concurrency, context and repeat
    (a draft length, a depth list, a phase); "" when nothing does.
    cache_budget_min/max: the share of prompt tokens that the workload expects to come from the prefix
    cache: 0 and 0.01 for fresh documents, the planned share for ramps; null when it declares none.
    declares_sharing: prompts of the window share their first block on purpose.
    asked_output_tokens: null when the length is free (probes, quality).
    needle_context_tokens: for a cell that probes needles, the context they were planted in.
    """

    record: str = "cell"
    cell_id: str
    workload: str
    variant: str = ""
    concurrency: int
    context_tokens: int | None = None
    repeat: int = 0
    attempt: int = 1
    seed: int
    users: int | None = None
    shape: dict[str, Any]
    asked_prompt_tokens: int | None = None
    asked_output_tokens: int | None = None
    is_fixed_length: bool = False
    planned_requests: int
    warmup_requests: int = 0
    planned_finish_reason: str | None = None
    cache_budget_min: float | None = None
    cache_budget_max: float | None = None
    declares_sharing: bool = False
    is_cold_expected: bool = True
    needle_depths_pct: list[float] | None = None
    prompt_length_source: str | None = None
    planning_s: float | None = None
    objectives: dict[str, float] | None = None
    params: dict[str, Any] = {}
    window_state: WindowState
    window_note: str | None = None
    log_tail: list[str] | None = None
    opened_at: str | None = None
    closed_at: str | None = None


class Request(Record, kw_only=True):
    """One request as the client saw it. Instants are CLOCK_MONOTONIC ns; null when it never came to that.

    chunk_gap_ns: for every content chunk (one that carries at least a token of any kind), the time since the
    one before it, the first measured from sent_ns; so sent_ns + sum = last_token_ns.
    chunk_count counts those; event_count every SSE event. coalesced_chunks: content chunks that were read in
    the same socket read as the one before, whose gap is therefore 0 by construction.
    output_tokens comes from usage; output_token_source says usage, counted or null.
    first_block_sha256: of the first 256 bytes of the prompt text as sent; prompt_sha256: of all of it.
    text fields are kept only where the plan says so (generated prompts), else null; output_sha256 always.
    """

    record: str = "request"
    cell_id: str
    request_id: str
    phase: Literal["warmup", "timed"] = "timed"
    index: int
    session_id: str | None = None
    turn: int | None = None
    user: int | None = None
    endpoint: int = 0
    process: int = 0
    outcome: Outcome
    error_class: ErrorClass | None = None
    error_detail: str | None = None
    http_status: int | None = None
    retry_after_s: float | None = None
    planned_ns: int | None = None
    sent_ns: int | None = None
    sent_at: str | None = None
    first_byte_ns: int | None = None
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    end_ns: int | None = None
    chunk_gap_ns: list[int] = []
    chunk_count: int = 0
    event_count: int = 0
    coalesced_chunks: int = 0
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    output_token_source: Literal["usage", "counted"] | None = None
    finish_reason: str | None = None
    asked_prompt_tokens: int | None = None
    asked_output_tokens: int | None = None
    expected_cached_tokens: int | None = None
    prompt_sha256: str | None = None
    first_block_sha256: str | None = None
    output_sha256: str | None = None
    output_text: str | None = None
    reasoning_text: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class Window(Record, kw_only=True):
    """The client's certificate for one window: what the measuring itself cost and did.

    opened_ns..closed_ns bound the timed phase. concurrency_ns: [[ns since opened_ns, requests in flight], ...]
    at every change (thinned to at most 2,000 points; mean_concurrency is exact).
    drift_ms_per_min: wall clock against monotonic over the window.
    """

    record: str = "window"
    cell_id: str
    opened_ns: int
    closed_ns: int
    opened_at: str
    closed_at: str
    processes: int
    cpus: int | None = None
    open_file_limit: int | None = None
    asked_concurrency: int | None = None
    mean_concurrency: float | None = None
    max_concurrency: int | None = None
    concurrency_ns: list[list[int]] = []
    loop_lag_p50_ms: float | None = None
    loop_lag_p99_ms: float | None = None
    loop_lag_max_ms: float | None = None
    send_delay_p50_ms: float | None = None
    send_delay_p99_ms: float | None = None
    cpu_share: float | None = None
    cpu_s: float | None = None
    gc_pauses: int | None = None
    gc_pause_ms: float | None = None
    peak_rss_mb: float | None = None
    drift_ms_per_min: float | None = None
    planned: int
    ok: int
    failed: int
    cancelled: int
    unsent: int
    machine_load_before: float | None = None
    machine_load_after: float | None = None


class Counters(Record, kw_only=True):
    """The engine's own counters at one instant, under canonical names; a counter that is absent is null.

    at: before (window about to open, warm-up done), during (sampled), after (window closed).
    Token counters are cumulative since server start. source_names: canonical -> the engine's own name.
    role: what the endpoint is; of a prefill/decode split both sides count the same prompts.
    """

    record: str = "counters"
    cell_id: str
    at: Literal["before", "during", "after"]
    at_ns: int
    scraped_at: str
    endpoint: int = 0
    role: Literal["server", "replica", "prefill", "decode"] | None = None
    prompt_tokens: float | None = None
    cached_prompt_tokens: float | None = None
    prefix_queries: float | None = None
    output_tokens: float | None = None
    requests_ok: float | None = None
    requests_running: float | None = None
    requests_waiting: float | None = None
    preemptions: float | None = None
    kv_usage: float | None = None
    ttft_sum_s: float | None = None
    ttft_count: float | None = None
    e2e_sum_s: float | None = None
    e2e_count: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    drafts: float | None = None
    server_rss_mb: float | None = None
    process_start_time_s: float | None = None
    source_names: dict[str, str] = {}


class Grade(Record, kw_only=True):
    """A graded answer. `is_correct` null: could not be graded (the request failed), with the reason in `why`."""

    record: str = "grade"
    cell_id: str
    request_id: str
    grader: str
    is_correct: bool | None
    is_correct_lenient: bool | None = None
    expected: str | None = None
    found: str | None = None
    why: str
    depth_pct: float | None = None
    turn: int | None = None
    user: int | None = None


class Telemetry(Record, kw_only=True):
    """One sample of one GPU during a window; null where the device does not say."""

    record: str = "telemetry"
    cell_id: str
    at_ns: int
    gpu: int
    power_w: float | None = None
    sm_clock_mhz: float | None = None
    mem_clock_mhz: float | None = None
    temperature_c: float | None = None
    utilization_pct: float | None = None
    memory_used_mb: float | None = None
    throttle_reasons: list[str] | None = None
    energy_mj: float | None = None


class Probe(Record, kw_only=True):
    """A small pass/fail request outside the timed load."""

    record: str = "probe"
    probe_id: str
    phase: Literal["before", "during", "after"]
    kind: Literal["json", "tool", "needle", "chat"]
    cell_id: str | None = None
    is_passed: bool
    why: str
    http_status: int | None = None
    latency_ms: float | None = None
    sent_at: str
    output_text: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class ImportedResult(Record, kw_only=True):
    """One result row of another tool's file (runs of source `imported`), and what stands beside it.

    headline: the tool's own figures under canonical names, seconds and milliseconds sorted out: requests_planned,
    requests_ok, requests_failed, requests_cancelled, duration_s, prompt_tokens, output_tokens, prompt_tokens_mean,
    output_tokens_mean, request_rps, output_tokens_per_s, total_tokens_per_s, asked_rps, sent_rps, and
    <ttft|tpot|itl|e2e>_<mean|p50|p90|p95|p99>_ms. A figure that the file does not hold, or that is a zero standing for
    nothing observed, is null or absent.
    recomputed: the same names from per-request data, where the file has any. differences: [{figure, claimed,
    recomputed, relative, why}] wherever the two differ by more than 0.1 %.
    has_requests: Request records of this cell landed. has_instants: their instants are of one clock, so that
    windows and concurrency may be read from them (false: only each request's own latencies are real).
    evidence: inputs of the screens that a headline does not hold, see docs/import.md.
    missing: what a file of this tool cannot show. One line in `imported/<cell_id>.jsonl`.
    """

    record: str = "imported_result"
    cell_id: str
    tool: str
    tool_version: str | None = None
    source_file: str
    source_sha256: str
    row_in_file: int = 0
    headline: dict[str, float | int | None]
    recomputed: dict[str, float | int | None] = {}
    differences: list[dict[str, Any]] = []
    has_requests: bool = False
    has_instants: bool = False
    evidence: dict[str, Any] = {}
    missing: list[str] = []
    notes: list[str] = []


class RunEnd(Record, kw_only=True):
    """How a run ended. state `interrupted` is written by the resume that found it unfinished."""

    record: str = "run_end"
    state: Literal["served", "failed", "interrupted", "engine_died"]
    ended_at: str
    note: str | None = None
    is_teardown_clean: bool | None = None
    teardown_note: str | None = None
    log_tail: list[str] = []


class Seal(msgspec.Struct, kw_only=True):
    """A landed file: its path inside the run folder, its lines, bytes and sha256."""

    path: str
    lines: int | None
    bytes: int
    sha256: str
    landed_at: str
    schema_version: int = SCHEMA_VERSION


KINDS: dict[str, type[Record]] = {
    "run_start": RunStart, "node": NodeFacts, "bring_up": BringUp, "cell": Cell, "request": Request, "window": Window,
    "counters": Counters, "grade": Grade, "telemetry": Telemetry, "probe": Probe, "run_end": RunEnd,
    "imported_result": ImportedResult,
}  # fmt: skip
