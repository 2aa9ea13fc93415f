"""What the service is told: two tables that follow the database, the stream of clicks, and the join."""

from __future__ import annotations

from typing import Any, Final

TABLES: Final[dict[str, dict[str, Any]]] = {
    "orders": {
        "key": ["id"],
        "columns": {"id": "bigint", "customer_id": "bigint", "status": "string", "total": "decimal(10,2)"},
        "versioned": {"history_retention": "1d"},
        "materialize": True,
        "connector": {"type": "log", "partitions": 1},
    },
    "customers": {
        "key": ["id"],
        "columns": {"id": "bigint", "name": "string", "plan": "string"},
        "versioned": {"history_retention": "1d"},
        "materialize": True,
        "connector": {"type": "log", "partitions": 1},
    },
}

CLICKS: Final[dict[str, Any]] = {
    "columns": {"page": "string", "order_id": "bigint", "customer_id": "bigint", "clicked_at": "timestamp"},
    "event_time": "clicked_at",
    "connector": {"type": "log", "partitions": 1},
}

RESULT: Final = "clicks_with_orders"

QUERY: Final[dict[str, Any]] = {
    "name": RESULT,
    "from": {"stream": "clicks"},
    "joins": [
        {"table": "orders", "as": "o", "type": "left", "on": "clicks.order_id = o.id", "grace": "20s"},
        {"table": "customers", "as": "c", "type": "left", "on": "clicks.customer_id = c.id", "grace": "20s"},
    ],
    "select": {
        "page": "clicks.page",
        "order_id": "clicks.order_id",
        "status": "o.status",
        "total": "o.total",
        "customer": "c.name",
        "plan": "c.plan",
    },
    "idle": {"after": "2s"},
    "into": {"stream": RESULT},
}

CONNECTION: Final = "kafka"

DELIVERED_QUERY: Final[dict[str, Any]] = {
    **QUERY,
    "into": {
        **QUERY["into"],
        "connector": {"type": "kafka", "connection": CONNECTION, "topic": RESULT, "create": {"partitions": 1}},
    },
}
"""The same, its answers delivered to a topic as well: each once, for readers with ``read_committed``."""


def debezium_properties(table: str, database: dict[str, Any], url: str) -> dict[str, str]:
    """Return what the Debezium Server of one table is told: its HTTP sink has one URL, so each table has a server of its own.

    Args:
        table: of the database, and of the service.
        database: host, port, user, password and dbname.
        url: of the service.
    """
    return {
        "debezium.sink.type": "http",
        "debezium.sink.http.url": f"{url}/v1/tables/{table}/records?format=debezium",
        "debezium.sink.http.timeout.ms": "10000",
        "debezium.sink.http.retries": "100",
        "debezium.format.value": "json",
        "debezium.source.connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "debezium.source.plugin.name": "pgoutput",
        "debezium.source.database.hostname": str(database["host"]),
        "debezium.source.database.port": str(database["port"]),
        "debezium.source.database.user": str(database["user"]),
        "debezium.source.database.password": str(database["password"]),
        "debezium.source.database.dbname": str(database["dbname"]),
        "debezium.source.topic.prefix": "shop",
        "debezium.source.table.include.list": f"public.{table}",
        "debezium.source.slot.name": f"slackwater_{table}",
        "debezium.source.publication.name": f"slackwater_{table}",
        "debezium.source.publication.autocreate.mode": "filtered",
        "debezium.source.skipped.operations": "none",
        "debezium.source.offset.flush.interval.ms": "1000",
        "debezium.source.poll.interval.ms": "50",
    }
