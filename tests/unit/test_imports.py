"""Imports go one way (docs/architecture.md). Read from the source, so that an import inside a function counts too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Rooms by level; a module may import its own room and any room of a lower level. Rooms of one level do not know each
# other.
LEVELS: dict[str, int] = {
    "contracts": 0,
    "flows.landing": 1, "flows.recipe": 1, "flows.prefect_settings": 1, "flows.progress": 1,
    "flows.priority": 1,
    "flows.node": 2, "flows.engines": 2, "flows.load": 2,
    "flows.workloads": 3, "flows.doctor": 3, "flows.rehearsal": 3,
    "flows.campaign_file": 4, "flows.tokens": 4, "flows.watch": 4, "flows.warehouse": 4, "flows.report": 4,
    "flows.review_page": 4, "flows.synthetic": 4,
    "flows.executions": 5, "flows.importers": 5, "flows.lifecycle": 5,
    "flows.runs": 6, "flows.plan_table": 6,
    # Attacks the whole path below Prefect, so it stands above all of it.
    "flows.cheats": 7,
    "flows.tasks": 8, "flows.prefect_server": 8,
    "flows.campaign": 9, "flows.publish": 9,
    "flows.measure": 10,
    "flows.commands": 11,
    "flows.cli": 12,
}  # fmt: skip

# The reference server is an engine like the others, and the truth that tests compare with: no room may lean on it.
REFERENCE_READERS = {"flows.engines.registry", "flows.engines.reference"}

PREFECT_ROOMS = {"flows.tasks", "flows.prefect_server", "flows.campaign", "flows.publish", "flows.measure"}


def modules() -> list[Path]:
    return sorted(path for top in ("flows", "contracts") for path in (ROOT / top).rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str | None:
    """The room that a module belongs to: its longest prefix in LEVELS."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        if ".".join(parts[:length]) in LEVELS:
            return ".".join(parts[:length])
    return None


def imports_of(path: Path) -> Iterator[tuple[str, int]]:
    """(module, line) of everything that a file imports, wherever in it; imports for type checking only do not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    package = name_of(path).split(".") if path.name == "__init__.py" else name_of(path).split(".")[:-1]
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from flows import landing` imports a module as well as `from flows.landing import x` does.
            for alias in node.names:
                deeper = f"{module}.{alias.name}"
                yield (deeper if room_of(deeper) not in (None, room_of(module)) else module), node.lineno


def test_every_module_belongs_to_a_room() -> None:
    strays = [name for name in map(name_of, modules()) if room_of(name) is None and name != "flows"]
    assert strays == [], "give the module a room in LEVELS, and say it in docs/architecture.md"


def test_imports_go_one_way() -> None:
    wrong = []
    for path in modules():
        room = room_of(name_of(path))
        if room is None:
            continue
        for module, line in imports_of(path):
            other = room_of(module)
            if other is None or other == room or module == "flows" or LEVELS[other] < LEVELS[room]:
                continue
            wrong.append(f"{path.relative_to(ROOT)}:{line}: {room} imports {module}")
    assert wrong == []


def test_only_the_flow_rooms_import_prefect() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {module}"
        for path in modules()
        if room_of(name_of(path)) not in PREFECT_ROOMS
        for module, line in imports_of(path)
        if module.split(".")[0] == "prefect"
    ]
    assert wrong == []


def test_nothing_but_the_registry_imports_the_reference_server() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in modules()
        if name_of(path) not in REFERENCE_READERS
        for module, line in imports_of(path)
        if module == "flows.engines.reference" or module.startswith("flows.engines.reference.")
    ]
    assert wrong == []


def test_contracts_know_neither_http_nor_flows() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {module}"
        for path in modules()
        if name_of(path).split(".")[0] == "contracts"
        for module, line in imports_of(path)
        if module.split(".")[0] in ("flows", "prefect", "httpx")
    ]
    assert wrong == []


@pytest.mark.parametrize("word", ["utils", "helpers", "common", "misc", "manager"])
def test_no_module_is_named_for_nothing(word: str) -> None:
    assert [path for path in modules() if word in path.stem.split("_")] == []


def test_the_reader_of_imports_sees_what_python_would() -> None:
    path = ROOT / "flows" / "report" / "page.py"
    found = {module for module, _ in imports_of(path)}
    # One at the top, one inside a function.
    assert {"flows.report.marts", "vl_convert"} <= found
