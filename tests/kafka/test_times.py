"""Where a topic is cut, and where reading begins, by its records' own times."""

from __future__ import annotations

import time
from typing import Any

from engine.postgres.postgres import Connection
from engine.sources.feeds import Limit
from engine.sources.kafka.ranges import CHUNK_RECORDS
from tests.faults.service import until
from tests.kafka.test_reading import ALL, NOW_MS, Source
from tests.kafka.topics import Cluster, Sent

FAR_MS = 4_000_000_000_000


def source(connection: Connection, cluster: Cluster, **definition: Any) -> Source:
    topic = {} if cluster.owner is not None else {"topic": definition.pop("topic")}
    return Source(connection, cluster, columns={"v": "bigint"}, connector={"value": {"format": "json"}, **topic}, **definition)


def sent(start: int, end: int, at_ms: int = NOW_MS) -> list[Sent]:
    return [Sent(b'{"v": %d}' % place, timestamp_ms=at_ms + place) for place in range(start, end)]


def check_cuts(found: Source) -> None:
    """Hold where a reader that has seen nothing cuts the topic against its rows, at each time that there is and between."""
    end, rows = found.reader().ends()[0], found.rows()
    times = [row["_ts"] for row in rows]
    for bound_ms in sorted({*times, *(each + 1 for each in times), min(times) - 1}):
        expected = next((row["_offset"] for row in rows if row["_ts"] >= bound_ms), end)
        assert found.reader().first_at(0, 0, end, bound_ms) == expected, bound_ms


def test_a_record_that_is_refused_as_too_far_ahead_is_no_place_to_cut(connection: Connection, mock: Cluster) -> None:
    found = source(connection, mock, max_future_skew="1h")
    mock.send(found.topic, [*sent(0, 3), *sent(3, 4, FAR_MS), *sent(4, 8)])
    assert len(found.rows()) == 7
    check_cuts(found)


def test_behind_a_cut_inside_of_a_chunk_a_reader_finds_what_one_finds_that_has_seen_nothing(
    connection: Connection, mock: Cluster
) -> None:
    found = source(connection, mock)
    mock.send(found.topic, [*sent(0, 9_000), *sent(20_000, 30_000), *sent(9_000, 10_000)])
    reader = found.reader()
    for start in (0, 5_000, CHUNK_RECORDS, 15_000, 0):
        for limit in (Limit(1, 10**12), ALL):
            expected = found.reader().chunks(0, start, limit, is_dated=True)
            assert reader.chunks(0, start, limit, is_dated=True) == expected
            assert len(expected) == (1 if limit.max_rows == 1 else 3 - start // CHUNK_RECORDS)


def test_an_aborted_record_is_no_place_to_cut(connection: Connection, kafka: Cluster) -> None:
    found = source(connection, kafka, topic=kafka.topic())
    kafka.send(found.topic, sent(0, 3))
    kafka.commit(found.topic, sent(0, 2, FAR_MS), aborts=True)
    kafka.commit(found.topic, sent(3, 6))
    until("the transactions' markers are written", lambda: kafka.is_settled(found.topic), 60)
    assert len(found.rows()) == 6
    check_cuts(found)


def test_a_topic_with_the_brokers_times_is_cut_and_begun_by_them(connection: Connection, kafka: Cluster) -> None:
    found = source(connection, kafka, topic=kafka.topic(message_timestamp_type="LogAppendTime"), max_future_skew=None)
    for first in (0, 3, 6):
        kafka.send(found.topic, sent(first, first + 3))
        kafka.commit(found.topic, sent(0, 2, FAR_MS), aborts=True)
        before_ms = time.time_ns() // 1_000_000
        until("the broker's clock goes on", lambda at_ms=before_ms: time.time_ns() // 1_000_000 > at_ms + 2, 10)
    until("the transactions' markers are written", lambda: kafka.is_settled(found.topic), 60)
    rows = found.rows()
    times = [row["_ts"] for row in rows]
    assert [row["v"] for row in rows] == list(range(9))
    assert min(times) > NOW_MS + 1_000_000, "they are the broker's"
    assert times == sorted(times)
    assert times[2] < times[3], "the test needs several times"
    check_cuts(found)
    reader = found.reader()
    for place in (3, 6):
        start = reader.starts(times[place])[0]
        # It may be that of an aborted record before: what is read of an earlier time is left out.
        assert rows[place - 1]["_offset"] < start <= rows[place]["_offset"]
    assert reader.starts(times[-1] + 60_000) == reader.ends()
