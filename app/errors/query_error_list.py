"""Codes of failures of queries and deliveries, with meaning, cure and whether the service tries again; codes of warnings.

``app.errors.error_list`` has all codes together. The status of a query shows the cures of its delivery.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

QUERY_TEXTS: Final[Mapping[str, tuple[str, str, bool]]] = {
    "cluster_busy": ("The Spark cluster has no free cores.", "The service tries again; free cores, or use fewer.", True),
    "data_invalid": ("A record cannot be read, and `on_bad_record` is `stop`.", "Correct the record, or use reject.", False),
    "delivery_ahead": (
        "The target has more results than were delivered.",
        "The database was restored to an earlier state than the target's: change `into.connector` to another topic or directory.",
        False,
    ),
    "delivery_overtaken": (
        "Retention removed results that were not delivered.",
        "Change `into.connector` to another topic or directory: a new delivery begins with the stored results. Keep results longer.",
        False,
    ),
    "delivery_position_lost": (
        "The target has lost its position.",
        "Change `into.connector` to another topic or directory: a new delivery begins there.",
        False,
    ),
    "delivery_put_back": (
        "The database was restored from a backup.",
        "If no other service delivers to the target, restart the query; else change `into.connector` to another one.",
        False,
    ),
    "delivery_refused": ("The target refuses the results.", "Do what the detail says, then restart the query.", False),
    "delivery_stopped": ("The delivery cannot succeed by another attempt.", "See the reason in the query's status.", False),
    "disk_full": ("There is no space to write state.", "Free space; the service tries again.", True),
    "driver_starting": ("The driver is starting.", "Wait some seconds.", True),
    "emission_too_large": ("A batch emitted too much at once.", "Nothing: the service tries again with less input.", True),
    "engine_error": ("The engine stopped.", "See the detail.", False),
    "epoch_fenced": ("A newer launch has the query.", "Nothing: the newer one runs.", False),
    "worker_out_of_memory": ("The query was alone in a worker process, and exceeded its memory limit.", "See the detail.", True),
    "connection_missing": ("A connector names a connection that does not exist.", "Create it: `PUT /v1/connections/{name}`.", False),
    "external_error": ("An external system failed.", "The service tries again; see the detail.", True),
    "file_changed": (
        "A file of a source shrank or was replaced after it was read.",
        "Restore its content, and restart the query; write new data to new files.",
        False,
    ),
    "file_unfit": ("A file cannot be split into records.", "Correct it, or split it into several, as the detail says; then restart.", False),
    "function_failed": (
        "A function in Python failed, and its `on_error` is `stop`.",
        "Correct the function or the record, or let it return null; then restart.",
        False,
    ),
    "invariant_broken": ("The service has a bug: an invariant does not hold.", "Report it with the detail.", False),
    "java_missing": ("Spark finds no usable Java.", "`slackwater doctor` says how to get one.", False),
    "worker_crashed": ("The query was alone in a worker process that died.", "Check its expressions and largest records; see driver.log.", True),
    "no_driver": ("No driver is alive.", "`slackwater serve` starts one; `slackwater doctor` looks for the cause.", True),
    "offset_out_of_range": (
        "Retention removed records of a partition that the query had begun to read.",
        "For a topic: PUT the source with `on_lost` = `skip`, and restart: `records_lost` counts them. Or `PUT …?state=discard`.",
        False,
    ),
    "query_stopped": ("The query is stopped, and does not deliver.", "PUT its desired state `running` or `paused`.", False),
    "query_ended": ("The query ended without an error.", "The service tries again; see driver.log.", True),
    "records_replaced": (
        "Records of a topic behind the results are lost, by an unclean election or with the topic.",
        "Start from scratch without state: `PUT …?state=discard`.",
        False,
    ),
    "registry_refused": ("The schema registry refuses the request.", "Check its credentials and the schema; see the detail.", False),
    "registry_unavailable": ("The schema registry does not answer.", "The service tries again.", True),
    "restart_budget_spent": ("The query failed too often in a row.", "Correct the cause, then `POST …/restart`.", False),
    "result_locked": ("Another session holds a lock on the result's rows.", "End that session; see the detail.", True),
    "sink_unavailable": ("The result cannot be written now.", "The service tries again.", True),
    "source_unavailable": ("A source cannot be read now.", "The service tries again.", True),
    "worker_stalled": ("The query was alone in a worker process, and did not finish.", "See the detail.", True),
    "state_corrupt": ("The stored state is damaged or missing.", "Restore a copy, or `PUT …?state=discard`.", False),
    "state_newer": ("The stored state is of a newer version, or ahead of the database.", "See the detail.", False),
    "state_unavailable": ("The object store with the state does not answer.", "The service tries again; see `slackwater doctor`.", True),
    "state_not_here": ("The state is in another checkpoint directory.", "Start the driver with that directory.", True),
    "suppress_buffer_full": ("A buffer with `when_full: stop` is full.", "Raise its limit, or use emit_early.", False),
    "target_unavailable": (
        "The target of the delivery does not accept results now.",
        "Check whether the target answers; the delivery tries again by itself.",
        True,
    ),
    "topic_replaced": (
        "A topic was deleted and created again.",
        "Delete the source and the queries that read it, and register them again.",
        False,
    ),
    "unknown_schema": ("The schema registry has no schema of this id.", "Register it, or check the writer of the records.", False),
    "value_not_writable": (
        "A value of the result cannot be written in this format.",
        "Choose a format or a schema that fits the column, or change the query's columns or the column's type.",
        False,
    ),
    "waiting_for_place": (
        "Every driver has its maximum of queries; the query waits for a free place.",
        "Start another driver, stop a query, or raise SLACKWATER_DRIVER__MAX_QUERIES. The query then starts by itself.",
        True,
    ),
    "waits_for_producer": ("The query waits for the query that writes one of its inputs.", "Resume that query; see the detail.", True),
    "waits_for_transaction": (
        "A transaction in one of the query's topics has not ended.",
        "Find its writer with `kafka-transactions.sh find-hanging`, and end it with `abort`.",
        True,
    ),
    "worker_lost": ("A worker process was lost.", "The service tries again.", True),
    "workers_unfit": ("A worker of the cluster has other versions, or lacks the directory.", "Install the same versions; see the detail.", True),
}  # fmt: skip

WARNING_TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "arrival_decides_conflicts": (
        "In this table the last change to arrive wins, even if its event time is older.",
        'Write `"conflict": "latest_event_time"`, or keep every version with `versioned`; or `"latest_arrival"` if that is intended.',
    ),
    "event_time_is_arrival": (
        "A window or a grace needs event times, and the stream has no column for them, so it uses the time of arrival.",
        "Register the stream with `event_time`, or append records with `$event_time_ms`.",
    ),
    "event_times_before_1990": (
        "All appended records have event times before 1990. This happens when seconds are read as milliseconds.",
        "Set `event_time_unit` to the unit of the numbers; nothing if the records are that old.",
    ),
    "field_left_out": (
        "A field of the sample did not become a column.",
        "Declare the columns instead of `infer`, if you need the field.",
    ),
    "inferred_from_part": (
        "Columns were inferred from a part of the directory: the warning says which.",
        "Declare missing columns; nothing if all are there.",
    ),
    "topic_in_built_in_log": (
        "A statement names a topic and no broker, so the topic is a log inside the service.",
        "Write CONNECTION='…' (or BOOTSTRAP='host:port') into WITH to read a broker's topic; nothing if the built-in log is intended.",
    ),
    "history_by_change": (
        "The history of a running aggregation has a version for each change, at the greatest event time so far: not complete by event time.",
        "Count in windows for results that are complete by event time; nothing if the history of changes is intended.",
    ),
    "table_dated_by_arrival": (
        "A stream with event times looks up a table without them: a row is valid from its arrival, so older records do not find it.",
        "Register the table with an `event_time` column for the start of a row's validity, or append its rows with `$event_time_ms`.",
    ),
    "waits_long": (
        "The waits between the sources and a result add up to more than a day of stream time: the warning lists them.",
        "Use shorter graces, windows and limits where results are needed earlier; nothing if they may come so late.",
    ),
}
