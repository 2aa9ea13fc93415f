"""Write the NX-T input as files that the `files` connector reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from tests.bench.nxt import BASE_MS, Bids, Ints, Versions, replay

FILES_PER_INPUT = 4  # a directory of several files in arrival order, as a user's would be


def write_input(size: str, root: Path) -> dict[str, Path]:
    """Write ``bids/``, ``versions/`` and ``feed/`` (both interleaved in arrival order) below ``root``, unless they are there.

    Returns:
        The three directories by name.
    """
    folders = {name: root / size / name for name in ("bids", "versions", "feed")}
    if (root / size / "complete").exists():
        return folders
    bids, versions, order = replay(size)
    of_bids, of_versions = bid_rows(bids), version_rows(versions)
    _write(of_bids, folders["bids"])
    _write(of_versions, folders["versions"])
    _write(_interleaved(of_bids, of_versions, order), folders["feed"])
    (root / size / "complete").touch()
    return folders


def bid_rows(bids: Bids) -> pl.DataFrame:
    """Return bids as records; ``n`` is their number."""
    return pl.DataFrame(
        {"auction": bids.auction, "price": bids.price, "bidder": bids.bidder, "ts": bids.ts + BASE_MS, "n": bids.number}
    )


def version_rows(versions: Versions) -> pl.DataFrame:
    """Return versions as records."""
    return pl.DataFrame({"auction": versions.key, "version": versions.version, "ts": versions.ts + BASE_MS})


def _interleaved(bids: pl.DataFrame, versions: pl.DataFrame, order: Ints) -> pl.DataFrame:
    both = pl.concat([bids.with_columns(kind=pl.lit("bid")), versions.with_columns(kind=pl.lit("version"))], how="diagonal")
    return both[np.where(order >= 0, order, len(bids) - 1 - order)]


def _write(rows: pl.DataFrame, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    step = -(-len(rows) // FILES_PER_INPUT)
    for index in range(FILES_PER_INPUT):
        rows[index * step : (index + 1) * step].write_ndjson(folder / f"{index:03d}.ndjson")
