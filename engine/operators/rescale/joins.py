"""The state of joins and table filters for another number of tasks.

What waits goes along as it is. Times belong to the query (T1), so no task has any; where it stood in the order of all tasks is kept with
what waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from engine.frames.clocks import BEFORE_ALL_TIME, I64
from engine.frames.frames import POS, RANK, TS
from engine.operators.rescale.segments import INDEX, LATEST, QUEUE, Kind, moved, read_all
from engine.operators.rescale.shares import Rows, Shares, Source, greatest
from engine.plan.operators.foreign_key_join import ForeignKeyLookup, ForeignKeyResult, ForeignKeySubscription
from engine.plan.operators.stream_stream_join import StreamStreamJoin
from engine.plan.operators.stream_table_join import StreamTableJoin
from engine.plan.operators.table_filter import TableFilter
from engine.plan.operators.table_table_join import TableTableJoin
from engine.state.segments.ports import SegmentStore

States = list[dict[str, Any]]


def stream_table(spec: StreamTableJoin, sources: Sequence[Source], shares: Shares) -> States:
    """Share a stream-table join: the table, what the grace holds, what the hold holds."""
    parts: dict[str, list[Any]] = {
        "table": _table(_parts(sources, "table"), shares, "versions", INDEX, shares.inputs[spec.table_index]),
        "buffer": _buffer(_parts(sources, "buffer"), shares),
    }
    if spec.hold is not None:
        parts["hold"] = _pending(_parts(sources, "hold"), shares)
    return shares.states(parts)


def table_table(spec: TableTableJoin, sources: Sequence[Source], shares: Shares) -> States:
    """Share a table-table join: both sides' versions, which are numbered by one count."""
    left = _table(_parts(sources, "left"), shares, "versions", INDEX, shares.key)
    right = _table(_parts(sources, "right"), shares, "versions", INDEX, shares.inputs[spec.table_index])
    return shares.states({"left": left, "right": right}, next=greatest(sources, "next", 0))


def table_filter(_spec: TableFilter, sources: Sequence[Source], shares: Shares) -> States:
    """Share a table filter: which versions or rows passed."""
    passed = _table(_parts(sources, "passed"), shares, "versions", INDEX, shares.key)
    return shares.states({"passed": passed}, next=greatest(sources, "next", 0))


def subscription(_spec: ForeignKeySubscription, sources: Sequence[Source], shares: Shares) -> States:
    """Share the left rows' foreign keys. Generations go on from the greatest: of each key they have to rise."""
    left = _table(_parts(sources, "left"), shares, "rows", LATEST, shares.key)
    return shares.states({"left": left}, next=greatest(sources, "next", 0))


def lookup(spec: ForeignKeyLookup, sources: Sequence[Source], shares: Shares) -> States:
    """Share subscriptions and the right table."""
    right = _table(_parts(sources, "right"), shares, "rows", LATEST, shares.inputs[spec.table_index])
    subscriptions = moved(LATEST, _parts(sources, "subscriptions"), shares, shares.key)
    return shares.states({"right": right, "subscriptions": subscriptions}, next=greatest(sources, "next", 0))


def result(_spec: ForeignKeyResult, sources: Sequence[Source], shares: Shares) -> States:
    """Share which rows are shown."""
    shown = _table(_parts(sources, "shown"), shares, "rows", LATEST, shares.key)
    return shares.states({"shown": shown}, next=greatest(sources, "next", 0))


def stream_stream(spec: StreamStreamJoin, sources: Sequence[Source], shares: Shares) -> States:
    """Share a stream-stream join: records, and those of them that may come with nulls.

    Records are distinguished by the number of their arrival, so they are numbered anew. Marks of those that met a partner are worked in.
    """
    keys = {"left": shares.key, "right": shares.inputs[spec.stream_index]}
    found: list[tuple[str, str, list[list[pl.DataFrame]]]] = []
    for side, key in keys.items():
        own = _parts(sources, side)
        records = [(source, _apart(source, shares, frame)) for source, frame in read_all(INDEX, _parts(own, "records"))]
        waiting = [(source, _apart(source, shares, _unmatched(source))) for source in own if source.state.get("waiting")]
        found += [(side, "records", shares.gather(records, key)), (side, "waiting", shares.gather(waiting, key))]
    closed_to = {side: greatest(_parts(sources, side), "closed_to", BEFORE_ALL_TIME) for side in keys}
    arrivals = _distinct([part for _, _, gathered in found for parts in gathered for part in parts])
    states = []
    for place, store in enumerate(shares.stores):
        state: dict[str, Any] = {side: {"closed_to": closed_to[side], "matched": []} for side in keys}
        for side, name, gathered in found:
            parts = [_numbered(part, arrivals) for part in gathered[place] if part.height]
            state[side][name] = [_KINDS[name].write(store, part) for part in parts]
        states.append({"arrivals": len(arrivals), **state})
    return states


_KINDS = {"records": INDEX, "waiting": QUEUE}


def _unmatched(side: Source) -> pl.DataFrame:
    """Return a side's records that wait and have met no partner, in their order."""
    waiting, marks = ([frame for _, frame in read_all(QUEUE, [side.part(name)])] for name in ("waiting", "matched"))
    frame = pl.concat(waiting).sort(TS, maintain_order=True)
    matched = np.concatenate([np.empty(0, np.int64), *(part.get_column(POS).to_numpy() for part in marks)])
    return frame.filter(pl.Series(~np.isin(frame.get_column(POS).to_numpy(), matched)))


def _apart(source: Source, shares: Shares, frame: pl.DataFrame) -> pl.DataFrame:
    """Give a task's records numbers that those of no other task have."""
    return frame.with_columns(pl.col(POS) * shares.tasks_before + source.ordinal)


def _distinct(parts: Sequence[pl.DataFrame]) -> I64:
    return np.unique(np.concatenate([np.empty(0, np.int64), *(part.get_column(POS).to_numpy() for part in parts)]))


def _numbered(part: pl.DataFrame, arrivals: I64) -> pl.DataFrame:
    return part.with_columns(pl.Series(POS, np.searchsorted(arrivals, part.get_column(POS).to_numpy())))


def _parts(sources: Sequence[Source], name: str) -> list[Source]:
    return [source.part(name) for source in sources]


def _table(sources: Sequence[Source], shares: Shares, rows_name: str, kind: Kind, rows: Rows) -> States:
    return shares.states({rows_name: moved(kind, _parts(sources, rows_name), shares, rows)})


def _buffer(sources: Sequence[Source], shares: Shares) -> States:
    """Share what waits for the grace: rows of one event time in the order in which they came, whatever task had them."""
    return [{"waiting": [QUEUE.write(store, rows)] if rows.height else []} for store, rows in _queued(sources, shares, TS)]


def _pending(sources: Sequence[Source], shares: Shares) -> States:
    """Share the rows held for the table, in the order in which they came to the hold; number them anew."""
    states = []
    for store, rows in _queued(sources, shares):
        numbered = rows.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(TS))
        states.append({"next": rows.height, "waiting": [QUEUE.write(store, numbered)] if rows.height else []})
    return states


def _queued(sources: Sequence[Source], shares: Shares, *first: str) -> list[tuple[SegmentStore, pl.DataFrame]]:
    """Return the waiting rows of each new task in order: by the columns named first, then by their places."""
    gathered = shares.gather(read_all(QUEUE, _parts(sources, "waiting")), shares.key)
    rows = [pl.concat(parts) if parts else pl.DataFrame() for parts in gathered]
    ordered = [own.sort(*first, POS, RANK, nulls_last=False, maintain_order=True) if own.height else own for own in rows]
    return list(zip(shares.stores, ordered, strict=True))
