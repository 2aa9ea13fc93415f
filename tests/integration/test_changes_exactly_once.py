"""Followers that lose their connection at random while the query's drivers are killed: no gap, no repeat, and the table at the end.

The oracle is the change log itself, read in one go at the end: what a follower held at each moment must be the fold of the log up to the
follower's own position. Launches have different numbers of tasks, so a commit's changes stand in several partitions (P1).
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx
import psycopg
import pytest
from pydantic import SecretStr
from slackwater import Client, Event

from app.following.cursors import ChangeCursor
from app.main.main import create_app
from app.settings.settings import Settings
from tests.api.change_writer import ChangeWriter
from tests.api.conftest import STREAM
from tests.api.live_server import live
from tests.api.test_changes import TOTALS
from tests.derived_log import read_derived
from tests.integration.change_driver import KEYS, TASKS, random_changes
from tests.integration.driver_tools import until

ROOT = Path(__file__).resolve().parents[2]
LAUNCHES = 4
Table = dict[str, int]


def apply(table: Table, event: Event) -> None:
    key = event.data["key"]["origin"]
    if event.data["op"] == "delete":
        table.pop(key, None)
    else:
        table[key] = event.data["row"]["flights"]


@dataclass
class Follower(threading.Thread):
    """Follows with connections that break after a random number of events, until it is told where the end is.

    Attributes:
        numbers: of every change event, as it came.
        places: partition and offset of it.
        held: what was held at the end of a snapshot, and at the last event: (number, table).
    """

    url: str
    start_at: str
    seed: int
    ends_at: int | None = None
    numbers: list[int] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    ids: list[ChangeCursor] = field(default_factory=list)
    held: list[tuple[int, Table]] = field(default_factory=list)
    connections: int = 0
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        try:
            self._follow(random.Random(self.seed), {})
        except BaseException as error:  # noqa: BLE001 - the test reports it
            self.failure = error

    def _follow(self, chance: random.Random, table: Table) -> None:
        cursor: str | None = None
        with Client(self.url) as client:
            while self.ends_at is None or cursor is None or ChangeCursor.decode(cursor).offsets[0] < self.ends_at:
                self.connections += 1
                left = chance.randrange(1, 250)
                with client.follow("/v1/tables/totals/changes", {"from": self.start_at}, cursor) as events:
                    for event in events:
                        assert event.kind not in ("reset", "reconnect")
                        cursor = event.id
                        if event.kind == "position":
                            continue
                        self._note(event, table)
                        left -= 1
                        if left == 0 or event.data.get("sequence") == (self.ends_at or 0) - 1:
                            break
        self.held.append((ChangeCursor.decode(cursor).offsets[0], dict(table)))

    def _note(self, event: Event, table: Table) -> None:
        at = ChangeCursor.decode(event.id)
        if event.kind == "snapshot_end":
            assert event.data["offset"] == at.offsets[0]
            self.held.append((at.offsets[0], dict(table)))
        else:
            apply(table, event)
        if event.kind == "change":
            self.numbers.append(event.data["sequence"])
            self.places.append((event.data["partition"], event.data["offset"]))
        self.ids.append(at)


@pytest.fixture
def url(dsn: str, tmp_path: Path) -> Iterator[str]:
    with live(create_app(Settings(database_url=SecretStr(dsn), data_dir=tmp_path))) as served:
        with httpx.Client(base_url=served) as http:
            assert http.put("/v1/streams/departures", json=STREAM).status_code == 201
            assert http.put("/v1/queries/totals", json=TOTALS).status_code == 201
        yield served


@contextmanager
def launched(dsn: str, seed: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-m", "tests.integration.change_driver", dsn, "totals", str(seed)], cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def log_end(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT next_sequence FROM log.feed WHERE name = 'changes:totals'").fetchone()
    assert row is not None
    end: int = row[0]
    return end


def drive(dsn: str, chance: random.Random, meanwhile: Callable[[], None]) -> None:
    """Launch after launch commits; each is killed, or fenced by its successor, after a random number of changes.

    Args:
        dsn: the database.
        chance: of when.
        meanwhile: called while a launch commits.
    """
    for number in range(LAUNCHES):
        begin = log_end(dsn)
        with launched(dsn, number) as process:
            until("the first commits", partial(lambda end: log_end(dsn) > end, begin))
            meanwhile()
            enough = begin + chance.randrange(150, 600)
            until("commits", partial(lambda end: log_end(dsn) > end, enough))
            if number % 2:
                with launched(dsn, 1_000 + number):
                    # The old launch ends by itself: its successor holds the fence.
                    assert process.wait(30) == 0


def folds(dsn: str) -> Iterator[tuple[int, Table]]:
    """The table after each change, by the log alone."""
    table: Table = {}
    yield 0, table
    with psycopg.connect(dsn) as connection:
        for frame in read_derived(connection, "changes:totals"):
            for number, origin, flights, op in frame.select("_offset", "origin", "flights", "_op").iter_rows():
                table.pop(origin, None)
                if op == 0:
                    table[origin] = flights
                yield number + 1, table


def test_followers_lose_their_connections_while_drivers_are_killed(dsn: str, url: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with ChangeWriter(dsn, "totals", tasks=TASKS) as writer:
        writer.commit([("upsert", {"origin": key, "flights": 0}, 0) for key in KEYS])
    followers: list[Follower] = []

    def follow(start_at: str) -> None:
        followers.append(Follower(url, start_at, seed + len(followers)))
        followers[-1].start()

    follow("earliest")
    follow("snapshot")
    drive(dsn, chance, partial(follow, "snapshot"))
    with ChangeWriter(dsn, "totals") as writer:
        writer.commit(random_changes(chance, 10_000_000))
        until("complete snapshots", lambda: all(follower.held for follower in followers[1:]), 60)
        end = log_end(dsn) + 1
        for follower in followers:
            follower.ends_at = end
        writer.commit([("upsert", {"origin": KEYS[0], "flights": -1}, 10_000_001)])
    for follower in followers:
        follower.join(60)
        assert not follower.is_alive()
        if follower.failure is not None:
            raise follower.failure
        assert follower.connections > 2
        assert follower.numbers == sorted(set(follower.numbers))
        places = [(at.offsets[0], at.rows_after is None) for at in follower.ids]
        assert places == sorted(places)
    assert followers[0].numbers == list(range(end))
    by_partition = {partition: [own for one, own in followers[0].places if one == partition] for partition in range(TASKS)}
    assert all(own == list(range(len(own))) for own in by_partition.values()), (
        "in each partition too none is missing, and in order"
    )
    assert all(by_partition.values())
    # Snapshots that were left and gone on with while the table changed: changes came before their end.
    assert any(len(follower.held) == 2 and follower.numbers[0] < follower.held[0][0] for follower in followers[1:])
    expected = {offset: dict(table) for offset, table in folds(dsn)}
    for follower in followers:
        for offset, held in follower.held:
            assert held == expected[offset]
        assert follower.held[-1][0] == end
    with Client(url) as client:
        assert {row["origin"]: row["flights"] for row in client.table("totals").each_row()} == expected[end]
