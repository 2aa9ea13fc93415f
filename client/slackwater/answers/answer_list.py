"""Every answer of the service, read from its OpenAPI document. Made by `make client`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from slackwater.answers.answer import Answer, Item, many, moment


class AdviceItem(Answer):
    """The effect that one value would have had on the measured records."""

    value_ms = Item[int]()
    """The value, in milliseconds."""

    late_count = Item[int]()
    """Records that would have been late."""

    late_share = Item[float]()
    """Of all records measured, from 0 to 1."""

    added_wait_ms = Item[int]()
    """Additional wait of a result compared with 0, in event time."""

    exact = Item[bool]()
    """False: the number is an upper bound; the value lies inside a bucket."""

    current = Item[bool]()
    """This is the current value."""


class AggregateExampleItem(Answer):
    """An aggregate over some values."""

    call = Item[str]()
    """The aggregate."""

    values = Item[tuple[Any, ...]](tuple)
    """The values of x in a group, in order."""

    gives = Item[Any]()
    """The result in JSON."""


class ApiKeyAnswer(Answer):
    """A key, without its secret part."""

    name = Item[str]()
    """Who uses it."""

    prefix = Item[str]()
    """How the key begins: enough to tell keys apart."""

    role = Item[Literal["read", "write", "admin"]]()
    """What it may do; each role includes the ones before: `read`, `write`, `admin`."""

    scope = Item[tuple[str, ...] | None](tuple)
    """Patterns of the names that it may see; null: all."""

    created_at = Item[datetime](moment)
    """When it was created."""

    last_used_at = Item[datetime | None](moment)
    """To the minute; null: never."""

    expires_at = Item[datetime | None](moment)
    """When it expires; null: never."""

    revoked_at = Item[datetime | None](moment)
    """When it was revoked; null: it is not revoked."""


class AppendedRange(Answer):
    """The offsets of appended records: ``count`` consecutive offsets of one partition."""

    partition = Item[int]()
    """Number of the partition, from 0."""

    first_offset = Item[int]()
    """First of these offsets."""

    last_offset = Item[int]()
    """Last of these offsets."""

    count = Item[int]()
    """Number of records."""


class ArgumentItem(Answer):
    """One argument of a function."""

    name = Item[str]()
    """Name of the argument."""

    type = Item[str]()
    """Allowed types."""

    optional = Item[bool]()
    """It may be omitted."""

    repeated = Item[bool]()
    """Any number of them is allowed."""


class AuditActor(Answer):
    """The one who made the change."""

    type = Item[Literal["api_key", "oidc", "cli", "anonymous"]]()
    """`cli`: somebody on the service's machine; `anonymous`: the service required no keys."""

    name = Item[str]()
    """Name of the key, subject of the token, or name of the machine's user."""

    id = Item[str | None]()
    """Id of the key: a name can be used again after a key is revoked."""


class AuditResource(Answer):
    """The changed resource."""

    type = Item[Literal["stream", "table", "query", "api_key", "connection"] | None]()
    """null: the route has none."""

    name = Item[str | None]()
    """Its name; null: the route has none."""


class Change(Answer):
    """One change, or one row of a snapshot."""

    kind = Item[Literal["change", "snapshot"]]()
    """`snapshot`: a row as of the snapshot; `change`: a change of a row, or a record."""

    op = Item[Literal["upsert", "delete", "append"]]()
    """`append` in a stream."""

    partition = Item[int | None]()
    """Partition of the log; null for a row of a snapshot."""

    sequence = Item[int | None]()
    """Number of the change over all partitions of a derived relation; absent for sources."""

    part = Item[str | None]()
    """The part of the stream that has the record, if a query appends it; absent: the stream's own log."""

    offset = Item[int | None]()
    """Offset in the partition; null for a row of a snapshot."""

    event_time_ms = Item[int]()
    """Result time. For a versioned table, keep the greatest of a key, deletes included."""

    key = Item[dict[str, Any]]()
    """The key, as columns by name; empty if a stream has no key."""

    row = Item[dict[str, Any] | None]()
    """Null for a delete."""


class CheckAnswer(Answer):
    """Result of a check of a connection."""

    outcome = Item[Literal["reached", "not_reached"]]()
    """Whether the other system answered and accepted the credentials."""

    reason = Item[
        Literal[
            "name_not_resolved",
            "refused",
            "unreachable",
            "timeout",
            "tls",
            "authentication",
            "not_allowed",
            "not_found",
            "unexpected_answer",
            "host_not_allowed",
            "secret_unavailable",
            "failed",
        ]
        | None
    ]()
    """Why not; null: it was reached. `secret_unavailable`: a secret cannot be decrypted or read; `host_not_allowed`: see
    `SLACKWATER_CONNECTION_HOSTS`; `not_allowed`: the credentials are valid, but may not read what the check reads.
    """

    detail = Item[str]()
    """The system that was reached, or the fault and its cure."""

    took_ms = Item[int]()
    """How long it took."""


class CommitPlace(Answer):
    """A commit of a query."""

    batch_id = Item[int]()
    """Number of its batch."""

    committed_at = Item[datetime](moment)
    """When it was committed."""

    position = Item[dict[str, dict[str, int]]]()
    """Feed to partition to the next offset: the input of its results."""

    stream_time_ms = Item[int | None]()
    """Stream time: milliseconds since 1970; null before the first record."""


class ConnectionAnswer(Answer):
    """A connection, without the values of its secrets."""

    name = Item[str]()
    """Its name, which connectors use."""

    type = Item[Literal["kafka", "registry", "s3", "postgres"]]()
    """Its kind."""

    definition = Item[dict[str, Any]]()
    """As stored, with every default. `{"set": true}` replaces a secret that was sent as a value; `env:` and `file:` are shown."""

    version = Item[int]()
    """Rises with every change; the ETag."""

    created_at = Item[datetime](moment)
    """When it was created."""

    updated_at = Item[datetime](moment)
    """When it was last changed."""


class Counter(Answer):
    """A count of one input or operator since the query began with this state."""

    input = Item[str]()
    """Alias of the input, or name of the operator."""

    reason = Item[str]()
    """What is counted, as a code."""

    count = Item[int]()
    """The count."""


class DebeziumToken(Answer):
    """What Debezium sends with each request."""

    jwt = Item[str]()
    """The key of the request."""

    jwt_refresh_token = Item[str]()
    """The same."""

    expires_in = Item[int]()
    """Milliseconds."""

    refresh_token_expires_in = Item[int]()
    """Milliseconds."""


class DeliveryTrouble(Answer):
    """Why results are not delivered."""

    code = Item[str]()
    """Stable code; `GET /v1/errors/{code}` explains it."""

    detail = Item[str]()
    """What happened."""

    cure = Item[str]()
    """What helps."""

    at = Item[datetime | None](moment)
    """Last time of this failure; null: it is the case now."""


class EditChange(Answer):
    """One part of a definition that differs from the stored one."""

    pointer = Item[str]()
    """JSON pointer of the part."""

    kind = Item[Literal["in_place", "repartition", "needs_new_state"]]()
    """What the change needs: nothing more, another division of the state, or new state."""

    reason = Item[str]()
    """What happens to the stored data, or why it cannot be used."""


class EditEffect(Answer):
    """The effect of the edit on stored data."""

    pointer = Item[str]()
    """The part of the definition that causes it."""

    effect = Item[
        Literal[
            "records_let_go",
            "windows_closed",
            "updates_let_go",
            "buffer_overrun",
            "rows_removed",
            "versions_unreadable",
            "late_records_removed",
        ]
    ]()
    """What happens."""

    operator = Item[str | None]()
    """The operator; null: the results or the late records."""

    at_least = Item[int]()
    """Least number of records, rows or windows."""

    at_most = Item[int]()
    """Greatest number."""

    from_ms = Item[int | None]()
    """The earliest time: event times of records and versions, ends of windows; for a hold the wall clock."""

    to_ms = Item[int | None]()
    """The latest time."""


class ErrorItem(Answer):
    """One code of an error."""

    code = Item[str]()
    """Stable snake_case code."""

    kind = Item[Literal["request", "definition", "statement", "record", "query", "warning"]]()
    """`request`: of an answer. `definition`: of a field of a body. `statement`: of an SQL statement. `record`: of a rejected
    record. `query`: of a query that failed, is retried or waits. `warning`: of an accepted definition or record that may
    surprise.
    """

    status = Item[int | None]()
    """HTTP status of answers with this code; null: it is in no answer."""

    title = Item[str]()
    """Meaning of the status."""

    retryable = Item[bool]()
    """Whether the same request can succeed later without a change."""

    meaning = Item[str]()
    """What is wrong."""

    cure = Item[str]()
    """What to do."""


class Event(Answer):
    """An event of a query."""

    id = Item[int]()
    """Rises with every event of the service."""

    at = Item[datetime](moment)
    """Time of the event."""

    kind = Item[str]()
    """Kind of event."""

    from_state = Item[str | None]()
    """State before; null if the state did not change."""

    to_state = Item[str | None]()
    """State after; null if the state did not change."""

    epoch = Item[int | None]()
    """Number of its launch; null: it belongs to none."""

    actor = Item[str]()
    """Who did it: `driver`, a key, `oidc:` and a name, or `api` if the service requires no key."""

    detail = Item[dict[str, Any] | None]()
    """More about it, by kind; null: nothing more."""


class Execution(Answer):
    """The execution slot that runs a query's batches."""

    mode = Item[Literal["shared", "dedicated", "isolated"]]()
    """`shared`: queries with low load share a slot. `dedicated`: the query's load is high (a batch of 10,000 records, one that
    left records unread, or 15 % of a core over ten seconds); it shares again after 30 seconds with less than 5 % and no
    such batch. `isolated`: it was at work when a worker died, and runs its next batch alone.
    """

    is_waiting = Item[bool]()
    """Its load is high, but it shares a slot: all dedicated slots of the driver are in use (eight, or two for each core). It
    gets the next free one; until then it gets a part of each scheduling cycle.
    """

    moves = Item[int]()
    """Number of moves between slots since its launch."""

    cpu_share = Item[float | None]()
    """CPU time of its batches as a share of one core, over the ten seconds before the last commit: 0.15 is 15 %."""

    largest_batch = Item[int | None]()
    """Records of its largest batch in these ten seconds."""

    max_rows = Item[int | None]()
    """Limit of records in a batch, because larger batches emitted too much at once; null: no limit."""

    deferred = Item[int]()
    """Number of its batches since its launch that were deferred to the next scheduling cycle of its slot, because earlier
    batches had emitted the limit of a cycle (64 MiB). A large number means that queries in its slot emit much.
    """


class ExpressionExample(Answer):
    """An expression and its value."""

    expression = Item[str]()
    """An expression of literals."""

    gives = Item[Any]()
    """Its value in JSON."""


class ForkOrigin(Answer):
    """The origin of a fork."""

    query = Item[str]()
    """The forked query, by its name at that time."""

    batch_id = Item[int | None]()
    """Its newest batch at that time; null: it had no commit, and the fork started from scratch."""

    committed_at = Item[datetime | None](moment)
    """Time of that commit."""


class FunctionShare(Answer):
    """A Python function that a query calls."""

    name = Item[str]()
    """Name of the function."""

    share = Item[float]()
    """Share of the ten seconds before the last commit that the query waited for the function; part of `tasks` or `reading` in `shares`."""


class Health(Answer):
    """The process is alive."""

    status = Item[Literal["ok"]]()
    """Always `ok`."""


class LateRecord(Answer):
    """A record that came too late, or whose table history had expired."""

    id = Item[int]()
    """Rises with every late record; replays use it."""

    input = Item[str]()
    """The operator that found it late."""

    reason = Item[str]()
    """Why it is here, as a code."""

    event_time_ms = Item[int]()
    """Its event time, in milliseconds since 1970."""

    stream_time_ms = Item[int | None]()
    """Stream time when it came."""

    offset = Item[int | None]()
    """Its offset, if it is a record of an input."""

    record = Item[Any]()
    """The record as the operator saw it, or an excerpt of it as text."""

    at = Item[datetime](moment)
    """Time when it was stored."""

    replayed_at = Item[datetime | None](moment)
    """Time of its last replay; null: never."""

    replay_id = Item[str | None]()
    """Its last replay; null: none."""


class LatenessBucket(Answer):
    """Records with a lateness above the previous bucket, up to and including ``up_to_ms``."""

    up_to_ms = Item[int | None]()
    """Null: no end."""

    count = Item[int]()
    """Number of records in it."""


class LineagePartition(Answer):
    """Progress of a query in one partition."""

    partition = Item[int]()
    """Number of the partition, from 0."""

    next_offset = Item[int | None]()
    """The next record to read; null before the first launch."""

    end_offset = Item[int]()
    """The partition's current end."""

    lag = Item[int]()
    """Records between the two."""

    read_to_ms = Item[int | None]()
    """Greatest event time read; null before the first record."""

    lag_s = Item[float | None]()
    """Newest event time in the partition minus the greatest one read, in seconds; 0 if everything is read; null if nothing is read yet."""


class LineageQuery(Answer):
    """A query."""

    name = Item[str]()
    """Name of the query."""

    state = Item[Literal["stopped", "starting", "running", "paused", "stopping", "backoff", "failed"]]()
    """Current state."""

    desired_state = Item[Literal["running", "paused", "stopped"]]()
    """The desired state."""

    tasks = Item[int]()
    """Number of its tasks."""

    internal = Item[bool]()
    """It materialises the rows of the source that it reads (`materialize`), and writes no relation of its own."""


class LineageRelation(Answer):
    """A stream or a table."""

    name = Item[str]()
    """Name of the relation."""

    kind = Item[Literal["stream", "table"]]()
    """Whether it is a stream or a table."""

    origin = Item[Literal["source", "derived"]]()
    """Registered by a user, or produced by a query."""

    feed = Item[str]()
    """The feed of its records, by its name in positions."""

    end_offsets = Item[dict[str, int] | None]()
    """Partition to the offset of the next record; null if only the driver can know it (files). A derived relation has one
    partition: its rows are numbered across the tasks of its query.
    """

    newest_ms = Item[int | None]()
    """Newest event time in the feed: for a source, of its records; for a derived relation, the event time of its sources that
    its newest row has reached. null: unknown.
    """


class LineageWrite(Answer):
    """An edge from a query to its result."""

    query = Item[str]()
    """The query that writes."""

    relation = Item[str]()
    """Its result."""

    end_offset = Item[int | None]()
    """Number of the next row."""

    reached_ms = Item[int | None]()
    """Progress of the query in the event time of its inputs: no later row has an earlier time. null before the first record."""


class LookupResult(Answer):
    """The result for one key."""

    found = Item[bool]()
    """Whether there is a row for the key."""

    reason = Item[Literal["row_not_found", "row_deleted", "history_expired"] | None]()
    """Why there is no row."""

    row = Item[dict[str, Any] | None]()
    """The row, as columns by name; null if there is none."""


class MeAnswer(Answer):
    """The caller's name, role and scope."""

    name = Item[str | None]()
    """Name of the API key, or of the token's subject as the history shows it; null where keys are not required."""

    role = Item[Literal["read", "write", "admin"]]()
    """What the caller may do; each role includes the ones before. `admin` where keys are not required."""

    scope = Item[tuple[str, ...] | None](tuple)
    """Patterns of the names that the caller may see; null: all."""

    key_required = Item[bool]()
    """Whether the service requires keys."""


class NewApiKeyAnswer(Answer):
    """A new key: the only answer that ever shows it."""

    name = Item[str]()
    """Who uses it."""

    prefix = Item[str]()
    """How the key begins: enough to tell keys apart."""

    role = Item[Literal["read", "write", "admin"]]()
    """What it may do; each role includes the ones before: `read`, `write`, `admin`."""

    scope = Item[tuple[str, ...] | None](tuple)
    """Patterns of the names that it may see; null: all."""

    created_at = Item[datetime](moment)
    """When it was created."""

    last_used_at = Item[datetime | None](moment)
    """To the minute; null: never."""

    expires_at = Item[datetime | None](moment)
    """When it expires; null: never."""

    revoked_at = Item[datetime | None](moment)
    """When it was revoked; null: it is not revoked."""

    key = Item[str]()
    """Store it now: only its digest is stored."""


class OverviewRead(Answer):
    """A relation that a query reads, and its progress there."""

    relation = Item[str]()
    """The relation that is read."""

    lag = Item[int | None]()
    """Unread records of its feed; null before the query's first commit, and for feeds outside the built-in log."""

    read_rows = Item[int | None]()
    """Records of its feed read since the query began with this state; null as `lag`. Relations of one feed share it."""


class OverviewRelation(Answer):
    """A stream or a table that one of the queries reads or writes."""

    name = Item[str]()
    """Name of the relation."""

    kind = Item[Literal["stream", "table"]]()
    """Whether it is a stream or a table."""

    origin = Item[Literal["source", "derived"]]()
    """Registered by a user, or produced by a query."""

    appended = Item[int | None]()
    """Records, or changes of rows, ever appended to its feed; null if unknown here (files, topics)."""


class PartitionProgress(Answer):
    """How far one partition of one feed has been read."""

    partition = Item[int]()
    """Number of the partition, from 0."""

    next_offset = Item[int]()
    """The next record to read; everything before is in the result."""

    end_offset = Item[int | None]()
    """The feed's current end; null if only the driver can know it (files)."""

    lag = Item[int | None]()
    """Records between the two."""

    begins_at = Item[int | None]()
    """Where reading began, if retention had removed the first records of the query: `records_lost` in `counters` has the
    number of lost records. Null: no record was lost.
    """

    open_records = Item[int]()
    """For a topic: offsets behind `end_offset` that open transactions hold back, as of at most ten seconds ago. The query
    reads them when these transactions end.
    """

    open_since = Item[datetime | None](moment)
    """Time since which an open transaction holds `end_offset` back; null: none does. After a minute the status has a `reason` for it."""


class PartitionRange(Answer):
    """The range of a partition of a log: offsets from ``start_offset`` up to, not including, ``next_offset``."""

    partition = Item[int]()
    """Number of the partition, from 0."""

    start_offset = Item[int]()
    """Offset of the oldest record."""

    next_offset = Item[int]()
    """Offset of the next record."""


class ProblemItem(Answer):
    """One fault of a definition."""

    pointer = Item[str]()
    """JSON pointer into the definition."""

    code = Item[str]()
    """Stable code; `GET /v1/errors/{code}` explains it."""

    detail = Item[str]()
    """What is wrong and what to do about it."""

    type = Item[str | None]()
    """URL of the explanation of the code, relative to the service."""


class PseudoColumnItem(Answer):
    """A pseudo-column."""

    form = Item[str]()
    """Its form in expressions."""

    type = Item[str]()
    """Type of its values."""

    description = Item[str]()
    """Its meaning, and the relations that have it."""


class Quantiles(Answer):
    """Lateness in milliseconds that this share of the records does not exceed; null before the first record."""

    p50 = Item[int | None]()
    """Half of the records."""

    p90 = Item[int | None]()
    """90 % of them."""

    p99 = Item[int | None]()
    """99 % of them."""

    p999 = Item[int | None]()
    """99.9 % of them."""


class Readiness(Answer):
    """Dependencies of the service, and their states."""

    status = Item[Literal["ready", "not_ready"]]()
    """Always `ready` with status 200; otherwise the answer is 503."""

    checks = Item[dict[str, str]]()
    """`database`, the `schema`'s version, `driver`: ready, starting, failing or none."""


class Reason(Answer):
    """Why a query is not in its desired state, and what can be done about it."""

    code = Item[str]()
    """Stable code of the reason; `GET /v1/errors/{code}` explains error codes."""

    detail = Item[str]()
    """The obstacle, and what to do about it."""


class RecordPlace(Answer):
    """Place of a record in the feed of its relation."""

    partition = Item[int]()
    """Number of the partition, from 0."""

    offset = Item[int]()
    """Offset in it."""

    part = Item[str | None]()
    """The part of the stream that has it, if queries append to the stream; null: the relation's own log. `partition` and
    `offset` are of the part: give its name as `part=`.
    """


class RecordsAnswer(Answer):
    """Records of one partition of a stream, or of a derived stream as a whole."""

    stream = Item[str]()
    """Name of the stream."""

    part = Item[str | None]()
    """The part of the stream that these records are from; null: its own log."""

    parts = Item[tuple[str, ...]](tuple)
    """Results that queries append to the stream; read each with `part=`. `/changes` has all records together."""

    partition = Item[int | None]()
    """Null if a derived stream is read as a whole."""

    partition_count = Item[int | None]()
    """Number of partitions of the stream, from 0; each is read separately. Null if a derived stream is read as a whole."""

    records = Item[tuple[dict[str, Any], ...]](tuple)
    """Records in offset order."""

    next_offset = Item[int]()
    """Offset to continue at."""

    end_offset = Item[int]()
    """Current end of the partition, or of the whole stream."""

    position = Item[dict[str, dict[str, int]]]()
    """Feed, partition, next offset: what a derived stream includes; empty for a source."""

    stream_time_ms = Item[int | None]()
    """Stream time of its query as of the last commit, in milliseconds since 1970; null for a source, and before the first record."""

    committed_at = Item[datetime | None](moment)
    """Time of its query's last commit; null for a source, and before the first commit."""

    stale = Item[bool]()
    """True while its query does not run; false for a source."""


class RefusedReplay(Answer):
    """A late record that cannot be replayed."""

    id = Item[int]()
    """Id of the late record."""

    code = Item[Literal["replay_not_possible", "record_cut"]]()
    """Why it cannot be replayed, as a code; `GET /v1/errors/{code}` explains it."""

    detail = Item[str]()
    """Why it cannot be replayed."""


class Reject(Answer):
    """A record that could not be read."""

    id = Item[int]()
    """Rises with every reject of the service."""

    partition = Item[int | None]()
    """Its partition in the feed; null if it never entered the feed."""

    offset = Item[int | None]()
    """Its offset in the feed; null if it never entered the feed."""

    reason = Item[str]()
    """Why it was rejected, as a code; `GET /v1/errors/{code}` explains it."""

    detail = Item[str]()
    """What is wrong with it."""

    excerpt = Item[str | None]()
    """Its first characters; null if it is from a file and the key is not an admin's, or from a feed that also has relations
    outside of the key's scope.
    """

    at = Item[datetime](moment)
    """Time of the rejection."""


class RejectedRecord(Answer):
    """A record that was not appended."""

    index = Item[int]()
    """Its index in the request, from 0."""

    code = Item[str]()
    """Stable code of the reason; `GET /v1/errors/{code}` explains it."""

    detail = Item[str]()
    """What is wrong with the record."""


class ResultColumn(Answer):
    """A column of a result."""

    name = Item[str]()
    """Its name."""

    type = Item[str]()
    """Its type."""


class RetainedCommitAnswer(Answer):
    """A retained commit."""

    batch_id = Item[int]()
    """Number of its batch."""

    committed_at = Item[datetime](moment)
    """When it was committed."""

    position = Item[dict[str, dict[str, int]]]()
    """Feed to partition to the next offset: the input of its results."""

    stream_time_ms = Item[int | None]()
    """Stream time: milliseconds since 1970; null before the first record."""

    of_launch = Item[bool]()
    """Whether a launch continued from it, as after each edit."""

    can_rewind = Item[bool]()
    """Whether no obstacle to a rewind to this commit is known."""

    obstacle = Item[str | None]()
    """The obstacle; null: none is known."""


class RowsAnswer(Answer):
    """Rows of a table."""

    table = Item[str]()
    """Name of the table."""

    position = Item[dict[str, dict[str, int]]]()
    """Feed, partition, next offset: the records that this includes."""

    stream_time_ms = Item[int | None]()
    """Stream time of its query as of the last commit, in milliseconds since 1970; null before the first record."""

    committed_at = Item[str | None]()
    """Time of its query's last commit; null before the first commit."""

    stale = Item[bool]()
    """True while the query does not run."""

    as_of_ms = Item[int | None]()
    """The requested event time; null for now."""

    history_starts_at_ms = Item[int | None]()
    """Before this event time only a key's latest version can answer; null if the table is not versioned."""

    truncated = Item[bool]()
    """The requested range of versions begins before the retained history."""

    next = Item[str | None]()
    """Cursor of the next page; null on the last."""

    rows = Item[tuple[dict[str, Any], ...]](tuple)
    """Rows, or versions, as columns by name."""


class SettingItem(Answer):
    """A setting and its current value."""

    name = Item[str]()
    """Name, with dots between its parts."""

    variable = Item[str]()
    """The environment variable that sets it."""

    value = Item[str]()
    """Value; secrets are masked, and a setting without a value is empty."""

    origin = Item[Literal["environment", "default", "command line"]]()
    """Where the value comes from."""


class Shares(Answer):
    """Shares of the last ten seconds that a query's batches used, by kind of work."""

    reading = Item[float]()
    """Read its records, validate them, and distribute them to its tasks."""

    tasks = Item[float]()
    """Work of its tasks."""

    commit = Item[float]()
    """Write its results."""

    other_queries = Item[float]()
    """Its slot did other work before the query's next batch could begin: batches of other queries, and overhead."""

    busiest_task = Item[float | None]()
    """Share of the busiest task in the work of all tasks: with 4 tasks, 0.25 is even, and 0.9 means that few keys have most
    records. Null if fewer than two tasks had work.
    """


class SlowestPartition(Answer):
    """The partition that holds a query's stream time back (`clock: slowest`)."""

    feed = Item[str]()
    """Its feed, by its name in positions."""

    relations = Item[tuple[str, ...]](tuple)
    """The query's relations that read it."""

    partition = Item[int]()
    """Its number; 0 of a derived relation, which counts as one partition."""

    stream_time_ms = Item[int]()
    """The greatest event time read of it."""

    behind_ms = Item[int]()
    """How far that is behind the partition that is furthest."""

    since = Item[datetime](moment)
    """Time since which it is the slowest one, by the clock of the service."""


class TableFunctionItem(Answer):
    """A function that makes rows."""

    form = Item[str]()
    """Its form in expressions."""

    result = Item[str]()
    """Type of the value in each row."""

    description = Item[str]()
    """Which rows it makes."""


class TypeItem(Answer):
    """A type of columns."""

    form = Item[str]()
    """Its form in definitions."""

    description = Item[str]()
    """Its values."""

    example = Item[Any]()
    """A value in JSON."""


class Version(Answer):
    """Versions of the service."""

    version = Item[str]()
    """Version of the service."""

    python = Item[str]()
    """Version of Python."""

    api = Item[Literal["v1"]]()
    """Version of the HTTP API, the first part of paths."""


class WaitingSpan(Answer):
    """Records or windows that wait, at times from ``from_ms`` to ``to_ms``, both inclusive."""

    from_ms = Item[int]()
    """The earliest time: the event time of a record, or the end of a window."""

    to_ms = Item[int]()
    """The latest time."""

    at_least = Item[int]()
    """Lower bound of their number."""

    at_most = Item[int]()
    """Upper bound; the same if the number is exact."""


class WarningItem(Answer):
    """A fact about an accepted definition that may surprise its author."""

    pointer = Item[str]()
    """JSON pointer of the definition's field that could be changed."""

    code = Item[str]()
    """Stable code; `GET /v1/errors/{code}` explains it."""

    detail = Item[str]()
    """What happens."""

    cure = Item[str]()
    """What to do if that is not intended."""

    type = Item[str]()
    """URL of the explanation of the code, relative to the service."""


class AcceptedAnswer(Answer):
    """A stored desired state; the status shows when the query has reached it."""

    name = Item[str]()
    """Name of the query."""

    desired_state = Item[Literal["running", "paused", "stopped"]]()
    """The desired state."""

    state = Item[Literal["stopped", "starting", "running", "paused", "stopping", "backoff", "failed"]]()
    """Current state."""

    generation = Item[int]()
    """Rises when the definition changes."""

    version = Item[int]()
    """Rises with every write; the ETag."""

    status = Item[str]()
    """URL of the status."""

    warnings = Item[tuple[WarningItem, ...]](many(WarningItem))
    """`waiting_for_place`: the desired state waits for a driver."""


class AggregateItem(Answer):
    """An aggregate."""

    name = Item[str]()
    """Name of the aggregate."""

    form = Item[str]()
    """Its form in expressions."""

    aliases = Item[tuple[str, ...]](tuple)
    """Other names of it."""

    argument = Item[str]()
    """Its argument."""

    result = Item[str]()
    """Type of its result."""

    description = Item[str]()
    """What it returns."""

    over_tables = Item[bool]()
    """It also works over a table's rows: it can undo a change of a row."""

    example = Item[AggregateExampleItem](AggregateExampleItem)
    """A call with its result."""


class ApiKeyPage(Answer):
    """A page of keys."""

    items = Item[tuple[ApiKeyAnswer, ...]](many(ApiKeyAnswer))
    """Keys, with revoked ones."""

    next = Item[str | None]()
    """Cursor of the next page; null on the last."""


class AppendAnswer(Answer):
    """The result of an append request."""

    appended = Item[int]()
    """Number of appended records."""

    offsets = Item[tuple[AppendedRange, ...]](many(AppendedRange))
    """Their offsets, by partition; empty if none was appended."""

    rejected_count = Item[int]()
    """Number of rejected records."""

    rejected = Item[tuple[RejectedRecord, ...]](many(RejectedRecord))
    """The first thousand rejected records."""

    older_count = Item[int]()
    """For change events: number of events left out, because a newer change of the key, or the same one, came before."""

    warnings = Item[tuple[WarningItem, ...]](many(WarningItem))
    """`event_times_before_1990`: the event times of all appended records are before 1990, as happens if seconds are read as
    milliseconds.
    """


class AuditEntry(Answer):
    """One change, or one request that was denied for lack of a role or a scope."""

    id = Item[int]()
    """Rises with every entry."""

    at = Item[datetime](moment)
    """When the change was made or denied."""

    actor = Item[AuditActor](AuditActor)
    """Who made the request."""

    request_id = Item[str | None]()
    """Also in the answer's X-Request-Id and in the service's log; null: a command, or an entry for counted denials."""

    action = Item[str]()
    """`create`, `replace`, `delete`, `set_desired_state`, `restart`, `replay`, `rewind`, `revoke`, `check`; for a denied
    request the method and the route.
    """

    resource = Item[AuditResource](AuditResource)
    """The resource of the request."""

    outcome = Item[Literal["done", "refused"]]()
    """Whether the request was carried out, or denied for lack of a role or a scope."""

    code = Item[str | None]()
    """Error code of the denial."""

    repeats = Item[int]()
    """Equal denials (the same caller, route, name and code) that this entry counts besides its own: there is one entry a
    minute. If a caller is denied for more than 30 names a minute, one entry without a name counts the rest.
    """

    before = Item[dict[str, Any] | None]()
    """The resource before; null: it did not exist."""

    after = Item[dict[str, Any] | None]()
    """The resource after; null: it was deleted."""


class ChangesAnswer(Answer):
    """A page of changes."""

    name = Item[str]()
    """Name of the relation."""

    phase = Item[Literal["snapshot", "changes"]]()
    """`snapshot` until all rows of the snapshot are sent."""

    changes = Item[tuple[Change, ...]](many(Change))
    """Rows of the snapshot, or changes; empty if there is nothing new."""

    next = Item[str]()
    """Cursor to continue with, now or later; the same as an event's id."""

    caught_up = Item[bool]()
    """The page reached the end of the log when it was read."""


class CommitsAnswer(Answer):
    """The retained commits of a query."""

    items = Item[tuple[RetainedCommitAnswer, ...]](many(RetainedCommitAnswer))
    """Newest first."""

    newest = Item[CommitPlace | None](CommitPlace)
    """The newest commit; null: there is none yet."""

    obstacle = Item[str | None]()
    """The present obstacle to any rewind; null: there is none."""


class ComparedItem(Answer):
    """What carrying a definition, or a statement, out would do."""

    index = Item[int]()
    """Its place among the definitions that were sent, from 0."""

    statement = Item[str | None]()
    """Of `sql`: the statement, with the values of its variables; null of others."""

    properties = Item[dict[str, str]]()
    """Of `sql`: what SET has said before the statement."""

    kind = Item[Literal["stream", "table", "query"] | None]()
    """What it defines; null where it cannot be read."""

    name = Item[str | None]()
    """Its name; null where it cannot be read."""

    action = Item[Literal["create", "no_op", "in_place", "repartition", "needs_new_state"] | None]()
    """`no_op`: it is there, and equal. Of the others see `edit` of `/v1/validations`. null: it cannot be read as far as that."""

    definition = Item[dict[str, Any] | None]()
    """With every default spelled out; null where it cannot be read."""

    changes = Item[tuple[EditChange, ...]](many(EditChange))
    """What differs from what is there; empty for `create` and `no_op`."""

    effects = Item[tuple[EditEffect, ...]](many(EditEffect))
    """What an edit in place would release, close or remove, as of the last commit; estimates are bounds."""

    problems = Item[tuple[ProblemItem, ...]](many(ProblemItem))
    """Why it would be refused; empty: it would not."""

    warnings = Item[tuple[WarningItem, ...]](many(WarningItem))
    """What may surprise of it; empty for `no_op`."""


class ConnectionPage(Answer):
    """A page of connections."""

    items = Item[tuple[ConnectionAnswer, ...]](many(ConnectionAnswer))
    """Connections, by name."""

    next = Item[str | None]()
    """Cursor of the next page; null on the last."""


class Delivery(Answer):
    """Progress of the delivery of a query's results (`into.connector`)."""

    id = Item[str]()
    """Id of the delivery in the target; a new one begins if the target or the result changes."""

    type = Item[str]()
    """Of the target."""

    state = Item[Literal["delivering", "waiting", "stopped"]]()
    """`delivering`: new rows are delivered. `waiting`: the target accepts nothing now, or there is no driver; the service
    retries. `stopped`: a retry cannot help, or the query is stopped.
    """

    since = Item[datetime](moment)
    """Start of this state."""

    reason = Item[DeliveryTrouble | None](DeliveryTrouble)
    """Why it is not delivering; null: it is."""

    position = Item[int]()
    """Number of the next row to deliver."""

    end_position = Item[int]()
    """Number after the result's last row."""

    lag_rows = Item[int]()
    """Rows that are not delivered yet."""

    lag_ms = Item[int | None]()
    """Event time by which the target is behind the result; null: nothing is delivered yet."""

    delivered_rows = Item[int]()
    """Rows delivered since the delivery began."""

    delivered_at = Item[datetime | None](moment)
    """Time of the last delivery; null: not yet."""

    failures = Item[int]()
    """Failed attempts since the delivery began."""

    attempt = Item[int]()
    """Failed attempts in a row."""

    next_attempt_at = Item[datetime | None](moment)
    """Time of the next attempt after a failure."""


class EditPreview(Answer):
    """The effect of a PUT of this definition on the query of that name."""

    kind = Item[Literal["no_op", "in_place", "repartition", "needs_new_state"]]()
    """`repartition`: in place, and the next launch divides the state among another number of tasks."""

    generation = Item[int]()
    """Generation of the stored definition."""

    changes = Item[tuple[EditChange, ...]](many(EditChange))
    """The differing parts; empty for `no_op`."""

    effects = Item[tuple[EditEffect, ...]](many(EditEffect))
    """For an edit in place: effects with the next record, or at once with `?flush=now`. As of the last commit; estimates are bounds."""

    committed_at = Item[datetime | None](moment)
    """Time of the commit that the numbers are from; null: there is none yet."""


class ErrorList(Answer):
    """Every code of an error."""

    items = Item[tuple[ErrorItem, ...]](many(ErrorItem))
    """By code."""


class EventPage(Answer):
    """Events, oldest first; ``next`` resumes behind the last one."""

    items = Item[tuple[Event, ...]](many(Event))
    """Events, oldest first."""

    next = Item[str | None]()
    """Cursor of the next page; null on the last."""


class ExplainStep(Answer):
    """The explanation of one part of the query."""

    code = Item[
        Literal[
            "passed",
            "no_record",
            "not_read_yet",
            "rejected",
            "filtered",
            "late",
            "buffered_until",
            "window_open_until",
            "expired",
            "no_version",
            "joined_version",
            "final",
            "shown",
            "unknown",
        ]
    ]()
    """`no_record`: no record with this key and time was read, or it was removed. `not_read_yet`: in the feed, after the
    query's position. `rejected`: refused by its relation. `filtered`: fails a condition. `late`: arrived too late, or would
    now. `buffered_until`, `window_open_until`: waits until the clock reaches `until_ms`. `expired`, `no_version`,
    `joined_version`: result of the join. `final`: the window's result does not change. `shown`: the row exists. `passed`:
    nothing blocks. `unknown`: see the sentence.
    """

    blocking = Item[bool]()
    """The record does not pass this step, or not yet."""

    sentence = Item[str]()
    """The same as a sentence."""

    kind = Item[str]()
    """`source`, `result`, or the operator's kind."""

    stage = Item[int]()
    """Stage of the plan."""

    operator = Item[str | None]()
    """The operator's name in clocks and counters."""

    task = Item[int | None]()
    """The task that has the key; null: not known."""

    clock = Item[Literal["stream_time", "table_time", "wall_clock"] | None]()
    """The clock that the record waits for: stream time, the table's time, or the wall clock; null: none."""

    now_ms = Item[int | None]()
    """Present value of that clock."""

    until_ms = Item[int | None]()
    """Value that the clock must reach."""

    version_ms = Item[int | None]()
    """Time of the version or row that is used."""

    next_version_ms = Item[int | None]()
    """When that version ends; null: it is the latest, or there is none."""

    reason = Item[str | None]()
    """A finer code: `grace`, `hold`, `late_dropped`, `deleted`, a reject's reason."""

    place = Item[RecordPlace | None](RecordPlace)
    """The record of this step."""


class FeedProgress(Answer):
    """Progress of a query in one feed."""

    feed = Item[str]()
    """The feed, by its name in positions."""

    relations = Item[tuple[str, ...]](tuple)
    """The query's relations that read it."""

    is_discovered = Item[bool]()
    """Whether its partitions are known. The driver discovers topics and files when a query first reads them; until then
    nothing counts as unread.
    """

    partitions = Item[tuple[PartitionProgress, ...]](many(PartitionProgress))
    """Each partition that the query has read or whose end is known."""


class ForkAnswer(Answer):
    """A fork as stored."""

    name = Item[str]()
    """Name of the query."""

    definition = Item[Any]()
    """As stored, with every default."""

    desired_state = Item[Literal["running", "paused", "stopped"]]()
    """The desired state."""

    state = Item[Literal["stopped", "starting", "running", "paused", "stopping", "backoff", "failed"]]()
    """Current state."""

    internal = Item[bool]()
    """It materialises the rows of a source (`materialize`) and follows that table's definition."""

    fork_of = Item[ForkOrigin | None](ForkOrigin)
    """The query that it is a fork of, and the commit; null: it is not a fork."""

    generation = Item[int]()
    """Rises when the definition changes."""

    version = Item[int]()
    """Rises with every write; the ETag."""

    created_at = Item[datetime](moment)
    """Time of creation."""

    updated_at = Item[datetime](moment)
    """Time of the last write of its definition or desired state."""

    warnings = Item[tuple[WarningItem, ...]](many(WarningItem))
    """Possible surprises of this definition; empty if there are none."""

    changes = Item[tuple[EditChange, ...]](many(EditChange))
    """Its differences from the original, except for the names; may be empty."""


class FunctionItem(Answer):
    """A scalar function."""

    name = Item[str]()
    """Name in expressions; letter case does not count."""

    arguments = Item[tuple[ArgumentItem, ...]](many(ArgumentItem))
    """Its arguments in order."""

    result = Item[str]()
    """Type of its result."""

    description = Item[str]()
    """What it returns."""

    examples = Item[tuple[ExpressionExample, ...]](many(ExpressionExample))
    """Calls with their results."""

    ksqldb = Item[tuple[str, ...]](tuple)
    """Its names in SQL, and in definitions of the dialect ksqldb."""


class InputLateness(Answer):
    """Lateness of the records of one input: how far each was behind stream time when it came."""

    input = Item[str]()
    """Its alias in the definition."""

    relation = Item[str]()
    """The relation that it reads."""

    kind = Item[Literal["stream", "table"]]()
    """Whether that is a stream or a table."""

    count = Item[int]()
    """Records measured since the query began with this state; records that are not late count too."""

    max_ms = Item[int]()
    """The greatest lateness."""

    quantiles = Item[Quantiles](Quantiles)
    """Lateness that most records do not exceed, in milliseconds."""

    buckets = Item[tuple[LatenessBucket, ...]](many(LatenessBucket))
    """Buckets that have records; their ends are 0, 1, 2, 5, 10 ms and so on up to a year."""


class LateRecordPage(Answer):
    """Late records, and their counts."""

    items = Item[tuple[LateRecord, ...]](many(LateRecord))
    """Stored late records, in the requested order."""

    next = Item[str | None]()
    """Cursor of the next page; null on the last."""

    counters = Item[tuple[Counter, ...]](many(Counter))
    """All counts of the query, by input and reason, of stored and other records."""


class LeasedQueryItem(Answer):
    """A query that a driver runs."""

    name = Item[str]()
    """Name of the query."""

    state = Item[Literal["stopped", "starting", "running", "paused", "stopping", "backoff", "failed"]]()
    """Current state."""

    internal = Item[bool]()
    """It materialises the rows of a source (`materialize`)."""

    committed_at = Item[datetime | None](moment)
    """Time of its last commit; null before the first commit."""

    execution = Item[Execution | None](Execution)
    """Kind of slot that ran its last batch, and why; null before the first batch."""


class LineageRead(Answer):
    """An edge from a relation to a query that reads it."""

    relation = Item[str]()
    """The relation that is read."""

    query = Item[str]()
    """The query that reads it."""

    partitions = Item[tuple[LineagePartition, ...]](many(LineagePartition))
    """Empty if the feed's ends are unknown (files)."""

    lag = Item[int | None]()
    """Unread records; null if unknown (files)."""

    lag_s = Item[float | None]()
    """Lag of the query in seconds of event time: the greatest over the partitions; 0 if everything is read; null if unknown:
    for files, and if a partition has records and none of them is read.
    """


class LookupAnswer(Answer):
    """One result for each key, in order."""

    table = Item[str]()
    """Name of the table."""

    position = Item[dict[str, dict[str, int]]]()
    """Feed, partition, next offset: the records that this includes."""

    stream_time_ms = Item[int | None]()
    """Stream time of its query as of the last commit, in milliseconds since 1970; null before the first record."""

    committed_at = Item[str | None]()
    """Time of its query's last commit; null before the first commit."""

    stale = Item[bool]()
    """True while the query does not run."""

    as_of_ms = Item[int | None]()
    """The requested event time; null for now."""

    history_starts_at_ms = Item[int | None]()
    """Before this event time only a key's latest version can answer; null if the table is not versioned."""

    results = Item[tuple[LookupResult, ...]](many(LookupResult))
    """One for each key, in the order of the keys."""


class NearRecord(Answer):
    """A record of the same key with another time."""

    event_time_ms = Item[int]()
    """Its event time, in milliseconds since 1970."""

    place = Item[RecordPlace](RecordPlace)
    """Place of the record."""

    is_read = Item[bool]()
    """Whether the query has read it."""


class OneQueryAnswer(Answer):
    """A query, and its equivalent in SQL."""

    name = Item[str]()
    """Name of the query."""

    definition = Item[Any]()
    """As stored, with every default."""

    desired_state = Item[Literal["running", "paused", "stopped"]]()
    """The desired state."""

    state = Item[Literal["stopped", "starting", "running", "paused", "stopping", "backoff", "failed"]]()
    """Current state."""

    internal = Item[bool]()
    """It materialises the rows of a source (`materialize`) and follows that table's definition."""

    fork_of = Item[ForkOrigin | None](ForkOrigin)
    """The query that it is a fork of, and the commit; null: it is not a fork."""

    generation = Item[int]()
    """Rises when the definition changes."""

    version = Item[int]()
    """Rises with every write; the ETag."""

    created_at = Item[datetime](moment)
    """Time of creation."""

    updated_at = Item[datetime](moment)
    """Time of the last write of its definition or desired state."""

    sql = Item[str]()
    """The statement equivalent to the definition."""

    statement = Item[str | None]()
    """The original text of the statement that made it; null if JSON made it, or has changed it since."""


class OperatorItem(Answer):
    """A form of expression other than a call."""

    form = Item[str]()
    """Its form; parts in […] may be omitted."""

    result = Item[str]()
    """Type of its result."""

    description = Item[str]()
    """What it returns."""

    examples = Item[tuple[ExpressionExample, ...]](many(ExpressionExample))
    """Expressions with their results."""


class OverviewDelivery(Answer):
    """The delivery of a query's results (`into.connector`)."""

    state = Item[Literal["delivering", "waiting", "stopped"]]()
    """As in the query's status."""

    reason = Item[DeliveryTrouble | None](DeliveryTrouble)
    """Why it is not delivering; null: it is."""

    lag_rows = Item[int]()
    """Rows that are not delivered yet."""


class QueryAnswer(Answer):
    """A query: its definition as stored and its desired state."""

    name = Item[str]()
    """Name of the query."""

    definition = Item[Any]()
    """As stored, with every default."""

    desired_state = Item[Literal["running", "paused", "stopped"]]()
    """The desired state."""

    state = Item[Literal["stopped", "starting", "running", "paused", "stopping", "backoff", "failed"]]()
    """Current state."""

    internal = Item[bool]()
    """It materialises the rows of a source (`materialize`) and follows that table's definition."""

    fork_of = Item[ForkOrigin | None](ForkOrigin)
    """The query that it is a fork of, and the commit; null: it is not a fork."""

    generation = Item[int]()
    """Rises when the definition changes."""

    version = Item[int]()
    """Rises with every write; the ETag."""

    created_at = Item[datetime](moment)
    """Time of creation."""

    updated_at = Item[datetime](moment)
    """Time of the last write of its definition or desired state."""


class QueryError(Answer):
    """The error of a query that failed or is retried."""

    code = Item[str]()
    """Stable code; `GET /v1/errors/{code}` explains it."""

    detail = Item[str]()
    """What happened and what to do."""

    domain = Item[Literal["user", "external", "internal"] | None]()
    """Who can fix it."""

    retryable = Item[bool | None]()
    """Whether the next launch may succeed without a change."""

    errors = Item[tuple[ProblemItem, ...] | None](many(ProblemItem))
    """The faults of an invalid definition."""


class RegisteredAnswer(Answer):
    """A stream or a table as it was registered."""

    name = Item[str]()
    """Name; streams and tables share one namespace."""

    kind = Item[Literal["stream", "table"]]()
    """Whether it is a stream or a table."""

    origin = Item[Literal["source", "derived"]]()
    """Registered by a user, or produced by a query."""

    key = Item[tuple[str, ...]](tuple)
    """Key columns; may be empty for a stream."""

    columns = Item[dict[str, str]]()
    """Columns and types, in order."""

    definition = Item[Any]()
    """A source's definition as stored, with every default; null for a result."""

    produced_by = Item[str | None]()
    """The query that writes it; null for a source, and for a result that outlived its query."""

    read_by = Item[tuple[str, ...]](tuple)
    """Queries that read it."""

    parts = Item[tuple[str, ...]](tuple)
    """Streams whose records are records of this one too: results of queries with `into.append_to`. Followers of this stream
    receive them; `/records` reads each by its offsets (`part=`); a query that reads this stream reads all, merged by event
    time.
    """

    append_to = Item[str | None]()
    """The stream that it is a part of; null: of none."""

    read_only = Item[bool]()
    """Another system fills it (`CREATE SOURCE …`): appends are refused, and no query may append to it."""

    partitions = Item[tuple[PartitionRange, ...] | None](many(PartitionRange))
    """Range of each partition of its log; null without a log of its own."""

    version = Item[int]()
    """Rises with every write; the ETag."""

    created_at = Item[datetime](moment)
    """Time of creation."""

    updated_at = Item[datetime](moment)
    """Time of the last write of its definition."""

    warnings = Item[tuple[WarningItem, ...]](many(WarningItem))
    """Possible surprises of this definition; empty if there are none."""

    sql = Item[str]()
    """The equivalent statement."""


class RejectPage(Answer):
    """Rejects, newest first."""

    items = Item[tuple[Reject, ...]](many(Reject))
    """Rejects, newest first."""

    next = Item[str | None]()
    """Cursor of the next page; null on the last."""

    kept = Item[dict[str, int]]()
    """Reason to number of stored rejects."""


class RelationAnswer(Answer):
    """A stream or a table."""

    name = Item[str]()
    """Name; streams and tables share one namespace."""

    kind = Item[Literal["stream", "table"]]()
    """Whether it is a stream or a table."""

    origin = Item[Literal["source", "derived"]]()
    """Registered by a user, or produced by a query."""

    key = Item[tuple[str, ...]](tuple)
    """Key columns; may be empty for a stream."""

    columns = Item[dict[str, str]]()
    """Columns and types, in order."""

    definition = Item[Any]()
    """A source's definition as stored, with every default; null for a result."""

    produced_by = Item[str | None]()
    """The query that writes it; null for a source, and for a result that outlived its query."""

    read_by = Item[tuple[str, ...]](tuple)
    """Queries that read it."""

    parts = Item[tuple[str, ...]](tuple)
    """Streams whose records are records of this one too: results of queries with `into.append_to`. Followers of this stream
    receive them; `/records` reads each by its offsets (`part=`); a query that reads this stream reads all, merged by event
    time.
    """

    append_to = Item[str | None]()
    """The stream that it is a part of; null: of none."""

    read_only = Item[bool]()
    """Another system fills it (`CREATE SOURCE …`): appends are refused, and no query may append to it."""

    partitions = Item[tuple[PartitionRange, ...] | None](many(PartitionRange))
    """Range of each partition of its log; null without a log of its own."""

    version = Item[int]()
    """Rises with every write; the ETag."""

    created_at = Item[datetime](moment)
    """Time of creation."""

    updated_at = Item[datetime](moment)
    """Time of the last write of its definition."""


class ReplayAnswer(Answer):
    """A replay that was accepted; the query's next batch includes it."""

    replay_id = Item[str | None]()
    """Null if all records were replayed before."""

    accepted = Item[int]()
    """Records that go through the query again."""

    already_replayed = Item[int]()
    """Records left out because they were replayed before."""

    refused_count = Item[int]()
    """Number of records that cannot be replayed."""

    refused = Item[tuple[RefusedReplay, ...]](many(RefusedReplay))
    """The first hundred records that cannot be replayed."""

    position = Item[dict[str, dict[str, int]]]()
    """The query's position when these records are in its result; usable as `min_position`."""

    more = Item[bool]()
    """More records match the filter: repeat the request."""


class RewindAnswer(Answer):
    """A query after a rewind, as it is stored now."""

    name = Item[str]()
    """Name of the query."""

    definition = Item[Any]()
    """As stored, with every default."""

    desired_state = Item[Literal["running", "paused", "stopped"]]()
    """The desired state."""

    state = Item[Literal["stopped", "starting", "running", "paused", "stopping", "backoff", "failed"]]()
    """Current state."""

    internal = Item[bool]()
    """It materialises the rows of a source (`materialize`) and follows that table's definition."""

    fork_of = Item[ForkOrigin | None](ForkOrigin)
    """The query that it is a fork of, and the commit; null: it is not a fork."""

    generation = Item[int]()
    """Rises when the definition changes."""

    version = Item[int]()
    """Rises with every write; the ETag."""

    created_at = Item[datetime](moment)
    """Time of creation."""

    updated_at = Item[datetime](moment)
    """Time of the last write of its definition or desired state."""

    warnings = Item[tuple[WarningItem, ...]](many(WarningItem))
    """Possible surprises of this definition; empty if there are none."""

    before = Item[CommitPlace](CommitPlace)
    """Its newest commit before the rewind."""

    after = Item[CommitPlace](CommitPlace)
    """Its newest commit after the rewind."""

    removed_rows = Item[int]()
    """Number of removed records of the resulting stream, or changes of the resulting table."""

    changes = Item[tuple[EditChange, ...]](many(EditChange))
    """The differences of the new definition."""

    dry_run = Item[bool]()
    """True: nothing was changed; the answer shows what would be."""


class SettingAdvice(Answer):
    """A setting of the query, or of a table that it reads, and the effect of other values."""

    pointer = Item[str]()
    """JSON pointer into the definition."""

    relation = Item[str | None]()
    """The table whose definition `pointer` refers to; null: the query's."""

    operator = Item[str | None]()
    """The join or aggregation that decides which records are late."""

    input = Item[str | None]()
    """The input whose records are measured; null: results of earlier operators."""

    rule = Item[str]()
    """Code of the rule that decides."""

    current_ms = Item[int | None]()
    """The current value, in milliseconds; null: none is set."""

    count = Item[int]()
    """Records measured."""

    exact = Item[bool]()
    """False: a session may still include some of the records that count as late."""

    advice = Item[tuple[AdviceItem, ...]](many(AdviceItem))
    """Values from 0 up to the first with no late record, and the current one."""


class SettingsAnswer(Answer):
    """Every setting of this service."""

    settings = Item[tuple[SettingItem, ...]](many(SettingItem))
    """All settings, in the order of `slackwater config show`."""


class StatementResult(Answer):
    """The outcome of one statement."""

    statement = Item[str]()
    """The statement, with the values of its variables."""

    line = Item[int]()
    """Its first line in the script, counted from 1."""

    kind = Item[Literal["done", "rows", "inserted"]]()
    """`done`: a definition was registered, created, changed or removed; `rows`: there are columns and rows; `inserted`:
    records were appended.
    """

    message = Item[str]()
    """What was done, in a sentence; for rows, their number."""

    relation = Item[str | None]()
    """The stream or table that it made, changed or removed, by its name in paths."""

    query = Item[str | None]()
    """The query that it made, changed or removed."""

    definition = Item[dict[str, Any] | None]()
    """The equivalent definition, as JSON."""

    columns = Item[tuple[ResultColumn, ...] | None](many(ResultColumn))
    """For rows: the columns in order."""

    rows = Item[tuple[tuple[Any, ...], ...] | None](many(tuple))
    """For rows: the values of each, in the order of the columns."""

    position = Item[dict[str, Any] | None]()
    """For a SELECT from a table: the position of the table."""

    notes = Item[tuple[str, ...]](tuple)
    """How the statement was understood where it was ambiguous."""

    warnings = Item[tuple[WarningItem, ...]](many(WarningItem))
    """Possible surprises of the definition."""


class StoredQueryAnswer(Answer):
    """A stored query with its warnings."""

    name = Item[str]()
    """Name of the query."""

    definition = Item[Any]()
    """As stored, with every default."""

    desired_state = Item[Literal["running", "paused", "stopped"]]()
    """The desired state."""

    state = Item[Literal["stopped", "starting", "running", "paused", "stopping", "backoff", "failed"]]()
    """Current state."""

    internal = Item[bool]()
    """It materialises the rows of a source (`materialize`) and follows that table's definition."""

    fork_of = Item[ForkOrigin | None](ForkOrigin)
    """The query that it is a fork of, and the commit; null: it is not a fork."""

    generation = Item[int]()
    """Rises when the definition changes."""

    version = Item[int]()
    """Rises with every write; the ETag."""

    created_at = Item[datetime](moment)
    """Time of creation."""

    updated_at = Item[datetime](moment)
    """Time of the last write of its definition or desired state."""

    warnings = Item[tuple[WarningItem, ...]](many(WarningItem))
    """Possible surprises of this definition; empty if there are none."""


class TaskStatus(Answer):
    """What waits in one task of an operator."""

    operator = Item[str]()
    """Name of the operator."""

    task = Item[int]()
    """Number of the task, from 0."""

    buffered = Item[int]()
    """Records that wait inside."""

    waiting = Item[tuple[WaitingSpan, ...]](many(WaitingSpan))
    """What waits, by time, in at most 16 spans; empty if nothing waits."""


class AuditPage(Answer):
    """A page of entries."""

    items = Item[tuple[AuditEntry, ...]](many(AuditEntry))
    """Entries, newest first."""

    next = Item[str | None]()
    """Cursor of the next page; null on the last."""


class ComparisonAnswer(Answer):
    """What carrying the definitions out would do, one after the other."""

    items = Item[tuple[ComparedItem, ...]](many(ComparedItem))
    """In an order in which they can be carried out, what is depended on first; what cannot be read last."""


class DriverItem(Answer):
    """A process that runs queries."""

    id = Item[str]()
    """Id of the process, new after each start; launches of queries name it."""

    host = Item[str]()
    """The host that it runs on."""

    pid = Item[int]()
    """Process id on that host."""

    phase = Item[Literal["starting_jvm", "ready", "draining"]]()
    """`starting_jvm`: it starts its engine; `ready`: it takes queries; `draining`: it stops its queries and ends."""

    silent = Item[bool]()
    """Its last heartbeat is older than a lease (`SLACKWATER_DRIVER__LEASE_TTL_MS`): other drivers take its queries."""

    started_at = Item[datetime](moment)
    """Start of the process."""

    heartbeat_at = Item[datetime](moment)
    """Last heartbeat."""

    max_queries = Item[int]()
    """Limit of queries, internal ones not counted."""

    queries = Item[tuple[LeasedQueryItem, ...]](many(LeasedQueryItem))
    """The queries that it runs, by name."""


class ExplainAnswer(Answer):
    """Why there is no row yet for a key and a time, or why it is this one."""

    query = Item[str]()
    """Name of the query."""

    key = Item[dict[str, str]]()
    """The values of the question, by the columns' names in the query."""

    key_columns = Item[tuple[str, ...]](tuple)
    """The columns of the query's key, which `key=` gives. For a composite key use `key.<column>=`."""

    at_ms = Item[int]()
    """The event time of the question, in milliseconds since 1970."""

    answer = Item[ExplainStep](ExplainStep)
    """The step `no_record` if nothing is known about this key and time; else the first step that blocks, else the most informative one."""

    steps = Item[tuple[ExplainStep, ...]](many(ExplainStep))
    """In the order of the query, up to the first that blocks."""

    nearest = Item[tuple[NearRecord, ...]](many(NearRecord))
    """If the first input has no record with this key and time: the last one before it and the first one after it. Otherwise,
    and if its feed cannot be searched, empty.
    """

    position = Item[dict[str, dict[str, int]]]()
    """The query's position at its last commit."""

    stream_time_ms = Item[int | None]()
    """Stream time as of the last commit, in milliseconds since 1970; null before the first record."""

    committed_at = Item[datetime | None](moment)
    """When the query last committed; null before the first commit."""

    stale = Item[bool]()
    """True while the query does not run."""


class FunctionsAnswer(Answer):
    """Everything that expressions of definitions can use."""

    functions = Item[tuple[FunctionItem, ...]](many(FunctionItem))
    """Scalar functions."""

    table_functions = Item[tuple[TableFunctionItem, ...]](many(TableFunctionItem))
    """Functions that make rows, in `select`."""

    pseudo_columns = Item[tuple[PseudoColumnItem, ...]](many(PseudoColumnItem))
    """Values that expressions can read but that are not columns of a record."""

    aggregates = Item[tuple[AggregateItem, ...]](many(AggregateItem))
    """Aggregates, for `aggregate` and `having`."""

    operators = Item[tuple[OperatorItem, ...]](many(OperatorItem))
    """Forms other than calls."""

    types = Item[tuple[TypeItem, ...]](many(TypeItem))
    """Types of columns, and of CAST."""


class LatenessAnswer(Answer):
    """The lateness of records, and what it means for graces and history retentions."""

    query = Item[str]()
    """Name of the query."""

    inputs = Item[tuple[InputLateness, ...]](many(InputLateness))
    """How late the records of each input come."""

    settings = Item[tuple[SettingAdvice, ...]](many(SettingAdvice))
    """The effect of graces and history retentions on these records."""

    committed_at = Item[datetime | None](moment)
    """The commit to which the answer refers; null before the first."""

    stale = Item[bool]()
    """True while the query does not run."""


class LineageAnswer(Answer):
    """What a relation is made of, and what is made of it."""

    name = Item[str]()
    """The requested relation."""

    kind = Item[Literal["stream", "table"]]()
    """Whether it is a stream or a table."""

    relations = Item[tuple[LineageRelation, ...]](many(LineageRelation))
    """Relations, each after those that it is made of."""

    queries = Item[tuple[LineageQuery, ...]](many(LineageQuery))
    """Queries between them, each after those whose results it reads."""

    reads = Item[tuple[LineageRead, ...]](many(LineageRead))
    """Edges from relations to the queries that read them."""

    writes = Item[tuple[LineageWrite, ...]](many(LineageWrite))
    """Edges from queries to their results."""

    truncated = Item[bool]()
    """The graph has more items; the nearest are here. Ask for a relation further away."""

    withheld = Item[bool]()
    """The graph has items outside of the key's scope. Relations outside of it are left out, and queries that read or write them."""


class OverviewQuery(Answer):
    """A query in the overview."""

    name = Item[str]()
    """Name of the query."""

    state = Item[Literal["stopped", "starting", "running", "paused", "stopping", "backoff", "failed"]]()
    """Current state."""

    phase = Item[str | None]()
    """Step inside its state, as in its status."""

    desired_state = Item[Literal["running", "paused", "stopped"]]()
    """The desired state."""

    conditions = Item[tuple[str, ...]](tuple)
    """`unreachable`, `unplaced`, `stale`, as in its status. The conditions `waits_for_…` are in the status only: they need its inputs."""

    reason = Item[Reason | None](Reason)
    """Its error, or why it has no driver; null: neither."""

    state_since = Item[datetime](moment)
    """Start of this state."""

    internal = Item[bool]()
    """It materialises the rows of a source (`materialize`) and follows that table's definition."""

    batch_id = Item[int | None]()
    """Number of the last committed batch; null before the first."""

    committed_at = Item[datetime | None](moment)
    """Time of its last commit; null before the first commit."""

    stream_time_ms = Item[int | None]()
    """Stream time as of the last commit: milliseconds since 1970; null before the first record."""

    batch_ms = Item[int | None]()
    """Milliseconds of its last batch: work of its tasks, and the commit; null before the first."""

    read_rows = Item[int]()
    """Records read since the query began with this state."""

    emitted_rows = Item[int]()
    """Records or changes of rows written since then."""

    lag = Item[int | None]()
    """Unread records; null before its first commit, and if the ends of its feeds are unknown (files)."""

    waiting = Item[int]()
    """Records that wait in all operators and tasks."""

    late = Item[int]()
    """Records that came too late, whatever became of them, since it began with this state."""

    reads = Item[tuple[OverviewRead, ...]](many(OverviewRead))
    """The relations that it reads, by name."""

    writes = Item[str | None]()
    """The relation that it writes; null if it writes none of its own."""

    fork_of = Item[str | None]()
    """The query that it is a fork of, by its current name; null: it is not a fork, or the original is deleted."""

    delivery = Item[OverviewDelivery | None](OverviewDelivery)
    """Delivery of its results; null: they are not delivered."""


class QueryPage(Answer):
    """A page of queries, by name."""

    items = Item[tuple[QueryAnswer, ...]](many(QueryAnswer))
    """Queries, by name."""

    next = Item[str | None]()
    """Cursor of the next page; null on the last."""


class RelationPage(Answer):
    """A page of streams or tables, by name."""

    items = Item[tuple[RelationAnswer, ...]](many(RelationAnswer))
    """Streams or tables, by name."""

    next = Item[str | None]()
    """Cursor of the next page; null on the last."""


class Run(Answer):
    """One launch of a query."""

    epoch = Item[int]()
    """Number of the launch."""

    generation = Item[int]()
    """Generation of its definition."""

    driver_id = Item[str | None]()
    """The driver that launched it; null: unknown."""

    started_at = Item[datetime](moment)
    """Start of the launch."""

    running_at = Item[datetime | None](moment)
    """Time when it was running; null: not yet, or never."""

    ended_at = Item[datetime | None](moment)
    """End of the launch; null: it has not ended."""

    end_reason = Item[str | None]()
    """Why it ended, as a code; null: it has not ended."""

    error = Item[QueryError | None](QueryError)
    """The error that ended it."""


class StatementsAnswer(Answer):
    """The outcomes of the statements."""

    results = Item[tuple[StatementResult, ...]](many(StatementResult))
    """One for each statement, in order."""


class StatusAnswer(Answer):
    """The status of a query."""

    name = Item[str]()
    """Name of the query."""

    state = Item[Literal["stopped", "starting", "running", "paused", "stopping", "backoff", "failed"]]()
    """Current state."""

    phase = Item[str | None]()
    """Step inside its state. `starting`: `queued`, `fencing`, `planning`, `restoring`; `running`, until the first commit:
    `preparing` (Spark sets up the query's processes), `first_batch` (the first batch is under way).
    """

    desired_state = Item[Literal["running", "paused", "stopped"]]()
    """The desired state."""

    conditions = Item[tuple[str, ...]](tuple)
    """`unreachable`: its driver sends no heartbeat; `unplaced`: it needs a driver and has none; `stale`: it does not follow
    its inputs now; `waits_for_producer`: it runs, and leaves records unread until the query that writes another of its
    inputs has reached the same event time; `waits_for_transaction`: it runs, and a transaction in a topic that it reads is
    open for more than a minute; `slow_function`: it runs and does not keep up, and one Python function takes more than half
    of its working time.
    """

    reason = Item[Reason | None](Reason)
    """Why it is not in its desired state: its error; no driver, or no driver with room; or the query or transaction that it
    waits for, with the delay and what can be done (`waits_for_producer`, `waits_for_transaction`); or the Python function
    that takes most of its time (`slow_function`).
    """

    state_since = Item[datetime](moment)
    """Start of this state."""

    generation = Item[int]()
    """Rises when the definition changes."""

    observed_generation = Item[int]()
    """The generation that the driver runs; 0 before the first start."""

    epoch = Item[int]()
    """Number of the launch."""

    attempt = Item[int]()
    """Failed launches in a row; 0 after it has run without failure for a while."""

    next_attempt_at = Item[datetime | None](moment)
    """Time of the next launch after a failure; null: no launch is due."""

    heartbeat_at = Item[datetime | None](moment)
    """Last heartbeat of its driver; null: no driver has run it."""

    error = Item[QueryError | None](QueryError)
    """Why it failed, or why it is retried."""

    batch_id = Item[int | None]()
    """Number of the last committed batch; null before the first."""

    committed_at = Item[datetime | None](moment)
    """Time of its last commit; null before the first commit."""

    stream_time_ms = Item[int | None]()
    """Stream time as of the last commit: milliseconds since 1970; null before the first record."""

    progress = Item[tuple[FeedProgress, ...]](many(FeedProgress))
    """Progress in each feed that it reads."""

    read_rows = Item[int]()
    """Records read since the query began with this state."""

    emitted_rows = Item[int]()
    """Records or changes of rows written in the same time."""

    clocks = Item[dict[str, int]]()
    """Operator to the stream time before it, one for all tasks; `<operator>.table`: the time of its table. Behind an operator
    that waits, time is as much less as it waits (`waits_ms` of the plan).
    """

    slowest_partition = Item[SlowestPartition | None](SlowestPartition)
    """With `clock: slowest`, the partition that holds stream time back, as of the last commit; null: none is behind another,
    or the query's clock is `fastest`. A partition that has been at its end for `idle.after` does not count.
    """

    buffered = Item[dict[str, int]]()
    """Operator to number of records that wait in it."""

    tasks = Item[tuple[TaskStatus, ...] | None](many(TaskStatus))
    """What waits in each task, as of the last commit; null unless `tasks=true` asks for it."""

    counters = Item[tuple[Counter, ...]](many(Counter))
    """Counts of its inputs and operators, by reason."""

    execution = Item[Execution | None](Execution)
    """Kind of slot that ran its last batch, and why; null before the first batch."""

    limited_by = Item[
        Literal["input", "reading", "tasks", "commit", "other_queries", "upstream", "unmeasured", "paused", "not_running"]
    ]()
    """What limits its rate. The first that applies: `paused`, `not_running`: its state; `upstream`: it leaves records unread
    until the query that writes another of its inputs has reached the same event time; `unmeasured`: it has no commit yet,
    or has worked at one batch for more than ten seconds; `input`: it waits for records for a fifth of the time or more, so
    it keeps up; otherwise the greatest of `shares`: `reading`, `tasks` (more `tasks` and cores help, unless `busiest_task`
    is near 1), `commit` (the database), `other_queries` (more drivers help).
    """

    shares = Item[Shares](Shares)
    """How its time is used."""

    functions = Item[tuple[FunctionShare, ...]](many(FunctionShare))
    """The Python functions that it called in the last ten seconds, the slowest first; empty if it called none."""

    delivery = Item[Delivery | None](Delivery)
    """Progress of the delivery of its results; null: they are not delivered (`into.connector`)."""

    restorable_since = Item[datetime | None](moment)
    """A database restored from a dump since this time finds all state of the query; null: from any dump. State of older dumps
    is removed (`SLACKWATER_STATE_RETENTION`, `SLACKWATER_STATE_RETAINED_BYTES`).
    """


class ValidationAnswer(Answer):
    """The result of a validation."""

    valid = Item[bool]()
    """Whether it would be accepted."""

    problems = Item[tuple[ProblemItem, ...]](many(ProblemItem))
    """All faults; empty if it is valid."""

    warnings = Item[tuple[WarningItem, ...]](many(WarningItem))
    """Warnings about a valid definition; may be empty."""

    definition = Item[Any]()
    """With every default; null if it could not be read."""

    sql = Item[str | None]()
    """The same as an SQL statement; null if it is not valid."""

    output = Item[dict[str, Any] | None]()
    """The relation it would produce."""

    plan = Item[dict[str, Any] | None]()
    """Inputs, stages and operators."""

    edit = Item[EditPreview | None](EditPreview)
    """The edit of the stored query; null if no query has this name."""


class DriversAnswer(Answer):
    """The drivers, and the queries that wait for one."""

    drivers = Item[tuple[DriverItem, ...]](many(DriverItem))
    """Every driver, the oldest first."""

    waiting = Item[tuple[str, ...]](tuple)
    """Queries that need a driver and have none; the status of each says why."""


class OverviewAnswer(Answer):
    """An overview of all queries."""

    at = Item[datetime](moment)
    """Time of the answer."""

    queries = Item[tuple[OverviewQuery, ...]](many(OverviewQuery))
    """Queries, by name."""

    relations = Item[tuple[OverviewRelation, ...]](many(OverviewRelation))
    """What they read and write, by name."""

    next = Item[str | None]()
    """Cursor of the next page; null on the last."""


class RunPage(Answer):
    """Launches, newest first."""

    items = Item[tuple[Run, ...]](many(Run))
    """Launches, newest first."""

    next = Item[str | None]()
    """Cursor of the next page; null on the last."""
