"""Answers as JSON, as lines of JSON, or as Arrow. Rows arrive as JSON text and are joined without parsing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from fastapi import Request, Response

from app.http.answers.arrow_rows import arrow_stream
from engine.expressions.types.types import ColumnType

JSON_TYPE = "application/json"
NDJSON_TYPE = "application/x-ndjson"
ARROW_TYPE = "application/vnd.apache.arrow.stream"
_HEADER_PREFIX = "Slackwater-"

Form = Literal["json", "lines", "arrow"]
SEPARATORS: dict[Form, str] = {"json": ",", "lines": "\n", "arrow": ""}


def requested_form(request: Request) -> Form:
    """Return the form that the Accept header asks for; JSON if it names no other form."""
    accepted = request.headers.get("accept", "")
    if NDJSON_TYPE in accepted:
        return "lines"
    return "arrow" if ARROW_TYPE in accepted else "json"


def page_response(request: Request, member: str, rows: Sequence[str], rest: Mapping[str, Any]) -> Response:
    """Return rows as JSON or as lines.

    Args:
        request: its Accept header chooses the form.
        member: name of the array in the JSON form.
        rows: JSON texts.
        rest: the other members; headers ``Slackwater-…`` in the form of lines.
    """
    form: Form = "lines" if requested_form(request) == "lines" else "json"
    texts = {name: json.dumps(value, separators=(",", ":")) for name, value in rest.items()}
    return joined_response(form, member, SEPARATORS[form].join(rows), texts)


def joined_response(form: Form, member: str, rows: str, rest: Mapping[str, str]) -> Response:
    """Return an answer whose rows are one text already.

    Args:
        form: ``json`` or ``lines``.
        member: name of the array in the JSON form.
        rows: JSON texts with the form's separator between them.
        rest: the other members as JSON texts.
    """
    if form == "lines":
        return Response(f"{rows}\n" if rows else "", headers=_headers(rest), media_type=NDJSON_TYPE)
    members = ",".join([f'"{name}":{text}' for name, text in rest.items()])
    return Response(f'{{{members},"{member}":[{rows}]}}', media_type=JSON_TYPE)


def arrow_response(
    columns: Sequence[tuple[str, ColumnType]], values: Sequence[Sequence[Any] | None], rest: Mapping[str, str]
) -> Response:
    """Return rows as an Arrow IPC stream; the other members are headers and, under ``slackwater``, metadata of the schema."""
    metadata = {name: json.loads(text) for name, text in rest.items()}
    return Response(arrow_stream(columns, values, metadata), headers=_headers(rest), media_type=ARROW_TYPE)


def lines_documented(example: str) -> dict[str, Any]:
    """Document the form of lines beside the JSON form."""
    return {
        NDJSON_TYPE: {
            "schema": {"type": "string", "description": "One JSON object per line; the rest in `Slackwater-` headers."},
            "example": example,
        }
    }


def arrow_documented() -> dict[str, Any]:
    description = "An Arrow IPC stream with the table's types; the rest in `Slackwater-` headers and in the schema's metadata, key `slackwater`."
    return {ARROW_TYPE: {"schema": {"type": "string", "format": "binary", "description": description}}}


def _headers(rest: Mapping[str, str]) -> dict[str, str]:
    """Return the members as headers: a text as it is, other values as JSON in ASCII."""
    return {_HEADER_PREFIX + name.replace("_", "-").title(): _header(text) for name, text in rest.items()}


def _header(text: str) -> str:
    value = json.loads(text)
    return value if isinstance(value, str) and value.isascii() else json.dumps(value, separators=(",", ":"))
