"""The event times of records, read before a batch is cut. They follow the same rules as a relation's acceptance of records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from engine.frames.clocks import I64
from engine.plan.model import RelationSchema
from engine.records.canonical import TEXT_FILE, TYPED_FILE, canonicalise


class Dated(NamedTuple):
    """Records whose event time is known, in the order of offsets.

    Attributes:
        offsets: of the feed.
        times: in milliseconds.
    """

    offsets: I64
    times: I64

    @property
    def max_ts(self) -> int | None:
        """The greatest time; None without records."""
        return int(self.times.max()) if len(self.times) else None

    def first_at(self, bound_ms: int) -> int | None:
        """Return the offset of the first record of this time or later; None if there is none."""
        found = np.flatnonzero(self.times >= bound_ms)
        return int(self.offsets[found[0]]) if len(found) else None

    @classmethod
    def joined(cls, parts: Sequence[Dated]) -> Dated:
        """Join the records that several relations date."""
        known = [part for part in parts if len(part.offsets)]
        if len(known) == 1:
            return known[0]
        if not known:
            return cls(np.empty(0, np.int64), np.empty(0, np.int64))
        offsets, times = (np.concatenate(arrays) for arrays in zip(*known, strict=True))
        order = np.lexsort((times, offsets))
        offsets, times = offsets[order], times[order]
        is_last = np.append(offsets[1:] != offsets[:-1], True)
        return cls(offsets[is_last], times[is_last])


def date_frame(raw: pl.DataFrame, relation: RelationSchema, now_ms: int, *, is_text: bool) -> Dated:
    """Date the records of a raw frame, for one of ``dating_relations``."""
    accepted, _ = canonicalise(raw, relation, now_ms, TEXT_FILE if is_text else TYPED_FILE)
    return Dated(accepted.get_column("_offset").to_numpy(), accepted.get_column("_ts").to_numpy())


def dating_relations(relations: Sequence[RelationSchema]) -> list[RelationSchema]:
    """Return the relations that have an event time, reduced to the columns that decide it."""
    return [
        replace(relation, columns=relation.columns.select([relation.event_time]), key=(), where=None)
        for relation in relations
        if relation.event_time is not None
    ]
