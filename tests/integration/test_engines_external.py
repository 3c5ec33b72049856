"""An endpoint that is already up: a key from the environment that is written nowhere, facts from what it says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from flows.engines import bring_up
from flows.engines.base import BringUpFailed
from flows.landing import RunFolder
from flows.recipe import Recipe

KEY = "k-4711-secret"


class Endpoint(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        bodies = {
            "/v1/models": json.dumps({"data": [{"id": "org/m", "max_model_len": 4096}]}),
            "/version": json.dumps({"version": "0.20.0"}),
            "/metrics": 'vllm:prompt_tokens_total{engine="0"} 12.0\n',
        }
        self._answer(200 if self.path in bodies else 404, bodies.get(self.path, "{}"))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers.get("authorization") != f"Bearer {KEY}":
            self._answer(401, '{"error": "no key"}')
        elif body.get("model") != "org/m":
            self._answer(404, '{"error": "no such model"}')
        else:
            self._answer(200, '{"choices": [{"message": {"content": "x"}}]}')

    def _answer(self, status: int, body: str) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


def test_an_external_endpoint_is_served_with_its_facts(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENDPOINT_KEY", KEY)
    run = RunFolder.create(tmp_path, "c", "r")
    recipe = Recipe(name="there", engine="external", model="org/m", url=url, api_key_env="ENDPOINT_KEY")
    served = bring_up(recipe, run)
    assert served.endpoints == [url.removesuffix("/v1")]
    assert (served.model, served.facts.version, served.facts.max_model_len) == ("org/m", "0.20.0", 4096)
    assert served.counters()[0]["prompt_tokens"] == 12.0
    assert (served.command, served.log_names, served.processes) == ([], [], [])
    assert served.is_alive()
    assert served.stop().is_clean
    assert KEY not in repr(served)
    assert not any(KEY in path.read_text() for path in run.path.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("fields", "failure_class"),
    [({"model": "other"}, "bad_argument"), ({"url": "http://127.0.0.1:9"}, "timeout")],
)
def test_an_endpoint_that_gives_no_token_is_a_kept_failure(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], failure_class: str
) -> None:
    monkeypatch.setenv("ENDPOINT_KEY", KEY)
    monkeypatch.setattr("flows.engines.start.RETRY_S", 0.05)
    run = RunFolder.create(tmp_path, "c", "r")
    settings = {
        "name": "there",
        "engine": "external",
        "model": "org/m",
        "url": url,
        "api_key_env": "ENDPOINT_KEY",
    }
    with pytest.raises(BringUpFailed) as raised:
        bring_up(Recipe(**{**settings, "ready_timeout_s": 2.0, **fields}), run)
    assert raised.value.failure_class == failure_class
    assert KEY not in str(raised.value)
    run.land("files/server-0.log")
    assert KEY not in (run.path / "files/server-0.log").read_text()
