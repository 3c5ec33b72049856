"""A window's plan on disk: bodies as they will go on the wire, and one line per request.

Written before the window opens and read through mmap, so that preparing a prompt costs the event loop nothing and
100,000 requests cost the process no memory. In `<run>/.load/<cell_id>/`:

    spec.json     the WindowSpec
    bodies.bin    the JSON bodies, one after the other
    plan.bin      msgpack PlanLines, each after its length (uint32, little endian)
    warmup.idx, timed.idx   where each line starts in plan.bin, uint64, in the order of release
    sessions.idx  msgpack: for every session the positions in timed.idx of its turns (shape `sessions` only)
"""

from __future__ import annotations

import hashlib
import mmap
import random
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec

from contracts.errors import BadInput
from flows.landing import RunFolder
from flows.load.plan import Kind, PlannedRequest, Shape, WindowSpec

LOAD_FOLDER = ".load"
FIRST_BLOCK_BYTES = 256  # contracts.records.Request.first_block_sha256
GIVE_BACK_BYTES = 16 << 20  # giving back this much takes about 0.2 ms
OPEN_LOOPS = ("constant", "poisson", "gamma")
INDICES = ("warmup.idx", "timed.idx")


class PlanLine(msgspec.Struct, array_like=True, gc=False):
    """What a request's record carries back, and where its body lies. position: in the order of the plan."""

    position: int
    request_id: str
    index: int
    kind: Kind
    phase: Literal["warmup", "timed"]
    planned_offset_ns: int | None
    session_id: str | None
    turn: int | None
    user: int | None
    think_time_s: float
    asked_prompt_tokens: int | None
    asked_output_tokens: int | None
    expected_cached_tokens: int | None
    first_block_sha256: str | None
    prompt_sha256: str | None
    is_streamed: bool
    body_at: int
    body_bytes: int


def load_folder(run: RunFolder, cell_id: str) -> Path:
    """Where a window's own files lie until its records have landed."""
    return run.path / LOAD_FOLDER / cell_id


def write_plan(folder: Path, spec: WindowSpec, requests: Iterable[PlannedRequest]) -> int:
    """Write the plan, taking one request at a time. Returns how many timed requests it holds.

    Open loops get their instants here, from the shape's seed. Raises BadInput for a shape that lacks what it needs.
    """
    _check_shape(spec.shape)
    instants = _instants(spec.shape)
    indices = {"warmup": array("Q"), "timed": array("Q")}
    offsets = array("q")
    sessions: dict[str, list[int]] = {}
    position, limit = 0, spec.shape.stop_after_requests
    with (folder / "bodies.bin").open("wb") as bodies, (folder / "plan.bin").open("wb") as lines:
        for planned in requests:
            timed = planned.phase == "timed"
            if timed and limit is not None and len(indices["timed"]) >= limit:
                continue
            offset = planned.planned_offset_ns
            if timed and offset is None and instants is not None:
                offset = next(instants)
            if timed and offset is None and spec.shape.kind == "trace":
                raise BadInput(
                    f"request {planned.request_id} of a trace has no planned_offset_ns",
                    next_step="give every request of a trace its instant",
                )
            if timed and spec.shape.kind == "sessions":
                sessions.setdefault(planned.session_id or planned.request_id, []).append(
                    len(indices["timed"])
                )
            indices[planned.phase].append(lines.tell())
            encoded = _encode_line(_line(position, planned, offset, bodies))
            lines.write(len(encoded).to_bytes(4, "little") + encoded)
            if timed and offset is not None:
                offsets.append(offset)
            position += 1
    if len(offsets) == len(indices["timed"]):
        order = sorted(range(len(offsets)), key=offsets.__getitem__)
        indices["timed"] = array("Q", (indices["timed"][at] for at in order))
    (folder / "sessions.idx").write_bytes(msgspec.msgpack.encode(list(sessions.values())))
    for phase, index in indices.items():
        (folder / f"{phase}.idx").write_bytes(index.tobytes())
    # Last, so that a plan with a spec is a whole plan.
    (folder / "spec.json").write_bytes(msgspec.json.encode(spec))
    return len(indices["timed"])


_encode_line = msgspec.msgpack.Encoder().encode
_decode_line = msgspec.msgpack.Decoder(PlanLine).decode


def _check_shape(shape: Shape) -> None:
    if shape.kind in ("closed", "sessions") and not (shape.concurrency and shape.concurrency > 0):
        raise BadInput(
            f"a {shape.kind} loop needs a concurrency of at least 1", measured=str(shape.concurrency)
        )
    if shape.kind in OPEN_LOOPS and not (shape.rate_rps and shape.rate_rps > 0):
        raise BadInput(f"a {shape.kind} open loop needs rate_rps above 0", measured=str(shape.rate_rps))
    if shape.kind == "gamma" and not shape.burstiness > 0:
        raise BadInput("a gamma open loop needs burstiness above 0", measured=str(shape.burstiness))


def _instants(shape: Shape) -> Iterator[int] | None:
    """Offsets from the opening in ns, endless; None where the shape plans none.

    gamma: gaps of mean 1/rate and squared coefficient of variation 1/burstiness; poisson is burstiness 1.
    """
    if shape.kind not in OPEN_LOOPS:
        return None
    return _gaps(shape)


def _gaps(shape: Shape) -> Iterator[int]:
    rate = shape.rate_rps or 1.0
    draw = random.Random(shape.seed)
    if shape.kind == "constant":
        count = 0
        while True:
            yield round(count * 1e9 / rate)
            count += 1
    at_s = 0.0
    burstiness = 1.0 if shape.kind == "poisson" else shape.burstiness
    while True:
        at_s += draw.gammavariate(burstiness, 1.0 / (rate * burstiness))
        yield round(at_s * 1e9)


def _line(position: int, planned: PlannedRequest, offset: int | None, bodies: BinaryIO) -> PlanLine:
    body = planned.body
    encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
    first, whole = planned.first_block_sha256, planned.prompt_sha256
    if first is None or whole is None:
        prompt = prompt_text(msgspec.json.decode(body) if isinstance(body, bytes) else body).encode()
        first = first or hashlib.sha256(prompt[:FIRST_BLOCK_BYTES]).hexdigest()
        whole = whole or hashlib.sha256(prompt).hexdigest()
    at = bodies.tell()
    bodies.write(encoded)
    return PlanLine(
        position=position,
        request_id=planned.request_id,
        index=planned.index,
        kind=planned.kind,
        phase=planned.phase,
        planned_offset_ns=offset,
        session_id=planned.session_id,
        turn=planned.turn,
        user=planned.user,
        think_time_s=planned.think_time_s,
        asked_prompt_tokens=planned.asked_prompt_tokens,
        asked_output_tokens=planned.asked_output_tokens,
        expected_cached_tokens=planned.expected_cached_tokens,
        first_block_sha256=first,
        prompt_sha256=whole,
        is_streamed=planned.is_streamed,
        body_at=at,
        body_bytes=len(encoded),
    )


def prompt_text(body: dict[str, Any]) -> str:
    """The prompt as sent: message contents one after the other, or the prompt string; token ids as their text."""
    for name in ("messages", "prompt", "input"):
        if name in body:
            return _flatten(body[name])
    return ""


def _flatten(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        if value and all(isinstance(item, int) for item in value):
            return " ".join(map(str, value))
        return "".join(_flatten(item) for item in value)
    if isinstance(value, dict):
        for name in ("content", "text"):
            if value.get(name) is not None:
                return _flatten(value[name])
    return ""


class PlanFile:
    """A written plan, read through mmap."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spec = msgspec.json.decode((folder / "spec.json").read_bytes(), type=WindowSpec)
        self._lines = _map(folder / "plan.bin")
        self._bodies = _map(folder / "bodies.bin")
        self.warmup, self.timed = (_read_index(folder / name) for name in INDICES)
        self.count = len(self.warmup) + len(self.timed)
        self._starts: array[int] | None = None
        self._taken = 0

    def line(self, at: int) -> PlanLine:
        """The line that starts at offset `at` of plan.bin (an entry of `warmup` or `timed`)."""
        start = at + 4
        return _decode_line(self._lines[start : start + int.from_bytes(self._lines[at:start], "little")])

    def at_position(self, position: int) -> PlanLine:
        """The line of this position of the plan; the first call reads the whole plan once."""
        if self._starts is None:
            starts = array("Q", bytes(8 * self.count))
            at = 0
            for number in range(self.count):
                starts[number] = at
                at += 4 + int.from_bytes(self._lines[at : at + 4], "little")
            self._starts = starts
        return self.line(self._starts[position])

    def body(self, line: PlanLine) -> memoryview:
        """The body's bytes, not copied. Pages that were read are given back now and then: they are the disk's."""
        self._taken += line.body_bytes
        if self._taken > GIVE_BACK_BYTES and isinstance(self._bodies.obj, mmap.mmap):
            self._taken = 0
            self._bodies.obj.madvise(mmap.MADV_DONTNEED)
        return self._bodies[line.body_at : line.body_at + line.body_bytes]

    def sessions(self) -> list[list[int]]:
        """Per session, the positions of its turns in `timed`."""
        return msgspec.msgpack.decode((self.folder / "sessions.idx").read_bytes(), type=list[list[int]])

    def lines(self) -> Iterator[PlanLine]:
        """Every request of the plan, warm-up first."""
        for at in self.warmup:
            yield self.line(at)
        for at in self.timed:
            yield self.line(at)


def _read_index(path: Path) -> array[int]:
    index = array("Q")
    index.frombytes(path.read_bytes())
    return index


def _map(path: Path) -> memoryview:
    if path.stat().st_size == 0:
        return memoryview(b"")
    with path.open("rb") as stream:
        return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
