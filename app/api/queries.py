"""Queries: create, replace, look at, list, wish, restart, delete."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated, Any, Literal

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import JSONResponse
from pydantic import TypeAdapter, ValidationError

from app.api.bodies import JsonBody, request_body, validated
from app.api.conditions import (
    NOT_MODIFIED,
    IdempotencyKey,
    IfChanged,
    OfPut,
    OfWrite,
    not_modified,
    set_etag,
    set_read_headers,
)
from app.api.deps import (
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
from app.api.documented import answered, body_examples, problems
from app.api.examples import JOIN_DEFINITION, ONE_QUERY, QUERY, STORED_QUERY, WINDOW_DEFINITION, WISH
from app.api.paging import Cursor, decode_cursor, page
from app.api.schemas import DesiredStateBody, OneQueryAnswer, QueryAnswer, QueryPage, StoredQueryAnswer, WarningItem, WishAnswer
from app.api.warned import shown_reasons, shown_warnings
from app.domain.access import actor, refuse_beyond_scope, scope_in_force
from app.domain.idempotency import digest_of
from app.domain.internal_queries import is_internal
from app.domain.scopes import names_in
from app.errors import Fault, Unprocessable
from app.store.catalog import load_visible_catalog
from app.store.fleet import warning_of_no_room
from app.store.idempotency import Claim, KeptAnswer, claim, keep
from app.store.materialisations import refuse_internal
from app.store.page_bounds import Most
from app.store.queries import QueryRow, find_query, get_query, list_queries, request_restart, set_desired_state, statement_text
from app.store.query_edits import Replacement, create_query, delete_query, replace_query
from app.store.query_warnings import warnings_about
from app.store.sql.functions import with_functions
from app.store.stored import opened
from app.store.transactions import raw
from engine.definition.python_functions import Functions
from engine.definition.queries import QueryDefinition
from engine.definition.start import Start
from engine.plan.build import read_query
from engine.statements.writing import statement_of

router = APIRouter(prefix="/v1/queries", tags=["queries"], dependencies=[OnlyKnownParameters])

_BODY = request_body(
    "QueryDefinition",
    body_examples(
        join=("Flights with the weather at their own departure", JOIN_DEFINITION),
        windows=("Final hourly counts per airport", WINDOW_DEFINITION),
    ),
)
_HEADERS = {"ETag": "The version.", "Location": "Its path."}
Discard = Annotated[
    Literal["discard"] | None,
    Query(
        alias="state",
        description="`discard`: where kept state does not fit the edit, or the query has failed because its state cannot be used, begin anew "
        "from the definition's `start`.",
    ),
]
From = Annotated[
    str | None,
    Query(
        alias="from",
        max_length=64,
        description="With `state=discard`: begin anew whatever the edit is, and read from here: `earliest`, `latest`, or an event time "
        "(RFC 3339). It becomes the definition's `start`.",
        examples=["2013-01-01T00:00:00Z"],
    ),
]
Release = Annotated[
    Literal["now"] | None,
    Query(description="`now`: what waits and is due under the new definition goes at the next launch, not with the next record."),
]
OfResult = Annotated[
    Literal["keep", "discard"],
    Query(
        alias="state",
        description="`discard`: the relation it writes goes along; `keep`: it stays for reading until it is deleted.",
    ),
]


def _edit_parameters(state: Discard = None, start: From = None, release: Release = None) -> Replacement:
    """Read how an edit is meant.

    Raises:
        BadRequest: ``bad_parameter``.
    """
    if start is None:
        return Replacement(may_discard_state=state == "discard", is_release=release == "now")
    if state is None:
        raise bad_parameter("from", "a new beginning throws the kept state away: give state=discard as well")
    try:
        begin = START.validate_python(start if start in ("earliest", "latest") else {"at": start})
    except ValidationError as error:
        raise bad_parameter("from", f"{start!r} is none of earliest, latest and a time like 2013-01-01T00:00:00Z") from error
    return Replacement(may_discard_state=True, start=begin, is_release=release == "now")


START: TypeAdapter[Start] = TypeAdapter(Start)
EditParameters = Annotated[Replacement, Depends(_edit_parameters)]


@router.post(
    "",
    summary="Create a query",
    status_code=201,
    response_model=StoredQueryAnswer,
    responses={201: answered(STORED_QUERY, "Created; a driver will start it.", _HEADERS), **problems(400, 409, 413, 415, 422)},
    openapi_extra=_BODY,
)
def post_query(
    body: JsonBody,
    _turn: PlanningTurn,
    transaction: Transaction,
    services: ServicesOf,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> StoredQueryAnswer | Response:
    """Store a query and make the relation it writes.

    The answer holds the definition **as stored, every default spelled out**. Every fault of a definition is reported at once, each with
    a pointer to its field; `POST /v1/validations` says the same without storing anything, `warnings` included. A repeat with the same
    `Idempotency-Key` gets the first answer again; a refusal is not kept, for it has created nothing.
    """
    if idempotency_key is None:
        return _created(body, transaction, services, response)
    scope = scope_in_force()  # a name may be another key's since the first answer, with another scope
    about = ["POST", "/v1/queries", *(() if scope is None else scope.patterns)]
    digest = digest_of(about, json.dumps(body).encode())
    own = Claim(actor(), idempotency_key, digest)
    kept = claim(transaction, own)
    if kept is not None:
        return JSONResponse(kept.body, kept.status, kept.headers)
    answer = _created(body, transaction, services, response)
    headers = {name: response.headers[name] for name in _HEADERS}
    keep(transaction, own, KeptAnswer(201, answer.model_dump(mode="json"), headers))
    return answer


def _created(body: Any, connection: sa.Connection, services: Services, response: Response) -> StoredQueryAnswer:
    definition = _checked(connection, body)
    row = create_query(connection, definition)
    response.headers["Location"] = f"/v1/queries/{row.name}"
    return _stored(connection, services, row, definition, response)


@router.put(
    "/{name}",
    summary="Create or replace a query",
    response_model=StoredQueryAnswer,
    responses={
        200: answered(STORED_QUERY, "Replaced, or equal to what was there.", {"ETag": "The version."}),
        201: {"model": StoredQueryAnswer, **answered(STORED_QUERY, "Created.", _HEADERS)},
        **problems(400, 409, 412, 413, 415, 422),
    },
    openapi_extra=_BODY,
)
def put_query(
    name: Name,
    body: JsonBody,
    _turn: PlanningTurn,
    transaction: Transaction,
    services: ServicesOf,
    response: Response,
    conditions: OfPut,
    wanted: EditParameters,
) -> StoredQueryAnswer:
    """Create the query, or replace its definition.

    An edit is classified first. A no-op changes nothing. Grace, hold, policies for late and expired records, limits and bounds of
    suppression, idle, retentions and late records change **in place**: the query goes on with its state. Everything else **needs new
    state** and answers 409 `state_incompatible`, with a reason per field, unless `?state=discard`. `POST /v1/validations` with the new
    definition previews the edit. `desired_state` in the body is taken over only if it is given.
    """
    refuse_internal(name)
    stored = find_query(transaction, name)
    before = None if stored is None else opened(QueryDefinition, stored.definition).functions
    definition = _checked(transaction, _named(name, body), before)
    if definition.name != name:
        detail = f"the body names '{definition.name}', the path '{name}'; a query cannot be renamed"
        raise Unprocessable("name_mismatch", detail, [Fault("/name", "name_mismatch", detail)])
    is_wish_given = "desired_state" in definition.model_fields_set
    result = replace_query(transaction, definition, replace(wanted, is_wish_given=is_wish_given, conditions=conditions))
    if result.is_created:
        response.status_code = 201
        response.headers["Location"] = f"/v1/queries/{name}"
    return _stored(transaction, services, result.row, definition, response)


@router.get(
    "",
    summary="List queries",
    response_model=QueryPage,
    responses={200: answered({"items": [QUERY], "next": None}, "Queries, by name."), **problems(400)},
)
def get_queries(services: ServicesOf, transaction: Inspection, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None) -> QueryPage:
    """Definitions, wishes and states; progress is in each one's status."""
    after = decode_cursor(cursor, [str])
    most = Most(limit + 1, services.settings.limits.page_bytes)
    found, is_beyond = list_queries(transaction, most, None if after is None else str(after[0]))
    rows, following = page(found, limit, lambda row: [row.name], is_last_beyond=is_beyond)
    return QueryPage(items=[_answer(row) for row in rows], next=following)


@router.get(
    "/{name}",
    summary="Look at a query",
    response_model=OneQueryAnswer,
    responses={200: answered(ONE_QUERY, "The query.", {"ETag": "The version."}), **NOT_MODIFIED, **problems(400, 404)},
)
def get_one_query(
    name: Name, transaction: Inspection, response: Response, if_none_match: IfChanged = None
) -> OneQueryAnswer | Response:
    """The definition as stored, every default spelled out, and as a statement of SQL."""
    row = get_query(transaction, name)
    same = not_modified(if_none_match, row.version)
    if same is not None:
        return same
    set_read_headers(response, row.version)
    definition = opened(QueryDefinition, row.definition)
    sql = statement_of(definition, load_visible_catalog(raw(transaction)))
    return OneQueryAnswer(**dict(_answer(row)), sql=sql, statement=statement_text(transaction, row.id))


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
    """Delete a query and its state, and with `state=discard` (the default) the relation it writes: refused while another query reads that.

    With `state=keep` the relation stays as it was at that moment: it can be read, `stale: true`, and is deleted like a source. Until then
    its name is taken: a query that would write it is refused with 409 `name_taken`.
    """
    is_at_rest = delete_query(transaction, name, keeps_result=state == "keep", conditions=conditions)
    return Response(status_code=204 if is_at_rest else 202)


@router.put(
    "/{name}/desired-state",
    summary="Say whether a query shall run",
    status_code=202,
    response_model=WishAnswer,
    responses={
        200: {"model": WishAnswer, **answered(WISH, "It was wished already.", {"ETag": "The version."})},
        202: answered(WISH, "Noted; a driver will see to it.", {"ETag": "The version."}),
        **problems(400, 404, 412, 413, 415, 422),
    },
    openapi_extra=request_body(
        "DesiredStateBody", body_examples(pause=("Pause", {"state": "paused"}), run=("Run", {"state": "running"}))
    ),
)
def put_desired_state(
    name: Name, body: JsonBody, transaction: Transaction, services: ServicesOf, response: Response, conditions: OfWrite
) -> WishAnswer:
    """`running`, `paused` (state kept at hand) or `stopped` (resources released). State, position and results are kept in every case."""
    wanted = validated(DesiredStateBody, body)
    row, is_changed = set_desired_state(transaction, name, wanted.state, conditions)
    if not is_changed:
        response.status_code = 200
    return _wish(transaction, services, row, response)


@router.post(
    "/{name}/restart",
    summary="Restart a query",
    status_code=202,
    response_model=WishAnswer,
    responses={202: answered(WISH, "Noted; a driver will see to it.", {"ETag": "The version."}), **problems(400, 404, 409, 412)},
)
def post_restart(
    name: Name, transaction: Transaction, services: ServicesOf, response: Response, conditions: OfWrite
) -> WishAnswer:
    """Launch it anew with the state it has; also what a failed query needs once the cause is mended."""
    return _wish(transaction, services, request_restart(transaction, name, conditions), response)


def _checked(connection: sa.Connection, body: Any, before: Functions | None = None) -> QueryDefinition:
    definition = with_functions(connection, read_query(body, lambda: load_visible_catalog(raw(connection))), before)
    refuse_beyond_scope(names_in(definition))
    return definition


def _named(name: str, body: Any) -> Any:
    """Let a PUT leave out the name that its path says."""
    return {"name": name, **body} if isinstance(body, dict) else body


def _stored(
    connection: sa.Connection, services: Services, row: QueryRow, definition: QueryDefinition, response: Response
) -> StoredQueryAnswer:
    warned = shown_warnings(warnings_about(connection, definition)) + _placing(connection, services, row)
    return StoredQueryAnswer(**dict(_answer(row, response)), warnings=warned)


def _answer(row: QueryRow, response: Response | None = None) -> QueryAnswer:
    if response is not None:
        set_etag(response, row.version)
    return QueryAnswer(
        name=row.name,
        definition={**row.definition, "desired_state": row.desired_state},
        desired_state=row.desired_state,
        state=row.state,
        internal=is_internal(row.name),
        generation=row.generation,
        version=row.version,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _placing(connection: sa.Connection, services: Services, row: QueryRow) -> list[WarningItem]:
    return shown_reasons(warning_of_no_room(connection, services.settings.driver.lease_ttl_ms, row.name))


def _wish(connection: sa.Connection, services: Services, row: QueryRow, response: Response) -> WishAnswer:
    set_etag(response, row.version)
    return WishAnswer(
        name=row.name,
        desired_state=row.desired_state,
        state=row.state,
        generation=row.generation,
        version=row.version,
        status=f"/v1/queries/{row.name}/status?wait_for={row.desired_state}",
        warnings=_placing(connection, services, row),
    )
