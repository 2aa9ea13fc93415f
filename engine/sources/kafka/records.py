"""Records of a topic as a relation reads them: from fetched columns of bytes to the raw frame for validation. Knows no brokers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, cast

import numpy as np
import polars as pl

from engine.definition.sources.kafka import HEADER
from engine.errors import TableTruncated
from engine.formats.records import RecordReader
from engine.frames.byte_texts import texts_of
from engine.frames.clocks import I64
from engine.plan.model import RelationSchema
from engine.records.canonical import TYPED_FILE, empty_rejects, reject_rows
from engine.records.excerpts import excerpt_of_bytes
from engine.sources.dating import Dated, date_frame
from engine.sources.kafka.brokers.fetching.port import HEADERS, Fetched

SOURCE_KIND: Final = TYPED_FILE


def read_records(
    records: Fetched, reader: RecordReader, relation: RelationSchema, columns: Sequence[tuple[str, str]], partition: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Read records for a relation.

    Args:
        records: as fetched.
        reader: of their keys and values.
        relation: whose they are.
        columns: column → the part of the record that it holds (``KafkaConnector.record_columns``).
        partition: of the records.

    Returns:
        ``(raw, rejects)``, as ``canonicalise`` takes and returns them, with the topic's offsets.
    """
    raw, rejects = reader.read(records.keys, records.values)
    places = raw.get_column("_offset").to_numpy()
    times = pl.Series("_ts", records.timestamps[places])
    if "_ts" in raw.columns:  # the format has the time
        times = raw.get_column("_ts").zip_with(raw.get_column("_ts").is_not_null(), times)
    added = [pl.Series("_offset", records.offsets[places]), times]
    added += [_fact(records, name, what, places, partition) for name, what in columns if name in relation.columns]
    if rejects.height:
        rejects = rejects.with_columns(pl.Series("offset", records.offsets[rejects.get_column("offset").to_numpy()]))
    raw = raw.with_columns(added)
    for name, what in columns:
        if what.startswith(HEADER) and name in relation.columns and relation.columns[name].kind == "string":
            raw, bad = _as_text(raw, name)
            rejects = pl.concat([rejects, bad])
    return raw, rejects


def require_whole_table(rejects: pl.DataFrame, relation: RelationSchema, topic: str, partition: int) -> None:
    """Stop at a truncation, for any ``on_bad_record``: the earlier rows are gone in the database, and no record names them.

    Args:
        rejects: of changes of a database, with the topic's offsets.
        relation: whose they are.
        topic: of the records.
        partition: of the topic.

    Raises:
        TableTruncated: with the steps that correct the table.
    """
    last = rejects.filter(pl.col("reason") == TableTruncated.code).get_column("offset").max()
    if last is None:
        return
    at = cast("int", last)
    to = json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": partition, "offset": at + 1}]})
    raise TableTruncated(
        f"{relation.name}: the database's table was truncated (op t at offset {at} of partition {partition}), and rows that are gone there "
        f"would stay here. Delete the topic's records up to it, with kafka-delete-records.sh and {to}, and in other partitions what is older "
        "than the truncation; then start again: PUT /v1/queries/<name>?state=discard with its definition"
    )


def date_changes(raw: pl.DataFrame, relation: RelationSchema, now_ms: int) -> Dated:
    """Return the event times of a database's changes read for a relation (``read_records``), whatever their other columns hold."""
    columns = relation.columns.select([] if relation.event_time is None else [relation.event_time])
    return date_frame(raw, replace(relation, columns=columns, key=(), where=None), now_ms, is_text=False)


def _fact(records: Fetched, name: str, what: str, places: I64, partition: int) -> pl.Series:
    match what:
        case "timestamp":
            return pl.Series(name, records.timestamps[places])
        case "partition":
            return pl.Series(name, np.full(len(places), partition, np.int64))
        case "offset":
            return pl.Series(name, records.offsets[places])
    headers = pl.Series(name, [], HEADERS) if records.headers is None else records.headers.gather(places).alias(name)
    if what == "headers":
        return headers
    is_wanted = pl.element().struct.field("key") == what.removeprefix(HEADER)
    chosen = headers.list.eval(pl.element().filter(is_wanted).struct.field("value"))
    return chosen.list.last().alias(name)


def _as_text(raw: pl.DataFrame, name: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Decode a header's bytes as text; refuse records with other bytes."""
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
