"""The screen System for an administrator, and all screens for keys that may do less: what one may not do is not offered."""

from __future__ import annotations

import json
import re

import httpx
import psycopg
import pytest
from pydantic import SecretStr

from app.access.rules import make_key
from app.settings.settings import Settings
from tests.api.conftest import TABLE
from tests.console.conftest import Look, Opening
from tests.console.harbour import Harbour
from tests.console.shore import strew

DRIVER = "0193f1d2-7c1e-7000-8000-3f0c7c9d2b11"
KEYS: dict[str, str] = {}


@pytest.fixture(scope="module")
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"auth": "on", "secret_key": SecretStr("k" * 32)})


@pytest.fixture(scope="module")
def harbour(empty_harbour: Harbour) -> Harbour:
    with psycopg.connect(empty_harbour.dsn, autocommit=True) as connection:
        for role in ("read", "write", "admin"):
            made = make_key()
            connection.execute(
                "INSERT INTO slackwater.api_key (id, name, prefix, digest, role) VALUES (gen_random_uuid(), %s, %s, %s, %s)",
                (f"my-{role}", made.prefix, made.digest, role),
            )
            KEYS[role] = made.text
    empty_harbour.http.headers["authorization"] = f"Bearer {KEYS['admin']}"
    strew(empty_harbour)
    return empty_harbour


def as_role(looking: Opening, harbour: Harbour, role: str, **options: object) -> Look:
    look = looking(harbour, **options)
    look.page.add_init_script(f"sessionStorage.setItem('slackwater.key', {json.dumps(KEYS[role])})")
    return look


@pytest.fixture
def admin(looking: Opening, harbour: Harbour) -> Look:
    return as_role(looking, harbour, "admin")


def test_health_says_what_the_probe_says(admin: Look, harbour: Harbour) -> None:
    page = admin.at("/system")
    checks = harbour.get("/readyz")["checks"]
    facts = page.get_by_role("region", name="Readiness")
    facts.get_by_text(checks["schema"]).wait_for()
    assert facts.get_by_text("none").is_visible(), "the driver"
    page.get_by_text(harbour.get("/v1/version")["version"]).wait_for()
    assert page.get_by_text("No driver is there, so no query runs.").is_visible()
    admin.sound()


def test_without_a_driver_it_says_what_starts_one(admin: Look, harbour: Harbour) -> None:
    harbour.execute("DELETE FROM slackwater.driver")
    page = admin.at("/system?tab=drivers")
    page.get_by_role("heading", name="There is no driver").wait_for()
    admin.sound()


def test_drivers_show_their_queries_and_what_carries_them(admin: Look, harbour: Harbour) -> None:
    harbour.execute(
        "INSERT INTO slackwater.driver (id, host, pid, create_time, started_at, heartbeat_at, phase, detail) VALUES "
        "(%s, 'worker-1', 4711, 1.5, now(), now(), 'ready', '{\"max_queries\": 100}')",
        DRIVER,
    )
    harbour.execute(
        "UPDATE slackwater.query_status s SET lease_owner = %s, lease_expires_at = now() + interval '1 hour' FROM slackwater.query q "
        "WHERE q.id = s.query_id AND q.name = 'totals'",
        DRIVER,
    )
    harbour.detail("totals", execution={"is_shared": False, "moves": 1, "cpu_share": 0.25, "largest_batch": 12_000})
    page = admin.at("/system?tab=drivers")
    row = admin.row("totals")
    row.wait_for()
    (query,) = harbour.get("/v1/drivers")["drivers"][0]["queries"]
    assert row.get_by_role("cell").all_inner_texts()[1:5] == [query["state"], query["execution"]["mode"], "25.0 %", "12K"]
    assert page.get_by_text("1 of at most 100").is_visible()
    harbour.execute("UPDATE slackwater.driver SET heartbeat_at = now() - interval '1 hour'")
    page.get_by_text("It has not been heard of for longer than a lease lasts").wait_for()
    admin.sound()


def test_a_connection_is_made_tried_and_deleted(admin: Look, harbour: Harbour) -> None:
    page = admin.at("/system?tab=connections")
    page.get_by_role("button", name="Make a connection").click()
    dialog = page.get_by_role("dialog", name="A new connection")
    dialog.get_by_role("textbox", name="Name").fill("shop")
    dialog.get_by_role("combobox", name="Kind").select_option("postgres")
    definition = {
        "type": "postgres",
        "host": "127.0.0.1",
        "port": 1,
        "database": "shop",
        "username": "u",
        "password": "of-the-shop",
    }
    dialog.get_by_role("textbox", name="Definition").fill(json.dumps(definition))
    admin.sound()
    dialog.get_by_role("button", name="Keep it").click()
    page.get_by_role("button", name="Try it").click()
    page.get_by_text("Not reached:").wait_for()
    text = page.locator("pre[aria-label='Definition of shop']").inner_text()
    assert json.loads(text) == harbour.get("/v1/connections/shop")["definition"]
    assert "of-the-shop" not in page.content()
    admin.sound()
    page.get_by_role("button", name="Delete shop").click()
    page.get_by_role("button", name="Delete it with its secrets").click()
    page.get_by_role("heading", name="There is no connection").wait_for()


def test_a_connection_is_replaced_with_all_of_its_secrets(admin: Look, harbour: Harbour) -> None:
    kept = {"type": "postgres", "host": "127.0.0.1", "port": 1, "database": "shop", "username": "u", "password": "of-the-depot"}
    depot = "/v1/connections/depot"
    assert harbour.http.put(depot, json=kept).status_code == 201
    admin.expects("422", "412")
    page = admin.at("/system?tab=connections")
    page.get_by_role("button", name="Replace depot").click()
    dialog = page.get_by_role("dialog", name="Replace depot")
    written = dialog.get_by_role("textbox", name="Definition")
    definition = json.loads(written.input_value())
    assert definition == {**harbour.get(depot)["definition"], "password": ""}
    admin.sound()
    dialog.get_by_role("button", name="Replace it").click()
    dialog.get_by_role("alert").get_by_text("password").first.wait_for()
    assert harbour.get(depot)["version"] == 1, "without its secret it is not replaced"
    written.fill(json.dumps({**definition, "port": 2, "password": "another-one"}))
    dialog.get_by_role("button", name="Replace it").click()
    dialog.wait_for(state="detached")
    after = harbour.get(depot)
    assert (after["definition"]["port"], after["version"]) == (2, 2)
    page.get_by_text("version 2").wait_for()
    page.get_by_role("button", name="Replace depot").click()
    assert harbour.http.put(depot, json={**kept, "port": 3}).status_code == 200
    written.fill(json.dumps({**definition, "port": 4, "password": "another-one"}))
    dialog.get_by_role("button", name="Replace it").click()
    dialog.get_by_text("version_mismatch").wait_for()
    assert harbour.get(depot)["definition"]["port"] == 3, "what somebody else has written meanwhile stays"
    assert harbour.http.delete(depot).status_code == 204
    admin.sound()


def test_a_wrong_connection_says_what_is_wrong(admin: Look) -> None:
    admin.expects("422")
    page = admin.at("/system?tab=connections")
    page.get_by_role("button", name="Make a connection").click()
    dialog = page.get_by_role("dialog", name="A new connection")
    dialog.get_by_role("textbox", name="Name").fill("shop")
    dialog.get_by_role("textbox", name="Definition").fill("{")
    dialog.get_by_role("button", name="Keep it").click()
    dialog.get_by_text("The definition is not JSON").wait_for()
    dialog.get_by_role("textbox", name="Definition").fill('{"type": "kafka"}')
    dialog.get_by_role("button", name="Keep it").click()
    dialog.get_by_role("alert").get_by_text("bootstrap").first.wait_for()
    admin.sound()


def test_a_key_is_made_shown_once_and_revoked(admin: Look, harbour: Harbour) -> None:
    page = admin.at("/system?tab=keys")
    page.get_by_role("button", name="Key", exact=True).click()
    dialog = page.get_by_role("dialog", name="A new key")
    dialog.get_by_role("textbox", name=re.compile("^Name:")).fill("dashboard")
    dialog.get_by_role("textbox", name="Names that it sees").fill("totals depart*")
    dialog.get_by_role("button", name="Make it").click()
    text = page.get_by_role("dialog", name="The key dashboard").locator("code").inner_text()
    me = httpx.get(f"{harbour.url}/v1/me", headers={"authorization": f"Bearer {text}"}).json()
    assert (me["role"], me["scope"]) == ("read", ["totals", "depart*"])
    admin.sound()
    page.get_by_role("button", name="I have it").click()
    assert text not in page.content()
    row = page.get_by_role("row").filter(has_text="dashboard")
    row.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke it").click()
    row.get_by_text("revoked").wait_for()
    (key,) = [each for each in harbour.get("/v1/api-keys")["items"] if each["name"] == "dashboard"]
    assert key["revoked_at"] is not None
    admin.sound()


def test_the_audit_log_shows_who_changed_what(admin: Look, harbour: Harbour) -> None:
    assert harbour.http.put("/v1/tables/spare", json=TABLE).status_code == 201
    edited = {**TABLE, "versioned": {"history_retention": "3d"}}
    assert harbour.http.put("/v1/tables/spare", json=edited).status_code == 200
    page = admin.at("/system?tab=audit")
    page.get_by_role("searchbox", name="What").fill("spare")
    (entry, *_) = harbour.get("/v1/audit", resource="spare")["items"]
    row = page.get_by_role("row").filter(has_text="replace").first
    row.wait_for()
    assert [cell.split("\n")[0].strip() for cell in row.get_by_role("cell").all_inner_texts()[1:4]] == [
        "my-admin api key", "replace", "spare table",
    ]  # fmt: skip
    page.get_by_role("button", name=f"Show entry {entry['id']}").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("/definition/versioned/history_retention").wait_for()
    assert dialog.get_by_text('"3d"').is_visible()
    admin.sound()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Refused").click()
    page.get_by_role("heading", name="There is no such entry").wait_for()


def test_settings_are_those_in_force(admin: Look, harbour: Harbour) -> None:
    page = admin.at("/system?tab=settings")
    all_of_them = harbour.get("/v1/settings")["settings"]
    page.get_by_text(f"{len(all_of_them)} settings").wait_for()
    page.get_by_role("searchbox", name="Find a setting").fill("max_queries")
    (setting,) = [each for each in all_of_them if each["name"] == "driver.max_queries"]
    cells = page.get_by_role("row").nth(1).get_by_role("cell").all_inner_texts()
    assert cells == [setting["name"], setting["value"], setting["origin"], setting["variable"]]
    page.get_by_role("searchbox", name="Find a setting").fill("")
    page.get_by_role("button", name="Set by you").click()
    changed = [each for each in all_of_them if each["origin"] != "default"]
    page.get_by_text(f"{len(changed)} setting").wait_for()
    assert "k" * 32 not in page.content()
    admin.sound()


def test_who_only_reads_is_offered_nothing_that_changes(looking: Opening, harbour: Harbour) -> None:
    look = as_role(looking, harbour, "read")
    page = look.at("/system")
    assert [tab.inner_text() for tab in page.get_by_role("tab").all()] == ["Health", "Drivers", "Connections"]
    assert page.get_by_role("link", name="New").count() == 0
    look.sound()
    page = look.at("/streams/departures")
    page.get_by_role("table").wait_for()
    assert [tab.inner_text() for tab in page.get_by_role("tab").all()] == ["Records", "Live", "Rejects", "About"]
    page.get_by_role("tab", name="About").click()
    page.get_by_role("region", name="Columns").wait_for()
    assert page.get_by_role("button", name="Delete").count() == 0
    page = look.at("/queries/totals?tab=definition")
    page.get_by_label("The definition as SQL").wait_for()
    assert page.get_by_role("link", name="Edit in SQL").count() == 0
    page = look.at("/new")
    page.get_by_role("heading", name="This screen is for keys of the role write").wait_for()
    look.sound()


def test_who_only_reads_is_told_why_a_statement_is_refused(looking: Opening, harbour: Harbour) -> None:
    look = as_role(looking, harbour, "read")
    look.expects("403")
    page = look.at("/sql?sql=DROP%20TABLE%20totals%3B")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("alert").get_by_text("role write").first.wait_for()
    assert harbour.http.get("/v1/tables/totals").status_code == 200
    look.sound()


def test_who_writes_sees_no_keys_and_no_audit_log(looking: Opening, harbour: Harbour) -> None:
    look = as_role(looking, harbour, "write")
    page = look.at("/system?tab=audit")
    assert [tab.inner_text() for tab in page.get_by_role("tab").all()] == ["Health", "Drivers", "Connections"]
    look.at("/new").get_by_label("Sample of records").wait_for()
    look.sound()


@pytest.mark.parametrize("width", [390, 820, 1600])
def test_every_part_fits_every_width_in_the_dark(width: int, looking: Opening, harbour: Harbour) -> None:
    look = as_role(looking, harbour, "admin", width=width, color_scheme="dark")
    for tab in ("health", "drivers", "connections", "keys", "audit", "settings"):
        look.at(f"/system?tab={tab}")
        for skeleton in look.page.get_by_role("status", name="Loading").all():
            skeleton.wait_for(state="detached")
        look.sound()
