"""Reads an engine's log, of any size and any of the engines: what it said of itself, and why it failed.

One pass, constant memory. Almost all lines of a long log are requests: lines whose shape (digits left out) has been
seen and meant nothing are skipped, of the rest those are looked at that hold one of ANCHORS. Lines that carry a
user's prompt are never looked at, so that no prompt becomes evidence.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path

from flows.engines import failures
from flows.engines.base import LogReading
from flows.engines.readings import Reading

BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 16  # longer lines are read in pieces of this size, under one line number
MAX_SHAPES = 50_000
FIRST_LINES = 200  # looked at in any case: a launcher's own words say which engine this is
START_LINES = 100_000  # no engine needs more to start; what stands behind is a server's, ready or not
DIGITS = b"0123456789"
PREFILL = b"#cached-token: "
PROMPTS = (b"Received request ", b"GenerateReqInput(")

# Lower case. Every failure rule's needle and every fact's words contain one of these (tests hold it).
ANCHORS = tuple(
    word.encode()
    for word in (
        "error", "exception", "memory", "kv cache", "token", "took", "compil", "load", "captur", "complete", "fired up",
        "listening", "version", "engine", "args", "n_ctx", "blocks", "max model len", "mamba", "effective", "exit",
        "died", "dead", "killed", "failed", "nccl", "in use", "divisible", "support", "illegal", "leaked", "dumped",
        "fault", "terminate", "ggml", "gguf", "no module", "not found", "watchdog", "sigquit", "option", "graph_runner",
        "oom", "bind", "model", "pool", "block size", "timed out", "keyword", "inputs", "repo", "folder", "config.json",
        "connect", "shared object", "symbol", "insufficient", "allocate", "assert", "address", "launch failure",
        "actor", "node", "heartbeat", "rpc call", "nvcc", "glibc", "driver", "device", "no space", "rc=1", "startup",
        "shut", "processed prompts", "low on", "not allowed", "unsupported", "image", "architecture", "quantization",
        "capability", "bfloat16", "e4nv", "bus ", "ssm", "initialization", "background", "distributed", "slots", "max_",
        "couldn't", "too large", "aborted", "running", "tensor", "e4m3", "context", "seq len", "mem-frac", "buffer",
        "alloc", "collective", "eaddr", "leash", "gpus", "worker", "crash", "sigterm", "implement", "gated", "hipmalloc", "killed due", "lost conn", "cuda_home", "ninja",
        "did not", "misaligned", "custom code", "pip install", "ordinal", "duplicate gpu", "is required", "unrecognized", "client socket",
        "no cuda",
    )
)  # fmt: skip
# While it serves, only what ends a server, starts another one or says that it is ready.
SERVING_ANCHORS = tuple(
    word.encode()
    for word in (
        "error", "exception", "killed", "died", "dead", "watchdog", "sigquit", "exit", "fatal", "memory", "nccl",
        "dumped", "fault", "terminate called", "ggml_a", "fired up", "startup complete", "version", "server_args",
        "shut", "illegal", "timed out", "connection reset", "connection closed", "bad_alloc", "oom-kill", "background loop",
        "mamba", "pool", "aborted", "crashed", "sigterm", "address", "listening",
    )
)  # fmt: skip


def read_log(path: Path, engine: str | None = None, timed_out: bool = False) -> LogReading:
    """Read a log file. engine: whose dialect; found from the log when None.

    timed_out: the reader knows that readiness was waited for in vain; a hang is then named. Raises OSError.
    """
    with path.open("rb") as stream:
        reading = _read(_blocks(stream.read), engine)
    return reading.finish(file=path.name, timed_out=timed_out)


def read_lines(
    lines: Iterable[str | bytes], engine: str | None = None, timed_out: bool = False
) -> LogReading:
    """Read log lines, each with or without its newline. Evidence has no file name."""

    def blocks() -> Iterator[bytes]:
        for line in lines:
            data = line if isinstance(line, bytes) else line.encode("utf-8", "replace")
            yield data if data.endswith(b"\n") else data + b"\n"

    return _read(_batched(blocks()), engine).finish(file=None, timed_out=timed_out)


def _read(blocks: Iterable[bytes], engine: str | None) -> Reading:
    reading = Reading(engine)
    seen: set[int] = set()
    number, rest = 1, b""
    for block in blocks:
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        _scan(lines, number, seen, reading)
        number += len(lines)
        while len(rest) > MAX_LINE_BYTES:
            # A line without an end: read this much of it; the overlap keeps words whole.
            _scan([rest[:MAX_LINE_BYTES]], number, seen, reading)
            rest = rest[MAX_LINE_BYTES - 256 :]
    if rest:
        _scan([rest], number, seen, reading)
    reading.last_line = number
    return reading


def _scan(lines: list[bytes], first_number: int, seen: set[int], reading: Reading) -> None:
    kept: list[bytes] = []
    numbers: list[int] = []
    shapes: list[int] = []
    for offset, line in enumerate(lines):
        if PROMPTS[0] in line or PROMPTS[1] in line:
            continue
        if PREFILL in line:
            reading.count_prefill(line)
        shape = hash(line.translate(None, DIGITS))
        if shape in seen:
            continue
        kept.append(line)
        numbers.append(first_number + offset)
        shapes.append(shape)
    if len(seen) > MAX_SHAPES:
        seen.clear()
    if not kept:
        return
    is_long = first_number > START_LINES
    anchors = SERVING_ANCHORS if reading.is_serving or is_long else ANCHORS
    hits = _hits(kept, anchors)
    if first_number <= FIRST_LINES:
        hits = sorted({*hits, *(i for i, number in enumerate(numbers) if number <= FIRST_LINES)})
    known = seen.__contains__
    for index in hits:
        # A repeat within this block of what has just proved boring.
        if known(shapes[index]):
            continue
        if not reading.take(kept[index], numbers[index]):
            seen.add(shapes[index])
    hit = set(hits)
    seen.update(shape for index, shape in enumerate(shapes) if index not in hit)


def _hits(lines: list[bytes], anchors: tuple[bytes, ...]) -> list[int]:
    text = b"\n".join(lines).lower()
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    found: set[int] = set()
    for anchor in anchors:
        at = text.find(anchor)
        while at >= 0:
            index = bisect_right(starts, at) - 1
            found.add(index)
            at = text.find(anchor, starts[index + 1])
    return sorted(index for index in found if index < len(lines))


def _blocks(read: object) -> Iterator[bytes]:
    while block := read(BLOCK_BYTES):  # type: ignore[operator]
        yield block


def _batched(blocks: Iterator[bytes]) -> Iterator[bytes]:
    held: list[bytes] = []
    size = 0
    for block in blocks:
        held.append(block)
        size += len(block)
        if size >= BLOCK_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def uncovered_rules() -> list[str]:
    """Needles of failure rules that no anchor would find; empty, or a rule can never fire."""
    anchors = [anchor.decode() for anchor in ANCHORS]
    return [rule.needle for rule in failures.RULES if not any(a in rule.needle for a in anchors)]
