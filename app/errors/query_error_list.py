"""Codes of what keeps a query or its delivery from working: meaning, cure, and whether it is tried again by itself; codes of warnings.

``app.errors.error_list`` puts them among all others; the status of a query shows the cures of its delivery.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

QUERY_TEXTS: Final[Mapping[str, tuple[str, str, bool]]] = {
    "cluster_busy": ("The Spark cluster has no room.", "It is tried again; free cores, or ask for fewer.", True),
    "data_invalid": ("A record cannot be read, and `on_bad_record` says stop.", "Mend the record, or use reject.", False),
    "delivery_ahead": (
        "The target has more results than were delivered.",
        "The database was put back behind what the target has: change `into.connector` to another topic or directory.",
        False,
    ),
    "delivery_overtaken": (
        "Retention removed results that were not delivered.",
        "Change `into.connector` to another topic or directory: a new delivery begins with what is kept. Keep results longer.",
        False,
    ),
    "delivery_position_lost": (
        "The target no longer knows what it has.",
        "Change `into.connector` to another topic or directory, so that a new delivery begins.",
        False,
    ),
    "delivery_put_back": (
        "The database was put back from a backup.",
        "Where no other service delivers to the target, restart the query; else change `into.connector` to another one.",
        False,
    ),
    "delivery_refused": ("The target refuses the results.", "Do what the detail says, then restart the query.", False),
    "delivery_stopped": ("Trying to deliver again cannot help.", "See the reason in the query's status.", False),
    "disk_full": ("State cannot be written for want of space.", "Free space; it is tried again.", True),
    "driver_starting": ("The driver is starting.", "Wait some seconds.", True),
    "emission_too_large": ("A batch emitted too much at once.", "Nothing: it is tried again with less input.", True),
    "engine_error": ("The engine ended.", "See the detail.", False),
    "epoch_fenced": ("A newer launch has the query.", "Nothing: the newer one runs.", False),
    "worker_out_of_memory": ("Alone in a worker process, it took more memory than that may.", "See the detail.", True),
    "connection_missing": ("There is no connection of the name that a connector has.", "Make it: `PUT /v1/connections/{name}`.", False),
    "external_error": ("Something outside failed.", "It is tried again; see the detail.", True),
    "file_changed": (
        "A file of a source shrank or was replaced after it was read.",
        "Put back what it was, and restart the query; new data are new files.",
        False,
    ),
    "file_unfit": ("A file cannot be read record by record.", "Mend it, or cut it into several, as the detail says; then restart.", False),
    "function_failed": (
        "A function in Python failed, and its `on_error` says stop.",
        "Mend the function or the record, or let it give null; then restart.",
        False,
    ),
    "invariant_broken": ("What cannot happen did.", "Report it with the detail.", False),
    "java_missing": ("There is no Java that Spark can use.", "`slackwater doctor` says how to get one.", False),
    "worker_crashed": ("It was alone in a worker process that died.", "Look at its expressions and largest records; see driver.log.", True),
    "no_driver": ("No driver is alive.", "`slackwater serve` starts one; `slackwater doctor` looks for the cause.", True),
    "offset_out_of_range": (
        "Retention removed records of a partition that the query had begun to read.",
        "Of a topic: PUT the source with `on_lost` = `skip`, and restart: `records_lost` counts them. Or `PUT …?state=discard`.",
        False,
    ),
    "query_stopped": ("The query is stopped, and delivers nothing.", "PUT its desired state `running`, or `paused`.", False),
    "query_ended": ("The query ended without saying why.", "It is tried again; see driver.log.", True),
    "records_replaced": (
        "Records of a topic that the results rest on are gone, by an unclean election or with the topic.",
        "Start from scratch without state: `PUT …?state=discard`.",
        False,
    ),
    "registry_refused": ("The schema registry refuses.", "Look at its credentials and at the schema; see the detail.", False),
    "registry_unavailable": ("The schema registry gives no answer.", "It is tried again.", True),
    "repartition_premature": ("The number of tasks cannot change just now.", "Change it back, or wait as the detail says.", False),
    "restart_budget_spent": ("The query failed too often in a row.", "Mend the cause, then `POST …/restart`.", False),
    "result_locked": ("Somebody holds a lock on what belongs to its result.", "End who holds it; see the detail.", True),
    "sink_unavailable": ("The result cannot be written now.", "It is tried again.", True),
    "source_unavailable": ("A source cannot be read now.", "It is tried again.", True),
    "worker_stalled": ("Alone in a worker process, it did not come to an end.", "See the detail.", True),
    "state_corrupt": ("The kept state is damaged, or gone.", "Bring back a copy, or `PUT …?state=discard`.", False),
    "state_newer": ("The kept state is of a newer version, or ahead of the database.", "See the detail.", False),
    "state_unavailable": ("The object store with the state is away, or refuses.", "It is tried again; see `slackwater doctor`.", True),
    "state_not_here": ("The state is in another checkpoint directory.", "Start the driver with that directory.", True),
    "suppress_buffer_full": ("A buffer with `when_full: stop` is full.", "Raise its bound, or use emit_early.", False),
    "target_unavailable": (
        "Where results are delivered to takes nothing now.",
        "Look whether the target answers; the delivery tries again by itself.",
        True,
    ),
    "topic_replaced": (
        "A topic was deleted and made again.",
        "Delete the source and the queries that read it, and register them again.",
        False,
    ),
    "unknown_schema": ("The schema registry has no schema of this id.", "Register it, or look at who writes the records.", False),
    "value_not_writable": (
        "A value of the result cannot be written so.",
        "Choose a format or a schema that holds the column, or change what the query selects, or the column's type.",
        False,
    ),
    "waiting_for_place": (
        "Every driver holds as many queries as it may; the query waits for a place.",
        "Start another driver, stop a query, or raise SLACKWATER_DRIVER__MAX_QUERIES: it is taken by itself then.",
        True,
    ),
    "waits_for_producer": ("It waits for the query that writes one of its inputs.", "Resume that query; see the detail.", True),
    "waits_for_transaction": (
        "A transaction in a topic that it reads has not ended.",
        "Look for its writer with `kafka-transactions.sh find-hanging`, and end it with `abort`.",
        True,
    ),
    "worker_lost": ("A worker process was lost.", "It is tried again.", True),
    "workers_unfit": ("A worker of the cluster has other versions, or lacks the directory.", "Install the same; see the detail.", True),
}  # fmt: skip

WARNING_TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "arrival_decides_conflicts": (
        "In this table the change that arrives last counts, also where its event time is older.",
        'Write `"conflict": "latest_event_time"`, or keep every version with `versioned`; or `"latest_arrival"` where that is meant.',
    ),
    "event_time_is_arrival": (
        "A window or a grace judges by event time, and the stream has no column for it: the time of arrival counts.",
        "Register the stream with `event_time`, or append records with `$event_time_ms`.",
    ),
    "event_times_before_1990": (
        "All appended records have event times before 1990, as seconds have that are read as milliseconds.",
        "Say with `event_time_unit` what the numbers count; nothing where the records are that old.",
    ),
    "field_left_out": (
        "A field of the sample did not become a column.",
        "Declare the columns instead of `infer`, if the field is wanted.",
    ),
    "inferred_from_part": (
        "Columns were proposed from a part of the directory: the warning says which.",
        "Declare a column that is missing; nothing if all are there.",
    ),
    "topic_in_built_in_log": (
        "A statement names a topic and no broker, so the topic is a log inside the service.",
        "Write CONNECTION='…' (or BOOTSTRAP='host:port') into WITH to read the topic of a broker; nothing if the built-in log is meant.",
    ),
    "history_by_change": (
        "The history of a running aggregation has a version for each change, at the greatest event time so far: not complete by event time.",
        "Count in windows for results that are complete by event time; nothing where the history of the changes is meant.",
    ),
    "lateness_depends_on_tasks": (
        "A grace is shorter than the wait of an operator before it, so which records are late depends on the number of tasks.",
        'Give the grace that the warning names, or run what waits with `"tasks": 1`.',
    ),
    "no_grace_behind_join": (
        "A window or a join has no grace, and a join before it in the same query gives its results out of the order of event time.",
        "Give the grace that the warning names.",
    ),
    "no_grace_on_derived": (
        "A window or a join has no grace, and the query whose result it reads gives it out of the order of event time.",
        "Give the grace that the warning names.",
    ),
    "table_dated_by_arrival": (
        "A stream with event times looks up a table without: its rows are valid from their arrival, and records of the past do not meet them.",
        "Register the table with an `event_time` column that says from when a row is valid, or append its rows with `$event_time_ms`.",
    ),
}
