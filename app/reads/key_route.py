"""The route of the most frequent read: a key's current row, without other parameters."""

from __future__ import annotations

from fastapi import Request, Response

from app.http.answers.negotiation import requested_form
from app.http.guards.plain_route import PlainRoute
from app.http.parameters import DEFAULT_LIMIT, MAX_KEY_LENGTH
from app.reads.freshness import ANY_FRESHNESS
from app.reads.row_reads import ReadRequest, answer_rows


class KeyRoute(PlainRoute):
    """Reads the row. It does not watch for a disconnect of its client, which would cost more than the read."""

    def is_plain(self, request: Request) -> bool:
        """See ``PlainRoute``."""
        return super().is_plain(request) and len(request.path_params["key"]) <= MAX_KEY_LENGTH

    async def answer(self, request: Request) -> Response:
        """See ``PlainRoute``."""
        read_request = ReadRequest(
            table=request.path_params["name"],
            filters=(),
            single_key=request.path_params["key"],
            at_ms=None,
            range_ms=None,
            state=None,
            bounds_ms=(None, None),
            is_descending=False,
            has_text_numbers=False,
            limit=DEFAULT_LIMIT,
            cursor=None,
            form=requested_form(request),
        )
        return await answer_rows(request.app.state.services, read_request, ANY_FRESHNESS)
