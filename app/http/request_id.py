"""The id of a request, in its log lines, its answer and the audit log."""

from __future__ import annotations

from contextvars import ContextVar

from starlette.types import Scope

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""Id of the request that this task answers; None on the command line."""


REQUEST_ID_HEADER = "X-Request-Id"


SCOPE_KEY = "slackwater.request_id"


def request_id_of(scope: Scope) -> str:
    return str(scope.get(SCOPE_KEY, "-"))
