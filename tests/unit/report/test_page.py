from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from contracts.errors import BadInput
from flows.report import write_report
from flows.report.blocks import Table
from flows.report.marts import open_marts
from flows.report.page import gather, make_sections

from .demo import ROWS, make_warehouse

VOID = {"meta", "link", "input", "br", "hr", "img"}

TURNS = [
    {"request_id": f"t{users}-{turn}", "source": "measured", "campaign": "demo", "model": "toy-1m", "recipe": "steady", "variant": "",
     "users": users, "turn": turn, "standing": "publishable", "is_recalled": turn != 3, "ttft_ms": 100.0 * turn * users,
     "decode_tokens_per_s": 60.0 / users, "prompt_tokens": 200 * turn}
    for users in (1, 2) for turn in (1, 2, 3, 4)
]  # fmt: skip


class Reader(HTMLParser):
    """Checks that elements close in order, and collects text and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.addresses += [
            value or "" for name, value in attrs if name in ("src", "href", "action", "poster", "data")
        ]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text())
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def page(demo_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(demo_database, tmp_path_factory.mktemp("out") / "deep" / "report.html")


def test_the_page_is_well_formed_and_fetches_nothing(page: Path) -> None:
    reader = read(page)
    assert all(address.startswith(("#", "data:,")) for address in reader.addresses)
    # Names of XML are no addresses.
    named = set(re.findall(r"https?://[^\s\"'<>\\)]+", page.read_text()))
    assert {name for name in named if not name.startswith("http://www.w3.org/")} == set()
    assert "@import" not in page.read_text().split("</style>")[0]


def test_every_row_stands_on_the_page_with_its_standing(page: Path) -> None:
    html = page.read_text()
    for row in ROWS:
        assert row["row_id"] in html
    assert html.count('data-standing="publishable"') == sum(
        1 for row in ROWS if row["standing"] == "publishable"
    )


def test_only_publishable_rows_look_quotable(page: Path) -> None:
    rows = re.findall(r'<tr class="row ([a-z-]+)"[^>]*?data-standing="(\w+)"', page.read_text(), re.S)
    assert len(rows) == len(ROWS)
    assert all((look == "quotable") == (standing == "publishable") for look, standing in rows)


def test_a_failure_is_shown_with_its_class_and_escaped_evidence(page: Path) -> None:
    html = page.read_text()
    assert "host_oom" in html
    assert "server.log:41" in html
    assert "failed to allocate buffer &lt;kv&gt;" in html
    assert "rescued by <b>modest</b>" in html


def test_what_was_not_run_is_said(page: Path) -> None:
    text = " ".join(read(page).text)
    assert "Not run" in text
    assert "Soak" in text


def test_lines_join_publishable_rows_only(demo_database: Path) -> None:
    with open_marts(demo_database) as marts:
        charts = gather(marts)["charts"]
    throughput = next(chart for chart in charts if chart.name.endswith("throughput"))
    lines = [layer for layer in throughput.spec["layer"] if layer["mark"]["type"] == "line"]
    assert len(lines) == 1
    assert {point["series"] for point in lines[0]["data"]["values"]} == {"steady"}


def test_a_held_row_does_not_stretch_the_axis(demo_database: Path) -> None:
    with open_marts(demo_database) as marts:
        charts = gather(marts)["charts"]
    throughput = next(chart for chart in charts if chart.name.endswith("throughput"))
    domain = throughput.spec["layer"][-1]["encoding"]["y"]["scale"]["domain"]
    # The held row claims 990 tokens/s, the fastest publishable one 120.
    assert domain[1] < 200


def test_an_empty_warehouse_gives_a_readable_page(empty_database: Path, tmp_path: Path) -> None:
    reader = read(write_report(empty_database, tmp_path / "empty.html"))
    text = " ".join(reader.text)
    assert "Nothing has been measured yet" in text
    assert "weighbridge run campaigns/quickstart.yaml" in text


def test_a_warehouse_without_marts_gives_a_page(tmp_path: Path) -> None:
    import duckdb

    duckdb.connect(str(tmp_path / "bare.duckdb")).close()
    assert (
        "Nothing has been measured yet"
        in write_report(tmp_path / "bare.duckdb", tmp_path / "r.html").read_text()
    )


def test_turns_are_drawn_for_one_and_two_users(tmp_path: Path) -> None:
    database = make_warehouse(tmp_path / "turns.duckdb", {"ramp_turns": TURNS})
    with open_marts(database) as marts:
        charts = {chart.name: chart for chart in gather(marts)["charts"]}
    rows = charts["turn-demo-toy-1m"].rows
    assert {row["series"] for row in rows} == {"steady · 1 user", "steady · 2 users"}
    assert [row["found"] for row in rows if row["users"] == 1] == [1, 1, 0, 1]


def claim(source: str, sentence: str) -> dict[str, object]:
    return {"claim_id": sentence[:8], "source": source, "subject": "K3", "metric": "output_throughput", "value": 4237.158,
            "unit": "tokens/s", "standing": "measured" if source == "published" else "publishable", "sentence": sentence,
            "document": "series-index", "row_ids": ["r"]}  # fmt: skip


def test_published_figures_stand_apart(tmp_path: Path) -> None:
    claims = [claim("published", "K3 gave 4,237.158 tokens/s"), claim("measured", "steady gave 120 tokens/s")]
    database = make_warehouse(tmp_path / "claims.duckdb", {"claims": claims})
    html = write_report(database, tmp_path / "r.html").read_text()
    at = html.index('<section id="published" class="elsewhere">')
    assert "K3 gave 4,237.158 tokens/s" in html[at:]
    assert "K3 gave 4,237.158 tokens/s" not in html[:at]
    assert "steady gave 120 tokens/s" in html[:at]
    assert "steady gave 120 tokens/s" not in html[at:]


def test_a_published_row_of_a_shared_mart_is_not_among_the_measured(tmp_path: Path) -> None:
    pairs = [{"source": source, "subject": source + "-subject", "standing": "publishable", "decode_slowdown": 2.0}
             for source in ("measured", "published")]  # fmt: skip
    with open_marts(make_warehouse(tmp_path / "i.duckdb", {"interference": pairs})) as marts:
        made = {each.name: each for each in make_sections(marts)[0]}
    for name, subject in (("interference", "measured-subject"), ("published", "published-subject")):
        (table,) = made[name].blocks
        assert isinstance(table, Table)
        assert [[cell.text for cell in row if cell.text.endswith("subject")] for row in table.rows] == [
            [subject]
        ]


def test_every_cell_of_the_long_context_table_has_its_own_standing(tmp_path: Path) -> None:
    row = {"table_id": "t", "source": "measured", "subject": "steady", "fresh_found": 3, "fresh_asked": 3,
           "fresh_standing": "publishable", "ramp_1_recalled": 1, "ramp_1_asked": 10, "ramp_1_standing": "held"}  # fmt: skip
    with open_marts(make_warehouse(tmp_path / "m.duckdb", {"million_token_table": [row]})) as marts:
        section = next(each for each in make_sections(marts)[0] if each.title == "Long context")
    (table,) = section.blocks
    assert isinstance(table, Table)
    said = {cell.text: cell.is_quotable for cell in table.rows[0]}
    assert said["3 of 3"]
    assert not said["1 of 10"]


def test_probes_are_counted_by_phase_and_the_failed_say_why(tmp_path: Path) -> None:
    probes = [{"recipe": "steady", "kind": "json", "phase": phase, "is_passed": phase == "before",
               "why": "valid" if phase == "before" else "HTTP 500"} for phase in ("before", "after")]  # fmt: skip
    with open_marts(make_warehouse(tmp_path / "p.duckdb", {"probe_results": probes})) as marts:
        section = next(each for each in make_sections(marts)[0] if each.name == "probes")
    (table,) = section.blocks
    assert isinstance(table, Table)
    assert [cell.text for cell in table.rows[0]] == ["steady", "json", "1 of 1", "0 of 1", "HTTP 500"]


def test_markup_in_the_data_stays_text(tmp_path: Path) -> None:
    claims = [claim("published", "</script><b>bold")]
    html = write_report(
        make_warehouse(tmp_path / "x.duckdb", {"claims": claims}), tmp_path / "r.html"
    ).read_text()
    assert "<b>bold" not in html
    assert "&lt;b&gt;bold" in html


def test_specs_are_json_that_no_script_end_breaks(page: Path) -> None:
    held = re.search(r'<script type="application/json" id="specs">(.*?)</script>', page.read_text(), re.S)
    assert held is not None
    specs = json.loads(held.group(1))
    assert all("layer" in spec or "mark" in spec for spec in specs.values())
    assert all("$schema" not in spec for spec in specs.values())


def test_every_chart_compiles(tmp_path: Path) -> None:
    import vl_convert

    with open_marts(make_warehouse(tmp_path / "c.duckdb", {"ramp_turns": TURNS})) as marts:
        charts = gather(marts)["charts"]
    assert len(charts) >= 4
    for chart in charts:
        assert "<svg" in vl_convert.vegalite_to_svg({**chart.spec, "width": 400})


def test_a_folder_as_the_page_is_refused(demo_database: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is a folder"):
        write_report(demo_database, tmp_path)


def test_published_figures_are_not_rounded(tmp_path: Path) -> None:
    soak = {"source": "published", "subject": "K3", "verdict": "no handoff", "verdict_reason": "HTTP 500", "standing": "measured",
            "output_tokens_per_s": 4237.158, "throughput_ratio": 4237.158 / 2129.887}  # fmt: skip
    html = write_report(
        make_warehouse(tmp_path / "s.duckdb", {"soak_verdicts": [soak]}), tmp_path / "r.html"
    ).read_text()
    assert "4,237.158" in html
    assert ">1.99<" in html


def test_synthetic_rows_are_named_and_never_look_quotable(tmp_path: Path) -> None:
    import duckdb

    database = make_warehouse(tmp_path / "synthetic.duckdb")
    with duckdb.connect(str(database)) as connection:
        connection.execute("update marts.measured_rows set source = 'synthetic'")
    html = write_report(database, tmp_path / "r.html").read_text()
    assert "<b>Synthetic:</b>" in html
    assert 'class="row quotable"' not in html
    assert "None of them may be quoted".lower() in html.lower()


def test_a_reproduced_failure_is_one_card(tmp_path: Path) -> None:
    import duckdb

    database = make_warehouse(tmp_path / "again.duckdb")
    with duckdb.connect(str(database)) as connection:
        connection.execute("alter table marts.runs add column reproduces_run_id varchar")
        connection.execute(
            "insert into marts.runs by name select * replace ('again' as run_id, run_id as reproduces_run_id)"
            " from marts.runs where recipe = 'greedy'"
        )
    html = write_report(database, tmp_path / "r.html").read_text()
    assert html.count('<span class="class">host_oom</span>') == 1
    assert "tried again, it failed 1 of 1 times" in html


def test_a_rows_detail_gives_measured_against_required(tmp_path: Path) -> None:
    import duckdb

    database = make_warehouse(tmp_path / "open.duckdb")
    held = next(row["row_id"] for row in ROWS if row["standing"] == "held")
    with duckdb.connect(str(database)) as connection:
        connection.execute("create schema intermediate")
        connection.execute(
            "create table intermediate.int_screen_results as select ? as row_id, 'cache_screen' as screen,"
            " 'fail' as verdict, 'prefill' as part, 81000.0::double as measured, '<= 60000' as required,"
            " 'tokens/s' as unit, 'fastest request' as reason",
            [held],
        )
    html = write_report(database, tmp_path / "r.html").read_text()
    assert "81,000 tokens/s" in html
    assert "&lt;= 60000" in html
    assert "fastest request" in html


def test_a_mart_of_next_year_is_shown_as_it_is(tmp_path: Path) -> None:
    rows = [{"recipe": "steady", "sparkle_ms": 12.5, "standing": "publishable"}]
    with open_marts(make_warehouse(tmp_path / "next.duckdb", {"sparkles": rows})) as marts:
        section = next(each for each in make_sections(marts)[0] if each.name == "sparkles")
    (table,) = section.blocks
    assert isinstance(table, Table)
    assert table.is_folded
    assert ("sparkle ms", "ms", True) in table.heads
