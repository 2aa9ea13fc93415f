"""The built-in log on a real Postgres: no gaps, nothing twice, read back as it was written."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import polars as pl
import psycopg
import pytest

from engine.errors import InvariantBroken, RecordsRemoved, SourceUnavailable
from engine.frames.arrow_frames import decode_frame
from engine.log import storage as log
from engine.log.dropped_feeds import drop_feed, sweep_dropped_feeds
from engine.plan.model import Feed, Input, RelationSchema
from engine.records.canonical import canonicalise
from engine.sources.connector_kinds import open_feed
from engine.sources.feeds import FeedReader, Limit, ReadRequest, Split
from engine.sources.packets import Packet
from tests.derived_log import read_feed
from tests.unit.records.relations import NOW_MS, relation

EVENTS = relation({"k": "string", "t": "bigint", "v": "bigint"}, key=("k",), event_time="t")
FEED = Feed("log:events", "log", "events")
ALL = Limit(10**9, 10**12)
Connection = psycopg.Connection[Any]


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM log.feed")
        yield connection


def post(conn: Connection, records: list[dict[str, Any]], of: RelationSchema = EVENTS, feed: str = "events") -> None:
    """Append as the service does, one batch per call and partition."""
    found = log.ensure_feed(conn, feed, 1)
    raw = pl.DataFrame(records, schema_overrides=of.columns.polars())
    accepted, rejects = canonicalise(raw, of, NOW_MS)
    assert rejects.height == 0
    log.append_batches(
        conn, found.id, [(p, log.encode_batch(f, NOW_MS)) for p, f in log.route(accepted, of.key, found.partitions)]
    )


def input_of(of: RelationSchema = EVENTS, index: int = 0, **more: Any) -> Input:
    return Input(index, f"i{index}", of, FEED, more.pop("columns", of.columns.names), more.pop("hash_key", ("k",)), **more)


def packets(reader: FeedReader, *inputs: Input, tasks: int = 1, partition: int = 0) -> list[Packet]:
    end = reader.ends()[partition]
    splits = reader.splits(partition, reader.starts("earliest")[partition], end)
    return [packet for split in splits for packet in reader.read(split, ReadRequest(inputs, NOW_MS, tasks))]


def records_of(found: list[Packet], index: int = 0) -> pl.DataFrame:
    return pl.concat([decode_frame(p.blob) for p in found if p.kind == "data" and p.input == index]).sort("_offset")


def test_concurrent_appends_leave_no_gap_and_lose_nothing(conn: Connection, dsn: str) -> None:
    feed = log.ensure_feed(conn, "events", 2)

    def writer(number: int) -> None:
        with psycopg.connect(dsn, autocommit=True) as own:
            for n in range(25):
                frame, _ = canonicalise(pl.DataFrame({"k": ["a", "b"], "t": [n, n], "v": [number, number]}), EVENTS, NOW_MS)
                with own.transaction(force_rollback=n % 5 == 4):
                    log.append_batches(own, feed.id, [(1, log.encode_batch(frame, NOW_MS)), (0, log.encode_batch(frame, NOW_MS))])

    threads = [threading.Thread(target=writer, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for head in log.heads(conn, feed.id):
        batches = list(log.read(conn, feed.id, head.partition, 0, head.next_offset))
        assert [base for base, _ in batches] == list(range(0, 160, 2))
        assert head.next_offset == 160
        for number in range(4):
            mine = [frame["t"][0] for _, frame in batches if frame["v"][0] == number]
            assert mine == [n for n in range(25) if n % 5 != 4]


def test_a_batch_keeps_time_bounds_arrival_and_columns(conn: Connection) -> None:
    post(conn, [{"k": "a", "t": 7, "v": 1}, {"k": None, "t": 3, "v": None}])
    assert conn.execute("SELECT base_offset, rows, min_ts, max_ts FROM log.batch").fetchone() == (0, 2, 3, 7)
    [(base, frame)] = read_feed(conn, "events")
    assert (base, frame.columns) == (0, ["_ts", "_op", "k", "t", "v", "_arrival"])
    assert frame.row(1) == (3, 0, None, 3, None, NOW_MS)


def test_a_range_cuts_batches_where_it_begins_and_ends(conn: Connection) -> None:
    for n in range(3):
        post(conn, [{"k": "a", "t": 3 * n + i, "v": None} for i in range(3)])
    feed = log.find_feed(conn, "events")
    assert feed is not None
    got = [(base, frame["t"].to_list()) for base, frame in log.read(conn, feed.id, 0, 2, 7)]
    assert got == [(2, [2]), (3, [3, 4, 5]), (6, [6])]
    assert list(log.read(conn, feed.id, 0, 9, 12)) == []


def test_keys_choose_partitions_and_null_keys_go_to_the_first() -> None:
    frame = pl.DataFrame({"k": ["a", None, "b", "c", "d", "a"], "_ts": range(6)})
    parts = dict(log.route(frame, ("k",), 4))
    assert sum(part.height for part in parts.values()) == 6
    assert None in parts[0]["k"].to_list()
    assert next(part["_ts"].to_list() for part in parts.values() if "a" in part["k"])[-1] == 5
    assert [partition for partition, _ in log.route(frame, (), 4)] == [0]


def test_appending_to_what_is_not_there_is_an_error(conn: Connection) -> None:
    feed = log.ensure_feed(conn, "events", 1)
    frame, _ = canonicalise(pl.DataFrame({"t": [1]}), EVENTS, NOW_MS)
    with pytest.raises(InvariantBroken):
        log.append_batches(conn, feed.id, [(1, log.encode_batch(frame, NOW_MS))])


def test_a_feed_is_made_once_and_dropped_with_everything(conn: Connection) -> None:
    assert log.ensure_feed(conn, "events", 3, 1_000) == log.ensure_feed(conn, "events", 5)
    log.set_retention(conn, "events", None)
    assert log.find_feed(conn, "events") == log.FeedRow(log.ensure_feed(conn, "events", 1).id, 3, None)
    drop_feed(conn, "events")
    assert log.find_feed(conn, "events") is None
    assert conn.execute("SELECT count(*) FROM log.head").fetchone() == (0,)


def test_a_dropped_feed_goes_in_steps_and_its_name_is_free_at_once(conn: Connection) -> None:
    old = log.ensure_feed(conn, "events", 1)
    for n in range(5):
        post(conn, [{"k": "a", "t": n, "v": n}])
    conn.execute(log.CLAIM_KEY_SQL, {"feed_id": old.id, "key": "x", "digest": b"one", "ttl_ms": 60_000})
    with conn.transaction():
        drop_feed(conn, "events")
        assert conn.execute("SELECT count(*) FROM log.batch").fetchone() == (
            5,
        )  # their removal is nothing that an edit waits for
    post(conn, [{"k": "b", "t": 1, "v": 1}])
    new = log.ensure_feed(conn, "events", 1)
    assert new.id != old.id
    frame, _ = canonicalise(pl.DataFrame({"t": [1]}), EVENTS, NOW_MS)
    with pytest.raises(InvariantBroken):  # whoever still has its id
        log.append_batches(conn, old.id, [(0, log.encode_batch(frame, NOW_MS))])
    drop_feed(conn, "events")  # once more, while the first is still there
    assert sweep_dropped_feeds(conn, step_rows=2) == 6
    assert conn.execute("SELECT count(*) FROM log.feed").fetchone() == (0,)
    assert sweep_dropped_feeds(conn) == 0


def test_a_sweep_that_was_cut_off_goes_on_where_it_was(conn: Connection, dsn: str) -> None:
    for n in range(5):
        post(conn, [{"k": "a", "t": n, "v": n}])
    drop_feed(conn, "events")
    with (
        psycopg.connect(dsn, autocommit=True) as holding,
        psycopg.connect(dsn, autocommit=True) as sweeping,
        ThreadPoolExecutor(1) as pool,
        holding.transaction(),
    ):
        holding.execute("SELECT FROM log.batch WHERE base_offset = 3 FOR UPDATE")
        swept = pool.submit(sweep_dropped_feeds, sweeping, 2)
        while conn.execute("SELECT count(*) FROM log.batch").fetchone() == (5,):
            assert not swept.done()
        conn.execute("SELECT pg_terminate_backend(%s)", (sweeping.info.backend_pid,))
        with pytest.raises(psycopg.OperationalError):
            swept.result(30)
    left = conn.execute("SELECT count(*) FROM log.batch").fetchone()
    assert left is not None
    assert 0 < left[0] < 5
    assert sweep_dropped_feeds(conn) == left[0]
    assert conn.execute("SELECT count(*) FROM log.feed").fetchone() == (0,)


def test_retention_removes_a_long_backlog_in_steps(conn: Connection) -> None:
    for n in range(5):
        post(conn, [{"k": "a", "t": n, "v": n}])
    feed = log.ensure_feed(conn, "events", 1)
    conn.execute("UPDATE log.batch SET appended_at = now() - interval '1 hour' WHERE base_offset < 4")
    with conn.transaction():
        assert log.trim_partition(conn, feed.id, 0, 60_000, step_batches=2) == 2
    assert [head.start_offset for head in log.heads(conn, feed.id)] == [2]
    assert log.trim_in_steps(conn, partial(log.trim_partition, conn, feed.id, 0, 60_000, step_batches=1)) == 2
    assert [(head.start_offset, head.next_offset) for head in log.heads(conn, feed.id)] == [(4, 5)]


def test_an_idempotency_key_is_claimed_once_until_it_expires(conn: Connection) -> None:
    feed = log.ensure_feed(conn, "events", 1)

    def claim(digest: bytes, ttl_ms: int = 60_000) -> Any:
        return conn.execute(log.CLAIM_KEY_SQL, {"feed_id": feed.id, "key": "x", "digest": digest, "ttl_ms": ttl_ms}).fetchone()

    assert claim(b"one") == (b"one", None)
    conn.execute(log.STORE_RESPONSE_SQL, {"feed_id": feed.id, "key": "x", "response": '{"offset": 5}'})
    assert claim(b"one") == (b"one", {"offset": 5})
    assert claim(b"two") == (b"one", {"offset": 5})
    conn.execute("UPDATE log.append_key SET expires_at = now() - interval '1 second'")
    assert claim(b"two") == (b"two", None)


def test_retention_removes_old_batches_and_moves_the_start(conn: Connection) -> None:
    for n in range(3):
        post(conn, [{"k": "a", "t": n, "v": n}])
    conn.execute("UPDATE log.batch SET appended_at = now() - interval '1 hour' WHERE base_offset < 2")
    log.set_retention(conn, "events", 60_000)
    assert log.trim(conn) == 2
    assert log.trim(conn) == 0
    reader = open_feed(conn.info.dsn, FEED, [EVENTS])
    assert dict(reader.starts("earliest")) == {0: 2}
    assert records_of(packets(reader, input_of()))["v"].to_list() == [2]
    assert [chunk.rows for chunk in reader.chunks(0, 2, ALL, is_dated=True)] == [1]
    for unread in (0, 1):
        with pytest.raises(RecordsRemoved, match="removed by its retention"):
            reader.chunks(0, unread, ALL, is_dated=True)
        with pytest.raises(RecordsRemoved, match="removed by its retention"):
            list(reader.read(Split(0, unread, 3), ReadRequest((input_of(),), NOW_MS, 1)))


def test_retention_waits_for_an_append_under_way_and_keeps_what_it_brings(conn: Connection, dsn: str) -> None:
    feed = log.ensure_feed(conn, "events", 1, 60_000)
    frame = pl.DataFrame({"_ts": [1], "_op": pl.Series([0], dtype=pl.Int8), "k": ["a"], "t": [1], "v": [1]})
    with psycopg.connect(dsn, autocommit=True) as trimming, ThreadPoolExecutor(1) as pool:
        with conn.transaction():
            log.append_batches(conn, feed.id, [(0, log.encode_batch(frame, NOW_MS))])
            removed = pool.submit(log.trim, trimming)
            waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            with psycopg.connect(dsn, autocommit=True) as watching:
                while watching.execute(waits).fetchone() == (0,):
                    assert not removed.done()
        assert removed.result(30) == 0
    assert [head.start_offset for head in log.heads(conn, feed.id)] == [0]


def test_a_reader_hands_out_canonical_records_by_task(conn: Connection, dsn: str) -> None:
    post(conn, [{"k": key, "t": n, "v": n} for n, key in enumerate("abcab")])
    post(conn, [{"k": None, "t": 9, "v": 9}])
    reader = open_feed(dsn, FEED, [EVENTS])
    found = packets(reader, input_of(columns=("k", "v")), tasks=2)
    frame = records_of(found)
    assert frame.columns == ["_key_hash", "_ts", "_offset", "_op", "k", "v"]
    assert frame.select("_ts", "_offset", "k").rows() == [
        (0, 0, "a"),
        (1, 1, "b"),
        (2, 2, "c"),
        (3, 3, "a"),
        (4, 4, "b"),
        (9, 5, None),
    ]
    for packet in found:
        if packet.kind == "data":
            assert all((hash_ or 0) % 2 == packet.task for hash_ in decode_frame(packet.blob)["_key_hash"])
    assert json.loads(found[-1].blob) == {
        "feed": "log:events",
        "partition": 0,
        "start_offset": 0,
        "end_offset": 6,
        "rows": 6,
        "accepted": 6,
        "max_ts": 9,
        "head": 9,
    }


def test_relations_of_one_feed_see_their_own_records_in_its_order(conn: Connection, dsn: str) -> None:
    bids = relation({"kind": "string", "t": "bigint", "price": "bigint"}, name="bids", event_time="t", where="kind = 'bid'")
    asks = relation({"kind": "string", "at": "timestamp", "price": "string"}, name="asks", event_time="at", where="kind = 'ask'")
    post(conn, [{"kind": "bid", "t": 5, "price": 1}], bids)
    post(conn, [{"kind": "ask", "at": None, "price": "low"}], relation({"kind": "string", "at": "timestamp", "price": "string"}))
    post(conn, [{"kind": "bid", "t": 6, "price": 2}], bids)
    reader = open_feed(dsn, FEED, [bids, asks])
    both = (input_of(bids, 0, hash_key=("kind",)), input_of(asks, 1, hash_key=("kind",)))
    found = packets(reader, *both)
    assert records_of(found, 0).select("_offset", "price").rows() == [(0, 1), (2, 2)]
    [refused] = [decode_frame(p.blob) for p in found if p.kind == "reject"]
    assert refused.select("offset", "reason").rows() == [(1, "event_time_missing")]


def test_filters_and_a_start_time_are_applied_at_the_source(conn: Connection, dsn: str) -> None:
    post(conn, [{"k": "a", "t": n, "v": n} for n in range(6)])
    reader = open_feed(dsn, FEED, [EVENTS])
    found = packets(reader, input_of(where="v <> 4", start=3))
    assert records_of(found)["v"].to_list() == [3, 5]


def test_a_delete_reaches_the_reader_without_its_values(conn: Connection, dsn: str) -> None:
    post(conn, [{"$op": "delete", "k": "a", "t": 5, "v": 7}])
    found = records_of(packets(open_feed(dsn, FEED, [EVENTS]), input_of()))
    assert found.select("_op", "_ts", "k", "v").rows() == [(1, 5, "a", None)]


def test_chunks_coalesce_small_batches_and_stop_at_the_limit(conn: Connection, dsn: str) -> None:
    for n in range(30):
        post(conn, [{"k": "a", "t": 100 - n, "v": n}] * 1_000)
    reader = open_feed(dsn, FEED, [EVENTS])
    chunks = reader.chunks(0, 0, ALL, is_dated=True)
    assert [(c.end_offset, c.rows, c.max_ts) for c in chunks] == [
        (8_000, 8_000, 100), (16_000, 8_000, 92), (24_000, 8_000, 84), (30_000, 6_000, 76),
    ]  # fmt: skip
    assert [c.end_offset for c in reader.chunks(0, 16_500, Limit(1, 10**12), is_dated=True)] == [17_000]


def test_a_start_time_finds_the_first_batch_that_reaches_it(conn: Connection, dsn: str) -> None:
    for n in range(3):
        post(conn, [{"k": "a", "t": n * 10, "v": n}])
    reader = open_feed(dsn, FEED, [EVENTS])
    assert [reader.starts(at)[0] for at in (0, 5, 20, 21)] == [0, 1, 2, 3]
    assert (reader.starts("latest")[0], reader.ends()[0]) == (3, 3)


def test_an_absent_feed_and_an_absent_database_are_unavailable(conn: Connection, dsn: str) -> None:
    with pytest.raises(SourceUnavailable, match="no feed"):
        open_feed(dsn, Feed("log:nothing", "log", "nothing"), []).ends()
    with pytest.raises(SourceUnavailable, match="cannot be read"):
        open_feed("postgresql://127.0.0.1:1/x", FEED, []).ends()
