"""Reads of single keys that go together, on a fetch that answers when told."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from app.db.shared_reads import MAX_KEYS, STATEMENTS_AT_ONCE, SharedReads


class Fetch:
    """Answers each key with its text, once ``gate`` is open; remembers what was asked together."""

    def __init__(self) -> None:
        self.asked: list[list[Any]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, keys: list[Any]) -> tuple[Any, ...] | None:
        self.asked.append(keys)
        await self.gate.wait()
        if "unreadable" in keys:
            raise psycopg.DataError("unreadable")
        if "away" in keys:
            raise psycopg.OperationalError("away")
        return None if "changed" in keys else ([f"row of {key}" for key in keys[:MOST]] + ["left out"] * (len(keys) - MOST),)


MOST = MAX_KEYS + 1


def shared(fetch: Fetch) -> SharedReads:
    return SharedReads(fetch, lambda row, place: (row[0][place],), lambda row: "left out" in row[0])


async def test_keys_asked_for_in_one_turn_go_together_and_each_gets_its_own_row() -> None:
    fetch = Fetch()
    reads = shared(fetch)
    found = await asyncio.gather(*(reads.read(key) for key in "abca"))
    assert found == [("row of a",), ("row of b",), ("row of c",), ("row of a",)]
    assert fetch.asked == [["a", "b", "c", "a"]]


async def test_what_arrives_while_all_statements_are_under_way_goes_with_the_next() -> None:
    fetch = Fetch()
    fetch.gate.clear()
    reads = shared(fetch)
    tasks = []
    for number in range(STATEMENTS_AT_ONCE + 3):
        tasks.append(asyncio.create_task(reads.read(number)))
        while number < STATEMENTS_AT_ONCE and len(fetch.asked) <= number:
            await asyncio.sleep(0)
    fetch.gate.set()
    assert await asyncio.gather(*tasks) == [(f"row of {number}",) for number in range(STATEMENTS_AT_ONCE + 3)]
    assert fetch.asked == [
        *([number] for number in range(STATEMENTS_AT_ONCE)),
        list(range(STATEMENTS_AT_ONCE, STATEMENTS_AT_ONCE + 3)),
    ]


async def test_a_statement_takes_so_many_keys_at_most() -> None:
    fetch = Fetch()
    reads = shared(fetch)
    await asyncio.gather(*(reads.read(number) for number in range(MAX_KEYS + 1)))
    assert sorted(len(keys) for keys in fetch.asked) == [1, MAX_KEYS]


async def test_a_key_that_cannot_be_read_fails_alone() -> None:
    reads = shared(Fetch())
    found = await asyncio.gather(*(reads.read(key) for key in ("a", "unreadable", "b")), return_exceptions=True)
    assert found[0::2] == [("row of a",), ("row of b",)]
    assert isinstance(found[1], psycopg.DataError)


async def test_a_database_that_is_away_fails_all_and_the_next_is_asked_again() -> None:
    reads = shared(Fetch())
    found = await asyncio.gather(*(reads.read(key) for key in ("a", "away")), return_exceptions=True)
    assert [type(one) for one in found] == [psycopg.OperationalError] * 2
    assert await reads.read("a") == ("row of a",)


async def test_every_reader_learns_that_the_table_has_changed() -> None:
    reads = shared(Fetch())
    assert await asyncio.gather(reads.read("a"), reads.read("changed")) == [None, None]


async def test_a_reader_who_leaves_does_not_take_others_along() -> None:
    fetch = Fetch()
    fetch.gate.clear()
    reads = shared(fetch)
    leaves, stays = asyncio.create_task(reads.read("a")), asyncio.create_task(reads.read("b"))
    while not fetch.asked:
        await asyncio.sleep(0)
    leaves.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaves
    fetch.gate.set()
    assert await stays == ("row of b",)
