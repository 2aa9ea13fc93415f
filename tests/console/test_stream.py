"""The screen of a stream: records by offset, what was refused, records from a text or a file, and as they come."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.conftest import RECORD
from tests.console.conftest import Look, Opening
from tests.console.harbour import Harbour
from tests.console.shore import strew
from tests.console.test_table import shown

ORDERS = {
    "key": ["id"],
    "columns": {"id": "string", "item": "string", "amount": "double", "made_at": "timestamp"},
    "event_time": "made_at",
    "connector": {"type": "log", "partitions": 1},
}
LINE = '{{"id": "{}", "item": "cup", "amount": {}, "made_at": "2024-03-02T10:00:00Z"}}'


@pytest.fixture(scope="module")
def harbour(empty_harbour: Harbour) -> Harbour:
    strew(empty_harbour)
    return empty_harbour


@pytest.fixture
def orders(harbour: Harbour) -> None:
    """An empty stream."""
    harbour.http.delete("/v1/streams/orders")
    assert harbour.http.put("/v1/streams/orders", json=ORDERS).status_code == 201


def offsets(look: Look, name: str) -> list[int]:
    return [int(row[0]) for row in shown(look, f"Records of {name}")]


def test_the_newest_records_of_all_partitions_stand_together(look: Look, harbour: Harbour) -> None:
    page = look.at("/streams/departures")
    page.get_by_role("heading", name="The newest 200 of 460 records").wait_for()
    assert page.get_by_label("Partition").input_value() == "all"
    rows = shown(look, "Records of departures")
    known = {
        (str(partition), str(each["$offset"]), str(each["flight"]))
        for partition in range(2)
        for each in harbour.get("/v1/streams/departures/records", partition=partition, limit=1_000)["records"]
    }
    assert {(row[0], row[1], row[4]) for row in rows} <= known
    assert page.get_by_role("button", name="Older").count() == 0, "offsets count within a partition"
    look.sound()


def test_a_record_in_another_partition_than_the_first_is_seen(look: Look, harbour: Harbour) -> None:
    wide = {**ORDERS, "connector": {"type": "log", "partitions": 4}}
    harbour.http.delete("/v1/streams/spread")
    assert harbour.http.put("/v1/streams/spread", json=wide).status_code == 201
    for number in range(20):
        record = {"id": str(number), "item": "cup", "amount": 1.5, "made_at": "2024-03-02T10:00:00Z"}
        [part] = harbour.post("/v1/streams/spread/records", [record])["offsets"]
        if part["partition"] != 0:
            break
    page = look.at("/streams/spread")
    assert str(number) in {row[3] for row in shown(look, "Records of spread")}
    page.get_by_label("Partition").select_option(str(part["partition"]))
    page.get_by_text("The newest of 1, newest first").wait_for()
    look.sound()


def test_the_newest_records_are_those_of_the_api(look: Look, harbour: Harbour) -> None:
    page = look.at("/streams/departures?partition=0")
    end = harbour.get("/v1/streams/departures/records", partition=0, limit=1)["end_offset"]
    records = harbour.get("/v1/streams/departures/records", partition=0, offset=max(0, end - 200), limit=200)["records"]
    rows = shown(look, "Records of departures")
    newest = [[str(each["$offset"]), each["origin"], str(each["flight"])] for each in reversed(records)]
    assert [[row[0], row[2], row[3]] for row in rows] == newest[: len(rows)]
    assert page.get_by_text(f"The newest of {end}").is_visible()
    assert page.get_by_role("link", name="Guide").get_attribute("href") == "/guide/reference/http/records/"
    look.sound()


def test_one_goes_back_to_the_oldest_record_and_to_any_offset(look: Look, harbour: Harbour) -> None:
    page = look.at("/streams/departures?partition=0")
    end = harbour.get("/v1/streams/departures/records", partition=0, limit=1)["end_offset"]
    shown(look, "Records of departures")
    page.get_by_role("button", name="Oldest").click()
    page.get_by_role("heading", name="Offsets 0 to").wait_for()
    assert offsets(look, "departures")[0] == 0
    assert page.get_by_role("button", name="Older").is_disabled()
    page.get_by_role("textbox", name="Go to offset").fill("17")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Offsets 17 to").wait_for()
    assert "offset=17" in page.url, "a link leads there"
    page.get_by_label("Partition").select_option("1")
    page.get_by_text("The newest of").wait_for()
    assert harbour.get("/v1/streams/departures/records", partition=1, limit=1)["end_offset"] + end == 460
    look.sound()


def test_rejects_are_counted_by_reason_as_the_api_does(look: Look, harbour: Harbour) -> None:
    page = look.at("/streams/departures?tab=rejects")
    kept = harbour.get("/v1/streams/departures/rejects")["kept"]
    reasons = page.get_by_role("group", name="Reason")
    reasons.get_by_role("button", name=f"All {sum(kept.values())}").wait_for()
    for reason, number in kept.items():
        reasons.get_by_role("button", name=f"{reason.replace('_', ' ')} {number}").wait_for()
    reasons.get_by_role("button", name="event time missing").click()
    listed = harbour.get("/v1/streams/departures/rejects", reason="event_time_missing")["items"]
    page.get_by_role("cell", name=listed[0]["excerpt"]).wait_for()
    page.wait_for_function("count => document.querySelectorAll('tbody tr').length === count", arg=len(listed))
    look.sound()


@pytest.mark.usefixtures("orders")
def test_pasted_lines_are_looked_at_and_appended(look: Look, harbour: Harbour) -> None:
    page = look.at("/streams/orders?tab=append")
    page.get_by_label("Records", exact=True).fill("\n".join([LINE.format(1, 2.5), LINE.format(2, '"much"'), "{oops"]))
    page.get_by_text("Line 3:").wait_for()
    assert [row[0] for row in shown(look, "Records to append")] == ["1", "2"]
    look.sound()
    page.get_by_role("button", name="Append 2 records").click()
    page.get_by_text("1 record appended, 1 refused").wait_for()
    page.get_by_text("Record 2: wrong type").wait_for()
    assert [each["amount"] for each in harbour.get("/v1/streams/orders/records")["records"]] == [2.5]
    page.get_by_role("tab", name="Rejects").click()
    page.get_by_role("cell", name="wrong type").wait_for()
    look.sound()


@pytest.mark.usefixtures("orders")
def test_a_file_of_csv_is_appended(look: Look, harbour: Harbour, tmp_path: Path) -> None:
    lines = [f"{number},pot,{number / 2},2024-03-02T10:00:00Z" for number in range(2_500)]
    file = tmp_path / "orders.csv"
    file.write_text("\n".join(["id,item,amount,made_at", *lines]))
    look.expects("422")
    page = look.at("/streams/orders?tab=append")
    page.get_by_label("File of records").set_input_files(file)
    page.get_by_text("CSV: 2,500 records, 4 columns").wait_for()
    page.get_by_role("button", name="Append 2,500 records").click()
    page.get_by_text("2,500 records appended").wait_for()
    found = harbour.get("/v1/streams/orders/records", limit=5_000)["records"]
    assert [each["amount"] for each in found] == [number / 2 for number in range(2_500)]
    look.sound()


@pytest.mark.usefixtures("orders")
def test_records_appear_as_they_come(look: Look, harbour: Harbour) -> None:
    page = look.at("/streams/orders?tab=live")
    page.get_by_role("heading", name="No record since this page was opened").wait_for()
    page.get_by_text("following").wait_for()
    harbour.post("/v1/streams/orders/records", [{"id": "7", "item": "tea", "amount": 1.5, "made_at": "2024-03-02T10:00:00Z"}])
    page.get_by_text("1 record since this page was opened").wait_for()
    assert shown(look, "Records, newest first") == [["2024-03-02 10:00:00", "7", "tea", "1.5", "2024-03-02 10:00:00"]]
    look.sound()


@pytest.mark.usefixtures("orders")
def test_a_stream_without_records_says_how_to_append_and_can_be_deleted(look: Look, harbour: Harbour) -> None:
    page = look.at("/streams/orders")
    page.get_by_role("heading", name="There is no record yet").wait_for()
    page.get_by_role("tab", name="About").click()
    page.get_by_role("button", name="Delete orders").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete it with its records").click()
    page.get_by_text("orders is deleted").wait_for()
    assert harbour.http.get("/v1/streams/orders").status_code == 404
    look.sound()


def test_a_record_is_read_as_a_whole(look: Look) -> None:
    page = look.at("/streams/departures?offset=0")
    shown(look, "Records of departures")
    page.get_by_role("row").nth(1).click()
    text = page.get_by_role("dialog", name="Offset 0").get_by_label("Record").inner_text()
    assert '"$offset": 0' in text
    assert str(RECORD["departed_at"]) in text
    look.sound()


@pytest.mark.parametrize("width", [390, 820, 1600])
def test_every_part_fits_every_width(width: int, looking: Opening, harbour: Harbour) -> None:
    look = looking(harbour, width=width)
    for tab in ("records", "live", "rejects", "append", "about"):
        look.at(f"/streams/departures?tab={tab}")
        look.sound()
