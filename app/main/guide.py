"""The guide at `/guide`: files of the site that `make guide` builds (``tools.guide``), or a page that says how to build it.

GET /v1/errors: what each code of an error means, and what helps.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePosixPath
from typing import Annotated, Final, Literal

import anyio.to_thread
from fastapi import APIRouter
from fastapi import Path as PathParameter
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from app.errors.app_errors import NotFound
from app.errors.error_list import ERRORS, ErrorEntry
from app.http.answers.documented import answered, problems
from app.http.parameters import OnlyKnownParameters
from app.http.schemas import Answer
from engine.expressions.suggestions import meant

PATH: Final = "/guide"
SITE: Final = Path(__file__).resolve().parents[1] / "guide" / "site"
"""Directory of the built site; it is in the wheel, not in git."""

ERRORS_PAGE: Final = "reference/errors/"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "
    "worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",  # revalidated each time, and answered 304: the next version may be built at any moment
}
_PAGE: Final = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>:root {{ color-scheme: light dark }} body {{ font-family: system-ui, sans-serif; max-width: 40rem; margin: 4rem auto;
padding: 0 1rem; line-height: 1.5 }}</style>
</head><body><h1>{title}</h1>{text}</body></html>"""
_ABSENT: Final = """<p>In a checkout of the source code, run <code>make guide</code> and load this page again. The package from a wheel
has it built in.</p>
<p>Until then, <a href="{top}../docs">every request is described here</a>, and the texts are in <code>docs/</code> of the source code.</p>"""
_LOST: Final = """<p>The guide has no page here. <a href="{top}">Its first page</a> has a search.</p>"""


class Guide:
    """ASGI application below ``/guide``. It needs no key, because it shows no data of the service.

    Args:
        site: the folder of the site; without ``index.html`` in it, the guide is not built.
    """

    def __init__(self, site: Path = SITE) -> None:
        self._files = StaticFiles(directory=site, check_dir=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await anyio.to_thread.run_sync(self._answer, scope)
        response.headers.update(_HEADERS)
        await response(scope, receive, send)

    def _look_up(self, path: str) -> tuple[str, os.stat_result | None]:
        """Look a file up; a path that is not a valid file name finds none."""
        try:
            return self._files.lookup_path(path)
        except (OSError, ValueError):  # too long, or with a NUL
            return "", None

    def _answer(self, scope: Scope) -> Response:
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(405, headers={"Allow": "GET, HEAD"})
        path = scope["path"].removeprefix(scope.get("root_path", "")).lstrip("/")
        place, status = self._look_up(path)
        if status is not None and stat.S_ISDIR(status.st_mode):
            if path and not path.endswith("/"):
                # A relative path, because an absolute one would repeat the name in Host.
                return RedirectResponse(f"{PurePosixPath(path).name}/", status_code=307)
            place, status = self._files.lookup_path(f"{path}index.html")
        if status is not None and stat.S_ISREG(status.st_mode):
            return self._files.file_response(place, status, scope)
        # Use the raw path: an escaped slash separates nothing.
        depth = scope.get("raw_path", scope["path"].encode()).count(b"/") - scope.get("root_path", "").count("/") - 1
        top = "../" * depth or "./"
        _, home = self._files.lookup_path("index.html")
        title, text = ("There is no such page", _LOST) if home is not None else ("The guide is not built", _ABSENT)
        return HTMLResponse(_PAGE.format(title=title, text=text.format(top=top)), status_code=404)


def guide_routes(site: Path = SITE) -> list[BaseRoute]:
    return [Route(PATH, _with_slash, include_in_schema=False), Mount(PATH, Guide(site))]


def error_page(code: str, site: Path = SITE) -> str | None:
    """Return the URL of a code in the guide, relative to `/v1/errors/{code}`; None without a guide."""
    return f"../..{PATH}/{ERRORS_PAGE}#{code}" if (site / ERRORS_PAGE / "index.html").is_file() else None


async def _with_slash(_: Request) -> Response:
    return RedirectResponse(f"{PATH.removeprefix('/')}/", status_code=307)


router = APIRouter(prefix="/v1/errors", tags=["service"], dependencies=[OnlyKnownParameters])
Code = Annotated[str, PathParameter(description="The code.", examples=["query_not_found"], max_length=100, pattern=r"^[^\x00]+$")]


class ErrorItem(Answer):
    """One code of an error."""

    code: str = Field(description="Stable snake_case code.", examples=["query_not_found"])
    kind: Literal["request", "definition", "statement", "record", "query", "warning"] = Field(
        description="`request`: of an answer. `definition`: of a field of a body. `statement`: of an SQL statement. "
        "`record`: of a rejected record. `query`: of a query that failed, is retried or waits. `warning`: of an accepted definition or "
        "record that may surprise."
    )
    status: int | None = Field(description="HTTP status of answers with this code; null: it is in no answer.", examples=[404])
    title: str = Field(description="Meaning of the status.", examples=["Not found"])
    retryable: bool = Field(description="Whether the same request can succeed later without a change.")
    meaning: str = Field(description="What is wrong.")
    cure: str = Field(description="What to do.")


class ErrorList(Answer):
    """Every code of an error."""

    items: list[ErrorItem] = Field(description="By code.")


def _item(entry: ErrorEntry) -> ErrorItem:
    return ErrorItem(
        code=entry.code, kind=entry.kind, status=entry.statuses[0] if entry.statuses else None, title=entry.title,
        retryable=entry.is_retryable, meaning=entry.meaning, cure=entry.cure,
    )  # fmt: skip


_EXAMPLE = _item(ERRORS["query_not_found"]).model_dump(mode="json")


@router.get(
    "",
    summary="List the codes of errors",
    response_model=ErrorList,
    responses={200: answered({"items": [_EXAMPLE]}, "The codes."), **problems(400)},
)
async def get_errors() -> ErrorList:
    """Every code of answers, rejected records and statuses of queries, with its meaning and its cure."""
    return ErrorList(items=[_item(entry) for entry in ERRORS.values()])


@router.get(
    "/{code}",
    summary="Explain the code of an error",
    response_model=ErrorItem,
    responses={
        200: answered(_EXAMPLE, "The explanation."),
        303: {"description": "The explanation in the guide, for clients that accept `text/html`."},
        **problems(400, 404),
    },
)
async def get_error(code: Code, request: Request) -> ErrorItem | Response:
    """What a code means and what helps. The `type` of a problem points here. A browser is redirected to the code in the guide."""
    entry = ERRORS.get(code)
    if entry is None:
        near = meant(code, ERRORS)
        ending = "; GET /v1/errors lists them" if near is None else f"; did you mean {near}?"
        raise NotFound("error_not_found", f"there is no error with the code {code[:100]!r}{ending}")
    page = error_page(code) if "text/html" in request.headers.get("accept", "") else None
    return _item(entry) if page is None else RedirectResponse(page, status_code=303)
