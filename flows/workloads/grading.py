"""Turns request records into grades: the same rules for every workload that asks for a planted fact."""

from __future__ import annotations

from collections.abc import Callable

from contracts.records import Grade, Request
from flows.workloads import needle
from flows.workloads.base import CellPlan

Judge = Callable[[str, str | None, str | None], needle.Verdict]


def grade_needles(plan: CellPlan, records: list[Request], judge: Judge = needle.grade) -> list[Grade]:
    """One grade per timed request with an expected code; null, with the reason, where the request failed."""
    grades = []
    for record in records:
        expected = plan.expected.get(record.request_id)
        if record.phase != "timed" or expected is None:
            continue
        grade = ungraded(plan, record, needle.GRADER, expected["code"])
        if record.outcome == "ok":
            verdict = judge(expected["code"], record.output_text, record.reasoning_text)
            grade.is_correct, grade.is_correct_lenient = verdict.is_correct, verdict.is_contained
            grade.found, grade.why = verdict.found, verdict.why
            if not verdict.is_correct and record.finish_reason == "length" and not plan.is_fixed_length:
                grade.why += "; the answer was cut at its token limit"
        grade.depth_pct = expected.get("depth_pct")
        grades.append(grade)
    return grades


def ungraded(plan: CellPlan, record: Request, grader: str, expected: str | None) -> Grade:
    """A grade that says only why there is none: the request did not end well."""
    return Grade(
        campaign=record.campaign,
        run_id=record.run_id,
        cell_id=plan.cell_id,
        request_id=record.request_id,
        grader=grader,
        is_correct=None,
        expected=expected,
        why=f"not graded: the request {record.outcome} ({record.error_class or 'no error class'})",
        turn=record.turn,
        user=record.user,
    )
