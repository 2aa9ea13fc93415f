"""Queries in trouble: what is wrong, and what to do, stands where one looks first."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pydantic import SecretStr

from app.settings.settings import Settings
from tests.api.change_writer import ChangeWriter
from tests.api.conftest import RECORD, WINDOWS
from tests.console.conftest import Look, Opening
from tests.console.harbour import AT, Harbour, fill
from tests.console.shore import write

H = 3_600_000
UNREACHED = {"code": "target_unavailable", "detail": "the target does not answer"}
EXACT = 14.960139999999999
"""A double whose shortest text is long."""


@pytest.fixture(scope="module")
def settings(dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    root = tmp_path_factory.mktemp("lake")
    return Settings(database_url=SecretStr(dsn), data_dir=Path(tmp_path_factory.mktemp("data")), delivery_root=root)


@pytest.fixture(scope="module")
def harbour(empty_harbour: Harbour, settings: Settings) -> Harbour:
    """What ``fill`` makes, and `sent`, whose results do not arrive."""
    fill(empty_harbour)
    assert settings.delivery_root is not None
    connector = {"type": "files", "path": str(settings.delivery_root / "sent"), "format": "ndjson"}
    empty_harbour.post("/v1/queries", {**WINDOWS, "name": "sent", "into": {"table": "sent", "connector": connector}})
    with ChangeWriter(empty_harbour.dsn, "sent") as writer:
        row = {"origin": "JFK", "window_start": AT - H, "window_end": AT, "flights": 3, "mean_delay": 1.5}
        writer.commit([("upsert", row, AT)])
    empty_harbour.state("sent", "running")
    undelivered(empty_harbour, is_stopped=False)
    return empty_harbour


def undelivered(harbour: Harbour, *, is_stopped: bool) -> None:
    """Say as a driver that the target takes nothing."""
    harbour.execute(
        "UPDATE slackwater.delivery SET error = %s::jsonb, is_stopped = %s, failures = 3, attempt = 3, "
        "next_attempt_at = now() + interval '40 seconds', lease_expires_at = now() + interval '1 hour'",
        json.dumps({**UNREACHED, "at": "2025-01-01T00:00:00Z"}),
        is_stopped,
    )


def cure(harbour: Harbour, code: str) -> str:
    """Return what the service says that helps."""
    found: str = harbour.get(f"/v1/errors/{code}")["cure"]
    return found.replace("`", "")


def test_a_failed_query_says_what_helps(look: Look, harbour: Harbour) -> None:
    page = look.at("/")
    trouble = page.get_by_role("region", name=re.compile("need attention")).get_by_role("listitem").filter(has_text="broken")
    trouble.get_by_text(cure(harbour, "data_invalid")).wait_for()
    page = look.at("/queries/broken")
    page.get_by_role("alert").get_by_text(cure(harbour, "data_invalid")).wait_for()
    look.sound()


def test_results_that_do_not_arrive_need_attention(look: Look, harbour: Harbour) -> None:
    page = look.at("/")
    trouble = page.get_by_role("region", name=re.compile("need attention")).get_by_role("listitem").filter(has_text="sent")
    trouble.get_by_text("its results are not delivered: 1 row waits for it").wait_for()
    delivery = harbour.get("/v1/queries/sent/status")["delivery"]
    assert delivery["reason"]["detail"] in trouble.inner_text()
    assert delivery["reason"]["cure"].replace("`", "") in trouble.inner_text()
    assert trouble.get_by_role("button", name="Restart").count() == 0, "it is tried again by itself"
    look.sound()
    page = look.at("/queries/sent")
    panels = page.get_by_role("tabpanel").get_by_role("heading", level=2)
    panels.first.wait_for()
    assert panels.first.inner_text() == "Delivery", "what is wrong comes before what is well"
    page.get_by_text("tried again in").wait_for()
    look.sound()


def test_a_stopped_delivery_is_restarted_from_there(look: Look, harbour: Harbour) -> None:
    undelivered(harbour, is_stopped=True)
    page = look.at("/")
    trouble = page.get_by_role("region", name=re.compile("need attention")).get_by_role("listitem").filter(has_text="sent")
    trouble.get_by_role("button", name="Restart").click()
    page.get_by_text("sent is started again.").wait_for()
    assert harbour.get("/v1/queries/sent/status")["delivery"]["state"] != "stopped"
    harbour.state("sent", "running")
    undelivered(harbour, is_stopped=False)
    look.sound()


def test_a_query_that_is_tried_again_keeps_its_reason(look: Look, harbour: Harbour) -> None:
    for state in ("backoff", "starting"):
        harbour.state("delays", state, {"code": "source_unavailable", "detail": "no broker can be reached"})
        page = look.at("/queries/delays")
        page.get_by_text("no broker can be reached").wait_for()
        page.get_by_text(cure(harbour, "source_unavailable")).wait_for()
    look.sound()
    harbour.state("delays", "running")


def test_a_query_that_is_behind_says_whether_it_catches_up(look: Look, harbour: Harbour) -> None:
    page = look.at("/queries/delays")
    lag = sum(part["lag"] for feed in harbour.get("/v1/queries/delays/status")["progress"] for part in feed["partitions"])
    page.get_by_text(f"{lag} records are not read yet. It does not catch up now.").wait_for()
    page.get_by_text("What limits it:").wait_for()
    harbour.post("/v1/streams/departures/records", [RECORD] * 3)
    page.get_by_text(f"{lag + 3} records are not read yet. It falls behind by").wait_for()
    look.sound()
    harbour.state("delays", "paused")
    page.get_by_text("It is paused; ").wait_for()
    harbour.state("delays", "running")


def test_what_waits_says_with_which_record_it_goes_on(look: Look, harbour: Harbour) -> None:
    page = look.at("/queries/joined")
    grace = next(each["current_ms"] for each in harbour.get("/v1/queries/joined/lateness")["settings"] if each["operator"] == "w")
    status = harbour.get("/v1/queries/joined/status", tasks=True)
    tasks = status["tasks"]
    left = min(one["from_ms"] for task in tasks for one in task["waiting"]) + grace - status["clocks"]["w"]
    waiting = sum(task["buffered"] for task in tasks)
    sentence = page.get_by_text(f"{waiting} wait for their grace.")
    sentence.wait_for()
    assert f"{left // 60_000} min of event time" in sentence.inner_text()
    look.sound()


def test_numbers_and_moments_stay_whole_on_a_phone(looking: Opening, harbour: Harbour) -> None:
    levels = {
        "name": "levels",
        "from": {"table": "weather"},
        "select": {"origin": "origin", "temp": "temp"},
        "into": {"table": "levels", "versioned": {"history_retention": "1d"}},
    }
    harbour.post("/v1/queries", levels)
    write(harbour, "levels", [("upsert", {"origin": "EWR", "temp": EXACT}, AT - 6 * H)])
    look = looking(harbour, width=400)
    page = look.at("/tables/levels")
    cell = page.get_by_role("table", name="Rows of levels").get_by_role("cell", name=repr(EXACT))
    cell.wait_for()
    assert cell.evaluate("cell => cell.scrollWidth <= cell.clientWidth"), "the number is cut off"
    moments = page.locator(".time-slider .nowrap")
    assert moments.count() == 2
    assert all(each.evaluate("text => text.getClientRects().length") == 1 for each in moments.all())
    look.sound()
