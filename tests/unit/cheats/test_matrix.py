"""When a fault counts as caught and a clean cell as held."""

from __future__ import annotations

import pytest

from flows.cheats.matrix import Outcome, reaches, summarise


def fault(
    expect: list[str], screens: dict[str, str], *, is_gated: bool = False, standing: str = "held"
) -> Outcome:
    return Outcome("f", "cache", "fault", expect, "r/f", standing, screens, is_gated)


@pytest.mark.parametrize(
    ("outcome", "is_right"),
    [
        (fault(["nonce_audit"], {"nonce_audit": "fail"}), True),
        (
            fault(["nonce_audit"], {"nonce_audit": "pass", "client_lag": "fail"}),
            False,
        ),  # held, but for another reason
        (fault(["nonce_audit"], {"nonce_audit": "fail"}, is_gated=True), False),
        (fault(["nonce_audit"], {"nonce_audit": "unknown"}), False),
        (fault(["nonce_audit=unknown"], {"nonce_audit": "unknown"}), True),
        (fault(["roofline", "nonce_audit"], {"nonce_audit": "fail", "roofline": "pass"}), True),
        (fault(["raw"], {}, standing="absent"), True),
        (fault(["raw"], {"population": "pass"}, standing="invalid"), True),
        (fault(["raw"], {"population": "fail"}), False),
    ],
)
def test_a_fault_is_caught_by_the_right_screen_only(outcome: Outcome, is_right: bool) -> None:
    assert outcome.is_right is is_right


def clean(standing: str) -> Outcome:
    return Outcome("c", "windows", "clean", [], "r/c", standing, {}, standing == "publishable")


def test_the_two_bounds() -> None:
    caught = fault(["nonce_audit"], {"nonce_audit": "fail"})
    missed = fault(["nonce_audit"], {"nonce_audit": "pass"}, is_gated=True, standing="publishable")
    fine, held = clean("publishable"), clean("held")
    assert reaches(summarise([caught] * 49 + [missed] + [fine] * 99 + [held]))  # 98 % and 1 %
    assert not reaches(summarise([caught] * 48 + [missed] * 2))
    assert not reaches(summarise([fine] * 98 + [held] * 2))
    assert reaches(summarise([clean("provisional")]))  # not held; not published either
    summary = summarise([caught, missed, held])
    assert summary["families"]["cache"] == {"faults": 2, "kept_out": 1, "right_screen": 1, "published": 1}
    assert summary["held_share"] == 1.0
