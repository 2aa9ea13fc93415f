"""Appends to many feeds wait for each other, and for nobody who cannot come."""

from __future__ import annotations

import asyncio

from app.appends.shared_appends import MANY_FEEDS, VAIN_TURNS, Gathering

LONG_S = 600.0


async def passes_at_once(gathering: Gathering, feed_id: int) -> bool:
    """Whether nobody is waited for."""
    task = asyncio.create_task(gathering.turn(feed_id))
    await asyncio.sleep(0)
    is_done = task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return is_done


async def test_appends_to_few_feeds_wait_for_nobody() -> None:
    gathering = Gathering(LONG_S)
    assert all([await passes_at_once(gathering, number % (MANY_FEEDS - 1)) for number in range(100)])


async def test_appends_to_many_feeds_pass_when_all_who_came_lately_are_there() -> None:
    gathering = Gathering(LONG_S)
    for feed_id in range(MANY_FEEDS - 1):
        await gathering.turn(feed_id)
    turns = [asyncio.create_task(gathering.turn(feed_id)) for feed_id in range(MANY_FEEDS - 1, 0, -1)]
    await asyncio.sleep(0)
    assert not any(turn.done() for turn in turns)
    await asyncio.gather(gathering.turn(0), *turns)


async def test_an_append_that_nobody_joins_passes_after_a_moment() -> None:
    gathering = Gathering(0.001)
    for feed_id in range(MANY_FEEDS - 1):
        await gathering.turn(feed_id)
    assert not await passes_at_once(gathering, MANY_FEEDS)
    await gathering.turn(MANY_FEEDS)


async def test_one_writer_to_many_feeds_in_turn_soon_waits_no_longer() -> None:
    gathering = Gathering(0.001)
    for number in range(MANY_FEEDS - 1 + VAIN_TURNS):
        await gathering.turn(number)
    assert await passes_at_once(gathering, 0)


async def test_a_writer_that_is_cancelled_keeps_no_other_from_passing() -> None:
    gathering = Gathering(0.001)
    for feed_id in range(MANY_FEEDS - 1):
        await gathering.turn(feed_id)
    leaving = asyncio.create_task(gathering.turn(0))
    staying = asyncio.create_task(gathering.turn(MANY_FEEDS))
    await asyncio.sleep(0)
    leaving.cancel()
    await staying
