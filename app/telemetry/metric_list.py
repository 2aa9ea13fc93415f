"""Every metric of the service, in one place: name, kind, labels, meaning. A test compares ``/metrics`` with this list.

Labels have no query text and no keys: the number of series grows only with queries, operators, inputs, relations and drivers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: with its unit: ``_seconds``, ``_bytes``; counters end in ``_total``.
        help: the meaning of a value.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()


HTTP_REQUESTS = Metric("slackwater_http_requests_total", "counter", "Requests answered", ("method", "route", "status"))
HTTP_SECONDS = Metric("slackwater_http_request_seconds", "histogram", "Time to answer", ("method", "route"))
APPENDED = Metric("slackwater_appended_records_total", "counter", "Records appended through HTTP", ("relation",))
REJECTED = Metric("slackwater_rejected_records_total", "counter", "Records refused at append", ("relation", "reason"))
APPEND_GROUPS = Metric("slackwater_append_transactions_total", "counter", "Group commits of the appender")
TRIMMED = Metric("slackwater_log_trimmed_batches_total", "counter", "Record batches dropped by retention")
PUSH_STREAMS = Metric("slackwater_push_streams", "gauge", "Open event streams")
PUSH_CLOSED = Metric(
    "slackwater_push_streams_closed_total", "counter", "Event streams that the service ended, by reason", ("reason",)
)
REFUSED = Metric(
    "slackwater_requests_refused_total", "counter", "Requests refused for overload (429), by the limit they met", ("limit",)
)

OF_PROCESS = (HTTP_REQUESTS, HTTP_SECONDS, APPENDED, REJECTED, APPEND_GROUPS, TRIMMED, PUSH_STREAMS, PUSH_CLOSED, REFUSED)
"""Metrics of this process, counted since its start."""

DATABASE_UP = Metric(
    "slackwater_database_up", "gauge", "1: the database answered, and its metrics are below; 0: it did not, and they are absent"
)
QUERIES = Metric("slackwater_queries", "gauge", "Queries by state", ("state",))
QUERY_STATE = Metric("slackwater_query_state", "gauge", "1 for the state of a query", ("query", "state"))
LAUNCHES = Metric(
    "slackwater_query_launches_total", "counter", "Launches of a query (its epoch): restarts are their increase", ("query",)
)
ATTEMPT = Metric("slackwater_query_attempt", "gauge", "Launches that failed in a row", ("query",))
BATCHES = Metric("slackwater_query_batches_total", "counter", "Batches committed from the current state", ("query",))
COMMIT_AGE = Metric("slackwater_query_commit_age_seconds", "gauge", "Time since the last commit", ("query",))
PHASE = Metric(
    "slackwater_query_batch_seconds",
    "gauge",
    "Time the last batch took: process (the stages' work), sink (the commit); of the batch before it, as Spark reported: spark_plan (what to "
    "read), spark_query_planning, spark_wal_commit, spark_add_batch (read, process and sink), spark_commit_offsets, spark_trigger (all)",
    ("query", "phase"),
)
BUSY = Metric(
    "slackwater_query_busy_ratio",
    "gauge",
    "Share of the ten seconds before the last commit by use: reading, tasks, commit, other_queries (other work of its slot)",
    ("query", "part"),
)
FUNCTION = Metric(
    "slackwater_query_function_ratio",
    "gauge",
    "Share of the ten seconds before the last commit that the query waited for a Python function",
    ("query", "function"),
)
READ = Metric("slackwater_query_read_records_total", "counter", "Records read, by feed", ("query", "feed"))
EMITTED = Metric("slackwater_query_emitted_records_total", "counter", "Changes written to the result", ("query",))
LAG = Metric("slackwater_query_lag_records", "gauge", "Unread records of a log feed", ("query", "feed"))
LAG_SECONDS = Metric(
    "slackwater_query_lag_seconds",
    "gauge",
    "Time since the oldest unread record was appended; 0: all are read",
    ("query", "feed"),
)
HELD_BACK_SECONDS = Metric(
    "slackwater_query_blocked_by_producer_seconds",
    "gauge",
    "Time for which an open transaction has held back the end of a topic; 0: none does",
    ("query", "feed"),
)
STREAM_TIME = Metric("slackwater_query_stream_time_seconds", "gauge", "Stream time of the result, as a Unix time", ("query",))
CLOCK = Metric("slackwater_query_clock_seconds", "gauge", "Stream time before an operator, as a Unix time", ("query", "operator"))
BUFFERED = Metric("slackwater_query_buffered_rows", "gauge", "Rows that wait in an operator", ("query", "operator"))
BUFFERED_BYTES = Metric(
    "slackwater_query_buffered_bytes", "gauge", "Bytes that wait in an operator, if it knows them", ("query", "operator")
)
OLDEST = Metric(
    "slackwater_query_oldest_waiting_seconds",
    "gauge",
    "Event time by which the oldest row is behind the clock it waits for",
    ("query", "operator"),
)
COUNTED = Metric(
    "slackwater_query_counted_records_total",
    "counter",
    "Records that were late, dropped, expired or rejected, by reason",
    ("query", "input", "reason"),
)
DELIVERY_LAG = Metric(
    "slackwater_delivery_lag_rows", "gauge", "Rows of a result that are not delivered yet (into.connector)", ("query",)
)
DELIVERY_LAG_SECONDS = Metric(
    "slackwater_delivery_lag_seconds",
    "gauge",
    "Time since the oldest undelivered row was written; 0: all are delivered",
    ("query",),
)
DELIVERED = Metric("slackwater_delivered_rows_total", "counter", "Rows that a delivery has delivered since it began", ("query",))
DELIVERY_FAILURES = Metric(
    "slackwater_delivery_failures_total", "counter", "Attempts of a delivery that failed since it began", ("query",)
)
DELIVERY_STATE = Metric("slackwater_delivery_state", "gauge", "1 for the state of a delivery", ("query", "state"))
STATE_BYTES = Metric(
    "slackwater_query_state_bytes", "gauge", "Size of a query's checkpoint and state, if they are on this machine", ("query",)
)
DRIVER_QUERIES = Metric(
    "slackwater_driver_queries", "gauge", "Queries of a driver, without internal ones (materialize)", ("driver",)
)
DRIVER_MAX = Metric("slackwater_driver_max_queries", "gauge", "Limit of queries of a driver, without internal ones", ("driver",))
DRIVER_HEARTBEAT = Metric(
    "slackwater_driver_heartbeat_age_seconds", "gauge", "Time since a driver's last heartbeat", ("driver", "phase")
)

OF_FACTS = (
    QUERIES, QUERY_STATE, LAUNCHES, ATTEMPT, BATCHES, COMMIT_AGE, PHASE, BUSY, FUNCTION, READ, EMITTED, LAG, LAG_SECONDS, HELD_BACK_SECONDS,
    STREAM_TIME, CLOCK, BUFFERED, BUFFERED_BYTES, OLDEST, COUNTED,
    DELIVERY_LAG, DELIVERY_LAG_SECONDS, DELIVERED, DELIVERY_FAILURES, DELIVERY_STATE, STATE_BYTES, DRIVER_QUERIES, DRIVER_MAX, DRIVER_HEARTBEAT,
)  # fmt: skip
"""Metrics of the database: the same from every process of a service, so read them from one."""

METRICS = (*OF_PROCESS, DATABASE_UP, *OF_FACTS)
