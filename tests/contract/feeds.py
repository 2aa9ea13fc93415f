"""A feed of each connector, and of each form it has, for the tests of what all of them promise: one entry here for a new one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import polars as pl

from engine.definition.relations import StreamDefinition
from engine.log.sequence import Numbered
from engine.log.sequences import make_result_feed
from engine.log.storage import append_batches, encode_batch, find_feed
from engine.plan.catalog import feed_of
from engine.plan.model import Feed, RelationSchema
from engine.postgres.postgres import Connection
from engine.records.canonical import canonicalise
from engine.sources.connector_kinds import KINDS, open_feed
from engine.sources.feeds import FeedReader
from tests.derived_log import append_rows, open_sequence
from tests.kafka.topics import Sent, mock_cluster
from tests.unit.records.relations import NOW_MS, relation

COLUMNS = {"t": "bigint", "v": "bigint"}
RECORDS = relation(COLUMNS, event_time="t")
ROWS = relation(COLUMNS)
"""As records of a result: their event time is the one that they were written with."""

Write = Callable[["Sample", pl.DataFrame], None]
TakeAway = Callable[["Sample"], object]


@dataclass
class Sample:
    """A feed with one partition, that can be written to.

    Attributes:
        connector: as in a definition.
        relation: that is read from it.
        take_away: lets its records be out of reach.
        times: event times of its records, in their order; ``v`` is the place.
    """

    connection: Connection
    connector: dict[str, Any]
    write: Write
    relation: RelationSchema = RECORDS
    is_derived: bool = False
    take_away: TakeAway = lambda sample: sample.connection.execute("DELETE FROM log.feed")
    times: list[int] = field(default_factory=list)

    @property
    def definition(self) -> StreamDefinition:
        return StreamDefinition.model_validate({"columns": COLUMNS, "event_time": "t", "connector": self.connector})

    @property
    def feed(self) -> Feed:
        return Feed.in_log("made", is_derived=True) if self.is_derived else feed_of("sample", self.definition)

    @property
    def dsn(self) -> str:
        return self.connection.info.dsn

    def register(self) -> None:
        if self.is_derived:
            make_result_feed(self.connection, "made", 1, uuid4())
            return
        clash = KINDS[self.feed.type].control.register(self.connection, self.feed, self.definition.connector)
        assert clash is None

    def reader(self) -> FeedReader:
        return open_feed(self.dsn, self.feed, [self.relation])

    def append(self, times: Sequence[int]) -> None:
        first = len(self.times)
        self.times += times
        self.write(self, pl.DataFrame({"t": times, "v": range(first, first + len(times))}))


def to_log(sample: Sample, records: pl.DataFrame) -> None:
    found = find_feed(sample.connection, sample.feed.log_feed)
    assert found is not None
    accepted, _ = canonicalise(records, sample.relation, NOW_MS)
    append_batches(sample.connection, found.id, [(0, encode_batch(part, NOW_MS)) for part in accepted.iter_slices(40)])


def to_result(sample: Sample, records: pl.DataFrame) -> None:
    """Commit as a query of one task does."""
    heads = np.maximum.accumulate(np.array(sample.times))[-records.height :]
    rows = records.with_columns(pl.col("t").alias("_ts"), pl.lit(0, pl.Int8).alias("_op"))
    with sample.connection.transaction():
        feed = open_sequence(sample.connection, sample.feed.log_feed)
        numbers = Numbered([np.arange(records.height)], [heads], int(heads[-1]))
        append_rows(sample.connection, feed, [rows], numbers, uuid4(), NOW_MS)


def to_files(write: Callable[[pl.DataFrame, Path], object]) -> Write:
    """Write each time another file, which appears whole."""

    def written(sample: Sample, records: pl.DataFrame) -> None:
        directory = Path(sample.connector["path"])
        draft = directory / "_draft"
        write(records, draft)
        draft.rename(directory / f"{records.item(0, 'v'):06}")

    return written


def remove_files(sample: Sample) -> None:
    for path in Path(sample.connector["path"]).glob("*"):
        path.unlink()


Payload = Callable[[dict[str, Any]], bytes]


def _topic(value: dict[str, Any], payload: Payload) -> Callable[[Connection, Path], Sample]:
    """Make a topic of librdkafka's mock, a cluster for each sample: it can be ended."""

    def made(connection: Connection, _: Path) -> Sample:
        cluster = mock_cluster()
        topic = cluster.topic()

        def written(_: Sample, records: pl.DataFrame) -> None:
            cluster.send(topic, [Sent(payload(record)) for record in records.to_dicts()])

        connector = {"type": "kafka", "bootstrap": cluster.bootstrap, "topic": topic, "value": value}
        return Sample(connection, connector, written, take_away=lambda _: cluster.end())

    return made


def _json(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode()


def _change(record: dict[str, Any]) -> bytes:
    """Write an insert, as Debezium captures it."""
    source = {"connector": "postgresql", "name": "n", "db": "d", "ts_ms": 5, "lsn": record["v"]}
    return _json({"op": "c", "before": None, "after": record, "source": source, "ts_ms": 5})


def _ndjson(records: pl.DataFrame, path: Path) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records.to_dicts()))


def _files(form: str, write: Callable[[pl.DataFrame, Path], object]) -> Callable[[Connection, Path], Sample]:
    return lambda connection, path: Sample(
        connection, {"type": "files", "path": str(path), "format": form}, to_files(write), take_away=remove_files
    )


SAMPLES: dict[str, Callable[[Connection, Path], Sample]] = {
    "log": lambda connection, _: Sample(connection, {"type": "log", "partitions": 1}, to_log),
    "result": lambda connection, _: Sample(connection, {}, to_result, ROWS, is_derived=True),
    "ndjson": _files("ndjson", _ndjson),
    "csv": _files("csv", lambda records, path: records.write_csv(path)),
    "parquet": _files("parquet", lambda records, path: records.write_parquet(path, row_group_size=16)),
    "kafka": _topic({"format": "json"}, _json),
    "kafka changes": _topic({"format": "debezium"}, _change),
}
"""Connection and a directory of one's own → the feed."""
