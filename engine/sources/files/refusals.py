"""Files, and parts of files, whose records are not read: each is one reject."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import polars as pl

from engine.records.canonical import reject_rows
from engine.sources.dating import Dated
from engine.sources.shaping import Piece

UNREADABLE: Final = "file_unreadable"
"""Reason of the reject for a damaged file, or a damaged part of one."""


class Refusal(NamedTuple):
    """Why a whole file is refused: the reason of its reject, and the fault."""

    reason: str
    detail: str

    def piece(self, path: Path, offset: int) -> Piece:
        """Return the piece with the reject at an offset of the feed."""
        return refused(path, offset, self.detail, self.reason)


NO_PARQUET: Final = Refusal(UNREADABLE, "it is no Parquet file, is damaged, or may not be read")
COMPRESSED_TEXT: Final = Refusal("file_compressed", "compressed files are not read; decompress it into a file of another name")


def refused(path: Path, offset: int, detail: str, reason: str = UNREADABLE) -> Piece:
    """Return a piece of one reject for a file, or a part of one, that is not read."""
    return only_rejects(reject_rows([(offset, reason, f"file {path}: {detail}", "")]))


def only_rejects(rejects: pl.DataFrame) -> Piece:
    """Return a piece of one record with a syntax fault: every relation refuses it, and it has no event time."""
    return Piece(1, lambda _relation, _member: (pl.DataFrame(), rejects), lambda: Dated.joined([]))
