"""Settings that limit the concurrent work of one process, and statements."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class PushSettings(BaseModel):
    """Event streams (`…/changes`, `…/events`).

    Attributes:
        heartbeat_s: silence after which a comment is sent, so that no proxy closes an idle connection.
        close_after_s: age at which a stream is closed with a `reconnect` event, so that clients spread over processes again.
        write_timeout_s: a client that reads nothing for this long is disconnected; it resumes from its last event.
        max_streams: limit of open streams of this process; further ones are answered 429.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    heartbeat_s: float = Field(default=15.0, gt=0)
    close_after_s: float = Field(default=600.0, gt=0)
    write_timeout_s: float = Field(default=30.0, gt=0)
    max_streams: int = Field(default=5_000, ge=1)


class LimitSettings(BaseModel):
    """Limits of concurrent work in this process; further requests are answered 429 ``too_many_requests`` unless stated otherwise.

    Attributes:
        connections: open connections of each port; further ones are answered 503 ``too_many_connections`` and closed. More than event streams.
        row_reads: reads of tables' rows by key. One core answers this default number within ten to twenty milliseconds.
        scan_reads: reads of tables' rows that may read many of them: lists, conditions, histories.
        page_reads: other reads that may take long: records, late records, history, lateness, explanations.
        append_bytes: bodies of appends being read, validated or written; a body over this limit is admitted alone.
        read_timeout_ms: time limit of a read-only statement; beyond it the answer is 504 ``read_too_expensive``.
        page_bytes: a page ends at this size before its ``limit``, with at least one item; ``next`` continues. It equals the limit of one
            record: an answer is in memory about four times (database, text, bytes, socket), and dozens of reads run at once.
        answer_bytes: limit of an answer without pages: one row, or the keys of one lookup; the database returns no more (422
            ``answer_too_large``). Four pages, because a row of a query can be larger than the records it is made of.
        planning: definitions validated and planned at once. This is the only work of a request that may take a second; others wait.
        planning_wait_s: maximum wait for that (503 ``planning_busy``).
        planning_cpu_s: CPU time limit for one definition (422 ``definition_too_expensive``).
        rewind_bytes: size of the change log that is read to restore the rows of a table when its query is rewound, while other edits wait
            (409 ``rewind_too_large``).
        fork_bytes: size of the result of a forked query, its log included: they are copied in one transaction, while other edits wait
            (409 ``fork_too_large``).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    connections: int = Field(default=6_000, ge=1)
    row_reads: int = Field(default=48, ge=1)
    scan_reads: int = Field(default=48, ge=1)
    page_reads: int = Field(default=48, ge=1)
    append_bytes: int = Field(default=128 * 1024 * 1024, ge=1_024)
    read_timeout_ms: int = Field(default=10_000, ge=100, le=3_600_000)
    page_bytes: int = Field(default=16 * 1024 * 1024, ge=1_024, le=256 * 1024 * 1024)
    answer_bytes: int = Field(default=64 * 1024 * 1024, ge=1_024, le=512 * 1024 * 1024)
    planning: int = Field(default=2, ge=1, le=64)
    planning_wait_s: float = Field(default=10.0, gt=0)
    planning_cpu_s: float = Field(default=5.0, gt=0)
    fork_bytes: int = Field(default=2 * 1024**3, ge=0)
    rewind_bytes: int = Field(default=2 * 1024**3, ge=0)


class SqlSettings(BaseModel):
    """Interpretation and limits of statements.

    Attributes:
        default_grace: grace of windows without GRACE PERIOD: ``klip10``: none, as in KLIP-10; ``ksqldb``: 24 hours less the window's size with
            EMIT CHANGES, none with EMIT FINAL.
        max_scanned_rows: limit of rows that a SELECT without EMIT may read.
        read_seconds: time limit of a SELECT without EMIT, and of all reading statements of one script together.
        max_transient_queries: limit of queries that run only for readers of SELECT … EMIT, over all services of the database.
        python_functions: whether administrators may register functions in Python (CREATE FUNCTION), which run on the service's machines.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    default_grace: Literal["klip10", "ksqldb"] = "klip10"
    python_functions: bool = False
    max_scanned_rows: int = Field(default=100_000, ge=1)
    read_seconds: float = Field(default=60, gt=0, le=3_600)
    max_transient_queries: int = Field(default=10, ge=0)
