"""The jobs that the engine alone is measured with: sources, query and records of each, all made of the NX-T input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import polars as pl

from engine.definition.relations import SourceDefinition, StreamDefinition, TableDefinition
from tests.bench.nxt import BASE_MS, Bids, Ints, Versions, below, draw, replay

Json = dict[str, Any]

BID: Final = {"auction": "bigint", "price": "bigint", "bidder": "bigint", "ts": "bigint", "n": "bigint"}
VERSION: Final = {"auction": "bigint", "version": "bigint", "ts": "bigint"}
OFFER: Final = {"item": "bigint", "auction": "bigint", "price": "bigint", "ts": "bigint"}
HISTORY: Final = {"history_retention": "1h"}

ITEMS: Final = 100_000
"""Keys of the tables that are updated at random: every batch meets most of them again, none is hot."""

OWNERS: Final = 10_000
"""Rows that foreign keys name: about ten references each."""

MEETING_KEYS: Final = 1_000
"""Keys of two streams that meet within a second: about one match for each record."""


@dataclass(frozen=True, slots=True)
class Feed:
    """One relation's records.

    Attributes:
        definition: as a user registers it.
        frame: every declared column, ``_ts``, ``_op`` and ``_offset``, in arrival order.
        arrivals: place of each record in the arrival order of the job's relations together.
    """

    definition: SourceDefinition
    frame: pl.DataFrame
    arrivals: Ints


@dataclass(frozen=True, slots=True)
class CoreJob:
    """One thing to measure.

    Attributes:
        name: as printed.
        query: the definition.
        feeds: makes the records of a size, by relation.
        batch_records: records of all relations together in one batch.
        mark: records a second that are wanted on one core, None for none.
        is_durable: segments are files, synced; else they stay in memory.
    """

    name: str
    query: Json
    feeds: Callable[[str], dict[str, Feed]]
    batch_records: int = 100_000
    mark: float | None = None
    is_durable: bool = True


def jobs() -> list[CoreJob]:
    """Return every job in the order in which they are printed."""
    return [
        CoreJob("grace join, 20,000 a batch, files", _GRACE_JOIN, bids_and_versions, 20_000, 1.5e6),
        CoreJob("grace join, 100,000 a batch, files", _GRACE_JOIN, bids_and_versions, 100_000, 2.0e6),
        CoreJob("grace join, 20,000 a batch, memory", _GRACE_JOIN, bids_and_versions, 20_000, 1.5e6, is_durable=False),
        CoreJob("grace join, 100,000 a batch, memory", _GRACE_JOIN, bids_and_versions, 100_000, 2.0e6, is_durable=False),
        CoreJob("tumbling, final, per auction", _windowed("auction", _TUMBLING, "until_window_closes"), bids_only, mark=3.0e6),
        CoreJob("tumbling, final, per bidder", _windowed("bidder", _TUMBLING, "until_window_closes"), bids_only, mark=3.0e6),
        CoreJob(
            "tumbling, final, per bidder, 20,000 a batch",
            _windowed("bidder", _TUMBLING, "until_window_closes"),
            bids_only,
            20_000,
        ),
        CoreJob("tumbling, changes, per bidder", _windowed("bidder", _TUMBLING, "none"), bids_only),
        CoreJob("hopping 10 s by 2 s, final, per bidder", _windowed("bidder", _HOPPING, "until_window_closes"), bids_only),
        CoreJob("session, final, per bidder", _windowed("bidder", _SESSION, "until_window_closes"), bids_only, mark=0.5e6),
        CoreJob("session, changes, per bidder", _windowed("bidder", _SESSION, "none"), bids_only),
        CoreJob("sliding 1 s, final, per bidder", _windowed("bidder", _SLIDING, "until_window_closes"), bids_only),
        CoreJob("table-table join, versioned", _TABLE_JOIN, two_versioned_tables, mark=0.5e6),
        CoreJob("table-table join, unversioned", _TABLE_JOIN, two_tables, mark=0.5e6),
        CoreJob("table-table join, complete history", _COMPLETE_JOIN, two_versioned_tables),
        CoreJob("running aggregation per bidder", _RUNNING, bids_only),
        CoreJob("aggregation over a table", _OVER_TABLE, one_table),
        CoreJob("foreign-key join", _FOREIGN_KEY, items_and_owners),
        CoreJob("stream-stream join, within 1 s", _STREAM_JOIN, two_streams),
        CoreJob("running count, suppressed until a time limit", _SUPPRESSED, bids_only),
    ]


_TUMBLING: Final = {"type": "tumbling", "size": "10s", "grace": "5s"}
_HOPPING: Final = {"type": "hopping", "size": "10s", "advance": "2s", "grace": "5s"}
_SESSION: Final = {"type": "session", "gap": "10s", "grace": "5s"}
_SLIDING: Final = {"type": "sliding", "difference": "1s", "grace": "5s"}


def _query(**parts: Any) -> Json:
    return {"name": "measured", "tasks": 1, **parts}


def _windowed(key: str, window: Json, suppress: str) -> Json:
    return _query(
        **{"from": {"stream": "bids"}},
        group_by=[key],
        window=window,
        aggregate={"bids": "count(*)"},
        suppress={"mode": suppress},
        into={"table": "counts"},
    )


_GRACE_JOIN: Final = _query(
    **{"from": {"stream": "bids"}},
    joins=[{"table": "versions", "as": "v", "type": "left", "on": "bids.auction = v.auction", "grace": "10s"}],
    select={
        "n": "bids.n", "auction": "bids.auction", "price": "bids.price", "bidder": "bids.bidder", "ts": "bids.ts",
        "version": "v.version",
    },
    into={"stream": "joined"},
)  # fmt: skip

_RUNNING: Final = _query(
    **{"from": {"stream": "bids"}},
    group_by=["bidder"],
    aggregate={"bids": "count(*)", "total": "sum(price)"},
    into={"table": "totals"},
)

_SUPPRESSED: Final = _query(
    **{"from": {"stream": "bids"}},
    group_by=["bidder"],
    aggregate={"bids": "count(*)"},
    suppress={"mode": "until_time_limit", "limit": "10s"},
    into={"table": "counts"},
)

_TABLE_JOIN: Final = _query(
    **{"from": {"table": "l"}},
    joins=[{"table": "r", "type": "inner", "on": "l.item = r.item"}],
    select={"item": "l.item", "price": "l.price", "other": "r.price"},
    into={"table": "joined"},
)

_COMPLETE_JOIN: Final = {
    **_TABLE_JOIN,
    "joins": [{"table": "r", "type": "inner", "on": "l.item = r.item", "history": "complete"}],
    "into": {"table": "joined", "versioned": HISTORY},
}

_OVER_TABLE: Final = _query(
    **{"from": {"table": "items"}},
    group_by=["auction"],
    aggregate={"items": "count(*)", "total": "sum(price)"},
    into={"table": "totals"},
)

_FOREIGN_KEY: Final = _query(
    **{"from": {"table": "items"}},
    joins=[{"table": "owners", "type": "left", "on": "items.auction = owners.item"}],
    select={"item": "items.item", "price": "items.price", "owner": "owners.price"},
    into={"table": "owned"},
)

_STREAM_JOIN: Final = _query(
    **{"from": {"stream": "l"}},
    joins=[
        {
            "stream": "r",
            "type": "inner",
            "on": "l.item = r.item",
            "within": {"before": "500ms", "after": "500ms", "grace": "5s"},
        }
    ],
    select={"item": "l.item", "price": "l.price", "other": "r.price"},
    into={"stream": "met"},
)


@cache
def replayed(size: str) -> tuple[Bids, Versions, Ints, Ints]:
    """Return both sides in arrival order, and the places of each in the common one."""
    bids, versions, order = replay(size)
    return bids, versions, np.flatnonzero(order >= 0), np.flatnonzero(order < 0)


def bids_only(size: str) -> dict[str, Feed]:
    bids, _, _, _ = replayed(size)
    return {"bids": Feed(source_definition(BID, "auction", is_table=False), _bid_rows(bids), np.arange(len(bids.ts)))}


def bids_and_versions(size: str) -> dict[str, Feed]:
    bids, versions, bid_places, version_places = replayed(size)
    columns = {"auction": versions.key, "version": versions.version, "ts": versions.ts + BASE_MS}
    table = source_definition(VERSION, "auction", is_table=True, versioned=HISTORY)
    return {
        "bids": Feed(source_definition(BID, "auction", is_table=False), _bid_rows(bids), bid_places),
        "versions": Feed(table, canonical(columns), version_places),
    }


def one_table(size: str) -> dict[str, Feed]:
    """Return random updates of rows that move between the auctions."""
    return {"items": _offers(size, {"items": (ITEMS, True)}, None)["items"]}


def two_tables(size: str) -> dict[str, Feed]:
    return _offers(size, {"l": (ITEMS, True), "r": (ITEMS, True)}, None)


def two_versioned_tables(size: str) -> dict[str, Feed]:
    return _offers(size, {"l": (ITEMS, True), "r": (ITEMS, True)}, HISTORY)


def items_and_owners(size: str) -> dict[str, Feed]:
    return _offers(size, {"items": (ITEMS, True), "owners": (OWNERS, True)}, None)


def two_streams(size: str) -> dict[str, Feed]:
    return _offers(size, {"l": (MEETING_KEYS, False), "r": (MEETING_KEYS, False)}, None)


def _offers(size: str, relations: dict[str, tuple[int, bool]], versioned: Json | None) -> dict[str, Feed]:
    """Deal the bids out to relations in turn, each with keys of its own, uniform over as many as it says."""
    bids, _, _, _ = replayed(size)
    feeds = {}
    for turn, (name, (keys, is_table)) in enumerate(relations.items()):
        places = np.flatnonzero(bids.number % len(relations) == turn)
        own = bids.take(places)
        columns = {
            "item": below(draw(5, own.number, 0), keys),
            "auction": below(draw(5, own.number, 1), OWNERS),
            "price": own.price,
            "ts": own.ts + BASE_MS,
        }
        feeds[name] = Feed(source_definition(OFFER, "item", is_table=is_table, versioned=versioned), canonical(columns), places)
    return feeds


def _bid_rows(bids: Bids) -> pl.DataFrame:
    return canonical(
        {"auction": bids.auction, "price": bids.price, "bidder": bids.bidder, "ts": bids.ts + BASE_MS, "n": bids.number}
    )


def canonical(columns: Mapping[str, Ints | pl.Series]) -> pl.DataFrame:
    """Return records with these columns, of which ``ts`` is the event time."""
    rows = len(columns["ts"])
    service = {"_ts": columns["ts"], "_op": np.zeros(rows, np.int8), "_offset": np.arange(rows)}
    return pl.DataFrame({**service, **columns})


def source_definition(columns: dict[str, str], key: str, *, is_table: bool, versioned: Json | None = None) -> SourceDefinition:
    """Return the definition of a relation with a log of one partition."""
    given: Json = {"key": [key], "columns": columns, "event_time": "ts", "connector": {"type": "log", "partitions": 1}}
    if not is_table:
        return StreamDefinition.model_validate(given)
    return TableDefinition.model_validate(given if versioned is None else {**given, "versioned": versioned})
