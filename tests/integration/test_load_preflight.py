"""An endpoint that cannot be used: one clear error before the window opens, and nothing lands."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from load_support import Reference, new_run, planned, reference_server, window_spec

from flows.load import EndpointUnusable, check_endpoint, run_window


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    with reference_server(tmp_path_factory.mktemp("server"), {"api_key": "right"}) as started:
        yield started


def test_nothing_answers_and_nothing_lands(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run = new_run(tmp_path)
    with pytest.raises(EndpointUnusable) as told:
        run_window(window_spec(run, f"http://127.0.0.1:{port}"), planned(3), run)
    text = str(told.value)
    assert f"http://127.0.0.1:{port}/v1/models" in text
    assert "refused" in text.lower()
    assert "next:" in text
    assert list(run.path.iterdir()) == []


def test_a_wrong_key_is_told_with_its_variable(server: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "wrong")
    with pytest.raises(EndpointUnusable, match="HTTP 401") as told:
        check_endpoint(server.url, "reference", "TEST_KEY")
    assert "TEST_KEY" in str(told.value)
    assert "wrong" not in str(told.value)
    with pytest.raises(EndpointUnusable, match="HTTP 401"):
        check_endpoint(server.url, "reference")
    monkeypatch.delenv("TEST_KEY")
    with pytest.raises(EndpointUnusable, match="is not set"):
        check_endpoint(server.url, "reference", "TEST_KEY")


def test_the_right_key_is_sent_and_written_nowhere(
    server: Reference, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TEST_KEY", "right")
    run = new_run(tmp_path)
    window = run_window(window_spec(run, server.url, api_key_env="TEST_KEY"), planned(2, 2), run)
    assert window.ok == 2
    assert all(b'right"' not in path.read_bytes() for path in run.path.rglob("*") if path.is_file())


def test_a_wrong_model_lists_what_is_served(server: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "right")
    with pytest.raises(EndpointUnusable, match="does not serve the model 'llama'") as told:
        check_endpoint(server.url, "llama", "TEST_KEY")
    assert "reference" in str(told.value)


@pytest.mark.parametrize("mode", ["absent", "500"])
def test_an_engine_without_a_model_list_is_asked_for_one_token(mode: str, tmp_path: Path) -> None:
    with reference_server(tmp_path, {"models_endpoint": mode, "timing": {"ttft_ms": 1}}) as without:
        check_endpoint(without.url, "reference")
        check_endpoint(without.url, "reference", kind="responses")
        with pytest.raises(EndpointUnusable, match="HTTP 404") as told:
            check_endpoint(without.url, "llama")
        assert "`llama` does not exist" in str(told.value)


def test_a_web_page_is_no_api(tmp_path: Path) -> None:
    with reference_server(tmp_path, {"models_endpoint": "html"}) as page:
        with pytest.raises(EndpointUnusable, match="web page") as told:
            check_endpoint(page.url, "reference")
        assert "It works!" in str(told.value)


def test_a_port_that_does_not_speak_http_is_told() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        import threading

        def answer() -> None:
            connection, _ = listener.accept()
            connection.recv(65536)
            connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(EndpointUnusable, match="does not answer as an HTTP server"):
            check_endpoint(f"http://127.0.0.1:{listener.getsockname()[1]}", "reference")
        thread.join()
