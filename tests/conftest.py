"""Fixtures that every test may use."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED_CASES = ROOT.parent / "shared" / "cases"


@pytest.fixture(scope="session")
def shared_cases() -> Path:
    """The public cases beside the checkout; tests that read them are skipped where the folder is not."""
    if not SHARED_CASES.is_dir():
        pytest.skip("the public cases do not lie beside this checkout")
    return SHARED_CASES
