"""P1–P9: a pipeline gives what the same queries give over one merge of the sources, however they are cut, paused and restarted."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from app.testing.machines.workbench import Workbench
from tests.examples import examples
from tests.property.pipelines import MAX_TASKS, TEMPLATES, World, emitted, late, worlds


def whole(world: World) -> Workbench:
    """Let every query read everything at once, one after the other."""
    bench = world.bench()
    bench.process(world.frames())
    return bench


def cut(world: World, seed: int, *, changes_tasks: bool = False) -> Workbench:
    """Let queries read in any turn, a little at a time; some wait for long, some are restarted."""
    chance = random.Random(seed)
    bench = world.bench()
    bench.append(world.frames())
    while waiting := [query for query in bench.queries if bench.has_unread(query)]:
        query = chance.choice(waiting)
        for _ in range(chance.choice([1, 1, 4])):
            bench.read(query, max_rows=chance.choice([1, 5, 20]))
        if chance.random() < 0.1:
            bench.restart_query(query, chance.randint(1, MAX_TASKS) if changes_tasks else None)
    return bench


@settings(max_examples=examples(50))
@given(worlds(), st.integers(0, 2**32))
def test_cuts_pauses_and_restarts_of_any_query_change_nothing(world: World, seed: int) -> None:
    expected, found = whole(world), cut(world, seed)
    assert emitted(found) == emitted(expected)
    assert late(found) == late(expected)


@settings(max_examples=examples(50))
@given(worlds(), st.integers(0, 2**32))
def test_neither_does_the_number_of_tasks_of_any_query_at_any_time(world: World, seed: int) -> None:
    """P4: rows, their numbers, and late rows."""
    alone = whole(World(world.partitions, world.records, [{**query, "tasks": 1} for query in world.queries]))
    changed = cut(world, seed, changes_tasks=True)
    assert emitted(changed) == emitted(alone)
    assert late(changed) == late(alone)


def test_every_template_is_drawn() -> None:
    """The strategy reaches every kind of query, or the tests above show little."""
    seen: set[str] = set()

    @settings(max_examples=500, database=None, derandomize=True)  # the same in each run, however many examples others draw
    @given(worlds())
    def look(world: World) -> None:
        for query in world.queries:
            parts = ("window", "joins", "where", "group_by")
            is_near = any("within" in join for join in query.get("joins", ()))
            seen.add(f"{next(iter(query['from']))} {[part for part in parts if part in query]} {is_near}")

    look()
    assert len(seen) >= len(TEMPLATES) - 2
