"""Answers as JSON or as lines of JSON. Rows arrive as JSON text and are put together without being parsed again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Request, Response

from app.store.results import ResultPosition

JSON_TYPE = "application/json"
NDJSON_TYPE = "application/x-ndjson"
_HEADER_PREFIX = "Slackwater-"


def wants_lines(request: Request) -> bool:
    """Whether the client asks for one JSON object per line."""
    return NDJSON_TYPE in request.headers.get("accept", "")


def described(result: ResultPosition) -> dict[str, Any]:
    """Return the part of an answer that says how far the result is."""
    return {
        "position": result.position,
        "stream_time_ms": result.stream_time_ms,
        "committed_at": None if result.committed_at is None else result.committed_at.isoformat().replace("+00:00", "Z"),
        "stale": result.is_stale,
    }


def page_response(request: Request, member: str, rows: Sequence[str], rest: Mapping[str, Any]) -> Response:
    """Answer rows.

    Args:
        request: its Accept header chooses the form.
        member: name of the array in the JSON form.
        rows: JSON texts.
        rest: the other members; headers ``Slackwater-…`` in the form of lines.
    """
    if wants_lines(request):
        headers = {_HEADER_PREFIX + name.replace("_", "-").title(): _header(value) for name, value in rest.items()}
        return Response("".join(f"{row}\n" for row in rows), headers=headers, media_type=NDJSON_TYPE)
    head = json.dumps(dict(rest), separators=(",", ":"))
    return Response(f'{head[:-1]},"{member}":[{",".join(rows)}]}}', media_type=JSON_TYPE)


def lines_documented(example: str) -> dict[str, Any]:
    """Document the form of lines beside the JSON one."""
    return {
        NDJSON_TYPE: {
            "schema": {"type": "string", "description": "One JSON object per line; the rest in `Slackwater-` headers."},
            "example": example,
        }
    }


def _header(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
