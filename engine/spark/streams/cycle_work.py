"""A worker's part of a cycle: it reads and works for one query after the other. An error of one query becomes its ``failed`` packet.

``engine.spark.streams.scheduling`` decides which queries have a part in a cycle.
"""

from __future__ import annotations

import traceback
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Final

from pyspark.sql.datasource import InputPartition

from engine.errors import SourceUnavailable
from engine.log.fetched import Fetched, fetch
from engine.postgres.postgres import shared_connection
from engine.runtime.failures import marked
from engine.runtime.planning.source_spec import SourceSpec, SplitGroup
from engine.runtime.source import PacketReader
from engine.sources.packets import Packet, size_of

MAX_CYCLE_OUTPUT_BYTES: Final = 64 << 20
"""Once the batches of a cycle have emitted this much, the remaining batches are postponed to the next cycle. One query may emit as much
(``SHARED_EMITTED``), so the total is at most twice this. The driver holds several copies of what a cycle emits."""

KEPT_READERS: Final = 1_024
"""Readers kept in each worker process."""

_readers: OrderedDict[bytes, PacketReader] = OrderedDict()
"""Readers by encoded spec."""


@dataclass(frozen=True, slots=True)
class QueryPart:
    """A query's batch, or a part of it.

    Attributes:
        spec: its encoded ``SourceSpec``.
        batch_id: number of the batch, counted per checkpoint.
        group: the splits to read; None: planning failed.
        failure: why it did, as ``decoded`` reads it.
    """

    query_number: int
    spec: bytes
    batch_id: int
    group: SplitGroup | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class CyclePartition(InputPartition):
    """One Spark task of a cycle.

    Attributes:
        parts: done one after the other.
        is_alone: the slot has one query only, and ends with it.
    """

    parts: tuple[QueryPart, ...]
    is_alone: bool


def error_text(error: Exception) -> str:
    """Return an error as text that ``decoded`` reads."""
    try:
        with marked():
            raise error
    except Exception as found:  # noqa: BLE001 - ``found`` is the error, perhaps marked
        return "".join(traceback.format_exception(found, chain=False))


def failed(query_number: int, failure: str) -> Packet:
    """Return the packet of a batch that failed."""
    return replace(Packet.message("failed", 0), blob=failure.encode(), query_number=query_number)


def cycle_packets(partition: CyclePartition) -> Iterator[Packet]:
    """Yield the results of a cycle's parts, one part after the other. With several queries, stop once they emitted as much as a cycle may."""
    fetched = _fetched(partition.parts)
    emitted = 0
    for part in partition.parts:
        if emitted >= MAX_CYCLE_OUTPUT_BYTES and part.group is not None and not partition.is_alone:
            yield Packet.message("postponed", part.group.now_ms).of_query(part.query_number)
            continue
        for packet in _packets(part, fetched, is_alone=partition.is_alone):
            emitted += size_of(packet)
            yield packet


def _fetched(parts: Sequence[QueryPart]) -> Fetched | None:
    """Ask the database once for the data of all small batches; return None if that fails: each batch then meets the error itself."""
    readers = []
    for part in parts:
        if part.group is not None and part.group.is_whole:
            try:
                readers.append((_reader(part.spec), part.group))
            except Exception:  # noqa: BLE001, S112 - comes again in this query's part, and is reported to it
                continue
    queries = {reader.query_id for reader, _ in readers if reader.query_id is not None}
    if not queries:
        return None
    splits = [split for reader, group in readers for split in reader.fetchable(group)]
    try:
        with shared_connection(readers[0][0].dsn) as connection:
            return fetch(connection, queries, splits)
    except SourceUnavailable:
        return None


def _packets(part: QueryPart, fetched: Fetched | None, *, is_alone: bool) -> Iterator[Packet]:
    """Yield the results of a part. In a shared slot a part that fails half-way yields nothing; a query alone in its slot raises the error."""
    if part.group is None:
        yield failed(part.query_number, part.failure)
        return
    reader = _reader(part.spec)
    found = reader.done(part.group, part.batch_id, fetched)
    if not is_alone:
        begun = perf_counter()
        try:
            with reader.at_work(part.batch_id):  # once for all packets: most packets take less time than this call
                packets = list(found)
        except Exception as error:  # noqa: BLE001 - reported to the query
            yield failed(part.query_number, error_text(error))
            return
        part_ms = round((perf_counter() - begun) * 1_000)
        effort = Packet.message("effort", part.group.now_ms, {"part_ms": part_ms})
        found = iter([*packets, effort])
    for packet in found:
        yield packet.of_query(part.query_number)


def _reader(spec: bytes) -> PacketReader:
    reader = _readers.pop(spec, None) or PacketReader.of(SourceSpec.decoded(spec))
    _readers[spec] = reader
    while len(_readers) > KEPT_READERS:
        _readers.popitem(last=False)
    return reader
