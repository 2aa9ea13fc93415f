"""More facts for scenarios of streams and tables: a table with history, one of totals, a stream with rejects. No driver is needed."""

from __future__ import annotations

from typing import Any

from tests.api.change_writer import Change, ChangeWriter
from tests.api.conftest import RECORD, STREAM, TABLE
from tests.console.harbour import Harbour

H = 3_600_000
NOON = 1_357_041_600_000
"""2013-01-01 12:00."""

LEVELS: dict[str, Any] = {
    "name": "levels",
    "from": {"table": "weather"},
    "select": {"origin": "origin", "temp": "temp"},
    "into": {"table": "levels", "versioned": {"history_retention": "1d"}},
}
TOTALS: dict[str, Any] = {
    "name": "totals",
    "from": {"stream": "departures"},
    "group_by": ["origin"],
    "aggregate": {"flights": "count(*)", "mean_delay": "avg(delay)"},
    "into": {"table": "totals"},
}
PUTS: list[Change] = [
    ("upsert", {"origin": "EWR", "temp": 1.5}, NOON - 6 * H),
    ("upsert", {"origin": "EWR", "temp": 2.5}, NOON - 2 * H),
    ("upsert", {"origin": "JFK", "temp": 10.0}, NOON - 8 * H),
    ("upsert", {"origin": "JFK", "temp": 11.0}, NOON - 5 * H),
    ("delete", {"origin": "JFK"}, NOON - 4 * H),
    ("upsert", {"origin": "JFK", "temp": 12.0}, NOON - H),
    ("upsert", {"origin": "LGA", "temp": 20.0}, NOON - 3 * H),
]
AIRPORTS = ("BOS", "EWR", "JFK", "LGA", "ORD")


def strew(harbour: Harbour) -> None:
    """Make the sources, the queries and what they have written."""
    put = harbour.http.put
    assert put("/v1/streams/departures", json=STREAM).status_code == 201
    assert put("/v1/tables/weather", json=TABLE).status_code == 201
    for definition in (LEVELS, TOTALS):
        harbour.post("/v1/queries", definition)
    records = [{**RECORD, "origin": AIRPORTS[number % 5], "flight": number, "delay": number / 4} for number in range(460)]
    harbour.post(
        "/v1/streams/departures/records", [*records, {**RECORD, "departed_at": None}, {**RECORD, "flight": "x"}, {"nothing": 1}]
    )
    write(harbour, "levels", PUTS)
    write(
        harbour,
        "totals",
        [("upsert", {"origin": name, "flights": 92, "mean_delay": 57.0 + at}, NOON) for at, name in enumerate(AIRPORTS)],
    )
    for name in ("levels", "totals"):
        harbour.state(name, "running")


def write(harbour: Harbour, query: str, changes: list[Change]) -> None:
    """Commit changes of a query's result, as its driver would; its stream time is noon."""
    with ChangeWriter(harbour.dsn, query) as writer:
        writer.commit(changes)
    harbour.execute(
        "UPDATE log.commit c SET stream_time_ms = %s FROM slackwater.query q WHERE q.id = c.query_id AND q.name = %s", NOON, query
    )
