"""From chains of elements to session results: merging partials, output rows, EMIT CHANGES (W6, W7, STRICT 4, 16, 21)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from engine.expressions.types.types import TIMESTAMP, Schema
from engine.frames.clocks import I64
from engine.frames.frames import KEY_HASH, OP, TS, values_taken
from engine.operators.aggregation.accumulators.marks import Marks
from engine.operators.aggregation.aggregate import Aggregates
from engine.operators.aggregation.having import Having
from engine.operators.windows.corrections import WINDOW_END, WINDOW_START
from engine.operators.windows.sessions.session_exact import Chains
from engine.operators.windows.sessions.session_store import END, HASH, START
from engine.operators.windows.window_places import earliest, least_arrivals
from engine.plan.operators.windows import SessionAggregation
from engine.state.sorted.running import Groups

RECORD: Final = "_record"
"""Index of the record that caused a change."""

_SESSION: Final = "_session"

_US_PER_MS: Final = 1000

_PLACES_PER_PART: Final = 1 << 32
"""More texts than one partial can hold."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What a batch's chains show.

    Attributes:
        frame: ``RECORD``, ``_ts``, ``_op``, ``_key_hash``, the output columns, ``FIRST`` (and ``ARRIVED``), in emission order; deletes have no
            values.
        sessions: partials of the sessions that the batch changed, as they stand after it.
        marks: what is to be counted.
    """

    frame: pl.DataFrame
    sessions: pl.DataFrame
    marks: Marks


class _Emissions(NamedTuple):
    """What is emitted, in order: the row of a chain, the row whose record causes it, and ``_op``."""

    rows: I64
    causes: I64
    op: NDArray[np.int8]


class SessionFold:
    """Merges the parts of sessions and reads results off them.

    Args:
        spec: what to do.
        schema: the columns that the aggregates read.
    """

    def __init__(self, spec: SessionAggregation, schema: Schema) -> None:
        self.aggregates = Aggregates(spec.aggregates, schema)
        self._names = [name for name, _ in spec.group]
        bounds = ((WINDOW_START, TIMESTAMP), (WINDOW_END, TIMESTAMP))
        self.schema = Schema((*((name, schema[source]) for name, source in spec.group), *bounds, *self.aggregates.schema))
        self.group = [f"g{i}" for i in range(len(spec.group))]
        values = [name for name, _ in self.aggregates.schema]
        self._having = Having(spec.having, self.schema, values) if spec.having is not None else None
        self._is_folded = spec.is_folded
        self._read_between: frozenset[str] | None = None
        """What is computed of states that others replace within a batch; None: everything."""
        if spec.is_folded:
            self._read_between = frozenset() if self._having is None else self._having.reads
        self._places = self.aggregates.places

    @property
    def depends_on_order(self) -> bool:
        """Whether a result depends on the order in which a session's parts were folded (STRICT 21)."""
        return bool(self._places)

    def lift(self, frame: pl.DataFrame, arrivals: pl.Series) -> list[pl.Series]:
        """Make each record's partial."""
        return self.aggregates.lift(frame, arrivals)

    def merge(self, parts: pl.DataFrame, sessions: I64) -> pl.DataFrame:
        """Merge parts into sessions, in ascending order of their numbers.

        Args:
            parts: those of a session stand together, in the order in which they are folded.
            sessions: number of each part's session, ascending.
        """
        if len(sessions) < 2 or (sessions[1:] != sessions[:-1]).all():
            return parts
        own = [pl.col(START).min(), pl.col(END).max(), *earliest(parts.columns)]
        kept = [pl.col(HASH, *self.group).first()]
        numbered = self._in_order_of_folding(parts, sessions).with_columns(pl.Series(_SESSION, sessions).set_sorted())
        merged = numbered.group_by(_SESSION, maintain_order=True).agg(*kept, *own, *self.aggregates.merge(parts.columns))
        return self.aggregates.run_until_idle(merged.drop(_SESSION))

    def finals(self, sessions: pl.DataFrame) -> tuple[pl.DataFrame, Marks]:
        """Read closed sessions: the columns of ``Changes.frame`` without ``RECORD`` and ``FIRST``, and what is to be counted.

        Sessions that fail ``having`` have a null ``_op``.
        """
        values, marks = self.aggregates.results(sessions)
        rows = pl.DataFrame([*self._keys(sessions, sessions[START].to_numpy(), sessions[END].to_numpy()), *values])
        op = pl.Series(OP, np.zeros(rows.height, np.int8))
        if self._having is not None:
            op = op.set(pl.Series(~self._having.matches(rows)), None)
        return rows.with_columns(op), marks

    def changes(self, parts: pl.DataFrame, chains: Chains, sessions: int) -> Changes:
        """Show every change, or only the last one of each session.

        Args:
            parts: the batch's elements.
            chains: how they follow on each other.
            sessions: how many of the elements are sessions from before the batch.
        """
        rows, chains = self._begun(parts[chains.elements], chains)
        begins = np.flatnonzero(np.append([True], chains.ids[1:] != chains.ids[:-1]))
        is_kept = (chains.is_session & np.logical_or.reduceat(chains.is_change, begins))[chains.ids]
        merged = self.merge(rows.filter(pl.Series(is_kept)), chains.ids[is_kept])
        values, marks = self.aggregates.running(rows, Groups(chains.ids, begins[chains.ids]), self._read_between)
        arrived = [values_taken(column, chains.ids) for column in least_arrivals(rows, begins)]
        outputs = pl.DataFrame([*self._keys(rows, chains.first, chains.last), *values, *arrived])
        emissions = self._emissions(outputs, chains)
        marks = marks.among(chains.is_change)
        if self._is_folded:
            emissions = _last_of_each(emissions, chains)
        frame = outputs[emissions.rows].with_columns(
            pl.Series(OP, emissions.op), pl.Series(RECORD, chains.elements[emissions.causes] - sessions)
        )
        if self._is_folded:
            ids = np.unique(chains.ids[is_kept])
            frame, marks = self._with_values(frame, merged, np.searchsorted(ids, chains.ids[emissions.rows]))
        nulled = [pl.when(pl.col(OP) == 0).then(pl.col(name)).alias(name) for name, _ in self.aggregates.schema]
        return Changes(frame.with_columns(nulled), merged, marks)

    def _with_values(self, frame: pl.DataFrame, merged: pl.DataFrame, places: I64) -> tuple[pl.DataFrame, Marks]:
        """Give the rows among the last changes their values, and say what is to be counted of the sessions.

        A row that is left is the last of its chain: each state before it was deleted, or had the same bounds.

        Args:
            frame: the last change of each session.
            merged: the sessions as they stand after the batch.
            places: which of them each row is; without meaning for deletes.
        """
        values, marks = self.aggregates.results(merged)
        is_row = frame[OP].to_numpy() == 0
        own = places[is_row]
        rows = frame.filter(pl.Series(is_row)).with_columns(values_taken(each, own) for each in values)
        # Gathering null for a delete would copy the first list for each.
        both = pl.concat([rows, frame.filter(pl.Series(~is_row))], how="diagonal")
        return both[np.argsort(np.concatenate([np.flatnonzero(is_row), np.flatnonzero(~is_row)]))], marks

    def _emissions(self, outputs: pl.DataFrame, chains: Chains) -> _Emissions:
        """Per record the deletes of what it replaced, then the result.

        A result that fails ``having`` is not shown; what it replaced is deleted if it was. A session of one instant that only got
        another record of that instant is not deleted before (STRICT 21).
        """
        matches = np.ones(outputs.height, np.bool_) if self._having is None else self._having.matches(outputs)
        is_instant = chains.first[chains.replacing] == chains.last[chains.replacing]
        is_deleted = matches[chains.replaced] & ~(is_instant & matches[chains.replacing])
        shown = np.flatnonzero(chains.is_change & matches)
        causes = np.concatenate([chains.replacing[is_deleted], shown])
        rows = np.concatenate([chains.replaced[is_deleted], shown])
        op = np.repeat(np.array([1, 0], np.int8), [len(rows) - len(shown), len(shown)])
        order = np.lexsort((1 - op, chains.elements[causes]))
        return _Emissions(rows[order], causes[order], op[order])

    def _begun(self, rows: pl.DataFrame, chains: Chains) -> tuple[pl.DataFrame, Chains]:
        """Merge what each chain begins with into one row, so that running aggregates find it in order of arrival."""
        is_begin = ~chains.is_change
        is_followed = np.append((chains.ids[1:] == chains.ids[:-1]) & is_begin[1:], [False])
        is_kept = ~(is_begin & is_followed)
        if is_kept.all():
            return rows, chains
        begun = self.merge(rows.filter(pl.Series(is_begin)), chains.ids[is_begin])
        order = np.argsort(np.concatenate([np.unique(chains.ids[is_begin]), chains.ids[chains.is_change]]), kind="stable")
        rows = pl.concat([begun, rows.filter(pl.Series(chains.is_change))], how="diagonal")[order]
        places = np.cumsum(is_kept) - 1
        return rows, replace(
            chains,
            elements=chains.elements[is_kept],
            ids=chains.ids[is_kept],
            is_change=chains.is_change[is_kept],
            first=chains.first[is_kept],
            last=chains.last[is_kept],
            replacing=places[chains.replacing],
            replaced=places[chains.replaced],
        )

    def _in_order_of_folding(self, parts: pl.DataFrame, sessions: I64) -> pl.DataFrame:
        """Give the texts of ``concat`` places by the order of the parts instead of arrival."""
        if not self._places:
            return parts
        begins = np.flatnonzero(np.append([True], sessions[1:] != sessions[:-1]))
        sizes = np.diff(np.append(begins, [len(sessions)]))
        offset = pl.lit(pl.Series((np.arange(len(sessions)) - np.repeat(begins, sizes)) * _PLACES_PER_PART))
        ranks = {name: pl.col(name).list.eval(pl.element().rank("ordinal").cast(pl.Int64)) for name in self._places}
        return parts.with_columns((rank + offset).alias(name) for name, rank in ranks.items())

    def _keys(self, parts: pl.DataFrame, first: I64, last: I64) -> list[pl.Series]:
        """Result time (W7), hash, the group's columns and the bounds."""
        own = [pl.Series(TS, last), parts[HASH].alias(KEY_HASH)]
        group = [parts[column].alias(name) for column, name in zip(self.group, self._names, strict=True)]
        bounds = ((WINDOW_START, first), (WINDOW_END, last))
        return [*own, *group, *(pl.Series(name, ms * _US_PER_MS).cast(TIMESTAMP.polars) for name, ms in bounds)]


def _last_of_each(emissions: _Emissions, chains: Chains) -> _Emissions:
    """Keep the last emission of each session, by group and bounds: its rows stand together in one chain."""
    is_same = (
        (chains.ids[1:] == chains.ids[:-1]) & (chains.first[1:] == chains.first[:-1]) & (chains.last[1:] == chains.last[:-1])
    )
    keys = np.append([0], np.cumsum(~is_same))[emissions.rows]
    newest_first = np.unique(keys[::-1], return_index=True)[1]
    kept = np.sort(len(keys) - 1 - newest_first)
    return _Emissions(emissions.rows[kept], emissions.causes[kept], emissions.op[kept])
