"""One query: its numbers, the tide chart, definition, lateness with its edit, late records, history, explanation, and what one may do to it."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import pytest

from tests.api.conftest import TABLE
from tests.console.conftest import Look, Opening
from tests.console.harbour import AT, DIVERTING, LATE, H, Harbour, M
from tests.console.test_sql import write


def moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def test_the_numbers_are_those_of_its_status(look: Look, harbour: Harbour) -> None:
    page = look.at("/queries/joined")
    status = harbour.get("/v1/queries/joined/status")
    tiles = page.get_by_role("group", name="Numbers of this query")
    tiles.get_by_text(moment(status["stream_time_ms"])[11:]).wait_for()
    assert tiles.get_by_text(f"{sum(status['buffered'].values())}", exact=True).is_visible()
    lag = sum(part["lag"] for feed in status["progress"] for part in feed["partitions"])
    assert tiles.inner_text().split("Behind\n")[1].startswith(f"{lag}\n")
    counted = page.get_by_role("region", name="Counted")
    rows = counted.get_by_role("row").all_inner_texts()[1:]
    assert rows == [f"{each['input']}\t{each['reason'].replace('_', ' ')}\t{each['count']}" for each in status["counters"]]
    look.sound()


def test_the_tide_chart_has_one_time_for_all_tasks(look: Look, harbour: Harbour) -> None:
    page = look.at("/queries/joined")
    tide = page.get_by_role("region", name="Tide")
    tide.get_by_text("As a table").click()
    rows = [row.split("\t") for row in tide.get_by_role("row").all_inner_texts()[1:]]
    status = harbour.get("/v1/queries/joined/status", tasks=True)
    grace = harbour.get("/v1/queries/joined/lateness")["settings"][0]["current_ms"]
    assert grace == H
    clock = status["clocks"]["w"]
    assert rows == [["w", moment(clock - grace), moment(clock), "42"]]
    assert sum(one["buffered"] for one in status["tasks"]) == 42
    assert tide.locator("rect.waits").count() > 0
    tide.get_by_text("3 late · grace 1 h").wait_for()
    look.sound()


def test_the_tide_moves_while_one_looks(look: Look, harbour: Harbour) -> None:
    page = look.at("/queries/joined")
    tide = page.get_by_role("region", name="Tide")
    tide.get_by_text("As a table").click()
    tide.get_by_role("cell", name=moment(AT), exact=True).wait_for()
    harbour.tide(AT + 20 * M)
    tide.get_by_role("cell", name=moment(AT + 20 * M), exact=True).wait_for()
    tide.get_by_role("cell", name=moment(AT + 20 * M - H), exact=True).wait_for()
    harbour.tide(AT)
    look.sound()


def test_a_late_record_that_was_joined_is_not_red(look: Look, harbour: Harbour) -> None:
    harbour.execute("UPDATE log.counter SET reason = 'late_joined' WHERE reason = 'late_diverted'")
    page = look.at("/queries/joined")
    page.get_by_role("region", name="Tide").get_by_text("3 joined late · grace 1 h").wait_for()
    assert page.get_by_role("region", name="Tide").locator(".late-text").count() == 0
    harbour.execute("UPDATE log.counter SET reason = 'late_diverted' WHERE reason = 'late_joined'")
    look.sound()


def test_a_late_record_is_read_on_a_phone(looking: Opening, harbour: Harbour) -> None:
    look = looking(harbour, width=390)
    page = look.at("/queries/joined?tab=late")
    record = page.get_by_role("region", name="Late records").locator("tbody .pairs").first
    record.wait_for()
    box = record.bounding_box()
    assert box is not None
    assert box["width"] >= 200, "a column of single letters is not read"
    assert box["x"] + box["width"] <= 390, "it stands in the window"
    look.sound()


def test_an_axis_of_days_tells_them_apart(look: Look, harbour: Harbour) -> None:
    harbour.detail("joined", waiting={"w": {"0": [[AT, AT + 60 * H, 30, 30]]}})
    page = look.at("/queries/joined")
    tide = page.get_by_role("region", name="Tide")
    tide.get_by_text("02 Jan").wait_for()
    marks = tide.locator("svg text").all_text_contents()
    assert "03 Jan" in marks
    assert "2013-01" not in marks
    harbour.tide(AT)
    look.sound()


def test_late_records_are_marks_where_they_were(look: Look, harbour: Harbour) -> None:
    harbour.tide(AT)
    page = look.at("/queries/joined")
    marks = page.get_by_role("region", name="Tide").locator("line.late-mark")
    harbour.detail("joined", waiting={"w": {"0": [[AT - 5 * H, AT, 1, 1]]}})
    page.get_by_role("region", name="Tide").locator("line.late-mark").nth(len(LATE) - 1).wait_for(state="attached")
    assert marks.count() == len(LATE)
    harbour.tide(AT)


def test_the_definition_stands_as_sql_and_as_json(look: Look, harbour: Harbour) -> None:
    page = look.at("/queries/joined?tab=definition")
    query = harbour.get("/v1/queries/joined")
    shown = page.get_by_label("The definition as SQL").inner_text()
    assert " ".join(shown.split()) == " ".join(query["sql"].split())
    definition = json.loads(page.get_by_label("The definition as JSON").inner_text())
    assert definition["joins"][0]["grace"] == query["definition"]["joins"][0]["grace"] == "1h"
    assert definition["select"] == query["definition"]["select"]
    look.sound()


def test_a_query_is_edited_in_sql_beyond_its_grace(look: Look, harbour: Harbour) -> None:
    look.at("/queries/joined?tab=definition")
    page = look.page
    page.get_by_role("link", name="Edit in SQL").click()
    editor = page.get_by_role("textbox", name="Statements of SQL")
    editor.get_by_text("CREATE OR REPLACE").first.wait_for()
    before = harbour.get("/v1/queries/joined")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("query joined is as it was: the statement says nothing new").wait_for()
    assert harbour.get("/v1/queries/joined")["generation"] == before["generation"]
    look.sound()
    written = editor.inner_text()
    assert written.count("LATE DIVERT") == 1
    write(look, written.replace("LATE DIVERT", "LATE DROP"))
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("query joined is edited in place").wait_for()
    after = harbour.get("/v1/queries/joined")
    assert after["definition"]["joins"][0]["late"] == "drop"
    look.at("/queries/joined?tab=definition").get_by_text("As it was written").wait_for()
    assert "LATE DROP" in page.get_by_label("The definition as SQL").inner_text()
    assert harbour.http.put("/v1/queries/joined", json=DIVERTING).status_code == 200
    page.reload()
    page.get_by_text("The statement that the definition stands for").wait_for()
    assert "LATE DIVERT" in page.get_by_label("The definition as SQL").inner_text()
    look.sound()


def test_the_plan_shows_what_waits_in_each_operator(look: Look) -> None:
    page = look.at("/queries/joined?tab=definition")
    plan = page.get_by_role("region", name="Plan of the query")
    for text in (
        "departures",
        "weather",
        "join with table",
        "w · grace 1 h",
        "42 waiting",
        "3 late diverted",
        "select",
        "joined",
    ):
        plan.get_by_text(text, exact=True).first.wait_for()
    look.sound()


def test_another_grace_shows_what_would_have_been_late(look: Look, harbour: Harbour) -> None:
    page = look.at("/queries/joined?tab=lateness")
    advice = {item["value_ms"]: item for item in harbour.get("/v1/queries/joined/lateness")["settings"][0]["advice"]}
    panel = page.get_by_role("region", name="Share of records")
    slider = page.get_by_role("slider")
    panel.get_by_text("grace, in force").wait_for()
    assert panel.locator(".grace-facts").inner_text().count(str(advice[H]["late_count"])) >= 1
    slider.press("Home")
    assert slider.get_attribute("aria-valuetext") == f"0 ms: {advice[0]['late_count']} late"
    slider.press("End")
    widest = max(advice)
    assert slider.get_attribute("aria-valuetext") == f"2 h: {advice[widest]['late_count']} late"
    look.sound()


def test_the_preview_is_that_of_a_validation_and_the_edit_is_one_click_away(look: Look, harbour: Harbour) -> None:
    before = harbour.get("/v1/queries/joined")
    page = look.at("/queries/joined?tab=lateness")
    page.get_by_role("slider").press("End")
    edit = page.get_by_role("region", name="The edit")
    edit.get_by_text("In place: the query goes on with its state.").wait_for()
    expected = harbour.post("/v1/validations", {**DIVERTING, "joins": [{**DIVERTING["joins"][0], "grace": "2h"}]})["edit"]
    assert expected["changes"][0]["reason"] in edit.inner_text()
    look.sound()
    page.get_by_role("button", name="Set the grace to 2 h").click()
    page.get_by_text("The grace of w is 2 h from the next launch on.").wait_for()
    after = harbour.get("/v1/queries/joined")
    assert (after["definition"]["joins"][0]["grace"], after["generation"]) == ("2h", before["generation"] + 1)
    assert after["desired_state"] == before["desired_state"]
    assert harbour.http.put("/v1/queries/joined", json=DIVERTING).status_code == 200


def test_advice_on_a_history_retention_says_why_it_is_no_edit(look: Look, harbour: Harbour) -> None:
    page = look.at("/queries/joined?tab=lateness")
    page.get_by_role("button", name="history retention of weather").click()
    slider = page.get_by_role("slider", name="What if: history retention")
    slider.press("Home")
    assert slider.get_attribute("aria-valuetext") == "0 ms: 20 late"
    page.get_by_text("does not change while a query reads the table").wait_for()
    assert page.get_by_role("region", name="The edit").count() == 0
    longer = {**TABLE, "versioned": {"history_retention": "3d"}}
    refused = harbour.http.put("/v1/tables/weather", params={"validate": True}, json=longer)
    assert (refused.status_code, refused.json()["code"]) == (409, "relation_in_use"), "or it can be offered"
    look.sound()


def test_late_records_are_filtered_as_the_api_does(look: Look, harbour: Harbour) -> None:
    page = look.at("/queries/joined?tab=late")
    panel = page.get_by_role("region", name="Late records")
    rows = panel.locator("tbody tr")
    rows.nth(len(LATE) - 1).wait_for()
    assert rows.count() == len(LATE)
    panel.get_by_label("Column").fill("origin")
    panel.get_by_label("is", exact=True).fill("JFK")
    rows.nth(2).wait_for(state="detached")
    found = harbour.get("/v1/queries/joined/late-records", **{"key.origin": "JFK"})["items"]
    assert rows.count() == len(found) == 2
    assert moment(found[0]["event_time_ms"]) in rows.first.inner_text()
    look.sound()
    panel.get_by_role("button", name="Clear").click()
    panel.get_by_label("From (UTC)").fill("not a time")
    look.expects("400")
    panel.get_by_text("bad_parameter").wait_for()
    look.sound()


def test_a_chosen_late_record_is_replayed(look: Look, harbour: Harbour) -> None:
    page = look.at("/queries/joined?tab=late")
    panel = page.get_by_role("region", name="Late records")
    panel.get_by_role("checkbox").first.check()
    panel.get_by_role("button", name="Replay 1").click()
    look.sound()
    page.get_by_role("dialog").get_by_role("button", name="Replay").click()
    page.get_by_text("1 record goes through joined again with its next batch.").wait_for()
    assert len(harbour.get("/v1/queries/joined/late-records")["items"]) == len(LATE)


def test_rejects_of_its_inputs_are_there(look: Look, harbour: Harbour) -> None:
    page = look.at("/queries/joined?tab=rejects")
    panel = page.get_by_role("region", name="Rejects of departures")
    (reject,) = harbour.get("/v1/streams/departures/rejects")["items"]
    panel.get_by_text(reject["reason"], exact=True).wait_for()
    assert panel.locator("tbody tr").count() == 1
    page.get_by_text("Every record could be read.").wait_for()  # of weather
    look.sound()


def test_events_come_as_they_happen(look: Look, harbour: Harbour) -> None:
    page = look.at("/queries/delays?tab=history")
    events = page.get_by_role("list", name="Events").get_by_role("listitem")
    events.first.wait_for()
    before = events.count()
    assert before == len(harbour.get("/v1/queries/delays/events")["items"])
    page.get_by_role("button", name="Pause").click()
    events.nth(before).wait_for()
    assert "desired" in events.first.inner_text() or "paused" in events.first.inner_text()
    page.get_by_role("button", name="Resume").click()
    events.nth(before + 1).wait_for()
    look.sound()


def test_an_explanation_is_the_services_and_stands_on_the_chart(look: Look, harbour: Harbour) -> None:
    page = look.at("/queries/joined?tab=explain")
    page.get_by_label("Value of origin").fill("JFK")
    page.get_by_label("Event time (UTC)").fill("2013-01-01T10:44:00Z")
    page.get_by_role("button", name="Explain").click()
    answer = harbour.get("/v1/queries/joined/explain", **{"key.origin": "JFK", "at": "2013-01-01T10:44:00Z"})
    panel = page.get_by_role("region", name="Answer")
    panel.get_by_text(answer["answer"]["sentence"], exact=True).first.wait_for()
    assert panel.get_by_role("listitem").count() == len(answer["steps"])
    assert page.get_by_role("region", name="Tide").get_by_text("asked about").is_visible()
    look.sound()


def test_a_time_that_cannot_be_read_is_said_with_its_cure(look: Look) -> None:
    look.expects("400")
    page = look.at("/queries/joined?tab=explain")
    page.get_by_label("Value of origin").fill("JFK")
    page.get_by_label("Event time (UTC)").fill("yesterday")
    page.get_by_role("button", name="Explain").click()
    page.get_by_text("bad_parameter").wait_for()
    look.sound()


@pytest.mark.parametrize(("button", "desired"), [("Stop", "stopped"), ("Resume", "running"), ("Pause", "paused")])
def test_a_desired_state_is_passed_on(look: Look, harbour: Harbour, button: str, desired: str) -> None:
    page = look.at("/queries/delays")
    page.get_by_role("button", name=button, exact=True).click()
    page.locator(".toasts .note.good").first.wait_for()
    assert harbour.get("/v1/queries/delays")["desired_state"] == desired
    look.sound()


def test_a_failed_query_says_why_at_its_head(look: Look) -> None:
    page = look.at("/queries/broken")
    alert = page.get_by_role("alert")
    assert "a record has no price; mend it and restart" in alert.inner_text()
    assert alert.get_by_role("link", name="data_invalid").is_visible()
    look.sound()


def test_a_fork_that_cannot_be_made_says_why(look: Look) -> None:
    look.expects("409", "422")
    page = look.at("/queries/joined")
    page.get_by_role("button", name="Fork").click()
    dialog = page.get_by_role("dialog", name="Fork joined")
    dialog.get_by_label("Name of the fork").fill("delays")
    look.sound()
    dialog.get_by_role("button", name="Fork").click()
    dialog.get_by_role("alert").wait_for()
    assert "delays" in dialog.get_by_role("alert").inner_text()
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")


def test_what_others_read_is_not_deleted_unawares(look: Look, harbour: Harbour) -> None:
    page = look.at("/queries/joined")
    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog", name="Delete joined?")
    dialog.get_by_text("joined is read by follower.").wait_for()
    dialog.get_by_label("Type the name").fill("joined")
    assert dialog.get_by_role("button", name="Delete").is_disabled()
    look.sound()
    dialog.get_by_role("button", name="Cancel").click()
    assert harbour.get("/v1/queries/joined")["name"] == "joined"


def test_a_query_is_deleted_once_its_name_is_typed(look: Look, harbour: Harbour) -> None:
    definition = {"name": "short_lived", "from": {"stream": "departures"}, "into": {"stream": "short_lived"}}
    harbour.post("/v1/queries", definition)
    page = look.at("/queries/short_lived")
    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog", name="Delete short_lived?")
    dialog.get_by_text("the stream short_lived, into").wait_for()
    assert dialog.get_by_role("button", name="Delete").is_disabled()
    dialog.get_by_label("Type the name").fill("short_lived")
    dialog.get_by_role("button", name="Delete").click()
    page.get_by_role("heading", level=1, name="Overview").wait_for()
    assert harbour.http.get("/v1/queries/short_lived").status_code == 404
    assert harbour.http.get("/v1/streams/short_lived").status_code == 404
    look.sound()


def test_a_query_that_is_not_there_says_so(look: Look) -> None:
    look.expects("404")
    page = look.at("/queries/nowhere")
    page.get_by_text("There is no query nowhere").wait_for()
    look.sound()


@pytest.mark.parametrize("tab", ["now", "definition", "lateness", "late", "rejects", "history", "explain"])
@pytest.mark.parametrize("width", [390, 820])
def test_each_part_fits_a_small_window_in_the_dark(looking: Opening, harbour: Harbour, width: int, tab: str) -> None:
    look = looking(harbour, width=width, color_scheme="dark")
    page = look.at(f"/queries/joined?tab={tab}")
    page.get_by_role("tabpanel").locator("section, .panel").first.wait_for()
    look.sound()


def test_tabs_are_gone_through_with_arrow_keys(look: Look) -> None:
    page = look.at("/queries/joined")
    page.get_by_role("tab", name="Now").focus()
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("tab", name="Definition").get_attribute("aria-selected") == "true"
    assert re.search(r"tab=definition", page.url)
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.get_by_role("tab", name="Explain").get_attribute("aria-selected") == "true"
    look.sound()
