"""What `top` reads of metrics, and what it shows of two looks."""

from __future__ import annotations

from slackwater.cli.top.reading import Row, Snapshot, rows_of
from slackwater.cli.top.view import View, cells_of, frame

METRICS = """\
# HELP slackwater_query_state 1 for the state a query is in
slackwater_query_state{query="delays",state="running"} 1.0
slackwater_query_state{query="delays",state="failed"} 0.0
slackwater_query_state{query="odd \\"name\\"",state="failed"} 1.0
slackwater_query_state{query="materialize:weather",state="running"} 1.0
slackwater_query_lag_records{feed="log:a",query="delays"} 1200.0
slackwater_query_lag_records{feed="log:b",query="delays"} 34.0
slackwater_query_read_records_total{feed="log:a",query="delays"} 1e+06
slackwater_query_buffered_rows{operator="join",query="delays"} 7.0
slackwater_query_batch_seconds{phase="process",query="delays"} 0.2
slackwater_query_batch_seconds{phase="sink",query="delays"} 0.1
slackwater_query_batch_seconds{phase="spark_trigger",query="delays"} 9.0
slackwater_query_stream_time_seconds{query="delays"} 1357034400.5
slackwater_http_requests_total{method="GET"} 3.0
"""


def test_metrics_are_read_query_by_query() -> None:
    delays, odd = rows_of(METRICS)
    assert (delays.name, delays.state, delays.lag, delays.read_rows, delays.waiting) == ("delays", "running", 1234, 1e6, 7)
    assert (round(delays.batch_s or 0, 3), delays.stream_time_ms) == (0.3, 1_357_034_400_500)
    assert (odd.name, odd.state, odd.lag, odd.batch_s, odd.stream_time_ms) == ('odd "name"', "failed", None, None, None)


def looked(at_s: float, *rows: Row) -> Snapshot:
    return Snapshot(at_s, {row.name: row for row in rows})


def test_rates_are_of_two_looks_and_a_new_beginning_counts_from_nought() -> None:
    view = View("svc")
    view.take(looked(10.0, Row("a", "running", 100.0, 50.0), Row("b", "running", 900.0)))
    assert cells_of(view.lines[0])[2:4] == ("-", "-")
    view.take(looked(12.0, Row("a", "running", 5_100.0, 50.0), Row("b", "running", 10.0), Row("c", "running", 10.0)))
    assert {line.row.name: (line.read_per_s, line.emitted_per_s) for line in view.lines} == {
        "a": (2_500.0, 0.0), "b": (0.0, 0.0), "c": (None, None),
    }  # fmt: skip


def test_what_needs_attention_comes_first_and_a_key_orders_otherwise() -> None:
    view = View("svc")
    view.take(
        looked(
            0, Row("a", "running", lag=3.0), Row("b", "running", lag=90.0), Row("c", "failed"), Row("d", "paused", waiting=5.0)
        )
    )
    assert [line.row.name for line in view.lines] == ["c", "b", "a", "d"]
    view.order = "w"
    assert view.lines[0].row.name == "d"
    view.order = "n"
    assert [line.row.name for line in view.lines] == ["a", "b", "c", "d"]


def screen(view: View, width: int = 120, height: int = 10) -> list[str]:
    return "".join(text for _, text in frame(view, width, height)).split("\n")


def test_the_screen_has_exactly_its_height_and_the_selected_query_is_on_it() -> None:
    view = View("http://svc", detail=[("q050", "running")])
    view.take(looked(0, *(Row(f"q{number:03}", "running") for number in range(100))))
    view.order, view.selected = "n", "q050"
    lines = screen(view)
    assert len(lines) == 10
    assert any(line.startswith("q050") for line in lines)
    assert all(len(line) <= 120 for line in lines)
    assert "100 running" in lines[0]
    view.move(1)
    assert view.selected == "q051"
    view.move(-200)
    assert view.selected == "q000"


def test_a_service_without_queries_and_one_that_is_away_are_told() -> None:
    view = View("svc")
    assert "no queries yet" in screen(view)[0]
    view.take(looked(0, Row("a", "running")))
    view.trouble = "no newer numbers: nobody answers"
    assert screen(view)[1] == "no newer numbers: nobody answers"
    assert any(line.startswith("a ") for line in screen(view))
    assert len(screen(view, width=20, height=3)) >= 3
