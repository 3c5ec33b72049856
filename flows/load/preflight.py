"""Asks an endpoint whether it is what the plan takes it for, before a window opens."""

from __future__ import annotations

import os
from typing import Any

import httpx
import msgspec

from flows.load.errors import EndpointUnusable
from flows.load.plan import Kind
from flows.load.streams import DETAIL_CHARS

TIMEOUT_S = 10.0
PATHS: dict[Kind, str] = {
    "chat": "/v1/chat/completions", "completions": "/v1/completions", "responses": "/v1/responses",
}  # fmt: skip


def check_endpoint(url: str, model: str, api_key_env: str | None = None, kind: Kind = "chat") -> None:
    """Ask `/v1/models`; where that says nothing, send one token's worth of a request.

    url: base URL without `/v1`. Raises EndpointUnusable with the URL, what came back and what to do: nothing answers,
    401 or 403, HTML, a model that is not served. An engine whose /v1/models is absent or broken is tolerated.
    """
    base = url.rstrip("/")
    headers = {}
    if api_key_env:
        key = os.environ.get(api_key_env)
        if not key:
            raise EndpointUnusable(
                f"the API key for {base} is not set",
                required=f"the environment variable {api_key_env}",
                next_step=f"export {api_key_env}=...",
            )
        headers["authorization"] = f"Bearer {key}"
    # Like the measured streams: never through a proxy, and with the certificates that httpx trusts.
    verify = httpx.create_ssl_context() if base.startswith("https:") else False
    with httpx.Client(
        timeout=TIMEOUT_S, headers=headers, follow_redirects=True, trust_env=False, verify=verify
    ) as client:
        answer = _ask(client, "GET", f"{base}/v1/models", None, api_key_env)
        names = _model_names(answer) if answer is not None and answer.status_code == 200 else []
        if names:
            if not _is_served(model, names):
                raise EndpointUnusable(
                    f"{base} does not serve the model {model!r}",
                    measured=f"GET {base}/v1/models lists {', '.join(sorted(names))}",
                    required=model,
                    next_step="name a served model in the recipe, or point it at another endpoint",
                )
            return
        answer = _ask(client, "POST", base + PATHS[kind], _smallest(kind, model), api_key_env)
    if answer is None or answer.status_code < 400 or answer.status_code in (429, 503):
        return
    if answer.status_code == 404 or "model" in answer.text.lower():
        raise EndpointUnusable(
            f"{base} refused a one-token request for the model {model!r}",
            measured=f"POST {base}{PATHS[kind]} gave HTTP {answer.status_code}: {_quote(answer)}",
            required="HTTP 200",
            next_step="check the model's name and the endpoint's path",
        )


def _ask(
    client: httpx.Client, method: str, url: str, body: dict[str, Any] | None, api_key_env: str | None
) -> httpx.Response | None:
    """One request; None when the server was there but did not answer in time. Raises for what no plan can use."""
    try:
        answer = client.request(method, url, json=body)
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
        raise EndpointUnusable(
            f"nothing answers at {url}",
            measured=f"{type(error).__name__}: {error}",
            required="a server that speaks HTTP",
            next_step="start the server, or correct the address and port",
        ) from None
    except httpx.TimeoutException:
        return None
    except httpx.HTTPError as error:
        raise EndpointUnusable(
            f"{url} does not answer as an HTTP server",
            measured=f"{type(error).__name__}: {error}",
            required="an OpenAI-compatible endpoint",
            next_step="check the scheme (http or https), the address and the port",
        ) from None
    if answer.status_code in (401, 403):
        raise EndpointUnusable(
            f"{url} refused the key",
            measured=f"HTTP {answer.status_code}: {_quote(answer)}",
            required="an authorized request",
            next_step=f"check the key in {api_key_env}"
            if api_key_env
            else "name the key's variable in api_key_env",
        )
    if _is_html(answer):
        raise EndpointUnusable(
            f"{url} answers with a web page, not with an API",
            measured=f"HTTP {answer.status_code}, {answer.headers.get('content-type', 'no content type')}: "
            f"{_quote(answer)}",
            required="an OpenAI-compatible endpoint",
            next_step="give the base URL of the API, without /v1; a proxy or a login page may stand before it",
        )
    return answer


def _is_html(answer: httpx.Response) -> bool:
    start = answer.content.lstrip()[:15].lower()
    return "text/html" in answer.headers.get("content-type", "") or start.startswith(
        (b"<!doctype html", b"<html")
    )


def _quote(answer: httpx.Response) -> str:
    return " ".join(answer.text.split())[:DETAIL_CHARS] or "an empty body"


def _model_names(answer: httpx.Response) -> list[str]:
    """Every name by which a served model goes; empty when the body does not say."""
    try:
        body = msgspec.json.decode(answer.content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []
    models = body.get("data") if isinstance(body, dict) else body
    names: list[str] = []
    for model in models if isinstance(models, list) else []:
        if isinstance(model, dict):
            names += [model[key] for key in ("id", "root") if isinstance(model.get(key), str)]
            names += [name for name in model.get("aliases") or [] if isinstance(name, str)]
    return list(dict.fromkeys(names))


def _is_served(model: str, names: list[str]) -> bool:
    # transformers serve adds the revision: `name@main`
    return any(model == name or model == name.partition("@")[0] for name in names)


def _smallest(kind: Kind, model: str) -> dict[str, Any]:
    if kind == "chat":
        return {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    if kind == "completions":
        return {"model": model, "prompt": "Hi", "max_tokens": 1}
    return {"model": model, "input": "Hi", "max_output_tokens": 16}
