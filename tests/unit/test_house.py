"""What is committed stands for itself: no machine's paths, no registry's address, no dead link, no figure without a command."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = {
    ".py",
    ".md",
    ".sql",
    ".yml",
    ".yaml",
    ".toml",
    ".txt",
    ".cfg",
    ".json",
    ".csv",
    ".jinja",
    ".css",
    ".js",
    ".sh",
    ".svg",
    "",
}
# Captured from real engines and tools: kept as they came, addresses and paths included.
CAPTURED = ("tests/fixtures/",)

# Written in pieces, so that this file does not hold what it forbids.
REGISTRY_HOSTS = [
    "pypi" + ".org",
    "python" + "hosted.org",
    "pypi." + "python.org",
    "anaconda" + ".org",
    "npmjs" + ".org",
]
MACHINE_PATHS = re.compile(
    r"(?<![\w.:/-])/(?:" + "|".join(["work", "home", "root", "Users", "workspace"]) + r")/[\w.-]+"
)


def committed() -> list[Path]:
    """Files that git tracks; outside a checkout (an unpacked archive) there is nothing to hold."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def own_text() -> list[tuple[str, str]]:
    """(path, text) of every file that this project wrote itself."""
    found = []
    for path in committed():
        name = path.relative_to(ROOT).as_posix()
        if path.suffix in TEXT and not name.startswith(CAPTURED):
            found.append((name, path.read_text(encoding="utf-8", errors="replace")))
    return found


def test_no_committed_file_names_a_package_registry() -> None:
    wrong = [f"{name}: {host}" for name, text in own_text() for host in REGISTRY_HOSTS if host in text]
    assert wrong == []


def test_no_committed_file_names_a_path_of_someones_machine() -> None:
    wrong = [f"{name}: {found}" for name, text in own_text() for found in MACHINE_PATHS.findall(text)]
    assert wrong == []


def test_no_committed_file_holds_a_key() -> None:
    key = re.compile(r"\b(?:sk-[A-Za-z0-9]{20,}|hf_[A-Za-z0-9]{20,}|ghp_[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16})\b")
    wrong = [f"{name}: {found[:8]}…" for name, text in own_text() for found in key.findall(text)]
    assert wrong == []


def test_raw_and_warehouse_hold_only_their_readme() -> None:
    tracked = [path.relative_to(ROOT).as_posix() for path in committed()]
    assert [name for name in tracked if name.startswith(("raw/", "warehouse/"))] == [
        "raw/README.md",
        "warehouse/README.md",
    ]


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.S)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        target = target.split("#")[0]
        if target and not re.match(r"[a-z]+:", target) and not (path.parent / target).exists():
            broken.append(target)
    assert broken == []


def test_every_document_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    missing = [
        path.name
        for path in sorted((ROOT / "docs").glob("*.md"))
        if path.name != "index.md" and path.name not in index
    ]
    assert missing == []


def test_commands_that_documents_show_exist() -> None:
    from typer.main import get_command

    from flows.cli import app

    known = set(get_command(app).commands)  # type: ignore[attr-defined]
    # Prose may say "Weighbridge measures"; a command is what stands in code.
    in_code = re.compile(r"(?:`|^)weighbridge ([a-z][a-z-]+)", re.M)
    shown = {
        name: path.name for path in documents() for name in in_code.findall(path.read_text(encoding="utf-8"))
    }
    assert {name: where for name, where in shown.items() if name not in known} == {}


def test_files_that_contributing_names_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w./-]+/[\w./-]*\w\.\w+|[\w./-]+/)`", text)
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_make_targets_that_documents_show_exist() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.M))
    shown = {
        target
        for path in documents()
        for target in re.findall(r"(?:`|^)make ([a-z][a-z-]+)", path.read_text(encoding="utf-8"), re.M)
    }
    assert shown - targets == set()


def test_every_figure_says_how_it_was_made() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    missing = [
        path.name for path in sorted((ROOT / "docs" / "img").iterdir()) if f"img/{path.name}" not in index
    ]
    assert missing == []


# Documents that report measurements: a figure that nobody can reproduce is a rumour.
@pytest.mark.parametrize("name", ["benchmarks.md", "h200.md", "cheats.md", "load.md"])
def test_a_document_of_measurements_gives_its_commands(name: str) -> None:
    path = ROOT / "docs" / name
    if not path.is_file():
        pytest.skip(f"docs/{name} is not written")
    text = path.read_text(encoding="utf-8")
    assert re.search(r"`(?:make|weighbridge|\.venv/bin/\w+|python) |^(?:make|weighbridge) ", text, re.M)
