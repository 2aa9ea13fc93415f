"""A query and its fork: what the fork does otherwise, in what the results differ, and the swap."""

from __future__ import annotations

from typing import Any

import pytest

from app.settings.settings import Settings
from tests.api.committed import commit, emitted
from tests.api.conftest import RECORD, STREAM
from tests.api.test_forks import COUNTS, FEED, begin, rows
from tests.console.conftest import Look, Opening
from tests.console.harbour import Harbour

EDITED: dict[str, Any] = {**COUNTS, "tasks": 2}


@pytest.fixture(scope="module")
def harbour(empty_harbour: Harbour, settings: Settings) -> Harbour:
    """`counts` and its fork `counts_too`: of three airports one has the same number in both, one another, and each has one of its own."""
    harbour = empty_harbour
    assert harbour.http.put("/v1/streams/departures", json=STREAM).status_code == 201
    harbour.post("/v1/streams/departures/records", [RECORD] * 5)
    harbour.post("/v1/queries", COUNTS)
    begin(settings, harbour.dsn, "counts")
    commit(harbour.dsn, "counts", [(0, 0, emitted({}, changes=rows(("BOS", 4, 1_000), ("JFK", 1, 1_000))))], {FEED: {0: 3}})
    harbour.post("/v1/queries/counts/fork", {"name": "counts_too", "definition": EDITED})
    commit(harbour.dsn, "counts", [(0, 0, emitted({}, changes=rows(("JFK", 2, 3_000), ("LGA", 1, 3_000))))], {FEED: {0: 5}})
    commit(harbour.dsn, "counts_too", [(0, 0, emitted({}, changes=rows(("JFK", 9, 3_000), ("EWR", 1, 3_000))))], {FEED: {0: 4}})
    for name in ("counts", "counts_too"):
        harbour.state(name, "running")
    return harbour


def counted(harbour: Harbour, table: str) -> dict[str, int]:
    return {row["origin"]: row["flights"] for row in harbour.get(f"/v1/tables/{table}/rows")["rows"]}


def test_a_fork_shows_in_what_it_differs_from_its_original(look: Look, harbour: Harbour) -> None:
    page = look.at("/queries/counts_too")
    page.get_by_role("link", name="Compare the two").click()
    otherwise = page.get_by_role("region", name="What the fork does otherwise")
    otherwise.get_by_text("/tasks").wait_for()
    changed = otherwise.get_by_role("row").filter(has_text="/tasks").get_by_role("cell").all_inner_texts()
    assert (changed[1], changed[2], changed[3].startswith("repartition")) == ("1", "2", True)
    results = page.get_by_role("region", name="In what their results differ")
    results.get_by_text("3 differences").wait_for()
    original, fork = counted(harbour, "counts"), counted(harbour, "counts_too")
    equal = sum(original[name] == fork.get(name) for name in original)
    assert f"{equal} equal, 1 with other values, 1 only in counts, 1 only in counts_too" in results.inner_text()
    shown = [row.get_by_role("cell").all_inner_texts() for row in results.get_by_role("row").all()[1:]]
    assert sorted(shown) == [
        ["only in the fork", "EWR", "not there", f"flights {fork['EWR']}"],
        ["only in the original", "LGA", f"flights {original['LGA']}", "not there"],
        ["other values", "JFK", f"flights {original['JFK']}", f"flights {fork['JFK']}"],
    ]
    page.get_by_text("counts_too is 1 record behind the other").wait_for()
    look.sound()


def test_results_that_agree_are_said_to(look: Look, harbour: Harbour) -> None:
    harbour.post("/v1/queries/counts/fork", {"name": "counts_same"})
    harbour.state("counts_same", "running")
    page = look.at("/queries/counts?tab=forks")
    page.get_by_role("button", name="counts_same").click()
    page.get_by_text("Nothing: both definitions are the same.").wait_for()
    page.get_by_text("No difference").wait_for()
    look.sound()
    assert harbour.http.delete("/v1/queries/counts_same").is_success


def test_both_fit_a_small_window_in_the_dark(looking: Opening, harbour: Harbour) -> None:
    look = looking(harbour, width=400, color_scheme="dark")
    look.at("/queries/counts_too?tab=forks").get_by_text("3 differences").wait_for()
    look.sound()


def test_a_fork_takes_its_originals_place(look: Look, harbour: Harbour) -> None:
    expected = counted(harbour, "counts_too")
    assert expected != counted(harbour, "counts")
    page = look.at("/queries/counts?tab=forks")
    page.get_by_role("button", name="Put counts_too in the place of counts").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("counts_too is 1 record behind").wait_for()
    look.sound()
    dialog.get_by_role("button", name="Swap").click()
    page.get_by_text("counts goes on as counts_too was.").wait_for()
    assert counted(harbour, "counts") == expected
    assert harbour.http.get("/v1/queries/counts_too").status_code == 404
    page.get_by_role("tab", name="Forks").wait_for(state="detached")
    look.sound()
