"""Examples of the OpenAPI page: one small airport, the same in every request and answer."""

from __future__ import annotations

from typing import Any

EXECUTION: dict[str, Any] = {
    "mode": "shared",
    "is_waiting": False,
    "moves": 0,
    "cpu_share": 0.021,
    "largest_batch": 412,
    "max_rows": None,
    "deferred": 0,
}

_AT = "2025-11-21T08:00:00Z"

STREAM_DEFINITION: dict[str, Any] = {
    "key": ["origin"],
    "columns": {"origin": "string", "carrier": "string", "flight": "int", "dep_delay": "int", "departed_at": "timestamp"},
    "event_time": "departed_at",
    "connector": {"type": "log", "partitions": 4},
}
STREAM_SHARED: dict[str, Any] = {
    "key": ["auction"],
    "columns": {"kind": "string", "auction": "bigint", "price": "bigint", "at": "bigint"},
    "event_time": "at",
    "connector": {"type": "log", "feed": "events", "where": "kind = 'bid'"},
}
TABLE_DEFINITION: dict[str, Any] = {
    "key": ["origin"],
    "columns": {"origin": "string", "temp": "double", "wind_speed": "double", "observed_at": "timestamp"},
    "event_time": "observed_at",
    "versioned": {"history_retention": "2d"},
    "connector": {"type": "log", "partitions": 4},
}
TABLE_FILES: dict[str, Any] = {
    "key": ["code"],
    "columns": {"code": "string", "name": "string"},
    "connector": {"type": "files", "path": "/data/airports", "format": "csv"},
}
TABLE_BY_EVENT_TIME: dict[str, Any] = {
    "key": ["flight"],
    "columns": {"flight": "int", "gate": "string", "changed_at": "timestamp"},
    "event_time": "changed_at",
    "conflict": "latest_event_time",
}
JOIN_DEFINITION: dict[str, Any] = {
    "name": "departures_with_weather",
    "from": {"stream": "departures"},
    "joins": [{"table": "weather", "as": "w", "type": "left", "on": "departures.origin = w.origin", "grace": "1h"}],
    "select": {"origin": "departures.origin", "flight": "departures.flight", "temp": "w.temp", "match": "w.$match"},
    "into": {"stream": "departures_with_weather"},
}
WINDOW_DEFINITION: dict[str, Any] = {
    "name": "delays_by_airport",
    "from": {"stream": "departures"},
    "group_by": ["origin"],
    "window": {"type": "tumbling", "size": "1h", "grace": "30m", "retention": "7d"},
    "aggregate": {"flights": "count(*)", "mean_delay": "avg(dep_delay)", "worst": "max(dep_delay)"},
    "suppress": {"mode": "until_window_closes"},
    "into": {"table": "delays_by_airport"},
}
QUERY: dict[str, Any] = {
    "name": "delays_by_airport",
    "definition": {
        "name": "delays_by_airport",
        "from": {"stream": "departures", "table": None, "as": None, "where": None},
        "start": "earliest",
        "tasks": 2,
        "desired_state": "running",
        "joins": [],
        "where": None,
        "group_by": ["origin"],
        "window": {
            "type": "tumbling",
            "size": "1h",
            "advance": None,
            "difference": None,
            "gap": None,
            "grace": "30m",
            "retention": "7d",
        },
        "aggregate": {"flights": "count(*)", "mean_delay": "avg(dep_delay)", "worst": "max(dep_delay)"},
        "having": None,
        "suppress": {"mode": "until_window_closes", "limit": None, "buffer": None, "event_driven": False},
        "select": None,
        "idle": None,
        "clock": "fastest",
        "into": {
            "stream": None,
            "table": "delays_by_airport",
            "key": None,
            "connector": None,
            "versioned": None,
            "materialize_open": False,
        },
        "late_records": {"max_rows": 100000, "retention": "7d"},
    },
    "desired_state": "running",
    "state": "stopped",
    "internal": False,
    "fork_of": None,
    "generation": 1,
    "version": 1,
    "created_at": _AT,
    "updated_at": _AT,
}
STORED_QUERY: dict[str, Any] = {**QUERY, "warnings": []}
FORK_WISH: dict[str, Any] = {"name": "delays_wider"}
FORK: dict[str, Any] = {
    **STORED_QUERY,
    "name": "delays_wider",
    "definition": {
        **QUERY["definition"],
        "name": "delays_wider",
        "into": {**QUERY["definition"]["into"], "table": "delays_wider"},
    },
    "fork_of": {"query": "delays_by_airport", "batch_id": 41, "committed_at": _AT},
    "changes": [],
}
_COMMIT: dict[str, Any] = {
    "batch_id": 41,
    "committed_at": _AT,
    "position": {"log:departures": {"0": 1200, "1": 1187}},
    "stream_time_ms": 1357034400000,
}
_NEWEST: dict[str, Any] = {
    **_COMMIT,
    "batch_id": 67,
    "position": {"log:departures": {"0": 1310, "1": 1302}},
    "stream_time_ms": 1357041600000,
}
COMMITS: dict[str, Any] = {
    "items": [
        {**_COMMIT, "of_launch": True, "can_rewind": True, "obstacle": None},
        {
            **_COMMIT,
            "batch_id": 12,
            "of_launch": False,
            "can_rewind": False,
            "obstacle": "records of log:departures from 310 to 400 in partition 0 were removed by retention",
        },
    ],
    "newest": _NEWEST,
    "obstacle": None,
}
REWIND_WISH: dict[str, Any] = {"batch_id": 41, "desired_state": "running"}
REWIND: dict[str, Any] = {
    **STORED_QUERY,
    "generation": 2,
    "version": 4,
    "before": _NEWEST,
    "after": _COMMIT,
    "removed_rows": 26,
    "changes": [],
    "dry_run": False,
}
ONE_QUERY: dict[str, Any] = {
    **QUERY,
    "sql": "CREATE TABLE `delays_by_airport` WITH (DIALECT = 'STANDARD') AS SELECT `origin` AS `origin`, COUNT(*) AS `flights` FROM "
    "`departures` WINDOW TUMBLING (SIZE 1 HOURS, RETENTION 7 DAYS, GRACE PERIOD 30 MINUTES) GROUP BY `origin` EMIT FINAL",
    "statement": None,
}
DESIRED_STATE: dict[str, Any] = {
    "name": "delays_by_airport",
    "desired_state": "paused",
    "state": "running",
    "generation": 1,
    "version": 2,
    "status": "/v1/queries/delays_by_airport/status?wait_for=paused",
    "warnings": [],
}
STREAM: dict[str, Any] = {
    "name": "departures",
    "kind": "stream",
    "origin": "source",
    "key": ["origin"],
    "columns": STREAM_DEFINITION["columns"],
    "definition": {
        **STREAM_DEFINITION,
        "event_time_format": None,
        "event_time_unit": None,
        "connector": {"type": "log", "partitions": 4, "feed": None, "where": None, "retention": None},
        "max_future_skew": "1d",
        "on_bad_record": "reject",
    },
    "produced_by": None,
    "read_by": ["delays_by_airport"],
    "parts": [],
    "append_to": None,
    "read_only": False,
    "partitions": [
        {"partition": 0, "start_offset": 0, "next_offset": 9000},
        {"partition": 1, "start_offset": 0, "next_offset": 18004},
    ],
    "version": 1,
    "created_at": _AT,
    "updated_at": _AT,
}
TABLE: dict[str, Any] = {
    **STREAM,
    "name": "weather",
    "kind": "table",
    "columns": TABLE_DEFINITION["columns"],
    "definition": {
        **STREAM["definition"],
        **TABLE_DEFINITION,
        "materialize": False,
        "conflict": "latest_arrival",
        "connector": {"type": "log", "partitions": 4, "feed": None, "where": None, "retention": None},
    },
    "read_by": ["departures_with_weather"],
}
_STATEMENT = "CREATE %s \"%s\" (…) WITH (KAFKA_TOPIC = '…', FORMAT = 'JSON', PARTITIONS = 4, MAX_FUTURE_SKEW = '1 DAYS')"
REGISTERED_STREAM: dict[str, Any] = {**STREAM, "warnings": [], "sql": _STATEMENT % ("STREAM", "DEPARTURES")}
REGISTERED_TABLE: dict[str, Any] = {**TABLE, "warnings": [], "sql": _STATEMENT % ("TABLE", "WEATHER")}
RECORDS_BODY: list[dict[str, Any]] = [
    {"origin": "JFK", "carrier": "B6", "flight": 725, "dep_delay": -1, "departed_at": "2013-01-01T10:44:00Z"},
    {"origin": "EWR", "carrier": "UA", "flight": 1545, "dep_delay": 2, "departed_at": "2013-01-01T10:17:00Z"},
]
DELETE_BODY: dict[str, Any] = {"$op": "delete", "origin": "JFK", "observed_at": "2013-01-01T12:00:00Z"}
APPENDED: dict[str, Any] = {
    "appended": 2,
    "offsets": [
        {"partition": 0, "first_offset": 1041, "last_offset": 1041, "count": 1},
        {"partition": 3, "first_offset": 77, "last_offset": 77, "count": 1},
    ],
    "rejected_count": 1,
    "rejected": [{"index": 2, "code": "event_time_missing", "detail": "column 'departed_at' is null and holds the event time"}],
    "older_count": 0,
    "warnings": [],
}
STATUS: dict[str, Any] = {
    "name": "delays_by_airport",
    "state": "running",
    "phase": None,
    "desired_state": "running",
    "conditions": [],
    "reason": None,
    "state_since": _AT,
    "generation": 1,
    "observed_generation": 1,
    "epoch": 3,
    "attempt": 0,
    "next_attempt_at": None,
    "heartbeat_at": _AT,
    "error": None,
    "batch_id": 412,
    "committed_at": _AT,
    "stream_time_ms": 1357041600000,
    "progress": [
        {
            "feed": "log:departures",
            "relations": ["departures"],
            "is_discovered": True,
            "partitions": [
                {
                    "partition": 0,
                    "next_offset": 8990,
                    "end_offset": 9000,
                    "lag": 10,
                    "begins_at": None,
                    "open_records": 0,
                    "open_since": None,
                }
            ],
        }
    ],
    "read_rows": 27004,
    "emitted_rows": 1743,
    "clocks": {"window": 1357041600000},
    "slowest_partition": None,
    "buffered": {"window": 118},
    "tasks": [
        {
            "operator": "window",
            "task": 0,
            "buffered": 118,
            "waiting": [{"from_ms": 1357041600000, "to_ms": 1357045200000, "at_least": 118, "at_most": 118}],
        }
    ],
    "counters": [{"input": "window", "reason": "window_closed", "count": 42}],
    "execution": EXECUTION,
    "limited_by": "input",
    "shares": {"reading": 0.011, "tasks": 0.018, "commit": 0.03, "other_queries": 0.12, "busiest_task": 0.27},
    "functions": [],
    "delivery": {
        "id": "0b6f6f0e-6f8f-4b62-9d0e-0f6f0b1c2d3e",
        "type": "kafka",
        "state": "delivering",
        "since": _AT,
        "reason": None,
        "position": 1740,
        "end_position": 1743,
        "lag_rows": 3,
        "lag_ms": 60000,
        "delivered_rows": 1740,
        "delivered_at": _AT,
        "failures": 0,
        "attempt": 0,
        "next_attempt_at": None,
    },
    "restorable_since": "2026-03-01T08:00:00Z",
}
EVENTS: dict[str, Any] = {
    "items": [
        {
            "id": 7, "at": _AT, "kind": "query_created", "from_state": None, "to_state": None, "epoch": None, "actor": "api",
            "detail": {"generation": 1},
        },
        {
            "id": 8, "at": _AT, "kind": "query_transitioned", "from_state": "stopped", "to_state": "starting", "epoch": 1,
            "actor": "driver", "detail": None,
        },
    ],
    "next": None,
}  # fmt: skip
RUNS: dict[str, Any] = {
    "items": [
        {
            "epoch": 1, "generation": 1, "driver_id": "0193f1d2-7c1e-7000-8000-3f0c7c9d2b11", "started_at": _AT, "running_at": _AT,
            "ended_at": None, "end_reason": None, "error": None,
        }
    ],
    "next": None,
}  # fmt: skip
REJECTS: dict[str, Any] = {
    "items": [
        {
            "id": 3, "partition": None, "offset": None, "reason": "event_time_missing",
            "detail": "column 'departed_at' is null and holds the event time", "excerpt": '{"origin": "JFK", "flight": 791}', "at": _AT,
        }
    ],
    "next": None,
    "kept": {"event_time_missing": 8255},
}  # fmt: skip
RECORDS: dict[str, Any] = {
    "stream": "departures_with_weather",
    "part": None,
    "parts": [],
    "partition": 0,
    "partition_count": 2,
    "records": [
        {"$offset": 0, "$event_time_ms": 1357035420000, "origin": "EWR", "flight": 1545, "temp": 39.02, "match": "matched"}
    ],
    "next_offset": 1,
    "end_offset": 26483,
    "position": {"log:departures": {"0": 9000}, "log:weather": {"0": 2209}},
    "stream_time_ms": 1357041600000,
    "committed_at": _AT,
    "stale": False,
}
EDIT: dict[str, Any] = {
    "valid": True,
    "problems": [],
    "warnings": [],
    "definition": QUERY["definition"],
    "sql": ONE_QUERY["sql"],
    "output": None,
    "plan": None,
    "edit": {
        "kind": "in_place",
        "generation": 1,
        "changes": [
            {
                "pointer": "/window/grace",
                "kind": "in_place",
                "reason": "what has closed stays closed and is never shown again; what is closed under the new value closes with the next "
                "record, or at once with ?flush=now",
            }
        ],
        "effects": [
            {
                "pointer": "/window/grace",
                "effect": "windows_closed",
                "operator": "window",
                "at_least": 2,
                "at_most": 2,
                "from_ms": 1357034400000,
                "to_ms": 1357038000000,
            }
        ],
        "committed_at": _AT,
    },
}
