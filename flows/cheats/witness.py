"""The control of the clean cells: a process that only waits, beside the windows, with a load process's priority.

What keeps it waiting is neither the client nor a server: the machine had other work, or was not given its processors.
`python -m flows.cheats.witness` takes `open` and `close` on standard input, a line each, and answers a close with the
99th percentile of its lags since it was opened, in ns. When standard input ends, so does it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from types import TracebackType

from contracts.screens.client_lag import LAG
from flows.load.clock import LagProbe, percentile
from flows.priority import ask_to_be_woken


class Witness:
    """Runs the process from entering to leaving; `open` and `close` once a round."""

    def __enter__(self) -> Witness:
        command = [sys.executable, "-m", "flows.cheats.witness"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()

    def open(self) -> None:
        """The windows of a round open."""
        self._tell("open")

    def close(self) -> bool:
        """They have closed: whether the machine disturbed them, by the bound that a load process is held to."""
        self._tell("close")
        assert self._process.stdout is not None
        lag_ns = self._process.stdout.readline()
        return not lag_ns or int(lag_ns) / 1e6 > LAG.value

    def _tell(self, order: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(
            BrokenPipeError
        ):  # a witness that is gone answers nothing, which is a disturbance
            self._process.stdin.write(order + "\n")


async def _stand_by() -> None:
    loop = asyncio.get_running_loop()
    is_over = loop.create_future()
    probe: LagProbe | None = None

    def take_orders() -> None:
        nonlocal probe
        orders = os.read(0, 4096).decode()
        if not orders:
            loop.remove_reader(0)
            is_over.set_result(None)
        for order in orders.split():
            if order == "open":
                probe = LagProbe(loop)
            elif probe is not None:
                probe.close()
                os.write(1, b"%d\n" % percentile(sorted(probe.lags_ns) or [0], 0.99))
                probe = None

    loop.add_reader(0, take_orders)
    await is_over


def main() -> None:
    """Stand by until standard input ends."""
    import uvloop

    ask_to_be_woken()
    uvloop.run(_stand_by())


if __name__ == "__main__":
    main()
