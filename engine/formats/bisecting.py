"""The unreadable payloads of a batch: a library reads all or none, so bisecting finds the bad ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import polars as pl
import pyarrow as pa
from polars.exceptions import PanicException

from engine.records.canonical import reject_rows
from engine.records.excerpts import excerpt_of_bytes

PIECE: Final = 50_000
"""Payloads read at once. One bad payload makes these be read again, and about as many values are in memory twice."""

PIECE_BYTES: Final = 64 << 20
"""Bytes that are read at once."""

Payloads = Sequence[bytes]
ReadAll = Callable[[Payloads], pa.RecordBatch]


class UndecodablePayload(ValueError):
    """A batch holds an unreadable payload. The text says what is wrong with the first one."""


def read_bisecting(
    read: ReadAll, payloads: pl.Series, empty: pa.RecordBatch, reason: str
) -> tuple[pa.Table, pl.Series, pl.DataFrame]:
    """Read payloads, and leave out the unreadable ones.

    Args:
        read: reads all or raises.
        payloads: bytes, none of them null.
        empty: the result of reading none.
        reason: the code of the rejects.

    Returns:
        ``(table, places, rejects)``: the rows of the readable payloads, the places of these, and the others by place.
    """
    texts: list[bytes] = payloads.to_list()
    batches: list[pa.RecordBatch] = []
    spans: list[tuple[int, int]] = []
    bad: list[tuple[int, str, str, str]] = []
    waiting = list(reversed(_pieces(payloads)))
    while waiting:
        first, last = waiting.pop()
        try:
            batch = _read(read, texts[first:last])
        except UndecodablePayload as misread:
            if last - first == 1:
                bad.append((first, reason, str(misread), excerpt_of_bytes(texts[first])))
                continue
            middle = (first + last) // 2
            waiting += [(middle, last), (first, middle)]
        else:
            batches.append(batch)
            spans.append((first, last))
    places = [pl.int_range(first, last, dtype=pl.Int64, eager=True) for first, last in spans]
    table = pa.Table.from_batches(batches or [empty])
    return table, pl.concat(places) if places else pl.Series([], dtype=pl.Int64), reject_rows(bad)


def _read(read: ReadAll, payloads: Payloads) -> pa.RecordBatch:
    """Read, and separate faults of payloads from other errors: libraries in Rust raise panics and ValueErrors for both."""
    try:
        batch = read(payloads)
    except UndecodablePayload:
        raise
    except (ValueError, OverflowError, pa.ArrowException, EOFError, IndexError, KeyError, TypeError, UnicodeError) as error:
        raise UndecodablePayload(f"{str(error)[:300] or type(error).__name__}") from error
    except PanicException as error:
        raise UndecodablePayload(f"{str(error)[:300]}") from error
    except BaseException as error:
        # Each Rust library has its own PanicException, derived from BaseException, which cannot be imported.
        if type(error).__name__ != "PanicException":
            raise
        raise UndecodablePayload(f"{str(error)[:300]}") from error
    if batch.num_rows != len(payloads):
        raise UndecodablePayload(f"{len(payloads)} payloads hold {batch.num_rows} values")
    return batch


def _pieces(payloads: pl.Series) -> list[tuple[int, int]]:
    rows = len(payloads)
    if rows == 0:
        return []
    total = int(payloads.bin.size().sum() or 0)
    step = max(1, min(PIECE, int(rows * PIECE_BYTES / max(total, 1))))
    return [(first, min(first + step, rows)) for first in range(0, rows, step)]
