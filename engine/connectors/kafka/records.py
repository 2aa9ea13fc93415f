"""Records of a topic as columns: from librdkafka's messages to what a relation's formats read, and to the raw frame that is judged.

Of a batch each property is asked for in one pass of ``map``: no Python code runs for a record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Final, cast

import numpy as np
import polars as pl
import pyarrow as pa
from confluent_kafka import Message

from engine.connectors.byte_texts import texts_of
from engine.connectors.canonical import TYPED_FILE, canonicalise, empty_rejects, reject_rows
from engine.connectors.files.dating import Dated
from engine.connectors.formats.excerpting import excerpt_of_bytes
from engine.connectors.formats.records import RecordReader
from engine.connectors.kafka.definition import HEADER
from engine.core.clocks import I64
from engine.plan.model import RelationSchema

NO_TIMESTAMP_MS: Final = -1
"""Of records that were written before Kafka had timestamps: refused as out of range, wherever a timestamp is needed."""

SOURCE_KIND: Final = TYPED_FILE


@dataclass(frozen=True, slots=True)
class Records:
    """Records in the order of their offsets.

    Attributes:
        keys: bytes; null: the record has none.
        values: bytes; null: a tombstone.
        offsets: of the partition, rising, perhaps with gaps.
        timestamps: CreateTime or LogAppendTime in ms; ``NO_TIMESTAMP_MS`` where there is none.
        headers: of each record, the last of each name; None where nobody asked for them.
    """

    keys: pl.Series
    values: pl.Series
    offsets: I64
    timestamps: I64
    headers: Sequence[dict[str, bytes | None]] | None = None

    @classmethod
    def of(cls, messages: Sequence[Message], *, has_keys: bool, has_values: bool, has_headers: bool) -> Records:
        """Make columns of messages; keys and values that nobody reads are null."""
        count = len(messages)
        times = np.fromiter(starmap(_time, map(Message.timestamp, messages)), np.int64, count)
        return cls(
            _binary("key", map(Message.key, messages) if has_keys else [None] * count),
            _binary("value", map(Message.value, messages) if has_values else [None] * count),
            np.fromiter(map(Message.offset, messages), np.int64, count),
            times,
            [_headers(message) for message in messages] if has_headers else None,
        )

    @property
    def size_bytes(self) -> int:
        """Of keys and values together."""
        return int(self.keys.bin.size().sum() or 0) + int(self.values.bin.size().sum() or 0)

    def raw(
        self, reader: RecordReader, relation: RelationSchema, columns: Sequence[tuple[str, str]], partition: int
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Read them for a relation.

        Args:
            reader: of its keys and values.
            relation: whose they are.
            columns: column and what of the record it holds (``KafkaConnector.record_columns``).
            partition: in which they are.

        Returns:
            ``(raw, rejects)``, as ``canonicalise`` takes them and gives them, with the topic's offsets.
        """
        raw, rejects = reader.read(self.keys, self.values)
        places = raw.get_column("_offset").to_numpy()
        times = pl.Series("_ts", self.timestamps[places])
        if "_ts" in raw.columns:  # the format says when
            times = raw.get_column("_ts").zip_with(raw.get_column("_ts").is_not_null(), times)
        added = [pl.Series("_offset", self.offsets[places]), times]
        added += [self._fact(name, what, places, partition) for name, what in columns if name in relation.columns]
        if rejects.height:
            rejects = rejects.with_columns(pl.Series("offset", self.offsets[rejects.get_column("offset").to_numpy()]))
        raw = raw.with_columns(added)
        for name, what in columns:
            if what.startswith(HEADER) and name in relation.columns and relation.columns[name].kind == "string":
                raw, bad = _as_text(raw, name)
                rejects = pl.concat([rejects, bad])
        return raw, rejects

    def _fact(self, name: str, what: str, places: I64, partition: int) -> pl.Series:
        match what:
            case "timestamp":
                return pl.Series(name, self.timestamps[places])
            case "partition":
                return pl.Series(name, np.full(len(places), partition, np.int64))
            case "offset":
                return pl.Series(name, self.offsets[places])
        found = [] if self.headers is None else [self.headers[place] for place in places.tolist()]
        if what == "headers":
            entry = pl.Struct({"key": pl.String, "value": pl.Binary})
            rows = [[{"key": key, "value": value} for key, value in each.items()] for each in found]
            return pl.Series(name, rows, dtype=pl.List(entry))
        wanted = what.removeprefix(HEADER)
        return pl.Series(name, [each.get(wanted) for each in found], dtype=pl.Binary)


def date_records(
    records: Records,
    reader: RecordReader,
    relation: RelationSchema,
    columns: Sequence[tuple[str, str]],
    partition: int,
    now_ms: int,
) -> Dated:
    """Return the event times that records have for a relation of ``dating_relations``; see ``Records.raw``."""
    raw, _ = records.raw(reader, relation, columns, partition)
    accepted, _ = canonicalise(raw, relation, now_ms, SOURCE_KIND)
    return Dated(accepted.get_column("_offset").to_numpy(), accepted.get_column("_ts").to_numpy())


def date_changes(raw: pl.DataFrame, relation: RelationSchema, now_ms: int) -> Dated:
    """Return the event times of changes of a database that were read for a relation (``Records.raw``), whatever their other columns hold."""
    columns = relation.columns.select([] if relation.event_time is None else [relation.event_time])
    dating = replace(relation, columns=columns, key=(), where=None)
    accepted, _ = canonicalise(raw, dating, now_ms, SOURCE_KIND)
    return Dated(accepted.get_column("_offset").to_numpy(), accepted.get_column("_ts").to_numpy())


def _time(kind: int, time_ms: int) -> int:
    return time_ms if kind else NO_TIMESTAMP_MS


def _headers(message: Message) -> dict[str, bytes | None]:
    return dict(cast("list[tuple[str, bytes | None]]", message.headers() or []))


def _binary(name: str, payloads: Iterable[bytes | None]) -> pl.Series:
    return pl.Series(name, pa.array(list(payloads), pa.large_binary()))


def _as_text(raw: pl.DataFrame, name: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Make texts of a header's bytes; refuse records where they are none."""
    payloads = raw.get_column(name)
    texts = texts_of(payloads)
    bad = texts.is_null() & payloads.is_not_null()
    raw = raw.with_columns(texts)
    if not bad.any():
        return raw, empty_rejects()
    rows = [
        (offset, "invalid_string", f"the header of column {name!r} is not UTF-8", excerpt_of_bytes(payload))
        for offset, payload in zip(raw.get_column("_offset").filter(bad), payloads.filter(bad), strict=True)
    ]
    return raw.filter(~bad), reject_rows(rows)
