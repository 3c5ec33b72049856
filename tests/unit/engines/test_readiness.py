"""Readiness is the engine's own: an answering port is not a ready engine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import httpx
import pytest

from flows.engines import http
from flows.engines.sglang import Sglang
from flows.engines.vllm import Vllm


class Fake(BaseHTTPRequestHandler):
    """Answers from a table of path -> (status, body)."""

    answers: ClassVar[dict[str, tuple[int, Any]]] = {}

    def do_GET(self) -> None:
        status, body = self.answers.get(self.path, (404, {}))
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture
def fake() -> Iterator[tuple[str, dict[str, tuple[int, Any]]]]:
    answers: dict[str, tuple[int, Any]] = {}
    handler = type("Handler", (Fake,), {"answers": answers})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", answers
    server.shutdown()
    server.server_close()


def test_sglang_is_not_ready_at_application_startup_complete(fake: Any) -> None:
    url, answers = fake
    answers["/health"] = (200, {})
    answers["/health_generate"] = (200, {})
    log = "[2026-01-01 00:00:00] server_args=ServerArgs(x)\nINFO:     Application startup complete.\n"
    assert not Sglang().is_ready(url, log)
    assert Sglang().is_ready(url, log + "[2026-01-01 00:00:09] The server is fired up and ready to roll!\n")


def test_vllm_asks_the_core_through_health(fake: Any) -> None:
    url, answers = fake
    assert not Vllm().is_ready(url, "INFO:     Application startup complete.")
    answers["/health"] = (503, {})
    assert not Vllm().is_ready(url, "")
    answers["/health"] = (200, "")
    assert Vllm().is_ready(url, "")


def test_a_one_token_request_must_succeed(fake: Any) -> None:
    url, answers = fake
    with httpx.Client(trust_env=False) as client:
        answers["/v1/chat/completions"] = (500, {"error": "boom"})
        assert http.ask_one_token(client, url, "m", 5)[0] is False
        answers["/v1/chat/completions"] = (200, {"choices": []})
        assert http.ask_one_token(client, url, "m", 5)[0] is False
        answers["/v1/chat/completions"] = (200, {"choices": [{}]})
        assert http.ask_one_token(client, url, "m", 5) == (True, "")


def test_a_model_without_a_chat_template_is_asked_for_a_completion(fake: Any) -> None:
    url, answers = fake
    answers["/v1/chat/completions"] = (400, {"error": "no chat template"})
    answers["/v1/completions"] = (200, {"choices": [{}]})
    with httpx.Client(trust_env=False) as client:
        assert http.ask_one_token(client, url, "m", 5) == (True, "")


def test_facts_come_from_the_running_server(fake: Any) -> None:
    url, answers = fake
    answers["/version"] = (200, {"version": "0.32.0"})
    answers["/v1/models"] = (200, {"data": [{"id": "m", "max_model_len": 4096}]})
    answers["/metrics"] = (
        200,
        'vllm:cache_config_info{kv_cache_size_tokens="23296",enable_prefix_caching="True"} 1\n',
    )
    answers["/get_server_info"] = (
        200,
        {
            "version": "0.5.3",
            "disable_radix_cache": True,
            "internal_states": [{"max_total_num_tokens": 5000, "max_running_requests": 9}],
        },
    )
    with httpx.Client(trust_env=False) as client:
        vllm = Vllm().read_facts(url, client)
        sglang = Sglang().read_facts(url, client)
    assert (vllm.version, vllm.max_model_len, vllm.kv_tokens, vllm.prefix_caching) == (
        "0.32.0",
        4096,
        23_296,
        True,
    )
    assert (sglang.version, sglang.kv_tokens, sglang.max_running_requests, sglang.prefix_caching) == (
        "0.5.3", 5000, 9, False,
    )  # fmt: skip
