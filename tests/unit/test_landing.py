"""Raw files land whole, sealed, and are never rewritten."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest

from contracts.errors import RawRefused
from contracts.records import RunEnd, Seal
from flows.landing import RunFolder, encode_line, read_records


def _end(note: str = "") -> RunEnd:
    return RunEnd(
        campaign="c", run_id="r1", state="served", ended_at="2026-10-09T08:00:00.000000Z", note=note or None
    )


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path, "c", "r1")


def test_landed_file_is_sealed_with_lines_bytes_and_sha256(run: RunFolder) -> None:
    run.land_records("probes/after.jsonl", [_end("a"), _end("b")])
    content = (run.path / "probes/after.jsonl").read_bytes()
    seal = run.seals()["probes/after.jsonl"]
    assert (seal.lines, seal.bytes) == (2, len(content))
    assert seal.sha256 == hashlib.sha256(content).hexdigest()
    assert not list(run.path.rglob("*.part"))


def test_a_run_id_is_never_taken_twice(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(FileExistsError):
        RunFolder.create(tmp_path, "c", "r1")


def test_a_landed_file_is_never_rewritten(run: RunFolder) -> None:
    run.land_records("run_end.jsonl", [_end()])
    before = (run.path / "run_end.jsonl").read_bytes()
    with pytest.raises(FileExistsError):
        run.land_records("run_end.jsonl", [_end("again")])
    assert (run.path / "run_end.jsonl").read_bytes() == before


def test_recovery_keeps_whole_lines_and_sets_the_torn_one_aside(run: RunFolder) -> None:
    whole, torn = encode_line(_end("whole")), encode_line(_end("torn"))[:20]
    run.part("requests/c1.jsonl").write_bytes(whole + torn)
    assert run.recover() == ["requests/c1.jsonl"]
    assert (run.path / "requests/c1.jsonl").read_bytes() == whole
    assert (run.path / "requests/c1.jsonl.torn").read_bytes() == torn
    assert run.seals()["requests/c1.jsonl"].lines == 1
    assert run.recover() == []


def test_recovery_seals_a_file_that_was_renamed_and_not_sealed(run: RunFolder) -> None:
    (run.path / "run_end.jsonl").write_bytes(encode_line(_end()))
    assert run.recover() == ["run_end.jsonl"]
    run.verify()


def test_a_torn_seal_line_means_that_the_file_has_not_landed(run: RunFolder) -> None:
    run.land_records("a.jsonl", [_end()])
    run.land_records("b.jsonl", [_end()])
    seal = run.path / "seal.jsonl"
    seal.write_bytes(seal.read_bytes()[:-30])
    assert set(run.seals()) == {"a.jsonl"}
    assert run.recover() == ["b.jsonl"]
    assert set(run.seals()) == {"a.jsonl", "b.jsonl"}


def test_edited_raw_is_refused_with_both_hashes(run: RunFolder) -> None:
    run.land_records("run_end.jsonl", [_end()])
    path = run.path / "run_end.jsonl"
    path.write_bytes(path.read_bytes().replace(b"served", b"failed"))
    with pytest.raises(RawRefused, match="edited after it was sealed") as refusal:
        run.verify()
    assert "sha256" in str(refusal.value)
    assert "run_end.jsonl" in str(refusal.value)


def test_nan_is_an_error_and_not_null(run: RunFolder) -> None:
    with pytest.raises(ValueError, match="NaN"):
        encode_line(
            RunEnd(campaign="c", run_id="r", state="served", ended_at="x", log_tail=[float("nan")])  # type: ignore[list-item]
        )


def test_unicode_and_newlines_stay_inside_one_line(run: RunFolder) -> None:
    run.land_records("run_end.jsonl", [_end("zwei\nZeilen – ü")])
    assert read_records(run.path / "run_end.jsonl", RunEnd)[0].note == "zwei\nZeilen – ü"
    assert run.seals()["run_end.jsonl"].lines == 1


def test_seal_lines_survive_as_json() -> None:
    line = encode_line(Seal(path="a", lines=None, bytes=3, sha256="0" * 64, landed_at="x"))
    assert msgspec.json.decode(line)["lines"] is None
