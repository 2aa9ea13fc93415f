"""Runs definitions in process on records written out: what the engine's features do, from JSON to the changes of a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from app.testing.machines.workbench import Workbench
from engine.definition.queries import QueryDefinition
from engine.definition.relations import SourceDefinition, StreamDefinition, TableDefinition
from engine.frames.frames import OP, TS

Record = tuple[str, int, dict[str, Any]]
"""Source, event time in ms, and the record; a column that is left out is null. ``"$op": "delete"`` marks a delete."""

Sources = Mapping[str, Mapping[str, Any]]


def stream(key: Sequence[str] = (), **columns: str) -> dict[str, Any]:
    """Return the definition of a stream."""
    return {"kind": "stream", "key": list(key), "columns": columns}


def table(key: Sequence[str], **columns: str) -> dict[str, Any]:
    """Return the definition of a table."""
    return {"kind": "table", "key": list(key), "columns": columns}


def query(**parts: Any) -> dict[str, Any]:
    """Return a definition with one task."""
    return {"name": "q", "into": {"stream": "out"}, "tasks": 1, **parts}


def bench_of(sources: Sources, *definitions: Mapping[str, Any]) -> Workbench:
    """Return a workbench with these sources and queries."""
    bench = Workbench({name: _source(body) for name, body in sources.items()})
    for definition in definitions:
        bench.add(QueryDefinition.model_validate(definition))
    return bench


def run(sources: Sources, definitions: Sequence[Mapping[str, Any]], records: Sequence[Record], step: int = 1) -> pl.DataFrame:
    """Return the changes of the last query's result: ``_ts``, ``_op`` and its columns.

    Args:
        sources: name → what ``stream`` or ``table`` made.
        definitions: the queries, each after what it reads.
        records: in the order in which they come.
        step: how many come at once.
    """
    bench = bench_of(sources, *definitions)
    for first in range(0, len(records), step):
        append(bench, records[first : first + step])
        bench.run_until_idle(now_ms=0)
    changes = bench.outcome(bench.queries[-1]).changes
    return pl.concat(changes) if changes else pl.DataFrame()


def append(bench: Workbench, records: Sequence[Record]) -> None:
    """Append records, each source's in their order."""
    for name in dict.fromkeys(source for source, _, _ in records):
        columns = bench.catalog[name].relation.columns
        own = [(ts, row) for source, ts, row in records if source == name]
        frame = pl.DataFrame(
            [{column: row.get(column) for column in columns} for _, row in own], schema=columns.polars(), orient="row"
        )
        times = pl.Series(TS, [ts for ts, _ in own], dtype=pl.Int64)
        ops = pl.Series(OP, [int(row.get("$op") == "delete") for _, row in own], dtype=pl.Int8)
        bench.append({name: frame.with_columns(times, ops)})


def _source(body: Mapping[str, Any]) -> SourceDefinition:
    fields = {name: value for name, value in body.items() if name != "kind"}
    model = TableDefinition if body["kind"] == "table" else StreamDefinition
    return model.model_validate(fields)
