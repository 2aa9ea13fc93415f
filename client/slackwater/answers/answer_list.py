"""Every answer of the service, read from its OpenAPI document. Made by `make client`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from slackwater.answers.answer import Answer, Item, many, moment


class AdviceItem(Answer):
    """What one value would have done to the records measured."""

    value_ms = Item[int]()
    """The value, in milliseconds."""

    late_count = Item[int]()
    """Records that would have been late."""

    late_share = Item[float]()
    """Of all records measured, from 0 to 1."""

    added_wait_ms = Item[int]()
    """How much longer than with 0 a result waits, in event time."""

    exact = Item[bool]()
    """False: at most so many; the value lies inside a bucket."""

    current = Item[bool]()
    """The value in force."""


class AggregateExampleItem(Answer):
    """An aggregate of some values."""

    call = Item[str]()
    """The aggregate."""

    values = Item[tuple[Any, ...]](tuple)
    """The values of x in a group, in order."""

    gives = Item[Any]()
    """The result as JSON shows it."""


class ApiKeyAnswer(Answer):
    """A key, without its secret part."""

    name = Item[str]()
    """Who uses it."""

    prefix = Item[str]()
    """How the key begins: enough to tell it from others."""

    role = Item[Literal["read", "write", "admin"]]()
    """What it may do; each role includes the ones before: `read`, `write`, `admin`."""

    scope = Item[tuple[str, ...] | None](tuple)
    """Patterns of the names that it may see; null: all."""

    created_at = Item[datetime](moment)
    """When it was made."""

    last_used_at = Item[datetime | None](moment)
    """To the minute; null: never."""

    expires_at = Item[datetime | None](moment)
    """When it ceases to count; null: never."""

    revoked_at = Item[datetime | None](moment)
    """When it was revoked; null: it was not."""


class AppendedRange(Answer):
    """Where appended records went: ``count`` consecutive offsets of one partition."""

    partition = Item[int]()
    """Number of the partition, from 0."""

    first_offset = Item[int]()
    """Offset of the first of them."""

    last_offset = Item[int]()
    """Offset of the last of them."""

    count = Item[int]()
    """How many they are."""


class ArgumentItem(Answer):
    """One argument of a function."""

    name = Item[str]()
    """What it is called here."""

    type = Item[str]()
    """What it may be."""

    optional = Item[bool]()
    """It may be left out."""

    repeated = Item[bool]()
    """Any number of them."""


class AuditActor(Answer):
    """Who did it."""

    type = Item[Literal["api_key", "oidc", "cli", "anonymous"]]()
    """`cli`: somebody on the service's machine; `anonymous`: the service asked for no keys."""

    name = Item[str]()
    """Name of the key, subject of the token, or name of the machine's user."""

    id = Item[str | None]()
    """Id of the key: names can be given again."""


class AuditResource(Answer):
    """What it was done to."""

    type = Item[Literal["stream", "table", "query", "api_key", "connection"] | None]()
    """null: the route names none."""

    name = Item[str | None]()
    """Its name; null: the route names none."""


class Change(Answer):
    """One change, or one row of a snapshot."""

    kind = Item[Literal["change", "snapshot"]]()
    """`snapshot`: a row as it is; `change`: what happened to one, or a record."""

    op = Item[Literal["upsert", "delete", "append"]]()
    """`append` in a stream."""

    partition = Item[int | None]()
    """Where in the log; null for a row of a snapshot."""

    sequence = Item[int | None]()
    """Number of the change over all partitions of a derived relation; absent for those of a source."""

    part = Item[str | None]()
    """The part of the stream that has the record, where a query appends it; absent: the stream's own log."""

    offset = Item[int | None]()
    """Its place in the partition; null for a row of a snapshot."""

    event_time_ms = Item[int]()
    """Result time. A versioned table's fold keeps the greatest of a key, deletes included."""

    key = Item[dict[str, Any]]()
    """The key, as columns by name; empty where a stream has none."""

    row = Item[dict[str, Any] | None]()
    """Null for a delete."""


class CheckAnswer(Answer):
    """What trying a connection gave."""

    outcome = Item[Literal["reached", "not_reached"]]()
    """Whether the other side answered, and accepted who asks."""

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
    `SLACKWATER_CONNECTION_HOSTS`; `not_allowed`: the other side knows who asks and refuses to show what was asked for.
    """

    detail = Item[str]()
    """What was reached, or what is wrong and what to do."""

    took_ms = Item[int]()
    """How long it took."""


class CommitPlace(Answer):
    """A commit of a query."""

    batch_id = Item[int]()
    """Its number."""

    committed_at = Item[datetime](moment)
    """When it was made."""

    position = Item[dict[str, dict[str, int]]]()
    """Feed to partition to the next offset: what its results include."""

    stream_time_ms = Item[int | None]()
    """Stream time: milliseconds since 1970; null before the first record."""


class ConnectionAnswer(Answer):
    """A connection, without the values of its secrets."""

    name = Item[str]()
    """Its name; connectors name it."""

    type = Item[Literal["kafka", "registry", "s3", "postgres"]]()
    """Which kind."""

    definition = Item[dict[str, Any]]()
    """As stored, every default spelled out. In the place of a secret that was given as a value stands `{"set": true}`; `env:`
    and `file:` are shown.
    """

    version = Item[int]()
    """Rises with every change; the ETag."""

    created_at = Item[datetime](moment)
    """When it was made."""

    updated_at = Item[datetime](moment)
    """When it was changed last."""


class Counter(Answer):
    """How often something happened at one input or operator since the query began with this state."""

    input = Item[str]()
    """Alias of the input, or name of the operator."""

    reason = Item[str]()
    """What happened, as a code."""

    count = Item[int]()
    """How often."""


class DebeziumToken(Answer):
    """What Debezium sends with each request."""

    jwt = Item[str]()
    """The key that was given."""

    jwt_refresh_token = Item[str]()
    """The same."""

    expires_in = Item[int]()
    """Milliseconds."""

    refresh_token_expires_in = Item[int]()
    """Milliseconds."""


class DeliveryTrouble(Answer):
    """Why nothing is delivered."""

    code = Item[str]()
    """Stable code; `GET /v1/errors/{code}` explains it."""

    detail = Item[str]()
    """What happened."""

    cure = Item[str]()
    """What helps."""

    at = Item[datetime | None](moment)
    """When it was last found; null: it is so at this moment."""


class EditChange(Answer):
    """One part of a definition that differs from the one in force."""

    pointer = Item[str]()
    """JSON pointer of the part."""

    kind = Item[Literal["in_place", "repartition", "needs_new_state"]]()
    """What the change asks for: nothing more, another sharing out of the state, or new state."""

    reason = Item[str]()
    """What becomes of what is held, or why that cannot be used."""


class EditEffect(Answer):
    """What the edit does to what is there."""

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
    """Where; null: in the results or the late records."""

    at_least = Item[int]()
    """To how many records, rows or windows at least."""

    at_most = Item[int]()
    """To how many at most."""

    from_ms = Item[int | None]()
    """The earliest time concerned: event times of records and versions, ends of windows; of a hold the wall clock."""

    to_ms = Item[int | None]()
    """The latest one."""


class ErrorItem(Answer):
    """One code of an error."""

    code = Item[str]()
    """Stable snake_case code."""

    kind = Item[Literal["request", "definition", "statement", "record", "query", "warning"]]()
    """`request`: of an answer. `definition`: of a field of a body. `statement`: of a statement of SQL. `record`: of a record
    that was refused. `query`: of a query that failed, is retried or waits. `warning`: of what was accepted and may still
    surprise.
    """

    status = Item[int | None]()
    """HTTP status of answers that carry it; null: it stands in a status."""

    title = Item[str]()
    """What the status means here."""

    retryable = Item[bool]()
    """Whether the same can succeed later without a change."""

    meaning = Item[str]()
    """What is wrong."""

    cure = Item[str]()
    """What to do."""


class Event(Answer):
    """Something that happened to a query."""

    id = Item[int]()
    """Rises with every event of the service."""

    at = Item[datetime](moment)
    """When it happened."""

    kind = Item[str]()
    """What happened."""

    from_state = Item[str | None]()
    """State before; null where the state did not change."""

    to_state = Item[str | None]()
    """State after; null where the state did not change."""

    epoch = Item[int | None]()
    """Number of the launch that it belongs to; null: of none."""

    actor = Item[str]()
    """Who did it: `driver`, a key, `oidc:` and a name, or `api` where no key was asked for."""

    detail = Item[dict[str, Any] | None]()
    """More about it, by kind; null: nothing more."""


class Execution(Answer):
    """The execution slot that runs a query's batches."""

    mode = Item[Literal["shared", "dedicated", "isolated"]]()
    """`shared`: queries with low load share a slot. `dedicated`: the query's load is high (a batch of 10,000 records, one that
    left records unread, or 15 % of a core over ten seconds); it shares again after 30 seconds with less than 5 % and no
    such batch. `isolated`: it was at work when a worker died, and does its next batch alone.
    """

    is_waiting = Item[bool]()
    """Its load is high, and it shares a slot all the same: the driver has as many dedicated slots as it takes (eight, or two
    for each of its cores). It gets the next one that becomes free; meanwhile it gets a part of each scheduling cycle.
    """

    moves = Item[int]()
    """How often it has changed slots since its launch."""

    cpu_share = Item[float | None]()
    """What its batches took of one core over the ten seconds before the last commit: 0.15 is 15 %."""

    largest_batch = Item[int | None]()
    """Records of its largest batch in these seconds."""

    max_rows = Item[int | None]()
    """Its batches are cut to about so many records, since larger ones emitted too much at once; null: they are not."""

    deferred = Item[int]()
    """How many of its batches since its launch were deferred to the next scheduling cycle of its slot, since earlier batches
    had emitted as much as a cycle may (64 MiB). A large number means that queries which share its slot emit much.
    """


class ExpressionExample(Answer):
    """An expression and what it gives."""

    expression = Item[str]()
    """An expression of literals."""

    gives = Item[Any]()
    """Its value as JSON shows it."""


class ForkOrigin(Answer):
    """What a fork has gone on from."""

    query = Item[str]()
    """The query that was forked, by its name then."""

    batch_id = Item[int | None]()
    """Its newest batch then; null: it had committed none, and the fork started from scratch."""

    committed_at = Item[datetime | None](moment)
    """When it had committed that."""


class FunctionShare(Answer):
    """A Python function that a query calls."""

    name = Item[str]()
    """Name of the function."""

    share = Item[float]()
    """Share of the ten seconds before the last commit that the query waited for it; part of `tasks` or `reading` in `shares`."""


class Health(Answer):
    """Alive."""

    status = Item[Literal["ok"]]()
    """Always `ok`: the process answers."""


class LateRecord(Answer):
    """A record that came too late, or met expired history."""

    id = Item[int]()
    """Rises with every late record; what a replay names."""

    input = Item[str]()
    """The operator that judged it."""

    reason = Item[str]()
    """Why it is here, as a code."""

    event_time_ms = Item[int]()
    """Its event time, in milliseconds since 1970."""

    stream_time_ms = Item[int | None]()
    """Stream time when it came."""

    offset = Item[int | None]()
    """Its offset, where it is a record of an input."""

    record = Item[Any]()
    """The record as the operator saw it, or an excerpt of it as text."""

    at = Item[datetime](moment)
    """When it was kept."""

    replayed_at = Item[datetime | None](moment)
    """When it was last handed to the query again; null: never."""

    replay_id = Item[str | None]()
    """The last replay that it was in; null: none."""


class LatenessBucket(Answer):
    """Records with a lateness above the bucket before, up to and with ``up_to_ms``."""

    up_to_ms = Item[int | None]()
    """Null: no end."""

    count = Item[int]()
    """Number of records in it."""


class LineagePartition(Answer):
    """How far a query has read one partition."""

    partition = Item[int]()
    """Number of the partition, from 0."""

    next_offset = Item[int | None]()
    """The next record to read; null before the first launch."""

    end_offset = Item[int]()
    """The partition's present end."""

    lag = Item[int]()
    """Records between the two."""

    read_to_ms = Item[int | None]()
    """Greatest event time read; null before the first record."""

    lag_s = Item[float | None]()
    """Newest event time in the partition minus the greatest one read, in seconds; 0 when everything is read; null where
    nothing is read yet.
    """


class LineageQuery(Answer):
    """A query."""

    name = Item[str]()
    """Name of the query."""

    state = Item[Literal["stopped", "starting", "running", "paused", "stopping", "backoff", "failed"]]()
    """What it is doing now."""

    desired_state = Item[Literal["running", "paused", "stopped"]]()
    """The desired state."""

    tasks = Item[int]()
    """Number of its tasks."""

    internal = Item[bool]()
    """It keeps the rows of the source it reads (`materialize`), and writes no relation of its own."""


class LineageRelation(Answer):
    """A stream or a table."""

    name = Item[str]()
    """Name of the relation."""

    kind = Item[Literal["stream", "table"]]()
    """Whether it is a stream or a table."""

    origin = Item[Literal["source", "derived"]]()
    """Registered by a user, or produced by a query."""

    feed = Item[str]()
    """Where its records are, as positions call it."""

    end_offsets = Item[dict[str, int] | None]()
    """Partition to the offset of the next record; null where only the driver can know (files). A derived relation has one
    partition: its rows are numbered across the tasks of its query.
    """

    newest_ms = Item[int | None]()
    """Newest event time in the feed: of a source its records' own, of a derived relation how far in the event time of its
    sources its newest row stands. null: none is known.
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
    """How far the query has come with its inputs, in event time: a further row never stands before it. null before the first record."""


class LookupResult(Answer):
    """What there is for one key."""

    found = Item[bool]()
    """Whether there is a row for the key."""

    reason = Item[Literal["row_not_found", "row_deleted", "history_expired"] | None]()
    """Why there is none."""

    row = Item[dict[str, Any] | None]()
    """The row, as columns by name; null where there is none."""


class MeAnswer(Answer):
    """Who asks, and what they may do."""

    name = Item[str | None]()
    """Name of the API key, or of the token's subject as the history shows it; null where keys are not asked for."""

    role = Item[Literal["read", "write", "admin"]]()
    """What they may do; each role includes the ones before. `admin` where keys are not asked for."""

    scope = Item[tuple[str, ...] | None](tuple)
    """Patterns of the names that they may see; null: all."""

    key_required = Item[bool]()
    """Whether the service asks for keys."""


class NewApiKeyAnswer(Answer):
    """A key that was just made: the only answer that ever shows it."""

    name = Item[str]()
    """Who uses it."""

    prefix = Item[str]()
    """How the key begins: enough to tell it from others."""

    role = Item[Literal["read", "write", "admin"]]()
    """What it may do; each role includes the ones before: `read`, `write`, `admin`."""

    scope = Item[tuple[str, ...] | None](tuple)
    """Patterns of the names that it may see; null: all."""

    created_at = Item[datetime](moment)
    """When it was made."""

    last_used_at = Item[datetime | None](moment)
    """To the minute; null: never."""

    expires_at = Item[datetime | None](moment)
    """When it ceases to count; null: never."""

    revoked_at = Item[datetime | None](moment)
    """When it was revoked; null: it was not."""

    key = Item[str]()
    """Keep it now: only its digest is stored."""


class OverviewRead(Answer):
    """A relation that a query reads, and how far."""

    relation = Item[str]()
    """The relation that is read."""

    lag = Item[int | None]()
    """Records of its feed that are not read yet; null before the query's first commit, and of what is not in the built-in log."""

    read_rows = Item[int | None]()
    """Records of its feed that were read since the query began with this state; null as `lag`. Relations of one feed share it."""


class OverviewRelation(Answer):
    """A stream or a table that one of the queries reads or writes."""

    name = Item[str]()
    """Name of the relation."""

    kind = Item[Literal["stream", "table"]]()
    """Whether it is a stream or a table."""

    origin = Item[Literal["source", "derived"]]()
    """Registered by a user, or produced by a query."""

    appended = Item[int | None]()
    """Records, or changes of rows, that its feed was ever given; null where that is not known here (files, topics)."""


class PartitionProgress(Answer):
    """How far one partition of one feed has been read."""

    partition = Item[int]()
    """Number of the partition, from 0."""

    next_offset = Item[int]()
    """The next record to read; everything before is in the result."""

    end_offset = Item[int | None]()
    """The feed's present end; null where only the driver can know (files)."""

    lag = Item[int | None]()
    """Records between the two."""

    begins_at = Item[int | None]()
    """Where reading began, because retention had removed what the query was to begin with: `records_lost` in `counters` says
    how many records that were. Null: nothing was gone.
    """

    open_records = Item[int]()
    """Of a topic: offsets behind `end_offset` that transactions hold back which have not ended, as found at most ten seconds
    ago. They are read when these end.
    """

    open_since = Item[datetime | None](moment)
    """Since when `end_offset` has stood still for such a transaction; null: for none. After a minute the status has a `reason` for it."""


class PartitionRange(Answer):
    """What a partition of a log holds: offsets from ``start_offset`` up to, not including, ``next_offset``."""

    partition = Item[int]()
    """Number of the partition, from 0."""

    start_offset = Item[int]()
    """Offset of the oldest record that is kept."""

    next_offset = Item[int]()
    """Offset that the next record gets."""


class ProblemItem(Answer):
    """One fault of a definition."""

    pointer = Item[str]()
    """JSON pointer into the definition."""

    code = Item[str]()
    """Stable code; `GET /v1/errors/{code}` explains it."""

    detail = Item[str]()
    """What is wrong and what to do about it."""

    type = Item[str | None]()
    """Where the code is explained, relative to the service."""


class PseudoColumnItem(Answer):
    """A pseudo-column."""

    form = Item[str]()
    """How it is written."""

    type = Item[str]()
    """Type of its values."""

    description = Item[str]()
    """What it says, and where there is one."""


class Quantiles(Answer):
    """A lateness in milliseconds that so many of the records do not exceed; null before the first record."""

    p50 = Item[int | None]()
    """Half of the records."""

    p90 = Item[int | None]()
    """90 % of them."""

    p99 = Item[int | None]()
    """99 % of them."""

    p999 = Item[int | None]()
    """99.9 % of them."""


class Readiness(Answer):
    """What the service needs, and whether it is there."""

    status = Item[Literal["ready", "not_ready"]]()
    """Always `ready` with status 200; what is not ready answers 503."""

    checks = Item[dict[str, str]]()
    """`database`, the `schema`'s version, `driver`: ready, starting, failing or none."""


class Reason(Answer):
    """What keeps a query from its desired state, and what can be done about it."""

    code = Item[str]()
    """Stable code of the reason; of an error `GET /v1/errors/{code}` explains it."""

    detail = Item[str]()
    """What is in the way, and what to do about it."""


class RecordPlace(Answer):
    """Where a record is in the feed of its relation."""

    partition = Item[int]()
    """Number of the partition, from 0."""

    offset = Item[int]()
    """Offset in it."""

    part = Item[str | None]()
    """The part of the stream that has it, where queries append to that; null: the relation's own log. `partition` and `offset`
    are the part's, and are asked for with `part=`.
    """


class RecordsAnswer(Answer):
    """Records of one partition of a stream, or of a derived stream as a whole."""

    stream = Item[str]()
    """Name of the stream."""

    part = Item[str | None]()
    """The part of the stream whose records these are; null: its own log's."""

    parts = Item[tuple[str, ...]](tuple)
    """What queries have appended to the stream, each to be read with `part=`; `/changes` has all records together."""

    partition = Item[int | None]()
    """Null where a derived stream is read as a whole."""

    partition_count = Item[int | None]()
    """How many partitions the stream has, from 0; each is read on its own. Null where a derived stream is read as a whole."""

    records = Item[tuple[dict[str, Any], ...]](tuple)
    """Records in offset order."""

    next_offset = Item[int]()
    """Where to go on."""

    end_offset = Item[int]()
    """Where the partition, or the whole, ends at present."""

    position = Item[dict[str, dict[str, int]]]()
    """Feed, partition, next offset: what a derived stream includes; empty for a source."""

    stream_time_ms = Item[int | None]()
    """Stream time of its query as of the last commit, in milliseconds since 1970; null of a source, and before the first record."""

    committed_at = Item[datetime | None](moment)
    """When its query last committed; null of a source, and before the first commit."""

    stale = Item[bool]()
    """True while its query does not run; false of a source."""


class RefusedReplay(Answer):
    """A late record that cannot be replayed."""

    id = Item[int]()
    """Id of the late record."""

    code = Item[Literal["replay_not_possible", "record_cut"]]()
    """Why it cannot, as a code; `GET /v1/errors/{code}` explains it."""

    detail = Item[str]()
    """Why it cannot."""


class Reject(Answer):
    """A record that could not be read."""

    id = Item[int]()
    """Rises with every reject of the service."""

    partition = Item[int | None]()
    """Its partition in the feed; null where it never entered one."""

    offset = Item[int | None]()
    """Its place in the feed; null where it never entered one."""

    reason = Item[str]()
    """Why it was refused, as a code; `GET /v1/errors/{code}` explains it."""

    detail = Item[str]()
    """What is wrong with it."""

    excerpt = Item[str | None]()
    """How it begins; null where it is from a file and the key is not an admin's, or from a feed that has relations outside of
    the key's scope.
    """

    at = Item[datetime](moment)
    """When it was refused."""


class RejectedRecord(Answer):
    """A record that was not appended."""

    index = Item[int]()
    """Its place in the request, from 0."""

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
    """A commit that is retained."""

    batch_id = Item[int]()
    """Its number."""

    committed_at = Item[datetime](moment)
    """When it was made."""

    position = Item[dict[str, dict[str, int]]]()
    """Feed to partition to the next offset: what its results include."""

    stream_time_ms = Item[int | None]()
    """Stream time: milliseconds since 1970; null before the first record."""

    of_launch = Item[bool]()
    """A launch went on from it, as after each edit."""

    can_rewind = Item[bool]()
    """Whether nothing is known to be in the way of going back to this very commit."""

    obstacle = Item[str | None]()
    """What is in the way; null: nothing is known to be."""


class RowsAnswer(Answer):
    """Rows of a table."""

    table = Item[str]()
    """Name of the table."""

    position = Item[dict[str, dict[str, int]]]()
    """Feed, partition, next offset: what this includes."""

    stream_time_ms = Item[int | None]()
    """Stream time of its query as of the last commit, in milliseconds since 1970; null before the first record."""

    committed_at = Item[str | None]()
    """When its query last committed; null before the first commit."""

    stale = Item[bool]()
    """True while the query does not run."""

    as_of_ms = Item[int | None]()
    """The event time asked for; null for now."""

    history_starts_at_ms = Item[int | None]()
    """Before this event time only a key's latest version can answer; null where the table is not versioned."""

    truncated = Item[bool]()
    """The range of versions asked for begins before the retained history."""

    next = Item[str | None]()
    """Cursor of the next page; null on the last."""

    rows = Item[tuple[dict[str, Any], ...]](tuple)
    """Rows, or versions, as columns by name."""


class SettingItem(Answer):
    """A setting as it is in force."""

    name = Item[str]()
    """Its name, with dots between its parts."""

    variable = Item[str]()
    """The environment variable that sets it."""

    value = Item[str]()
    """Its value; secrets are masked, and what is not set is empty."""

    origin = Item[Literal["environment", "default", "command line"]]()
    """Where the value comes from."""


class Shares(Answer):
    """Shares of the last ten seconds that a query's batches took, by what was done."""

    reading = Item[float]()
    """Its records were read, judged and shared out among its tasks."""

    tasks = Item[float]()
    """Its tasks worked."""

    commit = Item[float]()
    """Its results were written."""

    other_queries = Item[float]()
    """Its slot did something else before the query's next batch could begin: others' batches, and what each costs."""

    busiest_task = Item[float | None]()
    """Share of the busiest task in the work of all: with `tasks` of 4, 0.25 is even and 0.9 means that few keys have most
    records. Null where fewer than two had work.
    """


class TableFunctionItem(Answer):
    """A function that makes rows."""

    form = Item[str]()
    """How it is written."""

    result = Item[str]()
    """Type of what stands in each row."""

    description = Item[str]()
    """Which rows it makes."""


class TypeItem(Answer):
    """A type of columns."""

    form = Item[str]()
    """How it is written."""

    description = Item[str]()
    """What it holds."""

    example = Item[Any]()
    """A value as JSON shows it."""


class Version(Answer):
    """What runs here."""

    version = Item[str]()
    """Version of the service."""

    python = Item[str]()
    """Version of Python below it."""

    api = Item[Literal["v1"]]()
    """Version of the HTTP interface, as paths begin."""


class WaitingSpan(Answer):
    """Records or windows that wait, at times from ``from_ms`` to ``to_ms``, both inclusive."""

    from_ms = Item[int]()
    """The earliest time: of a record its event time, of a window its end."""

    to_ms = Item[int]()
    """The latest time."""

    at_least = Item[int]()
    """How many wait there at least."""

    at_most = Item[int]()
    """How many at most; the same where the number is exact."""


class WarningItem(Answer):
    """Something that was accepted and may still surprise."""

    pointer = Item[str]()
    """JSON pointer of the definition's field that could be changed."""

    code = Item[str]()
    """Stable code; `GET /v1/errors/{code}` explains it."""

    detail = Item[str]()
    """What happens."""

    cure = Item[str]()
    """What to do where that is not meant."""

    type = Item[str]()
    """Where the code is explained, relative to the service."""


class AcceptedAnswer(Answer):
    """A desired state that was stored; the status tells when the query has reached it."""

    name = Item[str]()
    """Name of the query."""

    desired_state = Item[Literal["running", "paused", "stopped"]]()
    """The desired state."""

    state = Item[Literal["stopped", "starting", "running", "paused", "stopping", "backoff", "failed"]]()
    """What it is doing now."""

    generation = Item[int]()
    """Rises when the definition changes."""

    version = Item[int]()
    """Rises with every write; the ETag."""

    status = Item[str]()
    """Where to look."""

    warnings = Item[tuple[WarningItem, ...]](many(WarningItem))
    """`waiting_for_place`: the desired state waits for a driver."""


class AggregateItem(Answer):
    """An aggregate."""

    name = Item[str]()
    """Which one it is."""

    form = Item[str]()
    """How it is written."""

    aliases = Item[tuple[str, ...]](tuple)
    """Other names of it."""

    argument = Item[str]()
    """What it takes."""

    result = Item[str]()
    """Type of its result."""

    description = Item[str]()
    """What it gives."""

    over_tables = Item[bool]()
    """It also works over a table's rows, whose changes have to be taken out again."""

    example = Item[AggregateExampleItem](AggregateExampleItem)
    """A call with its result."""


class ApiKeyPage(Answer):
    """A page of keys."""

    items = Item[tuple[ApiKeyAnswer, ...]](many(ApiKeyAnswer))
    """Keys, revoked ones too."""

    next = Item[str | None]()
    """Cursor of the next page; null on the last."""


class AppendAnswer(Answer):
    """What became of the records of one request."""

    appended = Item[int]()
    """Number of appended records."""

    offsets = Item[tuple[AppendedRange, ...]](many(AppendedRange))
    """Where they are, by partition; empty where none was appended."""

    rejected_count = Item[int]()
    """Number of refused records."""

    rejected = Item[tuple[RejectedRecord, ...]](many(RejectedRecord))
    """The refused records, the first thousand of them."""

    older_count = Item[int]()
    """Of change events: how many were left out, because a newer change of their key, or the same one, came before."""

    warnings = Item[tuple[WarningItem, ...]](many(WarningItem))
    """`event_times_before_1990`: the event times of all appended records lie before 1990, as seconds do that are read as milliseconds."""


class AuditEntry(Answer):
    """One change, or one request that was refused for want of a role or a scope."""

    id = Item[int]()
    """Rises with every entry."""

    at = Item[datetime](moment)
    """When it was done or refused."""

    actor = Item[AuditActor](AuditActor)
    """Who did it, or tried to."""

    request_id = Item[str | None]()
    """Also in the answer's X-Request-Id and in the service's log; null: a command, or refusals that were counted."""

    action = Item[str]()
    """`create`, `replace`, `delete`, `set_desired_state`, `restart`, `replay`, `rewind`, `revoke`, `check`; of what was
    refused the method and the route.
    """

    resource = Item[AuditResource](AuditResource)
    """What it was done to, or tried on."""

    outcome = Item[Literal["done", "refused"]]()
    """Whether it was done, or refused for want of a role or a scope."""

    code = Item[str | None]()
    """Of the refusal."""

    repeats = Item[int]()
    """Equal refusals (the same caller, route, name and code) that this entry counts beside its own: one a minute has an entry.
    Of a caller who is refused for many names, those beyond 30 a minute are counted in one entry without a name.
    """

    before = Item[dict[str, Any] | None]()
    """What it was; null where there was nothing."""

    after = Item[dict[str, Any] | None]()
    """What it is; null where it is gone."""


class ChangesAnswer(Answer):
    """A page of what changed."""

    name = Item[str]()
    """Name of the relation."""

    phase = Item[Literal["snapshot", "changes"]]()
    """`snapshot` until all rows of the snapshot were given."""

    changes = Item[tuple[Change, ...]](many(Change))
    """Rows of the snapshot, or changes; empty where there is nothing new."""

    next = Item[str]()
    """Cursor to go on with, now or later; the same as an event's id."""

    caught_up = Item[bool]()
    """There was nothing behind this page when it was read."""


class CommitsAnswer(Answer):
    """The retained commits of a query."""

    items = Item[tuple[RetainedCommitAnswer, ...]](many(RetainedCommitAnswer))
    """The newest first."""

    newest = Item[CommitPlace | None](CommitPlace)
    """What is committed now; null: nothing yet."""

    obstacle = Item[str | None]()
    """What is in the way of going back to any of them as things are now; null: nothing is."""


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
    """What an edit in place would let go, close or take away, as of the last commit; estimates are bounds."""

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
    """How far the query's results are delivered (`into.connector`)."""

    id = Item[str]()
    """What its target knows it by; another one begins where the target or the result changes."""

    type = Item[str]()
    """Of the target."""

    state = Item[Literal["delivering", "waiting", "stopped"]]()
    """`delivering`: what comes is delivered. `waiting`: the target takes nothing now, or no driver is there; it is tried again
    by itself. `stopped`: trying again cannot help, or the query is stopped.
    """

    since = Item[datetime](moment)
    """When it came into this state."""

    reason = Item[DeliveryTrouble | None](DeliveryTrouble)
    """Why it is not delivering; null: it is."""

    position = Item[int]()
    """Number of the result's row that is delivered next."""

    end_position = Item[int]()
    """Number behind the result's last row."""

    lag_rows = Item[int]()
    """Rows that are not delivered yet."""

    lag_ms = Item[int | None]()
    """By how much event time the target is behind the result; null: nothing was delivered yet."""

    delivered_rows = Item[int]()
    """Rows that were delivered since it began."""

    delivered_at = Item[datetime | None](moment)
    """When it last delivered something; null: not yet."""

    failures = Item[int]()
    """Attempts that failed since it began."""

    attempt = Item[int]()
    """Attempts that failed in a row."""

    next_attempt_at = Item[datetime | None](moment)
    """When it is tried again after a failure."""


class EditPreview(Answer):
    """What a PUT of this definition would do to the query of that name."""

    kind = Item[Literal["no_op", "in_place", "repartition", "needs_new_state"]]()
    """`repartition`: in place, and the next launch shares the state out among another number of tasks."""

    generation = Item[int]()
    """Of the definition in force."""

    changes = Item[tuple[EditChange, ...]](many(EditChange))
    """What differs; empty for `no_op`."""

    effects = Item[tuple[EditEffect, ...]](many(EditEffect))
    """Of an edit in place: with each task's next record, or at once with `?flush=now`. As of the last commit; estimates are bounds."""

    committed_at = Item[datetime | None](moment)
    """The commit that this is said of; null: there is none yet."""


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
    """What one part of the query says of the record."""

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
    """`no_record`: no record with this key and time was read, or none is there any more. `not_read_yet`: in the feed, behind
    the query's position. `rejected`: refused by its relation. `filtered`: fails a condition. `late`: came too late, or
    would now. `buffered_until`, `window_open_until`: waits until the clock reaches `until_ms`. `expired`, `no_version`,
    `joined_version`: what the join met. `final`: the window's last word. `shown`: the row is there. `passed`: nothing in
    the way. `unknown`: not known, and why.
    """

    blocking = Item[bool]()
    """Nothing gets past here, or not yet."""

    sentence = Item[str]()
    """The same for people to read."""

    kind = Item[str]()
    """`source`, `result`, or the operator's kind."""

    stage = Item[int]()
    """Stage of the plan."""

    operator = Item[str | None]()
    """Its name in clocks and counters."""

    task = Item[int | None]()
    """The task whose clock counts; null: the smallest clock of all tasks does."""

    clock = Item[Literal["stream_time", "table_time", "wall_clock"] | None]()
    """The clock that it waits for: stream time, the table's time, or the wall clock; null: it waits for none."""

    now_ms = Item[int | None]()
    """Where that clock is."""

    until_ms = Item[int | None]()
    """Where it must be."""

    version_ms = Item[int | None]()
    """Time of the version or row that answers."""

    next_version_ms = Item[int | None]()
    """When that version ends; null: it is the latest, or none answers."""

    reason = Item[str | None]()
    """A finer code: `grace`, `hold`, `late_dropped`, `deleted`, a reject's reason."""

    place = Item[RecordPlace | None](RecordPlace)
    """The record that this is about."""


class FeedProgress(Answer):
    """How far one feed has been read."""

    feed = Item[str]()
    """Where the records are, as positions call it."""

    relations = Item[tuple[str, ...]](tuple)
    """The query's relations that read it."""

    is_discovered = Item[bool]()
    """Whether anything is known of its partitions: topics and files are looked at when a query first reads them, and until
    then nothing counts as unread.
    """

    partitions = Item[tuple[PartitionProgress, ...]](many(PartitionProgress))
    """Each partition that has been read or has an end."""


class ForkAnswer(Answer):
    """A fork as it was stored."""

    name = Item[str]()
    """Name of the query."""

    definition = Item[Any]()
    """As stored, every default spelled out."""

    desired_state = Item[Literal["running", "paused", "stopped"]]()
    """The desired state."""

    state = Item[Literal["stopped", "starting", "running", "paused", "stopping", "backoff", "failed"]]()
    """What it is doing now."""

    internal = Item[bool]()
    """It keeps the rows of a source with `materialize` and follows that table's definition."""

    fork_of = Item[ForkOrigin | None](ForkOrigin)
    """Of which query it is a fork, and as of which commit; null: of none."""

    generation = Item[int]()
    """Rises when the definition changes."""

    version = Item[int]()
    """Rises with every write; the ETag."""

    created_at = Item[datetime](moment)
    """When it was made."""

    updated_at = Item[datetime](moment)
    """When its definition or its desired state was last written."""

    warnings = Item[tuple[WarningItem, ...]](many(WarningItem))
    """What may surprise of this definition; empty where nothing does."""

    changes = Item[tuple[EditChange, ...]](many(EditChange))
    """What it does otherwise than the original, beside the names; empty where it does the same."""


class FunctionItem(Answer):
    """A scalar function."""

    name = Item[str]()
    """As it is called; letter case does not count."""

    arguments = Item[tuple[ArgumentItem, ...]](many(ArgumentItem))
    """Its arguments in order."""

    result = Item[str]()
    """Type of its result."""

    description = Item[str]()
    """What it gives."""

    examples = Item[tuple[ExpressionExample, ...]](many(ExpressionExample))
    """Calls with their results."""

    ksqldb = Item[tuple[str, ...]](tuple)
    """Its names in SQL, and in definitions of the dialect ksqldb."""


class InputLateness(Answer):
    """How late one input's records come: how far each is behind the greatest event time that its task had read of this input."""

    input = Item[str]()
    """Its alias in the definition."""

    relation = Item[str]()
    """The relation that it reads."""

    kind = Item[Literal["stream", "table"]]()
    """Whether that is a stream or a table."""

    count = Item[int]()
    """Records measured since the query began with this state; 0 late counts too."""

    max_ms = Item[int]()
    """The greatest lateness."""

    quantiles = Item[Quantiles](Quantiles)
    """Latenesses that most records do not exceed, in milliseconds."""

    buckets = Item[tuple[LatenessBucket, ...]](many(LatenessBucket))
    """Buckets that hold records; ends are 0, 1, 2, 5, 10 ms and so on up to a year."""


class LateRecordPage(Answer):
    """Late records, and how many there were."""

    items = Item[tuple[LateRecord, ...]](many(LateRecord))
    """Kept late records, in the order asked for."""

    next = Item[str | None]()
    """Cursor of the next page; null on the last."""

    counters = Item[tuple[Counter, ...]](many(Counter))
    """Everything that was counted for the query, by input and reason; kept or not."""


class LeasedQueryItem(Answer):
    """A query that a driver has."""

    name = Item[str]()
    """Name of the query."""

    state = Item[Literal["stopped", "starting", "running", "paused", "stopping", "backoff", "failed"]]()
    """What it is doing now."""

    internal = Item[bool]()
    """It keeps the rows of a source with `materialize`."""

    committed_at = Item[datetime | None](moment)
    """When it last committed; null before the first commit."""

    execution = Item[Execution | None](Execution)
    """Which kind of slot ran its last batch, and why; null before the first."""


class LineageRead(Answer):
    """An edge from a relation to a query that reads it."""

    relation = Item[str]()
    """The relation that is read."""

    query = Item[str]()
    """The query that reads it."""

    partitions = Item[tuple[LineagePartition, ...]](many(LineagePartition))
    """Empty where the feed's ends are not known (files)."""

    lag = Item[int | None]()
    """Unread records; null where that is not known (files)."""

    lag_s = Item[float | None]()
    """How far the query is behind, in seconds of event time: the greatest over the partitions; 0 when everything is read; null
    where it is not known: of files, and where a partition has records and none of them is read.
    """


class LookupAnswer(Answer):
    """One result for each key, in their order."""

    table = Item[str]()
    """Name of the table."""

    position = Item[dict[str, dict[str, int]]]()
    """Feed, partition, next offset: what this includes."""

    stream_time_ms = Item[int | None]()
    """Stream time of its query as of the last commit, in milliseconds since 1970; null before the first record."""

    committed_at = Item[str | None]()
    """When its query last committed; null before the first commit."""

    stale = Item[bool]()
    """True while the query does not run."""

    as_of_ms = Item[int | None]()
    """The event time asked for; null for now."""

    history_starts_at_ms = Item[int | None]()
    """Before this event time only a key's latest version can answer; null where the table is not versioned."""

    results = Item[tuple[LookupResult, ...]](many(LookupResult))
    """One for each key, in the order of the keys."""


class NearRecord(Answer):
    """A record of the same key with another time."""

    event_time_ms = Item[int]()
    """Its event time, in milliseconds since 1970."""

    place = Item[RecordPlace](RecordPlace)
    """Where it is."""

    is_read = Item[bool]()
    """Whether the query has read it."""


class OneQueryAnswer(Answer):
    """A query, and the same in SQL."""

    name = Item[str]()
    """Name of the query."""

    definition = Item[Any]()
    """As stored, every default spelled out."""

    desired_state = Item[Literal["running", "paused", "stopped"]]()
    """The desired state."""

    state = Item[Literal["stopped", "starting", "running", "paused", "stopping", "backoff", "failed"]]()
    """What it is doing now."""

    internal = Item[bool]()
    """It keeps the rows of a source with `materialize` and follows that table's definition."""

    fork_of = Item[ForkOrigin | None](ForkOrigin)
    """Of which query it is a fork, and as of which commit; null: of none."""

    generation = Item[int]()
    """Rises when the definition changes."""

    version = Item[int]()
    """Rises with every write; the ETag."""

    created_at = Item[datetime](moment)
    """When it was made."""

    updated_at = Item[datetime](moment)
    """When its definition or its desired state was last written."""

    sql = Item[str]()
    """The statement that the definition stands for; carried out again it means the same."""

    statement = Item[str | None]()
    """The statement that made it, as it was written; null where JSON did, or has changed it since."""


class OperatorItem(Answer):
    """A form of expression that is no call."""

    form = Item[str]()
    """How it is written; […] may be left out."""

    result = Item[str]()
    """Type of its result."""

    description = Item[str]()
    """What it gives."""

    examples = Item[tuple[ExpressionExample, ...]](many(ExpressionExample))
    """Expressions with their results."""


class OverviewDelivery(Answer):
    """How the delivery of a query's results is (`into.connector`)."""

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
    """As stored, every default spelled out."""

    desired_state = Item[Literal["running", "paused", "stopped"]]()
    """The desired state."""

    state = Item[Literal["stopped", "starting", "running", "paused", "stopping", "backoff", "failed"]]()
    """What it is doing now."""

    internal = Item[bool]()
    """It keeps the rows of a source with `materialize` and follows that table's definition."""

    fork_of = Item[ForkOrigin | None](ForkOrigin)
    """Of which query it is a fork, and as of which commit; null: of none."""

    generation = Item[int]()
    """Rises when the definition changes."""

    version = Item[int]()
    """Rises with every write; the ETag."""

    created_at = Item[datetime](moment)
    """When it was made."""

    updated_at = Item[datetime](moment)
    """When its definition or its desired state was last written."""


class QueryError(Answer):
    """What is wrong with a query that failed or is retried."""

    code = Item[str]()
    """Stable code; `GET /v1/errors/{code}` explains it."""

    detail = Item[str]()
    """What happened and what to do."""

    domain = Item[Literal["user", "external", "internal"] | None]()
    """Whose the fault is."""

    retryable = Item[bool | None]()
    """Whether the next launch may go better with nothing changed."""

    errors = Item[tuple[ProblemItem, ...] | None](many(ProblemItem))
    """The faults of a definition that was refused."""


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
    """A source's definition as stored, every default spelled out; null of a result."""

    produced_by = Item[str | None]()
    """The query that writes it; null for a source, and for a result that was kept when its query was deleted."""

    read_by = Item[tuple[str, ...]](tuple)
    """Queries that read it."""

    parts = Item[tuple[str, ...]](tuple)
    """Streams whose records are records of this one as well: of queries with `into.append_to`. Who follows this stream gets
    them; `/records` reads each by its offsets (`part=`); a query that reads this stream reads them all, merged by event
    time.
    """

    append_to = Item[str | None]()
    """The stream that it is a part of; null of none."""

    read_only = Item[bool]()
    """Others fill it (`CREATE SOURCE …`): appends are refused, and no query may append to it."""

    partitions = Item[tuple[PartitionRange, ...] | None](many(PartitionRange))
    """Where its log begins and ends; null without a log of its own."""

    version = Item[int]()
    """Rises with every write; the ETag."""

    created_at = Item[datetime](moment)
    """When it was made."""

    updated_at = Item[datetime](moment)
    """When its definition was last written."""

    warnings = Item[tuple[WarningItem, ...]](many(WarningItem))
    """What may surprise of this definition; empty where nothing does."""

    sql = Item[str]()
    """The statement that means the same."""


class RejectPage(Answer):
    """Rejects, newest first."""

    items = Item[tuple[Reject, ...]](many(Reject))
    """Rejects, newest first."""

    next = Item[str | None]()
    """Cursor of the next page; null on the last."""

    kept = Item[dict[str, int]]()
    """Reason to number of kept rejects."""


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
    """A source's definition as stored, every default spelled out; null of a result."""

    produced_by = Item[str | None]()
    """The query that writes it; null for a source, and for a result that was kept when its query was deleted."""

    read_by = Item[tuple[str, ...]](tuple)
    """Queries that read it."""

    parts = Item[tuple[str, ...]](tuple)
    """Streams whose records are records of this one as well: of queries with `into.append_to`. Who follows this stream gets
    them; `/records` reads each by its offsets (`part=`); a query that reads this stream reads them all, merged by event
    time.
    """

    append_to = Item[str | None]()
    """The stream that it is a part of; null of none."""

    read_only = Item[bool]()
    """Others fill it (`CREATE SOURCE …`): appends are refused, and no query may append to it."""

    partitions = Item[tuple[PartitionRange, ...] | None](many(PartitionRange))
    """Where its log begins and ends; null without a log of its own."""

    version = Item[int]()
    """Rises with every write; the ETag."""

    created_at = Item[datetime](moment)
    """When it was made."""

    updated_at = Item[datetime](moment)
    """When its definition was last written."""


class ReplayAnswer(Answer):
    """A replay that was noted; the query's next batch brings it."""

    replay_id = Item[str | None]()
    """Null where all had been replayed before."""

    accepted = Item[int]()
    """Records that go through the query again."""

    already_replayed = Item[int]()
    """Records that were left out because they were replayed before."""

    refused_count = Item[int]()
    """Number of records that cannot be replayed."""

    refused = Item[tuple[RefusedReplay, ...]](many(RefusedReplay))
    """Records that cannot be replayed, the first hundred of them."""

    position = Item[dict[str, dict[str, int]]]()
    """The query's position once they are in its result; good for `min_position`."""

    more = Item[bool]()
    """More match the filter: repeat the request."""


class RewindAnswer(Answer):
    """A query that was put back, as it is stored now."""

    name = Item[str]()
    """Name of the query."""

    definition = Item[Any]()
    """As stored, every default spelled out."""

    desired_state = Item[Literal["running", "paused", "stopped"]]()
    """The desired state."""

    state = Item[Literal["stopped", "starting", "running", "paused", "stopping", "backoff", "failed"]]()
    """What it is doing now."""

    internal = Item[bool]()
    """It keeps the rows of a source with `materialize` and follows that table's definition."""

    fork_of = Item[ForkOrigin | None](ForkOrigin)
    """Of which query it is a fork, and as of which commit; null: of none."""

    generation = Item[int]()
    """Rises when the definition changes."""

    version = Item[int]()
    """Rises with every write; the ETag."""

    created_at = Item[datetime](moment)
    """When it was made."""

    updated_at = Item[datetime](moment)
    """When its definition or its desired state was last written."""

    warnings = Item[tuple[WarningItem, ...]](many(WarningItem))
    """What may surprise of this definition; empty where nothing does."""

    before = Item[CommitPlace](CommitPlace)
    """Its newest commit until now."""

    after = Item[CommitPlace](CommitPlace)
    """Its newest commit from now on."""

    removed_rows = Item[int]()
    """Records of the resulting stream, or changes of the resulting table, that are gone."""

    changes = Item[tuple[EditChange, ...]](many(EditChange))
    """What the definition does otherwise from here on."""

    dry_run = Item[bool]()
    """Nothing was done: it would have been this."""


class SettingAdvice(Answer):
    """A setting of the query, or of a table it reads, and what other values would have done."""

    pointer = Item[str]()
    """Where it stands in the definition."""

    relation = Item[str | None]()
    """The table whose definition `pointer` is of; null: the query's."""

    operator = Item[str | None]()
    """The join or aggregation that judges."""

    input = Item[str | None]()
    """The input whose records are judged; null: what operators before it made."""

    rule = Item[str]()
    """Code of the rule that judges."""

    current_ms = Item[int | None]()
    """The value in force, in milliseconds; null: none is set."""

    count = Item[int]()
    """Records measured."""

    exact = Item[bool]()
    """False: a session may still take some of the records that count as late."""

    advice = Item[tuple[AdviceItem, ...]](many(AdviceItem))
    """From 0 up to the first value that finds nothing late, and the one in force."""


class SettingsAnswer(Answer):
    """Every setting of this service."""

    settings = Item[tuple[SettingItem, ...]](many(SettingItem))
    """All of them, in the order of `slackwater config show`."""


class StatementResult(Answer):
    """What became of one statement."""

    statement = Item[str]()
    """The statement, with the values of its variables."""

    line = Item[int]()
    """Where it begins in the script, counted from 1."""

    kind = Item[Literal["done", "rows", "inserted"]]()
    """`done`: something was registered, created, changed or removed; `rows`: there are columns and rows; `inserted`: records
    were appended.
    """

    message = Item[str]()
    """What was done, in a sentence; of rows how many."""

    relation = Item[str | None]()
    """The stream or table that it made, changed or removed, by its name in paths."""

    query = Item[str | None]()
    """The query that it made, changed or removed."""

    definition = Item[dict[str, Any] | None]()
    """The definition that the statement stands for, as JSON."""

    columns = Item[tuple[ResultColumn, ...] | None](many(ResultColumn))
    """Of rows: the columns in order."""

    rows = Item[tuple[tuple[Any, ...], ...] | None](many(tuple))
    """Of rows: the values of each, in the order of the columns."""

    position = Item[dict[str, Any] | None]()
    """Of a SELECT from a table: how far the table is."""

    notes = Item[tuple[str, ...]](tuple)
    """What the statement left open, and how it was understood."""

    warnings = Item[tuple[WarningItem, ...]](many(WarningItem))
    """What may surprise of what it made."""


class StoredQueryAnswer(Answer):
    """A query as it was stored."""

    name = Item[str]()
    """Name of the query."""

    definition = Item[Any]()
    """As stored, every default spelled out."""

    desired_state = Item[Literal["running", "paused", "stopped"]]()
    """The desired state."""

    state = Item[Literal["stopped", "starting", "running", "paused", "stopping", "backoff", "failed"]]()
    """What it is doing now."""

    internal = Item[bool]()
    """It keeps the rows of a source with `materialize` and follows that table's definition."""

    fork_of = Item[ForkOrigin | None](ForkOrigin)
    """Of which query it is a fork, and as of which commit; null: of none."""

    generation = Item[int]()
    """Rises when the definition changes."""

    version = Item[int]()
    """Rises with every write; the ETag."""

    created_at = Item[datetime](moment)
    """When it was made."""

    updated_at = Item[datetime](moment)
    """When its definition or its desired state was last written."""

    warnings = Item[tuple[WarningItem, ...]](many(WarningItem))
    """What may surprise of this definition; empty where nothing does."""


class TaskStatus(Answer):
    """An operator in one task: where its clock stands, and what waits in it."""

    operator = Item[str]()
    """Name of the operator."""

    task = Item[int]()
    """Number of the task, from 0."""

    stream_time_ms = Item[int | None]()
    """Stream time of this task; null before its first record."""

    buffered = Item[int]()
    """Records that wait inside."""

    waiting = Item[tuple[WaitingSpan, ...]](many(WaitingSpan))
    """What waits, by time, in at most 16 spans; empty where nothing does."""


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
    """Id of the process: another one after each start; launches of queries name it."""

    host = Item[str]()
    """The host that it runs on."""

    pid = Item[int]()
    """Its number there."""

    phase = Item[Literal["starting_jvm", "ready", "draining"]]()
    """`starting_jvm`: it starts its engine; `ready`: it takes queries; `draining`: it stops them and ends."""

    silent = Item[bool]()
    """It has not been heard of for longer than a lease lasts (`SLACKWATER_DRIVER__LEASE_TTL_MS`): others take its queries."""

    started_at = Item[datetime](moment)
    """When it began."""

    heartbeat_at = Item[datetime](moment)
    """When it was last heard of."""

    max_queries = Item[int]()
    """How many queries it takes, internal ones not counted."""

    queries = Item[tuple[LeasedQueryItem, ...]](many(LeasedQueryItem))
    """The queries that it has, by name."""


class ExplainAnswer(Answer):
    """Why there is no row yet for a key and a time, or why this one."""

    query = Item[str]()
    """Name of the query."""

    key = Item[dict[str, str]]()
    """The values asked for, by the columns' names in the query."""

    key_columns = Item[tuple[str, ...]](tuple)
    """What `key=` is a value of: the query's key. A composite key is asked for as `key.<column>=`."""

    at_ms = Item[int]()
    """The event time asked about, in milliseconds since 1970."""

    answer = Item[ExplainStep](ExplainStep)
    """The step `no_record` where nothing is known of this key and time; else the first step that blocks, else the one that
    says the most.
    """

    steps = Item[tuple[ExplainStep, ...]](many(ExplainStep))
    """One after the other, up to the first that blocks."""

    nearest = Item[tuple[NearRecord, ...]](many(NearRecord))
    """Where the first input has no record with this key and time: the last one before it and the first one after it. Else, and
    where its feed cannot be searched, empty.
    """

    position = Item[dict[str, dict[str, int]]]()
    """What the query had read when it last committed."""

    stream_time_ms = Item[int | None]()
    """Stream time as of the last commit, in milliseconds since 1970; null before the first record."""

    committed_at = Item[datetime | None](moment)
    """When the query last committed; null before the first commit."""

    stale = Item[bool]()
    """True while the query does not run."""


class FunctionsAnswer(Answer):
    """Everything that expressions of definitions may be made of."""

    functions = Item[tuple[FunctionItem, ...]](many(FunctionItem))
    """Scalar functions."""

    table_functions = Item[tuple[TableFunctionItem, ...]](many(TableFunctionItem))
    """Functions that make rows, in `select`."""

    pseudo_columns = Item[tuple[PseudoColumnItem, ...]](many(PseudoColumnItem))
    """What expressions may read that no record has as a column."""

    aggregates = Item[tuple[AggregateItem, ...]](many(AggregateItem))
    """Aggregates: of `aggregate`, and written out in `having`."""

    operators = Item[tuple[OperatorItem, ...]](many(OperatorItem))
    """Forms that are no calls."""

    types = Item[tuple[TypeItem, ...]](many(TypeItem))
    """Types of columns, and of CAST."""


class LatenessAnswer(Answer):
    """How late records came, and what that says about graces and history retentions."""

    query = Item[str]()
    """Name of the query."""

    inputs = Item[tuple[InputLateness, ...]](many(InputLateness))
    """How late the records of each input come."""

    settings = Item[tuple[SettingAdvice, ...]](many(SettingAdvice))
    """What graces and history retentions would have done to them."""

    committed_at = Item[datetime | None](moment)
    """The commit as of which this is said; null before the first."""

    stale = Item[bool]()
    """True while the query does not run."""


class LineageAnswer(Answer):
    """What a relation is made of, and what is made of it."""

    name = Item[str]()
    """The relation asked about."""

    kind = Item[Literal["stream", "table"]]()
    """Whether it is a stream or a table."""

    relations = Item[tuple[LineageRelation, ...]](many(LineageRelation))
    """Relations, each behind what it is made of."""

    queries = Item[tuple[LineageQuery, ...]](many(LineageQuery))
    """Queries between them, each behind what it reads."""

    reads = Item[tuple[LineageRead, ...]](many(LineageRead))
    """Edges from relations to the queries that read them."""

    writes = Item[tuple[LineageWrite, ...]](many(LineageWrite))
    """Edges from queries to their results."""

    truncated = Item[bool]()
    """There is more than fits; what is nearest is there. Ask at a relation further on."""

    withheld = Item[bool]()
    """There is more than the key's scope allows: relations outside of it are left out, and queries that read or write them."""


class OverviewQuery(Answer):
    """A query at a glance."""

    name = Item[str]()
    """Name of the query."""

    state = Item[Literal["stopped", "starting", "running", "paused", "stopping", "backoff", "failed"]]()
    """What it is doing now."""

    phase = Item[str | None]()
    """What it does inside its state, as in its status."""

    desired_state = Item[Literal["running", "paused", "stopped"]]()
    """The desired state."""

    conditions = Item[tuple[str, ...]](tuple)
    """`unreachable`, `unplaced`, `stale`, as in its status. Those that begin with `waits_for_` stand there alone: they take a
    look at what it reads.
    """

    reason = Item[Reason | None](Reason)
    """Its error, or why no driver has it; null: neither."""

    state_since = Item[datetime](moment)
    """When it came into this state."""

    internal = Item[bool]()
    """It keeps the rows of a source with `materialize` and follows that table's definition."""

    batch_id = Item[int | None]()
    """Number of the last committed batch; null before the first."""

    committed_at = Item[datetime | None](moment)
    """When it last committed; null before the first commit."""

    stream_time_ms = Item[int | None]()
    """Stream time as of the last commit: milliseconds since 1970; null before the first record."""

    batch_ms = Item[int | None]()
    """Milliseconds that its last batch took: its tasks' work and the commit; null before the first."""

    read_rows = Item[int]()
    """Records read since the query began with this state."""

    emitted_rows = Item[int]()
    """Records or changes of rows written since then."""

    lag = Item[int | None]()
    """Records that it has not read yet; null before its first commit, and where the ends of its feeds are not known (files)."""

    waiting = Item[int]()
    """Records that wait inside, over all operators and tasks."""

    late = Item[int]()
    """Records that came too late, whatever became of them, since it began with this state."""

    reads = Item[tuple[OverviewRead, ...]](many(OverviewRead))
    """The relations that it reads, by name."""

    writes = Item[str | None]()
    """The relation that it writes; null for one that writes none of its own."""

    fork_of = Item[str | None]()
    """The query that it is a fork of, by its present name; null: it is none, or that is gone."""

    delivery = Item[OverviewDelivery | None](OverviewDelivery)
    """How its results are delivered elsewhere; null: they are not."""


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
    """Generation of the definition that it ran."""

    driver_id = Item[str | None]()
    """The driver that launched it; null: not known."""

    started_at = Item[datetime](moment)
    """When it began."""

    running_at = Item[datetime | None](moment)
    """When it was up; null: not yet, or never."""

    ended_at = Item[datetime | None](moment)
    """When it ended; null: it goes on."""

    end_reason = Item[str | None]()
    """Why it ended, as a code; null: it goes on."""

    error = Item[QueryError | None](QueryError)
    """The error that ended it."""


class StatementsAnswer(Answer):
    """What became of the statements."""

    results = Item[tuple[StatementResult, ...]](many(StatementResult))
    """One for each statement, in their order."""


class StatusAnswer(Answer):
    """What the service knows of a query."""

    name = Item[str]()
    """Name of the query."""

    state = Item[Literal["stopped", "starting", "running", "paused", "stopping", "backoff", "failed"]]()
    """What it is doing now."""

    phase = Item[str | None]()
    """What it does inside its state. `starting`: `queued`, `fencing`, `planning`, `restoring`; `running`, until the first
    commit: `preparing` (Spark sets up the query's processes), `first_batch` (the first batch is under way).
    """

    desired_state = Item[Literal["running", "paused", "stopped"]]()
    """The desired state."""

    conditions = Item[tuple[str, ...]](tuple)
    """`unreachable`: its driver has not been heard of; `unplaced`: it wants a driver and has none; `stale`: it does not follow
    its inputs now; `waits_for_producer`: it runs, and leaves records unread until the query that writes another of its
    inputs has come as far in event time; `waits_for_transaction`: it runs, and a transaction in a topic that it reads has
    not ended for a minute; `slow_function`: it runs and does not keep up, and one Python function takes more than half of
    the time that it works.
    """

    reason = Item[Reason | None](Reason)
    """Why it is not in its desired state: its error, that no driver is there or has room, or which query or transaction it
    waits for, since when or how far that is behind, and what can be done (`waits_for_producer`, `waits_for_transaction`);
    or which Python function takes most of its time (`slow_function`).
    """

    state_since = Item[datetime](moment)
    """When it came into this state."""

    generation = Item[int]()
    """Rises when the definition changes."""

    observed_generation = Item[int]()
    """The generation the driver works on; 0 before the first start."""

    epoch = Item[int]()
    """Number of the launch."""

    attempt = Item[int]()
    """Failed launches in a row; 0 once it has run well for a while."""

    next_attempt_at = Item[datetime | None](moment)
    """When it is launched again after a failure; null: no launch is due."""

    heartbeat_at = Item[datetime | None](moment)
    """When its driver was last heard of; null: no driver has had it."""

    error = Item[QueryError | None](QueryError)
    """Why it failed or is being retried."""

    batch_id = Item[int | None]()
    """Number of the last committed batch; null before the first."""

    committed_at = Item[datetime | None](moment)
    """When it last committed; null before the first commit."""

    stream_time_ms = Item[int | None]()
    """Stream time as of the last commit: milliseconds since 1970; null before the first record."""

    progress = Item[tuple[FeedProgress, ...]](many(FeedProgress))
    """How far each feed that it reads has been read."""

    read_rows = Item[int]()
    """Records read since the query began with this state."""

    emitted_rows = Item[int]()
    """Records or changes of rows written since then."""

    clocks = Item[dict[str, int | None]]()
    """Operator to stream time, the smallest over its tasks."""

    buffered = Item[dict[str, int]]()
    """Operator to records that wait inside it."""

    tasks = Item[tuple[TaskStatus, ...] | None](many(TaskStatus))
    """The same for each task, as of the last commit; null unless `tasks=true` asks for it."""

    counters = Item[tuple[Counter, ...]](many(Counter))
    """What was counted at its inputs and operators, by reason."""

    execution = Item[Execution | None](Execution)
    """Which kind of slot ran its last batch, and why; null before the first."""

    limited_by = Item[
        Literal["input", "reading", "tasks", "commit", "other_queries", "upstream", "unmeasured", "paused", "not_running"]
    ]()
    """What limits the rate at which it works. The first that is true: `paused`, `not_running`: its state; `upstream`: it
    leaves records unread until a query that writes another of its inputs has come as far in event time; `unmeasured`: it
    has committed nothing yet, or has worked at one batch for more than ten seconds; `input`: it waits for records for a
    fifth of the time or more, so it keeps up; else the greatest of `shares`: `reading`, `tasks` (more `tasks` and cores
    help, unless `busiest_task` is near 1), `commit` (the database), `round` (its neighbours; more drivers help).
    """

    shares = Item[Shares](Shares)
    """What its time goes into."""

    functions = Item[tuple[FunctionShare, ...]](many(FunctionShare))
    """The Python functions that it called in these seconds, the slowest first; empty where it called none."""

    delivery = Item[Delivery | None](Delivery)
    """How far its results are delivered elsewhere; null: they are not (`into.connector`)."""

    restorable_since = Item[datetime | None](moment)
    """A database put back from a dump made since then finds all of its state; null: from any dump. What older ones name is
    removed (`SLACKWATER_STATE_RETENTION`, `SLACKWATER_STATE_RETAINED_BYTES`).
    """


class ValidationAnswer(Answer):
    """What the service thinks of a definition."""

    valid = Item[bool]()
    """Whether it would be accepted."""

    problems = Item[tuple[ProblemItem, ...]](many(ProblemItem))
    """Every fault of it; empty where it is valid."""

    warnings = Item[tuple[WarningItem, ...]](many(WarningItem))
    """What may surprise of a valid definition; empty where nothing does."""

    definition = Item[Any]()
    """With every default spelled out; null where it could not be read."""

    sql = Item[str | None]()
    """The same as a statement of SQL; null where it is not valid."""

    output = Item[dict[str, Any] | None]()
    """The relation it would produce."""

    plan = Item[dict[str, Any] | None]()
    """Inputs, stages and operators."""

    edit = Item[EditPreview | None](EditPreview)
    """The edit it would be; null where no query has this name."""


class DriversAnswer(Answer):
    """The drivers, and what waits for one."""

    drivers = Item[tuple[DriverItem, ...]](many(DriverItem))
    """Every driver, the oldest first."""

    waiting = Item[tuple[str, ...]](tuple)
    """Queries that want a driver and have none; the status of each says why."""


class OverviewAnswer(Answer):
    """All queries at a glance."""

    at = Item[datetime](moment)
    """When the service looked."""

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
