"""Segments of state flipped, cut, emptied and removed: refused with the file and the cure. Nobody looks at Spark's files."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from engine.errors import StateCorrupt
from engine.plan.model import Plan
from tests.integration.queries.conftest import InProcessLauncher

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(1_200)]

KEYS = [f"k{number}" for number in range(8)]
CARRIERS = ("AA", "B6", "DL")
PER_ROUND = 60
COLUMNS = {"k": "string", "carrier": "string", "ts": "bigint", "n": "bigint", "note": "string"}
JOINED: dict[str, Any] = {
    "from": {"stream": "flights"},
    "joins": [{"table": "weather", "as": "w", "type": "inner", "on": "flights.k = w.k", "grace": "10s"}],
    "group_by": ["flights.carrier"],
    "aggregate": {"n": "count(*)", "total": "sum(flights.n)", "note": "max(flights.note)"},
    "tasks": 2,
}


def flipped(path: Path) -> None:
    content = path.read_bytes()
    place = len(content) // 2
    path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


Damage = Callable[[Path], None]
DAMAGES: tuple[Damage, ...] = (flipped, cut, emptied, Path.unlink)


class Damaged:
    """A query that is started anew for each kind of damage, and put back where it was refused."""

    def __init__(self, launcher: InProcessLauncher, aside: Path) -> None:
        self._launcher, self._aside = launcher, aside
        self._chance = random.Random(7)
        self._made = 0
        self._epoch = 1
        launcher.register(
            "stream", "flights", key=["k"], columns=COLUMNS, event_time="ts", connector={"type": "log", "partitions": 2}
        )
        launcher.register(
            "table",
            "weather",
            key=["k"],
            columns={"k": "string", "temp": "bigint", "ts": "bigint"},
            event_time="ts",
            versioned={"history_retention": "1d"},
        )
        launcher.append("weather", [{"k": k, "temp": 1, "ts": 1_000} for k in KEYS])
        self._plan: Plan = launcher.plan(name="q", into={"table": "q"}, **JOINED)
        self._send()
        self._id: UUID = launcher.run(self._plan)
        for _ in range(3):
            self._send()
            self._run()

    @property
    def _directory(self) -> Path:
        return self._launcher.directory(self._id)

    def is_refused(self, pattern: str, damage: Damage) -> bool:
        """Damage files, start the query; where it is refused, put everything back and start it again."""
        shutil.rmtree(self._aside, ignore_errors=True)
        shutil.copytree(self._directory, self._aside)
        self._send()
        found = sorted((path for path in self._directory.glob(pattern) if path.is_file()), key=lambda path: path.stat().st_mtime)
        assert found, pattern
        for path in found:
            damage(path)
        try:
            self._run()
        except StateCorrupt as error:
            told = str(error)
        else:
            return False
        assert str(self._directory) in told
        assert "?state=discard" in told
        directory = self._directory
        shutil.rmtree(directory)
        shutil.copytree(self._aside, directory)
        self._run()
        return True

    def results(self) -> dict[str, tuple[int, int]]:
        return {row[0]: (row[1], row[2]) for row in self._launcher.view("q")}

    def undisturbed(self) -> dict[str, tuple[int, int]]:
        """Run a twin over everything at once."""
        self._launcher.run(self._launcher.plan(name="twin", into={"table": "twin"}, **JOINED))
        return {row[0]: (row[1], row[2]) for row in self._launcher.view("twin")}

    def _run(self) -> None:
        self._epoch += 1
        self._launcher.run(self._plan, self._id, self._epoch)

    def _send(self) -> None:
        rows = []
        for _ in range(PER_ROUND):
            self._made += 1
            carrier, key = self._chance.choice(CARRIERS), self._chance.choice(KEYS)
            rows.append(
                {
                    "k": key,
                    "carrier": carrier,
                    "ts": 60_000 + self._made * 500,
                    "n": self._made,
                    "note": self._chance.randbytes(2_000).hex(),
                }
            )
        self._launcher.append("flights", rows)


def test_damage_of_any_file_is_refused_or_nobody_looks_at_it(launcher: InProcessLauncher, tmp_path: Path) -> None:
    query = Damaged(launcher, tmp_path / "aside")
    for damage in DAMAGES:
        assert query.is_refused("segments/**/*.arrow", damage), damage.__name__
        assert not query.is_refused("run-*/**/*", damage), damage.__name__
    assert query.results() == query.undisturbed()
