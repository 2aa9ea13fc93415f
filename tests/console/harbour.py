"""A service with queries in every state, for scenarios: its facts are written as a driver leaves them, so no driver is needed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import httpx
import psycopg

from tests.api.committed import commit, emitted
from tests.api.conftest import JOIN, RECORD, STREAM, TABLE, WINDOWS
from tests.late_frames import late_frame

AT = 1_357_037_040_000
"""Event time of ``RECORD``: 2013-01-01 10:44."""

M = 60_000
H = 60 * M
DIVERTING: dict[str, Any] = {**JOIN, "joins": [{**JOIN["joins"][0], "late": "divert"}]}
LATENESS = {"departures": {"count": 1_000, "max_ms": 2 * H, "buckets": {"0": 700, str(10 * M): 200, str(H): 90, str(2 * H): 10}}}
LATENESS_OF_WEATHER = {"w": {"count": 100, "max_ms": H, "buckets": {"0": 80, str(H): 20}}}
LATE = [
    ("w", "late_diverted", AT - 2 * H, '{"departures.origin":"JFK","departures.flight":1}'),
    ("w", "late_diverted", AT - 3 * H, '{"departures.origin":"EWR","departures.flight":2}'),
    ("w", "late_diverted", AT - 4 * H, '{"departures.origin":"JFK","departures.flight":3}'),
]


@dataclass(frozen=True, slots=True)
class Harbour:
    """The service: its address, its database, and a client for what the page should show."""

    url: str
    dsn: str
    http: httpx.Client

    def get(self, path: str, **params: Any) -> Any:
        """Return an answer of the service."""
        response = self.http.get(path, params=params)
        assert response.status_code == 200, response.text
        return response.json()

    def post(self, path: str, body: Any) -> Any:
        """Post, and return the answer."""
        response = self.http.post(path, json=body)
        assert response.is_success, response.text
        return response.json()

    def execute(self, statement: str, *values: Any) -> None:
        """Change a fact in the database."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement, values)

    def state(self, query: str, state: str, error: dict[str, Any] | None = None) -> None:
        """Say as a driver that a query is in a state."""
        self.execute(
            "UPDATE slackwater.query_status s SET state = %s, error = %s::jsonb, observed_generation = q.generation, "
            "observed_restart_nonce = q.restart_nonce, state_since = now(), lease_expires_at = now() + interval '1 hour' "
            "FROM slackwater.query q WHERE q.id = s.query_id AND q.name = %s",
            state,
            json.dumps(error),
            query,
        )

    def detail(self, query: str, **parts: Any) -> None:
        """Replace parts of what the last commit noted."""
        self.execute(
            "UPDATE log.commit c SET detail = c.detail || %s::jsonb, committed_at = now() FROM slackwater.query q "
            "WHERE q.id = c.query_id AND q.name = %s",
            json.dumps(parts),
            query,
        )

    def tide(self, stream_time_ms: int) -> None:
        """Let the stream time of `joined` be there, with records that wait in two tasks."""
        self.detail(
            "joined",
            clocks={"w": stream_time_ms},
            buffered={"w": {"0": 30, "1": 12}},
            waiting={
                "w": {
                    "0": [
                        [stream_time_ms - 50 * M, stream_time_ms - 40 * M, 10, 10],
                        [stream_time_ms - 30 * M, stream_time_ms, 20, 20],
                    ],
                    "1": [[stream_time_ms - 30 * M, stream_time_ms - 10 * M, 12, 12]],
                }
            },
        )


def fill(harbour: Harbour) -> None:
    """Make two sources and four queries: `joined` runs and waits, `delays` is behind, `broken` has failed, `quiet` is paused."""
    put = harbour.http.put
    assert put("/v1/streams/departures", json=STREAM).status_code == 201
    assert put("/v1/tables/weather", json=TABLE).status_code == 201
    for definition in (
        DIVERTING,
        WINDOWS,
        {**WINDOWS, "name": "broken", "into": {"table": "broken"}},
        {**WINDOWS, "name": "quiet", "desired_state": "paused", "into": {"table": "quiet"}},
        {"name": "follower", "from": {"stream": "joined"}, "into": {"stream": "follower"}},
    ):
        harbour.post("/v1/queries", definition)
    records = [{**RECORD, "origin": origin} for origin in ("JFK", "EWR", "LGA", "BOS") for _ in range(5)]
    harbour.post("/v1/streams/departures/records", [*records, {**RECORD, "departed_at": None}])
    late = late_frame([(name, why, ts, ts + 5 * H, 0, text) for name, why, ts, text in LATE])
    commit(
        harbour.dsn,
        "joined",
        [(0, 0, emitted({"w": AT}, {**LATENESS, **LATENESS_OF_WEATHER}, late)), (0, 1, emitted({"w": AT}))],
        _ends(harbour, "departures", "weather"),
    )
    commit(
        harbour.dsn,
        "delays",
        [(0, 0, emitted({"window": AT}, {"window.grace": LATENESS["departures"]}))],
        {"log:departures": {0: 1}},
    )
    harbour.execute(
        "INSERT INTO log.counter (owner, input, reason, count) SELECT id, 'w', 'late_diverted', 3 FROM slackwater.query WHERE name = 'joined'"
    )
    for name in ("joined", "delays", "follower"):
        harbour.state(name, "running")
    harbour.state("broken", "failed", {"code": "data_invalid", "detail": "a record has no price; mend it and restart"})
    harbour.state("quiet", "paused")
    harbour.tide(AT)


def _ends(harbour: Harbour, *relations: str) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for name in relations:
        kind = "tables" if name == "weather" else "streams"
        parts = harbour.get(f"/v1/{kind}/{name}")["partitions"]
        found[f"log:{name}"] = {part["partition"]: part["next_offset"] for part in parts}
    return found


def multiply(harbour: Harbour, query: str, times: int) -> None:
    """Make copies of a query, `<query>_0001` and so on, straight in the database: over HTTP a thousand take a minute."""
    with psycopg.connect(harbour.dsn, autocommit=True) as connection:
        for table, key in (("query", "id"), ("query_status", "query_id"), ("query_read", "query_id")):
            columns = [
                row[0]
                for row in connection.execute(
                    "SELECT column_name FROM information_schema.columns WHERE table_schema = 'slackwater' AND table_name = %s "
                    "AND is_generated = 'NEVER' ORDER BY ordinal_position",
                    (table,),
                )
            ]
            # The n-th copy has an id that follows from its number, so that the three tables agree.
            made = {
                key: f"md5('{query}' || n)::uuid",
                "name": f"'{query}_' || lpad(n::text, 4, '0')",
                "checkpoint_id": "gen_random_uuid()",
            }
            selected = ", ".join(made.get(column, f"t.{column}") for column in columns)
            where = "t.name = %s" if table == "query" else "t.query_id = (SELECT id FROM slackwater.query WHERE name = %s)"
            connection.execute(
                f"INSERT INTO slackwater.{table} ({', '.join(columns)}) SELECT {selected} FROM slackwater.{table} t, "
                f"generate_series(1, %s) n WHERE {where}",
                (times, query),
            )
