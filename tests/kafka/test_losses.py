"""What a topic loses, gains and hides while a query reads it. On a real broker, at its reader."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from engine.definition.sources.kafka import KafkaPlace
from engine.errors import DefinitionInvalid, RecordsRemoved, RecordsReplaced, SourceUnavailable, TopicReplaced
from engine.plan.model import Input
from engine.postgres.postgres import Connection
from engine.sources.connector_kinds import open_feed
from engine.sources.feeds import FeedReader, ReadRequest, Split
from engine.sources.kafka.brokers.epochs import epoch_before
from tests.faults.service import until
from tests.kafka.broker import Broker, running, why_not
from tests.kafka.test_reading import ALL, NOW_MS, Source
from tests.kafka.topics import Cluster, Sent

pytestmark = pytest.mark.timeout(120)


def records(start: int, end: int) -> list[Sent]:
    return [Sent(b'{"v": %d}' % place, timestamp_ms=NOW_MS + place) for place in range(start, end)]


def source(connection: Connection, kafka: Cluster, **connector: Any) -> Source:
    return Source(connection, kafka, columns={"v": "bigint"}, connector={"value": {"format": "json"}, **connector})


def ends(reader: FeedReader) -> Mapping[int, int] | None:
    """Return where a topic ends; None: the broker does not know it yet, or has no leader, and is asked again, as queries do."""
    with suppress(SourceUnavailable):
        return reader.ends()
    return None


def test_aborted_and_open_transactions_are_not_read_and_leave_gaps(connection: Connection, kafka: Cluster) -> None:
    found = source(connection, kafka)
    kafka.send(found.topic, records(0, 2))
    kafka.commit(found.topic, records(10, 13), aborts=True)
    kafka.commit(found.topic, records(2, 4))
    assert found.reader().ends() == {0: 9}
    assert [(row["_offset"], row["v"]) for row in found.rows()] == [(0, 0), (1, 1), (6, 2), (7, 3)]
    assert [chunk.end_offset for chunk in found.reader().chunks(0, 0, ALL, is_dated=True)] == [9]


def test_what_an_open_transaction_holds_back_is_noted_until_it_ends(connection: Connection, kafka: Cluster) -> None:
    found = source(connection, kafka)
    kafka.send(found.topic, records(0, 2))

    def noted() -> tuple[int, int, bool]:
        """Look at the topic in a new process, and return its end, what is behind that, and whether it is known since when."""
        assert found.reader().ends() is not None
        row = connection.execute(
            "SELECT h.next_offset, h.open_records, h.open_since IS NOT NULL FROM log.head h JOIN log.feed f ON f.id = h.feed_id "
            "WHERE f.name = %s",
            (found.feed.log_feed,),
        ).fetchone()
        assert row is not None
        return row[0], row[1], row[2]

    assert noted() == (2, 0, False)
    with kafka.transaction(found.topic, records(2, 5)) as producer:
        until("the open transaction is seen", lambda: noted() == (2, 3, True), 30)
        producer.abort_transaction(30)
    until("its marker is read over", lambda: noted() == (6, 0, False), 30)


def test_records_that_retention_removed_stop_the_query(connection: Connection, kafka: Cluster) -> None:
    found = source(connection, kafka)
    kafka.send(found.topic, records(0, 10))
    kafka.remove(found.topic, 0, 4)
    with pytest.raises(RecordsRemoved, match="records 0 to 3 were removed by its retention"):
        found.packets(Split(0, 0, 10))


def test_records_that_retention_removed_are_counted_where_they_may_be_lost(connection: Connection, kafka: Cluster) -> None:
    found = source(connection, kafka, on_lost="skip")
    kafka.send(found.topic, records(0, 10))
    kafka.remove(found.topic, 0, 4)
    assert [row["v"] for row in found.rows()] == [4, 5, 6, 7, 8, 9]
    stats = [json.loads(packet.blob)["counters"] for packet in found.packets(Split(0, 0, 10)) if packet.kind == "stats"]
    assert stats == [[["i", "records_lost", 4]]]


def test_records_that_one_of_two_relations_may_not_lose_stop_a_query_that_reads_both(
    connection: Connection, kafka: Cluster
) -> None:
    skipping = source(connection, kafka, on_lost="skip")
    skipping.reader()
    kafka.send(skipping.topic, records(0, 10))
    kafka.remove(skipping.topic, 0, 4)
    inputs = [
        Input(place, name, replace(skipping.relation, name=name, lost_records=lost), skipping.feed, ("v",), ())
        for place, (name, lost) in enumerate((("careful", "stop"), ("careless", "skip")))
    ]
    reader = open_feed(connection.info.dsn, skipping.feed, [each.relation for each in inputs])
    with pytest.raises(RecordsRemoved, match="PUT the source careful with"):
        list(reader.read(Split(0, 0, 10), ReadRequest(inputs, NOW_MS, 1)))
    with pytest.raises(RecordsRemoved, match="PUT the source careful with"):
        reader.chunks(0, 0, ALL, is_dated=True)


def test_a_topic_that_was_made_again_is_another_one(connection: Connection, kafka: Cluster) -> None:
    found = source(connection, kafka)
    kafka.send(found.topic, records(0, 2))
    assert found.reader().ends() == {0: 2}
    kafka.delete(found.topic)
    with pytest.raises(SourceUnavailable, match="there is no topic"):
        found.reader().ends()
    kafka.topic(name=found.topic)
    with pytest.raises(TopicReplaced, match="deleted and made again"):
        until("the broker knows the new one", lambda: ends(found.reader()), 60)


@pytest.mark.timeout(500)
def test_records_that_others_have_replaced_are_missed_however_far_the_log_reaches_again(
    connection: Connection, own_broker: Broker
) -> None:
    found = source(connection, Cluster(own_broker.bootstrap))
    found.cluster.send(found.topic, records(0, 10))
    assert found.reader().ends() == {0: 10}
    reader = found.reader()
    reader.ends()
    first = reader.epochs()
    assert {*first} == {0}
    own_broker.stop()
    own_broker.start()
    found.cluster.commit(found.topic, records(10, 13), aborts=True)
    until("the records before the new leader's are there", lambda: ends(reader) == {0: 14}, 60)
    second = reader.epochs()
    assert second[0] > first[0]
    reader.check_epochs({0: 10}, first, {0: 10})  # the same log under a new leader
    own_broker.stop()
    own_broker.lose(found.topic)
    own_broker.start()
    found.cluster.send(found.topic, records(100, 120))
    until("others have taken their place", lambda: ends(reader) == {0: 20}, 60)
    reader.check_epochs({0: 0}, second, {0: 0})  # nothing was read
    with pytest.raises(RecordsReplaced, match="unclean election"):
        reader.check_epochs({0: 14}, second, {0: 14})
    with pytest.raises(SourceUnavailable, match="goes on from what is committed"):
        reader.check_epochs({0: 14}, second, {0: 10})
    reader.check_epochs({0: 14}, reader.epochs(), {0: 14})  # read after the election
    own_broker.stop()
    own_broker.start()
    after = reader.epochs()
    until("they are there", lambda: ends(reader) == {0: 20}, 60)
    reader.check_epochs({0: 20}, after, {0: 20})


def test_the_last_record_is_looked_for_behind_markers_and_what_was_removed(connection: Connection, kafka: Cluster) -> None:
    found = source(connection, kafka)
    dsn, place = connection.info.dsn, found.feed.place
    assert isinstance(place, KafkaPlace)
    kafka.send(found.topic, records(0, 1))
    for number in range(20):
        kafka.commit(found.topic, [], aborts=bool(number % 2))
    kafka.commit(found.topic, records(1, 2), aborts=True)
    end = found.reader().ends()[0]
    assert epoch_before(dsn, place, 0, 0, end) is not None
    kafka.remove(found.topic, 0, end)
    assert epoch_before(dsn, place, 0, 0, end) is None


def test_partitions_may_be_added(connection: Connection, kafka: Cluster) -> None:
    found = source(connection, kafka)
    reader = found.reader()
    assert reader.ends() == {0: 0}
    kafka.grow(found.topic, 3)
    until("the broker tells of them", lambda: ends(reader) == {0: 0, 1: 0, 2: 0}, 30)
    row = connection.execute("SELECT partitions FROM log.feed WHERE name = %s", (found.feed.log_feed,)).fetchone()
    assert row is not None
    assert row[0] == 3


def test_a_topic_that_is_not_there_is_refused(connection: Connection, kafka: Cluster) -> None:
    with pytest.raises(DefinitionInvalid, match="create it") as caught:
        source(connection, kafka, topic="nowhere").check()
    assert [(problem.pointer, problem.code) for problem in caught.value.problems] == [("/connector/topic", "topic_missing")]


def test_a_broker_that_says_nothing_any_more_is_given_up(
    connection: Connection, own_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.sources.kafka.brokers.consumer_loop.SILENT_S", 2.0)
    found = source(connection, Cluster(own_broker.bootstrap))
    found.cluster.send(found.topic, records(0, 10))
    split = Split(0, 0, found.reader().ends()[0])
    own_broker.freeze()
    with pytest.raises(SourceUnavailable, match="no record comes"):
        found.packets(split)
    own_broker.thaw()
    assert len([packet for packet in found.packets(split) if packet.kind == "data"]) == 1


@pytest.mark.kafka
def test_what_compaction_took_is_a_gap(connection: Connection) -> None:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with running({"log.cleaner.backoff.ms": "100"}) as broker:
        kafka = Cluster(broker.bootstrap)
        topic = kafka.topic(cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01", delete_retention_ms="0")
        found = source(connection, kafka, topic=topic)
        for place in range(60):
            kafka.send(topic, [Sent(b'{"v": %d}' % place, b"k%d" % (place % 2), NOW_MS + place)])

        def left() -> int:
            # Only closed segments are compacted: a further record closes the one that holds the last.
            kafka.send(topic, [Sent(b'{"v": 1000}', b"last", NOW_MS + 1_000)])
            return len(found.rows())

        until("compaction has taken records", lambda: left() < 30, 60)
        rows = found.rows()
        assert [row["v"] for row in rows if row["v"] < 1_000][-2:] == [58, 59]
        assert [row["_offset"] for row in rows] == sorted({row["_offset"] for row in rows})
        ends = found.reader().ends()
        chunks = found.reader().chunks(0, 0, ALL, is_dated=True)
        assert chunks[-1].end_offset == ends[0]
