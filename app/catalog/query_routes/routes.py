"""Queries: create, replace, get, list, change the desired state, restart, delete."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Query, Response
from pydantic import TypeAdapter, ValidationError

from app.access.idempotency import answered_once
from app.catalog.history.fork_routes import BodyOfPut, FromFork, taken_over_from
from app.catalog.queries.answers import accepted_answer, checked, query_answer, replaced_answer, stored_answer
from app.catalog.queries.edits import Replacement, create_query, delete_query, replace_query
from app.catalog.query_routes.validations import TargetOfPost, TargetOfPut
from app.catalog.relations.materialisations import refuse_internal
from app.catalog.stored.catalog import load_visible_catalog, read_definition
from app.catalog.stored.queries import find_query, get_query, list_queries, request_restart, set_desired_state, statement_text
from app.db.database import raw
from app.db.page_bounds import Most
from app.errors.app_errors import BadRequest, Fault, Unprocessable
from app.http.answers.documented import answered, body_examples, problems
from app.http.examples import DESIRED_STATE, JOIN_DEFINITION, ONE_QUERY, QUERY, STORED_QUERY, WINDOW_DEFINITION
from app.http.parameters import (
    DEFAULT_LIMIT,
    Inspection,
    Limit,
    Name,
    OnlyKnownParameters,
    PlanningTurn,
    Services,
    ServicesOf,
    Transaction,
    bad_parameter,
)
from app.http.requests.bodies import JsonBody, request_body, validated
from app.http.requests.conditions import NOT_MODIFIED, IdempotencyKey, IfChanged, OfPut, OfWrite, not_modified, set_read_headers
from app.http.requests.paging import Cursor, decode_cursor, page
from app.http.schemas import AcceptedAnswer, DesiredStateBody, OneQueryAnswer, QueryPage, StoredQueryAnswer
from engine.definition.queries import QueryDefinition
from engine.definition.start import Start
from engine.statements.writing.writing import statement_of

router = APIRouter(prefix="/v1/queries", tags=["queries"], dependencies=[OnlyKnownParameters])

_BODY = request_body(
    "QueryDefinition",
    body_examples(
        join=("Flights with the weather at their own departure", JOIN_DEFINITION),
        windows=("Final hourly counts per airport", WINDOW_DEFINITION),
    ),
)
_HEADERS = {"ETag": "The version.", "Location": "Its path."}
_BODY_OF_PUT = {"requestBody": {**_BODY["requestBody"], "required": False}}
Discard = Annotated[
    Literal["discard"] | None,
    Query(
        alias="state",
        description="`discard`: if the stored state does not fit the edit, or the query has failed because its state, or records behind it, "
        "cannot be used, the query starts from scratch, at the definition's `start`.",
    ),
]
From = Annotated[
    str | None,
    Query(
        alias="from",
        max_length=64,
        description="With `state=discard`: start from scratch whatever the edit is, and read from here: `earliest`, `latest`, or an event time "
        "(RFC 3339). It replaces the definition's `start`.",
        examples=["2013-01-01T00:00:00Z"],
    ),
]
Flush = Annotated[
    Literal["now"] | None,
    Query(
        description="`now`: waiting records that are due under the new definition are emitted at the next launch, not with the next record."
    ),
]
OfResult = Annotated[
    Literal["keep", "discard"],
    Query(
        alias="state",
        description="`discard`: delete the relation that it writes, too; `keep`: the relation stays for reading until it is deleted.",
    ),
]


def _edit_parameters(state: Discard = None, start: From = None, flush: Flush = None) -> Replacement:
    """Read the options of an edit.

    Raises:
        BadRequest: ``bad_parameter``.
    """
    if start is None:
        return Replacement(may_discard_state=state == "discard", is_release=flush == "now")
    if state is None:
        raise bad_parameter("from", "a new start discards the stored state: add state=discard")
    try:
        begin = START.validate_python(start if start in ("earliest", "latest") else {"at": start})
    except ValidationError as error:
        raise bad_parameter("from", f"{start!r} is not earliest, latest or a time like 2013-01-01T00:00:00Z") from error
    return Replacement(may_discard_state=True, start=begin, is_release=flush == "now")


START: TypeAdapter[Start] = TypeAdapter(Start)
EditParameters = Annotated[Replacement, Depends(_edit_parameters)]


@router.post(
    "",
    summary="Create a query",
    status_code=201,
    response_model=StoredQueryAnswer,
    responses={
        201: answered(STORED_QUERY, "Created; a driver will start it.", _HEADERS),
        **problems(400, 409, 413, 415, 422, 503),
    },
    openapi_extra=_BODY,
)
def post_query(
    body: JsonBody,
    _looked_at: TargetOfPost,
    _turn: PlanningTurn,
    transaction: Transaction,
    services: ServicesOf,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> StoredQueryAnswer | Response:
    """Store a query and create the relation that it writes.

    The answer has the definition **as stored, with every default**. All faults of a definition are reported at once, each with a pointer to
    its field. `POST /v1/validations` gives the same without storing anything, with `warnings`. A repeated request with the same
    `Idempotency-Key` gets the first answer again. An error is not stored, because it has created nothing.
    """
    make = partial(_created, body, transaction, services)
    return answered_once(transaction, idempotency_key, ["POST", "/v1/queries"], body, make, response, status=201)


def _created(body: Any, connection: sa.Connection, services: Services, response: Response) -> StoredQueryAnswer:
    definition = checked(connection, body)
    created = create_query(connection, definition, services.settings.spark.query_cores)
    response.headers["Location"] = f"/v1/queries/{created.row.name}"
    return replaced_answer(connection, services, created, response)


@router.put(
    "/{name}",
    summary="Create or replace a query",
    response_model=StoredQueryAnswer,
    responses={
        200: answered(STORED_QUERY, "Replaced, or equal to the stored one.", {"ETag": "The version."}),
        201: {"model": StoredQueryAnswer, **answered(STORED_QUERY, "Created.", _HEADERS)},
        **problems(400, 404, 409, 412, 413, 415, 422, 503),
    },
    openapi_extra=_BODY_OF_PUT,
)
def put_query(
    name: Name,
    body: BodyOfPut,
    _looked_at: TargetOfPut,
    _turn: PlanningTurn,
    transaction: Transaction,
    services: ServicesOf,
    response: Response,
    conditions: OfPut,
    options: EditParameters,
    from_fork: FromFork = None,
) -> StoredQueryAnswer:
    """Create the query, or replace its definition.

    An edit is classified first. A no-op changes nothing. Grace, hold, policies for late and expired records, limits and bounds of
    suppression, idle, retentions and late records change **in place**: the query continues with its state. Everything else **needs new
    state** and answers 409 `state_incompatible`, with a reason per field, unless the request has `?state=discard`. `POST /v1/validations`
    with the new definition previews the edit. `desired_state` changes only if the body has it.

    With `?from_fork=` and without a body the query takes over a **fork** of it (`POST …/fork`): its definition, result, state and position,
    in one moment. Reads of the original's relation then give the fork's result; cursors of its changes end (410 `cursor_expired`, or a
    `reset`). The query keeps its desired state; the fork and its relation are deleted. While another query reads one of the two results, the
    answer is 409 `relation_in_use` with its name: that query's position is a number in a log that would be deleted.
    """
    if from_fork is not None:
        return _from_fork(name, from_fork, transaction, services, response, replace(options, conditions=conditions))
    refuse_internal(name)
    stored = find_query(transaction, name)
    before = None if stored is None else read_definition(QueryDefinition, stored.definition).functions
    definition = checked(transaction, _named(name, body), before)
    if definition.name != name:
        detail = f"the body has the name '{definition.name}', the path '{name}'; a query cannot be renamed"
        raise Unprocessable("name_mismatch", detail, [Fault("/name", "name_mismatch", detail)])
    is_desired_state_given = "desired_state" in definition.model_fields_set
    options = replace(options, is_desired_state_given=is_desired_state_given, conditions=conditions)
    result = replace_query(transaction, definition, options, services.settings.spark.query_cores)
    if result.is_created:
        response.status_code = 201
        response.headers["Location"] = f"/v1/queries/{name}"
    return replaced_answer(transaction, services, result, response)


def _from_fork(
    name: str, fork: str, connection: sa.Connection, services: Services, response: Response, options: Replacement
) -> StoredQueryAnswer:
    if options != Replacement(conditions=options.conditions):
        detail = "from_fork takes over the fork as it is; leave state, from and flush out, or send them with an earlier PUT of the fork"
        raise BadRequest("conflicting_parameters", detail, [Fault("?from_fork", "conflicting_parameters", detail)])
    row = taken_over_from(connection, services, name, fork, options.conditions)
    return stored_answer(connection, services, row, read_definition(QueryDefinition, row.definition), response)


@router.get(
    "",
    summary="List queries",
    response_model=QueryPage,
    responses={200: answered({"items": [QUERY], "next": None}, "Queries, by name."), **problems(400)},
)
def get_queries(services: ServicesOf, transaction: Inspection, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None) -> QueryPage:
    """Definitions, desired states and states; the status of each has its progress."""
    after = decode_cursor(cursor, [str])
    most = Most(limit + 1, services.settings.limits.page_bytes)
    queries, is_beyond = list_queries(transaction, most, None if after is None else str(after[0]))
    rows, following = page(queries, limit, lambda row: [row.name], is_last_beyond=is_beyond)
    return QueryPage(items=[query_answer(row) for row in rows], next=following)


@router.get(
    "/{name}",
    summary="Get a query",
    response_model=OneQueryAnswer,
    responses={200: answered(ONE_QUERY, "The query.", {"ETag": "The version."}), **NOT_MODIFIED, **problems(400, 404)},
)
def get_one_query(
    name: Name, transaction: Inspection, response: Response, if_none_match: IfChanged = None
) -> OneQueryAnswer | Response:
    """The definition as stored, with every default, and as an SQL statement."""
    row = get_query(transaction, name)
    same = not_modified(if_none_match, row.version)
    if same is not None:
        return same
    set_read_headers(response, row.version)
    definition = read_definition(QueryDefinition, row.definition)
    sql = statement_of(definition, load_visible_catalog(raw(transaction)))
    return OneQueryAnswer(**dict(query_answer(row)), sql=sql, statement=statement_text(transaction, row.id))


@router.delete(
    "/{name}",
    summary="Delete a query",
    status_code=204,
    responses={
        202: {"description": "Deleted; its driver is still stopping it."},
        204: {"description": "Deleted; nothing of it runs."},
        **problems(400, 404, 409, 412),
    },
)
def delete_one_query(name: Name, transaction: Transaction, conditions: OfWrite, state: OfResult = "discard") -> Response:
    """Delete a query and its state, and with `state=discard` (the default) its relation. This is refused while another query reads that.

    With `state=keep` the relation stays unchanged: it can be read, with `stale: true`, and is deleted like a source. Until then its name is
    taken: a query that would write it is refused with 409 `name_taken`.
    """
    is_at_rest = delete_query(transaction, name, keeps_result=state == "keep", conditions=conditions)
    return Response(status_code=204 if is_at_rest else 202)


@router.put(
    "/{name}/desired-state",
    summary="Set the desired state of a query",
    status_code=202,
    response_model=AcceptedAnswer,
    responses={
        200: {
            "model": AcceptedAnswer,
            **answered(DESIRED_STATE, "The query already had this desired state.", {"ETag": "The version."}),
        },
        202: answered(DESIRED_STATE, "Stored; a driver will carry it out.", {"ETag": "The version."}),
        **problems(400, 404, 412, 413, 415, 422),
    },
    openapi_extra=request_body(
        "DesiredStateBody", body_examples(pause=("Pause", {"state": "paused"}), run=("Run", {"state": "running"}))
    ),
)
def put_desired_state(
    name: Name, body: JsonBody, transaction: Transaction, services: ServicesOf, response: Response, conditions: OfWrite
) -> AcceptedAnswer:
    """`running`, `paused` (the driver keeps the state ready) or `stopped` (resources released). State, position and results always stay."""
    requested = validated(DesiredStateBody, body)
    row, is_changed = set_desired_state(transaction, name, requested.state, conditions)
    if not is_changed:
        response.status_code = 200
    return accepted_answer(transaction, services, row, response)


@router.post(
    "/{name}/restart",
    summary="Restart a query",
    status_code=202,
    response_model=AcceptedAnswer,
    responses={
        202: answered(DESIRED_STATE, "Stored; a driver will carry it out.", {"ETag": "The version."}),
        **problems(400, 404, 409, 412),
    },
)
def post_restart(
    name: Name, transaction: Transaction, services: ServicesOf, response: Response, conditions: OfWrite
) -> AcceptedAnswer:
    """Launch the query again with its state. A failed query also needs this after its cause is corrected."""
    return accepted_answer(transaction, services, request_restart(transaction, name, conditions), response)


def _named(name: str, body: Any) -> Any:
    """Add the name of the path to the body of a PUT that has none."""
    return {"name": name, **body} if isinstance(body, dict) else body
