"""The port through which a commit keeps a query's results. Behind it are the forms that results have in the database.

The log comes first and is every result's: it numbers the rows (P1, P7), and whatever follows a result, queries, clients or systems
elsewhere, reads it from there, each at a position of its own. So only what has to be there with the commit itself stands behind this port:
what reads ask for as of the last batch. Whoever brings results elsewhere reads the log behind the commit, and delays none.
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
    """What a commit does with a result beside appending it to its log. Everything happens in the sink's transaction, on its connection."""

    def write(self, cursor: Cursor, rows: Sequence[pl.DataFrame], stream_time_ms: int | None) -> None:
        """Write what the batch emitted.

        Args:
            cursor: inside the transaction.
            rows: output columns, ``_ts``, ``_op``, each task's in the order of emission; at least one row.
            stream_time_ms: the smallest over the tasks, as of before the batch; None: none is known.
        """
        ...

    def write_open(self, cursor: Cursor, opened: Sequence[pl.DataFrame], changes: Sequence[pl.DataFrame]) -> None:
        """Write what open windows have now, where the result keeps them; ``changes`` are the results that the batch emitted."""
        ...

    def expire(self, cursor: Cursor, stream_time_ms: int) -> None:
        """Forget what the result no longer keeps at this stream time."""
        ...


@dataclass(frozen=True, slots=True)
class LogForm:
    """A stream's: its log is all there is."""

    output: Output

    def write(self, cursor: Cursor, rows: Sequence[pl.DataFrame], stream_time_ms: int | None) -> None:
        """See ``ResultForm``."""

    def write_open(self, cursor: Cursor, opened: Sequence[pl.DataFrame], changes: Sequence[pl.DataFrame]) -> None:
        """See ``ResultForm``."""

    def expire(self, cursor: Cursor, stream_time_ms: int) -> None:
        """See ``ResultForm``."""


@dataclass(frozen=True, slots=True)
class ViewForm:
    """A table's: its rows, and as the output says their versions and open windows (``engine.commit.views``)."""

    output: Output

    def write(self, cursor: Cursor, rows: Sequence[pl.DataFrame], stream_time_ms: int | None) -> None:
        """See ``ResultForm``."""
        apply_changes(cursor, self.output, pl.concat(rows), stream_time_ms)

    def write_open(self, cursor: Cursor, opened: Sequence[pl.DataFrame], changes: Sequence[pl.DataFrame]) -> None:
        """See ``ResultForm``."""
        if self.output.has_open:
            apply_open(cursor, self.output, opened, changes)

    def expire(self, cursor: Cursor, stream_time_ms: int) -> None:
        """See ``ResultForm``."""
        expire_windows(cursor, self.output, stream_time_ms)


FORMS: Final[Mapping[str, Callable[[Output], ResultForm]]] = {"stream": LogForm, "table": ViewForm}
"""By the kind of the relation that is written: one entry each."""


def form_of(output: Output) -> ResultForm:
    """Return how a result is kept beside its log."""
    return FORMS[output.kind](output)
