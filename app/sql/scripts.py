"""Execute a script: statement by statement, each bound against the catalog that earlier ones have left.

Each statement changes definitions in one transaction. If any statement of a script cannot be parsed, none is executed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

import polars as pl
import sqlalchemy as sa
from anyio import to_thread

from app.access.rules import Role, refuse_below, refuse_feed_beyond_scope
from app.access.scopes_sql import find_names_sharing
from app.appends.appender import Appender
from app.catalog.drivers.sql import warning_of_no_room
from app.catalog.relations.rules import inferred, warnings_of
from app.db.database import delivery_context_of, service_context_of
from app.errors.app_errors import Fault, Forbidden, Unprocessable
from app.http.answers.record_json import EVENT_TIME, encode_values
from app.http.parameters import Services, looked_outside, planned, planning_turn
from app.sql.answers import Defined, Inserted, Outcome, Progress, of_script, placed
from app.sql.catalog.carrying_out import Done, carry_out, look_outside
from app.sql.catalog.sessions import load_session
from app.sql.looking import check_looking, look
from app.sql.reads.pulls import reads_end
from engine.plan.warnings import DefinitionWarning
from engine.sql.scripts import Parsed, Script, parse_script
from engine.sql.statement_tree import (
    AssertRelation,
    AssertTopic,
    AssertValues,
    CreateFunction,
    CreateRelation,
    Define,
    Describe,
    Explain,
    ExplainWhy,
    InsertValues,
    Print,
    Select,
    SetProperty,
    Show,
    Statement,
)
from engine.sql.tree import Boolean, Negative, Node, Null, Number, Parameter, Text
from engine.statements.actions import Action, ChangeSetting, ChangeVariable, CreateQuery, InsertRecords, Look, RegisterSource
from engine.statements.binding import bind
from engine.statements.context.session import Session, Settings
from engine.statements.queries.clause_properties import says_target
from engine.statements.sources.inferring import inference_request, with_columns
from engine.statements.sources.topics import check_topic

Found = TypeVar("Found")
_LOOKING: Final = (Select, Show, Describe, Explain, ExplainWhy, Print, AssertTopic)
"""Statements that every key may execute."""

_CHANGES_NO_DEFINITION: Final = (*_LOOKING, AssertValues, AssertRelation, InsertValues)
"""Statements that only read or append records. Every other one is bound in the transaction that executes it."""


@dataclass(slots=True)
class Words:
    """Settings of SET and DEFINE, or of a request; statements of a script change them.

    Attributes:
        settings: properties by name.
        variables: values of ``${name}``.
    """

    settings: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)


class ScriptRunner:
    """Executes statements.

    Args:
        default_grace: see ``Settings``; None: the service's setting.
    """

    def __init__(self, services: Services, words: Words, default_grace: Any = None) -> None:
        self._services, self.words = services, words
        self._context, self._delivery_context = service_context_of(services.settings), delivery_context_of(services.settings)
        self._default_grace = default_grace or services.settings.sql.default_grace
        self._reads_end: float | None = None

    async def read(self, text: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Script:
        """Parse a script. A long one takes a second or two; other requests are served meanwhile.

        Raises:
            Unprocessable: with every fault of every statement; or a parameter is wrong.
        """

        def reading() -> Script:
            script = parse_script(text, self.words.variables)
            if script.faults:
                raise of_script(script.faults)
            return with_parameters(script, parameters)

        return await planned(self._services, reading)

    async def run(self, statements: Sequence[Parsed], progress: Progress) -> None:
        """Execute statements. SELECTs with EMIT go to ``app.sql.pushes`` instead.

        Args:
            statements: in order.
            progress: receives the outcome of each as soon as it is executed.

        Raises:
            AppError: one was refused; earlier ones stay in force.
        """
        for parsed in statements:
            progress.outcomes.append(await self.run_one(parsed))

    async def preview(self, script: Script) -> list[Outcome]:
        """Return what every statement would do, given the effects of earlier ones; nothing is kept.

        Raises:
            AppError: one would be refused.
        """
        outcomes: list[Outcome] = []
        bound: list[tuple[Parsed, Action]] = []
        statements = [(await self._completed(parsed))[0] for parsed in script.statements]

        def rehearsing() -> None:
            with self._services.database.control.connect() as connection, connection.begin() as transaction:
                outcomes.extend(self._rehearsed(connection, parsed, bound) for parsed in statements)
                transaction.rollback()

        async with planning_turn(self._services), self._services.database.control_turns.taken():
            await to_thread.run_sync(rehearsing)
        for parsed, action in bound:
            await self._look_outside(parsed, action)
        return outcomes

    def _rehearsed(self, connection: sa.Connection, parsed: Parsed, bound: list[tuple[Parsed, Action]]) -> Outcome:
        with placed(parsed):
            if isinstance(parsed.tree, SetProperty | Define):
                return Defined(parsed, self._change_session(parsed))
            self._refuse(parsed)
            session = self.session(connection)
            action = bind(parsed.tree, session)
            match action:
                case InsertRecords(relation=relation, rows=rows):
                    return Defined(
                        parsed, Done(f"{len(rows)} records would be appended to {relation.name}", relation.definition_name)
                    )
                case Look():
                    return Defined(parsed, Done(check_looking(parsed.tree, session)))
            _check(action, parsed, session)
            bound.append((parsed, action))
            return Defined(parsed, carry_out(connection, action, parsed.text, self._services.settings.spark.query_cores))

    async def run_one(self, parsed: Parsed) -> Outcome:
        """Execute one statement. Raises AppError with its place."""
        with placed(parsed):
            return await self._run(parsed)

    async def _run(self, parsed: Parsed) -> Outcome:
        if isinstance(parsed.tree, SetProperty | Define):
            return Defined(parsed, self._change_session(parsed))
        self._refuse(parsed)
        if not isinstance(parsed.tree, _CHANGES_NO_DEFINITION):
            return Defined(parsed, await self.defined(parsed))
        action, session = await self.bound(parsed)
        if isinstance(action, InsertRecords):
            return await self._insert(parsed, action)
        if self._reads_end is None:
            self._reads_end = reads_end(self._services)
        return await look(self._services, parsed, session, self._reads_end)

    def _refuse(self, parsed: Parsed) -> None:
        """Refuse a statement for which the caller's role, or this service's settings, are not sufficient; also in a preview."""
        if not isinstance(parsed.tree, _LOOKING):
            refuse_below(Role.WRITE, "this statement")
        if isinstance(parsed.tree, CreateFunction) and not self._services.settings.sql.python_functions:
            detail = "functions in Python run on the service's machines; its operator can allow them: SLACKWATER_SQL__PYTHON_FUNCTIONS=true"
            raise Forbidden("python_functions_off", detail)

    async def bound(self, parsed: Parsed) -> tuple[Action, Session]:
        """Bind a statement against the current catalog; changes nothing."""

        def binding(connection: sa.Connection) -> tuple[Action, Session]:
            session = self.session(connection)
            return bind(parsed.tree, session), session

        async with planning_turn(self._services):
            return await self._in_transaction(binding, parsed, is_edit=False)

    async def inspected(self, parsed: Parsed, work: Callable[[Session], Found]) -> Found:
        """Return the result of ``work`` on the current catalog; its faults belong to the statement."""
        async with planning_turn(self._services):
            return await self._in_transaction(lambda connection: work(self.session(connection)), parsed, is_edit=False)

    async def defined(self, parsed: Parsed) -> Done:
        """Bind a statement and execute it, in one transaction; systems outside of the database are asked before."""
        parsed, warnings = await self._completed(parsed)
        if isinstance(parsed.tree, CreateRelation) or says_target(parsed.tree):
            action, _ = await self.bound(parsed)
            await self._look_outside(parsed, action)

        def defining(connection: sa.Connection) -> Done:
            session = self.session(connection)
            action = bind(parsed.tree, session)
            _check(action, parsed, session)
            done = carry_out(connection, action, parsed.text, self._services.settings.spark.query_cores)
            return replace(done, warnings=(*done.warnings, *self._no_room(connection, done)))

        async with planning_turn(self._services):
            done = await self._in_transaction(defining, parsed, is_edit=True)
        return replace(done, warnings=(*done.warnings, *warnings))

    def _no_room(self, connection: sa.Connection, done: Done) -> list[DefinitionWarning]:
        """Return a warning about a query for which no driver has room."""
        lease_ms = self._services.settings.driver.lease_ttl_ms
        reason = None if done.query is None else warning_of_no_room(connection, lease_ms, done.query)
        return [] if reason is None else [DefinitionWarning("/desired_state", reason.code, reason.fact, reason.cure)]

    async def _look_outside(self, parsed: Parsed, action: Action) -> None:
        with placed(parsed):
            await looked_outside(self._services, partial(look_outside, action, self._context, self._delivery_context))

    async def _completed(self, parsed: Parsed) -> tuple[Parsed, list[DefinitionWarning]]:
        """Add inferred columns to a source without columns; also return what was left out."""
        tree = parsed.tree
        if not isinstance(tree, CreateRelation):
            return parsed, []
        request = await self.inspected(parsed, lambda session: inference_request(tree, session))
        if request is None:
            return parsed, []
        with placed(parsed):
            columns = await looked_outside(self._services, partial(inferred, request, self._context))
        return replace(parsed, tree=with_columns(tree, columns.columns, columns.key)), warnings_of(columns)

    def session(self, connection: sa.Connection) -> Session:
        return load_session(connection, Settings(self._default_grace, self.words.settings), self.words.variables)

    async def _in_transaction(self, work: Callable[[sa.Connection], Found], parsed: Parsed, *, is_edit: bool) -> Found:
        database = self._services.database
        turns, engine = (
            (database.control_turns, database.control) if is_edit else (database.inspection_turns, database.inspection)
        )

        def working() -> Found:
            with engine.begin() as connection:
                return work(connection)

        with placed(parsed):
            async with turns.taken():
                return await to_thread.run_sync(working)

    def _change_session(self, parsed: Parsed) -> Done:
        action = bind(
            parsed.tree, Session(settings=Settings(self._default_grace, self.words.settings), variables=self.words.variables)
        )
        match action:
            case ChangeSetting(name=name, value=value):
                _change(self.words.settings, name, value)
                return Done(f"{name} is {'unset' if value is None else value}")
            case ChangeVariable(name=name, value=value):
                _change(self.words.variables, name.upper(), value)
                return Done(f"{name} is {'undefined' if value is None else value}")
        raise TypeError(f"{parsed.text} changes the session")

    async def _insert(self, parsed: Parsed, action: InsertRecords) -> Inserted:
        relation = action.relation
        async with self._services.database.reads.connect() as connection:
            names = await find_names_sharing(connection, relation.definition_name)
        refuse_feed_beyond_scope(relation.definition_name, "/sql", names)
        body = await to_thread.run_sync(_body, action)
        appended = await self._services.of(Appender).append(
            relation.kind, relation.definition_name, body, "application/json", None
        )
        return Inserted(parsed, relation, appended)


def _check(action: Action, parsed: Parsed, session: Session) -> None:
    """Refuse statements that are valid in ksqlDB but not for the built-in log."""
    if isinstance(action, RegisterSource | CreateQuery):
        check_topic(action.relation, parsed.tree, session)


def _body(action: InsertRecords) -> bytes:
    """Return records in the form of appends; a row has no member for a column that it leaves out."""
    records = [_record(action, row, at_ms) for row, at_ms in zip(action.rows, action.times_ms, strict=True)]
    return f"[{','.join(records)}]".encode()


def _record(action: InsertRecords, row: Mapping[str, Any], at_ms: int | None) -> str:
    columns = action.relation.columns.select(list(row))
    frame = pl.DataFrame({name: [row[name]] for name in columns.names}, schema=columns.polars())
    (text,) = encode_values(frame, columns, has_text_numbers=False) if columns.names else ("{}",)
    if at_ms is None:
        return text
    return f'{text.removesuffix("}")}{"," if columns.names else ""}"{EVENT_TIME}":{at_ms}}}'


def _change(words: dict[str, str], name: str, value: str | None) -> None:
    if value is None:
        words.pop(name, None)
    else:
        words[name] = value


def with_parameters(script: Script, given: Sequence[Any] | Mapping[str, Any]) -> Script:
    """Return a script with a literal for each parameter.

    Args:
        script: as it was parsed.
        given: values in the order of ``?``, or by name.

    Raises:
        Unprocessable: ``parameter_missing``, ``parameter_unused``, ``parameter_type``.
    """
    known: dict[str | int, Any] = {}
    known.update(given.items() if isinstance(given, Mapping) else enumerate(given))
    used: set[str | int] = set()
    place = 0

    def bound(node: Node) -> Node | None:
        nonlocal place
        if not isinstance(node, Parameter):
            return None
        key: str | int = place if node.name is None else node.name
        place += node.name is None
        if key not in known:
            shown = f"?, the {place}. one" if node.name is None else f":{node.name}"
            raise _refusal("parameter_missing", f"there is no value for {shown}; give it in `parameters`")
        used.add(key)
        return _literal(known[key], key, node)

    statements = tuple(replace(each, tree=_bound(each.tree, bound)) for each in script.statements)
    if unused := sorted(set(known) - used, key=str):
        raise _refusal("parameter_unused", f"no statement has the parameter {unused[0]}; leave its value out")
    return replace(script, statements=statements)


def _bound(tree: Statement, change: Callable[[Node], Node | None]) -> Statement:
    mapped = tree.mapped(change)
    if not isinstance(mapped, Statement):
        raise TypeError("a statement stays one")
    return mapped


def _literal(value: Any, key: str | int, at: Node) -> Node:
    match value:
        case None:
            return Null(span=at.span)
        case bool():
            return Boolean(value, span=at.span)
        case str():
            return Text(value, span=at.span)
        case int() | float():
            text = repr(abs(value))
            number = Number(text, span=at.span)
            return Negative(number, span=at.span) if value < 0 else number
    raise _refusal("parameter_type", f"the parameter {key} is a text, a number, true, false or null, not {type(value).__name__}")


def _refusal(code: str, detail: str) -> Unprocessable:
    return Unprocessable(code, detail, [Fault("/parameters", code, detail)])
