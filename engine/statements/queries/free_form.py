"""Queries that say their dialect (``DIALECT='STANDARD'``): they may be all that a definition may be, and ksqlDB's rules do not bind them.

Columns without a name of their own keep that of the definition's defaults; a ``*`` alone, or in front of aggregates, stands for the default
``select``. Names of pseudo-columns (``"$state"``), of groups (``"group_1"``) and of aggregates are known. What has no clause is a property:

- ``KEY``: ``into.key``, a JSON array; ``'AGGREGATE.N'``: an aggregate that no column shows alone; ``'FROM.WHERE'``: ``from.where``
"""

from __future__ import annotations

import json
from typing import Any

from engine.definition.queries import Dialect
from engine.expressions.syntax import render
from engine.sql.statement_tree import JoinClause, Select, SelectItem
from engine.sql.tree import Column, Identifier, Node, Star
from engine.statements.context.faults import Faults, StatementRefused, together
from engine.statements.context.naming import folded
from engine.statements.context.properties import Properties, milliseconds
from engine.statements.context.scope import Source, Translator, core, sources_of
from engine.statements.context.session import WINDOW_BOUNDS, Session
from engine.statements.queries.grouping import is_aggregate
from engine.statements.queries.joins import join_options
from engine.statements.queries.name_checks import check_names
from engine.statements.queries.selecting import Selected, timing_of

AGGREGATE = "AGGREGATE."
FROM_WHERE = "FROM.WHERE"


def free_select_of(select: Select, session: Session, properties: Properties, dialect: Dialect) -> Selected:
    """Bind a query that ksqlDB's rules do not bind.

    Raises:
        StatementFault: a name is unknown, or a clause is wrong; with every fault.
    """
    faults = Faults()
    timing, notes = timing_of(select, session, faults, is_free=True)
    sources = None
    with faults.part():
        sources = sources_of(select, session, is_free=True)
    if sources is None:
        raise together(faults.listed)
    found = Selected(sources, sources.first.relation.kind, is_free=True, notes=notes)
    given = {name.removeprefix(AGGREGATE): properties.text(name) or "" for name in properties.names if name.startswith(AGGREGATE)}
    known = [*(WINDOW_BOUNDS if select.window is not None else ()), *given, *_aggregate_names(select, faults)]
    groups = [f"group_{number + 1}" for number in range(len(select.group_by))]
    with faults.part():
        check_names(select, sources, session, [*groups, *known], is_free=True)
    if properties.has("KEY"):
        with faults.part():
            found.key_given = _names(properties)
    translate = Translator(sources, session.types, is_free=True)
    found.body = {"dialect": dialect, "from": _from(sources.first, properties), **timing}
    found.body["joins"] = _joins(select, found, translate, faults)
    faults.raise_all()
    if select.where is not None:
        found.body["where"] = render(translate(select.where))
    if select.group_by:
        found.body["group_by"] = [render(translate(each)) for each in select.group_by]
        translate.synthetic |= _columns(groups)
    translate.synthetic |= _columns(known)
    found.body |= _results(select.items, translate, given)
    if select.having is not None:
        translate.synthetic |= _columns(list(found.body.get("aggregate", {})))
        found.body["having"] = render(translate(select.having))
    found.places = {"/from": select.relation, **{f"/joins/{number}": join for number, join in enumerate(select.joins)}}
    found.places |= {f"/select/{folded(item.alias)}": item for item in select.items if item.alias is not None}
    return found


def _aggregate_names(select: Select, faults: Faults) -> list[str]:
    """Return the names of columns that are aggregates; adds the fault of one that has none."""
    names = []
    for item in select.items:
        if is_aggregate(item.value.bare):
            with faults.part():
                names.append(_name(item))
    return names


def _joins(select: Select, found: Selected, translate: Translator, faults: Faults) -> list[dict[str, Any]]:
    """Return the definition's joins; of those that have faults already nothing is read."""
    joins: list[dict[str, Any]] = []
    for join, source in zip(select.joins, found.sources.listed[1:], strict=True):
        if not faults.is_within(join):
            with faults.part():
                joins.append(_join(join, source, translate))
    return joins


def _from(first: Source, properties: Properties) -> dict[str, Any]:
    where = properties.text(FROM_WHERE)
    body = {first.relation.kind: first.relation.definition_name, "as": first.name}
    return body if where is None else {**body, "where": where}


def _columns(names: list[str]) -> dict[str, Node]:
    return {name: Column(Identifier(name, is_quoted=True)) for name in names}


def _join(join: JoinClause, source: Source, translate: Translator) -> dict[str, Any]:
    body: dict[str, Any] = {source.relation.kind: source.relation.definition_name, "as": source.name, "type": join.type}
    if join.on is not None:
        body["on"] = render(translate(join.on))
    if join.within is None:
        return body | join_options(join)
    within: dict[str, Any] = {
        "before": f"{milliseconds(join.within.before)}ms",
        "after": f"{milliseconds(join.within.after)}ms",
        "unmatched": join.unmatched or "when_closed",
    }
    if join.grace is not None:
        within["grace"] = f"{milliseconds(join.grace)}ms"
    return body | {"within": within}


def _results(items: tuple[SelectItem, ...], translate: Translator, given: dict[str, str]) -> dict[str, Any]:
    """Return the definition's ``select`` and ``aggregate``."""
    is_default = isinstance(items[0].value, Star)
    aggregates: dict[str, str] = dict(given)
    chosen: dict[str, str] = {}
    for item in items[1:] if is_default else items:
        name = _name(item)
        tree = translate(item.value)
        if is_aggregate(core(tree)):
            aggregates[name] = render(core(tree))
            tree = Column(Identifier(name, is_quoted=True))
        elif is_default:
            raise StatementRefused("values_unfit", "Behind * there may be aggregates, each with a name, and nothing else", item)
        chosen[name] = render(tree)
    body: dict[str, Any] = {"aggregate": aggregates} if aggregates else {}
    return body if is_default else {**body, "select": chosen}


def _name(item: SelectItem) -> str:
    if item.alias is not None:
        return folded(item.alias)
    bare = item.value.bare
    if isinstance(bare, Column):
        return folded(bare.name)
    raise StatementRefused("name_missing", "What is more than a column needs a name, as in … AS name", item)


def _names(properties: Properties) -> list[str]:
    """Read KEY."""
    detail = """KEY lists columns, as in KEY='["ID"]'"""
    try:
        names = json.loads(properties.text("KEY") or "")
    except ValueError as error:
        raise StatementRefused("property_malformed", detail, properties.node("KEY")) from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise StatementRefused("property_malformed", detail, properties.node("KEY"))
    return names
