"""Runs windowed operators on rows, in one task or several."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np
import polars as pl

from engine.frames.frames import RANK
from engine.frames.hashing import UNSEEDED, KeyHash
from engine.frames.places import place_order
from engine.operators.operators import Operator
from engine.state.segments.memory import MemorySegmentStore
from engine.state.segments.ports import SegmentStore, named_segments
from tests.batch_times import RunningTimes
from tests.property.places_model import STEP, Place, places_alone, places_of, silences_between
from tests.property.window_model import Row, emitted, frame

Make = Callable[[dict[str, Any] | None, SegmentStore], Operator]


@dataclass
class Seen:
    """What operators gave; rows without their ranks, and these apart."""

    emitted: list[dict[str, Any]] = field(default_factory=list)
    ranks: list[bytes | None] = field(default_factory=list)
    late: list[dict[str, Any]] = field(default_factory=list)
    counters: dict[tuple[str, str], int] = field(default_factory=dict)
    snapshots: list[list[dict[str, Any]]] = field(default_factory=list)

    @property
    def results(self) -> tuple[Any, ...]:
        """All but the states."""
        return self.emitted, self.ranks, self.late, self.counters

    def add(self, frames: Sequence[pl.DataFrame], late: Sequence[pl.DataFrame]) -> None:
        rows = pl.concat(frames)
        order = place_order(rows)
        assert len(frames) > 1 or list(order) == list(range(rows.height)), "a task's rows stand in order"
        rows = rows[order]
        self.emitted += emitted(rows.drop(RANK))
        self.ranks += rows[RANK].to_list()
        self.late += sorted(pl.concat(late).to_dicts(), key=lambda row: (row["offset"], row["reason"]))


def run(
    make: Make,
    rows: Sequence[Row],
    cuts: Sequence[int] = (),
    *,
    tasks: int = 1,
    restarts: bool = False,
    silences: Mapping[int, int] | None = None,
    places: Sequence[Place] | None = None,
    hashing: KeyHash = UNSEEDED,
) -> Seen:
    """Give rows to operators in the batches that ``cuts`` make; positions are never cut, a silence begins a batch.

    Args:
        make: makes an operator of a state.
        rows: the rows.
        cuts: numbers of rows.
        tasks: how many operators there are; each gets its share of the keys, all have the same times.
        restarts: make operators anew behind each batch.
        silences: see ``follow``.
        places: of the rows; none: positions of their own.
        hashing: of the stores.
    """
    silences, places = silences or {}, places or places_alone(len(rows))
    stores = [MemorySegmentStore(hashing) for _ in range(tasks)]
    operators = [make(None, store) for store in stores]
    times, seen = RunningTimes(), Seen()
    begins = {at for at in (*cuts, *silences) if 0 < at < len(rows) and places[at].position != places[at - 1].position}
    edges = [*itertools.pairwise([0, *sorted(begins), len(rows)]), *([(len(rows), len(rows))] if len(rows) in silences else [])]
    for start, end in edges:
        first = (places[start].position if start < len(rows) else STEP * len(rows)) - silences.get(start, 0)
        batch = frame(rows[start:end], start, [place.position for place in places[start:end]])
        batch = batch.with_columns(pl.Series(RANK, [place.rank for place in places[start:end]], pl.Binary))
        moment = times.at([batch], silence_ms=silences.get(start, 0), first=first, position=STEP * end + 1)
        shares = np.array([crc32((row.key or "").encode()) % tasks for row in rows[start:end]], np.int64)
        outputs = [each.process(batch[np.flatnonzero(shares == task)], {}, moment) for task, each in enumerate(operators)]
        seen.add([output.frame for output in outputs], [output.late for output in outputs])
        for name, count in ((name, count) for output in outputs for name, count in output.counters.items()):
            if name[1] != "exact_path":  # how a row was handled, not what came of it
                seen.counters[name] = seen.counters.get(name, 0) + count
        seen.snapshots.append([json.loads(json.dumps(each.snapshot())) for each in operators])
        if restarts:
            for store, state in zip(stores, seen.snapshots[-1], strict=True):
                store.purge()
                assert store.segment_ids == named_segments(state)
            operators = [make(state, store) for state, store in zip(seen.snapshots[-1], stores, strict=True)]
    return seen


def in_one_task_and_in_several(
    run_rows: Callable[..., Seen],
    rows: Sequence[Row],
    kinds: Sequence[int] | None,
    silences: Mapping[int, int],
    cuts: Sequence[int],
    tasks: int,
) -> tuple[Seen, Seen]:
    """Return what one task gives, and what several give that are cut and restarted.

    Args:
        run_rows: ``run`` for an operator.
        rows: the rows.
        kinds: see ``places_of``; None: each row has a place of its own.
        silences: see ``silences_between``.
        cuts: see ``run``.
        tasks: how many.
    """
    places = places_of([0] * len(rows) if kinds is None else kinds, len(rows))
    silences = silences_between(places, silences)
    one = run_rows(rows, places=places, silences=silences)
    return one, run_rows(rows, cuts, places=places, silences=silences, tasks=tasks, restarts=True)
