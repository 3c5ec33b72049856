"""What log lines say, in each engine's words: readiness, facts, phases; gathered line by line, judged at the end."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from contracts.records import FailureClass
from flows.engines import failures
from flows.engines.base import EngineFacts, LogReading

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|(?<![\w\]])\[[0-9]{1,2}(?:;[0-9]{1,2})*m")
SECRET = re.compile(
    r"(?i)((?:api[-_]?key|token|password|secret|authorization)['\"]?\s*[:=]\s*\[?\s*['\"]?(?:bearer )?)"
    r"(?!None\b|\[?\]|\d+\b)[^\s'\",\])}]{4,}"
)
RULE_CHARS = 3_000  # enough for any error message; bounds what a backtracking expression can cost
TEXT_CHARS = 500
MATCHES_PER_CLASS = 40
# An exception that nobody has a rule for counts as the end when the log stops within so many lines of it.
LAST_LINES = 25
EXCEPTION = re.compile(r"(?:^|\s|\])(?:\w+\.)*\w*(?:Error|Exception|Refused|Failure): \S")
RANK = re.compile(
    r"\((?:Worker_?\w*|VllmWorker\w*|EngineCore\w*|RayWorker\w*)[^)]*\)|\bDP\d+ TP\d+|\bTP\d+(?: EP\d+)?|\[rank\d+\]"
)
STAMPS = (
    (re.compile(r"\[?(\d{4}-\d{2}-\d{2})[ T](\d{2}:\d{2}:\d{2})"), "date"),
    (re.compile(r"\b(\d{2}-\d{2}) (\d{2}:\d{2}:\d{2})\b"), "day"),
    (re.compile(r"^\[(\d{2}:\d{2}:\d{2})"), "time"),
    (re.compile(r"^(\d+)\.(\d{2})\.(\d{3})\.(\d{3}) [IWED] "), "elapsed"),
)
# Once a log: how much each word says for an engine. SGLang's logs name vLLM's files, and everybody's name transformers.
SIGNS: tuple[tuple[str, str, float], ...] = (
    ("vllm", "vllm api server", 10), ("vllm", "llm engine (v", 10), ("vllm", "vllm: error", 10), ("vllm", "enginecore", 5),
    ("vllm", "(apiserver pid", 5), ("vllm", "gpu_model_runner.py", 3), ("vllm", "vllm", 1), ("vllm", "# gpu blocks:", 8),
    ("vllm", "# cuda blocks:", 8), ("vllm", "rayworkerwrapper", 3), ("vllm", "vllm is using nccl", 3),
    ("vllm", "kv cache size:", 6), ("vllm", "maximum concurrency for", 5), ("vllm", "non-default args:", 5),
    ("vllm", "quantization method", 1), ("vllm", "gpu_memory_utilization", 2), ("vllm", "max_model_len", 3),
    ("vllm", "model loading took", 3),
    ("sglang", "sglang", 3), ("sglang", "server_args=serverargs(", 10), ("sglang", "the server is fired up", 10),
    ("sglang", "max_total_num_token", 10), ("sglang", "kv cache is allocated", 8), ("sglang", "#running-req", 8),
    ("sglang", "mem-fraction-static", 5), ("sglang", "load weight begin", 6), ("sglang", "memory pool end", 5),
    ("sglang", "capture cuda graph begin", 5), ("sglang", "scheduler hit an exception", 5),
    ("sglang", "self.watchdog_timeout", 5), ("sglang", "sigquit from a child", 5), ("sglang", "sigquit received", 3),
    ("sglang", "sgl_kernel", 5),
    ("llamacpp", "llama_model_load", 5), ("llamacpp", "llama_context", 4), ("llamacpp", "ggml_", 3),
    ("llamacpp", "srv  ", 4), ("llamacpp", "llama-server", 4), ("llamacpp", "llama.cpp", 3), ("llamacpp", "build_info", 3),
    ("llamacpp", "llama_cpp", 4), ("llamacpp", "llm_load_", 4), ("llamacpp", "xllamacpp", 5), ("llamacpp", "llama server", 4),
    ("llamacpp", "common_param", 3), ("llamacpp", "gguf", 1),
    ("transformers", "transformers serve", 8), ("transformers", "[transformers] loading ", 6),
    ("transformers", "[transformers] [request received]", 8), ("transformers", "transformers-cli serve", 8),
    ("transformers", "transformers.commands.serving", 8), ("transformers", "[transformers] model config", 3),
)  # fmt: skip
# What says "ready" for whom. Uvicorn's line comes before SGLang has warmed up, so it says nothing there.
READY: dict[str, re.Pattern[str]] = {
    "uvicorn": re.compile(r"Application startup complete"),
    "sglang": re.compile(r"The server is fired up and ready to roll"),
    "llamacpp": re.compile(
        r"\bmodel loaded\b|server is listening on http|all slots are idle|listening on http://"
    ),
}
READY_FOR: dict[str | None, tuple[str, ...]] = {
    "vllm": ("uvicorn",),
    "sglang": ("sglang",),
    "llamacpp": ("llamacpp", "uvicorn"),
    "transformers": ("uvicorn",),
    None: ("sglang", "uvicorn", "llamacpp"),
}
START = re.compile(
    r"vLLM API server version|█ +version \d|server_args=ServerArgs\(|init: initializing \.\.\.|main: HTTP server is listening|"
    r"^build: \d+ \("
)
SHUTDOWN = re.compile(
    r"INFO: +Shutting down|Shutting down FastAPI|[Rr]eceived (?:SIGTERM|SIGINT|signal 15|signal 2)|SIG(?:TERM|INT) received|cleaning up before exit|"
    r"Gracefully exiting|Process manager: send sigterm"
)


@dataclass
class _Match:
    rule: failures.Rule
    line: int
    text: str


@dataclass
class _Start:
    """One start of the engine within the log: facts and signs since then."""

    first_line: int = 1
    facts: EngineFacts = field(default_factory=EngineFacts)
    ready: dict[str, tuple[int, str]] = field(default_factory=dict)
    matches: list[_Match] = field(default_factory=list)
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    shutdown_line: int | None = None
    ready_clock: str | None = None
    kv_by_engine: dict[str, int] = field(default_factory=dict)
    pools: list[int] = field(default_factory=list)
    sums: dict[tuple[str, str], float] = field(default_factory=dict)
    maxima: dict[str, float] = field(default_factory=dict)
    stamps: dict[str, float] = field(default_factory=dict)
    is_offline: bool = False
    hang: tuple[int, str] | None = None
    last_exception: tuple[int, str] | None = None
    prefill_tokens: list[int] = field(default_factory=lambda: [0, 0])


class Reading:
    """Takes candidate lines in order; `finish` judges them."""

    def __init__(self, engine: str | None) -> None:
        self.asked_engine = engine
        self.votes: dict[str, float] = {}
        self.seen_signs: set[str] = set()
        self.start = _Start()
        self.starts = 1
        self.last_line = 0
        self.origin: str | None = None

    @property
    def is_serving(self) -> bool:
        return bool(self.start.ready)

    def take(self, raw: bytes, number: int) -> bool:
        """Read one line. Returns whether it meant anything; equal shapes of what did not need not come again."""
        text = raw.replace(b"\0", b"").decode("utf-8", "replace").replace("^@", "")
        if "\x1b" in text or "m" in text:
            text = ANSI.sub("", text)
        means = False
        # A progress bar overwrites its line: what stands behind the last \r may be a message of its own.
        for piece in text.split("\r") if "\r" in text else (text,):
            if piece:
                means = self._take_piece(piece, number) or means
        return means

    def _take_piece(self, text: str, number: int) -> bool:
        low = text.lower()
        self._vote(low)
        start = self.start
        stamp = _stamp(text)
        if stamp is not None:
            start.stamps.setdefault("first", stamp)
            start.stamps["last"] = stamp
        if START.search(text) and self._has_ended():
            self.start = start = _Start(first_line=number)
            self.starts += 1
        if stamp is not None and not start.ready:
            start.ready_clock = _clock_text(text)
        means = False
        for name, pattern in READY.items():
            if pattern.search(text):
                start.ready.setdefault(name, (number, text))
                # Uvicorn's own lines carry no stamp: the line before them is as near as the log says.
                if (at := start.stamps.get("last")) is not None:
                    start.stamps.setdefault(f"ready_{name}", at)
                means = True
        if SHUTDOWN.search(text) and start.ready:
            start.shutdown_line = start.shutdown_line or number
            means = True
        if failures.HANG.search(text):
            start.hang = (number, text)
            means = True
        elif start.hang is not None and number > start.hang[0] + 50:
            start.hang = None  # it went on
        for needle, read in FACTS:
            if needle in low and read(self, text, number, stamp):
                means = True
        means = self._match_failures(text, low, number) or means
        if not start.ready and EXCEPTION.search(text[:RULE_CHARS]) and not failures.HARMLESS.search(text):
            start.last_exception = (number, text)
            means = True
        return means

    def _match_failures(self, text: str, low: str, number: int) -> bool:
        head, low_head = text[:RULE_CHARS], low[:RULE_CHARS]
        found = False
        for rule in failures.RULES:
            if rule.needle in low_head and rule.pattern.search(head):
                if not found and failures.HARMLESS.search(head):
                    return False
                key = (rule.failure_class, rule.strength)
                count = self.start.counts[key] = self.start.counts.get(key, 0) + 1
                if count <= MATCHES_PER_CLASS:
                    self.start.matches.append(_Match(rule, number, text))
                    found = True
                elif self.start.ready:
                    # Keep the newest too: a crash stands at the end of a log that is full of survived errors.
                    same = [m for m in self.start.matches if (m.rule.failure_class, m.rule.strength) == key]
                    self.start.matches.remove(same[-1])
                    self.start.matches.append(_Match(rule, number, text))
        return found

    def _vote(self, low: str) -> None:
        for engine, sign, weight in SIGNS:
            if sign not in self.seen_signs and sign in low:
                self.seen_signs.add(sign)
                self.votes[engine] = self.votes.get(engine, 0.0) + weight

    def _has_ended(self) -> bool:
        start = self.start
        return bool(start.ready) or any(m.rule.strength != "weak" for m in start.matches)

    def count_prefill(self, line: bytes) -> None:
        """Add one SGLang prefill batch to the totals. One tensor-parallel rank speaks for its group."""
        head = line[:60]
        found = _SGL_PREFILL(line)
        if found and (b"TP0" in head or b" TP" not in head):
            self.start.prefill_tokens[0] += int(found[1][:12])
            self.start.prefill_tokens[1] += int(found[2][:12])

    # -- the end

    def finish(self, file: str | None, timed_out: bool = False) -> LogReading:
        """Judge what was gathered: state, class, facts and the lines that decided."""
        start, facts = self.start, self.start.facts
        engine = self.asked_engine or (max(self.votes, key=lambda e: self.votes[e]) if self.votes else None)
        reading = LogReading(engine=engine, facts=facts)
        if self.starts > 1:
            reading.notes.append(
                f"{self.starts} starts in this log; this is the last, from line {start.first_line}"
            )
        ready = self._ready(engine)
        matches = self._that_count(ready[0] if ready else None)
        chosen = min(
            matches,
            key=lambda m: (*failures.rank(m.rule.failure_class, m.rule.strength), m.line),
            default=None,
        )
        if chosen is not None:
            reading.state = "failed"
            reading.failure_class = chosen.rule.failure_class
            reading.evidence = _evidence(chosen, matches, file)
            if ready is not None:
                reading.notes.append(f"it was ready (line {ready[0]}) and ended afterwards")
        elif ready is not None:
            reading.state = "ready"
            reading.evidence = [_line(file, ready[0], ready[1])]
        elif start.last_exception and self.last_line - start.last_exception[0] <= LAST_LINES:
            reading.state, reading.failure_class = "failed", "unknown"
            reading.evidence = [_line(file, *start.last_exception)]
        elif start.is_offline:
            reading.state = "offline_ran"
            reading.notes.append("an offline run: no server was meant to come up")
        self._finish_facts(engine, reading)
        if ready is not None:
            facts.extra["ready_line"] = ready[0]
            facts.extra["ready_at_text"] = _clock_text(ready[1]) or start.ready_clock
        if reading.state == "unknown":
            self._explain_unknown(reading, file, timed_out)
        return reading

    def _ready(self, engine: str | None) -> tuple[int, str] | None:
        for name in READY_FOR.get(engine, READY_FOR[None]):
            if name in self.start.ready:
                return self.start.ready[name]
        if engine == "sglang" and "uvicorn" in self.start.ready:
            self.start.facts.extra["api_started_line"] = self.start.ready["uvicorn"][0]
        return None

    def _that_count(self, ready_line: int | None) -> list[_Match]:
        """Matches that ended this start: before readiness all of them, afterwards only with a fatal one."""
        matches = self.start.matches
        if ready_line is None:
            return matches
        end = self.start.shutdown_line
        after = [m for m in matches if m.line > ready_line and (end is None or m.line < end)]
        if not any(m.rule.is_fatal_when_ready for m in after):
            return []
        return after

    def _explain_unknown(self, reading: LogReading, file: str | None, timed_out: bool) -> None:
        hang = self.start.hang
        if hang is not None:
            reading.facts.extra["failure_class_if_timed_out"] = "comm_hang"
            reading.notes.append(
                f"the log stops at line {hang[0]} while ranks connect: comm_hang if readiness was waited for in vain"
            )
        if timed_out:
            named: FailureClass = "comm_hang" if hang is not None else "timeout"
            reading.state, reading.failure_class = "failed", named
            if hang is not None:
                reading.evidence = [_line(file, *hang)]
        elif "uvicorn" in self.start.ready and reading.engine == "sglang":
            line, text = self.start.ready["uvicorn"]
            reading.evidence = [_line(file, line, text)]
            reading.notes.append(
                "the HTTP server started, but SGLang never said that it is ready ('fired up')"
            )

    def _finish_facts(self, engine: str | None, reading: LogReading) -> None:
        start, facts = self.start, self.start.facts
        if start.kv_by_engine:
            facts.kv_tokens = min(start.kv_by_engine.values())
            if len(start.kv_by_engine) > 1:
                facts.extra["kv_tokens_by_engine"] = dict(start.kv_by_engine)
                reading.notes.append("kv_tokens is one engine's; data-parallel engines each have their own")
        elif facts.kv_tokens is None and start.pools:
            # Sliding-window models have two pools and speculation a third; the full pool is what requests share.
            facts.kv_tokens = max(start.pools)
        blocks, size = facts.extra.get("kv_blocks"), facts.extra.get("block_size")
        if facts.kv_tokens is None and blocks:
            # The V0 engine prints blocks only; 16 is its default block size on CUDA.
            facts.kv_tokens = blocks * (size or 16)
            facts.extra["kv_tokens_source"] = (
                f"derived: {blocks} blocks x block size {size or 16}{'' if size else ' (the default; not printed)'}"
            )
            reading.notes.append(facts.extra["kv_tokens_source"])
        for name in ("load", "weights", "compile", "graph_capture", "engine_init", "warmup"):
            by_rank = [value for (key, _), value in start.sums.items() if key == name]
            if by_rank:
                facts.phases_s[name] = round(max(by_rank), 3)
        loads = [v for k, v in start.maxima.items() if k.startswith("load")]
        if "load" in start.maxima:
            facts.load_s = start.maxima["load"]
        elif "weights" in start.maxima:
            facts.load_s = start.maxima["weights"]
        elif loads:
            facts.load_s = max(loads)
        facts.phases_s.pop("load", None)
        if facts.load_s is not None:
            facts.phases_s["weights"] = facts.phases_s.get("weights", facts.load_s)
        if "kv_begin" in start.stamps and start.stamps.get("kv_end", -1.0) >= start.stamps["kv_begin"]:
            facts.phases_s["kv"] = round(start.stamps["kv_end"] - start.stamps["kv_begin"], 3)
        first = start.stamps.get("first")
        for name in READY_FOR.get(engine, READY_FOR[None]):
            at = start.stamps.get(f"ready_{name}")
            if at is not None and first is not None and at > first:
                facts.phases_s.setdefault("ready", round(at - first, 3))
        if start.prefill_tokens[0] or start.prefill_tokens[1]:
            new, cached = start.prefill_tokens
            facts.extra["prefill_new_tokens"] = new
            facts.extra["prefill_cached_tokens"] = cached
            if cached > new:
                reading.notes.append(
                    f"cache-dominated: {cached} of {new + cached} prompt tokens came from the cache"
                )
        available = facts.extra.get("kv_available_gib")
        if available is not None and available < 1.0 and engine == "vllm":
            reading.notes.append(f"memory starvation: {available} GiB left for the KV cache")


def _line(file: str | None, number: int, text: str) -> dict[str, Any]:
    shown = SECRET.sub(r"\1***", text.strip())
    return {"file": file, "line": number, "text": shown[:TEXT_CHARS]}


def _evidence(chosen: _Match, matches: list[_Match], file: str | None) -> list[dict[str, Any]]:
    """The deciding line first, then up to three more of its class, then two consequences."""
    same = [m for m in matches if m.rule.failure_class == chosen.rule.failure_class and m.line != chosen.line]
    others = [m for m in matches if m.rule.failure_class != chosen.rule.failure_class]
    picked, seen = [], set()
    for match in (chosen, *same[:3], *others[-2:]):
        if match.line not in seen:
            seen.add(match.line)
            picked.append(_line(file, match.line, match.text))
    return picked


def _stamp(text: str) -> float | None:
    """Seconds on the log's own clock (its day, where it has no year); None without a stamp."""
    head = text[:160]
    for pattern, kind in STAMPS:
        found = pattern.search(head)
        if not found:
            continue
        try:
            if kind == "date":
                return datetime.fromisoformat(f"{found[1]}T{found[2]}").timestamp()
            if kind == "day":
                return datetime.strptime(f"2024-{found[1]} {found[2]}", "%Y-%m-%d %H:%M:%S").timestamp()
            if kind == "time":
                hours, minutes, seconds = found[1].split(":")
                return int(hours) * 3600.0 + int(minutes) * 60.0 + int(seconds)
            return int(found[1]) * 60.0 + int(found[2]) + int(found[3]) / 1e3 + int(found[4]) / 1e6
        except (ValueError, OverflowError):
            return None
    return None


def _clock_text(text: str) -> str | None:
    found = re.search(r"(?:\d{4}-\d{2}-\d{2} |\d{2}-\d{2} )?\d{2}:\d{2}:\d{2}", text)
    return found[0] if found else None


def _rank(text: str) -> str:
    found = RANK.findall(text[:200])
    return found[-1] if found else ""


# -- facts: each takes (reading, line, line number, stamp) and says whether the line held one

FactReader = Callable[[Reading, str, int, "float | None"], bool]


def _int(text: str) -> int:
    return int(text.replace(",", "").replace("_", ""))


def _search(pattern: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile(pattern).search


_VLLM_VERSION = _search(r"vLLM API server version (\d\S*)|█ +version (\d\S*)|LLM engine \(v([^)\s]+)\)")
_VLLM_KV = _search(r"\bKV cache size: ([\d,]+) tokens")
_CONCURRENCY = _search(r"[Mm]aximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")
_BLOCKS = _search(r"# (?:GPU|cuda|CUDA|rocm|xpu|TPU|cpu) blocks: ([\d,]+)")
_LOADING = _search(r"Model loading took ([\d.]+) (?:GiB|GB)(?: memory)? and ([\d.]+) seconds")
_WEIGHTS_ONLY = _search(r"Loading weights took ([\d.]+) seconds")
_OLD_WEIGHTS = _search(
    r"(?:Loading model weights took|[Mm]odel weights take|Model loading took) ([\d.]+) ?(?:GiB|GB)"
)
_COMPILE = _search(r"torch\.compile (?:takes|took) ([\d.]+) s")
_GRAPHS = _search(r"Graph capturing finished in ([\d.]+) secs")
_INIT = _search(r"init engine \([^)]*\) took ([\d.]+) s")
_WARMUP = _search(r"Initial profiling/warmup run took ([\d.]+) s")
_MODEL_LEN = _search(r"Using max model len (\d+)")
_AVAILABLE = _search(r"Available KV cache memory: (-?[\d.]+) GiB")


def _vllm_version(r: Reading, text: str, number: int, stamp: float | None) -> bool:
    if not (found := _VLLM_VERSION(text)):
        return False
    r.start.facts.version = next(group for group in found.groups() if group).rstrip(")")
    return True


def _vllm_config(r: Reading, text: str, number: int, stamp: float | None) -> bool:
    facts = r.start.facts
    found = False
    is_effective = "LLM engine" in text
    for name, value in re.findall(r"['\"]?\b(\w+)['\"]?[=:] ?('[^']*'|[\w./:-]+)", text[:20_000]):
        value = value.strip("'")
        if name == "enable_prefix_caching" and value in ("True", "False"):
            # Only the engine's own line is effective: hybrid models turn caching off whatever the arguments ask.
            if is_effective:
                facts.prefix_caching = value == "True"
        elif name in ("max_num_seqs", "max_running_requests") and value.isdigit():
            facts.max_running_requests = int(value)
        elif name == "block_size" and value.isdigit():
            facts.extra["block_size"] = int(value)
        elif name == "max_seq_len" and value.isdigit():
            facts.max_model_len = facts.max_model_len or int(value)
        elif name in ("quantization", "kv_cache_dtype", "enforce_eager", "tensor_parallel_size", "dtype", "load_format",
                      "pipeline_parallel_size", "data_parallel_size", "revision", "model"):  # fmt: skip
            facts.extra.setdefault("config", {})[name] = value
        else:
            continue
        found = True
    return found


def _vllm_kv(r: Reading, text: str, number: int, stamp: float | None) -> bool:
    means = False
    if found := _VLLM_KV(text):
        ranks = RANK.findall(text[:200])
        engine = next((rank for rank in ranks if "EngineCore" in rank), "")
        engine = re.sub(r" pid=\d+", "", engine).strip("()") or "engine"
        _mark(r.start, "kv_end", stamp)
        tokens = _int(found[1])
        # Ranks of one engine may print each its own; the engine uses the least.
        r.start.kv_by_engine[engine] = min(tokens, r.start.kv_by_engine.get(engine, tokens))
        means = True
    if found := _CONCURRENCY(text):
        facts = r.start.facts
        times = float(found[2])
        facts.max_concurrency = (
            times if facts.max_concurrency is None or means else min(times, facts.max_concurrency)
        )
        facts.extra["max_concurrency_at_tokens"] = _int(found[1])
        means = True
    if found := _AVAILABLE(text):
        facts = r.start.facts
        value = float(found[1])
        _mark(r.start, "kv_begin", stamp)
        facts.extra["kv_available_gib"] = min(value, facts.extra.get("kv_available_gib", value))
        means = True
    return means


def _vllm_blocks(r: Reading, text: str, number: int, stamp: float | None) -> bool:
    if not (found := _BLOCKS(text)):
        return False
    r.start.facts.extra["kv_blocks"] = _int(found[1])
    return True


def _vllm_took(r: Reading, text: str, number: int, stamp: float | None) -> bool:
    start, rank = r.start, _rank(text)
    means = False
    if found := _LOADING(text):
        start.maxima["load"] = max(float(found[2]), start.maxima.get("load", 0.0))
        _max_extra(r, "weight_gib", float(found[1]))
        means = True
    elif found := _OLD_WEIGHTS(text):
        _max_extra(r, "weight_gib", float(found[1]))
        begun = start.stamps.get(f"load_begin {rank}")
        if begun is not None and stamp is not None and stamp >= begun:
            # Up to 0.7 no seconds are printed with it; the stamps are whole seconds.
            start.maxima["load"] = max(stamp - begun, start.maxima.get("load", 0.0))
            start.facts.extra["load_s_source"] = "log stamps"
        means = True
    if found := _WEIGHTS_ONLY(text):
        start.maxima["weights"] = max(float(found[1]), start.maxima.get("weights", 0.0))
        means = True
    for name, search in (("graph_capture", _GRAPHS), ("engine_init", _INIT), ("warmup", _WARMUP)):
        if found := search(text):
            _add(start, name, rank, float(found[1]))
            means = True
    return means


def _vllm_compile(r: Reading, text: str, number: int, stamp: float | None) -> bool:
    extra = r.start.facts.extra
    if found := _COMPILE(text):
        _add(r.start, "compile", _rank(text), float(found[1]))
        return True
    if re.search(
        r"Directly load (?:the )?(?:compiled graph|AOT compil)|[Ll]oad(?:ed|ing) (?:the )?(?:AOT )?compiled (?:function|graph)",
        text,
    ):
        extra.setdefault("is_warm_start", True)
        return True
    if re.search(
        r"Compiling a graph for|Cache the graph (?:of|for)|saved AOT compiled function|Compiling the graph",
        text,
    ):
        extra["is_warm_start"] = False
        return True
    return False


def _vllm_load_begin(r: Reading, text: str, number: int, stamp: float | None) -> bool:
    if stamp is not None:
        r.start.stamps.setdefault(f"load_begin {_rank(text)}", stamp)
    return True


def _model_len(r: Reading, text: str, number: int, stamp: float | None) -> bool:
    if not (found := _MODEL_LEN(text)):
        return False
    # A draft model's own length may follow; the target's stands first.
    r.start.facts.max_model_len = r.start.facts.max_model_len or int(found[1])
    return True


def _offline(r: Reading, text: str, number: int, stamp: float | None) -> bool:
    r.start.is_offline = True
    return True


_POOL = _search(r"KV Cache is allocated\..*#tokens: (\d+)")
_SGL_TOTAL = _search(r"[Mm]ax_total_num_tokens?=(\d+)")
_SGL_RUNNING = _search(r"max_running_requests=(\d+)")
_SGL_CONTEXT = _search(r"\bcontext_len=(\d+)")
_SGL_LOAD = _search(r"Load weight end\..*?elapsed=([\d.]+) ?s")
_SGL_CAPTURE = re.compile(
    r"Capture .*?graph end\. (?:Time elapsed: |elapsed=)([\d.]+) ?s", re.IGNORECASE
).search
_SGL_MAMBA = _search(r"max_mamba_cache_size: (\d+)")
_SGL_PREFILL = re.compile(rb"#new-token: (\d+), #cached-token: (\d+)").search


def _sglang_pool(r: Reading, text: str, number: int, stamp: float | None) -> bool:
    if not (found := _POOL(text)):
        return False
    tokens = int(found[1])
    _mark(r.start, "kv_end", stamp)
    if tokens not in r.start.pools:
        r.start.pools.append(tokens)
    return True


def _sglang_total(r: Reading, text: str, number: int, stamp: float | None) -> bool:
    if not (found := _SGL_TOTAL(text)) or "server_args=" in text:
        return False
    facts, tokens = r.start.facts, int(found[1])
    facts.kv_tokens = tokens if facts.kv_tokens is None else min(tokens, facts.kv_tokens)
    if running := _SGL_RUNNING(text):
        facts.max_running_requests = int(running[1])
    if context := _SGL_CONTEXT(text):
        facts.max_model_len = int(context[1])
    return True


def _sglang_args(r: Reading, text: str, number: int, stamp: float | None) -> bool:
    if "ServerArgs(" not in text:
        return False
    facts = r.start.facts
    found = dict(re.findall(r"\b(\w+)=('[^']*'|[\w.-]+)", text[:40_000]))
    if found.get("disable_radix_cache") in ("True", "False"):
        facts.prefix_caching = found["disable_radix_cache"] == "False"
    for name in ("tp_size", "dp_size", "ep_size", "quantization", "kv_cache_dtype", "page_size", "mem_fraction_static",
                 "attention_backend", "speculative_algorithm", "model_path", "revision"):  # fmt: skip
        if name in found:
            facts.extra.setdefault("config", {})[name] = found[name].strip("'")
    return True


def _sglang_load(r: Reading, text: str, number: int, stamp: float | None) -> bool:
    start, rank = r.start, _rank(text)
    if "Load weight end" in text:
        _mark(start, "kv_begin", stamp)
    if found := _SGL_LOAD(text):
        _add(start, "weights", rank, float(found[1]))
        start.maxima["load"] = max(float(found[1]), start.maxima.get("load", 0.0))
        return True
    if stamp is None:
        return False
    if "Load weight begin" in text:
        start.stamps[f"load_begin {rank}"] = stamp
        return True
    begun = start.stamps.pop(f"load_begin {rank}", None)
    if "Load weight end" in text and begun is not None:
        # Older versions print no seconds; their stamps are whole seconds.
        _add(start, "weights", rank, stamp - begun)
        start.maxima["load"] = max(stamp - begun, start.maxima.get("load", 0.0))
        start.facts.extra["load_s_source"] = "log stamps"
        return True
    return False


def _sglang_capture(r: Reading, text: str, number: int, stamp: float | None) -> bool:
    if not (found := _SGL_CAPTURE(text)):
        return False
    _add(r.start, "graph_capture", _rank(text), float(found[1]))
    return True


def _sglang_mamba(r: Reading, text: str, number: int, stamp: float | None) -> bool:
    if not (found := _SGL_MAMBA(text)):
        return False
    r.start.facts.extra["mamba_slots"] = int(found[1])
    return True


def _sglang_version(r: Reading, text: str, number: int, stamp: float | None) -> bool:
    found = re.search(r"\bsglang(?:==|[ -]v?|: v?|_version=')(\d+\.\d+\.\d+(?:\.?(?:post|rc|dev)\d+)?)", text)
    if not found:
        return False
    r.start.facts.version = r.start.facts.version or found[1]
    return True


_LLAMA_BUILD = _search(
    r"\bbuild: (\d+) \(([0-9a-f]+)\)|build_info: (b\d+-[0-9a-f]+)|by (xllamacpp \S+)|\bbuild=(\d+)"
)
_LLAMA_CTX = _search(
    r"(?:llama_context|llama_new_context_with_model|llama_init_from_model): n_ctx +=\s+(\d+)"
)
_LLAMA_SLOTS = _search(r"n_slots ?= ?(\d+)(?:, n_ctx_slot = (\d+))?")
_LLAMA_KV_SIZE = _search(r"llama_kv_cache\w*: (?:kv_size = (\d+)|size = .*\( *(\d+) cells, .* 1/1 seqs\))")
_LLAMA_NEW_SLOT = _search(r"new slot,? n_ctx(?:_slot)? ?= ?(\d+)")


def _llama_build(r: Reading, text: str, number: int, stamp: float | None) -> bool:
    found = _LLAMA_BUILD(text)
    if not found or "b0-unknown" in text:
        return False
    build, commit, info, wheel, key = found.groups()
    r.start.facts.version = (
        info or (f"b{build}-{commit}" if build else None) or wheel or (f"b{key}" if key else None)
    )
    return True


def _llama_context(r: Reading, text: str, number: int, stamp: float | None) -> bool:
    facts = r.start.facts
    if found := _LLAMA_CTX(text):
        facts.kv_tokens = int(found[1])
        return True
    if found := _LLAMA_SLOTS(text):
        facts.max_running_requests = int(found[1])
        if found[2]:
            facts.max_model_len = int(found[2])
        return True
    if "KV buffer size" in text:
        _mark(r.start, "kv_begin", stamp)
    if "llama_kv_cache: size" in text:
        _mark(r.start, "kv_end", stamp)
    if (found := _LLAMA_KV_SIZE(text)) and facts.kv_tokens is None:
        facts.kv_tokens = int(found[1] or found[2])
        return True
    if found := _LLAMA_NEW_SLOT(text):
        facts.max_model_len = facts.max_model_len or int(found[1])
        return True
    return False


def _llama_phases(r: Reading, text: str, number: int, stamp: float | None) -> bool:
    start = r.start
    if stamp is None or not STAMPS[3][0].match(text):
        return False
    if "load_model: loading model" in text:
        start.stamps["llama_load"] = stamp
        return True
    if "model loaded" in text and "llama_load" in start.stamps:
        start.maxima["load"] = stamp - start.stamps["llama_load"]
        start.facts.extra["load_s_source"] = "log stamps, from 'loading model' to 'model loaded'"
        return True
    return False


def _own_settings(r: Reading, text: str, number: int, stamp: float | None) -> bool:
    found = re.search(r"weighbridge: effective (\{.*\})", text)
    if not found:
        return False
    try:
        settings = json.loads(found[1])
    except ValueError:
        return False
    facts = r.start.facts
    facts.extra["config"] = settings
    if isinstance(settings.get("cache_prompt"), bool):
        facts.prefix_caching = settings["cache_prompt"]
    if isinstance(settings.get("xllamacpp"), str):
        facts.version = f"xllamacpp {settings['xllamacpp']}"
    return True


def _transformers_version(r: Reading, text: str, number: int, stamp: float | None) -> bool:
    found = re.search(r'"transformers_version": "([^"]+)"', text)
    if not found:
        return False
    r.start.facts.version = r.start.facts.version or found[1]
    return True


def _add(start: _Start, name: str, rank: str, seconds: float) -> None:
    """Seconds add up within a rank (target and draft model); ranks run side by side, so their maximum counts."""
    start.sums[(name, rank)] = start.sums.get((name, rank), 0.0) + seconds


def _mark(start: _Start, name: str, stamp: float | None) -> None:
    if stamp is not None:
        start.stamps.setdefault(name, stamp)


def _max_extra(r: Reading, name: str, value: float) -> None:
    r.start.facts.extra[name] = max(value, r.start.facts.extra.get(name, value))


FACTS: tuple[tuple[str, FactReader], ...] = (
    ("version", _vllm_version),
    ("llm engine (v", _vllm_version),
    ("llm engine (v", _vllm_config),
    ("llm engine with config", _vllm_config),
    ("args: namespace(", _vllm_config),
    ("non-default args:", _vllm_config),
    ("kv cache", _vllm_kv),
    ("maximum concurrency for", _vllm_kv),
    (" blocks: ", _vllm_blocks),
    (" took ", _vllm_took),
    ("model weights take", _vllm_took),
    ("starting to load model", _vllm_load_begin),
    ("compil", _vllm_compile),
    ("cache the graph", _vllm_compile),
    ("using max model len", _model_len),
    ("processed prompts:", _offline),
    ("kv cache is allocated", _sglang_pool),
    ("max_total_num_token", _sglang_total),
    ("serverargs(", _sglang_args),
    ("load weight", _sglang_load),
    ("graph end", _sglang_capture),
    ("max_mamba_cache_size", _sglang_mamba),
    ("sglang", _sglang_version),
    ("build", _llama_build),
    ("xllamacpp ", _llama_build),
    ("n_ctx", _llama_context),
    ("n_slots", _llama_context),
    ("llama_kv_cache", _llama_context),
    ("model", _llama_phases),
    ("weighbridge: effective", _own_settings),
    ("transformers_version", _transformers_version),
)
