"""The leash: whatever ends the flow, nothing of an engine is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.engines import sweep
from flows.engines.base import ProcessSpec
from flows.engines.processes import free_port, is_port_free, is_running, launch

# A server with a worker in its own session that ignores SIGTERM, as Ray's and some CUDA helpers do.
STUBBORN = """
import os, signal, socket, sys, time
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        open(sys.argv[1] + "/grandchild", "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
listener = socket.create_server(("127.0.0.1", int(sys.argv[2])))
print("serving", flush=True)
time.sleep(600)
"""


def wait_for(condition: Callable[[], bool], timeout_s: float = 30.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.fixture
def stubborn(tmp_path: Path) -> tuple[Path, int, list[str]]:
    script = tmp_path / "stubborn.py"
    script.write_text(STUBBORN)
    port = free_port()
    return tmp_path, port, [sys.executable, str(script), str(tmp_path), str(port)]


def test_stop_ends_children_that_left_the_group_and_frees_the_port(
    stubborn: tuple[Path, int, list[str]],
) -> None:
    folder, port, argv = stubborn
    process = launch(ProcessSpec(argv, {}, port), 0, folder / "run", grace_s=0.5)
    assert wait_for(lambda: bool(text_of(folder / "grandchild")) and "serving" in text_of(process.log))
    grandchild = int(text_of(folder / "grandchild"))
    server = process.status()["pid"]
    assert process.is_alive
    assert not is_port_free(port)
    assert process.end(grace_s=0.5) is None
    assert not is_running(grandchild)
    assert not is_running(server)
    assert is_port_free(port)
    assert not process.is_alive
    assert not process.status_path.exists()


FLOW = """
import sys, time
from pathlib import Path
from flows.engines.base import ProcessSpec
from flows.engines.processes import launch
folder, port = Path(sys.argv[1]), int(sys.argv[2])
process = launch(ProcessSpec(sys.argv[3:], {}, port), 0, folder / "run", grace_s=0.5)
while "serving" not in process.log.read_text():
    time.sleep(0.05)
print(process.leash.pid, process.status()["pid"], flush=True)
time.sleep(600)
"""


def start_flow(folder: Path, port: int, argv: list[str]) -> tuple[subprocess.Popen[str], int, int]:
    flow = subprocess.Popen(
        [sys.executable, "-c", FLOW, str(folder), str(port), *argv], stdout=subprocess.PIPE, text=True
    )
    assert flow.stdout is not None
    with flow.stdout:
        leash_pid, server = map(int, flow.stdout.readline().split())
    return flow, leash_pid, server


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_flow_leaves_nothing_behind(stubborn: tuple[Path, int, list[str]], number: int) -> None:
    folder, port, argv = stubborn
    flow, leash_pid, server = start_flow(folder, port, argv)
    try:
        assert wait_for(lambda: bool(text_of(folder / "grandchild")))
        grandchild = int(text_of(folder / "grandchild"))
        os.kill(flow.pid, number)
        flow.wait()
        assert wait_for(lambda: not any(map(is_running, (leash_pid, server, grandchild))))
        assert wait_for(lambda: is_port_free(port))
        status = text_of(folder / "run/files/server-0.process.json.part")
        assert '"reason": "flow_gone"' in status
        assert '"is_over": true' in status
    finally:
        flow.kill()


def test_a_killed_leash_takes_its_server_along_and_the_sweep_takes_the_rest(
    stubborn: tuple[Path, int, list[str]],
) -> None:
    folder, port, argv = stubborn
    flow, leash_pid, server = start_flow(folder, port, argv)
    try:
        assert wait_for(lambda: bool(text_of(folder / "grandchild")))
        grandchild = int(text_of(folder / "grandchild"))
        os.kill(leash_pid, signal.SIGKILL)
        os.kill(flow.pid, signal.SIGKILL)
        flow.wait()
        assert wait_for(lambda: not is_running(server))
        assert is_running(grandchild)
        assert grandchild in sweep(folder / "run")
        assert not is_running(grandchild)
        assert sweep(folder / "run") == []
    finally:
        flow.kill()


def test_a_recycled_pid_is_left_alone(tmp_path: Path) -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        files = tmp_path / "files"
        files.mkdir()
        body = f'{{"leash_pid": {bystander.pid}, "leash_start_ticks": 1, "pid": {bystander.pid}, "start_ticks": 1}}\n'
        (files / "server-0.process.json.part").write_text(body)
        assert sweep(tmp_path) == []
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.parametrize(
    ("code", "expected"),
    [("import sys; sys.exit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)],
)
def test_the_exit_code_is_the_servers_own(tmp_path: Path, code: str, expected: int) -> None:
    process = launch(ProcessSpec([sys.executable, "-c", code]), 0, tmp_path, grace_s=0.5)
    assert wait_for(lambda: not process.is_alive)
    assert process.exit_code == expected
    process.end(0.5)
    assert process.exit_code == expected


def test_a_command_that_does_not_exist_says_so(tmp_path: Path) -> None:
    process = launch(ProcessSpec(["/no/such/engine"]), 0, tmp_path, grace_s=0.5)
    assert wait_for(lambda: not process.is_alive)
    assert process.exit_code == 127
    assert "cannot run /no/such/engine" in text_of(process.log)
    process.end(0.5)


def test_gpus_are_pinned_in_the_order_of_the_bus(tmp_path: Path) -> None:
    show = textwrap.dedent(
        """
        import os
        print(os.environ["CUDA_VISIBLE_DEVICES"], os.environ["CUDA_DEVICE_ORDER"], os.environ["EXTRA"])
        """
    )
    process = launch(
        ProcessSpec([sys.executable, "-c", show], {"EXTRA": "yes"}, gpu_ids=[2, 3]), 0, tmp_path, 0.5
    )
    assert wait_for(lambda: not process.is_alive)
    assert text_of(process.log).strip() == "2,3 PCI_BUS_ID yes"
    with contextlib.suppress(OSError):
        process.end(0.5)
