"""Results in a lake: below which directory files may be written, and the form of their rows."""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl

from engine.errors import DefinitionInvalid, Problem
from engine.records.canonical import OP_UPSERT

VARIABLE = "SLACKWATER_DELIVERY_ROOT"
MOST_NAME_BYTES = 255
"""Longest name in a path: common file systems allow no longer ones, and do not report this while a parent directory is missing."""


def directory_of(path: str, root: Path | None) -> Path:
    """Return the directory that a path names, links resolved.

    Raises:
        DefinitionInvalid: ``path_not_allowed``: it is not below the root, or there is none.
    """
    if root is None:
        raise _refused(
            f"this service was started without {VARIABLE}, which names the directory below which results may be written; set it"
        )
    if any(len(os.fsencode(part)) > MOST_NAME_BYTES for part in Path(path).parts):
        raise _refused(f"a name in a path has at most {MOST_NAME_BYTES} bytes; write a shorter one")
    try:
        above = root.expanduser().resolve()
        found = (above / path).resolve()
    except (OSError, RuntimeError) as error:  # a circle of links is a RuntimeError before Python 3.13
        raise _refused(f"{path[:80]} names no directory: {error}"[:300]) from error
    if ".." in Path(path).parts or found == above or not found.is_relative_to(above):
        raise _refused(
            f"results are written to directories below {above} only, links resolved and without '..'; {VARIABLE} sets it"
        )
    return found


def check_writable(path: str, root: Path | None) -> None:
    """Check that a directory can be made and written, without making it.

    Raises:
        DefinitionInvalid: ``path_not_allowed``: see ``directory_of``, or the service has no permission to write there.
    """
    directory = directory_of(path, root)
    try:
        above = next(each for each in (directory, *directory.parents) if each.exists())
    except OSError as error:  # such as a name too long for the file system, or a directory without read permission
        raise _refused(f"{path[:80]} cannot be a directory: {error.strerror or error}; name another one") from error
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise _refused(f"the service may not write to {above}; change its permissions")


def _refused(detail: str) -> DefinitionInvalid:
    return DefinitionInvalid([Problem("/into/connector/path", "path_not_allowed", detail)])


def lake_rows(rows: pl.DataFrame, *, is_table: bool, has_date: bool) -> pl.DataFrame:
    """Return rows in their written form; only a table has ``_op``."""
    moment = pl.from_epoch(pl.col("_ts"), time_unit="ms").dt.replace_time_zone("UTC")
    beside = [pl.col("_offset").alias("_sequence"), moment.alias("_event_time")]
    if is_table:
        beside.append(pl.when(pl.col("_op") == OP_UPSERT).then(pl.lit("upsert")).otherwise(pl.lit("delete")).alias("_op"))
    if has_date:
        beside.append(moment.dt.strftime("%Y-%m-%d").alias("_date"))
    columns = [name for name in rows.columns if name not in ("_offset", "_ts", "_op")]
    return rows.select(*columns, *beside)
