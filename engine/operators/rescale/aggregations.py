"""The state of aggregations without windows, and of suppression, for another number of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from engine.frames.frames import KEY_HASH, POS, RANK, TS
from engine.operators.rescale.segments import GROUPS, INDEX, QUEUE, moved, read_all
from engine.operators.rescale.shares import Shares, Source, greatest
from engine.operators.suppression.suppress_store import ARRIVAL, HELD, SHOWN, SINCE, SIZE, newest_of_each
from engine.plan.operators.aggregation import RunningAggregation, TableAggregation, TableRegrouping
from engine.plan.operators.suppression import TimeLimitSuppression, WallClockSuppression
from engine.plan.operators.windows import WindowedAggregation

States = list[dict[str, Any]]


def own_columns(spec: RunningAggregation | TableAggregation | WindowedAggregation, key: Sequence[str]) -> tuple[str, ...]:
    """Return what the columns of the key, which are among the group's, are called inside an aggregation's state."""
    places = {source: f"g{place}" for place, (_, source) in enumerate(spec.group)}
    return tuple(places[name] for name in key)


def groups(spec: RunningAggregation | TableAggregation, sources: Sequence[Source], shares: Shares) -> States:
    """Share an aggregation's groups."""
    parts = [source.part("groups") for source in sources]
    entries = moved(GROUPS, parts, shares, own_columns(spec, shares.key))
    return shares.states({"groups": entries}, next=greatest(sources, "next", 0))


def regrouping(_spec: TableRegrouping, sources: Sequence[Source], shares: Shares) -> States:
    """Share the rows of an aggregated table."""
    entries = moved(GROUPS, [source.part("rows") for source in sources], shares, shares.key)
    return shares.states({"rows": entries}, next=greatest(sources, "next", 0))


def suppression(spec: TimeLimitSuppression | WallClockSuppression, sources: Sequence[Source], shares: Shares) -> States:
    """Share what is held back."""
    buffers = [source.part("buffer") for source in sources if source.part("buffer").state.get("index")]
    gathered = shares.gather([(source, _entries(spec.key, source)) for source in buffers], shares.key)
    states = []
    for store, parts in zip(shares.stores, gathered, strict=True):
        state: dict[str, Any] = {"changes": 1, "bytes": 0, "index": [], "queue": []}
        if filled := [part for part in parts if part.height]:
            rows = pl.concat(filled).sort(KEY_HASH)
            held = rows.filter(HELD)
            queue = held.select(pl.col(SINCE).alias(TS), ARRIVAL, KEY_HASH).sort(TS, ARRIVAL)
            sizes = held.get_column(SIZE)
            state |= {"bytes": int(sizes.sum()), "voids": int((sizes == 0).sum())}
            state["index"] = [INDEX.write(store, rows)]
            state["queue"] = [QUEUE.write(store, queue)] if queue.height else []
        states.append(state)
    return shares.states({"buffer": states, "unhandled": _unhandled(sources, shares)})


def _entries(key: tuple[str, ...], buffer: Source) -> pl.DataFrame:
    """Return the rows of the keys that a buffer holds or has shown."""
    rows = newest_of_each(pl.concat([frame for _, frame in read_all(INDEX, [buffer.part("index")])]), key)
    return rows.filter(pl.col(HELD) | pl.col(SHOWN)).with_columns(pl.lit(0, pl.Int64).alias(POS))


def _unhandled(sources: Sequence[Source], shares: Shares) -> list[dict[str, Any] | None]:
    """Share the changes that came when a buffer was full."""
    kept = [source.part("unhandled") for source in sources if source.state.get("unhandled")]
    gathered = shares.gather([(source, source.store.load(source.state["segment"])) for source in kept], shares.key)
    found = []
    for store, parts in zip(shares.stores, gathered, strict=True):
        filled = [part for part in parts if part.height]
        found.append(
            {"segment": store.save(pl.concat(filled).sort(POS, RANK, nulls_last=False, maintain_order=True))} if filled else None
        )
    return found
