"""A topic's records: keys and values read by their formats and joined to the raw frame that ``canonicalise`` validates.

The relation decides which columns are in the key and which in the value. If a key column is in both, they must agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import polars as pl

from engine.formats.port import Read, Reader
from engine.plan.model import RelationSchema
from engine.records.canonical import empty_rejects, reject_rows
from engine.records.conform import conform
from engine.records.excerpts import excerpt_of_bytes, excerpts_of

MAX_PAYLOAD_BYTES: Final = 16 << 20
"""Bound of a key or a value, as of a file's record: longer ones are refused before a reader sees them."""


class RecordReader(Protocol):
    """Reads a topic's records for one relation."""

    def read(self, keys: pl.Series, values: pl.Series) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return ``(raw, rejects)`` by place of records with these keys and values; see ``TopicReader``."""
        ...


@dataclass(frozen=True, slots=True)
class TopicReader:
    """How a topic's records are read for one relation.

    Attributes:
        relation: whose they are.
        key: reads keys; None: keys are not read.
        value: reads values; None: values are not read (a relation of keys alone).
    """

    relation: RelationSchema
    key: Reader | None
    value: Reader | None

    def read(self, keys: pl.Series, values: pl.Series) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Read records.

        Args:
            keys: bytes; null: the record has none.
            values: bytes; null: a tombstone.

        Returns:
            ``(raw, rejects)`` by place in these columns. A tombstone has ``$op`` delete: in a table it deletes the row of its key, in a
            stream it is a record without a value (T6). The caller adds ``_ts``, the record's own time, and offsets to the frame.

        Raises:
            RegistryUnavailable: read the batch again later.
        """
        everything = pl.int_range(len(values), dtype=pl.Int64, eager=True)
        is_delete = (
            values.is_null() if self.value is not None else pl.repeat(value=False, n=len(values), dtype=pl.Boolean, eager=True)
        )
        long = too_long(keys, values)
        looked_at = ~is_delete & ~long if long is not None else ~is_delete
        of_keys = _side(self.key, keys, ~keys.is_null() if long is None else ~keys.is_null() & ~long)
        of_values = _side(self.value, values, looked_at)
        rejects = pl.concat([of_keys.rejects, of_values.rejects, *([] if long is None else [long_rejects(keys, values, long)])])
        frame = pl.DataFrame([everything.alias("_offset"), is_delete.alias("_is_delete")])
        if rejects.height:
            rejects = rejects.unique("offset", keep="first", maintain_order=True).sort("offset")
            frame = frame.filter(~everything.is_in(rejects.get_column("offset").implode()))
        raw, clashes = self._joined(frame, of_keys.raw, of_values.raw)
        op = pl.when("_is_delete").then(pl.lit("delete")).otherwise(None).alias("$op")
        return raw.with_columns(op).drop("_is_delete"), pl.concat([rejects, clashes]).sort(
            "offset"
        ) if clashes.height else rejects

    def _joined(self, frame: pl.DataFrame, keys: pl.DataFrame, values: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        both = [name for name in keys.columns if name in values.columns and name != "_offset"]
        whole = _beside(_beside(frame, values), keys, "_of_key")
        rejects = []
        for name in both:
            whole, clashing = self._agreed(whole, name)
            rejects.append(clashing)
        return whole, pl.concat(rejects) if rejects else empty_rejects()

    def _agreed(self, whole: pl.DataFrame, name: str) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Refuse records whose key and value differ in a column. A tombstone has its key's values."""
        declared = self.relation.columns[name]
        of_key, bad = conform(whole.get_column(f"{name}_of_key"), declared)
        of_value, other_bad = conform(whole.get_column(name), declared)
        if bad is not None or other_bad is not None:  # ``canonicalise`` reports their faults
            return whole.drop(f"{name}_of_key"), empty_rejects()
        is_absent = whole.get_column("_is_delete") | ~_is_there(whole, f"{name}_of_key")
        clash = of_key.ne_missing(of_value) & ~is_absent
        taken = of_value.zip_with(~whole.get_column("_is_delete"), of_key).alias(name)
        whole = whole.with_columns(taken).drop(f"{name}_of_key")
        if not clash.any():
            return whole, empty_rejects()
        clashing = whole.filter(clash)
        detail = f"column {name!r} is one thing in the key and another in the value"
        texts = excerpts_of(clashing.drop("_offset", "_is_delete"))
        rows = [
            (place, "key_mismatch", detail, text)
            for place, text in zip(clashing.get_column("_offset").to_list(), texts, strict=True)
        ]
        return whole.filter(~clash), reject_rows(rows)


def _is_there(whole: pl.DataFrame, name: str) -> pl.Series:
    """Return which records have a key to compare: not those without a key, or with a null key."""
    return whole.get_column(name).is_not_null()


def _side(reader: Reader | None, payloads: pl.Series, chosen: pl.Series) -> Read:
    """Read the chosen payloads; places are those of the whole."""
    if reader is None:
        return Read(pl.DataFrame({"_offset": pl.Series([], dtype=pl.Int64)}), empty_rejects())
    if chosen.all():
        return reader.read(payloads)
    places = chosen.arg_true().cast(pl.Int64)
    raw, rejects = reader.read(payloads.filter(chosen))
    return Read(
        raw.with_columns(places.gather(raw.get_column("_offset")).alias("_offset")),
        rejects.with_columns(places.gather(rejects.get_column("offset")).alias("offset")),
    )


def _beside(frame: pl.DataFrame, side: pl.DataFrame, suffix: str = "") -> pl.DataFrame:
    """Add a side's columns to the frame's rows, null where it has none."""
    if side.width == 1:
        return frame
    named = side.rename({name: name + suffix for name in side.columns if name in frame.columns and name != "_offset"})
    if side.height == frame.height and np.array_equal(
        side.get_column("_offset").to_numpy(), frame.get_column("_offset").to_numpy()
    ):
        return frame.hstack(named.drop("_offset"))
    return frame.join(named, on="_offset", how="left", maintain_order="left")


def too_long(keys: pl.Series, values: pl.Series) -> pl.Series | None:
    """Return which records have a key or value that is too long for readers; None: none has."""
    long = (keys.bin.size().fill_null(0) > MAX_PAYLOAD_BYTES) | (values.bin.size().fill_null(0) > MAX_PAYLOAD_BYTES)
    return long if long.any() else None


def long_rejects(keys: pl.Series, values: pl.Series, long: pl.Series) -> pl.DataFrame:
    """Return the rejects of records that ``too_long`` found."""
    detail = f"a key or a value has more than {MAX_PAYLOAD_BYTES:,} bytes"
    places = long.arg_true().to_list()
    return reject_rows(
        [(place, "record_too_long", detail, excerpt_of_bytes((values[place] or keys[place])[:1024])) for place in places]
    )
