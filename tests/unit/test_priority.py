"""What a process asks the kernel for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows import priority


@pytest.mark.skipif(not Path("/proc/self/sched").exists(), reason="this kernel does not show its scheduling")
def test_a_load_process_runs_in_short_slices() -> None:
    code = (
        "from flows.priority import *; print(ask_for_short_slices()); print(open('/proc/self/sched').read())"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    asked, _, shown = said.partition("\n")
    slices = [line.split(":")[1].strip() for line in shown.splitlines() if line.startswith("se.slice")]
    assert asked == "True"
    heeds = tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 12)
    assert not heeds or slices == [str(priority.SLICE_NS)]


def test_a_machine_that_it_does_not_know_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "here", "6.18", "", "riscv64")))
    assert priority.ask_for_short_slices() is False
