"""Many definitions at once, compared with what there is: what ``slackwater diff`` and ``apply`` show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal

import sqlalchemy as sa
from anyio import to_thread
from fastapi import APIRouter
from pydantic import Field, model_validator

from app.access.rules import refuse_beyond_scope
from app.catalog.queries.answers import EditChange, EditEffect, shown_changes, shown_effects
from app.catalog.relations.rules import read_source
from app.catalog.stored.relations import find_relation
from app.catalog.warned import shown_problems, shown_warnings
from app.comparisons.comparing import Compared, ComparedQuery, Picture, compare_query, compare_source, problems_of_refusal
from app.errors.app_errors import AppError, Fault, Unprocessable
from app.http.answers.documented import answered, body_examples, problems
from app.http.examples import QUERY, STREAM_DEFINITION, WINDOW_DEFINITION
from app.http.parameters import LongInspection, OnlyKnownParameters, Services, ServicesOf, planned, planning_turn
from app.http.requests.bodies import JsonBody, request_body, validated
from app.http.schemas import Answer, ProblemItem, WarningItem
from app.sql.answers import MAX_SQL_CHARS, of_script, placed
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.errors import DefinitionInvalid, Problem
from engine.expressions.model import Model
from engine.plan.build import read_query
from engine.records.inferred import INFER
from engine.sql.scripts import Parsed, parse_script
from engine.sql.statement_tree import CreateAs, CreateRelation, Define, InsertQuery, SetProperty
from engine.statements.actions import ChangeSetting, CreateQuery, InsertInto, RegisterSource
from engine.statements.binding import bind
from engine.statements.context.naming import definition_name, folded
from engine.statements.context.session import Session, Settings

MAX_DEFINITIONS = 1_000


class DefinitionRequest(Model):
    """A definition as a PUT would have it, or statements of SQL that define something."""

    kind: Literal["stream", "table", "query", "sql"] = Field(description="What it defines; `sql`: what the statements say.")
    name: str | None = Field(default=None, max_length=255, description="Of a stream, a table or a query; of `sql` none.")
    definition: dict[str, Any] | None = Field(default=None, description="Of a stream, a table or a query.")
    sql: str | None = Field(
        default=None,
        max_length=MAX_SQL_CHARS,
        description="CREATE STREAM, CREATE TABLE and INSERT INTO … SELECT, as if with OR REPLACE; SET and DEFINE count for the statements "
        "behind them in this text.",
    )

    @model_validator(mode="after")
    def _has_its_parts(self) -> DefinitionRequest:
        if self.kind == "sql" and self.sql is None:
            raise ValueError("give the statements in `sql`")
        if self.kind != "sql" and (self.name is None or self.definition is None):
            raise ValueError("give `name` and `definition`")
        return self


class ComparisonBody(Model):
    """Definitions that are to be compared."""

    definitions: list[DefinitionRequest] = Field(
        min_length=1, max_length=MAX_DEFINITIONS, description="In any order; what depends on others is compared behind them."
    )


class ComparedItem(Answer):
    """What carrying a definition, or a statement, out would do."""

    index: int = Field(description="Its place among the definitions that were sent, from 0.", examples=[0])
    statement: str | None = Field(description="Of `sql`: the statement, with the values of its variables; null of others.")
    properties: dict[str, str] = Field(description="Of `sql`: what SET has said before the statement.")
    kind: Literal["stream", "table", "query"] | None = Field(description="What it defines; null where it cannot be read.")
    name: str | None = Field(description="Its name; null where it cannot be read.", examples=["delays"])
    action: Literal["create", "no_op", "in_place", "repartition", "needs_new_state"] | None = Field(
        description="`no_op`: it is there, and equal. Of the others see `edit` of `/v1/validations`. null: it cannot be read as far as that."
    )
    definition: dict[str, Any] | None = Field(description="With every default spelled out; null where it cannot be read.")
    changes: list[EditChange] = Field(description="What differs from what is there; empty for `create` and `no_op`.")
    effects: list[EditEffect] = Field(
        description="What an edit in place would release, close or remove, as of the last commit; estimates are bounds."
    )
    problems: list[ProblemItem] = Field(description="Why it would be refused; empty: it would not.")
    warnings: list[WarningItem] = Field(description="What may surprise of it; empty for `no_op`.")


class ComparisonAnswer(Answer):
    """What carrying the definitions out would do, one after the other."""

    items: list[ComparedItem] = Field(
        description="In an order in which they can be carried out, what is depended on first; what cannot be read last."
    )


_MODELS: Final[Mapping[str, Any]] = {"stream": StreamDefinition, "table": TableDefinition}
MOST_TRIES: Final = 10_000
"""As many take a minute or so. 140 definitions get by with fewer in the worst of orders, 1,000 in any that is nearly right."""
MAX_PROPERTY_CHARS: Final = 10_000

router = APIRouter(prefix="/v1", tags=["queries"], dependencies=[OnlyKnownParameters])
_DEFINITIONS = [
    {"kind": "stream", "name": "departures", "definition": STREAM_DEFINITION},
    {"kind": "query", "name": "delays_by_airport", "definition": WINDOW_DEFINITION},
]
_ITEM: dict[str, Any] = {
    "index": 1, "statement": None, "properties": {}, "kind": "query", "name": "delays_by_airport", "action": "in_place",
    "definition": QUERY["definition"],
    "changes": [{"pointer": "/window/grace", "kind": "in_place", "reason": "what has closed stays closed and is never shown again"}],
    "effects": [
        {"pointer": "/window/grace", "effect": "windows_closed", "operator": "window", "at_least": 3, "at_most": 3,
         "from_ms": 1357034400000, "to_ms": 1357041600000}
    ],
    "problems": [], "warnings": [],
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Unit:
    """One definition, or one statement.

    Attributes:
        index: of the definition that was sent.
        parsed: the statement; None: it is none.
        settings: what SET has said before it.
    """

    index: int
    wanted: DefinitionRequest
    parsed: Parsed | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


@router.post(
    "/comparisons",
    summary="Compare definitions with what there is",
    response_model=ComparisonAnswer,
    responses={200: answered({"items": [_ITEM]}, "What carrying them out would do."), **problems(400, 413, 415, 422, 429)},
    openapi_extra=request_body(
        "ComparisonBody", body_examples(two=("A stream, and final counts of it", {"definitions": _DEFINITIONS}))
    ),
)
async def post_comparison(body: JsonBody, services: ServicesOf, connection: LongInspection) -> ComparisonAnswer:
    """Say of many definitions what carrying them out would do: create, change nothing, edit in place, need new state, or be refused.

    Each is planned against what is registered and against what those before it would have left, so a whole set can be checked before
    anything of it exists. They are put into an order of dependence by themselves. Nothing is stored. Other systems (brokers, directories)
    are not asked: a source that is new is looked at when it is registered. `"columns": "infer"` of a source that is there means the columns
    that it has.
    """
    asked = validated(ComparisonBody, body)
    picture = await to_thread.run_sync(Picture, connection, services.settings.spark.query_cores)
    done: list[ComparedItem] = []
    waiting: list[_Unit] = []
    for index, wanted in enumerate(asked.definitions):
        units, faults = await planned(services, partial(_units, index, wanted, services))
        waiting += units
        done += faults
        if len(waiting) + len(done) > MAX_DEFINITIONS:
            detail = f"they are more than {MAX_DEFINITIONS:,} definitions and statements; send them in parts"
            raise Unprocessable("invalid_value", detail, [Fault("/definitions", "invalid_value", detail)])
    items = await _in_order(services, waiting, partial(_compared, connection, picture, services))
    return ComparisonAnswer(items=[*items, *done])


async def _in_order(services: Services, waiting: list[_Unit], compare: Callable[[_Unit], ComparedItem]) -> list[ComparedItem]:
    """Compare what can be compared, again and again, until nothing more can be: what is left is refused.

    Raises:
        Unprocessable: they are many, and stand in an order that takes too many rounds.
    """
    items: list[ComparedItem] = []
    tries = 0
    while waiting:
        refused: list[tuple[_Unit, ComparedItem]] = []
        tries += len(waiting)
        if tries > MOST_TRIES:
            detail = f"finding their order takes more than {MOST_TRIES:,} comparisons; send first what others depend on"
            raise Unprocessable("invalid_value", detail, [Fault("/definitions", "invalid_value", detail)])
        for unit in waiting:
            async with planning_turn(services):
                item = await to_thread.run_sync(compare, unit)
            if item.problems and item.action is None:
                refused.append((unit, item))
            else:
                items.append(item)
        if len(refused) == len(waiting):
            return [*items, *(item for _, item in refused)]
        waiting = [unit for unit, _ in refused]
    return items


def _units(index: int, wanted: DefinitionRequest, services: Services) -> tuple[list[_Unit], list[ComparedItem]]:
    """Cut statements from each other; returns them, and what cannot be read."""
    if wanted.kind != "sql":
        return [_Unit(index, wanted)], []
    unit = _Unit(index, wanted)
    script = parse_script(wanted.sql or "")
    if script.faults:
        return [], [_refused(unit, problems_of_refusal(of_script(script.faults)))]
    units: list[_Unit] = []
    faults: list[ComparedItem] = []
    settings: dict[str, str] = {}
    for parsed in script.statements:
        try:
            with placed(parsed):
                _check_defines(parsed)
                if isinstance(parsed.tree, SetProperty):
                    action = bind(parsed.tree, Session(settings=_settings(services, settings)))
                    if isinstance(action, ChangeSetting):
                        changed = {**settings, action.name: action.value or ""}
                        changed = {name: value for name, value in changed.items() if value or name != action.name}
                        _check_short(changed)
                        settings = changed
                    continue
        except AppError as error:
            faults.append(_refused(_Unit(index, wanted, parsed), problems_of_refusal(error)))
            continue
        if not isinstance(parsed.tree, Define):
            units.append(_Unit(index, wanted, parsed, settings))
    return units, faults


def _check_defines(parsed: Parsed) -> None:
    if not isinstance(parsed.tree, CreateRelation | CreateAs | InsertQuery | SetProperty | Define):
        detail = "a file of definitions has CREATE STREAM, CREATE TABLE, INSERT INTO … SELECT, SET and DEFINE; carry other statements out once"
        raise Unprocessable("not_a_definition", detail)


def _check_short(settings: Mapping[str, str]) -> None:
    """Refuse more than any statement has use for: each statement behind is answered with all of them."""
    if sum(len(name) + len(value) for name, value in settings.items()) > MAX_PROPERTY_CHARS:
        detail = f"names and values of SET may have {MAX_PROPERTY_CHARS:,} characters together"
        raise Unprocessable("invalid_value", detail)


def _settings(services: Services, values: Mapping[str, str]) -> Settings:
    return Settings(services.settings.sql.default_grace, values)


def _compared(connection: sa.Connection, picture: Picture, services: Services, unit: _Unit) -> ComparedItem:
    """Compare one; what would refuse it is among its problems."""
    try:
        if unit.parsed is not None:
            with placed(unit.parsed):
                return _shown(unit, _statement(connection, picture, services, unit))
        return _shown(unit, _definition(connection, picture, unit.wanted))
    except (AppError, DefinitionInvalid) as error:
        return _refused(unit, problems_of_refusal(error))


def _definition(connection: sa.Connection, picture: Picture, wanted: DefinitionRequest) -> Compared:
    name, body = wanted.name or "", wanted.definition or {}
    if wanted.kind == "query":
        if body.get("name", name) != name:
            raise DefinitionInvalid(
                [Problem("/name", "invalid_value", f"the definition is named {body['name']!r}, and {name!r} is asked for")]
            )
        visible = {each: entry for each, entry in picture.catalog.items() if not entry.is_hidden}
        definition = read_query({**body, "name": name}, lambda: visible)
        return compare_query(connection, picture, ComparedQuery(definition, "desired_state" in body))
    refuse_beyond_scope([("/name", name)])
    if body.get("columns") == INFER:
        stored = find_relation(connection, name)
        if stored is None or stored.origin != "source":
            detail = "columns are found when the source is registered: declare them, or register it before"
            raise DefinitionInvalid([Problem("/columns", "invalid_value", detail)])
        body = {**body, "columns": stored.definition["columns"], **({} if body.get("key") else {"key": stored.definition["key"]})}
    return compare_source(connection, picture, name, read_source(_MODELS[wanted.kind], body))


def _statement(connection: sa.Connection, picture: Picture, services: Services, unit: _Unit) -> Compared:
    assert unit.parsed is not None  # noqa: S101 - for the type checker: the caller has looked
    tree = unit.parsed.tree
    session = picture.session(_settings(services, unit.settings), {})
    if isinstance(tree, CreateRelation | CreateAs):
        known = session.relation(folded(tree.name))
        if known is not None and isinstance(tree, CreateRelation) and tree.is_read_only:
            session = replace(session, relations={name: each for name, each in session.relations.items() if each is not known})
        elif known is not None:
            tree = replace(tree, is_replace=True)
        tree = replace(tree, is_if_not_exists=False)
    elif isinstance(tree, InsertQuery):
        session = _without_inserts(session, picture, tree)
    match bind(tree, session):
        case RegisterSource(relation=relation, definition=definition):
            return compare_source(connection, picture, relation.definition_name, definition, relation)
        case CreateQuery(relation=relation, definition=definition):
            return compare_query(connection, picture, ComparedQuery(definition, is_desired_state_given=False, sql=relation))
        case InsertInto(definition=definition):
            return compare_query(connection, picture, ComparedQuery(definition, is_desired_state_given=False, is_insert=True))
    raise TypeError(f"{unit.parsed.text} defines nothing")


def _without_inserts(session: Session, picture: Picture, tree: InsertQuery) -> Session:
    """Leave out the queries that insert into a stream and were not compared yet: the statements mean these, in their order."""
    target = definition_name(folded(tree.name), tree.name)
    own = {
        entry.produced_by
        for entry in picture.catalog.values()
        if entry.append_to == target and entry.produced_by not in picture.inserting
    }
    return replace(session, queries={name: result for name, result in session.queries.items() if name not in own})


def _refused(unit: _Unit, faults: list[Problem]) -> ComparedItem:
    kind = None if unit.wanted.kind == "sql" else unit.wanted.kind
    return ComparedItem(
        index=unit.index,
        statement=None if unit.parsed is None else unit.parsed.text,
        properties=dict(unit.settings),
        kind=kind,
        name=unit.wanted.name,
        action=None,
        definition=None,
        changes=[],
        effects=[],
        problems=shown_problems(faults),
        warnings=[],
    )


def _shown(unit: _Unit, found: Compared) -> ComparedItem:
    return ComparedItem(
        index=unit.index,
        statement=None if unit.parsed is None else unit.parsed.text,
        properties=dict(unit.settings),
        kind=found.kind,
        name=found.name,
        action=found.action,
        definition=None if found.definition is None else dict(found.definition),
        changes=shown_changes(found.changes),
        effects=shown_effects(found.effects),
        problems=shown_problems(found.problems),
        warnings=shown_warnings(found.warnings),
    )
