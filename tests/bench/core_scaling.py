"""What a record costs as the state grows, and how much memory a process needs beside it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
import psutil
from numpy.typing import NDArray

from engine.expressions.types.types import BIGINT, Schema
from engine.frames.clocks import BEFORE_ALL_TIME, Clock
from engine.frames.frames import KEY_HASH, OFFSET, OP, POS, RANK, TS
from engine.frames.hashing import key_hash
from engine.operators.joins.grace_buffer import GraceBuffer
from engine.operators.operators import BatchTime
from engine.state.sorted.versioned_table import VersionedTable
from tests.bench.nxt import BASE_MS, Ints, below, draw
from tests.bench.sampling import Sampler
from tests.bench.segments import PurgedSegments

BOUND: Final = 2.5
"""A search in a thousand times as many rows takes ten steps more: this is what is left of it."""

BATCH_RECORDS: Final = 100_000
LEAST_BATCHES: Final = 16
LOADED_AT_ONCE: Final = 500_000
BATCH_MS: Final = 1_000
"""Event time of a batch. It is also the retention, so that the index keeps about one version of each key and its size."""

SAMPLE_SECONDS: Final = 0.002

INDEX_KEYS: Final = {"tiny": (1_000, 10_000), "small": (10_000, 100_000, 1_000_000, 5_000_000)}
WAITING_ROWS: Final = {"tiny": (1_000, 10_000), "small": (1_000, 10_000, 100_000, 1_000_000)}
TOUCHED_KEYS: Final = 1_000
MEMORY_BATCHES: Final = 50

FEW_KEYS: Final = 10_000

COLUMNS: Final = Schema((("item", BIGINT), ("version", BIGINT)))


@dataclass(frozen=True, slots=True)
class Growth:
    """Cost at one size of the state.

    Attributes:
        what: the operation.
        state_rows: rows in the state.
        nanoseconds: CPU time per record; the least of the runs.
        ratio: to the smallest state of the series.
        bound: what the ratio should stay below; None where nothing of the engine is measured.
    """

    what: str
    state_rows: int
    nanoseconds: float
    ratio: float
    bound: float | None


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Private memory of a process of its own.

    Attributes:
        what: the operation.
        state_bytes: size of the segments.
        rows: rows in them.
        touched_keys: distinct keys of each batch.
        batches: how many were handled.
        peak_growth_bytes: greatest private memory less that before the state was opened; mapped files are not counted.
    """

    what: str
    state_bytes: int
    rows: int
    touched_keys: int
    batches: int
    peak_growth_bytes: int


def measure_scaling(size: str, runs: int) -> list[Growth]:
    """Measure reading and putting versions by keys in the index, and the grace buffer by rows that wait.

    The first series is what the memory allows: the cheapest plain read of the same keys, without versions, positions or segments.
    """
    plain = {keys: _least([_plain_cost(keys) for _ in range(runs)]) for keys in INDEX_KEYS[size]}
    index = {keys: _least([_index_cost(keys) for _ in range(runs)]) for keys in INDEX_KEYS[size]}
    buffer = {rows: _least([_buffer_cost(rows) for _ in range(runs)]) for rows in WAITING_ROWS[size]}
    return [*_series(plain, None), *_series(index), *_series(buffer)]


def _least(costs: list[dict[str, float]]) -> dict[str, float]:
    return {what: min(cost[what] for cost in costs) for what in costs[0]}


def _series(costs: dict[int, dict[str, float]], bound: float | None = BOUND) -> list[Growth]:
    first = next(iter(costs.values()))
    return [
        Growth(what, rows, cost[what] * 1e9, cost[what] / first[what], bound) for what in first for rows, cost in costs.items()
    ]


def _plain_cost(keys: int) -> dict[str, float]:
    """Return CPU seconds per record of sorting a batch's keys, finding them in one sorted array and gathering the rows' columns."""
    items = np.arange(keys)
    rows = _frame(items, items, items).sort(KEY_HASH)
    hashes, columns = rows.get_column(KEY_HASH).to_numpy(), [column.to_numpy() for column in rows.get_columns()]
    spent = 0.0
    for batch in range(LEAST_BATCHES):
        wanted = _versions(batch, below(draw(7, _numbers(batch), 0), keys), keys).get_column(KEY_HASH).to_numpy()
        spent += _cpu(partial(_read_plainly, hashes, columns, wanted))
    return {"numpy: searchsorted and take, keys at random": spent / (LEAST_BATCHES * BATCH_RECORDS)}


def _read_plainly(hashes: NDArray[np.uint64], columns: list[NDArray[Any]], wanted: NDArray[np.uint64]) -> None:
    places = np.searchsorted(hashes, wanted[np.argsort(wanted)])
    for column in columns:
        column.take(places)


def _index_cost(keys: int) -> dict[str, float]:
    """Return CPU seconds per record of lookups and of puts, while the index is put over once.

    Uniform keys touch the more keys the more there are, until each record of a batch has its own. So lookups are measured twice: that
    way, and with the same number of keys in every batch, which shows what the size of the index alone does.
    """
    batches = max(LEAST_BATCHES, keys // BATCH_RECORDS)
    uniform = few = puts = 0.0
    with tempfile.TemporaryDirectory() as root:
        store = PurgedSegments(Path(root))
        table = _loaded(keys, store)
        for batch in range(batches):
            chosen = below(draw(13, np.arange(batch * FEW_KEYS, (batch + 1) * FEW_KEYS), 0), keys)
            frame = _versions(batch, below(draw(7, _numbers(batch), 0), keys), keys)
            store.purge()
            few += _cpu(partial(_look_up, table, _versions(batch, chosen[below(draw(7, _numbers(batch), 1), FEW_KEYS)], keys)))
            uniform += _cpu(partial(_look_up, table, frame))
            puts += _cpu(partial(_put, table, frame))
    records = batches * BATCH_RECORDS
    return {
        "lookup, keys at random": uniform / records,
        f"lookup, {FEW_KEYS:,} keys a batch": few / records,
        "put, keys at random": puts / records,
    }


def _loaded(keys: int, store: PurgedSegments) -> VersionedTable:
    """Return a table with one version of each key."""
    table = VersionedTable(COLUMNS, ["item"], BATCH_MS, None, store)
    store.purge()
    for first in range(0, keys, LOADED_AT_ONCE):
        items = np.arange(first, min(first + LOADED_AT_ONCE, keys))
        _put(table, _frame(items, np.full(len(items), BASE_MS), items))
    return table


def clock_of(frame: pl.DataFrame) -> Clock:
    """Return the time over the records of a batch that all move it."""
    return Clock().rising(frame[POS].to_numpy(), frame[TS].to_numpy(), BEFORE_ALL_TIME)


def moment_of(frame: pl.DataFrame) -> BatchTime:
    """Return when a batch of a stream is handled."""
    return BatchTime(position=int(frame[POS][-1]) + 1, clock=replace(clock_of(frame), entered=int(frame[POS][0])))


def _put(table: VersionedTable, frame: pl.DataFrame) -> None:
    table.commit(table.open(frame, clock_of(frame)))
    table.snapshot()


def _look_up(table: VersionedTable, frame: pl.DataFrame) -> None:
    batch = table.open(None, clock_of(frame))
    batch.lookup(frame[KEY_HASH].to_numpy(), [frame["item"]], frame[TS].to_numpy(), frame[POS].to_numpy())


def _numbers(batch: int) -> Ints:
    return np.arange(batch * BATCH_RECORDS, (batch + 1) * BATCH_RECORDS)


def _versions(batch: int, items: Ints, keys: int) -> pl.DataFrame:
    """Return one batch of new versions."""
    numbers = _numbers(batch)[: len(items)]
    return _frame(items, BASE_MS + 1 + numbers * BATCH_MS // BATCH_RECORDS, numbers + keys)


def _frame(items: Ints, times: Ints, positions: Ints) -> pl.DataFrame:
    rows = pl.DataFrame({POS: positions, TS: times, OP: np.zeros(len(items), np.int8), OFFSET: positions, "item": items})
    return rows.with_columns(key_hash(rows, ["item"]), pl.Series("version", positions))


def _buffer_cost(waiting: int) -> dict[str, float]:
    """Return CPU seconds per record of a grace buffer in which so many rows wait; one record comes per millisecond."""
    with tempfile.TemporaryDirectory() as root:
        store = PurgedSegments(Path(root))
        buffer = GraceBuffer(waiting, "join", None, store)
        spent = 0.0
        filling = -(-waiting // BATCH_RECORDS) + 1
        for batch in range(filling + LEAST_BATCHES):
            numbers = _numbers(batch)
            delays = below(draw(9, numbers, 0), min(waiting, 1_000))
            frame = _frame(numbers, BASE_MS + numbers - delays, numbers).with_columns(pl.lit(None, pl.Binary).alias(RANK))
            store.purge()
            cost = _cpu(partial(_buffered, buffer, frame))
            spent += cost if batch >= filling else 0.0
    return {"grace buffer, rows waiting": spent / (LEAST_BATCHES * BATCH_RECORDS)}


def _buffered(buffer: GraceBuffer, frame: pl.DataFrame) -> None:
    buffer.process(frame, None, moment_of(frame))
    buffer.snapshot()


def _cpu(act: Callable[[], object]) -> float:
    start = time.process_time()
    act()
    return time.process_time() - start


def measure_memory(size: str) -> list[MemoryUse]:
    """Measure, in processes of their own, what lookups and puts of few keys need beside a great state."""
    keys = INDEX_KEYS[size][-1]
    with tempfile.TemporaryDirectory() as root:
        state = _loaded(keys, PurgedSegments(Path(root))).snapshot()
        held = sum(path.stat().st_size for path in Path(root).glob("*.arrow"))
        uses = []
        for what in ("lookup", "put"):
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                growth = pool.submit(_peak_growth, Path(root), state, keys, what).result()
            uses.append(MemoryUse(f"{what} in the index", held, keys, TOUCHED_KEYS, MEMORY_BATCHES, growth))
    return uses


def _peak_growth(root: Path, state: dict[str, Any], keys: int, what: str) -> int:
    """Handle some batches and return by how much private memory grew at most."""
    numbers = np.arange(MEMORY_BATCHES * TOUCHED_KEYS).reshape(MEMORY_BATCHES, TOUCHED_KEYS)
    frames = [_versions(batch, below(draw(11, own, 0), keys), keys) for batch, own in enumerate(numbers)]
    before = private_bytes()
    with Peak() as peak:
        store = PurgedSegments(root)
        table = VersionedTable(COLUMNS, ["item"], BATCH_MS, state, store)
        for frame in frames:
            store.purge()
            if what == "put":
                _put(table, frame)
            else:
                _look_up(table, frame)
    return peak.private_bytes - before


class Peak(Sampler):
    """Sample this process while the ``with`` block runs.

    Attributes:
        private_bytes: greatest resident memory without mapped files, whose pages the kernel takes back when it needs them.
    """

    def __init__(self) -> None:
        super().__init__(SAMPLE_SECONDS)
        self.private_bytes = 0

    def sample(self) -> None:
        """See ``Sampler``."""
        self.private_bytes = max(self.private_bytes, private_bytes())


def private_bytes() -> int:
    used = psutil.Process().memory_info()
    return int(used.rss - getattr(used, "shared", 0))
