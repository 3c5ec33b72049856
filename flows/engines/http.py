"""Small questions to a server while it starts. Nothing here is timed."""

from __future__ import annotations

from typing import Any

import httpx

TIMEOUT_S = 5.0


def is_ok(url: str, timeout_s: float = TIMEOUT_S) -> bool:
    """Whether a GET answers 200 now."""
    try:
        return httpx.get(url, timeout=timeout_s, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def get_json(client: httpx.Client, url: str) -> Any:
    """The JSON body of a GET that answered 200, else None."""
    try:
        answer = client.get(url, timeout=TIMEOUT_S)
        return answer.json() if answer.status_code == 200 else None
    except (httpx.HTTPError, ValueError):
        return None


def get_text(client: httpx.Client, url: str) -> str | None:
    """The body of a GET that answered 200, else None."""
    try:
        answer = client.get(url, timeout=TIMEOUT_S)
        return answer.text if answer.status_code == 200 else None
    except httpx.HTTPError:
        return None


def ask_one_token(client: httpx.Client, base_url: str, model: str, timeout_s: float) -> tuple[bool, str]:
    """Try a one-token request, by chat and, where the model has no chat template, by completion.

    Returns whether a token came and, if not, what came instead (status and the start of the body).
    """
    chat = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    plain = {"model": model, "prompt": "Hi", "max_tokens": 1}
    why = ""
    for path, body in (("/v1/chat/completions", chat), ("/v1/completions", plain)):
        try:
            answer = client.post(base_url + path, json=body, timeout=timeout_s)
        except httpx.HTTPError as error:
            return False, f"{type(error).__name__} on {path}"
        if answer.status_code == 200:
            try:
                has_choice = bool(answer.json().get("choices"))
            except (ValueError, AttributeError):
                has_choice = '"choices"' in answer.text  # transformers serve may answer as a stream
            if has_choice:
                return True, ""
        why = f"{answer.status_code} on {path}: {answer.text[:200]}"
        if answer.status_code not in (400, 404, 422):
            break
    return False, why


def model_length(client: httpx.Client, base_url: str) -> int | None:
    """The context ceiling that /v1/models states (vLLM and SGLang do), else None."""
    listing = get_json(client, f"{base_url}/v1/models")
    models = listing.get("data") if isinstance(listing, dict) else None
    for model in models if isinstance(models, list) else []:
        length = model.get("max_model_len") if isinstance(model, dict) else None
        if isinstance(length, int):
            return length
    return None
