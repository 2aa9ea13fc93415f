"""Dependencies of routes with definitions: they check the targets of results before the transaction begins."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends

from app.catalog.deliveries.edits import Target, look_at_target, new_target
from app.catalog.history.fork_routes import BodyOfPut
from app.catalog.queries.answers import checked
from app.catalog.stored.catalog import read_definition
from app.catalog.stored.queries import find_query
from app.errors.app_errors import Forbidden
from app.http.parameters import Name, Services, ServicesOf, planned
from app.http.requests.bodies import AnyJsonBody, JsonBody
from app.http.requests.stored_texts import refuse_unstorable
from engine.definition.queries import QueryDefinition
from engine.deliveries.deliveries import TargetUnavailable
from engine.errors import DefinitionInvalid, Problem

POINTER = "/into/connector"


async def _look(services: Services, body: Any) -> None:
    """Check the target in a body if it is new. The request itself reports all other faults."""
    if not _names_target(body):
        return
    try:
        async with services.database.inspection_turns.taken():
            target = await planned(services, lambda: _target_of(services, body))
    except (DefinitionInvalid, Forbidden):
        return
    await look_at_target(services, target)


def _target_of(services: Services, body: Any) -> Target | None:
    with services.database.inspection.begin() as connection:
        stored = find_query(connection, str(body.get("name")))
        before = None if stored is None else read_definition(QueryDefinition, stored.definition).functions
        return new_target(connection, checked(connection, body, before))


def _names_target(body: Any) -> bool:
    into = body.get("into") if isinstance(body, dict) else None
    return isinstance(into, dict) and into.get("connector") is not None


async def _of_post(body: JsonBody, services: ServicesOf) -> None:
    await _look(services, body)


async def _of_put(name: Name, body: BodyOfPut, services: ServicesOf) -> None:
    await _look(services, {"name": name, **body} if isinstance(body, dict) else body)


async def _of_validation(body: AnyJsonBody, services: ServicesOf) -> list[Problem]:
    try:
        refuse_unstorable(body)
        await _look(services, body)
    except DefinitionInvalid as error:
        return list(error.problems)
    except TargetUnavailable as error:
        return [Problem(POINTER, error.code, str(error))]
    return []


TargetOfPost = Annotated[None, Depends(_of_post)]
"""A dependency after the body and before the transaction."""

TargetOfPut = Annotated[None, Depends(_of_put)]
TargetProblems = Annotated[list[Problem], Depends(_of_validation)]
"""Faults of only the target; the route answers 200 with them."""
