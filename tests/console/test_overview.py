"""The overview: numbers of the API, what needs attention first, the graph, and a thousand queries."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.api.conftest import STREAM
from tests.console.conftest import Look, Opening
from tests.console.harbour import Harbour, multiply

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Route

WIDTHS = (390, 820, 1280, 1600)


def number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def test_the_numbers_are_those_of_the_api(look: Look, harbour: Harbour) -> None:
    page = look.at("/")
    for query in harbour.get("/v1/overview")["queries"]:
        row = look.row(query["name"])
        cells = row.get_by_role("cell").all_inner_texts()
        assert query["state"] in cells[1]
        shown = [cell.strip().splitlines()[-1] for cell in cells[3:6]]
        assert shown == [number(query["lag"]), number(query["waiting"]), number(query["late"])], query["name"]
    assert page.get_by_role("group", name="All queries together").get_by_text("3 of 5").is_visible()
    look.sound()


def test_what_needs_attention_comes_first_with_its_reason(look: Look) -> None:
    page = look.at("/")
    trouble = page.get_by_role("region", name=re.compile("needs attention"))
    assert "a record has no price; mend it and restart" in trouble.inner_text()
    assert trouble.get_by_role("link", name="data_invalid").get_attribute("href") == "/v1/errors/data_invalid"
    assert page.get_by_role("row").nth(1).inner_text().startswith("broken"), "and first in the table"
    look.sound()


def test_a_failed_query_is_restarted_from_there(look: Look, harbour: Harbour) -> None:
    page = look.at("/")
    page.get_by_role("region", name=re.compile("needs attention")).get_by_role("button", name="Restart").click()
    page.get_by_text("broken is started again.").wait_for()
    kinds = [event["kind"] for event in harbour.get("/v1/queries/broken/events")["items"]]
    assert "restart_requested" in kinds or any("restart" in kind for kind in kinds)
    harbour.state("broken", "failed", {"code": "data_invalid", "detail": "a record has no price; mend it and restart"})
    look.sound()


def test_a_query_is_found_by_its_name_and_its_state(look: Look) -> None:
    page = look.at("/")
    look.row("delays").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("del")
    look.row("joined").wait_for(state="detached")
    assert page.get_by_role("row").count() == 2
    page.get_by_label("Find a query by its name").fill("")
    page.get_by_label("State").select_option("paused")
    look.row("delays").wait_for(state="detached")
    assert look.row("quiet").is_visible()
    assert "state=paused" in page.url, "a link carries the filter"
    page.get_by_label("State").select_option("failed")
    page.get_by_label("Find a query by its name").fill("nothing")
    page.get_by_text("No query fits").wait_for()
    look.sound()


def test_rows_are_sorted_by_a_column(look: Look) -> None:
    page = look.at("/")
    page.get_by_role("columnheader", name="Behind").get_by_role("button").click()
    assert page.get_by_role("columnheader", name="Behind").get_attribute("aria-sort") == "descending"
    assert page.get_by_role("row").nth(1).inner_text().startswith("delays")
    page.get_by_role("columnheader", name="Query").get_by_role("button").click()
    names = [row.inner_text().split()[0] for row in page.get_by_role("row").all()[1:]]
    assert names == ["broken", "delays", "follower", "joined", "quiet"]
    look.sound()


def test_the_keyboard_goes_through_the_rows_and_opens_one(look: Look) -> None:
    page = look.at("/")
    look.row("broken").get_by_role("link").focus()
    page.keyboard.press("End")
    focused = page.evaluate("document.activeElement.textContent")
    assert focused == page.get_by_role("row").last.get_by_role("link").first.inner_text()
    page.keyboard.press("ArrowUp")
    name = page.evaluate("document.activeElement.textContent")
    page.keyboard.press("Enter")
    page.get_by_role("heading", level=1, name=name).wait_for()
    look.sound()


def test_the_graph_has_every_edge_and_says_who_is_behind(look: Look, harbour: Harbour) -> None:
    page = look.at("/")
    page.get_by_role("button", name="Graph").click()
    diagram = page.get_by_role("region", name="Graph of relations and queries")
    diagram.wait_for()
    found = harbour.get("/v1/overview")
    assert diagram.locator("path.arrow").count() == sum(
        len(query["reads"]) + (query["writes"] is not None) for query in found["queries"]
    )
    behind = next(query["lag"] for query in found["queries"] if query["name"] == "delays")
    assert diagram.get_by_text(f"{behind} behind").first.is_visible()
    look.sound()
    diagram.get_by_role("link", name=re.compile("^joined ?query")).click()
    page.get_by_role("heading", level=1, name="joined").wait_for()


def edges(diagram: Locator) -> list[str]:
    """Return what stands on each arrow, its lines together."""
    return [" ".join(group.locator("text").all_text_contents()) for group in diagram.locator("g:has(> path.arrow)").all()]


def test_every_arrow_says_what_flows_and_how_far_its_reader_is(look: Look, harbour: Harbour) -> None:
    asked = 0

    def moved(route: Route) -> None:
        """Let a second pass with each answer: `joined` reads 50 departures and 7 rows of weather, and `delays` does not know its lag."""
        nonlocal asked
        asked += 1
        found = harbour.get("/v1/overview")
        found["at"] = f"2025-11-21T08:{asked // 60:02}:{asked % 60:02}Z"
        for query in found["queries"]:
            if query["name"] == "joined":
                for read in query["reads"]:
                    read["read_rows"] = asked * (50 if read["relation"] == "departures" else 7)
                query["emitted_rows"] = 40 * asked
            if query["name"] == "delays":
                query["lag"] = query["reads"][0]["lag"] = query["reads"][0]["read_rows"] = None
                query["read_rows"] = 30 * asked
        route.fulfill(json=found)

    look.page.route("**/v1/overview?*", moved)
    page = look.at("/?view=graph")
    diagram = page.get_by_role("region", name="Graph of relations and queries")
    diagram.get_by_text("50/s").first.wait_for()
    shown = edges(diagram)
    assert "50/s read to its end" in shown, "departures, by joined"
    assert "7/s read to its end" in shown, "weather, by joined"
    assert "30/s lag unknown" in shown, "departures, by delays: what reads one relation alone reads all its records there"
    assert shown.count("0/s not read yet") + shown.count("– not read yet") == 3, (
        "broken, quiet and follower have committed nothing"
    )
    assert "40/s" in shown, "what joined writes"
    assert all(shown), "no arrow is without"
    look.sound()


def test_the_graph_shows_first_what_needs_attention(look: Look, harbour: Harbour) -> None:
    put, stream = harbour.http.put, "/v1/streams/zebras"
    assert put(stream, json=STREAM).status_code == 201
    aside = {"name": "zebra_copy", "from": {"stream": "zebras"}, "into": {"stream": "zebra_copy"}}
    harbour.post("/v1/queries", aside)
    harbour.state("zebra_copy", "running")
    harbour.state("broken", "paused")
    try:
        page = look.at("/?view=graph")
        diagram = page.get_by_role("region", name="Graph of relations and queries")
        high = diagram.get_by_role("link", name=re.compile("^zebra_copy ?query"))
        low = diagram.get_by_role("link", name=re.compile("^joined ?query"))
        high.wait_for()
        assert place(high) > place(low), "in the order of names while all is well"
        harbour.state("zebra_copy", "failed", {"code": "data_invalid", "detail": "a record has no stripes"})
        diagram.get_by_text("query · failed · data invalid").wait_for()
        assert place(high) < place(low)
        harbour.state("broken", "failed", {"code": "data_invalid", "detail": "a record has no price; mend it and restart"})
        page.set_viewport_size({"width": 500, "height": 420})
        look.sound()
        named = page.get_by_role("group", name="In this graph they need attention").get_by_role("button", name="broken")
        named.click()
        broken = diagram.get_by_role("link", name=re.compile("^broken ?query"))
        assert broken.evaluate("node => node === document.activeElement")
        frame, found = diagram.bounding_box(), broken.bounding_box()
        assert frame is not None
        assert found is not None
        assert frame["x"] <= found["x"], "in sight"
        assert found["x"] + found["width"] <= frame["x"] + frame["width"]
        assert frame["y"] <= found["y"] + 1
        assert found["y"] + found["height"] <= frame["y"] + frame["height"] + 1
        look.sound()
    finally:
        harbour.state("broken", "failed", {"code": "data_invalid", "detail": "a record has no price; mend it and restart"})
        assert harbour.http.delete("/v1/queries/zebra_copy").status_code == 204
        assert harbour.http.delete(stream).status_code == 204


def place(box: Locator) -> float:
    """Return how far down a box of the picture is, wherever one has scrolled."""
    return float(box.evaluate("node => node.parentElement.transform.baseVal[0].matrix.f"))


def test_the_graph_shows_what_is_around_one_relation(look: Look) -> None:
    page = look.at("/?view=graph&around=follower")
    diagram = page.get_by_role("region", name="Graph of relations and queries")
    diagram.wait_for()
    diagram.get_by_role("link", name=re.compile("^joined ?query")).wait_for()  # upstream
    assert diagram.get_by_role("link", name=re.compile("^delays")).count() == 0, "not another branch"
    look.sound()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_every_width_in_light_and_dark(looking: Opening, harbour: Harbour, width: int, scheme: str) -> None:
    look = looking(harbour, width=width, color_scheme=scheme)
    look.at("/")
    look.row("joined").wait_for()
    look.sound()


def test_a_colour_scheme_is_kept(look: Look) -> None:
    page = look.at("/")
    page.get_by_role("button", name="Colours: System theme").click()
    page.get_by_role("button", name="Colours: Light").click()
    assert page.evaluate("getComputedStyle(document.body).colorScheme") == "dark"
    page.reload()
    page.get_by_role("button", name="Colours: Dark").wait_for()
    look.sound()


def test_one_goes_to_a_query_by_a_part_of_its_name(look: Look) -> None:
    page = look.at("/")
    look.row("joined").wait_for()
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Go to a screen").fill("delay")
    page.get_by_role("listbox", name="Found").get_by_role("option").first.wait_for()
    look.sound()
    page.keyboard.press("Enter")
    page.get_by_role("heading", level=1, name="delays").wait_for()


def test_an_address_that_is_no_screen_says_so(look: Look) -> None:
    page = look.at("/nowhere/at/all")
    page.get_by_text("There is no such screen").wait_for()
    page.get_by_role("link", name="Go to the overview").click()
    look.row("joined").wait_for()
    look.sound()


def test_a_service_that_does_not_answer_is_tried_again(look: Look) -> None:
    look.expects("Failed to load resource", "ERR_FAILED", "ERR_INTERNET_DISCONNECTED")
    page = look.at("/")
    look.row("joined").wait_for()
    page.context.set_offline(True)
    page.get_by_text("The service does not answer.").first.wait_for()
    assert look.row("joined").is_visible(), "what was known stays"
    page.context.set_offline(False)
    page.get_by_text("The service does not answer.").first.wait_for(state="detached")
    look.sound()


def test_of_a_thousand_queries_only_those_in_sight_are_in_the_page(look: Look, harbour: Harbour) -> None:
    multiply(harbour, "quiet", 1_000)
    try:
        page = look.at("/?q=quiet_")
        page.get_by_text("1,000 of 1,005").wait_for()
        assert page.get_by_role("table").get_attribute("aria-rowcount") == "1001"
        assert page.get_by_role("row").count() < 60
        page.keyboard.press("Tab")
        look.row("quiet_0001").get_by_role("link").focus()
        page.keyboard.press("End")
        look.row("quiet_1000").wait_for()
        assert page.get_by_role("row").count() < 60
        page.get_by_role("button", name="Graph").click()
        page.get_by_text("Too much for one picture").wait_for()
    finally:
        harbour.execute("DELETE FROM slackwater.query WHERE name LIKE 'quiet_%%' AND name <> 'quiet'")
    look.sound()
