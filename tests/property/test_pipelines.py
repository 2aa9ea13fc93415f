"""P1–P4: a pipeline gives what the same queries give over one merge of the sources, however they are cut, paused and restarted."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.testing.workbench import Workbench
from tests.property.pipelines import World, emitted, tables, worlds


def whole(world: World) -> Workbench:
    """Let every query read everything at once, one after the other."""
    bench = world.bench()
    bench.process(world.frames())
    return bench


def cut(world: World, data: st.DataObject) -> Workbench:
    """Let queries read in any turn, a little at a time; some wait for long, some are restarted."""
    bench = world.bench()
    bench.append(world.frames())
    while waiting := [query for query in bench.queries if bench.has_unread(query)]:
        query = data.draw(st.sampled_from(waiting))
        bench.read(query, max_rows=data.draw(st.sampled_from([1, 5, 20])))
        if data.draw(st.integers(0, 9)) == 0:
            bench.restart_query(query)
        if all(bench.read(each, max_rows=1) is None for each in waiting) and not _is_moving(bench):
            break
    return bench


def _is_moving(bench: Workbench) -> bool:
    return any(bench.has_unread(query) for query in bench.queries)


@given(worlds(), st.data())
def test_cuts_pauses_and_restarts_of_any_query_change_nothing(world: World, data: st.DataObject) -> None:
    expected: dict[str, Any] = emitted(whole(world))
    assert emitted(cut(world, data)) == expected


def test_every_result_is_made_somewhere() -> None:
    """The strategy reaches every template, or the test above shows little."""
    seen: set[str] = set()

    @given(worlds())
    def look(world: World) -> None:
        seen.update(
            kind
            for query, kind in ((query["name"], str(query.get("window", query.get("joins", "")))[:20]) for query in world.queries)
        )
        tables(whole(world))

    look()
    assert len(seen) > 5
