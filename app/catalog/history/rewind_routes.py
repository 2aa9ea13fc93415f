"""Rewinds of a query to an earlier commit."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import sqlalchemy as sa
from anyio import to_thread
from fastapi import APIRouter, Query, Response

from app.access.idempotency import answered_once
from app.access.rules import visible_position
from app.catalog.deliveries.edits import Target, look_at_target
from app.catalog.history.forks import in_body, read_in_body
from app.catalog.history.rewind_models import CommitPlace, CommitsAnswer, RetainedCommitAnswer, RewindAnswer, RewindBody
from app.catalog.history.rewind_rules import Place, named, place_in_body
from app.catalog.history.rewinds import Rewinding, list_commits, rewind_query
from app.catalog.queries.answers import shown_changes, stored_answer
from app.catalog.stored.catalog import read_definition
from app.catalog.stored.queries import get_query
from app.catalog.stored.state_files import state_files_of
from app.http.answers.documented import answered, body_examples, problems
from app.http.examples import COMMITS, REWIND, REWIND_WISH
from app.http.parameters import Inspection, Name, OnlyKnownParameters, Services, ServicesOf, planned
from app.http.requests.bodies import JsonBody, request_body, validated
from app.http.requests.conditions import IdempotencyKey, OfWrite
from engine.definition.queries import QueryDefinition
from engine.errors import DefinitionInvalid

router = APIRouter(prefix="/v1/queries", tags=["queries"], dependencies=[OnlyKnownParameters])

DryRun = Annotated[
    bool,
    Query(
        description="Check whether the rewind is possible, the rows of the result included, and show its result without a change."
    ),
]


@router.get(
    "/{name}/restore-points",
    summary="List the commits for a rewind",
    response_model=CommitsAnswer,
    responses={200: answered(COMMITS, "The retained commits, newest first."), **problems(400, 404)},
)
def get_commits(name: Name, transaction: Inspection, services: ServicesOf) -> CommitsAnswer:
    """The commits to which `POST …/rewind` can return the query, and the obstacles.

    One commit a minute is retained (`SLACKWATER_RETAINED_COMMITS_EVERY`), and each one from which a launch continued, so also the last one
    before an edit. Older commits are thinned out: about forty remain within `SLACKWATER_STATE_RETENTION` (24 h before the newest commit). A
    commit is removed earlier if its state exceeds `SLACKWATER_STATE_RETAINED_BYTES`. A query that starts from scratch has none.
    """
    listing = list_commits(transaction, name, state_files_of(services.settings))
    items = [
        RetainedCommitAnswer(
            **dict(_shown(each.place)), of_launch=each.is_of_launch, can_rewind=each.obstacle is None, obstacle=each.obstacle
        )
        for each in listing.commits
    ]
    newest = None if listing.newest is None else _shown(listing.newest)
    return CommitsAnswer(items=items, newest=newest, obstacle=listing.obstacle)


@router.post(
    "/{name}/rewind",
    summary="Rewind to an earlier commit",
    response_model=RewindAnswer,
    responses={
        200: answered(REWIND, "Done; the query continues from there with its next launch.", {"ETag": "The version."}),
        **problems(400, 404, 409, 412, 413, 415, 422),
    },
    openapi_extra=request_body("RewindBody", body_examples(back=("Back to the commit before an edit", REWIND_WISH))),
)
async def post_rewind(
    name: Name,
    body: JsonBody,
    services: ServicesOf,
    response: Response,
    conditions: OfWrite,
    idempotency_key: IdempotencyKey = None,
    dry_run: DryRun = False,
) -> RewindAnswer | Response:
    """Return a query to one of its retained commits: result, change log, state, position, counters and late records are those of that commit.

    Everything after that commit is removed, and the query reads its inputs again from there, also with an edited `definition` (with changes
    that an edit **in place** allows). The result equals that of a query that never ran past that commit. The query must be paused, stopped or
    failed (409 `query_not_at_rest`). While other queries read its result, the answer is 409 `relation_in_use` with their names. If records to
    read again, segments of the state or earlier rows of the result were removed, the answer is 409 `rewind_not_possible` with the reason.

    Readers of the result's changes get 410 `cursor_expired`, or a `reset`, and start from scratch. Later requests to replay late records are
    undone. A failed query with the desired state `running` is launched again. Rejects of a source's records stay listed at the source.
    """
    rewind_request = validated(RewindBody, body)
    definition, target = None, None
    if rewind_request.definition is not None:
        async with services.database.inspection_turns.taken():
            definition, target = await planned(services, partial(_definition, services, name, rewind_request.definition))
    try:
        await look_at_target(services, target)
    except DefinitionInvalid as error:
        raise in_body(error, place_in_body) from error
    desired = rewind_request.desired_state
    if desired is None and definition is not None and "desired_state" in definition.model_fields_set:
        desired = definition.desired_state
    limit = services.settings.limits.rewind_bytes
    rewinding = Rewinding(rewind_request.batch_id, definition, desired, state_files_of(services.settings), limit, conditions)
    key = None if dry_run else idempotency_key
    work = partial(_rewound, services, name, rewinding, key, body, response, is_dry_run=dry_run)
    async with services.database.control_turns.taken(is_long=True):
        return await to_thread.run_sync(work)


def _definition(services: Services, name: str, body: Any) -> tuple[QueryDefinition, Target | None]:
    """Read the edited definition; return it with its delivery target, if that is new."""
    with services.database.inspection.begin() as connection:
        functions = read_definition(QueryDefinition, get_query(connection, name).definition).functions
        return read_in_body(connection, named(body, name), functions, place_in_body)


def _rewound(
    services: Services, name: str, rewinding: Rewinding, key: str | None, body: Any, response: Response, *, is_dry_run: bool
) -> RewindAnswer | Response:
    with services.database.control.connect() as connection, connection.begin() as transaction:
        make = partial(_answer, connection, services, name, rewinding, is_dry_run)
        answer = answered_once(connection, key, ["POST", f"/v1/queries/{name}/rewind"], body, make, response)
        if is_dry_run:
            transaction.rollback()
        return answer


def _answer(
    connection: sa.Connection, services: Services, name: str, rewinding: Rewinding, is_dry_run: bool, response: Response
) -> RewindAnswer:
    done = rewind_query(connection, name, rewinding)
    definition = read_definition(QueryDefinition, done.row.definition)
    edits = () if done.edit is None else done.edit.changes
    return RewindAnswer(
        **dict(stored_answer(connection, services, done.row, definition, response)),
        before=_shown(done.before),
        after=_shown(done.after),
        removed_rows=done.removed_rows,
        changes=shown_changes(edits),
        dry_run=is_dry_run,
    )


def _shown(place: Place) -> CommitPlace:
    return CommitPlace(
        batch_id=place.batch_id,
        committed_at=place.committed_at,
        position=visible_position(place.position),
        stream_time_ms=place.stream_time_ms,
    )
