"""The records of a stream that are there now, its parts' included: what SELECT and PRINT look at."""

from __future__ import annotations

from collections.abc import AsyncIterator

import polars as pl

from app.following.changes import ChangeSource
from app.following.followed import Followables
from app.following.tails.tails import Tails
from app.http.parameters import Services
from app.sql.catalog.following import following
from engine.plan.catalog import CatalogEntry


async def stream_records(services: Services, entry: CatalogEntry) -> AsyncIterator[pl.DataFrame]:
    """Yield frames of ``_ts``, ``_op`` and the stream's columns: of each partition and each part in its order."""
    followed = await services.of(Followables).find("stream", entry.relation.name)
    async with following(services.of(Tails), ChangeSource(followed, has_text_numbers=False), "earliest") as follower:
        while frames := await follower.next():
            for frame in frames:
                yield frame
