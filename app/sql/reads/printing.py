"""PRINT: the newest records of a topic, as they are in the log."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

import polars as pl

from app.following.changes import ChangeSource
from app.following.followed import Followables
from app.following.tails.tails import Tails
from app.http.answers.record_json import encode_keyed
from app.http.parameters import Services
from app.reads.readable import Readables
from app.sql.catalog.following import Beginning, FrameFollower, following
from app.sql.catalog.looking import Listing, texts
from app.sql.reads.pulls import too_many_rows
from engine.sql.statement_tree import Print
from engine.sql.tree import Identifier
from engine.statements.context.faults import StatementRefused
from engine.statements.context.naming import folded
from engine.statements.context.session import Session, SqlRelation

MOST = 1_000
"""Number of records without LIMIT."""


def relations_on(tree: Print, session: Session) -> list[SqlRelation]:
    """Return the relations that read the topic that is named: those that leave no record out first, then streams, then by name.

    A topic whose name is the same letter for letter goes before one in other letters, and that before a relation of the name.

    Raises:
        StatementRefused: ``unknown_topic``; ``ambiguous_topic``: several logs are called so.
    """
    wanted = folded(tree.topic) if isinstance(tree.topic, Identifier) else tree.topic.value
    every = [*session.relations.values()]
    found = (
        [each for each in every if each.topic.name == wanted]
        or [each for each in every if each.topic.name.upper() == wanted.upper()]
        or [each for each in every if each.name.upper() == wanted.upper()]
    )
    if not found:
        raise StatementRefused("unknown_topic", f"there is no topic {wanted}; SHOW TOPICS lists all", tree.topic)
    if len({each.entry.feed.name for each in found}) > 1:
        reading = ", ".join(f"{each.name} reads {each.entry.feed.name}" for each in sorted(found, key=lambda each: each.name))
        detail = f"KAFKA_TOPIC={wanted!r} is said of several logs: {reading}; look at one of these relations with SELECT"
        raise StatementRefused("ambiguous_topic", detail, tree.topic)
    return sorted(found, key=lambda each: (each.entry.relation.where is not None, each.kind, each.name))


@asynccontextmanager
async def following_topic(
    services: Services, relations: Sequence[SqlRelation], beginning: Beginning
) -> AsyncIterator[FrameFollower]:
    """Yield a follower of a topic.

    Args:
        services: of the application.
        relations: as ``relations_on`` gives them: each record is shown as the first that takes it has it.
        beginning: with what the log still holds, or with what comes.

    Raises:
        AppError: the records cannot be followed.
    """
    find = services.of(Followables).find
    found = [await find(each.kind, each.definition_name, takes_records=True) for each in relations]
    first, *sharing = [each for each in found if each.output is None] or found[:1]  # rows of a table are kept beside the log
    parts = [part for each in sharing for part in each.parts]
    source = ChangeSource(replace(first, parts=(*first.parts, *parts)), has_text_numbers=False)
    async with following(services.of(Tails), source, beginning, sharing) as follower:
        yield follower


def interval_of(tree: Print) -> int:
    """Return the interval: one of this many records is shown.

    Raises:
        StatementRefused: ``invalid_value``.
    """
    every = 1 if tree.interval is None else int(tree.interval)
    if every == 0:
        raise StatementRefused("invalid_value", "INTERVAL is 1 or more: one of so many records is shown", tree)
    return every


async def printed(services: Services, tree: Print, session: Session) -> Listing:
    """Answer PRINT: each record of the topic with its event time and the relation that shows it.

    Raises:
        StatementRefused: ``unknown_topic``, ``ambiguous_topic``; ``invalid_value`` for an interval of 0.
    """
    relations = relations_on(tree, session)
    by_name = {each.definition_name: each for each in relations}
    every = interval_of(tree)
    limit = MOST if tree.limit is None else min(int(tree.limit), MOST)
    rows: list[tuple[int, str, str, str]] = []
    passed = size = 0
    limits, most = services.settings.limits, services.settings.sql.max_scanned_rows
    async with aclosing(_frames(services, relations)) as frames:
        async for name, given in frames:
            relation = by_name[name]
            places = range(-passed % every, given.height, every)
            passed += given.height
            frame = given[list(places)[: limit - len(rows)]]
            size += int(frame.estimated_size())
            if size > limits.answer_bytes:
                raise services.of(Readables).too_large(name, "/sql", "ask for fewer records with LIMIT")
            schema, key = relation.entry.relation.columns, relation.entry.relation.key
            keys, values = encode_keyed(frame, schema, key, has_text_numbers=False)
            shown = zip(frame["_ts"], frame["_op"], keys, values, strict=True)
            rows += [(ts, relation.name, own, json.dumps(None) if op else value) for ts, op, own, value in shown]
            if len(rows) >= limit:
                break
            if passed > most:
                raise too_many_rows(relation.name, most)
    columns = (("event_time_ms", "bigint"), *texts("relation", "key", "value"))
    return Listing(columns, rows)


async def _frames(services: Services, relations: Sequence[SqlRelation]) -> AsyncGenerator[tuple[str, pl.DataFrame]]:
    async with following_topic(services, relations, "earliest") as follower:
        while found := await follower.next_of_relations():
            for each in found:
                yield each
