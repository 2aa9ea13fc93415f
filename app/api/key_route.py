"""The route of the most frequent read: a key's row as it is now, nothing else said."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from app.api.deps import DEFAULT_LIMIT, MAX_KEY_LENGTH, MAX_NAME_LENGTH
from app.api.freshness import Freshness
from app.api.negotiation import wanted_form
from app.api.row_reads import Wanted, answer_rows

_ANY = Freshness()


class KeyRoute(APIRoute):
    """Answers a request without a query string past FastAPI's solving of dependencies, which takes longer than such a read itself.

    Everything else goes the usual way, and so does whatever that would refuse. The guards of the application are asked either way.
    Whether its client leaves is not watched: such a read costs less than that.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """See ``APIRoute``."""
        usual = super().get_route_handler()

        async def handle(request: Request) -> Response:
            name, key = request.path_params["name"], request.path_params["key"]
            is_plain = not request.scope["query_string"] and len(name) <= MAX_NAME_LENGTH and len(key) <= MAX_KEY_LENGTH
            if not is_plain or "\0" in name:
                return await usual(request)
            for guard in request.app.state.guards:
                await guard.dependency(request)
            wanted = Wanted(
                table=name,
                filters=(),
                single_key=key,
                at_ms=None,
                range_ms=None,
                state=None,
                bounds_ms=(None, None),
                is_descending=False,
                has_text_numbers=False,
                limit=DEFAULT_LIMIT,
                cursor=None,
                form=wanted_form(request),
            )
            return await answer_rows(request.app.state.services, wanted, _ANY)

        return handle
