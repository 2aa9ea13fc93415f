# Made from slackwater/asynchronous by `make client`: change it there.
"""Streams and tables: registering, appending, reading, following."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Literal, Unpack

from slackwater.answers.answer_list import LineageAnswer, RecordsAnswer, RegisteredAnswer, Reject, RelationAnswer
from slackwater.blocking.transport import Transport
from slackwater.definitions import StreamDefinition, TableDefinition, json_of
from slackwater.errors import Json, RecordsRejected
from slackwater.frames import arrow_of_stream, concat, pandas_of, polars_of
from slackwater.parameters import Instant, Key, conditions, instant, json_text, value_text
from slackwater.rows.rows import Found, Reading, ReadOptions, Rows, single
from slackwater.transport.batching import Appended, batches, needs_columns
from slackwater.transport.event_streams import Change, Following
from slackwater.transport.requests import ARROW_TYPE, JSON_TYPE, Request, new_key, path_of, preconditions, request

PAGE_ROWS = 5_000
LOOKUP_KEYS = 1_000
APPEND_ATTEMPTS = 8


class Relation:
    """A stream or a table, whether it is there or not.

    Attributes:
        kind: ``streams`` or ``tables``, as paths have it.
    """

    def __init__(self, transport: Transport, kind: Literal["streams", "tables"], name: str) -> None:
        self._transport = transport
        self.kind = kind
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.kind.removesuffix('s')} {self.name}>"

    def _path(self, *more: str) -> str:
        return path_of(self.kind, self.name, *more)

    def register(
        self,
        definition: StreamDefinition | TableDefinition | Mapping[str, Any],
        *,
        if_match: int | None = None,
        must_be_new: bool = False,
    ) -> RegisteredAnswer:
        """Register it as a source, or change its definition.

        Args:
            definition: a builder, or its JSON.
            if_match: the version that it must have; else ``PreconditionFailed``.
            must_be_new: ``PreconditionFailed`` where it is there already.
        """
        headers = preconditions(if_match, must_be_new=must_be_new)
        return RegisteredAnswer(self._transport.json(request("PUT", self._path(), body=json_of(definition), headers=headers)))

    def info(self) -> RelationAnswer:
        """Look at it: columns, definition, who writes and reads it, where its log begins and ends."""
        return RelationAnswer(self._transport.json(request("GET", self._path())))

    def delete(self, *, if_match: int | None = None) -> None:
        """Delete it with its records; ``RelationInUse`` while a query reads it."""
        self._transport.send(request("DELETE", self._path(), headers=preconditions(if_match)))

    def append(
        self,
        source: Any,
        *,
        batch_rows: int | None = None,
        idempotency_key: str | None = None,
        attempts: int = APPEND_ATTEMPTS,
        on_batch: Callable[[Appended], object] | None = None,
    ) -> Appended:
        """Append records, in batches; they are durable when this returns.

        Each batch has an ``Idempotency-Key``, so one whose answer was lost is sent again and still counts once. A service that is busy is
        waited for, as long as it asks.

        Args:
            source: a frame (pyarrow, Polars, pandas), an iterable of mappings, one mapping, lines of JSON as bytes, or the path of a file
                (``.ndjson``, ``.jsonl``, ``.json``, ``.csv``, ``.parquet``, ``.arrow``); it is read in this thread.
            batch_rows: records of a request; None: 5,000, of frames 50,000.
            idempotency_key: what the batches' keys begin with; given again within a day, with the same batches, nothing is appended twice,
                from another process either. None: keys that nobody else has.
            attempts: how often a batch is sent at most.
            on_batch: called behind each batch, with what became of all of them so far: to show how far it is.

        Raises:
            RecordsRejected: every record was refused; its ``appended`` has the reasons. Where some were appended, the rest is in
                ``rejected`` of what is returned.
        """
        columns = (self.info()).columns if needs_columns(source) else None
        key = idempotency_key or new_key()
        retries = replace(self._transport.retries, attempts=attempts)
        total = Appended()
        refusal: RecordsRejected | None = None
        for batch in batches(source, columns, batch_rows):
            headers = {"content-type": batch.media_type, "idempotency-key": f"{key}-{batch.first}"}
            try:
                sent = request("POST", self._path("records"), content=batch.body, headers=headers)
                total = total.with_answer(batch, self._transport.json(sent, retries))
            except RecordsRejected as error:
                total, refusal = total.with_refusal(batch, error), error
            if on_batch is not None:
                on_batch(total)
        if refusal is not None and total.count == 0:
            refusal.appended = total
            raise refusal
        return total

    def append_bytes(
        self,
        body: bytes,
        content_type: str = "application/octet-stream",
        *,
        idempotency_key: str | None = None,
        **params: str | int | bool,
    ) -> Json:
        """Append one body unchanged: Avro, Protocol Buffers, CSV, change events; ``params`` are ``format`` and those that go with it."""
        headers = {"content-type": content_type, "idempotency-key": idempotency_key or new_key()}
        wanted = request("POST", self._path("records"), content=body, headers=headers, params=params)
        answer: Json = self._transport.json(wanted)
        return answer

    def rejects(self, reason: str | None = None) -> Generator[Reject, None, None]:
        """Yield the records that were refused and are kept, all pages."""
        return self._transport.pages(Reject, self._path("rejects"), {"reason": reason})

    def reject_counts(self) -> dict[str, int]:
        """Return how many refused records are kept, by reason."""
        page = self._transport.json(request("GET", self._path("rejects"), params={"limit": 1}))
        counts: dict[str, int] = page["kept"]
        return counts

    def lineage(self) -> LineageAnswer:
        """What it is made of, what is made of it, and how far each query is behind."""
        return LineageAnswer(self._transport.json(request("GET", self._path("lineage"))))

    def changes(
        self,
        from_: Literal["snapshot", "earliest", "latest"] = "earliest",
        *,
        cursor: str | None = None,
        bigints: Literal["number", "string"] | None = None,
    ) -> Generator[Change, None, None]:
        """Yield every change, each once, for ever.

        A connection that breaks and a service that restarts are not seen here: it goes on behind the last change.

        Args:
            from_: ``snapshot`` (of tables): the rows of now, a change of the kind ``snapshot_end``, then what changes; ``earliest``: what
                the log still holds; ``latest``: what comes.
            cursor: of an earlier change: go on behind it instead.
            bigints: ``string``: bigints and decimals as texts.

        Raises:
            ChangesReset: it cannot go on, as the log was rebuilt from scratch or cut; what was folded is void.
            ServiceError: there is no such relation (any more), or the key does not count.
        """
        first = {"bigints": bigints} | ({"from": from_} if cursor is None else {})
        with closing(self._transport.followed(Following(self._path("changes"), first, cursor))) as events:
            for event in events:
                yield Change.of(event.kind, event.data, event.id)

    def change_pages(
        self,
        from_: Literal["snapshot", "earliest", "latest"] = "earliest",
        *,
        cursor: str | None = None,
        limit: int = 1_000,
        wait: float = 0.0,
    ) -> Generator[tuple[list[Change], str], None, None]:
        """Yield pages of changes until there is nothing new, each with the cursor behind it.

        Args:
            from_: see ``changes``.
            cursor: go on behind it instead.
            limit: changes of a page at most.
            wait: seconds to wait for something new, before it ends.

        Raises:
            CursorExpired: see ``ChangesReset``.
        """
        while True:
            begin = {"from": from_} if cursor is None else {"cursor": cursor}
            params = {**begin, "limit": limit, "wait": wait or None}
            wanted = request("GET", self._path("changes"), params=params, read_timeout_s=wait + 60.0)
            page = self._transport.json(wanted)
            cursor = str(page["next"])
            changes = [Change.of(each["kind"], each, cursor) for each in page["changes"]]
            if changes:
                yield changes, cursor
            if page["caught_up"] and not (wait and changes):
                if not changes:
                    yield [], cursor
                return


class Stream(Relation):
    """A stream."""

    def __init__(self, transport: Transport, name: str) -> None:
        super().__init__(transport, "streams", name)

    def records(
        self,
        *,
        partition: int | None = None,
        offset: int | None = 0,
        part: str | None = None,
        limit: int | None = None,
        bigints: Literal["number", "string"] | None = None,
    ) -> Generator[Json, None, None]:
        """Yield records, of each partition in offset order, from ``offset`` to the present end.

        Args:
            partition: None: of a source one partition after the other; a derived stream as a whole, in the order in which it was written.
            offset: first one; None: the oldest there is.
            part: which of the stream's parts.
            limit: how many at most.
            bigints: ``string``: bigints and decimals as texts.
        """
        left = limit
        for number in self._partitions() if partition is None and part is None else [partition]:
            following = offset
            while left is None or left > 0:
                page = self.records_page(partition=number, offset=following, part=part, limit=left, bigints=bigints)
                for record in page["records"]:
                    yield record
                left = None if left is None else left - len(page["records"])
                if page["next_offset"] == following or page["next_offset"] >= page["end_offset"]:
                    break
                following = page["next_offset"]

    def _partitions(self) -> list[int | None]:
        info = self.info()
        return [None] if info.origin == "derived" else [each.partition for each in info.partitions or ()]

    def records_page(
        self,
        *,
        partition: int | None = None,
        offset: int | None = 0,
        part: str | None = None,
        limit: int | None = None,
        bigints: Literal["number", "string"] | None = None,
    ) -> RecordsAnswer:
        """Return one page of records, with where to go on and how far the stream is."""
        params = {"partition": partition, "offset": offset, "part": part, "limit": _most(limit), "bigints": bigints}
        return RecordsAnswer(self._transport.json(request("GET", self._path("records"), params=params)))


class Table(Relation):
    """A table."""

    def __init__(self, transport: Transport, name: str) -> None:
        super().__init__(transport, "tables", name)

    def rows(self, *, limit: int | None = None, **options: Unpack[ReadOptions]) -> Rows:
        """Read rows, page after page, and hold them all; see ``each_row`` for tables larger than memory.

        Args:
            limit: how many at most; None: all.
            options: see ``slackwater.rows.rows.Reading``.
        """
        return self._rows(Reading(**options), self._path("rows"), [], limit)

    def each_row(self, **options: Unpack[ReadOptions]) -> Generator[Json, None, None]:
        """Yield all rows; one page is held at a time."""
        with closing(self._pages(Reading(**options), self._path("rows"), [], None)) as pages:
            for page in pages:
                for row in page["rows"]:
                    yield row

    def history(
        self,
        key: Key,
        *,
        from_: Instant | None = None,
        to: Instant | None = None,
        limit: int | None = None,
        **options: Unpack[ReadOptions],
    ) -> Rows:
        """Read the versions of a key whose validity meets a range of event time; of a versioned table.

        Args:
            key: the value of the key's one column, or a mapping with every column.
            from_: None: the oldest that is kept.
            to: None: the newest.
            limit: how many at most.
            options: see ``slackwater.rows.rows.Reading``.
        """
        reading = Reading(**options)
        span = [("from", instant(from_) or "0")] + ([] if to is None else [("to", str(instant(to)))])
        if isinstance(key, Mapping):
            return self._rows(reading, self._path("rows"), [*span, *conditions(key, "key")], limit)
        return self._rows(reading, self._path("rows", value_text(key)), span, limit)

    def get(self, key: Key, **options: Unpack[ReadOptions]) -> Json:
        """Return the row of a key.

        Args:
            key: the value of the key's one column, or a mapping with every column.
            options: see ``slackwater.rows.rows.Reading``; without conditions.

        Raises:
            RowNotFound, RowDeleted, HistoryExpired: there is none.
        """
        (found,) = self.lookup([key], **options)
        return single(self.name, key, found)

    def lookup(self, keys: Sequence[Key], **options: Unpack[ReadOptions]) -> list[Found]:
        """Look many keys up; returns what there is for each, in their order."""
        reading = Reading(**options)
        found: list[Found] = []
        for first in range(0, len(keys), LOOKUP_KEYS):
            body = json_text({"keys": keys[first : first + LOOKUP_KEYS]}).encode()
            wanted = request(
                "POST",
                self._path("rows:lookup"),
                content=body,
                headers={"content-type": JSON_TYPE},
                params=reading.fresh_params(),
                is_repeatable=True,
                read_timeout_s=reading.read_timeout_s,
            )
            answer = self._transport.json(wanted)
            found += [Found(each["row"], each["reason"]) for each in answer["results"]]
        return found

    def arrow(self, *, limit: int | None = None, **options: Unpack[ReadOptions]) -> Any:
        """Read rows as a ``pyarrow.Table`` with the table's types."""
        reading, cursor, parts, left = Reading(**options), None, [], limit
        while True:
            response = self._transport.send(_page(reading, self._path("rows"), left, cursor, accept=ARROW_TYPE))
            part = arrow_of_stream(response.content)
            parts.append(part)
            left = None if left is None else left - part.num_rows
            cursor = response.headers.get("slackwater-next")
            if cursor in (None, "null") or left == 0:
                return concat([each.replace_schema_metadata(None) for each in parts])

    def polars(self, *, limit: int | None = None, **options: Unpack[ReadOptions]) -> Any:
        """Read rows as a ``polars.DataFrame``."""
        return polars_of(self.arrow(limit=limit, **options))

    def pandas(self, *, limit: int | None = None, **options: Unpack[ReadOptions]) -> Any:
        """Read rows as a ``pandas.DataFrame``."""
        return pandas_of(self.arrow(limit=limit, **options))

    def _rows(self, reading: Reading, path: str, more: list[tuple[str, str]], limit: int | None) -> Rows:
        head: Json = {}
        rows: list[Json] = []
        with closing(self._pages(reading, path, more, limit)) as pages:
            for page in pages:
                rows += page["rows"]
                head = head or page
                head["next"], head["truncated"] = page["next"], head["truncated"] or page["truncated"]
        return Rows(rows, head, has_more=head["next"] is not None)

    def _pages(self, reading: Reading, path: str, more: list[tuple[str, str]], limit: int | None) -> Generator[Json, None, None]:
        cursor, left = None, limit
        while True:
            page = self._transport.json(_page(reading, path, left, cursor, more=more))
            yield page
            cursor = page["next"]
            left = None if left is None else left - len(page["rows"])
            if cursor is None or left == 0:
                return


def _page(
    reading: Reading,
    path: str,
    left: int | None,
    cursor: str | None,
    *,
    more: Sequence[tuple[str, str]] = (),
    accept: str | None = None,
) -> Request:
    """Return the request of one page of rows."""
    params = [*reading.params(), *more, ("limit", str(_most(left))), *([] if cursor is None else [("cursor", cursor)])]
    return request("GET", path, params=params, headers={"accept": accept}, read_timeout_s=reading.read_timeout_s)


def _most(left: int | None) -> int:
    return PAGE_ROWS if left is None else min(left, PAGE_ROWS)
