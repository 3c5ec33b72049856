"""The router of a prefill/decode split, as a process, between two servers that write down what they were asked."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from flows.engines.processes import free_port

BLOCKS = {"remote_engine_id": "e1", "remote_block_ids": [1, 2], "remote_host": "127.0.0.1", "remote_port": 5}


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Poll until the condition holds or the time is over."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and not condition():
        time.sleep(0.05)
    return condition()


class Side(BaseHTTPRequestHandler):
    """One side of a split. The decode side streams three chunks with a pause between them."""

    protocol_version = "HTTP/1.1"
    asked: list[dict[str, Any]]
    is_prefill: bool
    state: dict[str, Any]

    def do_GET(self) -> None:
        bodies = {"/health": "{}", "/v1/models": '{"data": []}', "/metrics": "vllm:prompt_tokens_total 1\n"}
        self._whole(200 if self.path in bodies else 404, bodies.get(self.path, "{}"))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append({**body, "request_id": self.headers.get("x-request-id")})
        if self.state.get("status", 200) != 200:
            self._whole(self.state["status"], '{"error": {"message": "too long"}}')
        elif self.is_prefill:
            self._whole(200, json.dumps({"choices": [{}], "kv_transfer_params": BLOCKS}))
        elif body.get("stream"):
            self._stream()
        else:
            self._whole(200, json.dumps({"choices": [{"text": "whole"}]}))

    def _whole(self, status: int, body: str) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for word in ("a", "b", "c"):
            chunk = f"data: {word}\n\n".encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            self.wfile.flush()
            if word == "b" and self.state.get("cuts"):
                self.close_connection = True
                self.connection.close()
                return
            time.sleep(0.15)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: Any) -> None:
        return


class Split:
    """A running router with its two sides."""

    def __init__(self, url: str, prefill: dict[str, Any], decode: dict[str, Any]) -> None:
        self.url, self.prefill, self.decode = url, prefill, decode


@contextmanager
def side(is_prefill: bool) -> Iterator[dict[str, Any]]:
    asked: list[dict[str, Any]] = []
    state: dict[str, Any] = {"asked": asked}
    handler = type("Handler", (Side,), {"asked": asked, "is_prefill": is_prefill, "state": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    state["url"] = f"http://127.0.0.1:{server.server_port}"
    yield state
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module", params=["vllm", "sglang"])
def running(request: pytest.FixtureRequest) -> Iterator[tuple[str, Split]]:
    port = free_port()
    with side(True) as prefill, side(False) as decode:
        argv = [sys.executable, "-m", "flows.engines.router", "--dialect", request.param, "--port", str(port)]
        argv += ["--prefill", prefill["url"], "--decode", decode["url"], "--bootstrap-port", "8998"]
        router = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
        url = f"http://127.0.0.1:{port}"
        try:
            assert wait_until(lambda: _is_up(url), 30)
            yield request.param, Split(url, prefill, decode)
        finally:
            router.terminate()
            assert router.wait(10) == 0


@pytest.fixture
def split(running: tuple[str, Split]) -> tuple[str, Split]:
    for one in (running[1].prefill, running[1].decode):
        one["asked"].clear()
        one.pop("status", None)
        one.pop("cuts", None)
    return running


def _is_up(url: str) -> bool:
    try:
        return httpx.get(url + "/health", trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def stream(url: str) -> list[tuple[float, str]]:
    body = {
        "model": "m",
        "prompt": "p",
        "stream": True,
        "max_tokens": 3,
        "stream_options": {"include_usage": True},
    }
    chunks = []
    with httpx.stream("POST", url + "/v1/completions", json=body, timeout=30, trust_env=False) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream"
        for chunk in answer.iter_text():
            chunks.append((time.monotonic(), chunk))
    return chunks


def test_a_stream_comes_through_chunk_by_chunk(split: tuple[str, Split]) -> None:
    dialect, sides = split
    chunks = stream(sides.url)
    assert [chunk for _, chunk in chunks] == ["data: a\n\n", "data: b\n\n", "data: c\n\n"]
    # The decode side pauses between chunks: a router that collected them would deliver them together.
    assert chunks[-1][0] - chunks[0][0] > 0.2
    assert wait_until(lambda: len(sides.prefill["asked"]) == 1, 5)
    first, second = sides.prefill["asked"][0], sides.decode["asked"][0]
    assert second["max_tokens"] == 3
    assert first["request_id"] == second["request_id"] is not None
    if dialect == "vllm":
        assert (first["max_tokens"], first["stream"], "stream_options" in first) == (1, False, False)
        assert first["kv_transfer_params"]["do_remote_decode"] is True
        assert second["kv_transfer_params"] == BLOCKS
    else:
        assert first["bootstrap_room"] == second["bootstrap_room"]
        assert (second["bootstrap_host"], second["bootstrap_port"]) == ("127.0.0.1", 8998)


def test_everything_else_is_the_decode_servers(split: tuple[str, Split]) -> None:
    _, sides = split
    assert httpx.get(sides.url + "/v1/models", trust_env=False).json() == {"data": []}
    assert "prompt_tokens" in httpx.get(sides.url + "/metrics", trust_env=False).text
    body = {"model": "m", "prompt": "p", "max_tokens": 1}
    answer = httpx.post(sides.url + "/v1/completions", json=body, trust_env=False)
    assert answer.json()["choices"][0]["text"] == "whole"


def test_a_refusal_reaches_the_client_as_it_is(split: tuple[str, Split]) -> None:
    dialect, sides = split
    (sides.prefill if dialect == "vllm" else sides.decode)["status"] = 400
    answer = httpx.post(sides.url + "/v1/completions", json={"model": "m", "prompt": "p"}, trust_env=False)
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "too long")
    bad = httpx.post(sides.url + "/v1/completions", content=b"no json", trust_env=False)
    assert bad.status_code == 400


def test_a_cut_stream_is_cut_for_the_client_too(split: tuple[str, Split]) -> None:
    _, sides = split
    sides.decode["cuts"] = True
    with pytest.raises(httpx.HTTPError):
        stream(sides.url)
    del sides.decode["cuts"]
    assert len(stream(sides.url)) == 3
