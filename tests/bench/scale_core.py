"""The structures that hold large state, alone in one process: one task, its segments in files, everything it may call its own bounded.

What the kernel keeps of mapped files is not the process's own and counts for no bound (``RLIMIT_DATA``), as for no container that is short
of memory: such pages are taken back. Rates are records per CPU second; the machine is rarely idle.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import polars as pl

from engine.expressions.types.types import BIGINT, Schema
from engine.frames.frames import KEY_HASH, OFFSET, OP, POS, RANK, TS
from engine.frames.hashing import key_hash
from engine.operators.joins.grace_buffer import GraceBuffer
from engine.state.segments.ports import named_segments
from engine.state.sorted.versioned_table import MATCHED, VersionedTable
from tests.bench.core_scaling import Peak, clock_of, moment_of, private_bytes
from tests.bench.nxt import Ints
from tests.bench.scale_input import SPAN_MS, Probes, Table
from tests.bench.segments import PurgedSegments

T = TypeVar("T")

BATCH: Final = 250_000
"""What one of four tasks gets of a batch."""

ONE_THREAD: Final = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
DAY_MS: Final = 86_400_000
REOPENING_PROBES: Final = 1_000

COLUMNS: Final = Schema((("item", BIGINT), ("version", BIGINT)))


@dataclass(frozen=True, slots=True)
class CoreScale:
    """What was measured at one size of the state.

    Attributes:
        state: in words.
        per_cpu_second: records, by what was done.
        state_bytes: of the segments that the last manifest names.
        disk_bytes: of the whole directory, with what older manifests may name.
        peak_bytes: greatest private memory, less what the process had before; without mapped files.
        reopened_s: from the manifest to the answers of a thousand probes, in a new process, files read from the disk.
        wrong: answers that are not what the closed form says.
        answers: how many were compared.
    """

    state: str
    per_cpu_second: dict[str, float]
    state_bytes: int
    disk_bytes: int
    peak_bytes: int
    reopened_s: float
    wrong: int
    answers: int


def measure_table(table: Table, probes: int, work: Path, limit_mib: int) -> CoreScale:
    """Load a table, join with it, open it again in another process."""
    return measured(partial(_table, table, probes), partial(_reopen_table, table), work, limit_mib)


def measure_buffer(waiting: int, passing: int, work: Path, limit_mib: int) -> CoreScale:
    """Fill a grace buffer, let records through, open it again in another process."""
    probes = Probes(Table(1_000, 5_000), "uniform", 0, waiting + passing)
    grace_ms = SPAN_MS * waiting // probes.count
    return measured(partial(_buffer, probes, waiting, grace_ms), partial(_reopen_buffer, grace_ms), work, limit_mib)


@dataclass(frozen=True, slots=True)
class Worked:
    """What a process did; see ``CoreScale``."""

    state: str
    manifest: dict[str, Any]
    per_cpu_second: dict[str, float]
    peak_bytes: int
    wrong: int
    answers: int


def measured(
    work: Callable[[Path], Worked], reopen: Callable[[dict[str, Any], Path], tuple[float, int]], folder: Path, limit_mib: int
) -> CoreScale:
    """Let one process work in a new folder, and another open what it left."""
    with tempfile.TemporaryDirectory(dir=folder) as root:
        worked = _apart(limit_mib, work, Path(root))
        paths = list(Path(root).glob("*.arrow"))
        sizes = {path.stem: path.stat().st_size for path in paths}
        for path in paths:
            drop_from_cache(path)
        reopened_s, wrong = _apart(limit_mib, reopen, worked.manifest, Path(root))
    held = sum(sizes[name] for name in named_segments(worked.manifest))
    return CoreScale(
        worked.state, worked.per_cpu_second, held, sum(sizes.values()), worked.peak_bytes, reopened_s, worked.wrong + wrong, worked.answers
    )  # fmt: skip


def _apart(limit_mib: int, work: Callable[..., T], *arguments: object) -> T:
    """Call in a new process with one thread of Polars and so much memory of its own."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        with ProcessPoolExecutor(1, get_context("spawn"), initializer=_limit, initargs=(limit_mib,)) as pool:
            return pool.submit(work, *arguments).result()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _limit(mib: int) -> None:
    """Bound what this process may allocate beyond what its libraries have already; pages that are only reserved count as well."""
    status = Path("/proc/self/status").read_text()
    own = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (own + (mib << 20), own + (mib << 20)))


def _table(table: Table, count: int, root: Path) -> Worked:
    store = PurgedSegments(root)
    state = VersionedTable(COLUMNS, ["item"], DAY_MS, None, store)
    asked: tuple[Probes, ...] = (Probes(table, "uniform", 0, count), Probes(table, "zipf", count, count))
    before = private_bytes()
    rates = {}
    wrong = 0
    with Peak() as peak:
        spent = 0.0
        for first in range(0, table.versions, BATCH):
            puts = _frame(table.rows(first, first + BATCH), first)
            store.purge()
            spent += cpu_seconds(partial(_put, state, puts))[0]
        rates["load"] = table.versions / spent
        for probes in asked:
            spent = 0.0
            for first in range(0, count, BATCH):
                frame = _frame(probes.rows(first, first + BATCH), table.versions)
                cost, versions = cpu_seconds(partial(_look_up, state, frame))
                spent += cost
                wrong += _wrong(table, frame, versions)
            rates[probes.keys] = count / spent
    growth = peak.private_bytes - before
    return Worked(f"{table.keys:,} keys, {table.versions:,} versions", state.snapshot(), rates, growth, wrong, 2 * count)


def _reopen_table(table: Table, manifest: dict[str, Any], root: Path) -> tuple[float, int]:
    frame = _frame(Probes(table, "uniform", 0, REOPENING_PROBES).rows(0, REOPENING_PROBES), table.versions)
    begun = time.perf_counter()
    state = VersionedTable(COLUMNS, ["item"], DAY_MS, manifest, PurgedSegments(root))
    versions = _look_up(state, frame)
    return time.perf_counter() - begun, _wrong(table, frame, versions)


def _buffer(probes: Probes, waiting: int, grace_ms: int, root: Path) -> Worked:
    store = PurgedSegments(root)
    buffer = GraceBuffer(grace_ms, "join", None, store)
    before = private_bytes()
    spent = {"fill": 0.0, "through": 0.0}
    released: list[Ints] = []
    with Peak() as peak:
        for first in range(0, probes.count, BATCH):
            frame = _frame(probes.rows(first, first + BATCH), first)
            store.purge()
            cost, due = cpu_seconds(partial(_pass, buffer, frame))
            spent["fill" if first + BATCH <= waiting else "through"] += cost
            released.append(due)
    growth = peak.private_bytes - before
    filled = waiting // BATCH * BATCH
    rates = {"through": (probes.count - filled) / spent["through"]}
    if filled:
        rates["fill"] = filled / spent["fill"]
    numbers = np.concatenate(released)
    times = probes.rows(0, probes.count)["ts"].to_numpy()
    wanted = np.flatnonzero(times <= times[-1] - grace_ms)
    wrong = int((numbers != wanted).sum()) if len(numbers) == len(wanted) else abs(len(numbers) - len(wanted))
    manifest = {**buffer.snapshot(), "last_ms": int(times.max())}
    return Worked(f"{buffer.rows:,} rows wait", manifest, rates, growth, wrong, len(numbers))


def _reopen_buffer(grace_ms: int, manifest: dict[str, Any], root: Path) -> tuple[float, int]:
    """Let one record more in, which lets go what waited since before its time less the grace."""
    rows = pl.DataFrame({"n": [0], "item": [0], "ts": [manifest["last_ms"] + 1]})
    begun = time.perf_counter()
    buffer = GraceBuffer(grace_ms, "join", manifest, PurgedSegments(root))
    waited = buffer.rows
    released = _pass(buffer, _frame(rows, 1 << 40))
    return time.perf_counter() - begun, int(waited + 1 != buffer.rows + len(released))


def _put(table: VersionedTable, frame: pl.DataFrame) -> None:
    table.commit(table.open(frame, clock_of(frame)))
    table.snapshot()


def _look_up(table: VersionedTable, frame: pl.DataFrame) -> Ints:
    """Return the version that each probe meets, -1 for none."""
    found = table.open(None, clock_of(frame)).lookup(
        frame[KEY_HASH].to_numpy(), [frame["item"]], frame[TS].to_numpy(), frame[POS].to_numpy()
    )
    versions = found.versions["version"].to_numpy()
    return np.where(found.status == MATCHED, versions[found.rows], -1) if len(versions) else np.full(frame.height, -1)


def _pass(buffer: GraceBuffer, frame: pl.DataFrame) -> Ints:
    """Return the numbers of what is released."""
    due = buffer.process(frame, None, moment_of(frame)).frame
    buffer.snapshot()
    return due["n"].to_numpy()


def _wrong(table: Table, frame: pl.DataFrame, versions: Ints) -> int:
    return int((table.true_version(frame["item"].to_numpy(), frame[TS].to_numpy()) != versions).sum())


def _frame(rows: pl.DataFrame, first: int) -> pl.DataFrame:
    """Return records as a task has them, at positions from ``first`` on."""
    numbers = pl.int_range(first, first + rows.height, dtype=pl.Int64, eager=True)
    service = [rows["ts"].alias(TS), pl.lit(0, pl.Int8).alias(OP), numbers.alias(POS), numbers.alias(OFFSET)]
    service.append(pl.lit(None, pl.Binary).alias(RANK))
    return rows.drop("ts").with_columns(service).with_columns(key_hash(rows, ["item"]))


def cpu_seconds(act: Callable[[], T]) -> tuple[float, T]:
    start = time.process_time()
    result = act()
    return time.process_time() - start, result


def drop_from_cache(path: Path) -> None:
    """Let the kernel forget a file's pages, so that the next reader waits for the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)
