"""Signing in with a key, what each role is offered, and what a scope leaves out."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from app.access.rules import make_key
from app.settings.settings import Settings
from tests.console.conftest import Look, Opening
from tests.console.harbour import Harbour, fill

Keys = Callable[..., str]


@pytest.fixture(scope="module")
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"auth": "on"})


@pytest.fixture(scope="module")
def keys(dsn: str) -> Keys:
    """Make a key of a role, perhaps with a scope."""

    def made(role: str, *scope: str) -> str:
        key = make_key()
        with psycopg.connect(dsn) as connection:
            connection.execute(
                "INSERT INTO slackwater.api_key (id, name, prefix, digest, role, scope) VALUES (gen_random_uuid(), %s, %s, %s, %s, %s)",
                (f"{role}-{key.prefix[-8:].lower()}", key.prefix, key.digest, role, list(scope) or None),
            )
        return key.text

    return made


@pytest.fixture(scope="module")
def harbour(empty_harbour: Harbour, keys: Keys) -> Harbour:
    empty_harbour.http.headers["authorization"] = f"Bearer {keys('admin')}"
    fill(empty_harbour)
    return empty_harbour


def sign_in(look: Look, key: str) -> None:
    look.expects("401")
    page = look.at("/")
    page.get_by_label("API key or token").fill(key)
    page.get_by_role("button", name="Sign in").click()


def test_a_key_that_does_not_count_is_refused_with_the_reason(look: Look) -> None:
    sign_in(look, "sw_nonsense")
    look.page.get_by_role("alert").wait_for()
    assert look.page.evaluate("sessionStorage.length") == 0
    look.sound()


def test_who_reads_is_offered_no_change(look: Look, keys: Keys) -> None:
    sign_in(look, keys("read"))
    look.row("joined").wait_for()
    assert look.page.get_by_role("button", name="Restart").count() == 0
    look.row("joined").get_by_role("link", name="joined", exact=True).first.click()
    look.page.get_by_role("tab", name="Now").wait_for()
    for name in ("Pause", "Stop", "Restart", "Fork", "Delete"):
        assert look.page.get_by_role("button", name=name).count() == 0, name
    look.page.get_by_role("tab", name="Late records").click()
    look.page.get_by_role("region", name="Late records").locator("tbody tr").first.wait_for()
    assert look.page.get_by_role("button", name="Replay").count() == 0
    look.sound()


def test_who_writes_is_offered_changes(look: Look, keys: Keys) -> None:
    sign_in(look, keys("write"))
    look.row("joined").get_by_role("link", name="joined", exact=True).first.click()
    look.page.get_by_role("button", name="Pause").wait_for()
    look.sound()


def test_a_key_lasts_for_its_tab_until_one_signs_out(look: Look, keys: Keys) -> None:
    sign_in(look, keys("read"))
    look.row("joined").wait_for()
    look.page.reload()
    look.row("joined").wait_for()
    assert look.page.evaluate("localStorage.getItem('slackwater.key')") is None
    for name in ("script", "history"):
        look.page.evaluate("name => localStorage.setItem(name, '[]')", f"slackwater.sql.{name}")
    look.page.get_by_role("button", name="Sign out").click()
    look.page.get_by_label("API key or token").wait_for()
    assert look.page.evaluate("sessionStorage.length") == 0
    assert look.page.evaluate("Object.keys(localStorage).filter(name => name.startsWith('slackwater.sql'))") == []
    look.sound()


def test_a_key_that_is_revoked_meanwhile_asks_for_another(look: Look, harbour: Harbour, keys: Keys) -> None:
    key = keys("read")
    sign_in(look, key)
    look.row("joined").wait_for()
    harbour.execute("UPDATE slackwater.api_key SET revoked_at = now() WHERE prefix = %s", key.rpartition("_")[0])
    look.page.get_by_role("alert").wait_for()
    assert look.page.get_by_label("API key or token").is_visible()
    look.sound()


def test_a_scope_leaves_out_what_is_not_within_it(look: Look, keys: Keys) -> None:
    sign_in(look, keys("read", "departures", "delays"))
    look.row("delays").wait_for()
    assert [row.inner_text().split()[0] for row in look.page.get_by_role("row").all()[1:]] == ["delays"]
    look.sound()


def test_an_event_stream_carries_the_key(looking: Opening, harbour: Harbour, keys: Keys) -> None:
    look = looking(harbour)
    sign_in(look, keys("read"))
    look.row("delays").get_by_role("link", name="delays", exact=True).first.click()
    look.page.get_by_role("tab", name="History").click()
    look.page.get_by_role("list", name="Events").get_by_role("listitem").first.wait_for()
    look.page.get_by_text("live", exact=True).wait_for()
    look.sound()
