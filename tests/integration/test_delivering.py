"""Results delivered by real processes: each once, wherever one was killed; and what happens where a target takes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import polars as pl
import pytest

from tests.integration.delivering import Processes, definition, make, processes

NDJSON = {"type": "files", "path": "out", "format": "ndjson", "every": "0s"}
DELTA = {"type": "delta", "path": "out", "every": "0s"}


@pytest.fixture
def dsn(empty_migrated: str) -> str:
    return empty_migrated


@pytest.fixture
def running(dsn: str, tmp_path: Path) -> Iterator[Processes]:
    with processes(dsn, tmp_path, tmp_path / "deliveries.log") as found:
        yield found


def numbers(connector: dict[str, Any], root: Path) -> list[int]:
    """Return the prices that the target has, in the order of its files."""
    directory = root / connector["path"]
    if connector["type"] == "delta":
        return pl.read_delta(str(directory)).sort("_sequence").get_column("price").to_list()
    files = sorted(directory.glob("*.ndjson"))
    return [json.loads(line)["price"] for each in files for line in each.read_text().splitlines()]


@pytest.mark.parametrize(
    ("connector", "points"),
    [(NDJSON, ("planned", "linked", "delivered", "noted")), (DELTA, ("planned", "delivered", "noted"))],
    ids=["files", "delta"],
)
def test_each_result_is_delivered_once_wherever_a_process_is_killed(
    running: Processes, dsn: str, tmp_path: Path, connector: dict[str, Any], points: tuple[str, ...]
) -> None:
    query, owner = make(dsn, definition("out", connector)), uuid4()
    for point in (*points, *points):
        query.commit(7)
        running.await_end(running.start(point, owner))
    query.commit(3)
    running.start("-", owner)
    query.wait()
    assert numbers(connector, tmp_path) == list(range(query.rows))
    assert query.row()["delivered_rows"] == query.rows
