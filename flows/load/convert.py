"""Spool files into records: after the window, while a long one still runs, or after a kill. Always the same code.

A finished spool file `spool-<p>-<n>.bin` becomes `records-<p>-<n>.jsonl` and is then deleted. Parts of answers that
had not ended in it are carried over in `carry-<p>-<n>.bin`. Every step ends with a rename, so it can be
killed and done again.
"""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
from pathlib import Path

import msgspec

from flows.load.clock import Epoch
from flows.load.lock import share_lock
from flows.load.outcomes import encode_record, request_record, whole_frames
from flows.load.planfile import PlanFile
from flows.load.spool import Frame, frame_buffers, read_frames, spool_path


def records_path(folder: Path, process: int, number: int) -> Path:
    return folder / f"records-{process}-{number:06d}.jsonl"


def carry_path(folder: Path, process: int, number: int) -> Path:
    return folder / f"carry-{process}-{number:06d}.bin"


def convert(folder: Path, plan: PlanFile, process: int, number: int) -> None:
    """Turn one finished spool file into records. Files before it must have been turned already."""
    target = records_path(folder, process, number)
    spool = spool_path(folder, process, number)
    if target.exists():
        spool.unlink(missing_ok=True)
        return
    epoch = msgspec.json.decode((folder / "epoch.json").read_bytes(), type=Epoch)
    parts: dict[int, list[Frame]] = {}
    before = carry_path(folder, process, number - 1)
    if before.exists():
        for frame in read_frames(before):
            parts.setdefault(frame.header.position, []).append(frame)
    part_file = target.with_suffix(".part")
    with part_file.open("wb", buffering=1 << 20) as out:
        for frame in whole_frames(read_frames(spool), parts):
            line = plan.at_position(frame.header.position)
            out.write(encode_record(request_record(plan.spec, line, frame, process, epoch)) + b"\n")
    if parts:
        carry = carry_path(folder, process, number)
        with carry.with_suffix(".part").open("wb") as out:
            for frames in parts.values():
                for frame in frames:
                    out.writelines(frame_buffers(frame.header, list(frame.instants), _pieces(frame)))
        os.rename(carry.with_suffix(".part"), carry)
    os.rename(part_file, target)
    spool.unlink(missing_ok=True)
    before.unlink(missing_ok=True)


def _pieces(frame: Frame) -> list[bytes]:
    pieces, at = [], 0
    for length in frame.lengths:
        pieces.append(frame.payload[at : at + length])
        at += length
    return pieces


def convert_all(folder: Path, plan: PlanFile, process: int, last: int) -> None:
    """Turn every spool file of a process up to number `last` into records."""
    for number in range(last + 1):
        convert(folder, plan, process, number)


_reader: subprocess.Popen[bytes] | None = None


def start_reader(folder: Path, process: int, number: int) -> None:
    """Tell the reading process that a spool file is finished; start it at the first."""
    global _reader
    if _reader is None:
        command = [sys.executable, "-m", "flows.load.convert", str(folder), str(process)]
        _reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert _reader.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        _reader.stdin.write(b"%d\n" % number)
        _reader.stdin.flush()


def wait_for_reader() -> None:
    """Let the reading process finish at normal priority; what it leaves is done by the caller."""
    if _reader is None:
        return
    with contextlib.suppress(OSError, PermissionError):
        os.sched_setscheduler(_reader.pid, os.SCHED_OTHER, os.sched_param(0))
    if _reader.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            _reader.stdin.close()
    _reader.wait()


def main() -> None:
    """Read finished spool files, their numbers on standard input, with whatever the processors have left over."""
    folder, process = Path(sys.argv[1]), int(sys.argv[2])
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    _lock = share_lock(folder)
    gc.disable()  # reading makes no cycles
    plan = PlanFile(folder)
    for line in sys.stdin:
        convert(folder, plan, process, int(line))


if __name__ == "__main__":
    main()
