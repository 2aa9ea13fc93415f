"""GET /v1/errors: what each code of an error means, and what helps."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import Field

from app.errors.app_errors import NotFound
from app.errors.error_list import ERRORS, ErrorEntry
from app.http.answers.documented import answered, problems
from app.http.parameters import OnlyKnownParameters
from app.http.schemas import Answer
from app.main.guide import error_page
from engine.expressions.suggestions import meant

router = APIRouter(prefix="/v1/errors", tags=["service"], dependencies=[OnlyKnownParameters])
Code = Annotated[str, Path(description="The code.", examples=["query_not_found"], max_length=100, pattern=r"^[^\x00]+$")]


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
