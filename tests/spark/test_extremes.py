"""Every type's extremes, from an append through windows and tables to each way of reading them, in a whole service (T8)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any, Final

import httpx
import pytest
from slackwater import Client, Json

from tests.faults.service import service, until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(280)]

LAST_MS: Final = 253_402_300_799_999
DAY_MS: Final = 86_400_000
WAIT_S: Final = 120

EXTREMES: Final[dict[str, list[Any]]] = {
    "boolean": [True, False],
    "int": [-(2**31), 2**31 - 1],
    "bigint": [-(2**63), 2**63 - 1],
    "double": [-1.7976931348623157e308, 1.7976931348623157e308, 5e-324, -0.0],
    "decimal(38,10)": ["-9999999999999999999999999999.9999999999", "9999999999999999999999999999.9999999999", "0.0000000001"],
    "decimal(1,0)": ["-9", "9"],
    "decimal(38,38)": ["-0." + "9" * 38, "0." + "9" * 38],
    "string": ["", "\x01\x7f\U0010ffff", "'\"\\%s{}\n\t", "x" * 100_000],
    "bytes": ["", "AP8A", "/////w=="],
    "date": ["0001-01-01", "9999-12-31"],
    "time": ["00:00:00", "23:59:59.999999"],
    "timestamp": ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"],
    "array<timestamp>": [[], ["0001-01-01T00:00:00Z", None, "9999-12-31T23:59:59.999999Z"]],
    "map<string,decimal(38,10)>": [{}, {"": "-9999999999999999999999999999.9999999999", "é": None}],
    "struct<a:bigint,b:array<date>>": [{"a": -(2**63), "b": ["0001-01-01", "9999-12-31"]}, {"a": None, "b": None}],
}
"""As they are sent: what JSON cannot hold exactly as text."""

TYPES: Final = list(EXTREMES)
COLUMNS: Final = {f"c{place}": kind for place, kind in enumerate(TYPES)}
SOURCE: Final[Json] = {
    "columns": {"id": "bigint", "at": "bigint", **COLUMNS},
    "event_time": "at",
    "max_future_skew": None,
    "connector": {"type": "log", "partitions": 1},
}
LASTS: Final = {name: f"last({name})" for name in COLUMNS}
BY_ID: Final = {"group_by": ["id"], "aggregate": {"n": "count(*)", **LASTS}}
QUERIES: Final[list[Json]] = [
    {"name": "copies", "from": {"stream": "src"}, "into": {"stream": "copies"}},
    {"name": "running", "from": {"stream": "src"}, **BY_ID, "into": {"table": "running"}},
    {
        "name": "daily", "from": {"stream": "src"}, **BY_ID, "window": {"type": "tumbling", "size": "1d"}, "into": {"table": "daily"},
    },
    {
        "name": "final", "from": {"stream": "src"}, **BY_ID, "window": {"type": "tumbling", "size": "1h"},
        "suppress": {"mode": "until_window_closes"}, "into": {"table": "final"},
    },
    {"name": "kept", "from": {"table": "versions"}, "where": "id >= 0", "into": {"table": "kept", "versioned": {"history_retention": "1d"}}},
]  # fmt: skip
TIMES: Final = (0, 1, DAY_MS, LAST_MS - DAY_MS - 3_600_000, LAST_MS - DAY_MS, LAST_MS - 1, LAST_MS)


def sent() -> list[Json]:
    """Return a record for each place in the lists of extremes, each of another time, and one of nulls."""
    longest = max(map(len, EXTREMES.values()))
    rows = [{name: EXTREMES[kind][place % len(EXTREMES[kind])] for name, kind in COLUMNS.items()} for place in range(longest)]
    rows.append(dict.fromkeys(COLUMNS))
    values = [rows[place % len(rows)] for place in range(len(TIMES))]
    return [{"id": place, "at": at, **row} for place, (at, row) in enumerate(zip(TIMES, values, strict=True))]


def plain(row: Json) -> Json:
    """Return a record's columns as values that can be compared."""
    return {name: _plain(COLUMNS[name], value) for name, value in row.items() if name in COLUMNS}


def _plain(kind: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(kind, each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(kind, each) for each in value]
    if value is None or isinstance(value, bool):
        return value
    if "decimal" in kind:
        return Decimal(value)
    if "timestamp" in kind:
        return datetime.fromisoformat(value)
    return float(value) if kind == "double" else value


def pages(url: str, path: str, part: str, **params: str | int) -> list[Json]:
    """Read all of a list, with every digit of its numbers."""
    found: list[Json] = []
    while True:
        answer = httpx.get(f"{url}{path}", params=params, timeout=60)
        assert answer.status_code == 200, answer.text
        page = json.loads(answer.text, parse_float=Decimal)
        found += page[part]
        if page.get("next") is None or not page[part]:
            return found
        params = {"cursor": page["next"]}


def told(url: str, table: str) -> list[Json]:
    """Read a table's change feed, which keeps windows longer than the table does."""
    return pages(url, f"/v1/tables/{table}/changes", "changes", **{"from": "earliest"})


def by_id(rows: list[Json]) -> list[Json]:
    return [plain(row) for row in sorted(rows, key=lambda row: row["id"])]


def is_read(client: Client, query: str) -> bool:
    status = client.query(query).status()
    assert status["state"] != "failed", status
    assert status["error"] is None, status
    return bool(status["read_rows"] == len(TIMES))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A service whose queries have read what was sent."""
    with service({}) as running, Client(running.url, timeout=60) as made:
        made.stream("src").register(SOURCE)
        made.table("versions").register({**SOURCE, "key": ["id"], "versioned": {"history_retention": "1d"}})
        for query in QUERIES:
            made.queries.put({"tasks": 1, **query})
        body = "\n".join(map(json.dumps, sent())).encode()
        for kind, name in (("streams", "src"), ("tables", "versions")):
            answer = made.relation(kind, name).append(body)
            assert (answer.count, answer.rejected_count) == (len(TIMES), 0), answer
        for query in QUERIES:
            until(f"{query['name']} has read everything", partial(is_read, made, query["name"]), WAIT_S)
        yield running.url


def test_a_stream_gives_back_what_came(url: str) -> None:
    assert by_id(pages(url, "/v1/streams/copies/records", "records")) == by_id(sent())


@pytest.mark.parametrize("table", ["running", "kept"])
def test_a_table_gives_back_what_came(url: str, table: str) -> None:
    assert by_id(pages(url, f"/v1/tables/{table}/rows", "rows")) == by_id(sent())
    assert by_id([change["row"] for change in told(url, table)]) == by_id(sent())


def test_windows_take_what_ends_within_the_years_and_the_others_are_late(url: str) -> None:
    """T8: the last day's window would end in the year 10000."""
    are_out = {place: at // DAY_MS * DAY_MS + DAY_MS > LAST_MS for place, at in enumerate(TIMES)}
    counted = [change["row"] for change in told(url, "daily")]
    assert {(row["id"], row["n"]) for row in counted} == {(place, 1) for place, is_out in are_out.items() if not is_out}
    assert by_id(counted) == by_id([row for row in sent() if not are_out[row["id"]]])
    late = pages(url, "/v1/queries/daily/late-records", "items")
    assert {record["reason"] for record in late} == {"window_out_of_range"}
    assert {record["event_time_ms"] for record in late} == {TIMES[place] for place, is_out in are_out.items() if is_out}
    finals = [change["row"]["id"] for change in told(url, "final")]
    assert finals == [place for place, at in enumerate(TIMES) if at <= LAST_MS - DAY_MS]


def test_every_version_answers_at_its_time(url: str) -> None:
    for place, at in enumerate(TIMES):
        if at >= LAST_MS - DAY_MS:  # what is older has left the history
            (found,) = pages(url, "/v1/tables/kept/rows", "rows", as_of=at, **{"key.id": place})
            assert plain(found) == plain(sent()[place])
    last = {"key.id": len(TIMES) - 1, "from": LAST_MS, "to": LAST_MS}
    assert by_id(pages(url, "/v1/tables/kept/rows", "rows", **last)) == by_id(sent()[-1:])
