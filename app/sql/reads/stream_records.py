"""The current records of a stream, with those of its parts: the input of SELECT and PRINT."""

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
    """Yield frames of ``_ts``, ``_op`` and the stream's columns; records of a partition or a part are in its order."""
    followed = await services.of(Followables).find("stream", entry.relation.name)
    async with following(services.of(Tails), ChangeSource(followed, has_text_numbers=False), "earliest") as follower:
        while frames := await follower.next():
            for frame in frames:
                yield frame
