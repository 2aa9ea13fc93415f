"""Headers for conditional and repeated requests: If-Match, If-None-Match, Idempotency-Key; and the ETag that they refer to."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Header, Response

from app.http.requests.preconditions import Preconditions, etag, is_named

IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match", description="Only if the stored version is this one (the ETag of an earlier answer); otherwise 412."
    ),
]
IfNoneMatch = Annotated[
    str | None,
    Header(alias="If-None-Match", description="`*`: only create, never replace; otherwise 412."),
]
IfChanged = Annotated[
    str | None,
    Header(
        alias="If-None-Match",
        description="304 if the version is still this one. A version counts writes of users; state and positions are facts, and "
        "change without it.",
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="Makes a retry safe for 24 hours: the same key with the same body gets the first answer and changes nothing.",
    ),
]

# A cache that revalidates by version would show an old state, because facts change without the version.
_NO_STORE = {"Cache-Control": "no-store"}
_ETAG_HEADER = {"ETag": {"description": "The version.", "schema": {"type": "string"}}}
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "The version is still the one in If-None-Match.", "headers": _ETAG_HEADER}
}


def _conditions(if_match: IfMatch = None, if_none_match: IfNoneMatch = None) -> Preconditions:
    return Preconditions(if_match, if_none_match)


def _match_only(if_match: IfMatch = None) -> Preconditions:
    return Preconditions(if_match)


OfPut = Annotated[Preconditions, Depends(_conditions)]
OfWrite = Annotated[Preconditions, Depends(_match_only)]


def set_etag(response: Response, version: int) -> None:
    """Set the ETag of the answer."""
    response.headers["ETag"] = etag(version)


def not_modified(if_none_match: str | None, version: int) -> Response | None:
    """Return the answer 304 if the client has this version already."""
    if if_none_match is None or not is_named(if_none_match, version, is_weak_enough=True):
        return None
    return Response(status_code=304, headers={"ETag": etag(version), **_NO_STORE})


def set_read_headers(response: Response, version: int) -> None:
    """Set the ETag of the answer to a GET, and keep the answer out of caches."""
    set_etag(response, version)
    response.headers.update(_NO_STORE)
