"""PRINT: the newest records of a topic, as they stand in the log."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

import polars as pl

from app.following.changes import ChangeSource
from app.following.followed import Followables
from app.following.tails.tails import Tails
from app.http.answers.record_json import encode_keyed
from app.http.parameters import Services
from app.reads.readable import Readables
from app.sql.catalog.following import following
from app.sql.catalog.listing import Listing, texts
from app.sql.reads.pulls import too_many_rows
from app.sql.reads.stream_records import stream_records
from engine.sql.statement_tree import Print
from engine.sql.tree import Identifier
from engine.statements.context.faults import StatementRefused
from engine.statements.context.naming import folded
from engine.statements.context.session import Session, SqlRelation

MOST = 1_000
"""Records, where the statement says no LIMIT."""


def relations_on(tree: Print, session: Session) -> list[SqlRelation]:
    """Return the relations whose records are in the topic that is named.

    Raises:
        StatementRefused: ``unknown_topic``.
    """
    wanted = folded(tree.topic) if isinstance(tree.topic, Identifier) else tree.topic.value
    found = [each for each in session.relations.values() if wanted.upper() in (each.topic.name.upper(), each.name.upper())]
    if not found:
        raise StatementRefused("unknown_topic", f"there is no topic {wanted}; SHOW TOPICS lists those there are", tree.topic)
    return found


def interval_of(tree: Print) -> int:
    """Return every how many records one is shown.

    Raises:
        StatementRefused: ``invalid_value``.
    """
    every = 1 if tree.interval is None else int(tree.interval)
    if every == 0:
        raise StatementRefused("invalid_value", "INTERVAL is 1 or more: so many records are passed over", tree)
    return every


async def printed(services: Services, tree: Print, session: Session) -> Listing:
    """Answer PRINT: of each relation on the topic its records, each with its event time and place.

    Raises:
        StatementRefused: ``unknown_topic``; ``invalid_value`` for an interval of 0.
    """
    found = relations_on(tree, session)
    every = interval_of(tree)
    limit = MOST if tree.limit is None else min(int(tree.limit), MOST)
    rows: list[tuple[int, str, str, str]] = []
    passed = size = 0
    limits = services.settings.limits
    for relation in found:
        schema = relation.entry.relation.columns
        async with aclosing(_frames(services, relation)) as frames:
            async for given in frames:
                places = range(-passed % every, given.height, every)
                passed += given.height
                frame = given[list(places)[: limit - len(rows)]]
                size += int(frame.estimated_size())
                if size > limits.answer_bytes:
                    raise services.of(Readables).too_large(relation.definition_name, "/sql", "ask for fewer records with LIMIT")
                keys, values = encode_keyed(frame, schema, relation.entry.relation.key, has_text_numbers=False)
                told = zip(frame["_ts"], frame["_op"], keys, values, strict=True)
                rows += [(ts, relation.name, key, json.dumps(None) if op else value) for ts, op, key, value in told]
                if len(rows) >= limit:
                    break
                if passed > services.settings.sql.max_scanned_rows:
                    raise too_many_rows(relation.name, services.settings.sql.max_scanned_rows)
    columns = (("event_time_ms", "bigint"), *texts("relation", "key", "value"))
    return Listing(columns, rows)


async def _frames(services: Services, relation: SqlRelation) -> AsyncGenerator[pl.DataFrame]:
    """Yield a stream's records, or a table's changes."""
    if relation.kind == "stream":
        async for frame in stream_records(services, relation.entry):
            yield frame
        return
    followed = await services.of(Followables).find(relation.kind, relation.definition_name, takes_records=True)
    async with following(services.of(Tails), ChangeSource(followed, has_text_numbers=False), "earliest") as follower:
        while frames := await follower.next():
            for frame in frames:
                yield frame
