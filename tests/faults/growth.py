"""Whether something keeps growing: samples of a running service over time, and their trends."""

from __future__ import annotations

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import psutil
import psycopg

from app.testing.machines.service import command_of
from tests.faults.service import Service

MIB = 1 << 20
WARM_UP = 0.4
"""Part of the time in which caches, pools and heaps fill: its samples do not count."""


class Allowed(NamedTuple):
    """How much a series may grow while it is looked at: a part of its level, or this much, whichever is more."""

    part: float
    least: float
    unit: float
    name: str


ALLOWED = {
    "memory": Allowed(0.10, 64 * MIB, MIB, "MiB"),
    "disk": Allowed(0.10, 8 * MIB, MIB, "MiB"),
    "database": Allowed(0.10, 16 * MIB, MIB, "MiB"),
    "files": Allowed(0.10, 60, 1, ""),
    "threads": Allowed(0.10, 12, 1, ""),
    "handles": Allowed(0.10, 40, 1, ""),
    "processes": Allowed(0.10, 4, 1, ""),
    "rows": Allowed(0.10, 2_000, 1, ""),
    "few": Allowed(0.10, 30, 1, ""),
}


class Trend(NamedTuple):
    """What a series did after the warm-up.

    Attributes:
        level: its median.
        growth: by how much it rose, by the median slope, which outliers and saw teeth do not move.
        allowed: by how much it may.
    """

    name: str
    level: float
    growth: float
    allowed: float

    @property
    def is_growing(self) -> bool:
        return self.growth > self.allowed

    def __str__(self) -> str:
        unit = ALLOWED[self.name.partition(".")[0]]
        level, growth, allowed = (value / unit.unit for value in self[1:])
        mark = "GROWS" if self.is_growing else "flat"
        return f"{self.name:<28}{level:>12,.1f}{growth:>+12,.1f}{allowed:>12,.1f} {unit.name:<4} {mark}"


@dataclass
class Samples:
    """Series of (seconds, value) by name: ``<what>.<where>``."""

    series: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    _begun: float = field(default_factory=time.monotonic)

    def add(self, values: Iterable[tuple[str, float]]) -> None:
        at = time.monotonic() - self._begun
        for name, value in values:
            self.series[name].append((at, value))

    def trends(self) -> list[Trend]:
        return [trend_of(name, points) for name, points in sorted(self.series.items())]


def trend_of(name: str, points: Sequence[tuple[float, float]]) -> Trend:
    """Return the trend of (seconds, value) pairs, by time; the warm-up's are left out."""
    first = points[0][0] + WARM_UP * (points[-1][0] - points[0][0])
    counted = [point for point in points if point[0] >= first]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(counted, 2) if b[0] > a[0]]
    level = statistics.median(value for _, value in counted)
    growth = statistics.median(slopes) * (counted[-1][0] - counted[0][0]) if slopes else 0.0
    allowed = ALLOWED[name.partition(".")[0]]
    return Trend(name, level, growth, max(allowed.part * level, allowed.least))


def of_service(running: Service, dsn: str) -> list[tuple[str, float]]:
    """Look at everything once: processes, files below the data directory, the database."""
    return [*_processes(running), *_files(running.data_dir), *_database(dsn)]


def _processes(running: Service) -> list[tuple[str, float]]:
    found: dict[str, float] = defaultdict(float)
    for process in [running._own(), *running._children(), *running._database()]:
        with suppress(psutil.NoSuchProcess):
            kind = _kind(process)
            memory = process.memory_info()
            # What is mapped of files, and Postgres' shared buffers, are the kernel's to keep.
            found[f"memory.{kind}"] += memory.rss - memory.shared
            found[f"threads.{kind}"] += process.num_threads()
            found[f"handles.{kind}"] += process.num_fds()
            found[f"processes.{kind}"] += 1
    return list(found.items())


def _kind(process: psutil.Process) -> str:
    command = command_of(process)
    if "org.apache.spark" in command:
        return "jvm"
    if "app.cli" in command:
        return "api"
    if "app.driver" in command:
        return "driver"
    return "postgres" if "postgres" in command else "workers"


def _files(root: Path) -> list[tuple[str, float]]:
    sizes: dict[str, list[int]] = {"checkpoints": [], "spark": [], "logs": []}
    # Whole directories vanish meanwhile; ``os.walk`` passes over them.
    for folder, folders, names in os.walk(root):
        if Path(folder) == root:
            folders[:] = [name for name in folders if name != "postgres"]
        part = Path(folder, "any").relative_to(root).parts[0]
        for path in (Path(folder, name) for name in names):
            with suppress(OSError):
                if not path.is_symlink():
                    sizes[part if part in sizes else "logs"].append(path.stat().st_blocks * 512)
    return [(f"files.{part}", len(each)) for part, each in sizes.items()] + [
        (f"disk.{part}", sum(each)) for part, each in sizes.items() if part != "logs"
    ]


_TABLES = (
    "log.batch",
    "log.late_record",
    "log.reject",
    "log.counter",
    "log.append_key",
    "slackwater.query_event",
    "slackwater.query_run",
)
_FEW = (
    "log.commit",
    "log.feed",
    "log.task_state",
    "log.deleted_state",
    "slackwater.query",
    "slackwater.relation",
    "slackwater.driver",
)
"""With a row or a few for each query: what those leave that are gone would not be seen among thousands."""


def _database(dsn: str) -> list[tuple[str, float]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows = [(f"rows.{table}", float(_one(connection, f"SELECT count(*) FROM {table}"))) for table in _TABLES]
        rows += [(f"few.{table}", float(_one(connection, f"SELECT count(*) FROM {table}"))) for table in _FEW]
        derived = connection.execute(
            "SELECT schemaname || '.' || tablename FROM pg_tables WHERE schemaname IN ('views', 'history')"
        ).fetchall()
        rows += [
            (f"rows.{table}", float(_one(connection, f"SELECT count(*) FROM {table}")))
            for (table,) in derived
            if "extra" not in table
        ]
        return [*rows, ("database.size", float(_one(connection, "SELECT pg_database_size(current_database())")))]


def _one(connection: psycopg.Connection, statement: str) -> int:
    row = connection.execute(statement).fetchone()
    assert row is not None
    return int(row[0])
