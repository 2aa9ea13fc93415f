"""Settings that bound what one process does at once."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class PushSettings(BaseModel):
    """How event streams behave (`…/changes`, `…/events`).

    Attributes:
        heartbeat_s: silence after which a comment is sent, so that nothing in between takes the connection for dead.
        close_after_s: age at which a stream is closed with a `reconnect` event, so that clients spread over processes again.
        write_timeout_s: a client that takes nothing for so long is closed; it resumes from its last event.
        max_streams: open streams of this process; the next is answered 429.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    heartbeat_s: float = Field(default=15.0, gt=0)
    close_after_s: float = Field(default=600.0, gt=0)
    write_timeout_s: float = Field(default=30.0, gt=0)
    max_streams: int = Field(default=5_000, ge=1)


class LimitSettings(BaseModel):
    """How much may be under way in this process at once; the next is answered 429 ``too_many_requests``, where nothing else is said.

    Attributes:
        connections: open at each port; the next is answered 503 ``too_many_connections`` and closed. More than event streams.
        row_reads: reads of tables' rows by key. One core answers as many as the default within ten to twenty milliseconds.
        scan_reads: reads of tables' rows that may look at many of them: lists, conditions, histories.
        page_reads: other reads that may be long: records, late records, history, lateness, explanations.
        append_bytes: bodies of appends that are read, judged or written; one larger than it passes alone.
        read_timeout_ms: after it the database ends a statement that only reads, and the answer is 504 ``read_too_expensive``.
        page_bytes: where a page ends before its ``limit``, with at least one item; ``next`` goes on. As much as one record may hold: an
            answer is in memory about four times (database, text, bytes, socket), and dozens of reads are under way at once.
        answer_bytes: of what cannot end early: one row, or the keys of one look-up; the database hands no more over (422
            ``answer_too_large``). Four pages: a row that a query has gathered is larger than the records it is made of.
        planning: definitions that are checked and laid out, the one work of a request that may take a second; others wait for their turn.
        planning_wait_s: how long they wait (503 ``planning_busy``).
        planning_cpu_s: how much CPU the checking of one definition may take (422 ``definition_too_expensive``).
        rewind_bytes: of the change log that is read to put the rows of a table back where its query is rewound, while other edits wait (409
            ``rewind_too_large``).
        fork_bytes: of the result of a query that is forked, its log included: they are copied in one transaction, while other edits wait (409
            ``fork_too_large``).
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
