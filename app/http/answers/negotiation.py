"""Answers as JSON, as lines of JSON, or as Arrow; streams of them. Rows arrive as JSON text and are joined without parsing."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa
import structlog
from anyio import CancelScope
from fastapi import Request, Response
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from engine.expressions.types.types import ColumnType

METADATA_KEY = b"slackwater"
"""Key of the schema's metadata that has, as JSON, the other members of the JSON form."""

_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us", "UTC"),
}
LEAVES: dict[str, Callable[[str], Any]] = {
    "decimal": Decimal,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "bytes": base64.b64decode,
}
"""Types that a materialised nested value stores as text (``engine.formats.json.nested_json``)."""


def arrow_type(declared: ColumnType) -> pa.DataType:
    match declared:
        case ColumnType(kind="decimal", precision=int(precision), scale=scale):
            return pa.decimal128(precision, scale or 0)
        case ColumnType(kind="array", element=ColumnType() as element):
            return pa.list_(arrow_type(element))
        case ColumnType(kind="map", key=ColumnType() as key, value=ColumnType() as value):
            return pa.map_(arrow_type(key), arrow_type(value))
        case ColumnType(kind="struct", fields=fields):
            return pa.struct([(name, arrow_type(field)) for name, field in fields])
        case _:
            return _TYPES[declared.kind]


def arrow_stream(
    columns: Sequence[tuple[str, ColumnType]], values: Sequence[Sequence[Any] | None], metadata: Mapping[str, Any]
) -> bytes:
    """Return an IPC stream of one batch.

    Args:
        columns: names and types.
        values: of each column; timestamps as microseconds since 1970, nested values as JSON texts; None for no rows.
        metadata: JSON-able; in the schema under ``slackwater``.
    """
    batch = arrow_batch(columns, values)
    schema = batch.schema.with_metadata({METADATA_KEY: json.dumps(dict(metadata), separators=(",", ":")).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(batch.cast(schema))
    return bytes(sink.getvalue())


def arrow_batch(columns: Sequence[tuple[str, ColumnType]], values: Sequence[Sequence[Any] | None]) -> pa.RecordBatch:
    """Return columns as one Arrow batch; see ``arrow_stream``."""
    schema = pa.schema([pa.field(name, arrow_type(declared)) for name, declared in columns])
    arrays = [_array(column_values or [], declared) for column_values, (_, declared) in zip(values, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Sequence[Any], declared: ColumnType) -> pa.Array:
    if declared.is_nested:
        parsed = [None if text is None else _value(json.loads(text), declared) for text in values]
        return pa.array(parsed, arrow_type(declared))
    if declared.kind == "timestamp":
        return pa.array(values, pa.int64()).cast(arrow_type(declared))
    return pa.array(values, arrow_type(declared))


def _value(value: Any, declared: ColumnType) -> Any:
    """Return a parsed JSON value in the form for Arrow."""
    if value is None:
        return None
    match declared:
        case ColumnType(kind="array", element=ColumnType() as element):
            return [_value(one, element) for one in value]
        case ColumnType(kind="map", value=ColumnType() as inner):
            return [(name, _value(one, inner)) for name, one in value.items()]
        case ColumnType(kind="struct", fields=fields):
            return {name: _value(value.get(name), field) for name, field in fields}
        case _:
            convert = LEAVES.get(declared.kind)
            return value if convert is None else convert(str(value))


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


log = structlog.stdlib.get_logger(__name__)


class ClosingResponse(StreamingResponse):
    """A stream of bytes from an open resource.

    Args:
        parts: of the body; closed first.
        close: closes the resource. The server may never ask for a part, so ``parts`` alone cannot close it.
        write_timeout_s: a client that reads nothing for this long is disconnected.
    """

    def __init__(
        self,
        parts: AsyncGenerator[bytes],
        close: Callable[[], Awaitable[object]],
        write_timeout_s: float,
        media_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(parts, media_type=media_type, headers=headers)
        self._parts, self._close, self._write_timeout_s = parts, close, write_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            with CancelScope(shield=True):
                try:
                    await self._parts.aclose()
                finally:
                    await self._close()

    async def stream_response(self, send: Send) -> None:
        is_late = False

        async def send_in_time(message: Message) -> None:
            nonlocal is_late
            try:
                async with asyncio.timeout(self._write_timeout_s):
                    await send(message)
            except TimeoutError:
                is_late = True
                raise

        try:
            await super().stream_response(send_in_time)
        except TimeoutError:
            if not is_late:
                raise
            log.info("slow_reader_cut")
