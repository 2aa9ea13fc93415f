"""The records of a stream that are there now, its parts' included: what SELECT and PRINT look at."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import polars as pl

from app.api.deps import Services
from app.store.changes import ChangeSource
from app.store.followed import find_followed
from app.store.replay_marks import with_marks
from app.store.sql.following import following
from engine.connectors.canonical import LOGGED, canonicalise
from engine.connectors.sink import REPLAYED
from engine.plan.catalog import CatalogEntry
from engine.plan.model import RelationSchema


async def stream_records(services: Services, entry: CatalogEntry) -> AsyncIterator[pl.DataFrame]:
    """Yield frames of ``_ts``, ``_op`` and the stream's columns: those of its own log first, then of each query that appends to it."""
    own = entry.relation.name
    for name in (own, *(part.log_feed for part in entry.parts)):
        async with services.database.reads.connect() as connection:
            followed = await find_followed(connection, "stream", name)
        async with following(services.tails, ChangeSource(followed, has_text_numbers=False), "earliest") as follower:
            while frames := await follower.next():
                for frame in frames:
                    yield frame if name == own else _of_part(frame, entry.relation)


def _of_part(frame: pl.DataFrame, relation: RelationSchema) -> pl.DataFrame:
    """Judge what a query has appended to a stream as records of that."""
    accepted, _ = canonicalise(frame, relation, time.time_ns() // 1_000_000, LOGGED)
    return with_marks(accepted, frame).select("_offset", "_ts", "_op", REPLAYED, *relation.columns.names)
