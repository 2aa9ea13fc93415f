"""What a relation reads of a topic's records: formats, facts of a record, tombstones, refused records, times. On librdkafka's mock."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from engine.definition.relations import StreamDefinition, TableDefinition
from engine.errors import DefinitionInvalid, SourceUnavailable
from engine.frames.arrow_frames import decode_frame
from engine.log.storage import feed_heads, find_feed
from engine.plan.catalog import feed_of, relation_schema
from engine.plan.model import Input
from engine.postgres.postgres import Connection
from engine.sources.connector_kinds import control_of, open_feed
from engine.sources.control import ServiceContext
from engine.sources.feeds import FeedReader, Limit, ReadRequest, Split
from engine.sources.kafka.inferring import newest_records
from engine.sources.packets import Packet
from tests.kafka.topics import Cluster, Sent

NOW_MS = 1_700_000_000_000
ALL = Limit(10**9, 10**12)


class Source:
    """A source over a topic of a cluster's."""

    def __init__(self, connection: Connection, cluster: Cluster, **definition: Any) -> None:
        self.cluster, self.connection = cluster, connection
        self.topic = definition["connector"].setdefault("topic", cluster.topic())
        connector = {"type": "kafka", "bootstrap": cluster.bootstrap, **definition.pop("connector")}
        model = TableDefinition if "key" in definition else StreamDefinition
        self.definition = model.model_validate({**definition, "connector": connector})
        self.relation = relation_schema("sample", self.definition)
        self.feed = feed_of("sample", self.definition)

    def check(self) -> None:
        control_of(self.feed).check(self.feed, ServiceContext(None, self.connection.info.dsn), self.relation)

    def reader(self) -> FeedReader:
        assert control_of(self.feed).register(self.connection, self.feed, self.definition.connector) is None
        return open_feed(self.connection.info.dsn, self.feed, [self.relation])

    def packets(self, split: Split | None = None) -> list[Packet]:
        reader, names = self.reader(), self.relation.columns.names
        item = Input(0, "i", self.relation, self.feed, names, names[:1])
        split = split or Split(0, 0, reader.ends()[0])
        return list(reader.read(split, ReadRequest([item], NOW_MS, 1)))

    def rows(self, split: Split | None = None) -> list[dict[str, Any]]:
        frames = [decode_frame(packet.blob) for packet in self.packets(split) if packet.kind == "data"]
        return pl.concat(frames).sort("_offset", maintain_order=True).to_dicts() if frames else []

    def rejects(self, split: Split | None = None) -> list[dict[str, Any]]:
        frames = [decode_frame(packet.blob) for packet in self.packets(split) if packet.kind == "reject"]
        return pl.concat(frames).to_dicts() if frames else []


def test_columns_are_of_key_value_headers_and_the_record_itself(connection: Connection, mock: Cluster) -> None:
    facts = {"trace": "header:trace", "raw": "header:raw", "at": "timestamp", "part": "partition", "place": "offset"}
    source = Source(
        connection, mock, key=["k"],
        columns={
            "k": "string", "v": "bigint", "trace": "string", "raw": "bytes", "at": "timestamp", "part": "int", "place": "bigint",
        },
        connector={"key": {"format": "kafka"}, "value": {"format": "json"}, "record_columns": facts},
    )  # fmt: skip
    headers = [("trace", b"no"), ("trace", b"yes"), ("raw", b"\xff")]
    mock.send(source.topic, [Sent(b'{"v": 7}', b"a", NOW_MS - 5, headers=headers), Sent(b'{"v": 8}', b"b", NOW_MS)])
    first, second = source.rows()
    assert {name: first[name] for name in ("k", "v", "trace", "raw", "part", "place")} == {
        "k": "a", "v": 7, "trace": "yes", "raw": b"\xff", "part": 0, "place": 0,
    }  # fmt: skip
    assert (first["_ts"], first["at"].timestamp() * 1_000) == (NOW_MS - 5, NOW_MS - 5)
    assert (second["k"], second["trace"], second["raw"], second["_ts"]) == ("b", None, None, NOW_MS)


def test_a_column_may_hold_all_headers_the_last_of_each_name(connection: Connection, mock: Cluster) -> None:
    source = Source(
        connection, mock, columns={"v": "bigint", "all": "map<string,bytes>"},
        connector={"value": {"format": "json"}, "record_columns": {"all": "headers"}},
    )  # fmt: skip
    headers = [("trace", b"no"), ("raw", b"\xff\x00"), ("trace", b"yes"), ("none", None), ("", b"unnamed")]
    sent = [Sent(b'{"v": 1}', timestamp_ms=NOW_MS, headers=headers), Sent(b'{"v": 2}', timestamp_ms=NOW_MS)]
    mock.send(source.topic, [*sent, Sent(b'{"v": 3}', timestamp_ms=NOW_MS, headers=[("a", b"1")])])
    source.check()
    assert source.rejects() == []
    found = [{each["key"]: each["value"] for each in row["all"]} for row in source.rows()]
    assert found == [{"trace": b"yes", "raw": b"\xff\x00", "none": None, "": b"unnamed"}, {}, {"a": b"1"}]
    assert [len(row["all"]) for row in source.rows()] == [4, 0, 1]


def test_where_a_topic_ends_is_not_known_before_the_first_look(connection: Connection, mock: Cluster) -> None:
    source = Source(connection, mock, columns={"k": "string"}, connector={"value": {"format": "json"}})
    mock.send(source.topic, [Sent(b'{"k": "a"}')])
    reader = source.reader()
    assert feed_heads(connection, [source.feed.log_feed]) == {}
    ends = reader.ends()
    (heads,) = feed_heads(connection, [source.feed.log_feed]).values()
    assert {head.partition: head.next_offset for head in heads} == ends
    source.reader()
    assert feed_heads(connection, [source.feed.log_feed]) == {source.feed.log_feed: heads}


def test_a_record_without_a_value_deletes_from_a_table(connection: Connection, mock: Cluster) -> None:
    source = Source(
        connection, mock, key=["k"], columns={"k": "string", "v": "bigint"},
        connector={"key": {"format": "kafka"}, "value": {"format": "json"}},
    )  # fmt: skip
    mock.send(source.topic, [Sent(b'{"v": 1}', b"a", NOW_MS), Sent(None, b"a", NOW_MS)])
    assert [(row["k"], row["v"], row["_op"]) for row in source.rows()] == [("a", 1, 0), ("a", None, 1)]


def test_what_cannot_be_read_is_refused_at_its_offset(connection: Connection, mock: Cluster) -> None:
    source = Source(connection, mock, columns={"v": "bigint"}, connector={"value": {"format": "json"}})
    mock.send(source.topic, [Sent(value, timestamp_ms=NOW_MS) for value in (b'{"v": 1}', b"{", b'{"v": "x"}', b'{"v": 2}')])
    source.check()
    assert [row["offset"] for row in source.rejects()] == [1, 2]
    assert source.rejects()[0]["excerpt"] == "{"


def test_the_time_of_a_record_that_is_refused_as_too_far_ahead_moves_no_head(connection: Connection, mock: Cluster) -> None:
    source = Source(
        connection, mock, columns={"v": "bigint"}, max_future_skew="1h", connector={"value": {"format": "json"}}
    )  # fmt: skip
    mock.send(source.topic, [Sent(b'{"v": 1}', timestamp_ms=4_000_000_000_000), Sent(b'{"v": 2}', timestamp_ms=NOW_MS - 1)])
    (chunk,) = source.reader().chunks(0, 0, ALL, is_dated=True)
    assert chunk.max_ts == NOW_MS - 1
    assert [row["v"] for row in source.rows()] == [2]


def test_reading_from_a_time_asks_the_broker(connection: Connection, mock: Cluster) -> None:
    source = Source(connection, mock, columns={"v": "bigint"}, connector={"value": {"format": "json"}})
    mock.send(source.topic, [Sent(b'{"v": %d}' % place, timestamp_ms=NOW_MS + place) for place in range(3)])
    reader = source.reader()
    assert reader.starts("earliest")[0] == 0
    assert reader.starts("latest")[0] == 3
    assert reader.starts(NOW_MS + 10)[0] == 3


def test_newest_records_are_those_of_the_end(connection: Connection, mock: Cluster) -> None:
    source = Source(connection, mock, columns={"v": "bigint"}, connector={"value": {"format": "json"}})
    mock.send(source.topic, [Sent(b"%d" % place, b"k") for place in range(50)])
    found = newest_records(connection.info.dsn, source.feed.place, 3)  # type: ignore[arg-type]
    assert found.values.to_list() == [b"47", b"48", b"49"]
    assert found.keys.to_list() == [b"k"] * 3


@pytest.mark.parametrize(
    ("columns", "changed", "expected"),
    [
        ({"v": "bigint"}, {"value": {"format": "avro", "schema": "no schema"}}, ("/connector/value", "format_unfit")),
        ({"v": "timestamp"}, {}, ("/connector/value", "format_differs")),
        ({"v": "bigint"}, {"record_columns": {"place": "offset"}}, ("/connector/record_columns/place", "unknown_column")),
        ({"v": "bigint", "place": "string"}, {"record_columns": {"place": "offset"}}, ("/columns/place", "type_mismatch")),
    ],
)
def test_a_definition_that_reads_nothing_of_the_topic_is_refused(
    columns: dict[str, str], changed: dict[str, Any], expected: tuple[str, str], connection: Connection, mock: Cluster
) -> None:
    source = Source(connection, mock, columns=columns, connector={"value": {"format": "json"}, **changed})
    mock.send(source.topic, [Sent(b'{"v": {}}')])
    with pytest.raises(DefinitionInvalid) as caught:
        source.check()
    assert [(problem.pointer, problem.code) for problem in caught.value.problems] == [expected]


def test_a_connection_that_is_not_there_is_refused(connection: Connection, mock: Cluster) -> None:
    source = Source(
        connection, mock, columns={"v": "bigint"}, connector={"connection": "nobody", "bootstrap": None, "value": {"format": "json"}}
    )  # fmt: skip
    with pytest.raises(DefinitionInvalid, match="nobody") as caught:
        source.check()
    assert caught.value.problems[0].code == "connection_missing"
    with pytest.raises(SourceUnavailable, match="nobody"):
        source.reader().ends()


def test_a_broker_that_is_away_is_told_in_bounded_time(connection: Connection, mock: Cluster) -> None:
    source = Source(connection, mock, columns={"v": "bigint"}, connector={"value": {"format": "json"}})
    mock.end()
    with pytest.raises(SourceUnavailable, match=source.topic):
        source.check()
    assert find_feed(connection, source.feed.log_feed) is None
