"""Refuse texts that the database cannot store, once for every request: U+0000 in a JSON body, a path, a query string or a header."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import parse_qsl

from fastapi import Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.errors.app_errors import AppError, BadRequest, Fault
from app.http.answers.problems import problem_response
from engine.errors import DefinitionInvalid, Problem
from engine.expressions.limits import MAX_PROBLEMS

_DETAIL: Final = "the character U+0000 cannot be stored; leave it out"


def refuse_unstorable(value: Any) -> None:
    """Check the texts of parsed JSON, and the names of members.

    Raises:
        DefinitionInvalid: ``invalid_string``, one problem per text, each with its pointer.
    """
    faults = [
        Problem(pointer, "invalid_string", _DETAIL) for pointer, _ in zip(_unstorable(value), range(MAX_PROBLEMS), strict=False)
    ]
    if faults:
        raise DefinitionInvalid(faults)


def _unstorable(value: Any) -> Iterator[str]:
    """Yield pointers. Without recursion, because the parser accepts deep values."""
    open_values = [("", value)]
    while open_values:
        pointer, each = open_values.pop()
        match each:
            case str() if "\0" in each:
                yield pointer
            case list():
                open_values.extend((f"{pointer}/{index}", item) for index, item in reversed(list(enumerate(each))))
            case dict():
                if any("\0" in name for name in each):
                    yield pointer
                open_values.extend((f"{pointer}/{_escaped(name)}", item) for name, item in reversed(each.items()))


def _escaped(name: str) -> str:
    return name.replace("\0", "\N{REPLACEMENT CHARACTER}").replace("~", "~0").replace("/", "~1")


class StoredTexts:
    """ASGI middleware that refuses U+0000 outside of the body, with 400 ``bad_parameter``."""

    def __init__(self, app: ASGIApp, refused: Callable[[Request, AppError], Response] = problem_response) -> None:
        self._app = app
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (pointer := _place_of_zero(scope)) is not None:
            refusal = BadRequest("bad_parameter", f"{pointer}: {_DETAIL}", [Fault(pointer, "bad_parameter", _DETAIL)])
            await self._refused(Request(scope), refusal)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _place_of_zero(scope: Scope) -> str | None:
    """Return where U+0000 is: ``path``, ``?name`` for a parameter, or the name of a header."""
    if "\0" in scope["path"]:
        return "path"
    query = scope["query_string"]
    if b"%00" in query or b"\0" in query:
        named = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
        return next((f"?{_escaped(name)}" for name, text in named if "\0" in name or "\0" in text), None)
    return next((name.decode("latin-1") for name, text in scope["headers"] if b"\0" in text), None)
