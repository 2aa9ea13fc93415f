"""Every code of an error with its meaning and its cure: `GET /v1/errors`, and the enum of the OpenAPI document.

A test compares the list with the code: every code that is raised has an entry here. An answer adds a `detail` to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.errors import app_errors as errors
from app.errors.app_errors import AppError
from app.errors.definition_error_list import DEFINITION_TEXTS, RECORD_TEXTS
from app.errors.query_error_list import QUERY_TEXTS, WARNING_TEXTS
from app.errors.sql_error_list import STATEMENT_TEXTS


@dataclass(frozen=True, slots=True)
class ErrorEntry:
    """One code.

    Attributes:
        kind: ``request``: of an answer; ``definition``: of a field of a definition or body; ``statement``: of an SQL statement;
            ``record``: of a rejected record; ``query``: of a query that failed, is retried or waits; ``warning``: of an accepted
            definition or append that may surprise.
        statuses: HTTP statuses of its answers; empty: it is in the body of a 200.
        title: meaning of the status.
        is_retryable: whether the same request can succeed later without a change.
    """

    code: str
    kind: str
    statuses: tuple[int, ...]
    title: str
    is_retryable: bool
    meaning: str
    cure: str


def explained_at(code: str) -> str:
    """Return the path of a code's explanation. A browser is redirected to the guide, a program gets JSON."""
    return f"/v1/errors/{code}"


_Texts = Mapping[str, tuple[str, str]]

_WAIT = "Try again in a moment."
_NEW = "Follow the detail; `PUT …?state=discard` starts from scratch."
_REQUEST: Mapping[type[AppError], _Texts] = {
    errors.BadRequest: {
        "not_a_query": ("The path only accepts one SELECT.", "Send other statements to `/ksql`."),
        "bad_cursor": ("The cursor is not from this path.", "Use `next` of the previous answer, unchanged, or leave it out."),
        "bad_parameter": ("A parameter has an invalid value, or is there twice.", "See the detail for valid values."),
        "composite_key": (
            "The key has several columns, and the request has one value.",
            "Ask with `key.<column>=` for each column.",
        ),
        "conflicting_parameters": ("Two parameters exclude each other.", "Leave one of them out."),
        "malformed_arrow": (
            "The body is not a readable Arrow IPC stream.",
            "Send a complete stream, with the relation's columns.",
        ),
        "malformed_body": ("The body could not be read to its end.", "Send it again, complete."),
        "malformed_json": ("The body is not JSON.", "Correct it at the place that the detail names; JSON is UTF-8 without NaN."),
        "malformed_records": (
            "The body cannot be split into records of the format that `format` names.",
            "See the detail for what is expected, and where.",
        ),
        "malformed_request": ("The request itself cannot be read.", "Send a valid HTTP request; see the detail."),
        "not_windowed": ("The parameter is for tables with windows.", "Leave it out."),
        "table_without_key": ("The table has one row and no key.", "Read `/rows`."),
        "unknown_parameter": ("The path has no such parameter.", "See the detail for its parameters."),
    },
    errors.Unauthorized: {
        "api_key_missing": ("The service requires a key.", "Send `Authorization: Bearer sw_…`."),
        "api_key_invalid": ("There is no such key, or it was revoked.", "Ask an admin for a new one."),
        "api_key_expired": ("The key has expired.", "Ask an admin for a new one."),
        "token_invalid": ("The service does not accept the token.", "Get a new one from the issuer; see the detail."),
        "token_expired": ("The token has expired.", "Get a new one from the issuer."),
    },
    errors.Forbidden: {
        "foreign_origin": (
            "A page of another origin sent this through a browser.",
            "Call the service from a program, or turn keys on.",
        ),
        "python_functions_off": (
            "The service does not run functions in Python.",
            "The operator of the service can set SLACKWATER_SQL__PYTHON_FUNCTIONS=true.",
        ),
        "keys_from_command_line": ("A service without keys creates none over HTTP.", "Use `slackwater keys create`."),
        "out_of_scope": ("A name is outside of the key's scope.", "Use a key with a wider scope, or other names."),
        "role_too_low": ("The key's role does not permit this.", "Use a key with the role that the detail names."),
        "token_without_role": (
            "The token names no role that the service knows.",
            "Let the issuer put a role into the role claim.",
        ),
        "token_without_scope": (
            "The token names no scope, and the service requires one.",
            "Let the issuer put a scope into the scope claim.",
        ),
    },
    errors.NotFound: {
        "api_key_not_found": ("There is no key of that name.", "`GET /v1/api-keys` lists them."),
        "connection_not_found": ("There is no connection of that name.", "`GET /v1/connections` lists them."),
        "error_not_found": ("There is no error with that code.", "`GET /v1/errors` lists them."),
        "late_record_not_found": (
            "The query has no such late record.",
            "`GET …/late-records` lists them; old ones are removed.",
        ),
        "not_found": ("There is no such path.", "See the detail for suggestions, or `/docs`."),
        "partition_not_found": ("The log has no such partition.", "`GET` the relation to see its partitions."),
        "query_not_found": ("There is no query of that name.", "`GET /v1/queries` lists them."),
        "relation_not_found": (
            "There is no such stream or table, or it is of the other kind.",
            "See the detail; `GET /v1/streams`, `GET /v1/tables`.",
        ),
        "row_deleted": (
            "The key had a row, and it was deleted.",
            "Read an earlier time with `as_of`, if the table keeps versions.",
        ),
        "row_not_found": ("The key has no row.", "`GET /v1/queries/{name}/explain` says why there is none yet."),
    },
    errors.MethodNotAllowed: {"method_not_allowed": ("The path takes other methods.", "See `Allow` and the detail.")},
    errors.NotAcceptable: {
        "not_acceptable": ("The path has no answer of a type in `Accept`.", "Use a type that the detail names.")
    },
    errors.Conflict: {
        "changes_expired": (
            "The beginning of the table's changes was removed.",
            "Read another relation, or create the table again.",
        ),
        "connection_in_use": ("Relations or queries use the connection.", "Delete those that the detail names first."),
        "feed_taken": ("The name of the feed belongs to another relation.", "Choose another feed."),
        "materialize_needs_rebuild": (
            "The stored rows would have to be rebuilt.",
            "Register the table under another name.",
        ),
        "commit_not_retained": (
            "The query cannot return to this commit: it is not retained.",
            "`GET /v1/queries/{name}/restore-points` lists the retained ones.",
        ),
        "fork_not_possible": (
            "The query cannot be forked, or cannot take over this fork, in its present state.",
            "See the detail.",
        ),
        "fork_too_large": (
            "The result is larger than the limit of a fork.",
            "Give the result a shorter retention, or raise SLACKWATER_LIMITS__FORK_BYTES.",
        ),
        "name_taken": ("A relation or query has that name.", "Choose another name, or delete the other."),
        "not_appendable": (
            "Records cannot be appended here: a query writes it, or its records are in files.",
            "Append to its sources.",
        ),
        "not_readable": ("The records are not in the built-in log.", "Read them in their own system."),
        "open_not_materialised": (
            "Open windows of this table are not stored.",
            'Define the query with `"materialize_open": true`.',
        ),
        "partitions_differ": ("The feed has another number of partitions.", "Give the same number, or another feed."),
        "query_failed": ("The query of a SELECT … EMIT has ended.", "See the detail."),
        "query_is_internal": ("The query belongs to a table with `materialize`.", "Change the table."),
        "query_not_at_rest": (
            "The query runs, or will start soon.",
            "Pause or stop it first, and wait until it is paused or stopped.",
        ),
        "query_not_wanted": (
            "The query's desired state is not to run, so it cannot be restarted.",
            "`PUT …/desired-state` first.",
        ),
        "rewind_not_possible": ("The query cannot return to this commit in its present state.", "See the detail."),
        "rewind_too_large": (
            "The change log is longer than the limit of a rewind.",
            "Raise SLACKWATER_LIMITS__REWIND_BYTES.",
        ),
        "read_only": (
            "The relation is read only (`CREATE SOURCE …`): another program fills it, and statements cannot change its columns.",
            'Write to another one; or `PUT` it with `"read_only": false` first.',
        ),
        "relation_in_use": ("A query reads the relation.", "Delete or change that query first."),
        "relation_is_derived": ("A query writes the relation.", "Change or delete that query."),
        "relation_not_empty": (
            "The relation has records that the new definition cannot read.",
            "Only add columns or widen their types, or register it under another name.",
        ),
        "replay_not_possible": ("The late records cannot be joined again.", "See the detail of each; leave these out."),
        "retention_differs": ("The feed has another retention.", "Give the same one, or another feed."),
        "state_incompatible": (
            "The stored state does not fit the new definition.",
            "`?state=discard` starts from scratch.",
        ),
        "table_not_materialised": ("The rows of this source are not stored.", 'Register it with `"materialize": true`.'),
        "table_not_versioned": ("The table keeps no versions.", "Leave the time out, or make the table versioned."),
        "read_by": ("A query that reads this would have to start from scratch.", "Change that query as well."),
        "written_by": ("A query appends to the stream.", "Delete or change that query first."),
        "needs_new_state": ("This part of the definition cannot change with the stored state.", _NEW),
    },
    errors.InProgress: {"idempotency_in_progress": ("A request with this Idempotency-Key is in progress.", _WAIT)},
    errors.Gone: {
        "cursor_expired": ("The changes after the cursor were removed.", "Start with a new snapshot."),
        "history_expired": (
            "The requested time is older than the retained history.",
            "Read a later time, or keep more history.",
        ),
        "offset_expired": ("The retention removed these records.", "Continue with the oldest offset, which the detail names."),
        "query_gone": ("The query was deleted meanwhile.", "`GET /v1/queries` lists the queries."),
    },
    errors.PreconditionFailed: {
        "version_mismatch": ("Somebody else has changed the resource.", "Read it again and repeat the edit.")
    },
    errors.BodyTooLarge: {"body_too_large": ("The body is over the limit.", "Send smaller bodies.")},
    errors.UnsupportedMediaType: {
        "media_type_missing": ("The request does not name the type of its body.", "Send `Content-Type`."),
        "unsupported_encoding": ("Compressed bodies are not supported.", "Send it without `Content-Encoding`."),
        "unsupported_media_type": ("The path does not read this type.", "Send a type that the detail names."),
    },
    errors.HeadTooLarge: {"head_too_large": ("The request line and the headers are over the limit.", "Send shorter ones.")},
    errors.Misdirected: {
        "host_not_allowed": ("The service does not answer to this name.", "Add it to SLACKWATER_ALLOWED_HOSTS.")
    },
    errors.Unprocessable: {
        "answer_too_large": (
            "One row, or the keys of one look-up, are larger than the limit of an answer.",
            "Use a lower `limit` or fewer keys, or smaller rows; SLACKWATER_LIMITS__ANSWER_BYTES is the limit.",
        ),
        "bad_key": ("A key does not have the table's types.", "See each fault's pointer."),
        "bad_name": ("The name cannot be used.", "See the detail for valid names."),
        "function_differs": (
            "A definition contains a function that is not the registered one.",
            "Leave `functions` out, or let an administrator register it.",
        ),
        "missing_statement": ("The text has no statement.", "Send one in `sql`."),
        "parameter_missing": ("A parameter of a statement has no value.", "Give it in `parameters`."),
        "parameter_type": (
            "The value of a parameter cannot be a literal.",
            "Send a text, a number, true, false or null.",
        ),
        "parameter_unused": ("A value belongs to no parameter.", "Leave it out, or write `?` or `:name` in its place."),
        "sql_invalid": ("Statements have several faults.", "See `errors`: each fault has its line, its column and a detail."),
        "syntax_error": ("A statement cannot be read.", "See `errors` for the place and the expected text."),
        "too_many_rows": (
            "The SELECT would read more rows than the limit.",
            "Read by key, or store the answer in a table.",
        ),
        "bad_scope": ("The scope's patterns cannot be read.", "See the detail for valid patterns."),
        "definition_invalid": (
            "The definition has several faults.",
            "See `errors`: each fault has a pointer, a code and a detail.",
        ),
        "idempotency_key_reused": ("The Idempotency-Key belongs to another request.", "Use a new key for a new request."),
        "name_mismatch": ("The body names another resource than the path.", "Leave the name out of the body."),
        "format_unfit": (
            "The format that `format` names does not fit the relation or its schema.",
            "See the detail for the cure.",
        ),
        "records_rejected": ("Every record was rejected.", "See `errors` for each reason; `GET …/rejects` lists the records."),
        "unknown_feed": ("The position names a feed that the table never reads.", "Use a position from this table's answers."),
        "unknown_partition": ("The position names a partition that does not exist.", "Use a position from this table's answers."),
        "user_error": ("The request is wrong.", "See the detail."),
    },
    errors.TooManyRequests: {
        "too_many_transient_queries": (
            "The number of queries for readers of SELECT … EMIT is at its limit.",
            "End some, or define one result for all readers.",
        ),
        "too_many_requests": ("The number of running requests is at its limit.", "Wait as long as `Retry-After` says."),
        "too_many_streams": (
            "The number of open event streams is at its limit.",
            "Wait as long as `Retry-After` says, or poll.",
        ),
    },
    errors.ClientGone: {"client_gone": ("The client closed the connection before the answer.", "Nothing: nobody reads it.")},
    errors.Unavailable: {
        "database_busy": ("The database has no free connection, or something holds a lock.", _WAIT),
        "database_read_only": (
            "The database accepts no writes: it is a replica, or was made read only.",
            "Let SLACKWATER_DATABASE_URL name the primary (`target_session_attrs=read-write` finds it among several hosts).",
        ),
        "database_full": ("The database's disk is full; nothing was written.", "Free space there, then try again."),
        "database_unavailable": ("The database did not answer.", f"{_WAIT} `slackwater doctor` looks for the cause."),
        "driver_not_ready": ("The service's own driver does not start.", "See the detail and driver.log; `slackwater doctor`."),
        "issuer_unavailable": ("The issuer of tokens does not answer.", _WAIT),
        "not_ready": ("The service cannot serve yet.", "See the detail; `slackwater doctor` looks for the cause."),
        "planning_busy": ("The number of definitions in validation is at its limit.", _WAIT),
        "sources_busy": ("The number of checks of sources outside of the database is at its limit.", _WAIT),
        "relation_changing": ("The relation is changing now.", _WAIT),
        "stopping": ("The service is stopping.", "Use another instance, or try again in a moment."),
        "too_many_connections": (
            "The number of open connections is at the limit of the port.",
            "Close some: one client needs a few. Or raise `SLACKWATER_LIMITS__CONNECTIONS`.",
        ),
        "too_stale": ("The result is older than `max_staleness` allows.", "Try again later, or allow more."),
    },
    errors.NotInTime: {
        "position_not_reached": ("The table did not reach the position within the timeout.", "Try again, or wait longer."),
    },
    errors.TooExpensive: {
        "read_too_expensive": (
            "The read took longer than its time limit.",
            "Read by key, or with a condition that an index supports.",
        ),
    },
    errors.Internal: {"internal_error": ("The service has a bug.", "Report it with the request id.")},
}


def _entries() -> Sequence[ErrorEntry]:
    entries: dict[str, ErrorEntry] = {}
    for kind, texts in _REQUEST.items():
        for code, (meaning, cure) in texts.items():
            entries[code] = ErrorEntry(code, "request", (kind.status,), kind.title, kind.retryable, meaning, cure)
    unprocessable = errors.Unprocessable
    for part, listed in (("definition", DEFINITION_TEXTS), ("statement", STATEMENT_TEXTS), ("record", RECORD_TEXTS)):
        for code, (meaning, cure) in listed.items():
            known = entries.setdefault(
                code, ErrorEntry(code, part, (unprocessable.status,), unprocessable.title, unprocessable.retryable, meaning, cure)
            )
            if unprocessable.status not in known.statuses:
                entries[code] = replace(known, statuses=(*known.statuses, unprocessable.status))
    for code, (meaning, cure, is_retryable) in QUERY_TEXTS.items():
        entries.setdefault(code, ErrorEntry(code, "query", (), "The query does not run as desired", is_retryable, meaning, cure))
    for code, (meaning, cure) in WARNING_TEXTS.items():
        entries[code] = ErrorEntry(code, "warning", (), "Accepted, and may surprise", False, meaning, cure)
    return sorted(entries.values(), key=lambda entry: entry.code)


ERRORS: Final[Mapping[str, ErrorEntry]] = {entry.code: entry for entry in _entries()}
