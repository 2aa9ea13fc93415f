"""Headers for conditional and repeated requests: If-Match, If-None-Match (RFC 9110), Idempotency-Key; and the ETag that they refer to.

An ETag is the version of a query or a relation in quotes. Writes of users change it; facts from drivers do not. If-Match compares strongly, so
a weak tag never matches; If-None-Match compares weakly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Header, Response

from app.errors.app_errors import PreconditionFailed

_TAG = re.compile(r'(W/)?("[^"]*")')


def etag(version: int) -> str:
    return f'"{version}"'


def is_named(header: str, version: int, *, is_weak_enough: bool) -> bool:
    """Return whether a list of tags names this version; ``*`` names every version."""
    if header.strip() == "*":
        return True
    return any(tag == etag(version) and (is_weak_enough or not weak) for weak, tag in _TAG.findall(header))


@dataclass(frozen=True, slots=True)
class Preconditions:
    """The headers of one request; None if absent."""

    if_match: str | None = None
    if_none_match: str | None = None

    def check(self, what: str, version: int | None) -> None:
        """Compare the headers with the current version.

        Args:
            what: such as ``query 'delays'``.
            version: None if it does not exist yet.

        Raises:
            PreconditionFailed: ``version_mismatch``; the current version is in the detail and in the header ``ETag``.
        """
        if version is None:
            if self.if_match is not None:
                raise PreconditionFailed(
                    "version_mismatch", f"there is no {what} to match {self.if_match}; leave If-Match out to create it"
                )
            return
        headers = {"ETag": etag(version)}
        if self.if_match is not None and not is_named(self.if_match, version, is_weak_enough=False):
            detail = f"{what} is at version {etag(version)}, not {self.if_match}; read it again and repeat the edit"
            raise PreconditionFailed("version_mismatch", detail, headers=headers)
        if self.if_none_match is not None and is_named(self.if_none_match, version, is_weak_enough=True):
            detail = f"there is {what} already, at version {etag(version)}; leave If-None-Match out to replace it"
            raise PreconditionFailed("version_mismatch", detail, headers=headers)


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
