"""Every screen on a real service with the demo's month of flights: nothing is wrong in the browser, and the numbers are the API's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx
import pytest
from slackwater import Client

from app.testing.machines.service import service
from examples.flights.data import load
from examples.flights.queries import JOIN, RELATIONS, WINDOWS
from tests.conftest import ROOT
from tests.console.conftest import Look
from tests.console.harbour import Harbour
from tests.console.test_overview import number
from tests.console.test_query import moment
from tests.console.test_table import shown

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]

SCREENS = ROOT / "app" / "console" / "src" / "screens"
QUERIES = (JOIN["name"], WINDOWS["name"])
PLACES: dict[str, tuple[str, ...]] = {
    "/": ("/", "/?view=graph"),
    "/queries/:name": tuple(f"/queries/{name}" for name in (*QUERIES, "materialize:weather")),
    "/streams/:name": ("/streams/departures", f"/streams/{JOIN['name']}"),
    "/tables/:name": ("/tables/weather", f"/tables/{WINDOWS['name']}"),
    "/relations": ("/relations",),
    "/sql": ("/sql",),
    "/new": ("/new", "/new?what=query"),
    "/system": ("/system",),
}
"""Where each screen of the registry is looked at."""


@pytest.fixture(scope="module")
def harbour(browser: Browser) -> Iterator[Harbour]:
    """The demo, when its queries have read everything; started only where there is a browser that looks at it."""
    with service() as running, Client(running.url) as client, httpx.Client(base_url=running.url, timeout=60) as http:
        for (kind, name), definition in RELATIONS.items():
            client.relation(kind, name).register(definition)
        for query in (JOIN, WINDOWS):
            client.queries.create(query)
        for chunk in load(1).chunks():
            client.relation(chunk.kind, chunk.relation).append(chunk.ndjson, batch_rows=len(chunk.frame))
        for name in (*QUERIES, "materialize:weather"):
            client.query(name).wait_until("caught_up", timeout=800)
        yield Harbour(running.url, "", http)


def examples() -> list[tuple[str, str]]:
    """Return titles and scripts of the demo's examples, as their source has them."""
    source = (SCREENS / "sql" / "examples.ts").read_text(encoding="utf-8")
    (listed,) = re.findall(r"const DEMO: ExampleScript\[\] = \[\n(.*?)\n\];", source, re.DOTALL)
    found = re.findall(r'title: "(.*?)",\n\s+about: ".*?",\n\s+sql: "(.*?)",\n', listed)
    return [(title, sql.replace("\\n", "\n")) for title, sql in found]


def test_no_screen_is_left_out() -> None:
    known = {
        path for file in SCREENS.glob("*/screen.ts") for path in re.findall(r'path: "(.*?)"', file.read_text(encoding="utf-8"))
    }
    assert known == set(PLACES)


@pytest.mark.parametrize("path", [path for paths in PLACES.values() for path in paths])
def test_every_part_of_every_screen_is_sound(look: Look, path: str) -> None:
    page = look.at(path)
    tabs = [tab.inner_text().split("\n")[0] for tab in page.get_by_role("tab").all()]
    for name in tabs or [None]:
        if name is not None:
            page.get_by_role("tab", name=name).click()
        page.get_by_role("status", name="Loading").wait_for(state="detached")
        assert page.get_by_role("alert").count() == 0, page.get_by_role("alert").all_inner_texts()
        look.sound()


def test_the_overview_has_the_numbers_of_the_api(look: Look, harbour: Harbour) -> None:
    look.at("/").get_by_role("checkbox", name="1 query that keeps the rows of sources").check()
    found = harbour.get("/v1/overview")["queries"]
    assert [query["lag"] for query in found] == [0, 0, 0]
    for query in found:
        look.row(query["name"]).wait_for()
        cells = look.row(query["name"]).get_by_role("cell").all_inner_texts()
        assert cells[1] == "running"
        figures = [cell.strip().splitlines()[-1] for cell in cells[3:6]]
        assert figures == [number(query["lag"]), number(query["waiting"]), number(query["late"])], query["name"]
    waiting = sum(query["waiting"] for query in found)
    assert waiting > 0, "some flights wait for their weather"
    assert number(waiting) in look.page.get_by_role("group", name="All queries together").inner_text()


def test_each_arrow_of_the_graph_says_that_all_is_read(look: Look) -> None:
    diagram = look.at("/?view=graph").get_by_role("region", name="Graph of relations and queries")
    diagram.get_by_text("read to its end").nth(3).wait_for()
    assert diagram.get_by_text("read to its end").count() == 4, "two inputs of the join, one of the windows, one of the kept rows"
    assert diagram.get_by_text("0/s").count() >= 4


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_has_the_numbers_of_its_status(look: Look, harbour: Harbour, name: str) -> None:
    page = look.at(f"/queries/{name}")
    status = harbour.get(f"/v1/queries/{name}/status")
    tiles = page.get_by_role("group", name="Numbers of this query")
    tiles.get_by_text(moment(status["stream_time_ms"])[11:]).wait_for()
    text = tiles.inner_text()
    assert f"{status['read_rows']:,} in all" in text
    assert text.split("Waiting\n")[1].startswith(f"{sum(status['buffered'].values()):,}\n")
    assert "everything is read" in text
    (late,) = [query["late"] for query in harbour.get("/v1/overview")["queries"] if query["name"] == name]
    assert late > 0
    tiles.get_by_text("since it began").wait_for()
    assert tiles.inner_text().split("Late\n")[1].startswith(f"{late:,}\n")


def test_rows_and_records_are_those_of_the_api(look: Look, harbour: Harbour) -> None:
    page = look.at(f"/tables/{WINDOWS['name']}")
    rows = harbour.get(f"/v1/tables/{WINDOWS['name']}/rows", limit=200)["rows"]
    cells = shown(look, f"Rows of {WINDOWS['name']}")
    heads = page.get_by_role("table", name=f"Rows of {WINDOWS['name']}").get_by_role("columnheader").all_inner_texts()
    at = {name: [head.startswith(name) for head in heads].index(True) for name in ("origin", "flights", "worst_delay")}
    found = [[row[place] for place in at.values()] for row in cells]
    assert found == [[str(row[name]) for name in at] for row in rows[: len(found)]]
    page = look.at("/streams/departures")
    end = harbour.get("/v1/streams/departures/records", partition=0, limit=1)["end_offset"]
    page.get_by_text(f"The newest of {end:,}").wait_for()


def test_every_example_of_the_demo_shows_rows(look: Look, harbour: Harbour) -> None:
    scripts = examples()
    page = look.at("/sql")
    page.get_by_role("button", name=scripts[0][0]).wait_for()
    offered = [item.inner_text().split("\n")[0] for item in page.locator(".sql-item").all()]
    assert offered == [*(title for title, _ in scripts), "What is there"]
    for title, sql in scripts:
        page = look.at("/sql")
        page.get_by_role("button", name="Examples").click()
        page.get_by_role("button", name=title).click()
        page.get_by_role("button", name="Run all").click()
        if sql.startswith("CREATE"):
            page.get_by_role("link", name="carriers").first.wait_for()
            continue
        if "EMIT CHANGES" in sql:
            page.get_by_text("following").wait_for()
            assert shown(look, "Rows"), title
            page.get_by_role("button", name="Stop", exact=True).click()
            page.get_by_text("you stopped it").wait_for()
        else:
            (result,) = harbour.post("/v1/statements", {"sql": sql})["results"]
            assert shown(look, "Rows"), title
            assert page.get_by_role("heading", name=result["message"]).is_visible(), title
        assert page.get_by_role("alert").count() == 0
        look.sound()
    with Client(harbour.url) as client:
        client.query("carriers").wait_until("caught_up", timeout=300)
    look.expects("422")  # what was carried out is still in the editor, where its name is taken now
    page = look.at("/tables/carriers")
    rows = harbour.get("/v1/tables/carriers/rows")["rows"]
    assert len(rows) > 10
    page.get_by_role("heading", name=f"{len(rows)} rows").wait_for()
    look.sound()
