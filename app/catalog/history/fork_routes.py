"""Forks of queries: create one, or let it replace its original."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any
from uuid import UUID, uuid4

import sqlalchemy as sa
from anyio import to_thread
from fastapi import APIRouter, Depends, Query, Request, Response

from app.access.idempotency import answered_once
from app.access.rules import refuse_beyond_scope
from app.access.scopes import names_in
from app.catalog.deliveries.edits import Target, look_at_target
from app.catalog.history.forks import Forking, at_one_commit, fork_query, in_body, read_in_body
from app.catalog.history.rewind_models import ForkAnswer, ForkBody
from app.catalog.history.takeovers import TakeOver, take_over
from app.catalog.queries.answers import shown_changes, stored_answer
from app.catalog.queries.fork_rules import ForkRequest, forked_definition
from app.catalog.stored.catalog import read_definition
from app.catalog.stored.queries import QueryRow, find_query, get_query
from app.catalog.stored.state_files import state_files_of
from app.http.answers.documented import answered, body_examples, problems
from app.http.examples import FORK, FORK_WISH
from app.http.parameters import MAX_NAME_LENGTH, Name, OnlyKnownParameters, Services, ServicesOf, bad_parameter, planned
from app.http.requests.bodies import JsonBody, read_json, request_body, validated
from app.http.requests.conditions import IdempotencyKey, OfWrite, Preconditions
from engine.definition.queries import QueryDefinition
from engine.errors import DefinitionInvalid

router = APIRouter(prefix="/v1/queries", tags=["queries"], dependencies=[OnlyKnownParameters])

FromFork = Annotated[
    str | None,
    Query(
        max_length=MAX_NAME_LENGTH,
        pattern=r"^[^\x00]+$",
        description="Name of a fork of this query, instead of a body: the query takes over the fork's definition, result, state and "
        "position under its own names, and the fork is deleted.",
        examples=["delays_wider"],
    ),
]


async def _body_of_put(request: Request, from_fork: FromFork = None) -> Any:
    """Read the definition of a PUT; None if it comes from a fork.

    Raises:
        BadRequest: ``bad_parameter``: the request has both.
    """
    if from_fork is None:
        return await read_json(request)
    if await request.body():
        raise bad_parameter("from_fork", "the definition comes from the fork; send no body")
    return None


BodyOfPut = Annotated[Any, Depends(_body_of_put)]


@router.post(
    "/{name}/fork",
    summary="Fork a query",
    status_code=201,
    response_model=ForkAnswer,
    responses={
        201: answered(FORK, "Created; a driver will start it.", {"ETag": "The version.", "Location": "Its path."}),
        **problems(400, 404, 409, 412, 413, 415, 422),
    },
    openapi_extra=request_body("ForkBody", body_examples(same=("The same under another name", FORK_WISH))),
)
async def post_fork(
    name: Name,
    body: JsonBody,
    services: ServicesOf,
    response: Response,
    conditions: OfWrite,
    idempotency_key: IdempotencyKey = None,
) -> ForkAnswer | Response:
    """Create a second query that continues from the last commit of this one and writes its own relation.

    The fork has the original's result, change log, state, position, counters and late records as of one commit. It reads on from there by
    itself, as if it had run from the beginning. The original continues meanwhile. The definition may have all changes that an edit **in
    place** allows (`PUT /v1/queries/{name}`); `changes` lists them. Other changes are refused with 409 `state_incompatible` and a reason per
    field. New columns are null in earlier results. If the original has no commit, the fork starts from scratch too: `fork_of.batch_id` is
    null. `If-Match` applies to the original.

    A fork is a query like any other: edit it (also with `?state=discard`), compare its result with the original's, then
    `PUT /v1/queries/{name}?from_fork=…` lets it replace the original, or `DELETE` removes it.
    """
    fork_request = validated(ForkBody, body)
    async with services.database.inspection_turns.taken():
        definition, target = await planned(services, partial(_definition, services, name, fork_request))
    try:
        await look_at_target(services, target)
    except DefinitionInvalid as error:
        raise in_body(error) from error
    work = partial(_forked, services, name, definition, conditions, idempotency_key, body, response)
    async with services.database.control_turns.taken(is_long=True):
        return await to_thread.run_sync(at_one_commit, services.database.control, state_files_of(services.settings), work)


def _definition(services: Services, name: str, fork_request: ForkBody) -> tuple[QueryDefinition, Target | None]:
    """Read the definition of the requested fork; return it with its delivery target."""
    request = ForkRequest(fork_request.name, fork_request.into, fork_request.definition, fork_request.desired_state)
    with services.database.inspection.begin() as connection:
        stored = get_query(connection, name)
        functions = read_definition(QueryDefinition, stored.definition).functions
        body = forked_definition({**stored.definition, "desired_state": stored.desired_state}, request)
        return read_in_body(connection, body, functions)


def _forked(
    services: Services,
    name: str,
    definition: QueryDefinition,
    conditions: Preconditions,
    key: str | None,
    body: Any,
    response: Response,
    connection: sa.Connection,
    query_id: UUID,
    checkpoint_id: UUID,
    is_held: bool,
) -> ForkAnswer | Response:
    forking = Forking(
        state_files_of(services.settings), services.settings.limits.fork_bytes, query_id, checkpoint_id, is_held, conditions
    )

    def make(response: Response) -> ForkAnswer:
        forked = fork_query(connection, name, definition, forking)
        response.headers["Location"] = f"/v1/queries/{forked.row.name}"
        answer = stored_answer(connection, services, forked.row, definition, response)
        return ForkAnswer(**dict(answer), changes=shown_changes(forked.edit.changes))

    return answered_once(connection, key, ["POST", f"/v1/queries/{name}/fork"], body, make, response, status=201)


def taken_over_from(connection: sa.Connection, services: Services, name: str, fork: str, conditions: Preconditions) -> QueryRow:
    """Let a fork replace a query; see ``app.catalog.history.takeovers.take_over``. Names outside of the caller's scope are refused."""
    refuse_beyond_scope([("?from_fork", fork)])
    stored_fork = find_query(connection, fork)
    if stored_fork is not None:
        refuse_beyond_scope(names_in(read_definition(QueryDefinition, stored_fork.definition)))
    files, checkpoint_id = state_files_of(services.settings), uuid4()
    return take_over(connection, name, TakeOver(fork, checkpoint_id, files, conditions))
