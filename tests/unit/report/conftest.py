"""A published database made by hand, once a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from .demo import make_warehouse


@pytest.fixture(scope="session")
def demo_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_warehouse(tmp_path_factory.mktemp("demo") / "weighbridge.duckdb")


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_warehouse(tmp_path_factory.mktemp("empty") / "weighbridge.duckdb", is_empty=True)
