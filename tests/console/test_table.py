"""The screen of a table: its rows are the API's, now and as of a time; how a row came to be; what happens to it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.console.conftest import Look, Opening
from tests.console.harbour import Harbour
from tests.console.shore import NOON, H, strew, write


@pytest.fixture(scope="module")
def harbour(empty_harbour: Harbour) -> Harbour:
    strew(empty_harbour)
    return empty_harbour


def shown(look: Look, label: str) -> list[list[str]]:
    """Return the cells of a grid, row by row, without its head."""
    grid = look.page.get_by_role("table", name=label)
    grid.get_by_role("row").nth(1).wait_for()
    return [[cell.strip() for cell in row.get_by_role("cell").all_inner_texts()] for row in grid.get_by_role("row").all()[1:]]


def texts(rows: list[dict[str, Any]], *names: str) -> list[list[str]]:
    """Return the API's rows as the page writes them."""
    return [[f"{row[name]:g}" if isinstance(row[name], float) else str(row[name]) for name in names] for row in rows]


def test_the_rows_are_those_of_the_api(look: Look, harbour: Harbour) -> None:
    page = look.at("/tables/totals")
    answer = harbour.get("/v1/tables/totals/rows")
    assert shown(look, "Rows of totals") == texts(answer["rows"], "origin", "flights", "mean_delay")
    assert page.get_by_role("heading", name="5 rows").is_visible()
    assert page.get_by_text("This table keeps its latest rows alone").is_visible(), "it has no history to slide through"
    look.sound()


def test_conditions_narrow_the_rows_and_stand_in_the_address(look: Look, harbour: Harbour) -> None:
    page = look.at("/tables/totals")
    page.get_by_role("button", name="Condition").click()
    page.get_by_label("Column").select_option("mean_delay")
    page.get_by_label("Comparison").select_option("ge")
    page.get_by_label("Value").fill("60")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="2 rows").wait_for()
    expected = harbour.get("/v1/tables/totals/rows", **{"where.mean_delay.ge": "60"})["rows"]
    assert shown(look, "Rows of totals") == texts(expected, "origin", "flights", "mean_delay")
    page.reload()
    page.get_by_role("heading", name="2 rows").wait_for()
    page.get_by_role("button", name="Delete: mean_delay ≥ 60").click()
    page.get_by_role("heading", name="5 rows").wait_for()
    look.sound()


def test_a_condition_that_cannot_be_says_why(look: Look) -> None:
    look.expects("400")
    page = look.at('/tables/totals?where=[["flights","eq","many"]]')
    page.get_by_role("alert").get_by_text("where.flights.eq").first.wait_for()
    look.sound()


def test_the_slider_shows_the_rows_of_a_time(look: Look, harbour: Harbour) -> None:
    page = look.at("/tables/levels")
    slider = page.get_by_role("slider", name=re.compile("As of event time"))
    assert int(slider.get_attribute("max") or 0) == harbour.get("/v1/tables/levels/rows")["stream_time_ms"] == NOON
    assert int(slider.get_attribute("min") or 0) == harbour.get("/v1/tables/levels/rows")["history_starts_at_ms"]
    for at_ms in (NOON - 5 * H, NOON - 4 * H):
        page.get_by_label("Exact event time, UTC").fill(f"2013-01-01T{12 - (NOON - at_ms) // H:02}:00:00")
        page.wait_for_url(re.compile(f"as_of={at_ms}"))
        page.get_by_text("as of 2013-01-01").wait_for()
        expected = harbour.get("/v1/tables/levels/rows", as_of_ms=at_ms)["rows"]
        assert shown(look, "Rows of levels") == texts(expected, "origin", "temp")
    slider.focus()
    page.keyboard.press("Home")
    page.wait_for_url(re.compile(f"as_of={NOON - 24 * H}"))
    page.get_by_role("heading", name="There was no row at this time").wait_for()
    page.get_by_role("button", name="Now").click()
    assert shown(look, "Rows of levels") == texts(harbour.get("/v1/tables/levels/rows")["rows"], "origin", "temp")
    look.sound()


def test_a_row_shows_how_it_came_to_be(look: Look, harbour: Harbour) -> None:
    page = look.at("/tables/levels")
    shown(look, "Rows of levels")
    page.get_by_role("table", name="Rows of levels").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="JFK")
    versions = harbour.get("/v1/tables/levels/rows/JFK", **{"from": 0, "order": "desc"})["rows"]
    dialog.get_by_text(f"{len(versions)} versions").wait_for()
    cells = [row.get_by_role("cell").all_inner_texts() for row in dialog.get_by_role("row").all()[1:]]
    assert [cell[2] for cell in cells] == [f"{version['temp']:g}" for version in versions]
    assert [cell[1] for cell in cells] == ["still", "1 h", "3 h"]
    assert "3 versions from 2013-01-01 04:00:00" in (dialog.get_by_role("img").get_attribute("aria-label") or "")
    look.sound()
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")


def test_rows_follow_what_changes(look: Look, harbour: Harbour) -> None:
    page = look.at("/tables/totals")
    shown(look, "Rows of totals")
    write(harbour, "totals", [("upsert", {"origin": "BOS", "flights": 93, "mean_delay": 1.0}, NOON)])
    page.get_by_role("cell", name="93", exact=True).wait_for()
    page.get_by_role("button", name="Following").click()
    assert page.get_by_role("button", name="Follow", exact=True).get_attribute("aria-pressed") == "false"
    write(harbour, "totals", [("upsert", {"origin": "BOS", "flights": 92, "mean_delay": 57.0}, NOON)])
    look.sound()


def test_changes_are_listed_as_they_come_until_they_are_paused(look: Look, harbour: Harbour) -> None:
    page = look.at("/tables/levels?tab=live")
    page.get_by_text("following").wait_for()
    write(harbour, "levels", [("upsert", {"origin": "SFO", "temp": 7.0}, NOON), ("delete", {"origin": "SFO"}, NOON)])
    page.get_by_text("2 changes since this page was opened").wait_for()
    grid = shown(look, "Changes, newest first")
    assert [row[1:3] for row in grid] == [["delete", "SFO"], ["upsert", "SFO"]]
    page.get_by_role("button", name="Pause").click()
    page.get_by_text("paused").wait_for()
    look.sound()


def test_a_source_whose_rows_are_not_kept_says_what_helps(look: Look) -> None:
    look.expects("409")
    page = look.at("/tables/weather")
    page.get_by_role("heading", name="The rows of this source are not stored").wait_for()
    look.sound()


def test_a_table_that_is_not_there_is_told_with_its_code(look: Look) -> None:
    look.expects("404")
    page = look.at("/tables/nothing")
    assert page.get_by_role("link", name="relation_not_found").get_attribute("href") == "/v1/errors/relation_not_found"
    look.sound()


def test_what_a_table_is(look: Look, harbour: Harbour) -> None:
    page = look.at("/tables/weather")
    look.expects("409")
    page.get_by_role("tab", name="About").click()
    definition = harbour.get("/v1/tables/weather")["definition"]
    shown_text = page.locator("pre[aria-label=Definition]").inner_text()
    assert json.loads(shown_text) == definition
    page.get_by_role("link", name="levels").wait_for()
    assert page.get_by_role("button", name="Delete weather").is_disabled(), "a query reads it"
    look.sound()


def test_a_time_after_stream_time_is_the_one_that_is_shown(look: Look, harbour: Harbour) -> None:
    write(harbour, "levels", [("upsert", {"origin": "ORD", "temp": 3.0}, NOON + H)])
    page = look.at("/tables/levels")
    shown(look, "Rows of levels")
    slider = page.get_by_role("slider", name=re.compile("As of event time"))
    page.wait_for_function("end => document.querySelector('#as-of').max === String(end)", arg=NOON)
    page.get_by_label("Exact event time, UTC").fill("2013-01-01T13:00:00")
    page.wait_for_url(re.compile(f"as_of={NOON + H}"))
    page.get_by_text("as of 2013-01-01 13:00:00").wait_for()
    expected = harbour.get("/v1/tables/levels/rows", as_of_ms=NOON + H)["rows"]
    assert ["ORD", "3"] in texts(expected, "origin", "temp")
    assert shown(look, "Rows of levels") == texts(expected, "origin", "temp")
    page.get_by_text("Stream time is at 2013-01-01 12:00:00").wait_for()
    slider.focus()
    page.keyboard.press("End")
    page.locator("label[for=as-of] strong", has_text="now").wait_for()
    assert "as_of" not in page.url
    page.keyboard.press("End")
    page.locator("label[for=as-of] strong", has_text="now").wait_for()
    look.sound()


@pytest.mark.parametrize("width", [390, 820, 1600])
def test_every_part_fits_every_width_in_the_dark(width: int, looking: Opening, harbour: Harbour) -> None:
    look = looking(harbour, width=width, color_scheme="dark")
    look.expects("409")
    for path in (
        "/relations",
        "/tables/levels",
        "/tables/totals?tab=live",
        "/tables/weather?tab=append",
        "/tables/weather?tab=about",
    ):
        look.at(path)
        look.sound()


def test_streams_and_tables_are_listed_and_found(look: Look, harbour: Harbour) -> None:
    page = look.at("/relations")
    names = [item["name"] for kind in ("streams", "tables") for item in harbour.get(f"/v1/{kind}")["items"]]
    look.row("levels").wait_for()
    table = page.get_by_role("table", name="Streams and tables")
    assert sorted(row.get_by_role("cell").first.inner_text() for row in table.get_by_role("row").all()[1:]) == sorted(names)
    page.get_by_role("button", name="Streams", exact=True).click()
    look.row("levels").wait_for(state="detached")
    assert look.row("departures").get_by_role("cell").all_inner_texts()[3:6] == ["1 query", "4", "460"]
    page.get_by_role("searchbox", name="Find by name").fill("nothing")
    page.get_by_role("heading", name="Nothing has this name").wait_for()
    look.sound()
