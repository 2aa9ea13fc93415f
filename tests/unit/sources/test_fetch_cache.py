"""Records that a planning process has fetched, found by a worker of the same machine and by nobody else."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from engine.sources.kafka import fetch_cache as kept
from engine.sources.kafka.brokers.fetching.port import HEADERS, Fetched
from engine.sources.kafka.fetch_cache import Keeper, Reference, recalled

MANY = 20_000


def records(first: int, last: int) -> Fetched:
    numbers = range(first, last)
    return Fetched(
        pl.Series("key", [None if number % 3 else b"%d" % number for number in numbers], pl.Binary),
        pl.Series("value", [b"value %d" % number for number in numbers], pl.Binary),
        np.arange(first, last),
        np.arange(first, last) * 10,
        pl.Series("headers", [[{"key": "h", "value": b"%d" % number}] for number in numbers], HEADERS),
    )


def shown(references: tuple[Reference, ...], start: int, end: int) -> list[tuple[int, int, list[int] | None]]:
    return [
        (first, last, None if found is None else found.offsets.tolist())
        for first, last, found in recalled(references, start, end)
    ]


def recalled_elsewhere(pickled: bytes) -> tuple[list[bytes], list[bytes | None], int, bytes]:
    ((_, _, found),) = recalled(pickle.loads(pickled), 0, MANY)  # noqa: S301 - our own
    assert found is not None
    assert found.headers is not None
    return found.values.to_list(), found.keys.to_list(), int(found.timestamps.sum()), found.headers[-1][0]["value"]


def test_another_process_finds_them() -> None:
    keeper, whole = Keeper(), records(0, MANY)
    keeper.keep(0, 0, MANY, whole)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply(recalled_elsewhere, (pickle.dumps(keeper.references(0, 0, MANY)),))
    assert found == (whole.values.to_list(), whole.keys.to_list(), int(whole.timestamps.sum()), b"%d" % (MANY - 1))


@pytest.mark.parametrize("size", [50, MANY])
def test_what_is_not_kept_is_left_to_be_fetched(size: int) -> None:
    keeper = Keeper()
    keeper.keep(0, 2 * size, 3 * size, records(2 * size, 3 * size))
    keeper.keep(0, 0, size, records(0, size))
    keeper.keep(1, 0, size, records(0, size))
    found = shown(keeper.references(0, 10, 5 * size), 10, 5 * size)
    assert [each[:2] for each in found] == [(10, size), (size, 2 * size), (2 * size, 3 * size), (3 * size, 5 * size)]
    assert found[0][2] == list(range(10, size))
    assert [each[2] is None for each in found] == [False, True, False, True]


def test_what_was_let_go_is_not_found() -> None:
    keeper = Keeper()
    keeper.keep(0, 0, MANY, records(0, MANY))
    references = keeper.references(0, 0, MANY)
    keeper.forget(0, MANY - 1)
    assert keeper.references(0, 0, MANY) == references
    keeper.forget(0, MANY)
    assert keeper.references(0, 0, MANY) == ()
    assert shown(references, 0, MANY) == [(0, MANY, None)]


def test_what_another_machine_or_another_file_has_is_not_opened() -> None:
    keeper = Keeper()
    keeper.keep(0, 0, MANY, records(0, MANY))
    (reference,) = keeper.references(0, 0, MANY)
    for other in (
        replace(reference, machine="elsewhere"),
        replace(reference, name="another"),
        replace(reference, path="/dev/zero"),
    ):
        assert shown((other,), 0, MANY) == [(0, MANY, None)]


def test_no_more_is_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_PIECES", kept._HELD.pieces + 2)
    keeper = Keeper()
    for place in range(4):
        keeper.keep(0, place * MANY, (place + 1) * MANY, records(place * MANY, (place + 1) * MANY))
    assert [each.start for each in keeper.references(0, 0, 4 * MANY)] == [0, MANY]
    del keeper
    again = Keeper()
    again.keep(0, 0, MANY, records(0, MANY))
    assert len(again.references(0, 0, MANY)) == 1


def test_a_keeper_that_ends_waits_for_the_lock() -> None:
    before = kept._HELD.pieces, kept._HELD.size_bytes
    keepers = [Keeper()]
    keepers[0].keep(0, 0, MANY, records(0, MANY))
    held = kept._HELD.pieces, kept._HELD.size_bytes
    assert held != before
    other = threading.Thread(target=keepers.clear)
    with kept._HELD.lock:
        other.start()
        other.join(0.2)
        assert other.is_alive()
        assert (kept._HELD.pieces, kept._HELD.size_bytes) == held
    other.join()
    assert (kept._HELD.pieces, kept._HELD.size_bytes) == before


def test_a_keeper_may_end_in_the_middle_of_another_ones_work() -> None:
    before = kept._HELD.pieces, kept._HELD.size_bytes
    keeper = Keeper()
    keeper.keep(0, 0, MANY, records(0, MANY))
    with kept._HELD.lock:  # as the garbage collector may end it
        del keeper
    assert (kept._HELD.pieces, kept._HELD.size_bytes) == before
