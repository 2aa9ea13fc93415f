"""PRINT: the records of a topic as lines of text, until a limit or until the client disconnects."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any, Final

import polars as pl

from app.errors.app_errors import AppError
from app.following.tails.tails import Tails
from app.http.answers.negotiation import ClosingResponse
from app.http.answers.record_json import encode_keyed
from app.http.parameters import Services
from app.ksqldb.requests import error_body
from app.sql.catalog.following import Beginning, FrameFollower
from app.sql.pushes import refuse_too_many
from app.sql.reads.printing import following_topic, interval_of, relations_on
from app.sql.scripts import ScriptRunner
from engine.sql.scripts import Parsed
from engine.sql.statement_tree import Print
from engine.statements.context.session import SqlRelation

MEDIA_TYPE: Final = "text/plain"
NO_VALUE: Final = "<null>"
"""The form of a missing key or value in ksqlDB's command line."""

QUIET_S: Final = 5.0
"""Time without a record after which the client's key is checked again."""


async def print_topic(
    services: Services, runner: ScriptRunner, parsed: Parsed, tree: Print, recheck: Callable[[], Awaitable[None]]
) -> ClosingResponse:
    """Answer PRINT as ksqlDB's ``/query`` does: two lines about formats, then one for each record.

    Raises:
        AppError: there is no such topic, or there are too many streams.
    """
    relations, every = await runner.inspected(parsed, lambda session: (relations_on(tree, session), interval_of(tree)))
    chosen = _Chosen(every, None if tree.limit is None else int(tree.limit))
    beginning: Beginning = "earliest" if tree.is_from_beginning else "latest"
    tails = services.of(Tails)
    async with AsyncExitStack() as opening:
        refuse_too_many(services)
        opening.enter_context(tails.counted())  # at once: many that come together must not pass the limit together
        follower = await opening.enter_async_context(following_topic(services, relations, beginning))
        close = opening.pop_all().aclose
    return ClosingResponse(
        _lines(tails, follower, relations, chosen, recheck), close, services.settings.push.write_timeout_s, MEDIA_TYPE
    )


class _Chosen:
    """The records to show: each n-th, up to a limit."""

    def __init__(self, every: int, limit: int | None) -> None:
        self._every, self._limit, self._passed = every, limit, 0

    @property
    def is_over(self) -> bool:
        return self._limit == 0

    def of(self, frame: pl.DataFrame) -> pl.DataFrame:
        chosen = frame[list(range(-self._passed % self._every, frame.height, self._every))]
        self._passed += frame.height
        if self._limit is not None:
            chosen = chosen[: self._limit]
            self._limit -= chosen.height
        return chosen


async def _lines(
    tails: Tails,
    follower: FrameFollower,
    relations: Sequence[SqlRelation],
    chosen: _Chosen,
    recheck: Callable[[], Awaitable[None]],
) -> AsyncGenerator[bytes]:
    topic, by_name = relations[0].topic, {each.definition_name: each for each in relations}
    yield f"Key format: {topic.key_format.name}\nValue format: {topic.value_format.name}\n".encode()
    checked_at = time.monotonic()
    try:
        while not chosen.is_over and not tails.is_closing:
            frames = await follower.next_of_relations()
            if frames or time.monotonic() - checked_at >= QUIET_S:
                await recheck()
                checked_at = time.monotonic()
            for name, frame in frames:
                if shown := await asyncio.to_thread(_shown, chosen.of(frame), by_name[name]):
                    yield shown
            if not frames:
                await follower.wait(1.0)
    except AppError as error:
        yield (json.dumps(error_body(error)) + "\n").encode()


def _shown(frame: pl.DataFrame, relation: SqlRelation) -> bytes:
    columns, key = relation.entry.relation.columns, relation.entry.relation.key
    value = columns.select(name for name in columns.names if name not in key)
    keys, _ = encode_keyed(frame, columns, key, has_text_numbers=False)
    values, _ = encode_keyed(frame, value, value.names, has_text_numbers=False)
    rows = zip(frame["_ts"], frame["_op"], frame["_partition"], keys, values, strict=True)
    return "".join(
        f"rowtime: {_time(ts)}, key: {_key(json.loads(key_text))}, value: {NO_VALUE if op else value_text}, partition: {partition}\n"
        for ts, op, partition, key_text, value_text in rows
    ).encode()


def _time(ts_ms: int) -> str:
    return f"{datetime.fromtimestamp(ts_ms / 1_000, UTC):%Y/%m/%d %H:%M:%S}.{ts_ms % 1_000:03d} Z"


def _key(values: dict[str, Any]) -> str:
    """Return a single column's value as it is, several columns as an object."""
    if len(values) > 1:
        return json.dumps(values, separators=(",", ":"), ensure_ascii=False)
    (value,) = values.values() if values else (None,)
    if value is None:
        return NO_VALUE
    if isinstance(value, str) and value.isprintable():
        return value
    return json.dumps(value, ensure_ascii=False)  # a line end in a text would look like another record
