"""The screen SQL: what is run and shown is the API's; faults are marked while one types; push queries go on until they are stopped."""

from __future__ import annotations

import re

import pytest

from tests.api.conftest import RECORD
from tests.console.conftest import Look, Opening
from tests.console.harbour import Harbour
from tests.console.shore import strew
from tests.console.test_table import shown

REFUSED = "422"


@pytest.fixture(scope="module")
def harbour(empty_harbour: Harbour) -> Harbour:
    strew(empty_harbour)
    return empty_harbour


@pytest.fixture
def sql(look: Look) -> Look:
    """The screen with an empty editor."""
    look.at("/sql")
    write(look, "")
    return look


def write(look: Look, text: str) -> None:
    editor = look.page.get_by_role("textbox", name="Statements of SQL")
    editor.click()
    look.page.keyboard.press("ControlOrMeta+a")
    look.page.keyboard.press("Delete")
    look.page.keyboard.insert_text(text)


def test_rows_of_a_select_are_those_of_the_api(sql: Look, harbour: Harbour) -> None:
    statement = "SELECT `origin`, `flights`, `mean_delay` FROM totals WHERE `mean_delay` > 57;"
    write(sql, statement)
    sql.page.keyboard.press("ControlOrMeta+Enter")
    sql.page.get_by_role("heading", name="4 rows").wait_for()
    (result,) = harbour.post("/v1/statements", {"sql": statement})["results"]
    assert shown(sql, "Rows") == [
        [f"{value:g}" if isinstance(value, float) else str(value) for value in row] for row in result["rows"]
    ]
    sql.sound()


def test_the_statement_at_the_cursor_is_run_and_all_of_them_on_request(sql: Look) -> None:
    write(sql, "SHOW STREAMS;\nSELECT 'a;b' AS x FROM totals LIMIT 1;\nSHOW TABLES;")
    sql.page.keyboard.press("ArrowUp")
    sql.page.keyboard.press("ControlOrMeta+Enter")
    assert shown(sql, "Rows") == [["a;b"]]
    sql.page.get_by_role("button", name="Run all").click()
    sql.page.get_by_role("table", name="Rows").nth(2).wait_for()
    sql.sound()


def test_faults_are_marked_where_they_are_and_go_when_they_are_mended(sql: Look) -> None:
    sql.expects(REFUSED)
    write(sql, "SELECT `orign`\nFROM totals;")
    mark = sql.page.locator(".cm-lintRange-error")
    mark.wait_for()
    assert mark.inner_text() == "`orign`"
    mark.hover()
    sql.page.get_by_text(re.compile("origin")).first.wait_for()
    assert sql.page.get_by_text("1 fault").is_visible()
    write(sql, "SELECT `origin`\nFROM totals;")
    mark.wait_for(state="detached")
    write(sql, "SELEKT 1;\nSELECT * FORM totals;")
    mark.nth(1).wait_for()
    sql.sound()


def test_a_refused_statement_shows_its_line_with_a_mark_below(sql: Look) -> None:
    sql.expects(REFUSED)
    write(sql, "SELECT * FROM totls;")
    sql.page.get_by_role("button", name="Run", exact=True).click()
    alert = sql.page.get_by_role("alert")
    alert.get_by_text("did you mean").wait_for()
    assert "^" in alert.inner_text()
    assert alert.get_by_role("link").get_attribute("href") == "/v1/errors/unknown_relation"
    sql.sound()


def test_names_columns_and_functions_are_completed(sql: Look) -> None:
    sql.expects(REFUSED)
    page = sql.page
    write(sql, "SELECT ")
    page.keyboard.type("t.")
    page.keyboard.insert_text(" FROM totals t")
    for _ in " FROM totals t":
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("Control+Space")
    options = page.get_by_role("listbox").get_by_role("option")
    options.first.wait_for()
    assert options.locator(".cm-completionLabel").all_inner_texts() == ["origin", "flights", "mean_delay"]
    options.first.click()
    assert page.get_by_role("textbox", name="Statements of SQL").inner_text().startswith("SELECT t.`origin` FROM")
    write(sql, "SELECT * FROM dep")
    page.keyboard.press("Control+Space")
    page.get_by_role("option", name="departures").wait_for()
    page.keyboard.press("Escape")
    write(sql, "SELECT UCA")
    page.keyboard.press("Control+Space")
    page.get_by_role("option", name="UCASE").wait_for()
    page.keyboard.press("Escape")
    sql.sound()


def test_a_push_query_goes_on_until_it_is_stopped(sql: Look, harbour: Harbour) -> None:
    page = sql.page
    write(sql, "SELECT `origin`, `flight` FROM departures WHERE `flight` >= 9000 EMIT CHANGES;")
    page.keyboard.press("ControlOrMeta+Enter")
    page.get_by_text("following").wait_for()
    for flight in (9_001, 9_002):
        harbour.post("/v1/streams/departures/records", [{**RECORD, "flight": flight}])
        page.get_by_role("cell", name=str(flight), exact=True).wait_for()
    assert [row[2] for row in shown(sql, "Rows")] == ["9002", "9001"], "the newest first"
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_text("you stopped it").wait_for()
    page.get_by_role("heading", name="2 rows").wait_for()
    sql.sound()


def test_a_push_query_with_a_limit_ends_by_itself(sql: Look) -> None:
    write(sql, "SELECT `flight` FROM departures EMIT CHANGES LIMIT 3;")
    sql.page.keyboard.press("ControlOrMeta+Enter")
    sql.page.get_by_text("its LIMIT is reached").wait_for()
    assert len(shown(sql, "Rows")) == 3
    sql.sound()


def test_a_result_is_drawn_as_a_chart(sql: Look) -> None:
    page = sql.page
    write(sql, "SELECT `origin`, `flights`, `mean_delay` FROM totals;")
    page.keyboard.press("ControlOrMeta+Enter")
    page.get_by_role("button", name="Chart", exact=True).click()
    page.get_by_role("combobox", name="Along the bottom").select_option("origin")
    page.get_by_role("combobox", name="Drawn").select_option("mean_delay")
    page.get_by_role("img", name=re.compile("mean_delay by origin: 1 line, 5 places")).wait_for()
    assert page.locator(".sql-chart canvas").is_visible()
    sql.sound()


def test_what_a_statement_makes_is_said_and_linked(sql: Look, harbour: Harbour) -> None:
    page = sql.page
    write(sql, "CREATE TABLE per_flight AS SELECT `flight`, COUNT(*) AS n FROM departures GROUP BY `flight` EMIT CHANGES;")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("link", name="per_flight").first.wait_for()
    assert "COUNT(*) AS n" in harbour.get("/v1/queries/per_flight")["statement"]
    page.get_by_role("link", name="per_flight").last.click()
    page.get_by_role("heading", name="per_flight").wait_for()
    assert page.url.endswith("/console/tables/per_flight")
    assert harbour.http.delete("/v1/queries/per_flight").status_code == 204
    sql.sound()


def test_a_statement_that_was_carried_out_is_not_marked_for_its_own_name(sql: Look, harbour: Harbour) -> None:
    page = sql.page
    sql.expects(REFUSED)
    made = "CREATE STREAM far AS SELECT *\n  FROM departures WHERE `flight` > 9 EMIT CHANGES;"
    write(sql, made)
    page.keyboard.press("ControlOrMeta+Enter")
    page.get_by_role("link", name="far").first.wait_for()
    page.reload()
    editor = page.get_by_role("textbox", name="Statements of SQL")
    editor.click()
    page.keyboard.press("ControlOrMeta+End")
    page.keyboard.insert_text("\nSELECT `orign` FROM totals;")
    marks = page.locator(".cm-lintRange-error")
    marks.first.wait_for()
    assert marks.all_inner_texts() == ["`orign`"]
    write(sql, made.replace("> 9", "> 8"))
    page.get_by_text("1 fault").wait_for()
    marks.first.wait_for()
    assert "far" in "".join(marks.all_inner_texts()), "it is another one, and its name is taken"
    assert harbour.http.delete("/v1/queries/far").status_code == 204
    sql.sound()


def test_what_was_run_is_kept_and_put_back(sql: Look) -> None:
    page = sql.page
    write(sql, "SHOW TABLES;")
    page.keyboard.press("ControlOrMeta+Enter")
    page.get_by_role("table", name="Rows").wait_for()
    page.reload()
    page.get_by_role("button", name="History").click()
    write(sql, "")
    page.get_by_role("button", name=re.compile("^SHOW TABLES;")).click()
    assert page.get_by_role("textbox", name="Statements of SQL").inner_text() == "SHOW TABLES;"
    page.get_by_role("button", name="Forget all").click()
    page.get_by_role("heading", name="Nothing was run yet").wait_for()
    sql.sound()


def test_examples_are_made_of_what_there_is_and_all_can_be_run(sql: Look) -> None:
    page = sql.page
    page.get_by_role("button", name="Rows of levels").wait_for()
    for name in ("Rows of levels", "What is there"):
        page.get_by_role("button", name=name).click()
        page.keyboard.press("ControlOrMeta+Enter")
        shown(sql, "Rows") if name == "Rows of levels" else page.get_by_text("LEVELS").first.wait_for()
    assert page.get_by_role("alert").count() == 0
    sql.sound()


def test_names_are_listed_with_their_columns(sql: Look) -> None:
    page = sql.page
    page.get_by_role("button", name="Names").click()
    page.get_by_text("totals table").click()
    page.get_by_text("mean_delay double").wait_for()
    page.get_by_role("button", name="Select its columns").filter(visible=True).click()
    page.keyboard.press("ControlOrMeta+Enter")
    assert len(shown(sql, "Rows")) == 5
    sql.sound()


@pytest.mark.parametrize("width", [390, 820, 1600])
def test_it_fits_every_width_in_the_dark(width: int, looking: Opening, harbour: Harbour) -> None:
    look = looking(harbour, width=width, color_scheme="dark")
    look.at("/sql?sql=SELECT%20*%20FROM%20totals%3B")
    look.page.get_by_role("button", name="Run", exact=True).click()
    shown(look, "Rows")
    look.sound()
