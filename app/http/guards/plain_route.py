"""Routes of what is asked for most often: a request that says nothing special goes past FastAPI's routing and solving of dependencies.

These take longer than such a request's own work. Everything else goes the usual way, and so does whatever that would refuse. The guards and the
error handlers of the application are the same either way.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from app.http.parameters import is_name


class PlainRoute(APIRoute):
    """Answers plain requests by ``answer``: those without a query string, whose path names something that can be a name."""

    def is_plain(self, request: Request) -> bool:
        """Whether nothing is said that only the usual way knows."""
        return not request.scope["query_string"] and is_name(request.path_params["name"])

    @abstractmethod
    async def answer(self, request: Request) -> Response:
        """Answer a plain request; what it raises is answered as everywhere."""

    async def guarded_answer(self, request: Request) -> Response:
        """Ask the guards, then answer."""
        for guard in request.app.state.guards:
            await guard.dependency(request)
        return await self.answer(request)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """See ``APIRoute``."""
        usual = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await (self.guarded_answer(request) if self.is_plain(request) else usual(request))

        return handle


class PlainRoutes:
    """ASGI middleware that finds plain requests before all routes are tried in turn. It belongs innermost.

    Args:
        app: where everything else goes.
        routes: those that may answer plain requests, and that no route before them takes.
        handlers: of exceptions, as the application has them.
    """

    def __init__(self, app: ASGIApp, routes: Iterable[PlainRoute], handlers: Mapping[Any, Any]) -> None:
        self._app = app
        self._routes = tuple(routes)
        of_requests = {
            key: handler for key, handler in handlers.items() if key not in (HTTPStatus.INTERNAL_SERVER_ERROR, Exception)
        }
        self._handled = ExceptionMiddleware(_answered, of_requests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope["query_string"]:
            for route in self._routes:
                match, found = route.matches(scope)
                if match is Match.FULL:
                    scope.update(found)
                    if route.is_plain(Request(scope)):
                        await self._handled(scope, receive, send)
                        return
        await self._app(scope, receive, send)


async def _answered(scope: Scope, receive: Receive, send: Send) -> None:
    route: PlainRoute = scope["route"]
    response = await route.guarded_answer(Request(scope, receive, send))
    await response(scope, receive, send)
