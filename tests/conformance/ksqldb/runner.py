"""Scripts of SQL run in this process over records given by hand: what every statement writes, topic by topic.

One task, one partition, one record a batch. Statements are bound in order, as ksqlDB would understand them (its default grace included);
then every persistent query, in the order of its creation, reads what its topics hold: first the records given, those of all its topics in
their one order, then, whole, each topic that queries write. A topic to which records are given is read only as far as these go.

Notation of keys and values, given and returned, is that of the topic's format as JSON shows it (``tests.conformance.ksqldb.notation``): JSON is
an object by column, a single key column and an unwrapped value stand alone; DELIMITED is a text; KAFKA the one column's value. Decimals are
``Decimal`` with the column's scale, bytes base64, dates days, times milliseconds of the day, timestamps milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from engine.errors import DataInvalid
from engine.formats.lenient.json_format import Layout
from engine.formats.lenient.lenient import json_text
from engine.frames.frames import OP, TS
from engine.plan.model import Plan
from engine.sql.faults import SyntaxFault
from engine.sql.lexing.splitting import cuts_of, filled
from engine.sql.statements.statements import parse_statement
from engine.statements.actions import Action, CreateQuery, InsertInto, InsertRecords, RegisterSource
from engine.statements.binding import bind
from engine.statements.context.faults import StatementRefused, StatementUnsupported
from engine.statements.context.session import Session, Settings, SqlRelation
from tests.conformance.ksqldb.codecs import CODECS
from tests.conformance.ksqldb.queries import Place, QueryRun
from tests.conformance.ksqldb.service import consume, produce
from tests.conformance.ksqldb.topics import Record, record_of, shown, sides_of, unknown_formats, written
from tests.session_effects import after

__all__ = ["Refused", "Unsupported", "consume", "produce", "run"]

_MAX_CHARS: Final = 1 << 20
"""Of a statement, once variables are filled in."""


class Refused(Exception):
    """A statement is wrong, or a record that a relation stops for. The text says why."""


class Unsupported(Exception):
    """A statement is right in ksqlDB's language, and cannot be had here. The text says what."""


def run(
    statements: Sequence[str], inputs: Sequence[Mapping[str, Any]], properties: Mapping[str, Any]
) -> dict[str, list[dict[str, Any]]]:
    """Run statements over records.

    Args:
        statements: texts in order; one may hold several statements.
        inputs: records in their order, across topics: ``topic``, ``key``, ``value``, ``timestamp`` (event time in ms, 0 where it is left
            out), and for windowed keys ``window``: ``start``, ``end``, ``type`` (``time`` or ``session``). A value that is None, or left
            out, is none: a tombstone of a table.
        properties: settings by name (``ksql.…``).

    Returns:
        Topic → its records in order, the given ones included: ``key``, ``value``, ``timestamp``, ``window``.

    Raises:
        Refused: a statement is wrong.
        Unsupported: a statement cannot be had here.
        EngineError: a query stopped.
    """
    script = _Script(properties)
    for text in statements:
        script.take(text)
    return script.outputs(inputs)


@dataclass(slots=True)
class _Query:
    """A persistent query with what it reads and writes as of its statement."""

    plan: Plan
    reads: dict[str, SqlRelation]
    target: SqlRelation


@dataclass(slots=True)
class _Topics:
    """What topics hold, and the relation that says how each is written: the first that was made for it."""

    records: dict[str, list[Record]] = field(default_factory=dict)
    relations: dict[str, SqlRelation] = field(default_factory=dict)


class _Script:
    """Statements taken one after the other."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        values = {name: _setting(value) for name, value in properties.items()}
        self._session = Session(settings=Settings("ksqldb", values))
        self._queries: dict[str, _Query] = {}
        self._topics = _Topics()

    def take(self, text: str) -> None:
        """Bind the statements of a text, and do what they ask for at once."""
        try:
            for cut in cuts_of(text):
                self._take(filled(text[cut.start : cut.end], self._session.variables, _MAX_CHARS).text)
        except SyntaxFault as fault:
            raise Refused(f"{fault}: {text[max(0, fault.start - 20) : fault.end + 20]!r}") from fault
        except StatementRefused as fault:
            raise Refused(fault.sentence) from fault
        except StatementUnsupported as fault:
            raise Unsupported(fault.sentence) from fault

    def _take(self, statement: str) -> None:
        action = bind(parse_statement(statement), self._session)
        self._session = after(self._session, action)
        self._do(action)

    def outputs(self, inputs: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
        """Run the queries; returns what the topics then hold."""
        given = self._given(inputs)
        for query in self._queries.values():
            try:
                self._run(query, given)
            except DataInvalid as error:
                raise Refused(str(error)) from error
        known = self._topics.relations
        return {topic: shown(records, sides_of(known[topic])) for topic, records in self._topics.records.items()}

    def _do(self, action: Action) -> None:
        match action:
            case RegisterSource(relation=relation):
                _check_formats(relation)
                self._topics.relations.setdefault(relation.topic.name, relation)
            case CreateQuery(relation=target, plan=plan) | InsertInto(target=target, plan=plan):
                _check_formats(target)
                self._topics.relations.setdefault(target.topic.name, target)
                self._topics.records.setdefault(target.topic.name, [])
                by_name = {each.definition_name: each for each in self._session.relations.values()}
                reads = {item.relation.name: by_name[item.relation.name] for item in plan.inputs}
                self._queries[plan.query] = _Query(plan, reads, target)
            case InsertRecords():
                self._insert(action)

    def _insert(self, action: InsertRecords) -> None:
        layout = Layout(action.relation.columns)
        found = CODECS["JSON"].decode([json_text(dict(row)).encode() for row in action.rows], layout)
        times = pl.Series(TS, [ms or 0 for ms in action.times_ms], pl.Int64)
        frame = pl.DataFrame([times, pl.repeat(0, len(times), dtype=pl.Int8, eager=True).alias(OP), *found.columns.values()])
        records = written(frame, action.relation, sides_of(action.relation))
        self._topics.records.setdefault(action.relation.topic.name, []).extend(records)

    def _given(self, inputs: Sequence[Mapping[str, Any]]) -> list[Place]:
        """Put the given records into their topics; returns their order. Topics that no relation has are left out."""
        order: list[Place] = []
        for each in inputs:
            topic = each["topic"]
            if topic in self._topics.relations:
                records = self._topics.records.setdefault(topic, [])
                order.append((topic, len(records)))
                records.append(record_of(each, sides_of(self._topics.relations[topic])))
        return order

    def _run(self, query: _Query, given: Sequence[Place]) -> None:
        sides = {name: sides_of(relation) for name, relation in query.reads.items()}
        running = QueryRun(query.plan, query.reads, sides)
        by_hand = {topic for topic, _ in given}
        derived = [topic for topic in running.topics if topic not in by_hand]
        order = [place for place in given if place[0] in running.topics]
        order += [(topic, number) for topic in derived for number in range(len(self._topics.records.get(topic, ())))]
        changes = running.run(self._topics.records, order)
        if changes is not None:
            is_rekeyed = all(read.key != query.target.key for read in query.reads.values())
            records = written(changes, query.target, sides_of(query.target), is_rekeyed=is_rekeyed)
            self._topics.records[query.target.topic.name] += records


def _check_formats(relation: SqlRelation) -> None:
    if unknown := unknown_formats(relation):
        raise Unsupported(f"{unknown[0]} can be neither read nor written here; use JSON, DELIMITED or KAFKA")


def _setting(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
