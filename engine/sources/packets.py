"""Packets: the few large rows in which records cross Spark's Python border.

A packet is one row of ``PACKET_SCHEMA``.
- ``data``: a frame as an Arrow IPC stream, for the stage that reads this input.
- ``tick``: brings every task the clock and the progress of feeds.
- ``replay``: late records for the stage that refused them; ``replayed``: their results, in the form of ``data``.
- ``times``: tells every task and the sink where the head and the times of a split's lane rise (``engine.sources.lane_times``).
- ``progress``, ``reject``, ``late``, ``stats``, the ``state`` of each task after the batch, and the ``cursor``, where the batch ends: these
  pass to the sink unchanged.
- ``effort``: the time of a reader (``read_ms``, ``function_ms``), and whether it read and worked for the whole batch (``is_whole``); in a
  shared slot the time of both (``part_ms``).
- ``failed``: replaces a whole batch of a query; ``postponed``: replaces a batch that did not begin.
This module does not know where records come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Literal, Protocol, cast

import polars as pl
import pyarrow as pa

from engine.errors import ExternalError, InvariantBroken
from engine.frames.arrow_frames import decode_frame, encode_frame, split_by_task
from engine.frames.compact_json import compact

PacketKind = Literal[
    "data",
    "tick",
    "times",
    "replay",
    "replayed",
    "opened",
    "progress",
    "reject",
    "late",
    "stats",
    "state",
    "cursor",
    "failed",
    "postponed",
    "effort",
]

BATCH_ID: Final = "batch_id"
"""The key in the blob of a ``cursor`` packet for the number of the planned batch."""

PACKET_DDL = (
    "task int, kind string, input int, partition int, first_offset long, rows int, "
    "min_ts long, max_ts long, now_ms long, blob binary, file string, query_number int"
)
PACKET_SCHEMA = pa.schema(
    [
        ("task", pa.int32()),
        ("kind", pa.string()),
        ("input", pa.int32()),
        ("partition", pa.int32()),
        ("first_offset", pa.int64()),
        ("rows", pa.int32()),
        ("min_ts", pa.int64()),
        ("max_ts", pa.int64()),
        ("now_ms", pa.int64()),
        ("blob", pa.binary()),
        ("file", pa.string()),
        ("query_number", pa.int32()),
    ]
)

PACKET_BYTES = 64 << 20
"""Bound of a packet with more than one row, and of the packets in one record batch across Spark's border. Arrow limits a column of blobs to
2 GB, and everything is copied several times on its way."""


@dataclass(frozen=True, slots=True)
class Packet:
    """One row of ``PACKET_SCHEMA``.

    Attributes:
        task: ordinal of the receiving task.
        kind: of the blob.
        input: ``Input.index``; in packets of a stage, its ``emitted_by``.
        partition: partition of the feed; in packets of a stage, the task's ordinal.
        first_offset: offset of its first record; in packets of a stage, the emission's number.
        rows: records inside; 0 for kinds without records.
        min_ts: least event time inside, None without records.
        max_ts: greatest event time inside.
        now_ms: the batch's wall clock (T5).
        blob: Arrow IPC stream, or UTF-8 JSON for ``progress``, ``stats``, ``tick``, ``cursor`` and ``effort``, see ``TaskState`` for ``state``,
            see ``engine.sources.lane_times`` for ``times``.
        file: the file that holds the blob (``engine.runtime.blob_files``); None if the packet holds it.
        query_number: number of the query in its slot (``engine.spark.streams.slot``).
        frame: the content of a ``data`` packet that stays in its process; the blob is then empty.
    """

    task: int
    kind: PacketKind
    input: int
    partition: int
    first_offset: int
    rows: int
    min_ts: int | None
    max_ts: int | None
    now_ms: int
    blob: bytes
    file: str | None = None
    query_number: int = 0
    frame: pl.DataFrame | None = field(default=None, compare=False)

    @classmethod
    def message(
        cls, kind: PacketKind, now_ms: int, content: Mapping[str, Any] | None = None, *, task: int = 0, source: int = 0
    ) -> Packet:
        """Return a packet without records.

        Args:
            kind: of the message.
            now_ms: the batch's wall clock.
            content: JSON; None: the kind says everything.
            task: the receiving task.
            source: see ``input``.
        """
        return cls(task, kind, source, 0, 0, 0, None, None, now_ms, b"" if content is None else encode_json(content))

    def of_query(self, query_number: int) -> Packet:
        """Return the packet for one of a slot's queries: the result of ``replace``, at half the cost."""
        values = [*_VALUES(self)[:-1], query_number, self.frame]
        return Packet(*values)


_VALUES: Final = attrgetter(*PACKET_SCHEMA.names)
"""A packet's values in the order of its columns."""


class HasBlob(Protocol):
    """A packet, or a row of Spark that holds one."""

    @property
    def blob(self) -> bytes: ...

    @property
    def file(self) -> str | None: ...


def emitted_by(stage_index: int) -> int:
    """Return the input number of packets that a stage emits: below every ``Input.index``."""
    return -1 - stage_index


def stage_of(emitted: int) -> int:
    return -1 - emitted


def encode_json(value: Mapping[str, Any]) -> bytes:
    """Write the blob of a ``progress``, ``stats`` or ``tick`` packet."""
    return compact(value).encode()


def packet_batch(packets: Iterable[Packet]) -> pa.RecordBatch:
    """Put packets into one record batch of exactly ``PACKET_SCHEMA``.

    Raises:
        InvariantBroken: one of them carries a frame.
    """
    packets = list(packets)
    if any(packet.frame is not None for packet in packets):
        raise InvariantBroken("a packet that stays in its process is to cross Spark's border")
    rows = [_VALUES(packet) for packet in packets]
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in PACKET_SCHEMA]
    arrays = [pa.array(values, type=field.type) for values, field in zip(columns, PACKET_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=PACKET_SCHEMA)


def packet_batches(packets: Iterable[Packet], max_bytes: int = PACKET_BYTES) -> Iterator[pa.RecordBatch]:
    """Put packets into record batches in order, a batch for ``max_bytes`` of blobs, or for a single larger one."""
    together: list[Packet] = []
    size = 0
    for packet in packets:
        if together and size + len(packet.blob) > max_bytes:
            yield packet_batch(together)
            together, size = [], 0
        together.append(packet)
        size += len(packet.blob)
    if together:
        yield packet_batch(together)


def packets_in(table: pa.Table | pa.RecordBatch) -> list[Packet]:
    """Read packets back from Arrow rows; their blobs may be in files (``blob_of``). Columns are taken by name."""
    columns = [table.column(field.name).to_pylist() for field in PACKET_SCHEMA]
    return [Packet(*row) for row in zip(*columns, strict=True)]


def unpack(table: pa.Table | pa.RecordBatch) -> list[Packet]:
    """Read packets back from Arrow rows, with their blobs."""
    packets = packets_in(table)
    return [packet if packet.file is None else replace(packet, blob=blob_of(packet), file=None) for packet in packets]


def blob_of(packet: HasBlob) -> bytes:
    """Return a packet's blob, from the packet or its file.

    Raises:
        ExternalError: its file cannot be read.
    """
    if packet.file is None:
        return packet.blob
    try:
        return Path(packet.file).read_bytes()
    except OSError as error:
        raise ExternalError(f"{packet.file} cannot be read: {error.strerror}. The query makes it again by itself") from error


def frame_in(packet: Packet) -> pl.DataFrame:
    """Return a packet's frame, from the packet or its file.

    Raises:
        ExternalError: see ``blob_of``.
    """
    return decode_frame(blob_of(packet)) if packet.frame is None else packet.frame


def size_of(packet: Packet) -> int:
    """Return the size of a packet's blob; 0 if its file is gone."""
    if packet.file is None:
        return len(packet.blob)
    try:
        return Path(packet.file).stat().st_size
    except OSError:  # the reader reports the error
        return 0


@dataclass(frozen=True, slots=True)
class Route:
    """The common properties of one frame's data packets.

    Attributes:
        is_here: their reader works in this process: they carry the frame itself.
    """

    input: int
    partition: int
    now_ms: int
    is_here: bool = False


def data_packets(frame: pl.DataFrame, tasks: int, route: Route) -> list[Packet]:
    """Split canonical records (``_offset`` rising) by task into ``data`` packets."""
    packets = []
    for task, part in split_by_task(frame, tasks):
        times = part.get_column("_ts")
        low, high = cast("int", times.min()), cast("int", times.max())
        first = int(part.item(0, "_offset"))
        blob, held = (b"", part.rechunk()) if route.is_here else (encode_frame(part), None)
        packets.append(
            Packet(task, "data", route.input, route.partition, first, part.height, low, high, route.now_ms, blob, frame=held)
        )
    return packets
