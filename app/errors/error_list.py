"""Every code of an error with its meaning and its cure: `GET /v1/errors`, and the enum of the OpenAPI document.

A test compares it with the code: whatever is raised anywhere stands here. What a request's answer says beyond this is its `detail`.
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
        code: stable snake_case code.
        kind: ``request``: of an answer; ``definition``: of a field of a definition or body; ``statement``: of a statement of SQL;
            ``record``: of a record that was refused; ``query``: of a query that failed, is retried or waits; ``warning``: of what was
            accepted and may still surprise.
        statuses: HTTP statuses with which answers carry it; none: it stands in the body of a 200.
        title: what the status means here.
        is_retryable: whether the same can succeed later without a change.
    """

    code: str
    kind: str
    statuses: tuple[int, ...]
    title: str
    is_retryable: bool
    meaning: str
    cure: str


def explained_at(code: str) -> str:
    """Return where a code is explained, relative to the service: a browser is led to the guide, a program gets JSON."""
    return f"/v1/errors/{code}"


_Texts = Mapping[str, tuple[str, str]]

_WAIT = "Try again in a moment."
_NEW = "Do one of what the detail names; `PUT …?state=discard` starts from scratch."
_REQUEST: Mapping[type[AppError], _Texts] = {
    errors.BadRequest: {
        "not_a_query": ("The path answers one SELECT.", "Send other statements to `/ksql`."),
        "bad_cursor": ("The cursor is none of this path.", "Take `next` of the answer before, unchanged, or leave it out."),
        "bad_parameter": ("A parameter has a value that it cannot have, or is given twice.", "See the detail for what it takes."),
        "composite_key": ("The key has several columns and one value was given.", "Ask with `key.<column>=` for each column."),
        "conflicting_parameters": ("Two parameters exclude each other.", "Leave one of them out."),
        "malformed_arrow": (
            "The body is no Arrow IPC stream that can be read.",
            "Send a whole stream, with the relation's columns.",
        ),
        "malformed_body": ("The body could not be read to its end.", "Send it again, whole."),
        "malformed_json": ("The body is not JSON.", "Mend it at the place that the detail names; JSON is UTF-8 without NaN."),
        "malformed_records": (
            "The body cannot be cut into records of the format that `format` names.",
            "See the detail for what is expected, and where.",
        ),
        "malformed_request": ("The request itself cannot be read.", "Send a request as HTTP has it; see the detail."),
        "not_windowed": ("The parameter is for tables with windows.", "Leave it out."),
        "table_without_key": ("The table has one row and no key.", "Read `/rows`."),
        "unknown_parameter": ("The path takes no such parameter.", "See the detail for those it takes."),
    },
    errors.Unauthorized: {
        "api_key_missing": ("The service asks for a key.", "Send `Authorization: Bearer sw_…`."),
        "api_key_invalid": ("There is no such key, or it was revoked.", "Ask an admin for a new one."),
        "api_key_expired": ("The key's time is over.", "Ask an admin for a new one."),
        "token_invalid": ("The token is not one that the service accepts.", "Take a new one of the issuer; see the detail."),
        "token_expired": ("The token's time is over.", "Take a new one of the issuer."),
    },
    errors.Forbidden: {
        "foreign_origin": (
            "A page of another origin sent this through a browser.",
            "Call the service from a program, or turn keys on.",
        ),
        "python_functions_off": (
            "The service does not run functions in Python.",
            "Whoever runs it can set SLACKWATER_SQL__PYTHON_FUNCTIONS=true.",
        ),
        "keys_from_command_line": ("A service without keys makes none over HTTP.", "Use `slackwater keys create`."),
        "out_of_scope": ("A name is outside of the key's scope.", "Use a key with a wider scope, or other names."),
        "role_too_low": ("The key's role may not do this.", "Use a key with the role that the detail names."),
        "token_without_role": ("The token names no role that the service knows.", "Let the issuer put one into the role claim."),
        "token_without_scope": (
            "The token names no scope, and the service asks for one.",
            "Let the issuer put one into the scope claim.",
        ),
    },
    errors.NotFound: {
        "api_key_not_found": ("There is no key of that name.", "`GET /v1/api-keys` lists them."),
        "connection_not_found": ("There is no connection of that name.", "`GET /v1/connections` lists them."),
        "error_not_found": ("There is no error with that code.", "`GET /v1/errors` lists them."),
        "late_record_not_found": (
            "The query keeps no such late record.",
            "`GET …/late-records` lists them; old ones are removed.",
        ),
        "not_found": ("There is no such path.", "See the detail for what was meant, or `/docs`."),
        "partition_not_found": ("The log has no such partition.", "`GET` the relation to see its partitions."),
        "query_not_found": ("There is no query of that name.", "`GET /v1/queries` lists them."),
        "relation_not_found": (
            "There is no such stream or table, or it is of the other kind.",
            "See the detail; `GET /v1/streams`, `GET /v1/tables`.",
        ),
        "row_deleted": ("The key had a row, and it was deleted.", "Read an earlier time with `as_of`, where that is kept."),
        "row_not_found": ("The key has no row.", "`GET /v1/queries/{name}/explain` says why there is none yet."),
    },
    errors.MethodNotAllowed: {"method_not_allowed": ("The path takes other methods.", "See `Allow` and the detail.")},
    errors.NotAcceptable: {
        "not_acceptable": ("The path answers no type that `Accept` names.", "Ask for one that the detail names.")
    },
    errors.Conflict: {
        "changes_expired": ("The beginning of the table's changes is gone.", "Read another relation, or make the table again."),
        "connection_in_use": ("Relations or queries use the connection.", "Delete those that the detail names first."),
        "feed_taken": ("The name of the feed is another relation's.", "Choose another feed."),
        "materialize_needs_rebuild": (
            "The rows that are kept would have to be made again.",
            "Register the table under another name.",
        ),
        "commit_not_retained": (
            "The query cannot go back to this commit: it was never retained, or is not any more.",
            "`GET /v1/queries/{name}/restore-points` lists those there are.",
        ),
        "fork_not_possible": ("The query cannot be forked, or cannot take over this fork, as it is now.", "See the detail."),
        "fork_too_large": (
            "The result is larger than what a fork copies.",
            "Give the result a shorter retention, or raise SLACKWATER_LIMITS__FORK_BYTES.",
        ),
        "name_taken": ("A relation or query has that name.", "Choose another name, or delete the other."),
        "not_appendable": ("Nobody can append here: a query writes it, or files hold its records.", "Append to its sources."),
        "not_readable": ("The records are not in the built-in log.", "Read them where they are."),
        "open_not_materialised": (
            "Open windows of this table are not kept.",
            'Define the query with `"materialize_open": true`.',
        ),
        "partitions_differ": ("The feed has another number of partitions.", "Give the same number, or another feed."),
        "query_failed": ("The query behind a SELECT … EMIT has ended.", "See the detail."),
        "query_is_internal": ("The query follows a table with `materialize`.", "Change the table."),
        "query_not_at_rest": ("The query runs, or is about to.", "Pause or stop it first, and wait until it is."),
        "query_not_wanted": ("The query shall not run, so it cannot be restarted.", "`PUT …/desired-state` first."),
        "rewind_not_possible": ("The query cannot go back to this commit as things are now.", "See the detail."),
        "rewind_too_large": (
            "The change log is longer than what a rewind reads.",
            "Raise SLACKWATER_LIMITS__REWIND_BYTES.",
        ),
        "read_only": (
            "The relation is read only (`CREATE SOURCE …`): others fill it, and statements leave its columns alone.",
            'Write to another one; or `PUT` it with `"read_only": false` first.',
        ),
        "relation_in_use": ("A query reads the relation.", "Delete or change that query first."),
        "relation_is_derived": ("A query writes the relation.", "Change or delete that query."),
        "relation_not_empty": (
            "The relation has records that the new definition cannot read.",
            "Add columns or widen their types only, or register it under another name.",
        ),
        "replay_not_possible": ("The late records cannot be joined again.", "See the detail for each; leave those out."),
        "retention_differs": ("The feed has another retention.", "Give the same one, or another feed."),
        "state_incompatible": (
            "The kept state does not fit the new definition.",
            "`?state=discard` starts from scratch.",
        ),
        "table_not_materialised": ("The rows of this source are not kept.", 'Register it with `"materialize": true`.'),
        "table_not_versioned": ("The table keeps no versions.", "Leave the time out, or make the table versioned."),
        "read_by": ("A query that reads this would have to start from scratch.", "Change that query as well."),
        "written_by": ("A query appends to the stream.", "Delete or change that query first."),
        "needs_new_state": ("This part of the definition cannot change with the state that is kept.", _NEW),
    },
    errors.InProgress: {"idempotency_in_progress": ("A request with this Idempotency-Key is under way.", _WAIT)},
    errors.Gone: {
        "cursor_expired": ("What the cursor would go on with was removed.", "Begin with a new snapshot."),
        "history_expired": (
            "The time asked for is older than the retained history.",
            "Ask for a later time, or keep more history.",
        ),
        "offset_expired": ("The retention removed these records.", "Go on with the oldest offset, which the detail names."),
        "query_gone": ("The query was deleted meanwhile.", "`GET /v1/queries` lists those there are."),
    },
    errors.PreconditionFailed: {"version_mismatch": ("Somebody else has changed it.", "Read it again and repeat the edit.")},
    errors.BodyTooLarge: {"body_too_large": ("The body is over the limit.", "Send less at a time.")},
    errors.UnsupportedMediaType: {
        "media_type_missing": ("The request does not say what its body is.", "Send `Content-Type`."),
        "unsupported_encoding": ("Compressed bodies are not read.", "Send it without `Content-Encoding`."),
        "unsupported_media_type": ("The path reads no such type.", "Send one that the detail names."),
    },
    errors.HeadTooLarge: {"head_too_large": ("The request's line and headers are over the limit.", "Send less in them.")},
    errors.Misdirected: {
        "host_not_allowed": ("The service does not answer to this name.", "Add it to SLACKWATER_ALLOWED_HOSTS.")
    },
    errors.Unprocessable: {
        "answer_too_large": (
            "One row, or the keys of one look-up, hold more than an answer may.",
            "Ask for a lower `limit` or fewer keys, or keep less in a row; SLACKWATER_LIMITS__ANSWER_BYTES is the bound.",
        ),
        "bad_key": ("A key is not of the table's types.", "See each fault's pointer."),
        "bad_name": ("The name cannot be used.", "See the detail for what a name may be."),
        "function_differs": (
            "A definition brings a function along that is not the registered one.",
            "Leave `functions` out, or let an administrator register it.",
        ),
        "missing_statement": ("The text holds no statement.", "Send one in `sql`."),
        "parameter_missing": ("A parameter of a statement has no value.", "Give it in `parameters`."),
        "parameter_type": (
            "The value of a parameter is none that a literal can be.",
            "Send a text, a number, true, false or null.",
        ),
        "parameter_unused": ("A value belongs to no parameter.", "Leave it out, or write `?` or `:name` where it belongs."),
        "sql_invalid": ("Statements have several faults.", "See `errors`: each has its line, its column and a detail."),
        "syntax_error": ("A statement cannot be read.", "See `errors` for the place and what was expected there."),
        "too_many_rows": (
            "The answer lies behind more rows than a SELECT may look at.",
            "Ask by key, or keep the answer in a table.",
        ),
        "bad_scope": ("The scope's patterns cannot be read.", "See the detail for what a pattern may be."),
        "definition_invalid": ("The definition has several faults.", "See `errors`: each has a pointer, a code and a detail."),
        "idempotency_key_reused": ("The Idempotency-Key belongs to another request.", "Use a new key for a new request."),
        "name_mismatch": ("The body names another resource than the path.", "Leave the name out of the body."),
        "format_unfit": (
            "The format that `format` names does not fit the relation or its schema.",
            "See the detail for what to say.",
        ),
        "records_rejected": ("Every record was refused.", "See `errors` for each one's reason; `GET …/rejects` keeps them."),
        "unknown_feed": ("The position names a feed that the table never reads.", "Take a position of this table's answers."),
        "unknown_partition": ("The position names a partition that there is not.", "Take a position of this table's answers."),
        "user_error": ("The request is wrong.", "See the detail."),
    },
    errors.TooManyRequests: {
        "too_many_transient_queries": (
            "As many queries run for readers of SELECT … EMIT as the service gives.",
            "End some, or make a result that all of them read.",
        ),
        "too_many_requests": ("As much is under way as the service takes.", "Wait as long as `Retry-After` says."),
        "too_many_streams": (
            "As many event streams are open as the service gives.",
            "Wait as long as `Retry-After` says, or poll.",
        ),
    },
    errors.ClientGone: {"client_gone": ("The client left before the answer.", "Nothing: nobody reads it.")},
    errors.Unavailable: {
        "database_busy": ("The database has no connection free, or something under way holds what is needed.", _WAIT),
        "database_read_only": (
            "The database takes no writes: it is a replica, or was made read only.",
            "Let SLACKWATER_DATABASE_URL name the primary (`target_session_attrs=read-write` finds it among several hosts).",
        ),
        "database_full": ("The database's disk is full; nothing was written.", "Free space there, then try again."),
        "database_unavailable": ("The database did not answer.", f"{_WAIT} `slackwater doctor` looks for the cause."),
        "driver_not_ready": ("The service's own driver does not come up.", "See the detail and driver.log; `slackwater doctor`."),
        "issuer_unavailable": ("The issuer of tokens does not answer.", _WAIT),
        "not_ready": ("The service cannot serve yet.", "See the detail; `slackwater doctor` looks for the cause."),
        "planning_busy": ("As many definitions are being checked as the service takes.", _WAIT),
        "sources_busy": ("As many sources are being looked at outside of the database as the service takes.", _WAIT),
        "relation_changing": ("The relation is being changed at this moment.", _WAIT),
        "stopping": ("The service is ending.", "Try again at another one, or in a moment."),
        "too_many_connections": (
            "As many connections are open as the port takes.",
            "Close some: one client needs a few. Or raise `SLACKWATER_LIMITS__CONNECTIONS`.",
        ),
        "too_stale": ("The result is older than `max_staleness` allows.", "Ask again later, or allow more."),
    },
    errors.NotInTime: {
        "position_not_reached": ("The table did not come to the position within the timeout.", "Ask again, or wait longer."),
    },
    errors.TooExpensive: {
        "read_too_expensive": (
            "The read took longer than the service gives it.",
            "Ask by key, or with a condition that an index helps.",
        ),
    },
    errors.Internal: {"internal_error": ("A fault of the service.", "Report it with the request id.")},
}


def _entries() -> Sequence[ErrorEntry]:
    found: dict[str, ErrorEntry] = {}
    for kind, texts in _REQUEST.items():
        for code, (meaning, cure) in texts.items():
            found[code] = ErrorEntry(code, "request", (kind.status,), kind.title, kind.retryable, meaning, cure)
    wrong = errors.Unprocessable
    for part, listed in (("definition", DEFINITION_TEXTS), ("statement", STATEMENT_TEXTS), ("record", RECORD_TEXTS)):
        for code, (meaning, cure) in listed.items():
            known = found.setdefault(code, ErrorEntry(code, part, (wrong.status,), wrong.title, wrong.retryable, meaning, cure))
            if wrong.status not in known.statuses:
                found[code] = replace(known, statuses=(*known.statuses, wrong.status))
    for code, (meaning, cure, is_retryable) in QUERY_TEXTS.items():
        found.setdefault(code, ErrorEntry(code, "query", (), "The query does not run as it shall", is_retryable, meaning, cure))
    for code, (meaning, cure) in WARNING_TEXTS.items():
        found[code] = ErrorEntry(code, "warning", (), "Accepted, and may surprise", False, meaning, cure)
    return sorted(found.values(), key=lambda entry: entry.code)


ERRORS: Final[Mapping[str, ErrorEntry]] = {entry.code: entry for entry in _entries()}
