"""`python -m tests.bench core [--size tiny|small] [--runs N] [--json FILE] [--only TEXT] [--skip-scaling]`: the engine alone on one core.

No Spark, no service: frames as packets bring them go through `Pipeline`, batch after batch, and every batch ends with its commit (a
snapshot; segments are written and synced where the job says so). What readers do is not measured. Rates are records per
CPU second of this process and of those that run functions, because the machine is rarely idle; those by the wall clock stand beside them.
The figures are medians. What expressions cost has a table of its own, beside a plain column (`core_expressions`).
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl
import psutil
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from engine.definition.queries import QueryDefinition
from engine.frames.frames import Counters, merge_counters
from engine.operators.tasks.pipeline import Pipeline
from engine.operators.tasks.slices import Slice
from engine.plan.build import build_plan
from engine.plan.catalog import source_entry
from engine.plan.model import Plan, folded
from engine.sources.shaping import for_input
from engine.state.segments.memory import MemorySegmentStore
from engine.state.segments.ports import SegmentStore
from tests.bench.core_expressions import PLAIN, expression_jobs
from tests.bench.core_jobs import CoreJob, Feed, jobs
from tests.bench.core_scaling import BATCH_RECORDS, Growth, MemoryUse, measure_memory, measure_scaling
from tests.bench.segments import PurgedSegments
from tests.lane_readings import lane_readings


@dataclass(frozen=True, slots=True)
class CoreRun:
    """One run of a job.

    Attributes:
        exact_path: records that were handled one by one, as documented for rare cases.
        rows: what was emitted.
    """

    records: int
    cpu_seconds: float
    wall_seconds: float
    rows: int
    exact_path: int


def main(arguments: Sequence[str]) -> int:
    """Measure and print; returns 1 where the process may use more than one core."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench core")
    parser.add_argument("--size", choices=["tiny", "small"], default="small")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write every run there")
    parser.add_argument("--only", default="", help="only jobs whose names contain this")
    parser.add_argument("--skip-scaling", action="store_true", help="leave out what grows with the state")
    options = parser.parse_args(arguments)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    console = Console(width=150)
    if pl.thread_pool_size() != 1:
        console.print("[red]Polars must have one thread: start with POLARS_MAX_THREADS=1.[/]")
        return 1
    chosen = [job for job in jobs() if options.only in job.name]
    measured = {job.name: _repeated(job, options.size, options.runs, console) for job in chosen}
    if chosen:
        console.print(_job_table(chosen, measured, options.size))
    compared = [job for job in expression_jobs() if options.only in job.name]
    if compared:
        # The plain column is measured whatever was chosen: the others are told beside it.
        compared = [job for job in expression_jobs() if job.name == PLAIN or job in compared]
        measured |= {job.name: _repeated(job, options.size, options.runs, console) for job in compared}
        console.print(_expression_table(compared, measured, options.size))
    growths: list[Growth] = []
    memory: list[MemoryUse] = []
    if not options.skip_scaling:
        growths = measure_scaling(options.size, options.runs)
        console.print(_growth_table(growths))
        memory = measure_memory(options.size)
        console.print(_memory_table(memory))
    if options.json is not None:
        options.json.write_text(json.dumps(_document(options.size, measured, growths, memory), indent=1) + "\n")
    return 0


def run_job(job: CoreJob, size: str) -> CoreRun:
    """Run a job once, from empty state."""
    feeds = job.feeds(size)
    catalog = {name: source_entry(name, feed.definition) for name, feed in feeds.items()}
    plan = folded(build_plan(QueryDefinition.model_validate(job.query), catalog))
    batches = [(slices, lane_readings(slices, plan.inputs)) for slices in _batches(plan, feeds, job.batch_records)]
    counters: Counters = {}
    rows = 0
    with _stores(plan, is_durable=job.is_durable) as stores:
        pipeline = Pipeline(plan, None, lambda stage, _: stores[stage])
        gc.collect()
        cpu, wall = _cpu_seconds(), time.perf_counter()
        for batch_id, (slices, lanes) in enumerate(batches):
            _purge(stores)
            step = pipeline.process(slices, batch_id, lanes=lanes)
            pipeline.snapshot()
            rows += sum(frame.height for frame in step.changes)
            merge_counters(counters, step.counters)
        cpu, wall = _cpu_seconds() - cpu, time.perf_counter() - wall
    exact = sum(count for (_, reason), count in counters.items() if reason == "exact_path")
    return CoreRun(sum(feed.frame.height for feed in feeds.values()), cpu, wall, rows, exact)


def _cpu_seconds() -> float:
    """Return what this process and those that run functions have used."""
    others = (child.cpu_times() for child in psutil.Process().children())
    return time.process_time() + sum(times.user + times.system for times in others)


def _repeated(job: CoreJob, size: str, runs: int, console: Console) -> list[CoreRun]:
    found = [run_job(job, size) for _ in range(runs)]
    rates = ", ".join(f"{run.records / run.cpu_seconds / 1e6:.2f}" for run in found)
    console.print(f"{job.name}: {rates} M records per CPU second", highlight=False)
    return found


def _batches(plan: Plan, feeds: dict[str, Feed], batch_records: int) -> Iterator[list[Slice]]:
    """Cut the common arrival order into batches of so many records."""
    total = sum(feed.frame.height for feed in feeds.values())
    frames = [(item, for_input(feeds[item.relation.name].frame, item)) for item in plan.inputs]
    for first in range(0, total, batch_records):
        slices = []
        for item, frame in frames:
            start, stop = np.searchsorted(feeds[item.relation.name].arrivals, (first, first + batch_records)).tolist()
            if stop > start:
                slices.append(Slice(item.index, item.feed.name, 0, frame.slice(start, stop - start)))
        yield slices


@contextmanager
def _stores(plan: Plan, *, is_durable: bool) -> Iterator[dict[int, SegmentStore]]:
    """Give each stage's only task an empty store."""
    if not is_durable:
        yield {stage.index: MemorySegmentStore() for stage in plan.stages}
        return
    with tempfile.TemporaryDirectory() as root:
        yield {stage.index: PurgedSegments(Path(root) / str(stage.index)) for stage in plan.stages}


def _purge(stores: dict[int, SegmentStore]) -> None:
    for store in stores.values():
        if isinstance(store, PurgedSegments | MemorySegmentStore):
            store.purge()


def _job_table(chosen: list[CoreJob], measured: dict[str, list[CoreRun]], size: str) -> Table:
    table = Table(title=f"The engine alone, one core, NX-T {size} (median of {len(next(iter(measured.values()), []))})")
    for name in ("job", "records", "records/CPU s", "records/s", "CPU s/M", "rows out", "exact path", "mark", ""):
        table.add_column(name, justify="left" if name == "job" else "right")
    for job in chosen:
        runs = measured[job.name]
        one, cpu, wall = runs[0], median(run.cpu_seconds for run in runs), median(run.wall_seconds for run in runs)
        verdict = "" if job.mark is None else "ok" if one.records / cpu >= job.mark else "[red]below[/]"
        table.add_row(
            job.name,
            f"{one.records:,}",
            f"{one.records / cpu:,.0f}",
            f"{one.records / wall:,.0f}",
            f"{cpu / one.records * 1e6:.2f}",
            f"{one.rows:,}",
            f"{one.exact_path / one.records:.2%}",
            "" if job.mark is None else f"{job.mark:,.0f}",
            verdict,
        )
    return table


def _expression_table(compared: list[CoreJob], measured: dict[str, list[CoreRun]], size: str) -> Table:
    seconds = {job.name: median(run.cpu_seconds / run.records for run in measured[job.name]) for job in compared}
    table = Table(title=f"What one expression of a select costs, NX-T {size} (median of {len(measured[PLAIN])})")
    for name in ("expression", "CPU s/M", "ratio to the plain column", "rows out"):
        table.add_column(name, justify="left" if name == "expression" else "right")
    for job in compared:
        per_million, ratio = seconds[job.name] * 1e6, seconds[job.name] / seconds[PLAIN]
        table.add_row(job.name, f"{per_million:.3f}", f"{ratio:.1f}", f"{measured[job.name][0].rows:,}")
    return table


def _growth_table(growths: list[Growth]) -> Table:
    table = Table(title=f"Cost per record as the state grows, {BATCH_RECORDS:,} records a batch")
    for name in ("what", "state", "ns/record", "ratio to the smallest", "bound", ""):
        table.add_column(name, justify="left" if name == "what" else "right")
    for growth in growths:
        verdict = "" if growth.bound is None else "ok" if growth.ratio <= growth.bound else "[red]above[/]"
        table.add_row(
            growth.what,
            f"{growth.state_rows:,}",
            f"{growth.nanoseconds:,.0f}",
            f"{growth.ratio:.2f}",
            "" if growth.bound is None else f"{growth.bound:.1f}",
            verdict,
        )
    return table


def _memory_table(memory: list[MemoryUse]) -> Table:
    table = Table(title="Private memory of a process that opens a state and handles batches which touch few of its keys")
    for name in ("what", "state MiB", "rows", "touched keys/batch", "batches", "peak growth MiB"):
        table.add_column(name, justify="left" if name == "what" else "right")
    for use in memory:
        table.add_row(
            use.what,
            f"{use.state_bytes / 2**20:,.0f}",
            f"{use.rows:,}",
            f"{use.touched_keys:,}",
            f"{use.batches:,}",
            f"{use.peak_growth_bytes / 2**20:,.1f}",
        )
    return table


def _document(size: str, measured: dict[str, list[CoreRun]], growths: list[Growth], memory: list[MemoryUse]) -> dict[str, Any]:
    return {
        "size": size,
        "jobs": {name: [asdict(run) for run in runs] for name, runs in measured.items()},
        "scaling": [asdict(growth) for growth in growths],
        "memory": [asdict(use) for use in memory],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
