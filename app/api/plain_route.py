"""Routes of what is asked for most often: a request that says nothing special goes past FastAPI's solving of dependencies.

That takes longer than such a request's own work. Everything else goes the usual way, and so does whatever that would refuse. The guards of the
application are asked either way.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from app.api.deps import is_name


class PlainRoute(APIRoute):
    """Answers plain requests by ``answer``: those without a query string, whose path names something that can be a name."""

    def is_plain(self, request: Request) -> bool:
        """Whether nothing is said that only the usual way knows."""
        return not request.scope["query_string"] and is_name(request.path_params["name"])

    @abstractmethod
    async def answer(self, request: Request) -> Response:
        """Answer a plain request; what it raises is answered as everywhere."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """See ``APIRoute``."""
        usual = super().get_route_handler()

        async def handle(request: Request) -> Response:
            if not self.is_plain(request):
                return await usual(request)
            for guard in request.app.state.guards:
                await guard.dependency(request)
            return await self.answer(request)

        return handle
