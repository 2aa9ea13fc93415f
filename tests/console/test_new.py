"""The screen New: a form that shows what it makes, warns as the service does, and makes it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.console.conftest import Look, Opening
from tests.console.harbour import Harbour
from tests.console.shore import strew
from tests.kafka.topics import Cluster, Sent, mock_cluster

if TYPE_CHECKING:
    from playwright.sync_api import Page

SAMPLE = "id,item,amount,made_at\n007,cup,2.5,2024-03-02T10:00:00Z\n8,mug,3,2024-03-02T10:01:00Z\n"


@pytest.fixture(scope="module")
def harbour(empty_harbour: Harbour) -> Harbour:
    strew(empty_harbour)
    return empty_harbour


def made(look: Look) -> dict[str, Any]:
    """Return the definition that the form shows."""
    look.page.get_by_role("region", name="What this makes").get_by_role("button", name="JSON").click()
    found: dict[str, Any] = json.loads(look.page.locator("pre[aria-label=Definition]").inner_text())
    return found


def test_a_sample_becomes_a_stream_with_its_records(look: Look, harbour: Harbour) -> None:
    page = look.at("/new")
    page.get_by_label("Sample of records").fill(SAMPLE)
    page.get_by_role("textbox", name="Name", exact=True).fill("orders")
    page.get_by_text("The service would take it as it is.").wait_for()
    assert [field.input_value() for field in page.get_by_label("Type of").all()] == ["string", "string", "double", "timestamp"]
    assert page.get_by_label("id is part of the key").is_checked()
    assert page.get_by_role("combobox", name="Event time").input_value() == "made_at"
    assert 'CREATE STREAM "ORDERS" (' in page.locator("pre[aria-label=Statement]").inner_text()
    look.sound()
    definition = made(look)
    page.get_by_role("button", name="Make the stream").click()
    page.get_by_role("heading", name="orders").wait_for()
    assert harbour.get("/v1/streams/orders")["definition"] == definition
    found = [each for part in range(4) for each in harbour.get("/v1/streams/orders/records", partition=part)["records"]]
    assert sorted((each["id"], each["amount"]) for each in found) == [("007", 2.5), ("8", 3.0)]
    assert harbour.http.delete("/v1/streams/orders").status_code == 204
    look.sound()


def test_the_statement_of_a_table_means_its_definition(look: Look, harbour: Harbour) -> None:
    page = look.at("/new")
    page.get_by_role("button", name="Table", exact=True).click()
    page.get_by_label("Sample of records").fill(
        '{"code": "JFK", "at": 1357041600000, "tags": ["a"], "place": {"lat": 40.6, "town": "New York"}}'
    )
    page.get_by_role("textbox", name="Name", exact=True).fill("airports")
    page.get_by_role("textbox", name="Keeps versions for").fill("2d")
    page.get_by_text("The service would take it as it is.").wait_for()
    statement = page.locator("pre[aria-label=Statement]").inner_text()
    definition = made(look)
    assert definition["columns"] == {
        "code": "string",
        "at": "bigint",
        "tags": "array<string>",
        "place": "struct<lat:double,town:string>",
    }
    assert (definition["versioned"], definition["event_time"], definition["materialize"]) == (
        {"history_retention": "2d"},
        "at",
        True,
    )
    (result,) = harbour.http.post("/v1/statements", params={"validate": True}, json={"sql": statement}).json()["results"]
    assert result["definition"] == definition
    look.sound()


def test_what_is_missing_is_said_before_anything_is_sent(look: Look) -> None:
    page = look.at("/new")
    page.get_by_role("textbox", name="Name", exact=True).fill("departures")
    page.get_by_text("There is a stream or table departures already.").first.wait_for()
    page.get_by_role("button", name="Column", exact=True).click()
    page.get_by_role("button", name="Table", exact=True).click()
    page.get_by_text("A column has no name.").first.wait_for()
    page.get_by_text("A table needs a key").first.wait_for()
    assert page.get_by_role("button", name="Make the table").is_disabled()
    look.sound()


def test_what_the_service_finds_wrong_is_said(look: Look) -> None:
    look.expects("422")
    page = look.at("/new")
    page.get_by_label("Sample of records").fill(SAMPLE)
    page.get_by_role("textbox", name="Name", exact=True).fill("orders")
    page.get_by_label("Type of amount").fill("doubel")
    page.get_by_role("alert").get_by_text("doubel", exact=False).first.wait_for()
    assert page.get_by_role("button", name="Make the stream").is_disabled()
    look.sound()


@pytest.fixture
def cluster() -> Cluster:
    return mock_cluster()


def choose_kafka(page: Page, cluster: Cluster, topic: str) -> None:
    page.get_by_role("group", name="Records come from").get_by_role("button", name="Kafka").click()
    page.get_by_role("textbox", name="Addresses").fill(cluster.bootstrap)
    page.get_by_role("textbox", name="Topic").fill(topic)


def test_a_topic_becomes_a_stream_with_the_columns_of_its_records(look: Look, harbour: Harbour, cluster: Cluster) -> None:
    look.expects("422")
    topic = cluster.topic()
    cluster.send(topic, [Sent(json.dumps({"page": "/a", "ms": 1.5, "_meta": {"x": 1}}).encode(), key=b"ann")])
    page = look.at("/new")
    choose_kafka(page, cluster, topic)
    page.get_by_role("button", name="Find the columns").click()
    # Keys hold one value, which has no name: it is said where columns are, and after it has one all are found.
    page.get_by_role("region", name="Columns").get_by_text("keys hold one value without a name").wait_for()
    page.get_by_role("button", name="Column", exact=True).click()
    page.get_by_label("Name of column 1").fill("visitor")
    page.get_by_label("visitor is part of the key").check()
    page.get_by_role("button", name="Find the columns").click()
    page.get_by_label("Type of ms").wait_for()
    page.get_by_text("_meta").first.wait_for()
    page.get_by_role("textbox", name="Name", exact=True).fill("clicks")
    page.get_by_text("KAFKA_TOPIC").wait_for()
    look.sound()
    statement = page.locator("pre[aria-label=Statement]").inner_text()
    definition = made(look)
    assert definition["columns"] == {"visitor": "string", "page": "string", "ms": "double"}
    assert (definition["key"], definition["connector"]["value"]["format"]) == (["visitor"], "json")
    (result,) = harbour.http.post("/v1/statements", params={"validate": True}, json={"sql": statement}).json()["results"]
    assert result["definition"] == definition
    page.get_by_role("button", name="Make the stream").click()
    page.get_by_text(f"Its records are in the topic {topic}").wait_for()
    assert harbour.get("/v1/streams/clicks")["definition"] == definition
    assert harbour.http.delete("/v1/streams/clicks").status_code == 204
    look.sound()


def test_change_events_become_a_table_with_their_own_key(look: Look, harbour: Harbour, cluster: Cluster) -> None:
    topic = cluster.topic()
    event = {
        "before": None,
        "after": {"id": 7, "status": "new"},
        "source": {"connector": "postgresql", "ts_us": 1_700_000_000_000_000, "lsn": 1, "schema": "public", "table": "orders"},
        "op": "c",
    }
    cluster.send(topic, [Sent(json.dumps(event).encode(), key=b'{"id": 7}')])
    page = look.at("/new")
    page.get_by_role("button", name="Table", exact=True).click()
    choose_kafka(page, cluster, topic)
    page.get_by_role("combobox", name="Values are written as").select_option("debezium")
    assert page.get_by_role("combobox", name="Keys are written as").count() == 0, "they are in the events"
    page.get_by_role("button", name="Find the columns").click()
    page.get_by_label("Type of status").wait_for()
    assert page.get_by_label("id is part of the key").is_checked()
    page.get_by_role("textbox", name="Name", exact=True).fill("orders")
    page.get_by_text("The service would take it as it is.").wait_for()
    look.sound()
    definition = made(look)
    page.get_by_role("button", name="Make the table").click()
    page.get_by_role("heading", name="orders").wait_for()
    assert harbour.get("/v1/tables/orders")["definition"] == definition
    assert definition["connector"]["value"]["format"] == "debezium"
    assert harbour.http.delete("/v1/tables/orders").status_code == 204


def test_what_a_broker_refuses_stands_at_its_field(look: Look) -> None:
    look.expects("422", "503")
    page = look.at("/new")
    page.get_by_role("group", name="Records come from").get_by_role("button", name="Kafka").click()
    page.get_by_role("button", name="Column", exact=True).click()
    page.get_by_label("Name of column 1").fill("page")
    page.get_by_role("textbox", name="Name", exact=True).fill("clicks")
    broker = page.locator(".field").filter(has=page.get_by_label("Addresses"))
    broker.get_by_text("Where is the broker?").wait_for()
    page.get_by_role("textbox", name="Topic").fill("clicks")
    page.get_by_role("textbox", name="Addresses").fill("localhost")
    broker.get_by_text("write host:port").wait_for()
    page.get_by_role("textbox", name="Addresses").fill("127.0.0.1:1")
    broker.get_by_text("no broker can be reached").wait_for()
    assert page.get_by_role("textbox", name="Addresses").get_attribute("aria-invalid") == "true"
    assert page.get_by_role("button", name="Make the stream").is_disabled()
    look.sound()


def test_a_directory_outside_of_the_root_is_refused_at_its_field(look: Look) -> None:
    look.expects("422")
    page = look.at("/new")
    page.get_by_role("group", name="Records come from").get_by_role("button", name="Files").click()
    page.get_by_role("textbox", name="Directory").fill("/etc")
    page.get_by_role("button", name="Find the columns").click()
    page.locator(".field .fault", has_text="SLACKWATER_FILES_ROOT").wait_for()
    look.sound()


def test_results_by_window_are_made_as_they_are_shown(look: Look, harbour: Harbour) -> None:
    page = look.at("/new?what=query")
    page.get_by_role("combobox", name="From").select_option("departures")
    page.get_by_role("textbox", name="Only where").fill("delay > 15")
    page.get_by_role("button", name="Add").click()
    page.get_by_text("The service would take it").wait_for()
    page.get_by_text("window_start timestamp").wait_for()
    assert "EMIT FINAL" in page.locator("pre[aria-label=Statement]").inner_text()
    look.sound()
    wanted = made(look)
    assert (wanted["group_by"], wanted["where"], wanted["suppress"]) == (
        ["origin"],
        "delay > 15",
        {"mode": "until_window_closes"},
    )
    page.get_by_role("button", name="Make the query").click()
    page.get_by_role("heading", name="departures_by_origin").wait_for()
    stored = harbour.get("/v1/queries/departures_by_origin")["definition"]
    for part in ("group_by", "where", "aggregate"):
        assert stored[part] == wanted[part]
    assert stored["window"]["size"] == "1h"
    assert harbour.http.delete("/v1/queries/departures_by_origin").status_code == 204


def test_a_query_that_is_there_is_edited_on_its_own_screen(look: Look) -> None:
    page = look.at("/new?what=query")
    page.get_by_role("combobox", name="From").select_option("departures")
    page.get_by_role("region", name="The result").get_by_role("textbox", name="Name").fill("totals")
    page.get_by_text("There is a query of this name.").wait_for()
    look.sound()
    page.get_by_role("link", name="edit that one").click()
    page.get_by_role("heading", level=1, name="totals").wait_for()
    page.get_by_role("link", name="Edit in SQL").click()
    page.get_by_role("textbox", name="Statements of SQL").get_by_text("CREATE OR REPLACE TABLE").wait_for()
    look.sound()


def test_a_query_begins_where_it_is_told(look: Look) -> None:
    page = look.at("/new?what=query")
    page.get_by_role("combobox", name="From").select_option("departures")
    page.get_by_role("combobox", name="Begins with").select_option("at")
    moment = page.get_by_role("textbox", name="Event time (UTC)")
    moment.fill("noon")
    page.locator(".field .fault").wait_for()
    assert moment.get_attribute("aria-invalid") == "true"
    moment.fill("2013-01-01T12:00:00Z")
    page.get_by_text("The service would take it").wait_for()
    assert made(look)["start"] == {"at": "2013-01-01T12:00:00Z"}
    look.sound()


def test_a_wrong_expression_is_marked_at_its_field(look: Look) -> None:
    page = look.at("/new?what=query")
    page.get_by_role("combobox", name="From").select_option("departures")
    field = page.get_by_role("textbox", name="Only where")
    field.fill("dela > 15")
    page.locator(".fault", has_text="delay").wait_for()
    assert field.get_attribute("aria-invalid") == "true"
    assert page.get_by_role("button", name="Make the query").is_disabled()
    field.fill("delay > 15")
    page.get_by_text("The service would take it").wait_for()
    look.sound()


def test_a_join_is_suggested_by_equal_names(look: Look, harbour: Harbour) -> None:
    page = look.at("/new?what=query")
    page.get_by_text("Join with a table").click()
    page.get_by_text("Choose the table that each record meets.").wait_for()
    page.get_by_role("combobox", name="From").select_option("departures")
    page.get_by_role("combobox", name="Table").select_option("weather")
    assert page.get_by_role("textbox", name="On", exact=True).input_value() == "departures.origin = weather.origin"
    page.get_by_role("textbox", name="Waits for late rows").fill("3d")
    (problem,) = harbour.post("/v1/validations", {**made(look), "name": "x", "into": {"stream": "x"}})["problems"]
    assert problem["code"] == "grace_exceeds_history_retention"
    page.locator(".fault").wait_for()
    assert page.locator(".fault").inner_text() == problem["detail"].replace("`", "")
    page.get_by_role("textbox", name="Waits for late rows").fill("1h")
    page.get_by_role("region", name="Columns of the result").get_by_role("button", name="Add").click()
    page.get_by_role("region", name="Columns of the result").get_by_role("button", name="Add").click()
    page.get_by_text("The service would take it").wait_for()
    assert made(look)["select"] == {"origin": "departures.origin", "flight": "departures.flight"}
    look.sound()


def test_without_any_source_a_query_says_to_make_one(looking: Opening, harbour: Harbour) -> None:
    look = looking(harbour)
    for path in ("streams", "tables"):
        look.page.route(f"**/v1/{path}?*", lambda route: route.fulfill(json={"items": [], "next": None}))
    page = look.at("/new?what=query")
    page.get_by_role("button", name="Make a source").click()
    page.get_by_label("Sample of records").wait_for()
    look.sound()


@pytest.mark.parametrize("width", [390, 820, 1600])
def test_both_forms_fit_every_width_in_the_dark(width: int, looking: Opening, harbour: Harbour) -> None:
    look = looking(harbour, width=width, color_scheme="dark")
    look.at("/new").get_by_label("Sample of records").fill(SAMPLE)
    look.sound()
    look.at("/new?what=query").get_by_text("The service would take it").wait_for()
    look.sound()
