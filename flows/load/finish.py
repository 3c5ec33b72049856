"""The last step of a window, and of its recovery: every planned request gets its record, and all of it lands."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from contracts.records import Request, Window
from flows.landing import RunFolder, encode_line
from flows.load.certificate import Share, read_share, window_record
from flows.load.clock import Epoch
from flows.load.convert import convert
from flows.load.lock import alone
from flows.load.outcomes import encode_record, unanswered_record
from flows.load.planfile import LOAD_FOLDER, PlanFile, PlanLine, load_folder
from flows.load.schedule import shard
from flows.load.spool import read_sent


class _Head(msgspec.Struct):
    """The part of a record that is counted."""

    request_id: str
    outcome: str
    phase: str = "timed"


_decode_head = msgspec.json.Decoder(_Head).decode
# (request_id, answer, reasoning): where private answers go instead of to the records.
OnText = Callable[[str, str | None, str | None], None]


def land_window(folder: Path, run: RunFolder, on_text: OnText | None = None) -> Window | None:
    """Land the records of a window whose spool files have been read, and its certificate where there is one.

    Returns the window, or None where a process left no certificate. Removes the load folder. Can be done again after
    a kill at any point.
    """
    plan = PlanFile(folder)
    spec = plan.spec
    name = f"requests/{spec.cell_id}.jsonl"
    shares = [read_share(path) for path in sorted(folder.glob("certificate-*.json"))]
    whole = len(shares) == spec.processes
    epoch = msgspec.json.decode((folder / "epoch.json").read_bytes(), type=Epoch)
    if run.has_landed(name):
        counts = _count(run.path / name)
    else:
        counts = _gather(folder, plan, epoch, shares if whole else [], on_text)
        os.replace(folder / "requests.jsonl", run.part(name))
        run.land(name)
    window = None
    window_name = f"windows/{spec.cell_id}.jsonl"
    if whole and not run.has_landed(window_name):
        window = window_record(spec, epoch, shares, dict(counts))
        (folder / "window.jsonl").write_bytes(encode_line(window))
        os.replace(folder / "window.jsonl", run.part(window_name))
        run.land(window_name)
    shutil.rmtree(folder)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()
    return window


def strip_text(record: bytes, on_text: OnText | None) -> bytes:
    """A record's line without its answer; the answer goes to `on_text`, or nowhere."""
    whole = msgspec.json.decode(record, type=Request)
    if on_text is not None:
        on_text(whole.request_id, whole.output_text, whole.reasoning_text)
    whole.output_text = whole.reasoning_text = whole.tool_calls = None
    return encode_record(whole) + b"\n"


def _count(path: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    with path.open("rb") as stream:
        for line in stream:
            head = _decode_head(line)
            if head.phase == "timed":
                counts[head.outcome] += 1
    return counts


def _gather(
    folder: Path, plan: PlanFile, epoch: Epoch, shares: list[Share], on_text: OnText | None
) -> Counter[str]:
    """Write requests.jsonl: the records of every process, then those of requests that never ended."""
    counts: Counter[str] = Counter()
    answered: set[str] = set()
    with (folder / "requests.jsonl").open("wb", buffering=1 << 20) as out:
        for path in sorted(folder.glob("records-*.jsonl")):
            with path.open("rb") as stream:
                for record in stream:
                    head = _decode_head(record)
                    answered.add(head.request_id)
                    if head.phase == "timed":
                        counts[head.outcome] += 1
                    out.write(strip_text(record, on_text) if plan.spec.is_text_private else record)
        sent = read_sent(folder)
        for line, process in _planned(plan, shares):
            if line.request_id in answered:
                continue
            blank = unanswered_record(plan.spec, line, process, epoch, sent.get(line.position))
            out.write(encode_record(blank) + b"\n")
            if line.phase == "timed":
                counts[blank.outcome] += 1
    return counts


def _planned(plan: PlanFile, shares: list[Share]) -> Iterator[tuple[PlanLine, int]]:
    """Every request that was planned to be sent, with the process whose it was.

    A window that ended by `stop_after_s` ends its plan there: requests that a closed loop would have come to
    later were not planned; those of an open loop were, when their instant lay before the stop.
    """
    spec = plan.spec
    for order, at in enumerate(plan.warmup):
        yield plan.line(at), order % spec.processes
    is_cut = any(share.why == "stopped" for share in shares)
    stop_ns = round((spec.shape.stop_after_s or 0) * 1e9)
    for process in range(spec.processes):
        for position in shard(plan, spec.shape, process, spec.processes):
            line = plan.line(plan.timed[position])
            if not is_cut or (line.planned_offset_ns is not None and line.planned_offset_ns < stop_ns):
                yield line, process


def left_over_windows(run: RunFolder) -> list[Path]:
    """The load folders of windows that were never finished; each is named by its cell_id."""
    root = run.path / LOAD_FOLDER
    return sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []


def recover_window(run: RunFolder, cell_id: str) -> bool:
    """Land what a killed window left. Returns whether its requests have landed.

    Completed requests land as they were; those that had been sent become `cancelled`, the rest `unsent`. A window
    record lands only if every process had left its certificate. Doing it again changes nothing. Raises
    WeighbridgeError when a process of the window is still alive.
    """
    folder = load_folder(run, cell_id)
    if not folder.is_dir():
        return run.has_landed(f"requests/{cell_id}.jsonl")
    with alone(folder):
        if not (folder / "spec.json").exists() or not (folder / "epoch.json").exists():
            shutil.rmtree(folder)  # the plan was never whole: nothing can have been sent
            return False
        plan = PlanFile(folder)
        for process in range(plan.spec.processes):
            numbers = {_number(path) for path in folder.glob(f"spool-{process}-*.bin")}
            for number in sorted(numbers):
                convert(folder, plan, process, number)
        land_window(folder, run)
    return True


def _number(path: Path) -> int:
    return int(path.stem.rsplit("-", 1)[1])
