"""What an action changes in the session: the statements behind it in a script see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.plan.catalog import derived_entry
from engine.statements.actions import (
    Action,
    ChangeSetting,
    ChangeVariable,
    ControlQuery,
    CreateQuery,
    DropRelation,
    DropType,
    InsertInto,
    RegisterSource,
    RegisterType,
)
from engine.statements.context.session import Session


def after(session: Session, action: Action) -> Session:
    """Return the session as it is once the action has been carried out."""
    match action:
        case RegisterSource(relation=relation):
            return replace(session, relations={**session.relations, relation.name: relation})
        case CreateQuery(relation=relation, definition=definition):
            queries = {**session.queries, definition.name: relation.name}
            return replace(session, relations={**session.relations, relation.name: relation}, queries=queries)
        case InsertInto(target=target, definition=definition, plan=plan):
            part = derived_entry(plan)
            reads = target.entry.reads | {definition.into.relation}
            entry = replace(target.entry, parts=(*target.entry.parts, part.feed), reads=reads)
            writing = replace(target, writers=(*target.writers, definition.name), entry=entry)
            queries = {**session.queries, definition.name: target.name}
            return replace(session, relations={**session.relations, target.name: writing}, queries=queries)
        case DropRelation(relation=relation):
            kept = {name: each for name, each in session.relations.items() if name != relation.name}
            queries = {name: written for name, written in session.queries.items() if written != relation.name}
            return replace(session, relations=kept, queries=queries)
        case RegisterType(name=name, type=kind):
            return replace(session, types={**session.types, name: kind})
        case DropType(name=name):
            return replace(session, types={known: kind for known, kind in session.types.items() if known != name})
    return _with_words(session, action)


def _with_words(session: Session, action: Action) -> Session:
    match action:
        case ControlQuery(action="terminate", queries=ended):
            return replace(session, queries={name: written for name, written in session.queries.items() if name not in ended})
        case ChangeSetting(name=name, value=value):
            settings = replace(session.settings, values=_changed(session.settings.values, name, value))
            return replace(session, settings=settings)
        case ChangeVariable(name=name, value=value):
            return replace(session, variables=_changed(session.variables, name, value))
    return session


def _changed(known: Mapping[str, str], name: str, value: str | None) -> dict[str, str]:
    kept = {each: text for each, text in known.items() if each != name}
    return kept if value is None else {**kept, name: value}
