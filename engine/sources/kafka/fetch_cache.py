"""Records that the planning process has fetched for their event times, kept for workers of the same machine, which need not fetch them again.

Records are an Arrow stream in memory with a file descriptor and no name (``memfd_create``). Workers open and map it through the process that
keeps it. The memory is gone when that process frees it or ends, in any way: nothing is left behind, and nothing is on disk. A few records
travel with the split itself. A worker without access, on another machine or later, fetches the records again; no result depends on it.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final
from uuid import uuid4

import numpy as np
import polars as pl
import pyarrow as pa

from engine.sources.kafka.brokers.fetching.port import Fetched

MOST_BYTES: Final = 256 << 20
"""Bound of one process: about three batches of the usual size. More is not kept, because the earliest records are needed first."""

MOST_PIECES: Final = 256
"""Bound of one process, each a file descriptor; processes usually may have 1,024."""

INLINE_BYTES: Final = 32 << 10
"""Up to this size a descriptor costs more than the copy."""

_NAME: Final = "slackwater-records-"


@dataclass(frozen=True, slots=True)
class Reference:
    """The place of kept records. It pickles.

    Attributes:
        start: they are all records in ``[start, stop)`` of their partition.
        stop: see there.
        machine: which one, and which view of its processes.
        path: of the descriptor.
        name: of the memory, different from all others.
        content: the records themselves, if they are few.
    """

    start: int
    stop: int
    machine: str = ""
    path: str = ""
    name: str = ""
    content: bytes | None = None


@dataclass(slots=True)
class _CachedFetch:
    reference: Reference
    descriptor: int | None
    size_bytes: int


@dataclass(slots=True)
class _CacheTotals:
    """What all keepers of this process hold.

    Attributes:
        lock: of both numbers, and of each keeper's pieces. The garbage collector may end a keeper in the thread that holds the lock.
    """

    size_bytes: int = 0
    pieces: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)


_HELD: Final = _CacheTotals()


class Keeper:
    """Keeps records of one topic's partitions. Safe for threads; for the process that made it."""

    def __init__(self) -> None:
        self._pieces: dict[int, list[_CachedFetch]] = {}

    def keep(self, partition: int, start: int, stop: int, records: Fetched) -> None:
        """Keep all records in ``[start, stop)``, if there is room."""
        if _machine() is None:
            return
        with _HELD.lock:
            if _HELD.size_bytes > MOST_BYTES or _HELD.pieces >= MOST_PIECES:
                return
        kept = _written(start, stop, records)
        with _HELD.lock:
            self._pieces.setdefault(partition, []).append(kept)
            _HELD.size_bytes += kept.size_bytes
            _HELD.pieces += kept.descriptor is not None

    def references(self, partition: int, start: int, end: int) -> tuple[Reference, ...]:
        """Return what is kept of ``[start, end)``, in the order of offsets."""
        with _HELD.lock:
            found = [kept.reference for kept in self._pieces.get(partition, [])]
        return tuple(sorted((each for each in found if each.start < end and each.stop > start), key=lambda each: each.start))

    def forget(self, partition: int, before: int) -> None:
        """Free records before an offset."""
        with _HELD.lock:
            pieces = self._pieces.get(partition, [])
            self._pieces[partition] = [kept for kept in pieces if kept.reference.stop > before]
            for kept in pieces:
                if kept.reference.stop <= before:
                    _free(kept)

    def __del__(self) -> None:
        with _HELD.lock:
            for pieces in self._pieces.values():
                for kept in pieces:
                    _free(kept)


def recalled(references: tuple[Reference, ...], start: int, end: int) -> Iterator[tuple[int, int, Fetched | None]]:
    """Cut ``[start, end)`` into kept parts, with their records, and the other parts, which have to be fetched."""
    for each in references:
        if each.stop <= start or each.start >= end:
            continue
        records = _open_piece(each)
        if records is None:
            continue
        if each.start > start:
            yield start, each.start, None
            start = each.start
        stop = min(each.stop, end)
        yield start, stop, records.within(start, stop)
        start = stop
    if start < end:
        yield start, end, None


def _written(start: int, stop: int, records: Fetched) -> _CachedFetch:
    table = _table(records)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    content = sink.getvalue()
    if content.size <= INLINE_BYTES:
        return _CachedFetch(Reference(start, stop, content=content.to_pybytes()), None, content.size)
    name = f"{_NAME}{uuid4().hex}"
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    with os.fdopen(os.dup(descriptor), "wb", buffering=0) as file:
        view = memoryview(content)
        while len(view):
            view = view[file.write(view) :]
    path = f"/proc/{os.getpid()}/fd/{descriptor}"
    return _CachedFetch(Reference(start, stop, _machine() or "", path, name), descriptor, content.size)


def _table(records: Fetched) -> pa.Table:
    columns = {
        "key": records.keys.to_arrow(),
        "value": records.values.to_arrow(),
        "offset": pa.array(records.offsets),
        "timestamp": pa.array(records.timestamps),
    }
    if records.headers is not None:
        columns["headers"] = records.headers.to_arrow()
    return pa.table(columns)


def _open_piece(reference: Reference) -> Fetched | None:
    if reference.content is not None:
        return _read(pa.py_buffer(reference.content))
    if reference.machine != _machine():
        return None
    try:
        # The name is checked first: another process may have other memory under this number.
        if not _is_named(reference.path, reference.name):
            return None
        descriptor = os.open(reference.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not _is_named(f"/proc/self/fd/{descriptor}", reference.name):
            return None
        return _read(pa.py_buffer(mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)))
    finally:
        os.close(descriptor)


def _is_named(path: str, name: str) -> bool:
    return str(Path(path).readlink()) == f"/memfd:{name} (deleted)"


def _read(content: pa.Buffer) -> Fetched:
    table = pa.ipc.open_stream(content).read_all()
    columns = {name: pl.Series(name, table[name]) for name in table.column_names}
    offsets, times = (columns[name].to_numpy().astype(np.int64, copy=False) for name in ("offset", "timestamp"))
    return Fetched(columns["key"], columns["value"], offsets, times, columns.get("headers"))


def _free(kept: _CachedFetch) -> None:
    """Free a piece; the caller holds the lock."""
    _HELD.size_bytes -= kept.size_bytes
    if kept.descriptor is not None:
        _HELD.pieces -= 1
        os.close(kept.descriptor)


@cache
def _machine() -> str | None:
    """Return this process's machine and view of its processes; None: it has no such memory, or cannot know."""
    if not hasattr(os, "memfd_create"):
        return None
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None
