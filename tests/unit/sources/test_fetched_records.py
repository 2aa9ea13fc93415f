"""Records as they were fetched (``engine.sources.kafka.brokers.fetching.port``)."""

from __future__ import annotations

import numpy as np
import polars as pl

from engine.sources.kafka.brokers.fetching.port import HEADERS, Fetched, RecordFields


def fetched(headers: list[list[dict[str, str | bytes | None]]] | None) -> Fetched:
    places = np.arange(3)
    given = None if headers is None else pl.Series("headers", headers, dtype=HEADERS)
    keys = pl.Series([b"k", None, b""], dtype=pl.Binary)
    return Fetched(keys, pl.Series([b"value", b"", None], dtype=pl.Binary), places, places, given)


def test_the_size_of_records_counts_their_headers() -> None:
    assert fetched(None).size_bytes == 6
    assert fetched([[], [], []]).size_bytes == 6
    long = {"key": "ä", "value": b"x" * 1_000}
    assert fetched([[long], [], [long, {"key": "n", "value": None}]]).size_bytes == 6 + 2 * 1_002 + 1
    assert Fetched.nothing(RecordFields(has_headers=True)).size_bytes == 0
