"""What a file's own figures say against each other: inputs of the screens that aggregate files still allow."""

from __future__ import annotations

from flows.importers.result import LATENCIES, STATISTICS, ResultRow

# A median gap below this share of the mean time per token: more than half of the chunks were read together.
COALESCED_BELOW = 0.1
# Re-tokenised against counted tokens, as far apart as re-tokenising alone takes them (complaints 8 and 9).
RETOKENISED = (0.9, 1.1)


def gather(row: ResultRow) -> None:
    """Fill row.evidence from the headline. Nothing is put where the figures say nothing."""
    _read_chunks(row)
    _read_retokenised(row)
    _bound_concurrency(row)
    _count_disordered(row)


def _read_chunks(row: ResultRow) -> None:
    """Mean ITL over mean TPOT is tokens per chunk: both are the decode time, one by chunks and one by tokens."""
    itl, tpot, median = row.figure("itl_mean_ms"), row.figure("tpot_mean_ms"), row.figure("itl_p50_ms")
    if "itl_definition" in row.evidence:
        return
    if itl is not None and tpot and "tokens_per_chunk" not in row.evidence:
        row.evidence["tokens_per_chunk"] = itl / tpot
        if itl / tpot > 1.1:
            row.notes.append(
                f"ITL {itl:.2f} ms is per chunk of {itl / tpot:.2f} tokens; TPOT is {tpot:.2f} ms"
            )
    if median is not None and tpot and 0 <= median < COALESCED_BELOW * tpot:
        row.evidence["coalesced_share"] = 0.5
        row.notes.append(
            f"median ITL {median:.3f} ms beside TPOT {tpot:.2f} ms: more than half of the chunks were read together"
        )


def _read_retokenised(row: ResultRow) -> None:
    again, counted = row.figure("retokenized_output_tokens"), row.figure("output_tokens")
    if again is None or not counted or RETOKENISED[0] <= again / counted <= RETOKENISED[1]:
        return
    row.evidence["counted_output_ratio"] = again / counted
    row.notes.append(
        f"{counted:,.0f} tokens counted, {again:,.0f} in the text: the text did not stream as it was made, "
        "latencies are of a buffer"
    )


def _bound_concurrency(row: ResultRow) -> None:
    """The most that a closed loop can have kept in flight: request-seconds over the window less its drain."""
    asked, duration, rate = (
        row.figure("asked_concurrency"),
        row.figure("duration_s"),
        row.figure("request_rps"),
    )
    mean = row.figure("e2e_mean_ms")
    if mean is None:
        ttft, tpot, tokens = (
            row.figure("ttft_mean_ms"),
            row.figure("tpot_mean_ms"),
            row.figure("output_tokens_mean"),
        )
        if ttft is not None and tpot is not None and tokens is not None:
            mean = ttft + tpot * max(tokens - 1, 0)
    if row.kind != "closed" or asked is None or duration is None or rate is None or mean is None:
        return
    longest = max(mean, row.figure("e2e_p99_ms") or mean) / 1e3
    if duration <= 2 * longest or row.has_instants:
        return
    most = rate * duration * mean / 1e3 / (duration - longest)
    if most < asked:
        row.evidence["concurrency_at_most"] = most
        row.notes.append(f"at most {most:.1f} of the asked {asked:g} requests can have been in flight")


def _count_disordered(row: ResultRow) -> None:
    """Latencies that no clock gives: below zero, a first token after the end, or no time at all for many tokens."""
    wrong = [
        f"{name}_{statistic}_ms"
        for name in LATENCIES
        for statistic in STATISTICS
        if (value := row.figure(f"{name}_{statistic}_ms")) is not None and value < 0
    ]
    ttft, e2e = row.figure("ttft_mean_ms"), row.figure("e2e_mean_ms")
    if ttft is not None and e2e is not None and ttft > e2e * 1.001:
        wrong.append("ttft_mean_ms above e2e_mean_ms")
    if wrong:
        row.evidence["disordered_figures"] = len(wrong)
        row.notes.append(f"impossible: {', '.join(wrong)}")
    tokens, tpot = row.figure("output_tokens_mean"), row.figure("tpot_mean_ms")
    ended_at_once = e2e is not None and ttft is not None and ttft >= 0.98 * e2e
    if tokens is not None and tokens >= 8 and ((tpot is not None and tpot <= 0) or ended_at_once):
        row.evidence["tokens_per_chunk"] = tokens
        row.notes.append(
            "the whole answer came with its first token: it was not streamed, TTFT and TPOT mean nothing"
        )
