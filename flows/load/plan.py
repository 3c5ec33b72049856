"""What the load process is told: a window and its planned requests. Shapes only; prepared before the window."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Kind = Literal["chat", "completions", "responses"]


class Deadlines(msgspec.Struct, kw_only=True, frozen=True):
    """Seconds; null means no such deadline. window_s bounds the whole window, drain included."""

    connect_s: float | None = 10.0
    first_token_s: float | None = 600.0
    between_chunks_s: float | None = 120.0
    total_s: float | None = 3600.0
    window_s: float | None = None


class Shape(msgspec.Struct, kw_only=True, frozen=True):
    """How requests are released.

    closed: `concurrency` in flight, started at a barrier. constant, poisson, gamma: open loop at `rate_rps`
    (gamma: `burstiness` = 1/cv^2), instants planned from `seed`. trace: instants come with the requests
    (`planned_offset_ns`). sessions: every session runs its turns in order, a turn starting `think_time_s` after the
    one before ended, at most `concurrency` sessions at once. ramp_up_s: closed loops start their streams spread
    over this time. max_in_flight caps an open loop (null: no cap); waiting behind the cap counts in TTFT.
    stop_after_s: no request is started later than this; stop_after_requests likewise.
    """

    kind: Literal["closed", "constant", "poisson", "gamma", "trace", "sessions"] = "closed"
    concurrency: int | None = None
    rate_rps: float | None = None
    burstiness: float = 1.0
    ramp_up_s: float = 0.0
    max_in_flight: int | None = None
    stop_after_s: float | None = None
    stop_after_requests: int | None = None
    seed: int = 0


class PlannedRequest(msgspec.Struct, kw_only=True):
    """One request: the JSON body as it will go on the wire, and what the record must carry back.

    body: a dict (encoded once, while the plan is written) or ready bytes; `model` and `stream` are set by the planner.
    kind: which endpoint and dialect. planned_offset_ns: from the window's opening (trace and open loops).
    """

    request_id: str
    index: int
    body: dict[str, Any] | bytes
    kind: Literal["chat", "completions", "responses"] = "chat"
    phase: Literal["warmup", "timed"] = "timed"
    planned_offset_ns: int | None = None
    session_id: str | None = None
    turn: int | None = None
    user: int | None = None
    think_time_s: float = 0.0
    asked_prompt_tokens: int | None = None
    asked_output_tokens: int | None = None
    expected_cached_tokens: int | None = None
    first_block_sha256: str | None = None
    prompt_sha256: str | None = None
    is_streamed: bool = True


class WindowSpec(msgspec.Struct, kw_only=True):
    """One window. endpoints: base URLs up to and without `/v1`. balance: how replicas are chosen
    for requests without a session; a session stays on one.

    api_key_env: the name of the variable that holds the key; the key itself never enters a plan or a record.
    keep_text: answers are kept in the records (generated prompts only).
    is_text_private: with keep_text false, answers are handed to `run_window`'s `on_text` in the caller's process before
    the records land without them; nothing of them stays on disk.
    """

    campaign: str
    run_id: str
    cell_id: str
    endpoints: list[str]
    model: str
    shape: Shape
    deadlines: Deadlines = Deadlines()
    balance: Literal["turn", "least_outstanding"] = "turn"
    processes: int = 1
    api_key_env: str | None = None
    keep_text: bool = False
    is_text_private: bool = False
    warmup_concurrency: int | None = None
