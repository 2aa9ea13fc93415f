"""The versioned store of the corpora: the engine's versioned table, puts and reads of a batch at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from engine.expressions.types.types import STRING, Schema
from engine.frames.clocks import AFTER_ALL_TIME, BEFORE_ALL_TIME, Clock
from engine.frames.frames import KEY_HASH, TS
from engine.frames.hashing import key_hash
from engine.state.segments.memory import MemorySegmentStore
from engine.state.sorted.versioned_table import MATCHED, TableBatch, VersionedTable

_COLUMNS = Schema((("key", STRING), ("value", STRING)))


class StoreMachine:
    """Runs puts, deletes and reads; each read sees exactly the steps before it."""

    def __init__(self, op: dict[str, Any], steps: Sequence[dict[str, Any]]) -> None:
        self._steps = steps
        self._frame = _frame(steps)
        self._retention_ms = op["history_retention_ms"]
        self._segments = MemorySegmentStore()
        self._time = BEFORE_ALL_TIME
        self._table = VersionedTable(_COLUMNS, ["key"], self._retention_ms, None, self._segments)

    def restart(self) -> None:
        state = json.loads(json.dumps(self._table.snapshot()))
        self._table = VersionedTable(_COLUMNS, ["key"], self._retention_ms, state, self._segments)

    def run(self, start: int, end: int) -> list[Any]:
        steps, frame = self._steps[start:end], self._frame.slice(start, end - start)
        is_put = np.array([step["op"] in ("put", "delete") for step in steps])
        puts = frame.filter(pl.Series(is_put))
        clock = Clock(self._time).rising(puts["_pos"].to_numpy(), puts[TS].to_numpy(), self._time)
        self._time = clock.end
        batch = self._table.open(puts, clock)
        accepted = np.zeros(len(steps), np.bool_)
        accepted[np.flatnonzero(is_put)] = batch.accepted
        valid_to = np.full(len(steps), AFTER_ALL_TIME)
        valid_to[np.flatnonzero(accepted)] = batch.put_valid_to()
        read = self._read(steps, frame, batch)
        results: list[Any] = []
        for i, step in enumerate(steps):
            if step["op"] == "put":
                results.append({"accepted": bool(accepted[i]), "valid_to": _end(valid_to[i])})
            elif step["op"] == "history":
                results.append(_history(step, frame[i], start + i, batch))
            elif step["op"] == "delete" and not accepted[i]:
                results.append(None)
            else:
                results.append(read[i])
        self._table.commit(batch)
        return results

    def _read(self, steps: Sequence[dict[str, Any]], frame: pl.DataFrame, batch: TableBatch) -> list[Any]:
        """What a point read at each step answers: as of its time, ``get`` the latest; a delete says what it ended."""
        times = np.array([step.get("as_of", step.get("ts", AFTER_ALL_TIME)) for step in steps], np.int64)
        found = batch.lookup(frame[KEY_HASH].to_numpy(), [frame["key"]], times, frame["_pos"].to_numpy(), with_valid_to=True)
        assert found.valid_to is not None
        answers: list[Any] = []
        for step, status, row, end in zip(steps, found.status, found.rows, found.valid_to, strict=True):
            if status != MATCHED:
                answers.append(None)
                continue
            answer = {"value": found.versions["value"][int(row)], "ts": found.versions[TS][int(row)]}
            answers.append({**answer, "valid_to": _end(end)} if step["op"] == "get_as_of" else answer)
        return answers


def _frame(steps: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """Every step as a row of the table's frames; reads too, so that a row's position is its place."""
    values = [step.get("value") for step in steps]
    frame = pl.DataFrame(
        {
            "_pos": pl.Series(range(len(steps)), dtype=pl.Int64),
            "_ts": pl.Series([step.get("ts", 0) for step in steps], dtype=pl.Int64),
            "_op": pl.Series([int(value is None) for value in values], dtype=pl.Int8),
            "_offset": pl.Series(range(len(steps)), dtype=pl.Int64),
            "key": pl.Series([step.get("key") for step in steps], dtype=pl.String),
            "value": pl.Series(values, dtype=pl.String),
        }
    )
    return frame.with_columns(key_hash(frame, ["key"]))


def _history(step: dict[str, Any], probe: pl.DataFrame, position: int, batch: TableBatch) -> list[dict[str, Any]]:
    found = batch.history(int(probe[KEY_HASH][0]), [probe["key"]], step["from"], step["to"], position)
    rows = found.versions.select("value", TS).to_dicts()
    versions = [
        {"value": row["value"], "ts": row[TS], "valid_to": _end(end)} for row, end in zip(rows, found.valid_to, strict=True)
    ]
    return versions if step["order"] == "asc" else versions[::-1]


def _end(valid_to: int) -> int | None:
    return None if valid_to == AFTER_ALL_TIME else int(valid_to)
