"""A service in which nothing is yet says what to do first."""

from __future__ import annotations

from tests.console.conftest import Opening
from tests.console.harbour import Harbour


def test_without_queries_the_overview_says_what_a_query_is(looking: Opening, empty_harbour: Harbour) -> None:
    look = looking(empty_harbour)
    page = look.at("/")
    page.get_by_role("heading", name="No queries yet").wait_for()
    look.sound()


def test_the_page_asks_nobody_but_the_service(looking: Opening, empty_harbour: Harbour) -> None:
    look = looking(empty_harbour)
    asked: list[str] = []
    look.page.on("request", lambda request: asked.append(request.url))
    look.at("/").get_by_role("heading", name="No queries yet").wait_for()
    assert len(asked) > 4
    assert [url for url in asked if not url.startswith(f"{empty_harbour.url}/")] == []
    look.sound()
