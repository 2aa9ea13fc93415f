"""JSON envelopes read by Arrow, a batch at a time: the schema of the row's fields decides the meaning of numbers and texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import polars as pl
import pyarrow as pa

from engine.expressions.types.types import ColumnType
from engine.formats.avro.meanings import CONNECT_NAMES
from engine.formats.avro.reader import convert_rows
from engine.formats.bisecting import UndecodablePayload, read_bisecting
from engine.formats.debezium.fields import SOURCE, DebeziumSettings, schema_fields
from engine.formats.debezium.json_members import Span, form_of, members
from engine.formats.debezium.json_splitting import Bodies, split
from engine.formats.json.json_records import ARROW, arrow_table
from engine.formats.port import Read
from engine.formats.registry.wire import at_places, rejoined
from engine.formats.shapes import Meaning, Shape
from engine.records.canonical import reject_rows
from engine.records.excerpts import excerpts_of

REASON: Final = "malformed_json"
_LOOKED_AT: Final = 32
"""Events of a batch whose values show the form of ambiguous fields; if a later event differs, the batch is read in parts."""

_BY_NUMBER: Final = ("date", "time", "timestamp")


class JsonEnvelopes:
    """Reads envelopes."""

    def __init__(self, settings: DebeziumSettings) -> None:
        self._settings = settings
        self._columns = settings.envelope()

    def read(self, payloads: pl.Series) -> Read:
        """Return the envelopes' fields as columns, and the payloads that are no envelopes."""
        groups, rejects = split(payloads)
        parts = [at_places(self._read(group), group.places) for group in groups]
        return rejoined(parts, rejects, self._columns)

    def _read(self, bodies: Bodies) -> Read:
        said = _said(bodies.schema)
        table, places, rejects = read_bisecting(lambda part: self._parsed(part, said), bodies.texts, self._empty(), REASON)
        frame = cast("pl.DataFrame", pl.from_arrow(table))
        row = Shape("struct", fields=tuple((name, self._shape(name, frame, said)) for name in self._settings.columns.names))
        source = Shape("struct", fields=tuple((name, Shape(kind.kind)) for name, kind in SOURCE.fields))  # type: ignore[arg-type]
        if not schema_fields(bodies.schema):  # a schema distinguishes texts from bytes
            frame, places, rejects = self._without_unclear(frame, places, rejects, said)
        shape = Shape(
            "struct",
            fields=(("before", row), ("after", row), ("op", Shape("string")), ("ts_ms", Shape("bigint")), ("source", source)),
        )
        frame = self._decoded(frame, row)
        return convert_rows(frame, places, rejects, shape, self._columns)

    def _parsed(self, payloads: Sequence[bytes], said: dict[str, Shape]) -> pa.RecordBatch:
        text = b"\n".join(payloads)
        # Braces at both ends and no line break inside: only then is each line one event, for any content.
        breaks = len(payloads) - 1
        is_plain = text.count(b"\n") == breaks and text.count(b"}\n{") == breaks and b"\r" not in text
        if not (is_plain and text.startswith(b"{") and text.endswith(b"}")):
            payloads = [_on_one_line(payload) for payload in payloads]
            text = b"\n".join(payloads)
        forms = _forms(payloads, said)
        row = pa.struct([pa.field(name, self._arrow(name, declared, forms)) for name, declared in self._settings.columns.items()])
        source = pa.struct([pa.field(name, pa.int64() if kind.kind == "bigint" else pa.string()) for name, kind in SOURCE.fields])
        schema = pa.schema([("before", row), ("after", row), ("op", pa.string()), ("ts_ms", pa.int64()), ("source", source)])
        table = arrow_table(text, schema, "ignore")
        return table.combine_chunks().to_batches()[0] if table.num_rows else self._empty()

    def _arrow(self, name: str, declared: ColumnType, forms: dict[str, type]) -> pa.DataType:
        match declared:
            case ColumnType(kind="array", element=ColumnType() as element):
                return pa.list_(self._arrow(name, element, {}))
            case ColumnType(kind="map" | "struct"):
                fields = [pa.field(each, self._arrow(each, inner, {})) for each, inner in declared.fields]
                if declared.kind == "map":
                    raise UndecodablePayload(
                        f"column {name!r}: a map does not come from a database; declare it as a string or struct"
                    )
                return pa.struct(fields)
            case ColumnType(kind="decimal"):
                return pa.string() if forms.get(name) is str else pa.decimal128(declared.precision, declared.scale)
        if declared.kind in _BY_NUMBER:
            return pa.string() if forms.get(name) is str else pa.int64()
        return pa.int64() if declared.kind == "boolean" and forms.get(name) is int else ARROW[declared.kind]

    def _without_unclear(
        self, frame: pl.DataFrame, places: pl.Series, rejects: pl.DataFrame, said: dict[str, Shape]
    ) -> tuple[pl.DataFrame, pl.Series, pl.DataFrame]:
        """Refuse events with texts for decimals that could be digits or base64, if no setting decides."""
        if self._settings.decimals is not None or not frame.height:
            return frame, places, rejects
        unclear = pl.repeat(value=False, n=frame.height, dtype=pl.Boolean, eager=True)
        for name, declared in self._settings.columns.items():
            for side in ("before", "after"):
                field = frame.get_column(side).struct.field(name)
                if declared.kind == "decimal" and name not in said and field.dtype == pl.String:
                    unclear |= field.is_not_null()
        if not unclear.any():
            return frame, places, rejects
        detail = (
            "a decimal comes as a text and the event does not say in which form: say `decimals` (bytes: decimal.handling.mode=precise; "
            "text: string), or send schemas"
        )
        texts = excerpts_of(frame.filter(unclear))
        rows = [
            (place, "decimal_unclear", detail, text) for place, text in zip(places.filter(unclear).to_list(), texts, strict=True)
        ]
        return frame.filter(~unclear), places.filter(~unclear), pl.concat([rejects, reject_rows(rows)]).sort("offset")

    def _shape(self, name: str, frame: pl.DataFrame, said: dict[str, Shape]) -> Shape:
        """Return the meaning of a field's values, from its schema, else from the settings."""
        known, declared = said.get(name), self._settings.columns[name]
        dtype = frame.get_column("after").struct.field(name).dtype if frame.height else pl.Null()
        if known is not None and not (dtype == pl.String and known.meaning != "decimal"):
            return known
        unit = self._settings.time_unit
        if dtype.is_integer() and declared.kind in _BY_NUMBER:
            meaning: Meaning = "date" if declared.kind == "date" else f"{declared.kind}_{unit}"  # type: ignore[assignment]  # they are
            return Shape("bigint", meaning)
        if declared.kind == "decimal" and dtype == pl.String and self._settings.decimals == "bytes":
            return Shape("bytes", "decimal", scale=declared.scale or 0)
        return _nested(declared)

    def _decoded(self, frame: pl.DataFrame, row: Shape) -> pl.DataFrame:
        """Decode decimals' base64 to bytes; refuse such texts if no setting describes them."""
        texts = [name for name, shape in row.fields if shape.meaning == "decimal"]
        if not texts or not frame.height:
            return frame
        decoded = []
        for side in ("before", "after"):
            values = frame.get_column(side)
            fields = [values.struct.field(name) for name in values.struct.fields]
            fields = [_of_base64(field) if field.name in texts else field for field in fields]
            decoded.append(pl.DataFrame(fields).to_struct(side).set(values.is_null(), None))
        return frame.with_columns(decoded)

    def _empty(self) -> pa.RecordBatch:
        fields = [pa.field(name, pa.null()) for name in self._columns.names]
        return pa.RecordBatch.from_pylist([], schema=pa.schema(fields))


def _of_base64(field: pl.Series) -> pl.Series:
    """Decode; invalid base64 becomes empty bytes, which no decimal has."""
    if field.dtype != pl.String:
        return field
    decoded = field.str.decode("base64", strict=False)
    return decoded.set(decoded.is_null() & field.is_not_null(), b"")


def _nested(declared: ColumnType) -> Shape:
    match declared:
        case ColumnType(kind="array", element=ColumnType() as element):
            return Shape("array", element=_nested(element))
        case ColumnType(kind="struct", fields=fields):
            return Shape("struct", fields=tuple((name, _nested(inner)) for name, inner in fields))
    return Shape("string")


def _said(schema: Any) -> dict[str, Shape]:
    """Return the row's fields with a special meaning in an event's schema, by name."""
    found: dict[str, Shape] = {}
    for side in schema_fields(schema):
        if side.get("field") not in ("after", "before"):
            continue
        for field in schema_fields(side):
            name, meaning = field.get("field"), CONNECT_NAMES.get(str(field.get("name")))
            if not isinstance(name, str) or meaning in (None, "instant_text"):
                continue
            if meaning == "decimal":
                parameters = field.get("parameters")
                scale = str(parameters.get("scale", "0")) if isinstance(parameters, dict) else "0"
                found[name] = Shape("bytes", "decimal", scale=int(scale) if scale.isdecimal() and len(scale) < 3 else 0)
            else:
                found[name] = Shape("bigint", meaning)
    return found


def _forms(payloads: Sequence[bytes], said: dict[str, Shape]) -> dict[str, type]:
    """Return the type of the first value of each field of a row."""
    forms: dict[str, type] = {name: str for name, shape in said.items() if shape.meaning == "decimal"}
    for payload in payloads[:_LOOKED_AT]:
        event = _members(payload)
        for side in ("after", "before"):
            start, end = event.get(side, (0, 0))
            row = _members(payload[start:end]) if payload[start : start + 1] == b"{" and end else {}
            for name, (first, last) in row.items():
                form = form_of(payload[start + first : start + last])
                if form is not None:
                    forms.setdefault(name, form)
    return forms


def _on_one_line(payload: bytes) -> bytes:
    """Write an event without line breaks. Raises UndecodablePayload if it is no object."""
    _members(payload)
    return payload.strip().replace(b"\n", b" ").replace(b"\r", b" ")


def _members(text: bytes) -> dict[str, Span]:
    """See ``members``. Raises UndecodablePayload if it is no object."""
    try:
        return members(text)
    except ValueError as error:
        raise UndecodablePayload(str(error)) from error
