"""Queries: create, replace, look at, list, wish, restart, delete."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Response

from app.api.bodies import JsonBody, request_body, validated
from app.api.deps import DEFAULT_LIMIT, IfMatch, Limit, Name, OnlyKnownParameters, Transaction, set_etag
from app.api.documented import answered, body_examples, problems
from app.api.examples import JOIN_DEFINITION, QUERY, WINDOW_DEFINITION, WISH
from app.api.paging import Cursor, decode_cursor, page
from app.api.schemas import DesiredStateBody, QueryAnswer, QueryPage, WishAnswer
from app.errors import Fault, PreconditionFailed, Unprocessable
from app.store.queries import QueryRow, find_query, get_query, list_queries, request_restart, set_desired_state
from app.store.query_edits import create_query, delete_query, replace_query
from engine.definition.queries import QueryDefinition

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
    Query(alias="state", description="`discard`: where kept state does not fit the edit, begin anew from the start."),
]
IfNoneMatch = Annotated[
    Literal["*"] | None, Header(alias="If-None-Match", description="`*`: only create, never replace; else 412.")
]


@router.post(
    "",
    summary="Create a query",
    status_code=201,
    response_model=QueryAnswer,
    responses={201: answered(QUERY, "Created; a driver will start it.", _HEADERS), **problems(400, 409, 413, 415, 422)},
    openapi_extra=_BODY,
)
def post_query(body: JsonBody, transaction: Transaction, response: Response) -> QueryAnswer:
    """Store a query and make the relation it writes.

    The answer holds the definition **as stored, every default spelled out**. Every fault of a definition is reported at once, each with
    a pointer to its field; `POST /v1/validations` says the same without storing anything.
    """
    row = create_query(transaction, validated(QueryDefinition, body))
    response.headers["Location"] = f"/v1/queries/{row.name}"
    return _answer(row, response)


@router.put(
    "/{name}",
    summary="Create or replace a query",
    response_model=QueryAnswer,
    responses={
        200: answered(QUERY, "Replaced, or equal to what was there.", {"ETag": "The version."}),
        201: {"model": QueryAnswer, **answered(QUERY, "Created.", _HEADERS)},
        **problems(400, 409, 412, 413, 415, 422),
    },
    openapi_extra=_BODY,
)
def put_query(
    name: Name,
    body: JsonBody,
    transaction: Transaction,
    response: Response,
    state: Discard = None,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> QueryAnswer:
    """Create the query, or replace its definition.

    An edit is classified first. A no-op changes nothing. Grace, late policy, window retention and late records change **in place**: the
    query goes on with its state. Everything else **needs new state** and answers 409 `state_incompatible` unless `?state=discard`.
    `desired_state` in the body is taken over only if it is given.
    """
    definition = validated(QueryDefinition, _named(name, body))
    if definition.name != name:
        detail = f"the body names '{definition.name}', the path '{name}'; a query cannot be renamed"
        raise Unprocessable("name_mismatch", detail, [Fault("/name", "name_mismatch", detail)])
    if if_none_match is not None and find_query(transaction, name) is not None:
        raise PreconditionFailed("version_mismatch", f"there is a query '{name}' already")
    result = replace_query(
        transaction,
        definition,
        is_wish_given="desired_state" in definition.model_fields_set,
        may_discard_state=state == "discard",
        if_match=if_match,
    )
    if result.is_created:
        response.status_code = 201
        response.headers["Location"] = f"/v1/queries/{name}"
    return _answer(result.row, response)


@router.get(
    "",
    summary="List queries",
    response_model=QueryPage,
    responses={200: answered({"items": [QUERY], "next": None}, "Queries, by name."), **problems(400)},
)
def get_queries(transaction: Transaction, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None) -> QueryPage:
    """Definitions, wishes and states; progress is in each one's status."""
    after = decode_cursor(cursor, [str])
    found = list_queries(transaction, limit + 1, None if after is None else str(after[0]))
    rows, following = page(found, limit, lambda row: [row.name])
    return QueryPage(items=[_answer(row) for row in rows], next=following)


@router.get(
    "/{name}",
    summary="Look at a query",
    response_model=QueryAnswer,
    responses={200: answered(QUERY, "The query.", {"ETag": "The version."}), **problems(400, 404)},
)
def get_one_query(name: Name, transaction: Transaction, response: Response) -> QueryAnswer:
    """The definition as stored, every default spelled out."""
    return _answer(get_query(transaction, name), response)


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
def delete_one_query(name: Name, transaction: Transaction, if_match: IfMatch = None) -> Response:
    """Delete a query, its state, and the relation it writes. Refused while another query reads that relation."""
    is_at_rest = delete_query(transaction, name, if_match)
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
    name: Name, body: JsonBody, transaction: Transaction, response: Response, if_match: IfMatch = None
) -> WishAnswer:
    """`running`, `paused` (state kept at hand) or `stopped` (resources released). State, position and results are kept in every case."""
    wanted = validated(DesiredStateBody, body)
    row, is_changed = set_desired_state(transaction, name, wanted.state, if_match)
    if not is_changed:
        response.status_code = 200
    return _wish(row, response)


@router.post(
    "/{name}/restart",
    summary="Restart a query",
    status_code=202,
    response_model=WishAnswer,
    responses={202: answered(WISH, "Noted; a driver will see to it.", {"ETag": "The version."}), **problems(400, 404, 409, 412)},
)
def post_restart(name: Name, transaction: Transaction, response: Response, if_match: IfMatch = None) -> WishAnswer:
    """Launch it anew with the state it has; also what a failed query needs once the cause is mended."""
    return _wish(request_restart(transaction, name, if_match), response)


def _named(name: str, body: Any) -> Any:
    """Let a PUT leave out the name that its path says."""
    return {"name": name, **body} if isinstance(body, dict) else body


def _answer(row: QueryRow, response: Response | None = None) -> QueryAnswer:
    if response is not None:
        set_etag(response, row.version)
    return QueryAnswer(
        name=row.name,
        definition={**row.definition, "desired_state": row.desired_state},
        desired_state=row.desired_state,
        state=row.state,
        generation=row.generation,
        version=row.version,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _wish(row: QueryRow, response: Response) -> WishAnswer:
    set_etag(response, row.version)
    return WishAnswer(
        name=row.name,
        desired_state=row.desired_state,
        state=row.state,
        generation=row.generation,
        version=row.version,
        status=f"/v1/queries/{row.name}/status?wait_for={row.desired_state}",
    )
