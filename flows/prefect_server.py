"""A Prefect server for the length of one command, where none is configured; on a leash, so that it never outlives it.

Prefect would start one by itself, but as a plain child: a flow that is killed leaves it running. This is the same
server with the same settings, held as engines are held (flows/engines/leash.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from contracts.errors import WeighbridgeError
from flows import prefect_settings
from flows.engines import leash
from flows.engines.processes import free_port

START_TIMEOUT_S = 180.0  # the first start writes the database; 20 to 46 s were seen on two busy cores
GRACE_S = 5.0


@contextmanager
def serving() -> Iterator[str]:
    """Yield the URL of a Prefect API: the configured one as it is, else one that is started here and ended after.

    Raises WeighbridgeError with the server's last words when it does not come up.
    """
    prefect_settings.prepare()
    import prefect
    from prefect.settings import PREFECT_API_URL, get_current_settings, temporary_settings

    configured = PREFECT_API_URL.value()
    if configured:
        yield configured
        return
    port = free_port()
    url = f"http://127.0.0.1:{port}/api"
    server = [
        sys.executable, "-m", "uvicorn", "--app-dir", str(Path(prefect.__file__).parent), "--factory",
        "prefect.server.api.server:create_app", "--host", "127.0.0.1", "--port", str(port), "--log-level", "error",
        "--lifespan", "on",
    ]  # fmt: skip
    environment = {
        **os.environ,
        **get_current_settings().to_environment_variables(exclude_unset=True),
        "PREFECT_UI_ENABLED": "0",
        "PREFECT__SERVER_EPHEMERAL": "1",
        "PREFECT__SERVER_FINAL": "1",
    }
    with tempfile.TemporaryDirectory(prefix="weighbridge-prefect-") as folder:
        log = Path(folder) / "server.log"
        held = [sys.executable, "-I", leash.__file__, str(Path(folder) / "status.json"), str(GRACE_S)]
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [*held, str(os.getpid()), "--", *server],
                stdin=subprocess.PIPE,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        try:
            _wait(process, url, log)
            with temporary_settings({PREFECT_API_URL: url}):
                yield url
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(GRACE_S * 4)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            if httpx.get(f"{url}/health", timeout=2, trust_env=False).is_success:
                return
        except httpx.HTTPError:
            pass
        if process.poll() is not None or time.monotonic() > deadline:
            ended = process.poll() is not None
            raise WeighbridgeError(
                "the Prefect server did not start",
                measured="it ended" if ended else f"no answer within {START_TIMEOUT_S:.0f} s",
                evidence=log.read_text(errors="replace")[-800:].strip() or None,
                next_step="set PREFECT_API_URL to a server that runs, or remove .prefect and try again",
            )
        time.sleep(0.1)
