"""Pictures for notebooks: whole, escaped, and with the numbers of what they show."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import pytest
from slackwater import Explanation, Lateness, Rows, SqlResult, Status, TideChart, Validation
from slackwater.displays.style import moment_text, span_text
from slackwater.transport.batching import Appended, Rejected

NOW = 1_357_041_600_000
HOUR = 3_600_000
EVIL = "<script>alert('x')</script>&\""


def status(**more: Any) -> Status:
    return Status(
        {
            "name": "q", "state": "running", "phase": None, "reason": None, "conditions": [], "generation": 1, "observed_generation": 1,
            "stream_time_ms": NOW, "progress": [], "read_rows": 27_004, "emitted_rows": 1_743, "buffered": {"w": 46, "x": 0}, "clocks": {},
            "limited_by": "input", "counters": [{"input": "w", "reason": "late_joined", "count": 1_234}], "tasks": None, **more,
        }
    )  # fmt: skip


def test_a_query_whose_topic_was_not_looked_at_yet_has_not_read_everything() -> None:
    partition = {"partition": 0, "next_offset": 3, "end_offset": 3, "lag": 0}
    read = {"feed": "log:a", "relations": ["a"], "is_discovered": True, "partitions": [partition]}
    topic = {"feed": "kafka:broker/b", "relations": ["b"], "is_discovered": False, "partitions": []}
    empty = {"feed": "log:d", "relations": ["d"], "is_discovered": True, "partitions": []}
    assert status(progress=[read]).is_caught_up
    assert status(progress=[read, empty]).is_caught_up
    assert not status(progress=[read, topic]).is_caught_up
    assert not status(progress=[topic]).is_caught_up


def lateness(**more: Any) -> Lateness:
    advice = [
        {"value_ms": value, "late_count": late, "late_share": late / 100, "added_wait_ms": value, "exact": True, "current": value == HOUR}
        for value, late in ((0, 25), (1_000, 9), (HOUR, 1), (4 * HOUR, 0))
    ]  # fmt: skip
    setting = {
        "pointer": "/joins/0/grace", "relation": None, "operator": "w", "input": "s", "rule": "J3", "current_ms": HOUR, "count": 100,
        "exact": True, "advice": advice, **more,
    }  # fmt: skip
    return Lateness({"query": "q", "inputs": [], "settings": [setting], "committed_at": None, "stale": False})


def task(number: int, waiting: int = 0, since: int = NOW - HOUR // 2, until: int = NOW) -> dict[str, Any]:
    spans = [{"from_ms": since, "to_ms": until, "at_least": waiting - 1, "at_most": waiting}] if waiting else []
    return {"operator": "w", "task": number, "buffered": waiting, "waiting": spans}


def _parsed(svg: str) -> ET.Element:
    return ET.fromstring(svg)  # noqa: S314 - our own


def texts(svg: str) -> list[str]:
    """Parse a picture; return what is written in it."""
    return [each.text or "" for each in _parsed(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_a_tide_chart_has_a_row_for_each_operator_with_time_boundary_and_what_waits_in_all_tasks() -> None:
    """One time for all tasks (T1)."""
    at = NOW - HOUR // 4
    tasks = [task(0, 7, at, at), task(1, 5, at, at), task(2)]
    chart = TideChart(status(clocks={"w": NOW}, buffered={"w": 12}, tasks=tasks), lateness())
    written = texts(chart.svg())
    assert {"w", "12 waiting", "1,234 late"} <= set(written)
    assert written.count("12 waiting") == 1
    assert "stream time 2013-01-01 12:00:00, boundary 2013-01-01 11:00:00 (1 h behind), 12 waiting" in chart.svg()
    assert "10 to 12 wait" in chart.svg()


def test_in_a_tide_chart_what_waits_lies_between_boundary_and_stream_time() -> None:
    tree = _parsed(TideChart(status(clocks={"w": NOW}, tasks=[task(0, 7), task(1, 3)]), lateness()).svg())
    lines = [
        float(each.get("x1", 0)) for each in tree.iter("{http://www.w3.org/2000/svg}line") if each.get("x1") == each.get("x2")
    ]
    boundary, clock = lines
    waiting = [
        each
        for each in tree.iter("{http://www.w3.org/2000/svg}rect")
        if each.get("fill-opacity") == "0.75" and "wait" in "".join(each.itertext())
    ]
    left = min(float(each.get("x", 0)) for each in waiting)
    right = max(float(each.get("x", 0)) + float(each.get("width", 0)) for each in waiting)
    assert boundary < left < right <= clock + 0.1
    assert left == pytest.approx((boundary + clock) / 2, abs=1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (TideChart(status(tasks=[]), lateness()), "no operator with a grace has read a record yet"),
        (
            TideChart(status(clocks={"w": NOW}, tasks=[task(0)]), Lateness({"query": "q", "settings": []})),
            "nothing in it has a grace",
        ),
        (lateness(count=0), "no record has been measured yet"),
    ],
)
def test_where_there_is_nothing_to_draw_it_is_said(given: TideChart | Lateness, said: str) -> None:
    assert said in given.svg()


def test_a_lateness_curve_marks_the_grace_in_force() -> None:
    svg = lateness().svg()
    written = texts(svg)
    assert "in force: 1 h: 1 late (1.00%), waits 1 h" in written
    assert {"0", "1 s", "grace", "25.0%"} <= set(written)
    assert "late (9.00%)" in svg


def test_tables_show_counts_and_escape_what_users_wrote() -> None:
    head = {"table": EVIL, "position": {}, "stream_time_ms": NOW, "committed_at": None, "stale": True}
    rows = Rows([{"item": EVIL, "n": number} for number in range(30)], head, has_more=True)
    step = {"kind": "source", "code": "x", "sentence": EVIL, "operator": None}
    fault = {"pointer": "/x", "code": "y", "detail": EVIL}
    shown = [
        rows._repr_html_(),
        SqlResult({"results": [{"message": EVIL, "columns": [{"name": EVIL, "type": "string"}], "rows": [[EVIL]]}]})._repr_html_(),
        status(name=EVIL, reason={"code": "x", "detail": EVIL})._repr_html_(),
        Explanation({"answer": {"sentence": EVIL}, "steps": [step]})._repr_html_(),
        Validation({"valid": False, "problems": [fault], "warnings": [], "edit": None, "sql": EVIL})._repr_html_(),
        Appended(rejected=(Rejected(1, "wrong_type", EVIL),))._repr_html_(),
        TideChart(status(name=EVIL, tasks=[]), lateness()).svg(),
        Lateness({**lateness().raw, "query": EVIL}).svg(),
    ]  # fmt: skip
    for html in shown:
        assert "<script" not in html
        assert "&lt;script&gt;" in html
    assert "10 more rows" in rows._repr_html_()
    assert "stream time 2013-01-01 12:00:00, stale" in rows._repr_html_()
    assert "46 in w" in status()._repr_html_()
    assert "27,004, 1,743" in status()._repr_html_()


def test_an_edit_s_effects_are_shown() -> None:
    effect = {
        "pointer": "/window/grace",
        "effect": "late",
        "operator": None,
        "at_least": 3,
        "at_most": 5,
        "from_ms": None,
        "to_ms": None,
    }
    edit = {"kind": "in_place", "changes": [{"pointer": "/window/grace", "kind": "in_place", "reason": "r"}], "effects": [effect]}
    shown = Validation({"valid": True, "problems": [], "warnings": [], "edit": edit, "sql": None})._repr_html_()
    assert "an edit: in_place" in shown
    assert "3 to 5" in shown


def test_times_are_written_for_people() -> None:
    assert [moment_text(NOW), moment_text(NOW + 5), span_text(5), span_text(90_000), span_text(2 * 86_400_000)] == [
        "2013-01-01 12:00:00", "2013-01-01 12:00:00.005", "5 ms", "1.5 min", "2 d",
    ]  # fmt: skip
