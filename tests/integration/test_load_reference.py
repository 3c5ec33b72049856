"""The reference server over HTTP: what it counts, tells and does to itself; and a measured window behind TLS."""

from __future__ import annotations

import itertools
import json
import shutil
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from load_support import body, measure, planned, reference_server

from flows.engines.metrics import read_counters
from flows.load.plan import Shape


def _ask(url: str, text: str, tokens: int | None = 4, **extra: Any) -> dict[str, Any]:
    answer = httpx.post(
        f"{url}/v1/chat/completions", json=body(text, tokens, **extra) | {"stream": False}, timeout=20
    )
    found: dict[str, Any] = answer.json()
    return found


def test_counters_cache_and_tokens_agree_with_the_truth(tmp_path: Path) -> None:
    with reference_server(tmp_path, {"timing": {"ttft_ms": 2, "itl_ms": 1}}) as server:
        text = " ".join(f"w{n}" for n in range(50))
        first, again = _ask(server.url, text), _ask(server.url, text)
        assert first["usage"]["prompt_tokens"] == 50
        assert [u["usage"]["prompt_tokens_details"]["cached_tokens"] for u in (first, again)] == [0, 48]
        counters = read_counters(httpx.get(f"{server.url}/metrics").text)
        told = {
            name: counters[name]
            for name in ("prompt_tokens", "cached_prompt_tokens", "output_tokens", "requests_ok")
        }
        assert told == {
            "prompt_tokens": 100,
            "cached_prompt_tokens": 48,
            "output_tokens": 8,
            "requests_ok": 2,
        }
        assert counters["ttft_count"] == 2
        assert counters["requests_running"] == 0
        assert httpx.post(f"{server.url}/tokenize", json={"prompt": text}).json()["count"] == 50
        assert httpx.get(f"{server.url}/v1/models").json()["data"][0]["id"] == "reference"
        assert _ask(server.url, "x", model="other")["error"]["code"] == 404
        httpx.post(f"{server.url}/reset_prefix_cache")
        assert _ask(server.url, text)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_metrics_lie_as_they_are_told(tmp_path: Path) -> None:
    scenario = {
        "timing": {"ttft_ms": 1, "itl_ms": 0},
        "metrics": {
            "absent": ["cached_prompt_tokens"],
            "factors": {"output_tokens": 0.5},
            "nan": ["kv_usage"],
        },
        "life": {"preemptions_per_request": 2, "restarts_after_requests": 3},
    }
    with reference_server(tmp_path, scenario) as server:
        _ask(server.url, "hello", 8)
        counters = read_counters(httpx.get(f"{server.url}/metrics").text)
        assert (counters["output_tokens"], counters["preemptions"], counters["kv_usage"]) == (4, 2, None)
        started = counters["process_start_time_s"]
        for _ in range(3):
            _ask(server.url, "hello", 8)
        after = read_counters(httpx.get(f"{server.url}/metrics").text)
        assert after["output_tokens"] == 4
        assert after["process_start_time_s"] > started


def test_slots_make_requests_wait_and_prefill_takes_its_time(tmp_path: Path) -> None:
    scenario = {"timing": {"ttft_ms": 5, "itl_ms": 5, "slots": 1, "prefill_tokens_per_s": 1000}}
    with reference_server(tmp_path, scenario) as server:
        result = measure(tmp_path, server.url, planned(6, 5), shape=Shape(concurrency=3))
        truth = server.truth(6)
    assert all(record.outcome == "ok" for record in result.records.values())
    spans = sorted((row["token_ns"][0], row["token_ns"][-1]) for row in truth.values())
    assert all(first_end < next_begin for (_, first_end), (next_begin, _) in itertools.pairwise(spans))
    quickest = min(row["first_token_ns"] - row["received_ns"] for row in truth.values())
    assert quickest >= 5_000_000 + 3_000_000  # three uncached words at 1,000 a second


def test_it_fails_to_start_as_told(tmp_path: Path) -> None:
    import sys

    fails = {"start": {"fails": {"lines": ["torch.OutOfMemoryError: CUDA out of memory."], "exit_code": 7}}}
    command = [sys.executable, "-m", "flows.engines.reference", "--set", json.dumps(fails)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 7
    assert "torch.OutOfMemoryError" in ended.stderr
    wrong = subprocess.run(
        [*command[:4], '{"timing": {"ttft": 1}}'], capture_output=True, text=True, timeout=60, check=False
    )
    assert wrong.returncode == 2
    assert "did you mean `ttft_ms`?" in wrong.stderr
    assert "Traceback" not in wrong.stderr


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_window_behind_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with reference_server(tmp_path / "server", {"timing": {"ttft_ms": 5, "itl_ms": 2}}) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with _TlsFront(certificate, key, (host, int(port))) as front:
            result = measure(tmp_path, f"https://localhost:{front.port}", planned(12, 6))
    assert result.window.ok == 12
    assert all(record.output_tokens == 6 for record in result.records.values())


class _TlsFront:
    """Takes TLS off and passes bytes on, in threads."""

    def __init__(self, certificate: Path, key: Path, target: tuple[str, int]) -> None:
        import socket

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.target = target
        self.listener = context.wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True)
        self.port = self.listener.getsockname()[1]

    def __enter__(self) -> _TlsFront:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except ssl.SSLError:
                continue
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: Any) -> None:
        import socket

        server = socket.create_connection(self.target)

        def back() -> None:
            while data := server.recv(65536):
                try:
                    client.sendall(data)
                except OSError:
                    return
            client.close()

        threading.Thread(target=back, daemon=True).start()
        try:
            while data := client.recv(65536):
                server.sendall(data)
        except OSError:
            pass
        server.close()
