"""RFC 9110's If-Match and If-None-Match, compared with the version of a query or a relation. Pure.

An ETag is the version in quotes. Writes of users change it; facts from drivers do not. If-Match compares strongly, so a weak tag never
matches; If-None-Match compares weakly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from app.errors.app_errors import PreconditionFailed

_TAG = re.compile(r'(W/)?("[^"]*")')


def etag(version: int) -> str:
    """Return the strong ETag of a version."""
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
