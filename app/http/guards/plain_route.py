"""Fast routes for the most frequent requests: plain ones skip FastAPI's routing and its resolution of dependencies.

Routing and dependencies take longer than the work of such a request. All other requests take FastAPI's path, and so do requests that it
would refuse. The guards and the error handlers of the application are the same on both paths.
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
    """Answers plain requests with ``answer``: those without a query string, whose path has a valid name."""

    def is_plain(self, request: Request) -> bool:
        """Return whether the request needs nothing from FastAPI's path."""
        return not request.scope["query_string"] and is_name(request.path_params["name"])

    @abstractmethod
    async def answer(self, request: Request) -> Response:
        """Return the answer to a plain request; errors are handled as everywhere."""

    async def guarded_answer(self, request: Request) -> Response:
        for guard in request.app.state.guards:
            await guard.dependency(request)
        return await self.answer(request)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        usual = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await (self.guarded_answer(request) if self.is_plain(request) else usual(request))

        return handle


class PlainRoutes:
    """ASGI middleware that finds plain requests before all routes are tried in turn. It must be the innermost one.

    Args:
        routes: that may answer plain requests; no earlier route may match their paths.
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
                match, child_scope = route.matches(scope)
                if match is Match.FULL:
                    scope.update(child_scope)
                    if route.is_plain(Request(scope)):
                        await self._handled(scope, receive, send)
                        return
        await self._app(scope, receive, send)


async def _answered(scope: Scope, receive: Receive, send: Send) -> None:
    route: PlainRoute = scope["route"]
    response = await route.guarded_answer(Request(scope, receive, send))
    await response(scope, receive, send)
