"""Carrying a plan out, step by step, in its order. What a step does is one request or two; the plan as a whole is no transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from slackwater.blocking.client import Client
from slackwater.cli.definitions.plan import Plan, Step
from slackwater.cli.statements import as_replacing


def carry_out(client: Client, plan: Plan) -> Iterator[Step]:
    """Do every step that changes something; yields each once it is done.

    Raises:
        ServiceError: a step was refused; those before it are done.
    """
    for step in plan.changes:
        _do(client, step)
        yield step


def _do(client: Client, step: Step) -> None:
    if step.action == "delete":
        _delete(client, step)
        return
    item = step.item
    if item is None:
        raise ValueError(f"{step.name} has nothing to be carried out")
    # Without the desired state: a statement says none, so who has paused a query has paused it.
    definition: Mapping[str, Any] = {name: value for name, value in (item.definition or {}).items() if name != "desired_state"}
    if step.wanted is not None and step.wanted.definition is not None:
        definition = step.wanted.definition  # what the file says, so that what it leaves open stays open
    if item.statement is None or _is_put(step):
        _put(client, step, definition)
    if item.statement is not None and not _is_put(step):
        if step.action == "needs_new_state":
            _put(client, step, definition)  # a statement says it in its own words only; what comes then changes nothing more
        client.sql(item.statement if step.action == "create" else as_replacing(item.statement), properties=item.properties)


def _is_put(step: Step) -> bool:
    """Whether a statement cannot replace what it has made: CREATE SOURCE … and INSERT INTO … are changed by their definition."""
    statement = None if step.wanted is None else step.wanted.statement
    return step.action != "create" and statement is not None and (statement.is_source or statement.target is not None)


def _put(client: Client, step: Step, definition: Mapping[str, Any]) -> None:
    body = dict(definition)
    match step.kind:
        case "query":
            client.query(step.name).edit({**body, "name": step.name}, discard_state=step.action == "needs_new_state")
        case "stream":
            client.stream(step.name).register(body)
        case _:
            client.table(step.name).register(body)


def _delete(client: Client, step: Step) -> None:
    match step.kind:
        case "query":
            client.query(step.name).delete()
        case "stream":
            client.stream(step.name).delete()
        case _:
            client.table(step.name).delete()
