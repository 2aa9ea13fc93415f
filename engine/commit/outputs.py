"""The port through which a commit stores a query's results. Behind it are the forms of results in the database.

Every result has a log, which is written first and numbers the rows (P1, P7). Readers of a result (queries, clients, other systems) read
the log, each at its own position. So this port has only forms that must exist with the commit itself, because reads ask for them as of the
last batch. A delivery to another system reads the log after the commit, and delays no commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import polars as pl
import psycopg

from engine.commit.views import apply_changes, apply_open, expire_windows
from engine.plan.model import Output

Cursor = psycopg.Cursor[Any]


class ResultForm(Protocol):
    """The work of a commit on a result beside appending to its log. All of it is in the sink's transaction, on its connection."""

    def write(self, cursor: Cursor, rows: Sequence[pl.DataFrame], stream_time_ms: int | None) -> None:
        """Write the batch's rows.

        Args:
            cursor: inside the transaction.
            rows: output columns, ``_ts``, ``_op``, each task's in the order of emission; at least one row.
            stream_time_ms: that of the result, as of before the batch; None: none is known.
        """
        ...

    def write_open(self, cursor: Cursor, opened: Sequence[pl.DataFrame], changes: Sequence[pl.DataFrame]) -> None:
        """Write the current rows of open windows, if the result keeps them; ``changes`` are the results of the batch."""
        ...

    def expire(self, cursor: Cursor, stream_time_ms: int) -> None:
        """Delete the rows that the result no longer keeps at this stream time."""
        ...


@dataclass(frozen=True, slots=True)
class LogForm:
    """The form of a stream: only its log."""

    output: Output

    def write(self, cursor: Cursor, rows: Sequence[pl.DataFrame], stream_time_ms: int | None) -> None:
        """See ``ResultForm``."""

    def write_open(self, cursor: Cursor, opened: Sequence[pl.DataFrame], changes: Sequence[pl.DataFrame]) -> None:
        """See ``ResultForm``."""

    def expire(self, cursor: Cursor, stream_time_ms: int) -> None:
        """See ``ResultForm``."""


@dataclass(frozen=True, slots=True)
class ViewForm:
    """The form of a table: its rows, and optionally their versions and open windows (``engine.commit.views``)."""

    output: Output

    def write(self, cursor: Cursor, rows: Sequence[pl.DataFrame], stream_time_ms: int | None) -> None:
        apply_changes(cursor, self.output, pl.concat(rows), stream_time_ms)

    def write_open(self, cursor: Cursor, opened: Sequence[pl.DataFrame], changes: Sequence[pl.DataFrame]) -> None:
        if self.output.has_open:
            apply_open(cursor, self.output, opened, changes)

    def expire(self, cursor: Cursor, stream_time_ms: int) -> None:
        expire_windows(cursor, self.output, stream_time_ms)


FORMS: Final[Mapping[str, Callable[[Output], ResultForm]]] = {"stream": LogForm, "table": ViewForm}
"""One entry for each kind of relation."""


def form_of(output: Output) -> ResultForm:
    """Return a result's form beside its log."""
    return FORMS[output.kind](output)


def with_keys(frames: Sequence[pl.DataFrame], output: Output, counters: dict[tuple[str, str], int]) -> list[pl.DataFrame]:
    """Leave out rows of a table without a key: they cannot be kept, found or deleted (T6).

    Args:
        frames: the rows of each task.
        output: of the query.
        counters: added to.
    """
    if output.kind == "stream" or not output.key:
        return list(frames)
    keyed = [_keyed(frame, output.key) for frame in frames]
    dropped = sum(frame.height for frame in frames) - sum(frame.height for frame in keyed)
    if dropped:
        counters[output.name, "null_key"] += dropped
    return keyed


def _keyed(frame: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Return the rows whose key has no null."""
    return frame.drop_nulls(list(key)) if any(frame.get_column(name).null_count() for name in key) else frame
