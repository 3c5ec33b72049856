"""The witness: quiet on a machine that lets it run, disturbed where it was kept waiting."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from flows.cheats.witness import Witness


@pytest.mark.parametrize(("answer", "is_disturbed"), [("999000\n", False), ("1001000\n", True), ("", True)])
def test_it_holds_the_machine_to_the_bound_of_a_load_process(answer: str, is_disturbed: bool) -> None:
    witness = Witness()
    orders = io.StringIO()
    witness._process = SimpleNamespace(stdin=orders, stdout=io.StringIO(answer))  # type: ignore[assignment]
    witness.open()
    assert witness.close() is is_disturbed
    assert orders.getvalue() == "open\nclose\n"


def test_its_process_answers_every_close_and_ends_with_its_parent() -> None:
    with Witness() as witness:
        for _ in range(2):
            witness.open()
            assert witness.close() in (True, False)
        process = witness._process
    assert process.returncode == 0
