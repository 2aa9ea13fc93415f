"""Statements bound one after the other."""

from __future__ import annotations

from engine.definition.queries import QueryDefinition
from engine.sql.lexing.splitting import cuts_of
from engine.sql.statements.statements import parse_statement
from engine.statements.actions import Action, CreateQuery, InsertInto
from engine.statements.binding import bind
from engine.statements.context.session import Session, Settings
from tests.session_effects import after

RIDES = """
CREATE STREAM rides (id INT KEY, city STRING, fare DOUBLE, meters BIGINT, began BIGINT)
  WITH (KAFKA_TOPIC='rides', VALUE_FORMAT='JSON', TIMESTAMP='began');
CREATE TABLE cities (name STRING PRIMARY KEY, land STRING, people BIGINT) WITH (KAFKA_TOPIC='cities', FORMAT='JSON');
CREATE STREAM tips (id INT KEY, tip DOUBLE) WITH (KAFKA_TOPIC='tips', VALUE_FORMAT='JSON');
"""


def bound(text: str, session: Session | None = None) -> tuple[list[Action], Session]:
    """Bind every statement of a script, each against what those before it leave."""
    session = Session(settings=Settings("ksqldb")) if session is None else session
    actions = []
    for cut in cuts_of(text):
        actions.append(bind(parse_statement(text[cut.start : cut.end]), session))
        session = after(session, actions[-1])
    return actions, session


def query(text: str, before: str = RIDES) -> CreateQuery:
    """Bind one query over sources."""
    (action,), _ = bound(text, bound(before)[1])
    assert isinstance(action, CreateQuery)
    return action


def definition(text: str, before: str = RIDES) -> QueryDefinition:
    """Return the definition that one query becomes."""
    (action,), _ = bound(text, bound(before)[1])
    assert isinstance(action, CreateQuery | InsertInto)
    return action.definition
