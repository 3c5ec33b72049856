"""Publication policies: which screens a row must not fail, and must have an answer to, before it may be quoted."""

from __future__ import annotations

from contracts.screens import SCREENS

# original: the two filters of the published campaign, with population, so that a row of failures cannot pass them.
# strict: every screen; the default, and what a policy of an unknown name is judged by.
POLICIES: dict[str, tuple[str, ...]] = {
    "original": ("needle_gate", "cache_screen", "population"),
    "strict": tuple(SCREENS),
}
DEFAULT_POLICY = "strict"


def required_screens(policy: str | None) -> tuple[str, ...]:
    """The screens of a policy; an unknown or missing name means strict."""
    return POLICIES.get(policy or DEFAULT_POLICY, POLICIES[DEFAULT_POLICY])
