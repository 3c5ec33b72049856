"""Finds runs of like chunks in a captured answer, so that reading a token costs a fraction of a microsecond.

Engines send one event per HTTP chunk, and within an answer these differ only in the text between the same bytes. A
run is taken only where that is proven: the template was read by the ordinary reader as a plain text chunk and
nothing else, every chunk has exactly its bytes around a JSON string, and every chunk size adds up. Whatever does
not fit is left to the ordinary reader.
"""

from __future__ import annotations

import re
from itertools import accumulate

import msgspec

from flows.load.streams import ChunkReader

SHORTEST_RUN = 4  # below this, learning a template costs more than it saves
MOST_RUNS = 16
_KEYS = re.compile(rb'"(?:content|text|reasoning_content|reasoning)":"(?!")')
_NOT_PLAIN = re.compile(rb'["\\\x00-\x1f]')
_HEX = re.compile(rb"[0-9A-Fa-f]{1,8}\Z")


class TextRun(msgspec.Struct, gc=False):
    """Chunks start..stop of the payload. line_ends: where each event's line ends. texts: JSON string bodies."""

    start: int
    stop: int
    line_ends: list[int]
    texts: list[bytes]
    is_thought: bool


def find_runs(payload: bytes, body_at: int) -> list[TextRun]:
    """Every run in a chunked response whose body starts at body_at; none where nothing is alike."""
    runs: list[TextRun] = []
    at, tries = body_at, 0
    while tries < MOST_RUNS:
        run = _next_run(payload, at)
        if run is None:
            break
        tries += 1
        if len(run.texts) >= SHORTEST_RUN:
            runs.append(run)
            tries -= len(run.texts) >= 64  # a long run has paid for the next template
        elif not runs and tries >= 3:
            break
        at = run.stop
    return runs


def _next_run(payload: bytes, at: int) -> TextRun | None:
    """The run that begins with the first chunk from `at` on that can serve as its template."""
    for _ in range(8):
        key = _KEYS.search(payload, at)
        if key is None:
            return None
        text_at = key.end()
        at = text_at
        line_at = payload.rfind(b"data: ", max(0, text_at - 4096), text_at)
        if line_at < 3 or payload[line_at - 2 : line_at] != b"\r\n":
            continue
        size_at = payload.rfind(b"\r\n", max(0, line_at - 12), line_at - 2) + 2
        size = payload[size_at : line_at - 2]
        text_end = payload.find(b'"', text_at)
        event_end = payload.find(b"\n\n", text_end) + 2
        if size_at < 2 or text_end < 0 or event_end < 2 or payload[event_end : event_end + 2] != b"\r\n":
            continue
        before, after = payload[line_at:text_at], payload[text_end:event_end]
        if not _HEX.match(size) or int(size, 16) != event_end - line_at:
            continue
        is_thought = _is_template(payload[line_at + 6 : event_end - 2], payload[text_at:text_end])
        if is_thought is None:
            continue
        run = _take_like_run(payload, size_at, before, after, is_thought)
        return run or _take_run(payload, size_at, before, after, is_thought)
    return None


def _is_template(line: bytes, text: bytes) -> bool | None:
    """Whether the chunk is one piece of text (False) or of reasoning (True) and says nothing else; None: neither."""
    if b"\n" in line or _NOT_PLAIN.search(text):
        return None
    reader = ChunkReader()
    reader.take(1, b"data", line)
    reading = reader.finish()
    if (
        reading.chunk_count != 1
        or reading.finish_reason is not None
        or reading.error_class is not None
        or reader.usage is not None
        or reader.timings is not None
        or reader.calls
        or reader.counted != 1
        or reader.has_detail
    ):
        return None
    said = text.decode("utf-8", "replace")
    if reading.text == said and not reading.reasoning:
        return False
    return True if reading.reasoning == said and not reading.text else None


def _take_like_run(
    payload: bytes, start: int, before: bytes, after: bytes, is_thought: bool
) -> TextRun | None:
    """The run, if from its start to its last chunk everything is alike, sizes of one length too.

    The same proof as `_take_run`, in a few passes instead of chunk by chunk. (bytes.replace would be slower: it prepares
    its search anew for every occurrence.)
    """
    between, separator = b"\r\n" + before, after + b"\r\n"
    parts = payload[start:].split(separator)
    parts.pop()  # what follows the last separator
    digits = payload.find(b"\r", start) - start
    if not all([part.startswith(between, digits) for part in parts]):
        return None
    skip = digits + len(between)
    sizes = [part[:digits] for part in parts]
    texts = [part[skip:] for part in parts]
    if _NOT_PLAIN.search(b"".join(texts)):
        return None
    lengths = list(map(len, texts))
    fixed = len(before) + len(after)
    for size, length in set(zip(sizes, lengths, strict=True)):
        if not length or not _HEX.match(size) or int(size, 16) != fixed + length:
            return None
    # A chunk is its size, CRLF, the event, CRLF; its line ends before the second newline of the event.
    around = digits + fixed + 4
    ends = list(accumulate([around + length for length in lengths], initial=start))
    return TextRun(start, ends[-1], [end - 3 for end in ends[1:]], texts, is_thought)


def _take_run(payload: bytes, start: int, before: bytes, after: bytes, is_thought: bool) -> TextRun:
    between = b"\r\n" + before
    separator = after + b"\r\n"
    fixed = len(before) + len(after)
    skip = len(between)
    to_line_end = len(after) - 1  # the first of the event's two newlines, included
    step = len(separator)
    sizes: dict[bytes, int] = {}
    texts: list[bytes] = []
    line_ends: list[int] = []
    at = start
    parts = payload[start:].split(separator)
    parts.pop()  # what follows the last separator
    for part in parts:
        cut = part.find(between, 1, 12 + skip)
        if cut < 0:
            break
        text = part[cut + skip :]
        size = part[:cut]
        told = sizes.get(size)
        if told is None:
            if not _HEX.match(size):
                break
            told = sizes[size] = int(size, 16)
        if told != fixed + len(text) or not text:
            break
        at += len(part)
        line_ends.append(at + to_line_end)
        at += step
        texts.append(text)
    if _NOT_PLAIN.search(b"".join(texts)):
        _cut_at_broken_text(texts, line_ends)
        at = line_ends[-1] + 1 + 2 if line_ends else start + 1
    return TextRun(start, max(at, start + 1), line_ends, texts, is_thought)


def _cut_at_broken_text(texts: list[bytes], line_ends: list[int]) -> None:
    """End the run before the first text that is not one JSON string body by itself."""
    for number, text in enumerate(texts):
        if _NOT_PLAIN.search(text):
            try:
                decode_text(text)
            except (msgspec.DecodeError, UnicodeDecodeError):
                del texts[number:], line_ends[number:]
                return


def decode_text(text: bytes) -> str:
    """A JSON string body as text. Raises msgspec.DecodeError when it is not one."""
    return msgspec.json.decode(b'"' + text + b'"', type=str)
