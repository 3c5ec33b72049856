"""The same job with httpx as it comes: one client, its own pool, `aiter_lines`, JSON read as it arrives.

`python -m benchmarks.load.plain_httpx PORT STREAMS REQUESTS TOKENS` prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import httpx


async def _stream(client: httpx.AsyncClient, url: str, body: dict[str, object], found: list[int]) -> None:
    begun = time.monotonic_ns()
    instants = []
    async with client.stream("POST", url, json=body) as response:
        async for line in response.aiter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            at = time.monotonic_ns()
            choices = json.loads(line[6:])["choices"]
            if choices and choices[0]["delta"].get("content"):
                instants.append(at)
    found.append(len(instants))
    _ = begun


async def _run(port: int, streams: int, requests: int, tokens: int) -> tuple[int, float]:
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    body = {
        "model": "mock",
        "messages": [{"role": "user", "content": "hello world " * 30}],
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    left, found = iter(range(requests)), list[int]()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    begun = time.monotonic()
    async with httpx.AsyncClient(timeout=120, limits=limits, trust_env=False) as client:

        async def work() -> None:
            for _ in left:
                await _stream(client, url, body, found)

        await asyncio.gather(*(work() for _ in range(streams)))
    return sum(found), time.monotonic() - begun


def main() -> None:
    port, streams, requests, tokens = map(int, sys.argv[1:5])
    made, wall_s = asyncio.run(_run(port, streams, requests, tokens))
    print(json.dumps({"tokens": made, "wall_s": wall_s, "cpu_s": time.process_time()}))


if __name__ == "__main__":
    main()
