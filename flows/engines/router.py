"""A router for a prefill/decode split: `python -m flows.engines.router --dialect vllm --prefill URL --decode URL`.

vllm (the Nixl connector's protocol): a request goes to the prefill server with one output token and
`kv_transfer_params` that ask for a remote decode; its answer names the KV blocks, and with them the request goes to the
decode server, whose stream is passed through as it comes. sglang: the request goes to both at once, with the prefill
server's bootstrap address and a room number; the decode server's stream is passed through.

A process of its own. What it adds to every request is part of what a split costs, and is measured with it. Bytes are
passed on as they arrive: chunks are neither joined nor split. `/health` answers 200 when both sides are healthy;
`/metrics` and the other GETs are the decode server's.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import signal
import sys
import uuid
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import httptools
import httpx

MAX_BODY_BYTES = 64 << 20
HOP_HEADERS = {"connection", "keep-alive", "transfer-encoding", "content-length", "content-encoding", "host"}
REMOTE_DECODE = {
    "do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None,
    "remote_host": None, "remote_port": None,
}  # fmt: skip


class Refused(Exception):
    """A side answered with an error, which the client gets as it is."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status}")
        self.status, self.body = status, body


class Router:
    """Pairs the two sides. dialect: vllm or sglang. bootstrap_port: SGLang's prefill server's."""

    def __init__(self, dialect: str, prefill: str, decode: str, bootstrap_port: int | None = None) -> None:
        self.dialect, self.prefill, self.decode = dialect, prefill.rstrip("/"), decode.rstrip("/")
        self.bootstrap_port = bootstrap_port
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=512)
        self.client = httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=10), limits=limits, trust_env=False
        )
        self._background: set[asyncio.Task[None]] = set()

    async def health(self) -> bool:
        """Whether both sides answer their /health with 200."""
        answers = await asyncio.gather(
            *(self.client.get(f"{side}/health", timeout=5) for side in (self.prefill, self.decode)),
            return_exceptions=True,
        )
        return all(isinstance(a, httpx.Response) and a.status_code == 200 for a in answers)

    @contextlib.asynccontextmanager
    async def complete(
        self, path: str, body: dict[str, Any], headers: dict[str, str]
    ) -> AsyncIterator[httpx.Response]:
        """The decode server's answer, open for streaming. Raises Refused with the prefill side's own error."""
        headers = {**headers, "x-request-id": headers.get("x-request-id", str(uuid.uuid4()))}
        if self.dialect == "vllm":
            body = {**body, "kv_transfer_params": await self._prefill_vllm(path, body, headers)}
        else:
            body = {
                **body,
                "bootstrap_host": urlsplit(self.prefill).hostname,
                "bootstrap_port": self.bootstrap_port,
                "bootstrap_room": random.getrandbits(63),
            }
            self._start(self._prefill_sglang(path, body, headers))
        async with self.client.stream("POST", self.decode + path, json=body, headers=headers) as answer:
            yield answer

    async def _prefill_vllm(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> Any:
        first = {**body, "stream": False, "max_tokens": 1, "kv_transfer_params": REMOTE_DECODE}
        first.pop("stream_options", None)
        first.pop("min_tokens", None)
        if "max_completion_tokens" in first:
            first["max_completion_tokens"] = 1
        answer = await self.client.post(self.prefill + path, json=first, headers=headers)
        if answer.status_code != 200:
            raise Refused(answer.status_code, answer.content)
        try:
            return answer.json()["kv_transfer_params"]
        except (ValueError, KeyError, TypeError):
            text = {
                "error": {"message": "the prefill server named no kv_transfer_params", "type": "router_error"}
            }
            raise Refused(502, json.dumps(text).encode()) from None

    async def _prefill_sglang(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> None:
        with contextlib.suppress(httpx.HTTPError):
            async with self.client.stream("POST", self.prefill + path, json=body, headers=headers) as answer:
                async for _ in answer.aiter_raw():
                    pass

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


class _Connection:
    """One client connection: requests one after another, the body read whole, the answer chunked."""

    def __init__(self, router: Router, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.router, self.reader, self.writer = router, reader, writer
        self._reset()

    def _reset(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.url, self.body, self.is_whole = b"", bytearray(), False
        self.headers: dict[str, str] = {}

    # httptools' callbacks
    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.is_whole = True

    async def serve(self) -> None:
        try:
            while await self._read_request():
                keeps = self.parser.should_keep_alive()
                await self._answer(self.parser.get_method().decode(), self.url.decode("latin-1"))
                if not keeps:
                    break
                self._reset()
        except (ConnectionError, httptools.HttpParserError, asyncio.IncompleteReadError):
            pass
        finally:
            self.writer.close()

    async def _read_request(self) -> bool:
        while not self.is_whole:
            data = await self.reader.read(1 << 16)
            if not data:
                return False
            self.parser.feed_data(data)
            if len(self.body) > MAX_BODY_BYTES:
                await self._write_whole(
                    413, b'{"error": {"message": "body too large", "type": "router_error"}}'
                )
                return False
        return True

    async def _answer(self, method: str, url: str) -> None:
        path = url.split("?")[0]
        if path == "/health":
            await self._write_whole(200 if await self.router.health() else 503, b"{}")
            return
        headers = {k: v for k, v in self.headers.items() if k not in HOP_HEADERS}
        try:
            if method == "POST" and path in ("/v1/chat/completions", "/v1/completions"):
                body = json.loads(bytes(self.body))
                if not isinstance(body, dict):
                    raise ValueError("not an object")
                async with self.router.complete(path, body, headers) as answer:
                    await self._pass_on(answer)
            else:
                target = self.router.decode + url
                async with self.router.client.stream(
                    method, target, content=bytes(self.body), headers=headers
                ) as answer:
                    await self._pass_on(answer)
        except Refused as refusal:
            await self._write_whole(refusal.status, refusal.body)
        except ValueError:
            await self._write_whole(
                400, b'{"error": {"message": "the body is not a JSON object", "type": "router_error"}}'
            )
        except httpx.HTTPError as error:
            text = {"error": {"message": f"{type(error).__name__} behind the router", "type": "router_error"}}
            await self._write_whole(502, json.dumps(text).encode())

    async def _pass_on(self, answer: httpx.Response) -> None:
        lines = [f"HTTP/1.1 {answer.status_code} {answer.reason_phrase}"]
        lines += [f"{k}: {v}" for k, v in answer.headers.items() if k.lower() not in HOP_HEADERS]
        lines += ["transfer-encoding: chunked", "", ""]
        self.writer.write("\r\n".join(lines).encode("latin-1"))
        try:
            async for chunk in answer.aiter_bytes():
                self.writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                await self.writer.drain()
        except httpx.HTTPError:
            # The headers are gone already: an unfinished chunked body is how the client learns of a cut stream.
            self.writer.close()
            raise ConnectionError("the decode side ended in mid-stream") from None
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    async def _write_whole(self, status: int, body: bytes) -> None:
        head = f"HTTP/1.1 {status} -\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)
        await self.writer.drain()


async def serve(router: Router, port: int) -> None:
    """Listen on loopback until SIGTERM or SIGINT."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _Connection(router, reader, writer).serve()

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = await asyncio.start_server(connected, "127.0.0.1", port)
    print(f"router: {router.dialect}, listening on http://127.0.0.1:{port}", flush=True)  # noqa: T201
    await stop.wait()
    server.close()
    await router.client.aclose()


def main(arguments: list[str] | None = None) -> int:
    """The command line. Exits 2 on what it does not know."""
    parser = argparse.ArgumentParser(prog="router", allow_abbrev=False)
    parser.add_argument("--dialect", choices=["vllm", "sglang"], required=True)
    parser.add_argument("--prefill", required=True)
    parser.add_argument("--decode", required=True)
    parser.add_argument("--bootstrap-port", type=int)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args(arguments)
    if options.dialect == "sglang" and options.bootstrap_port is None:
        parser.error("--dialect sglang needs --bootstrap-port")
    router = Router(options.dialect, options.prefill, options.decode, options.bootstrap_port)
    try:
        asyncio.run(serve(router, options.port))
    except OSError as error:
        print(f"router: error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
