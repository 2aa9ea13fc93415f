"""The shared tail of a log: what it keeps, what it no longer has, and who it wakes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from app.db.notifications import Notifications
from app.errors.app_errors import Unavailable
from app.following.change_log import LogRange
from app.following.tails.log_poller import LogPoller
from app.following.tails.new_entries import NewEntries
from app.following.tails.tail import KEPT_CHARS, KEPT_ITEMS, Tail
from app.following.tails.tails import Tails


class Log:
    """A log in memory, and the pool through which it is read."""

    id = "log"
    notifying_query: UUID | None = None

    def __init__(self, *, is_long: bool = True) -> None:
        self.texts: list[str] = []
        self.is_gone = False
        self.fault: Exception | None = None
        self.unreadable: Exception | None = None
        self.most: int | None = None
        self.is_long = is_long
        self.read: list[str] = []
        self.looks = 0

    def append(self, *texts: str) -> None:
        self.texts += texts

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        yield None

    @staticmethod
    async def heads_of(connection: Any, sources: Sequence[Log]) -> list[list[tuple[int, int]]]:
        return [source.heads() for source in sources]

    @staticmethod
    async def new_entries_of(
        connection: Any, sources: Sequence[Log], ends: Sequence[Sequence[int]], *, from_oldest: bool = False
    ) -> list[NewEntries]:
        return [NewEntries(source.heads(), source.little(*end)) for source, end in zip(sources, ends, strict=True)]

    def little(self, end: int) -> Callable[[], LogRange] | None:
        if self.is_long or self.is_gone or end == len(self.texts):
            return None
        return lambda: self._stretch(end, len(self.texts))

    def heads(self) -> list[tuple[int, int]]:
        self.looks += 1
        if self.fault is not None:
            raise self.fault
        return [] if self.is_gone else [(0, len(self.texts))]

    async def read_range(self, connection: Any, partition: int, start: int, end: int) -> LogRange:
        return self._stretch(start, end)

    def _stretch(self, start: int, end: int) -> LogRange:
        if self.unreadable is not None:
            raise self.unreadable
        end = end if self.most is None else min(end, start + self.most)
        self.read.append(self.texts[start])
        return LogRange(range(start, end), self.texts[start:end], end)


@asynccontextmanager
async def running(*logs: Log) -> AsyncIterator[list[Tail]]:
    tails = [Tail(log, [len(log.texts)]) for log in logs]
    lookout = LogPoller(logs[0], logs[0], Notifications(""))  # type: ignore[arg-type]
    for tail in tails:
        lookout.add(tail)
    task = asyncio.create_task(lookout.run())
    yield tails
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def taken_from(tail: Tail, offset: int, limit: int = 100_000) -> LogRange:
    while (stretch := tail.take(0, offset, limit)) is not None and not stretch.texts:
        await tail.wait(5)
    assert stretch is not None
    return stretch


@pytest.mark.parametrize("is_long", [True, False])
async def test_what_comes_is_taken_by_offset_and_limit(is_long: bool) -> None:
    log = Log(is_long=is_long)
    log.append("old")
    async with running(log) as (tail,):
        log.append("a", "b", "c")
        assert (await taken_from(tail, 1)).texts == ["a", "b", "c"]
        some = tail.take(0, 2, 1)
        assert some is not None
        assert (some.texts, some.end) == (["b"], 3)
        assert tail.take(0, 0, 9) is None
        assert tail.take(0, 5, 9) is None


async def test_the_oldest_go_when_there_are_too_many_or_they_are_too_large() -> None:
    log = Log()
    async with running(log) as (tail,):
        log.append(*["x" * (KEPT_CHARS // 2)] * 3)
        while tail.take(0, 3, 1) is None:
            await tail.wait(5)
        assert tail.take(0, 0, 9) is None
        assert tail.take(0, 1, 9) is not None
        log.append(*["y"] * (KEPT_ITEMS + 1_000))
        while tail.take(0, len(log.texts), 1) is None:
            await tail.wait(5)
        assert tail.take(0, 3, 1) is None
        assert len((await taken_from(tail, len(log.texts) - KEPT_ITEMS)).texts) == KEPT_ITEMS


@pytest.mark.parametrize("is_long", [True, False])
async def test_followers_learn_that_the_log_is_gone(is_long: bool) -> None:
    log = Log(is_long=is_long)
    async with running(log) as (tail,):
        log.is_gone = True
        while not tail.is_gone:
            await tail.wait(5)


async def test_a_log_that_is_gone_before_it_is_followed_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """One statement looks for all logs: one without an end to look from would end the followers of all others."""
    log, looked_for = Log(), list[Tail]()
    log.is_gone = True
    monkeypatch.setattr(LogPoller, "add", lambda _, tail: looked_for.append(tail))
    async with Tails("", Notifications(""), 1_000).following(log, NewEntries(log.heads())) as tail:
        assert tail.is_gone
        assert tail.take(0, 1, 9) is None
    assert not looked_for


async def test_a_fault_of_ours_reaches_the_followers_instead_of_silence() -> None:
    log = Log()
    log.fault = ZeroDivisionError()
    async with running(log) as (tail,):
        while not log.looks:
            await asyncio.sleep(0)
        with pytest.raises(ZeroDivisionError):
            await tail.wait(5)


async def test_all_logs_that_are_due_are_looked_at_together() -> None:
    logs = [Log(is_long=False), Log(is_long=False), Log(is_long=False)]
    async with running(*logs) as tails:
        for place, log in enumerate(logs):
            log.append(f"of {place}")
        for place, tail in enumerate(tails):
            assert (await taken_from(tail, 0)).texts == [f"of {place}"]
    assert {log.looks for log in logs} == {logs[0].looks}


async def test_between_two_looks_is_a_pause_however_often_the_bell_rings() -> None:
    log, bell = Log(is_long=False), Notifications("")
    log.notifying_query = uuid4()
    lookout = LogPoller(log, log, bell, pause_s=600.0)  # type: ignore[arg-type]
    lookout.add(Tail(log, [0]))
    task = asyncio.create_task(lookout.run())
    while not log.looks:
        await asyncio.sleep(0)
    for _ in range(50):
        bell.notify(str(log.notifying_query))
        await asyncio.sleep(0)
    assert log.looks == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_log_with_much_that_is_new_keeps_nobody_waiting() -> None:
    long, short = Log(), Log()
    read: list[str] = []
    for log in (long, short):
        log.most, log.read = 10, read
    async with running(long, short) as (tail, other):
        long.append(*["long"] * 1_000)
        short.append("short")
        assert (await taken_from(other, 0)).texts == ["short"]
        while len((await taken_from(tail, 0)).texts) < 1_000:
            await tail.wait(5)
    assert read.index("short") <= 1
    assert read.count("long") == 100


@pytest.mark.parametrize("fault", [ZeroDivisionError(), psycopg.ProgrammingError("no such column"), Unavailable("busy", "it is")])
@pytest.mark.parametrize("is_long", [True, False])
async def test_what_cannot_be_read_ends_its_own_followers_alone(fault: Exception, is_long: bool) -> None:
    good, bad, better = Log(is_long=is_long), Log(is_long=is_long), Log(is_long=is_long)
    async with running(good, bad, better) as (tail, broken, other):
        bad.unreadable = fault
        for log in (good, bad, better):
            log.append("new")
        for each in (tail, other):
            assert (await taken_from(each, 0)).texts == ["new"]
        with pytest.raises(type(fault)):
            await _failed(broken)
        for log in (good, better):
            log.append("newer")
        for each in (tail, other):
            assert (await taken_from(each, 1)).texts == ["newer"]


async def test_a_log_whose_reading_takes_too_long_lets_the_others_go_first() -> None:
    slow, quick = Log(), Log()
    slow.unreadable = psycopg.errors.QueryCanceled("statement timeout")
    async with running(slow, quick) as (tail, other):
        slow.append("slow")
        quick.append("quick")
        assert (await taken_from(other, 0)).texts == ["quick"]
        slow.unreadable = None
        assert (await taken_from(tail, 0)).texts == ["slow"]


async def _failed(tail: Tail) -> None:
    while True:
        await tail.wait(5)
