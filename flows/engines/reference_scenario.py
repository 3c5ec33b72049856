"""What a reference server does, as data. docs/reference-server.md explains every key; unknown keys are refused."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any, Literal

import msgspec

from contracts.errors import BadInput


class Section(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A part of a scenario; a key that is not known is an error."""


class FailedStart(Section):
    """The start ends with these lines and this exit code instead of serving."""

    lines: list[str]
    exit_code: int = 1


class Start(Section):
    """Bring-up. log: vllm writes a vLLM start log; plain only what lines says."""

    ready_after_s: float = 0.0
    log: Literal["vllm", "plain"] = "vllm"
    lines: list[str] = []
    version: str = "0.26.0"
    kv_tokens: int = 1_000_000
    max_model_len: int = 131_072
    max_num_seqs: int = 1_024
    load_s: float = 0.2
    weight_gib: float = 0.5
    config: dict[str, str] = {}
    fails: FailedStart | None = None


class Timing(Section):
    """When tokens come. ms and tokens per second; interference: extra gap per other running request, as a share."""

    ttft_ms: float = 50.0
    ttft_jitter_ms: float = 0.0
    itl_ms: float = 10.0
    itl_jitter_ms: float = 0.0
    prefill_tokens_per_s: float | None = None
    prefill: Literal["parallel", "serial"] = "parallel"
    interference: float = 0.0
    slots: int | None = None
    slows_per_min: float = 0.0
    pause_every_s: float | None = None
    pause_ms: float = 0.0
    holds_back_tokens: int = 0
    headers: Literal["at_once", "first_token"] = "at_once"


class Tokens(Section):
    """How many tokens an answer has, and how they are spread over chunks."""

    count: int | None = None
    default: int = 64
    attainment: float = 1.0
    per_chunk: int = 1
    chunks_per_token: int = 1
    empty_every: int = 0
    invisible: int = 0
    reasoning: int = 0
    reasoning_field: Literal["reasoning_content", "reasoning", "both"] = "reasoning_content"
    ignores_eos: bool | None = None
    finish_reason: str | None = None
    text_on_finish: bool = False


class Usage(Section):
    """What the server says that it counted. factor 1 is the truth."""

    mode: Literal["final", "none", "every_chunk", "with_finish"] = "final"
    unasked: bool = False
    prompt_factor: float = 1.0
    output_factor: float = 1.0
    cached: Literal["true", "absent", "zero"] = "true"
    cached_factor: float = 1.0
    reasoning: bool = True
    timings: bool = False


class Cache(Section):
    """The prefix cache. capacity in tokens; None is endless. saves_prefill: hits shorten the prefill."""

    enabled: bool = True
    block_tokens: int = 16
    capacity_tokens: int | None = None
    saves_prefill: bool = True
    warm_share: float = 0.0
    template_tokens: int = 0


class Stream(Section):
    """The form of the stream."""

    role: Literal["with_first", "at_once", "none"] = "with_first"
    empty_deltas: int = 0
    line_end: Literal["lf", "crlf", "cr"] = "lf"
    separator: Literal["blank", "single"] = "blank"
    comments: bool = False
    ping_every_s: float | None = None
    done: bool = True
    data_space: bool = True
    splits: int = 1
    splits_utf8: bool = False
    text: Literal["words", "unicode"] = "words"
    ids: Literal["same", "change"] = "same"
    pad_bytes: int = 0
    segment: Literal["event", "events", "bytes"] = "event"
    events_per_write: int = 1
    framing: Literal["chunked", "close"] = "chunked"
    content_type: str = "text/event-stream; charset=utf-8"
    body: Literal["sse", "html", "json", "text", "empty"] = "sse"
    ends: bool = True
    logprobs: bool = False


class Break(Section):
    """How a request goes wrong. after_tokens: how many come before. All None: it does not."""

    status: int | None = None
    retry_after: str | None = None
    message: str = "the reference server was told to refuse"
    after_tokens: int = 0
    error: Literal["object", "flat_object", "text", "event", "with_done", "finish"] | None = None
    connection: Literal["reset", "close"] | None = None
    stall_s: float | None = None
    stalls_for_ever: bool = False
    pings_while_stalled: bool = False
    delay_s: float = 0.0


class Needle(Section):
    """Needle answers. misses_depth_pct: [[from, to], ...] at which the code is not found."""

    pattern: str = r"(?:secret|access|magic)?\s*(?:code|number|password|key)\s+is\s+(?:now\s+)?[\"'`]?([A-Za-z0-9-]*\d[A-Za-z0-9-]*)"
    question: str = r"\?"
    pick: Literal["first", "last"] = "first"
    misses_depth_pct: list[list[float]] = []
    misses_above_tokens: int | None = None
    misses_after_turns: int | None = None
    miss_share: float = 0.0
    on_miss: Literal["unknown", "wrong_digit", "extra_digit", "one_digit_less", "empty_words"] = "unknown"
    form: str = "The secret code is {code}."


class Answers(Section):
    """What is said. text: the whole answer, literally, where it is given; the other keys answer by the prompt."""

    text: str | None = None
    needle: Needle = msgspec.field(default_factory=Needle)
    json: Literal["valid", "broken", "wrong_type", "prose"] = "valid"
    tool: Literal["valid", "broken", "wrong_type", "ignored", "parallel"] = "valid"
    tool_pieces: int = 4
    arithmetic: Literal["right", "wrong", "none"] = "right"
    wrong_share: float = 0.0
    lookup: dict[str, str] = {}
    lookup_file: str | None = None
    filler: str = ""


class Metrics(Section):
    """/metrics in vLLM's dialect. factors, absent: canonical counter names of contracts.records.Counters."""

    on: bool = True
    absent: list[str] = []
    factors: dict[str, float] = {}
    frozen: bool = False
    ttft_factor: float = 1.0
    nan: list[str] = []
    accepts_per_draft: float | None = None


class Life(Section):
    """What befalls the server as a whole. Seconds run from the first numbered request, requests are numbered ones."""

    dies_after_s: float | None = None
    dies_after_requests: int | None = None
    exit_code: int | None = None
    death_lines: list[str] = []
    restarts_after_s: float | None = None
    restarts_after_requests: int | None = None
    preemptions_per_request: float = 0.0
    memory_mb_per_s: float = 0.0
    recompiles_after_s: float | None = None
    recompile_s: float = 1.0
    recompile_lines: list[str] = msgspec.field(
        default_factory=lambda: ["INFO [backends.py:853] Cache the graph of shape 4096 for later use"]
    )
    http_503_after_s: float | None = None
    log_lines_after_s: dict[str, str] = {}


class When(Section):
    """Which numbered requests a variant is for; every condition given must hold."""

    every: int | None = None
    offset: int = 0
    from_request: int | None = None
    to_request: int | None = None
    from_s: float | None = None
    to_s: float | None = None
    share: float | None = None
    concurrency_above: int | None = None
    prompt_tokens_above: int | None = None
    output_tokens_above: int | None = None
    streamed: bool | None = None
    asks: Literal["json", "tool", "needle", "arithmetic", "plain"] | None = None
    contains: str | None = None


class Variant(Section):
    """`set` is laid over the scenario's own sections for the requests that `when` selects."""

    when: When
    set: dict[str, Any]


class Scenario(Section):
    """A reference server."""

    name: str = "default"
    about: str = ""
    model: str = "reference"
    served_models: list[str] | None = None
    seed: int = 0
    api_key: str | None = None
    models_endpoint: Literal["ok", "absent", "500", "html"] = "ok"
    tokenize: bool = True
    start: Start = msgspec.field(default_factory=Start)
    timing: Timing = msgspec.field(default_factory=Timing)
    tokens: Tokens = msgspec.field(default_factory=Tokens)
    usage: Usage = msgspec.field(default_factory=Usage)
    cache: Cache = msgspec.field(default_factory=Cache)
    stream: Stream = msgspec.field(default_factory=Stream)
    breaks: Break = msgspec.field(default_factory=Break)
    answers: Answers = msgspec.field(default_factory=Answers)
    metrics: Metrics = msgspec.field(default_factory=Metrics)
    life: Life = msgspec.field(default_factory=Life)
    variants: list[Variant] = []


# What a variant may change: what is decided request by request.
PER_REQUEST: dict[str, type[Section]] = {
    "timing": Timing, "tokens": Tokens, "usage": Usage, "cache": Cache, "stream": Stream, "breaks": Break,
    "answers": Answers,
}  # fmt: skip
SECTIONS: dict[str, type[Section]] = {
    **PER_REQUEST,
    "start": Start,
    "metrics": Metrics,
    "life": Life,
    "variants": Variant,
    "when": When,
    "needle": Needle,
    "fails": FailedStart,
}


def read_scenario(path: Path) -> Scenario:
    """Read a scenario file (JSON, or YAML by its suffix). Raises BadInput with file and the nearest right key."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"the scenario cannot be read: {error.strerror}", evidence=str(path)) from None
    try:
        if path.suffix in (".yaml", ".yml"):
            import yaml

            return build_scenario(yaml.safe_load(data) or {}, str(path))
        return build_scenario(msgspec.json.decode(data), str(path))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"the scenario is not JSON: {error}", evidence=str(path)) from None


def build_scenario(data: Any, source: str = "scenario") -> Scenario:
    """A scenario from plain data. Raises BadInput; variants are checked here, not when they are first used."""
    try:
        scenario = msgspec.convert(data, Scenario)
        for variant in scenario.variants:
            overlay(scenario, variant.set)
    except msgspec.ValidationError as error:
        raise BadInput(
            f"the scenario of the reference server: {error}",
            evidence=source,
            next_step=_nearest(str(error)) or "docs/reference-server.md lists the keys",
        ) from None
    return scenario


def overlay(scenario: Scenario, changes: dict[str, Any]) -> Scenario:
    """The scenario with `changes` (section -> {key: value}) laid over it. Raises msgspec.ValidationError."""
    replaced: dict[str, Any] = {}
    for name, values in changes.items():
        if name not in PER_REQUEST:
            raise msgspec.ValidationError(f"a variant cannot set `{name}`, only {', '.join(PER_REQUEST)}")
        base = msgspec.to_builtins(getattr(scenario, name))
        try:
            replaced[name] = msgspec.convert(merge(base, values), PER_REQUEST[name])
        except msgspec.ValidationError as error:
            place = str(error).partition(" - at `$")[2].rstrip("`")
            told = str(error).partition(" - at ")[0]
            raise msgspec.ValidationError(f"{told} - at `$.{name}{place}`") from None
    return msgspec.structs.replace(scenario, **replaced)


def merge(base: Any, changes: Any) -> Any:
    """`changes` laid over `base`: mappings key by key, anything else replaced."""
    if isinstance(base, dict) and isinstance(changes, dict):
        return {**base, **{key: merge(base.get(key), value) for key, value in changes.items()}}
    return changes


def _nearest(message: str) -> str | None:
    unknown = re.search(r"unknown field `([^`]+)`", message)
    if not unknown:
        return None
    place = re.search(r"`\$\.?([^`]*)`", message)
    parts = [
        part for part in re.split(r"[.\[\]]+", place.group(1) if place else "") if part and part != "..."
    ]
    known = SECTIONS.get(parts[-1], Scenario) if parts else Scenario
    near = difflib.get_close_matches(unknown.group(1), known.__struct_fields__, n=1)
    return f"did you mean `{near[0]}`?" if near else f"known here: {', '.join(known.__struct_fields__)}"
