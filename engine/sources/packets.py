"""Packets: the few big rows in which records cross Spark's Python border.

A packet is one row of ``PACKET_SCHEMA``. ``data`` packets carry a frame as an Arrow IPC stream, for the stage that reads their input;
``tick`` packets bring every task the clock and how far feeds were read; ``replay`` packets bring late records to the stage that refused
them, and ``replayed`` ones carry, like ``data``, what came of them; ``active`` packets tell the next stage's tasks that records came to this
one's, and the first stage's that records came which only a later one reads, where silence counts (T10); the other kinds ride along to the
sink untouched: ``progress``, ``reject``, ``late``, ``stats``, the ``state`` that each task has behind the batch, and the ``cursor``, where the
batch ends. ``failed`` stands for a whole batch of a query, ``put_off`` for one that was not begun.
Knows nothing of where records come from.
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
    "active",
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
    "put_off",
    "effort",
]

BATCH_ID: Final = "batch_id"
"""In the blob of a ``cursor``, beside the cursor: the number that the batch was planned as."""

PACKET_DDL = (
    "task int, kind string, input int, partition int, first_offset long, rows int, "
    "min_ts long, max_ts long, now_ms long, blob binary, file string, member int"
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
        ("member", pa.int32()),
    ]
)

PACKET_BYTES = 64 << 20
"""Of a packet with more than one row, and of the packets that cross Spark's border in one record batch: a column of blobs in Arrow ends at
2 GB, and everything is copied whole several times on its way."""


@dataclass(frozen=True, slots=True)
class Packet:
    """One row of ``PACKET_SCHEMA``.

    Attributes:
        task: the task it goes to, as ordinal.
        kind: what the blob holds.
        input: ``Input.index``; of what a stage emits ``emitted_by`` of that stage.
        partition: partition of the feed; of what a stage emits the task's ordinal.
        first_offset: offset of its first record; of what a stage emits the emission's number.
        rows: records inside; 0 for kinds without records.
        min_ts: least event time inside, None without records.
        max_ts: greatest event time inside.
        now_ms: the batch's wall clock (T5).
        blob: Arrow IPC stream, or UTF-8 JSON for ``progress``, ``stats``, ``tick``, ``cursor`` and ``effort``, see ``TaskState`` for ``state``;
            empty for ``active``.
        file: the file that holds the blob (``engine.runtime.blob_files``); None where the packet does.
        member: which of a slot's queries it belongs to (``engine.spark.streams.slot``).
        frame: of a ``data`` packet that stays in its process what else the blob would hold, which is empty then.
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
    member: int = 0
    frame: pl.DataFrame | None = field(default=None, compare=False)

    def of_member(self, member: int) -> Packet:
        """Return the packet as one of a slot's query: what ``replace`` gives, at half the cost."""
        values = [*_VALUES(self)[:-1], member, self.frame]
        return Packet(*values)


_VALUES: Final = attrgetter(*PACKET_SCHEMA.names)
"""Of a packet, in the order of its columns."""


class HasBlob(Protocol):
    """A packet, or a row of Spark that holds one."""

    @property
    def blob(self) -> bytes: ...

    @property
    def file(self) -> str | None: ...


def emitted_by(stage_index: int) -> int:
    """Return what stands for an input in the packets that a stage emits: below every ``Input.index``."""
    return -1 - stage_index


BEFORE_ALL_STAGES: Final = emitted_by(-1)
"""What an ``active`` packet comes from that the source makes."""


def stage_of(emitted: int) -> int:
    """Return the stage whose ``emitted_by`` this is."""
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
    """Put packets into record batches as they come, a batch for so many bytes of blobs, or for a single larger one."""
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
    """Return a packet's blob, wherever it is.

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
    """Return the frame that a packet carries, wherever it is.

    Raises:
        ExternalError: see ``blob_of``.
    """
    return decode_frame(blob_of(packet)) if packet.frame is None else packet.frame


def size_of(packet: Packet) -> int:
    """Return how many bytes a packet's blob has, wherever it is; 0 where its file is gone."""
    if packet.file is None:
        return len(packet.blob)
    try:
        return Path(packet.file).stat().st_size
    except OSError:  # who reads it says so
        return 0


@dataclass(frozen=True, slots=True)
class Route:
    """What the data packets of one frame have in common.

    Attributes:
        is_here: who reads them works in this process: they carry the frame itself.
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
