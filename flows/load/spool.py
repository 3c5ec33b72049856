"""What a load process writes while its window is open: one frame per ended request, bytes and instants as they came.

A frame is on disk when `write` has returned, so a kill loses no ended request; a torn last frame is told by its
lengths. The writer is a thread: a slow disk must not stop the loop.

    frame    b"WBF1", uint32 header bytes, uint32 pieces, uint64 payload bytes, then the msgpack FrameHeader,
             int64 instants, uint32 lengths, payload (the response as read from the socket, head included)
    sent-<process>.bin   per position of the plan: int64 planned_ns, int64 sent_ns; a shared mapping, so a
             killed process leaves it
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from array import array
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec

from contracts.records import ErrorClass, Outcome

MAGIC = b"WBF1"
_PREFIX = struct.Struct("<4sIIQ")
_SENT = struct.Struct("<qq")
# A spool file that has grown to this (about a million tokens) is closed and can be read while the window still runs.
ROTATE_BYTES = 256 << 20
_MAX_IOV = 1000  # below the kernel's 1,024 buffers per writev


class FrameHeader(msgspec.Struct, array_like=True, gc=False):
    """One ended request, or a part of one that is still running (is_part), as the transport saw it.

    outcome is the transport's view: what the body says is read later. is_framed: the payload is HTTP as on the
    wire; a body that came in another way is not.
    """

    position: int
    is_part: bool = False
    outcome: Outcome = "ok"
    error_class: ErrorClass | None = None
    error_detail: str | None = None
    endpoint: int = 0
    planned_ns: int | None = None
    sent_ns: int | None = None
    end_ns: int | None = None
    http_status: int | None = None
    retry_after_s: float | None = None


class Frame(msgspec.Struct, gc=False):
    header: FrameHeader
    instants: array[int]
    lengths: array[int]
    payload: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(FrameHeader).decode


def frame_buffers(header: FrameHeader, instants: list[int], pieces: list[bytes]) -> list[bytes]:
    """The buffers that make up one frame, for one writev."""
    head = _encode(header)
    lengths = array("I", map(len, pieces))
    prefix = _PREFIX.pack(MAGIC, len(head), len(pieces), sum(lengths))
    return [prefix + head + array("q", instants).tobytes() + lengths.tobytes(), b"".join(pieces)]


def read_frames(path: Path) -> Iterator[Frame]:
    """Every whole frame of a spool file; a torn end is where a killed writer stopped."""
    with path.open("rb") as stream:
        while len(prefix := stream.read(_PREFIX.size)) == _PREFIX.size:
            magic, head_bytes, count, payload_bytes = _PREFIX.unpack(prefix)
            if magic != MAGIC:
                return
            head = stream.read(head_bytes)
            instants, lengths = array("q"), array("I")
            times = stream.read(8 * count)
            sizes = stream.read(4 * count)
            payload = stream.read(payload_bytes)
            if len(payload) != payload_bytes or len(sizes) != 4 * count or len(head) != head_bytes:
                return
            instants.frombytes(times)
            lengths.frombytes(sizes)
            yield Frame(_decode(head), instants, lengths, payload)


def spool_path(folder: Path, process: int, number: int) -> Path:
    return folder / f"spool-{process}-{number:06d}.bin"


class SpoolWriter:
    """Takes ended requests from the loop and writes them from a thread of its own.

    `done` and `failed` count what is on disk. `on_rotate(number)` is called from the thread when a file is full.
    """

    def __init__(self, folder: Path, process: int, on_rotate: Any = None) -> None:
        self.folder, self.process = folder, process
        self.done = 0
        self.failed = 0
        self.number = 0
        self.error: BaseException | None = None
        self._on_rotate = on_rotate
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="spool", daemon=True)
        self._thread.start()

    def put(self, header: FrameHeader, instants: list[int], pieces: list[bytes]) -> None:
        """Hand over a frame; returns at once. The lists must not be touched afterwards."""
        self._queue.put((header, instants, pieces))

    def close(self, timeout_s: float | None = None) -> None:
        """Write what is queued and stop. Raises OSError when a write failed."""
        self._queue.put(None)
        self._thread.join(timeout_s)
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        handle = self._open()
        size = 0
        try:
            while True:
                batch = [self._queue.get()]
                while len(batch) < _MAX_IOV // 2 and not self._queue.empty():
                    batch.append(self._queue.get())
                is_last = batch[-1] is None
                frames = [item for item in batch if item is not None]
                buffers = [buffer for item in frames for buffer in frame_buffers(*item)]
                size += _write_all(handle, buffers)
                for header, _, _ in frames:
                    if not header.is_part:
                        self.done += 1
                        self.failed += header.outcome == "failed" or (header.http_status or 0) >= 400
                if is_last:
                    return
                if size >= ROTATE_BYTES:
                    os.close(handle)
                    finished, self.number = self.number, self.number + 1
                    handle, size = self._open(), 0
                    if self._on_rotate is not None:
                        self._on_rotate(finished)
        except OSError as error:
            self.error = error
        finally:
            os.close(handle)

    def _open(self) -> int:
        path = spool_path(self.folder, self.process, self.number)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)


def _write_all(handle: int, buffers: list[bytes]) -> int:
    total = 0
    for start in range(0, len(buffers), _MAX_IOV):
        group = buffers[start : start + _MAX_IOV]
        wanted = sum(map(len, group))
        written = os.writev(handle, group)
        while written < wanted:  # a short write: rare, so simply joined
            written += os.write(handle, b"".join(group)[written:])
        total += wanted
    return total


class SentLog:
    """When each request of the plan was due and was sent, kept by the kernel even if this process is killed."""

    def __init__(self, folder: Path, process: int, count: int) -> None:
        path = folder / f"sent-{process}.bin"
        with path.open("wb+") as stream:
            stream.truncate(max(1, count) * _SENT.size)
            self._map = mmap.mmap(stream.fileno(), max(1, count) * _SENT.size)

    def mark(self, position: int, planned_ns: int, sent_ns: int) -> None:
        _SENT.pack_into(self._map, position * _SENT.size, planned_ns, sent_ns)


def read_sent(folder: Path) -> dict[int, tuple[int, int]]:
    """(planned_ns, sent_ns) by position, of every request that any process of the window has sent."""
    found: dict[int, tuple[int, int]] = {}
    for path in sorted(folder.glob("sent-*.bin")):
        data = path.read_bytes()
        for position, (planned_ns, sent_ns) in enumerate(
            _SENT.iter_unpack(data[: len(data) // _SENT.size * _SENT.size])
        ):
            if sent_ns:
                found[position] = (planned_ns, sent_ns)
    return found
