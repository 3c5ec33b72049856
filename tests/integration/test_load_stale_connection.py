"""A server that offers keep-alive and then closes the connection under the next request (llama.cpp does)."""

from __future__ import annotations

import socketserver
import threading
from pathlib import Path

from contracts.records import Request
from flows.landing import RunFolder, read_records
from flows.load import run_window
from flows.load.plan import PlannedRequest, Shape, WindowSpec

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nKeep-Alive: timeout=5\r\n\r\n"
EVENTS = (
    b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\ndata: [DONE]\n\n'
)
MODELS = b'{"object":"list","data":[{"id":"m"}]}'


class _OneAnswer(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        line = self.rfile.readline()
        length = 0
        while (header := self.rfile.readline().strip()) != b"":
            name, _, value = header.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        self.rfile.read(length)
        if line.startswith(b"GET"):
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(MODELS) + MODELS)
            return
        self.server.answered += 1  # type: ignore[attr-defined]
        self.wfile.write(HEAD + b"%x\r\n" % len(EVENTS) + EVENTS + b"\r\n0\r\n\r\n")
        self.wfile.flush()
        self.rfile.readline()  # waits for the next request, then closes without a word


def test_a_request_on_a_connection_that_the_server_gave_up_is_sent_once_more(tmp_path: Path) -> None:
    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        answered = 0

    with Server(("127.0.0.1", 0), _OneAnswer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        run = RunFolder.create(tmp_path, "c", "r")
        spec = WindowSpec(
            campaign="c",
            run_id="r",
            cell_id="x",
            endpoints=[f"http://127.0.0.1:{server.server_address[1]}"],
            model="m",
            shape=Shape(kind="closed", concurrency=2),
        )
        planned = [
            PlannedRequest(
                request_id=f"r.x.{index}",
                index=index,
                body={
                    "model": "m",
                    "stream": True,
                    "messages": [{"role": "user", "content": f"hello {index}"}],
                },
            )
            for index in range(8)
        ]
        window = run_window(spec, planned, run)
        server.shutdown()
    records = read_records(run.path / "requests/x.jsonl", Request)
    assert (window.ok, window.failed, server.answered) == (8, 0, 8)
    for record in records:
        assert record.planned_ns is not None and record.sent_ns is not None
        assert record.sent_ns >= record.planned_ns
