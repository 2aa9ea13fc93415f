"""Windows with many open groups in one task, alone in one process whose memory is bounded; see ``scale_core``.

A group begins with each millisecond of event time, and its second record comes ``open / 2`` groups later: to its session as the time of
the day has it, to its windows as a late record. Groups stay open for ``open`` milliseconds, so that many are open all the time and
as many close as begin. A result's count follows from the number of its group.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from engine.definition.queries import QueryDefinition
from engine.operators.tasks.slices import Slice
from engine.plan.build import build_plan
from engine.plan.catalog import source_entry
from engine.plan.model import Plan, folded
from engine.sources.shaping import for_input
from tests.bench.core_jobs import canonical, source_definition
from tests.bench.core_scaling import Peak, private_bytes
from tests.bench.nxt import BASE_MS, Ints
from tests.bench.scale_core import CoreScale, Worked, cpu_seconds, measured
from tests.bench.segments import PurgedSegments
from tests.lane_readings import Pipeline

BATCH_MS: Final = 25_000
"""Groups that begin in a batch: twice as many records."""

SLIDING_MS: Final = 10
WINDOW_MS: Final = 40_000
LEAST_MS: Final = 1_500_000
"""Milliseconds of the small run: as many records as would make a second or two of work."""

KINDS: Final = ("sessions", "sliding", "windows")


def measure_open(kind: str, emit: str, groups: int, work: Path, limit_mib: int) -> CoreScale:
    """Fill a task with open groups, let as many more come and go, open it again in another process.

    Args:
        kind: of ``KINDS``.
        emit: ``final`` or ``changes``.
        groups: how many are open.
        work: folder for segments.
        limit_mib: memory that the process may allocate.
    """
    return measured(partial(_work, kind, emit, groups), partial(_reopen, kind, emit, groups), work, limit_mib)


def _plan(kind: str, emit: str, groups: int) -> Plan:
    windows = {
        "sessions": {"type": "session", "gap": f"{groups // 2}ms", "grace": "0ms"},
        "sliding": {"type": "sliding", "difference": f"{SLIDING_MS}ms", "grace": f"{groups}ms"},
        "windows": {"type": "hopping", "size": f"{WINDOW_MS}ms", "advance": f"{WINDOW_MS // 2}ms", "grace": f"{groups}ms"},
    }
    query: dict[str, Any] = {
        "name": "measured",
        "tasks": 1,
        "from": {"stream": "r"},
        "group_by": ["k"],
        "window": windows[kind],
        "aggregate": {"n": "count(*)"},
        "suppress": {"mode": "until_window_closes" if emit == "final" else "none"},
        "into": {"table": "counts"},
    }
    source = source_definition({"k": "bigint", "ts": "bigint"}, "k", is_table=False)
    return folded(build_plan(QueryDefinition.model_validate(query), {"r": source_entry("r", source)}))


def _times(kind: str, groups: int, keys: Ints) -> tuple[Ints, Ints]:
    """Return the times of each group's two records, from ``BASE_MS`` on."""
    return keys, keys + (groups // 2 if kind == "sessions" else 1)


def _batches(kind: str, groups: int, first: int, last: int) -> Iterator[pl.DataFrame]:
    """Yield the records that come in the milliseconds ``first..last-1``."""
    for begin in range(first, last, BATCH_MS):
        new = np.arange(begin, min(begin + BATCH_MS, last))
        keys = np.stack([new, new - groups // 2], axis=1).ravel()
        times = np.stack([_times(kind, groups, new)[0], _times(kind, groups, new - groups // 2)[1]], axis=1).ravel()
        is_there = keys >= 0
        yield canonical({"k": keys[is_there], "ts": times[is_there] + BASE_MS})


def _work(kind: str, emit: str, groups: int, root: Path) -> Worked:
    store, plan = PurgedSegments(root), _plan(kind, emit, groups)
    pipeline = Pipeline(plan, None, lambda _stage, _task: store)
    last = max(groups + groups // 2, LEAST_MS)
    before = private_bytes()
    spent, records, results, wrong, longest = 0.0, 0, 0, 0, 0.0
    with Peak() as peak:
        for batch, frame in enumerate(_batches(kind, groups, 0, last)):
            store.purge()
            seconds, made = cpu_seconds(partial(_step, pipeline, plan, frame, batch))
            spent, longest, records = spent + seconds, max(longest, seconds), records + frame.height
            results += sum(changes.height for changes in made)
            wrong += _wrong(kind, emit, groups, made)
    rates = {"all": records / spent, "longest batch, CPU s": longest}
    state = f"{kind}, {emit}: {groups:,} open groups"
    return Worked(state, {"pipeline": pipeline.snapshot(), "last": last}, rates, peak.private_bytes - before, wrong, results)


def _reopen(kind: str, emit: str, groups: int, manifest: dict[str, Any], root: Path) -> tuple[float, int]:
    begun, last = time.perf_counter(), manifest["last"]
    store, plan = PurgedSegments(root), _plan(kind, emit, groups)
    pipeline = Pipeline(plan, manifest["pipeline"], lambda _stage, _task: store)
    [frame] = _batches(kind, groups, last, last + 1_000)
    made = _step(pipeline, plan, frame, 1 << 20)
    return time.perf_counter() - begun, _wrong(kind, emit, groups, made)


def _step(pipeline: Pipeline, plan: Plan, frame: pl.DataFrame, batch: int) -> list[pl.DataFrame]:
    [item] = plan.inputs
    step = pipeline.process([Slice(item.index, item.feed.name, 0, for_input(frame, item))], batch)
    pipeline.snapshot()
    return step.changes


def _wrong(kind: str, emit: str, groups: int, made: list[pl.DataFrame]) -> int:
    """Count results whose number of records is not that of their group in their window; of changes, those with more or none."""
    return sum(_wrong_rows(kind, emit, groups, changes.filter(pl.col("_op") == 0)) for changes in made)


def _wrong_rows(kind: str, emit: str, groups: int, made: pl.DataFrame) -> int:
    starts, ends = (made[name].dt.epoch("ms").to_numpy() - BASE_MS for name in ("window_start", "window_end"))
    is_whole = kind != "windows"
    times = _times(kind, groups, made["k"].to_numpy())
    wanted = sum(((starts <= own) & (own < ends + is_whole)).astype(np.int64) for own in times)
    found = made["n"].to_numpy()
    if emit == "final":
        return int((found != wanted).sum())
    return int(((found < 1) | (found > wanted)).sum())
