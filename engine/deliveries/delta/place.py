"""Where a Delta table is: in a directory below the service's root, or in a bucket of a stored connection.

Knows nothing of rows and positions. Only ``options`` holds secrets, and no text or error shows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from engine.connections.s3 import S3Connection, obstore_options
from engine.connections.secret_sources import SecretMissing
from engine.connections.stored import Resolved, WrongConnection, load
from engine.definition.deliveries.delta import DeltaDelivery
from engine.deliveries.deliveries import DeliveryContext, TargetUnavailable
from engine.deliveries.lake import directory_of
from engine.errors import DefinitionInvalid, Problem, SourceUnavailable
from engine.postgres.postgres import connect

REQUEST_S: Final = 30
"""Limit of one request; a part of a file has 5 MB."""

CONNECT_S: Final = 5
TRIES: Final = 2
_TOLD_CHARS: Final = 300
_NOT_ALLOWED: Final = "403 Forbidden"
_MAY_PASS: Final = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "RequestTimeTooSkewed", "ExpiredToken", "InvalidToken")
"""S3's error codes after a key was exchanged, or with a wrong clock: the next try reads the secrets again."""

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class DeltaPlace:
    """A place of a table.

    Attributes:
        uri: of the table: a path, or ``s3://bucket/path``.
        directory: the path if it is a directory, else None.
        options: of the library's client; None: for a directory.
        hidden: removes the secrets of ``options`` from a text.
    """

    uri: str
    directory: Path | None = None
    options: dict[str, str] | None = field(default=None, repr=False)
    hidden: Callable[[str], str] = field(default=str, repr=False)

    def error_text(self, error: Exception) -> str:
        """Return the beginning of the library's text, in one line and without secrets."""
        return self.hidden(" ".join(_COLOUR.sub("", str(error)).replace("↳", ":").split()))[:_TOLD_CHARS]

    def is_refused(self, error: Exception) -> bool:
        """Whether a bucket refuses the request, and will go on refusing it."""
        said = str(error)
        return self.options is not None and _NOT_ALLOWED in said and not any(code in said for code in _MAY_PASS)


def place_of(definition: DeltaDelivery, site: DeliveryContext) -> DeltaPlace:
    """Return where results are written.

    Raises:
        DefinitionInvalid: nothing may be written there, or there is no such connection.
        TargetUnavailable: the connection cannot be used here and now.
    """
    if definition.connection is None:
        directory = directory_of(definition.path, site.root)
        return DeltaPlace(str(directory), directory)
    resolved = resolved_of(definition.connection, site)
    bucket = resolved.of_kind(S3Connection)
    try:
        options = _options(bucket, resolved)
    except SecretMissing as error:
        raise TargetUnavailable(f"connection '{resolved.name}': {error}") from error
    return DeltaPlace(f"s3://{bucket.bucket}/{definition.path}", None, options, resolved.reader.without_secrets)


def resolved_of(name: str, site: DeliveryContext) -> Resolved:
    """Look a connection up.

    Raises:
        DefinitionInvalid: there is none, or it is of another type.
        TargetUnavailable: it cannot be used here and now.
    """
    try:
        with connect(site.dsn, "slackwater-delivery") as connection:
            resolved = load(connection, name, site.surroundings)
        resolved.of_kind(S3Connection)
    except WrongConnection as error:
        raise refused(error.code, str(error)) from error
    except SourceUnavailable as error:
        raise TargetUnavailable(str(error)) from error
    return resolved


def refused(code: str, detail: str) -> DefinitionInvalid:
    """Return the error for a refused connection."""
    return DefinitionInvalid([Problem("/into/connector/connection", code, detail)])


def _options(bucket: S3Connection, resolved: Resolved) -> dict[str, str]:
    """Return the library's options. It takes others from the environment, except those of ``forget_own_credentials``."""
    given = obstore_options(bucket, resolved.reader)
    options = {
        "aws_region": bucket.region,
        "aws_endpoint_url": bucket.url,
        "aws_virtual_hosted_style_request": str(not bucket.path_style).lower(),
        "aws_allow_http": str(bucket.url.startswith("http:")).lower(),
        "aws_conditional_put": "etag",  # of two processes that write the same version one is refused
        "timeout": f"{REQUEST_S}s",
        "connect_timeout": f"{CONNECT_S}s",
        "max_retries": str(TRIES - 1),
        "retry_timeout": f"{REQUEST_S}s",
    }
    if given.credentials is None:
        return {**options, "aws_skip_signature": "true"}
    known = given.credentials()
    named = {"aws_access_key_id": "access_key_id", "aws_secret_access_key": "secret_access_key", "aws_session_token": "token"}
    return {**options, **{name: value for name, part in named.items() if (value := known[part]) is not None}}
