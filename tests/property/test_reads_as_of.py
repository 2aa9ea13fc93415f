"""Reads of a versioned table in Postgres equal a model that keeps every put (V2–V6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import polars as pl
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from app.catalog.stored.catalog import output_to_json
from app.http.values import MAX_INSTANT_MS
from app.reads.rows import RowsShape, lookup_statement, rows_statement
from engine.commit.views import apply_changes, create_view
from engine.expressions.types.types import Schema
from engine.plan.model import Output
from tests.examples import examples

KEYS = ["a", "b", "c"]
RETENTION_MS = 20
OUTPUT = Output(
    "versions", "table", Schema.from_json([["k", "string"], ["v", "bigint"]]), ("k",),
    is_windowed=False, is_final=False, retention_ms=None, history_retention_ms=RETENTION_MS,
)  # fmt: skip
Put = tuple[str, int, int | None]
times = st.integers(0, 60)
puts = st.tuples(st.sampled_from(KEYS), times, st.one_of(st.none(), st.integers(0, 9)))
batches = st.lists(st.lists(puts, min_size=1, max_size=6), max_size=5)


class Model:
    """Every version of every key; T and the puts it refuses (V1)."""

    def __init__(self, batches: list[list[Put]]) -> None:
        self.clock: int | None = None
        self.versions: dict[str, dict[int, int | None]] = {key: {} for key in KEYS}
        self.accepted: list[list[Put]] = []
        for batch in batches:
            self.accepted.append([put for put in batch if self._put(*put)])

    def _put(self, key: str, ts: int, value: int | None) -> bool:
        if self.clock is not None and ts < self.clock - RETENTION_MS:
            return False
        self.versions[key][ts] = value
        self.clock = ts if self.clock is None else max(self.clock, ts)
        return True

    @property
    def horizon(self) -> int:
        return -1 if self.clock is None else self.clock - RETENTION_MS

    def as_of(self, key: str, at: int) -> str | int:
        known = self.versions[key]
        if at < self.horizon:
            latest = max(known, default=None)
            if latest is None or (known[latest] is None and latest < self.horizon):
                return "row_not_found"
            if latest > at:
                return "history_expired"
        found = max((ts for ts in known if ts <= at), default=None)
        if found is None:
            return "row_not_found"
        value = known[found]
        if value is not None:
            return value
        return "row_not_found" if found < self.horizon else "row_deleted"

    def history(self, start: int, end: int) -> list[tuple[str, int, int, int | None]]:
        """Distinct answers of as-of reads at every time of the range (STRICT 13); the rest of time stands for all later ones."""
        found = []
        for key, known in self.versions.items():
            seen = {max(ts for ts in known if ts <= at) for at in range(start, end + 1) if isinstance(self.as_of(key, at), int)}
            for ts in sorted(seen):
                value = known[ts]
                assert value is not None
                found.append((key, value, ts, min((later for later in known if later > ts), default=None)))
        return found


@pytest.fixture(scope="module")
def table(dsn: str) -> Iterator[tuple[psycopg.Connection[Any], dict[str, UUID]]]:
    ids = {"relation": uuid4(), "query": uuid4()}
    with psycopg.connect(dsn, autocommit=True) as connection:
        create_view(connection, OUTPUT)
        connection.execute(
            "INSERT INTO slackwater.query (id, name, definition, desired_state, checkpoint_id) "
            "VALUES (%(query)s, 'q', '{}', 'running', %(query)s)",
            ids,
        )
        connection.execute("INSERT INTO slackwater.query_status (query_id, state) VALUES (%(query)s, 'running')", ids)
        connection.execute(
            "INSERT INTO slackwater.relation (id, name, kind, definition, origin, produced_by) "
            "VALUES (%(relation)s, 'versions', 'table', %(output)s, 'derived', %(query)s)",
            {**ids, "output": Jsonb(output_to_json(OUTPUT))},
        )
        yield connection, ids


def write(connection: psycopg.Connection[Any], ids: dict[str, UUID], batches: list[list[Put]]) -> None:
    """Write as the sink does: each batch with the stream time before it."""
    clock: int | None = None
    connection.execute("TRUNCATE views.versions, history.versions, log.commit")
    for batch in filter(None, batches):
        with connection.transaction(), connection.cursor() as cursor:
            frame = pl.DataFrame(
                {
                    "k": [key for key, _, _ in batch],
                    "v": [value for _, _, value in batch],
                    "_ts": [ts for _, ts, _ in batch],
                    "_op": [int(value is None) for _, _, value in batch],
                },
                schema={"k": pl.String, "v": pl.Int64, "_ts": pl.Int64, "_op": pl.Int8},
            )
            apply_changes(cursor, OUTPUT, frame, clock)
        clock = max(ts for _, ts, _ in batch) if clock is None else max(clock, *(ts for _, ts, _ in batch))
    connection.execute(
        "INSERT INTO log.commit (query_id, checkpoint_id, epoch, position, stream_time_ms, detail) "
        "VALUES (%(query)s, %(query)s, 1, '{}', %(clock)s, '{}')",
        {**ids, "clock": clock},
    )


def values(connection: psycopg.Connection[Any], statement: str, params: dict[str, Any]) -> tuple[Any, ...]:
    row = connection.execute(statement, {"page_bytes": 1 << 20, "answer_bytes": 1 << 20, **params}).fetchone()
    assert row is not None
    return tuple(row[7:])


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=batches, ats=st.lists(times, min_size=1, max_size=4), start=times, length=st.integers(0, 30))
def test_reads_equal_the_model(table: Any, batches: list[list[Put]], ats: list[int], start: int, length: int) -> None:
    connection, ids = table
    model = Model(batches)
    write(connection, ids, model.accepted)
    lookup = lookup_statement(OUTPUT, has_text_numbers=False)
    as_of = rows_statement(OUTPUT, RowsShape("as_of", "columns"))
    for at in ats:
        outcomes, rows = values(connection, lookup, {**ids, "k0": KEYS, "at": at})
        shown = [
            outcome if row is None else int(row.split(":")[2].rstrip("}")) for outcome, row in zip(outcomes, rows, strict=True)
        ]
        assert shown == [model.as_of(key, at) for key in KEYS]
        if at >= model.horizon:
            _, _, _, _, keys, found = values(connection, as_of, {**ids, "at": at, "limit": 100})
            answers = {key: model.as_of(key, at) for key in KEYS}
            expected = {key: value for key, value in answers.items() if isinstance(value, int)}
            assert dict(zip(keys or [], found or [], strict=True)) == expected
    history = rows_statement(OUTPUT, RowsShape("history", "columns"))
    end = start + length
    found = values(connection, history, {**ids, "from": start, "to": end, "limit": 100})[4:]
    assert list(zip(*(column or [] for column in found), strict=True)) == model.history(start, end)


def test_the_latest_rows_are_those_of_the_far_future(table: Any) -> None:
    connection, ids = table
    write(connection, ids, [[("a", 5, 1), ("b", 6, 2)], [("a", 4, 3), ("b", 40, None)]])
    found = values(connection, lookup_statement(OUTPUT, has_text_numbers=False), {**ids, "k0": KEYS, "at": MAX_INSTANT_MS})
    assert found == (["found", "row_deleted", "row_not_found"], ['{"k":"a","v":1}', None, None])
    assert connection.execute("SELECT k, v FROM views.versions").fetchall() == [("a", 1)]
