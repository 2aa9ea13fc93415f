"""Column names that a definition accepts, however they look, work in every read: also those that our own SQL, Postgres or psycopg use."""

from __future__ import annotations

import io
import json
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote

import httpx
import polars as pl
import pyarrow as pa
import pytest

from app.upkeep.retention import forget_versions
from engine.expressions.limits import MAX_COLUMNS
from tests.api.committed import commit, emitted, planned
from tests.api.conftest import Problem
from tests.late_frames import late_frame

SYSTEM = ("ctid", "xmin", "xmax", "cmin", "cmax", "tableoid", "oid", "CTID")
OURS = (
    "s", "v", "k", "x", "w", "l", "h", "f", "r", "t", "o", "n", "q", "c", "k0", "p0", "after0", "at", "limit", "separator",
    "query", "relation", "newest", "began", "ended", "excluded", "stage", "state", "position", "stream_time_ms", "committed_at",
    "age_s", "relation_version", "window_start", "window_end", "window_from", "as_of", "cursor", "count", "value", "key", "row",
    "op", "offset", "element", "event_time", "array", "bool", "?column?", "case",
)  # fmt: skip
ODD = (
    "%", "%s", "%%", "%(at)s", "100%(k0)s", "{}", "{0}", "{time}", "it's", "back\\slash", "a b", " ", ":name", "1", "a$b", "é",
    "e\u0301", "Temp", "temp", "TEMP", "select", "user", "order", "null", "eq", "a,b", "a=b&c", "[0]", "a/b", "a~1b",
    "n" * 63, "n" * 62 + "m", "ü" * 31,
)  # fmt: skip
NAMES = (*SYSTEM, *OURS, *ODD)
ARROW = "application/vnd.apache.arrow.stream"
DAY_MS = 86_400_000
T1, T2 = 1_400_000_000_000, 1_400_000_060_000
Kind = Literal["table", "versioned"]


def definition(key: list[str], kind: Kind, values: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "key": key,
        "columns": {**dict.fromkeys(key, "string"), "zz_value": "double", **dict.fromkeys(values, "string")},
        "versioned": {"history_retention": "1d"} if kind == "versioned" else None,
        "materialize": True,
        "connector": {"type": "log", "partitions": 1},
    }


async def ok(answer: httpx.Response) -> httpx.Response:
    assert answer.status_code in (200, 201), answer.text
    return answer


async def get(client: httpx.AsyncClient, path: str, **params: Any) -> Any:
    return (await ok(await client.get(path, params=params))).json()


async def check_reads(client: httpx.AsyncClient, rows: list[dict[str, Any]], key: list[str], kind: Kind) -> None:
    """Read the rows of the table ``readings`` in every way there is; the first is the one that single reads ask for."""
    path, first = "/v1/tables/readings/rows", rows[0]
    own = {f"key.{name}": first[name] for name in key}
    others = [name for name in first if name not in key]
    equal = [{f"where.{name}": first[name] for name in others[begin : begin + 16]} for begin in range(0, len(others), 16)]
    times = [{}, {"as_of": T2}] if kind == "versioned" else [{}]
    for at in times:
        assert (await get(client, path, **at))["rows"] == rows
        assert (await get(client, path, order="desc", **at))["rows"] == rows[::-1]
        for conditions in equal:
            assert (await get(client, path, bigints="string", **own, **conditions, **at))["rows"] == [first]
        assert (await get(client, path, **{f"key.{key[0]}.ge": first[key[0]]}, **at))["rows"] == rows
        page = await get(client, path, limit=1, **at)
        assert page["rows"] + (await get(client, path, cursor=page["next"], **at))["rows"] == rows
        lines = await ok(await client.get(path, params=at, headers={"accept": "application/x-ndjson"}))
        assert [json.loads(line) for line in lines.text.splitlines()] == rows
        arrow = await ok(await client.get(path, params=at, headers={"accept": ARROW}))
        assert pa.ipc.open_stream(io.BytesIO(arrow.content)).read_all().to_pylist() == rows
    looked_up = {"keys": [{name: row[name] for name in key} for row in rows]}
    found = (await ok(await client.post(f"{path}:lookup", json=looked_up))).json()
    assert [row["row"] for row in found["results"]] == rows
    if len(key) == 1:
        assert (await get(client, f"{path}/{quote(first[key[0]], safe='')}"))["rows"] == [first]
    if kind == "versioned":
        history = await get(client, path, **own, **{"from": T1, "to": T2, "limit": 1})
        assert [row["zz_value"] for row in history["rows"]] == [0.0]
        following = await get(client, path, **own, **{"from": T1, "to": T2, "cursor": history["next"]})
        assert [row["zz_value"] for row in following["rows"]] == [first["zz_value"]]
    await check_changes(client, rows)


async def check_changes(client: httpx.AsyncClient, rows: list[dict[str, Any]]) -> None:
    """Follow the table from a snapshot, row by row, and its changes from the beginning."""
    path, found, cursor = "/v1/tables/readings/changes", [], None
    for _ in rows:
        page = await get(client, path, limit=1, **({"from": "snapshot"} if cursor is None else {"cursor": cursor}))
        found += [change["row"] for change in page["changes"]]
        cursor = page["next"]
    assert found == rows
    assert [change["row"] for change in (await get(client, path, **{"from": "earliest"}))["changes"]][-len(rows) :] == rows


def commit_rows(dsn: str, *batches: list[tuple[str, dict[str, Any], int]], query: str = "materialize:readings") -> None:
    """Commit batches of a table; each forgets versions that ended a day before the rows of the batch before."""
    plan = planned(dsn, query)
    columns, operators = (
        plan.output.columns,
        [operator.name for stage in plan.stages for operator in stage.operators if hasattr(operator, "name")],
    )
    for changes in batches:
        rows = [{**dict.fromkeys(columns.names), **row, "_ts": ts, "_op": int(op == "delete")} for op, row, ts in changes]
        frame = pl.DataFrame(rows, schema={**columns.polars(), "_ts": pl.Int64(), "_op": pl.Int8()}, orient="row")
        clocks = dict.fromkeys(operators, max(ts for _, _, ts in changes))
        commit(dsn, query, [(0, 0, emitted(clocks, changes=frame))])


@pytest.mark.parametrize("kind", ["table", "versioned"])
@pytest.mark.parametrize(
    "name", ["ctid", "xmin", "s", "v", "newest", "array", "k0", "window_end", "%s", "%(at)s", "it's", "n" * 63]
)
async def test_a_key_of_any_name_is_written_and_read(client: httpx.AsyncClient, dsn: str, name: str, kind: Kind) -> None:
    await ok(await client.put("/v1/tables/readings", json=definition([name], kind)))
    rows = [{name: "a", "zz_value": 1.0}, {name: "b", "zz_value": 2.0}]
    commit_rows(
        dsn,
        [("upsert", {name: "a", "zz_value": 0.0}, T1), ("upsert", {name: "c", "zz_value": 0.0}, T1)],
        [("upsert", row, T2) for row in rows] + [("delete", {name: "c"}, T2)],
        [("upsert", row, T2) for row in rows],
    )
    await check_reads(client, rows, [name], kind)


@pytest.mark.parametrize("kind", ["table", "versioned"])
@pytest.mark.parametrize("first", range(0, len(NAMES), 16))
async def test_keys_and_values_of_every_name_are_written_and_read_together(
    client: httpx.AsyncClient, dsn: str, first: int, kind: Kind
) -> None:
    key = list(NAMES[first : first + 16])
    values = tuple(name for name in NAMES if name not in key)
    await ok(await client.put("/v1/tables/readings", json=definition(key, kind, values)))
    rows = [{**dict.fromkeys(key, text), "zz_value": 1.0, **{name: name + text for name in values}} for text in ("a", "b")]
    commit_rows(dsn, [("upsert", {**rows[0], "zz_value": 0.0}, T1)], [("upsert", row, T2) for row in rows])
    await check_reads(client, rows, key, kind)


@pytest.mark.parametrize("first", range(0, len(NAMES), 12))
async def test_groups_of_windows_of_every_name_are_written_read_and_explained(
    client: httpx.AsyncClient, dsn: str, first: int
) -> None:
    group = [name for name in NAMES[first : first + 12] if name not in ("window_start", "window_end")]
    source = {"key": group, "columns": {**dict.fromkeys(NAMES, "string"), "zz_at": "timestamp"}, "event_time": "zz_at"}
    await ok(await client.put("/v1/streams/records", json=source))
    query = {
        "name": "readings", "tasks": 1, "from": {"stream": "records"}, "group_by": [f'"{name}"' for name in group],
        "window": {"type": "tumbling", "size": "1h", "retention": "1d"}, "aggregate": {"zz_count": "count(*)"},
        "suppress": {"mode": "until_window_closes"}, "into": {"table": "readings", "materialize_open": True},
    }  # fmt: skip
    await ok(await client.post("/v1/queries", json=query))
    key = dict.fromkeys(group, "a")
    window = {"window_start": "2014-05-13T16:00:00Z", "window_end": "2014-05-13T17:00:00Z"}
    bounds = {name: datetime.fromisoformat(text) for name, text in window.items()}
    schema = {**planned(dsn, "readings").output.columns.polars(), "_ts": pl.Int64(), "_op": pl.Int8()}
    row = pl.DataFrame([{**key, **bounds, "zz_count": 1, "_ts": T1, "_op": 0}], schema=schema, orient="row")
    named = pl.DataFrame({f"records.{name}": ["a"] for name in group})
    record = named.select(pl.struct(pl.all()).struct.json_encode()).item()
    late = late_frame([("window", "window_closed", T1 - 1, T2, 0, record)])
    commit(dsn, "readings", [(0, 0, emitted({"window": T2}, changes=row, late=late))])
    commit(dsn, "readings", [(0, 0, emitted({"window": T2 + 7_200_000}))])
    own = {f"key.{name}": "a" for name in group}
    path, shown = "/v1/tables/readings/rows", {**key, **window, "zz_count": 1, "$state": "final"}
    assert (await get(client, path, **own))["rows"] == [shown]
    assert (await get(client, path, state="any", window_from=T1 - 7_200_000, **own))["rows"] == [shown]
    assert (await get(client, path, state="open", **own))["rows"] == []
    assert [row["event_time_ms"] for row in (await get(client, "/v1/queries/readings/late-records", **own))["items"]] == [T1 - 1]
    answer = await get(client, "/v1/queries/readings/explain", at=str(T1), **own)
    assert answer["answer"]["code"] == "final", answer["answer"]
    shorter = {**query, "window": {**query["window"], "retention": "1h"}}  # type: ignore[dict-item]
    previewed = (await ok(await client.post("/v1/validations", json=shorter))).json()
    assert [effect["effect"] for effect in previewed["edit"]["effects"]] == ["rows_removed"], previewed


@pytest.mark.parametrize("media_type", ["application/json", "application/x-ndjson", ARROW])
async def test_records_of_every_name_are_appended_and_read(client: httpx.AsyncClient, media_type: str) -> None:
    where = " AND ".join(f"\"{name}\" = 'a'" for name in NAMES[:40])
    connector = {"type": "log", "partitions": 1, "where": where}
    source = {"key": NAMES, "columns": dict.fromkeys(NAMES, "string"), "connector": connector}
    await ok(await client.put("/v1/streams/readings", json=source))
    record = dict.fromkeys(NAMES, "a")
    batch = pa.RecordBatch.from_pylist([record])
    arrow = io.BytesIO()
    with pa.ipc.new_stream(arrow, batch.schema) as writer:
        writer.write_batch(batch)
    bodies = {"application/json": json.dumps(record).encode(), "application/x-ndjson": json.dumps(record).encode()}
    sent = bodies.get(media_type, arrow.getvalue())
    await ok(await client.post("/v1/streams/readings/records", content=sent, headers={"content-type": media_type}))
    read = (await get(client, "/v1/streams/readings/records", partition=0))["records"]
    assert [{name: value for name, value in one.items() if not name.startswith("$")} for one in read] == [record]
    changes = (await get(client, "/v1/streams/readings/changes", **{"from": "earliest"}))["changes"]
    assert [change["row"] for change in changes] == [record]


async def test_old_versions_are_forgotten_whatever_the_key_is_called(client: httpx.AsyncClient, dsn: str) -> None:
    key = ["%s", "%(horizon)s", "ctid", "o", "v"]
    await ok(await client.put("/v1/tables/source", json={**definition(key, "versioned"), "materialize": False}))
    into = {"table": "readings", "versioned": {"history_retention": "1d"}}
    await ok(await client.post("/v1/queries", json={"name": "readings", "from": {"table": "source"}, "into": into}))
    row, other = (dict.fromkeys(key, text) for text in ("a", "b"))
    batches = [[("upsert", row, T1)], [("upsert", row, T1 + 1)], [("upsert", other, T1 + 10 * DAY_MS)]]
    commit_rows(dsn, *batches, query="readings")
    assert forget_versions(dsn) == 1


@pytest.mark.parametrize("name", ["excluded", "stage", "v", "s", "history", "pg_class", "user", "select"])
async def test_a_table_of_any_name_is_written_and_read(client: httpx.AsyncClient, dsn: str, name: str) -> None:
    await ok(await client.put(f"/v1/tables/{name}", json=definition(["id"], "versioned")))
    commit_rows(
        dsn,
        [("upsert", {"id": "a", "zz_value": 1.0}, T1)],
        [("upsert", {"id": "a", "zz_value": 2.0}, T2)],
        query=f"materialize:{name}",
    )
    assert (await get(client, f"/v1/tables/{name}/rows"))["rows"] == [{"id": "a", "zz_value": 2.0}]


@pytest.mark.parametrize("name", ["readings_pkey", "readings_window_end_idx"])
async def test_a_table_may_be_called_as_an_index_would_be(client: httpx.AsyncClient, name: str) -> None:
    await ok(await client.put("/v1/streams/records", json={"key": ["id"], "columns": {"id": "string"}}))
    windows = {
        "name": "readings", "from": {"stream": "records"}, "group_by": ["id"], "window": {"type": "tumbling", "size": "1h"},
        "aggregate": {"n": "count(*)"}, "into": {"table": "readings"},
    }  # fmt: skip
    await ok(await client.post("/v1/queries", json=windows))
    await ok(await client.put(f"/v1/tables/{name}", json=definition(["id"], "versioned")))
    assert (await get(client, f"/v1/tables/{name}/rows"))["rows"] == []


@pytest.mark.parametrize("name", ["", "n" * 64, "ü" * 32, "a.b", 'a"b', "a\nb", "_ts", "$op", "^a", "*"])
async def test_a_name_that_could_not_be_read_is_refused_by_name(client: httpx.AsyncClient, problem: Problem, name: str) -> None:
    source = {"key": ["id"], "columns": {"id": "string", name: "string"}, "materialize": True}
    body = problem(await client.put("/v1/tables/readings", json=source), 422, "malformed_name")
    assert [fault["pointer"] for fault in body["errors"]] == [f"/columns/{name}"]
    assert "63 printable bytes" in body["errors"][0]["detail"]


@pytest.mark.parametrize("is_materialised", [False, True])
async def test_a_key_of_more_columns_than_an_index_holds_is_refused_where_rows_are_kept(
    client: httpx.AsyncClient, problem: Problem, is_materialised: bool
) -> None:
    source = {**definition([f"k{n}" for n in range(32)], "versioned"), "materialize": is_materialised}
    answer = await client.put("/v1/tables/readings", json=source)
    if is_materialised:
        problem(answer, 422, "too_many_columns", "/key")
    else:
        assert answer.status_code == 201, answer.text


async def test_a_table_of_as_many_columns_as_there_may_be_is_written_and_read(client: httpx.AsyncClient, dsn: str) -> None:
    key, values = [f"k{n}" for n in range(31)], tuple(f"v{n}" for n in range(MAX_COLUMNS - 32))
    await ok(await client.put("/v1/tables/readings", json=definition(key, "versioned", values)))
    rows = [{**dict.fromkeys(key, text), "zz_value": 1.0, **dict.fromkeys(values, text)} for text in ("a", "b")]
    commit_rows(dsn, [("upsert", {**rows[0], "zz_value": 0.0}, T1)], [("upsert", row, T2) for row in rows])
    page = await get(client, "/v1/tables/readings/rows")
    assert page["rows"] == rows
    arrow = await ok(await client.get("/v1/tables/readings/rows", headers={"accept": ARROW}))
    assert pa.ipc.open_stream(io.BytesIO(arrow.content)).read_all().to_pylist() == rows


async def test_a_group_of_more_columns_than_an_index_holds_is_refused(client: httpx.AsyncClient, problem: Problem) -> None:
    names = [f"k{n}" for n in range(31)]
    await ok(await client.put("/v1/streams/records", json={"columns": dict.fromkeys(names, "string")}))
    query = {
        "name": "readings", "from": {"stream": "records"}, "group_by": names, "window": {"type": "tumbling", "size": "1h"},
        "aggregate": {"n": "count(*)"}, "into": {"table": "readings"},
    }  # fmt: skip
    problem(await client.post("/v1/queries", json=query), 422, "too_many_columns", "/group_by")
    await ok(await client.post("/v1/queries", json={**query, "group_by": names[:30]}))
