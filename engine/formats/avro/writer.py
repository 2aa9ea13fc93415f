"""Writes Avro: rows to payloads, whole columns at a time, with a schema that is given or derived from the columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyruhvro

from engine.formats.avro.derived import derived_schema
from engine.formats.avro.schema import AvroSchema, parse_schema
from engine.formats.big_decimals import bytes_of
from engine.formats.port import FormatInvalid, RegisteredSchema, SchemaStore, SideConfig, ValueNotWritable, Writer
from engine.formats.registry.wire import header_of, with_header
from engine.formats.shapes import SchemaNotRead, Shape
from engine.frames.nesting import KEY, VALUE, as_lists, elements_of

_INT_MOST = 2**31


class AvroWriter:
    """Writes rows with one schema."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._is_record = schema.is_record
        self._shape = schema.shape if schema.is_record else Shape("struct", fields=(("f0", schema.shape),))

    def write(self, frame: pl.DataFrame) -> pl.Series:
        if frame.height == 0:
            return pl.Series([], dtype=pl.Binary)
        columns = frame.get_columns()
        given = {column.name: column for column in columns} if self._is_record else {"f0": columns[0]}
        arrays = [self._column(name, shape, given, frame.height) for name, shape in self._shape.fields]
        batch = pa.RecordBatch.from_arrays(arrays, schema=_with_names(pyruhvro.avro_to_arrow_schema(self._schema.wire), arrays))
        [written] = pyruhvro.serialize_record_batch(batch, self._schema.wire, 1)
        return pl.Series("", written.cast(pa.large_binary()))

    def _column(self, name: str, shape: Shape, given: dict[str, pl.Series], rows: int) -> pa.Array:
        if name not in given:
            given[name] = pl.Series(name, [None], dtype=pl.Null).new_from_index(0, rows)
        try:
            return to_wire(given[name], shape)
        except (ValueError, pa.ArrowException) as error:
            raise ValueNotWritable(f"column {name!r}: {error}") from error


class RegisteredAvroWriter:
    """Writes rows with the header of a registered schema; the first rows register it."""

    def __init__(self, schema: RegisteredSchema, subject: str, store: SchemaStore) -> None:
        self._schema = schema
        self._subject = subject
        self._store = store
        self._writer = AvroWriter(parse_schema(schema.text, [text for _, text in schema.references]))

    def write(self, frame: pl.DataFrame) -> pl.Series:
        header = header_of(self._store.register(self._subject, self._schema))
        return with_header(self._writer.write(frame), header)


def avro_writer(config: SideConfig, store: SchemaStore) -> Writer:
    """Return the writer of a side.

    Raises:
        FormatInvalid: the schema cannot be read or written, or a column has no field in it.
    """
    text = config.schema
    if text is None:
        text = derived_schema(
            config.columns, config.subject or f"{config.side}_record", is_key=config.side == "key", full_name=config.record
        )
    try:
        schema = parse_schema(text, [each for _, each in config.references])
    except SchemaNotRead as error:
        raise FormatInvalid(f"schema: {error}") from error
    check_writable(schema, config)
    if not config.has_registry:
        return AvroWriter(schema)
    return RegisteredAvroWriter(RegisteredSchema(0, "AVRO", text, config.references), config.subject, store)


def check_writable(schema: AvroSchema, config: SideConfig) -> None:
    """Refuse a schema with which results cannot be written."""
    if not schema.is_quick or schema.shape.has_union:
        raise FormatInvalid(
            "schema: results are not written as unions of several members, nor as fixed bytes whose number is no multiple of four"
        )
    if not schema.is_record:
        config.single  # noqa: B018 - it raises
        return
    known = dict(schema.shape.fields)
    strange = next((name for name in config.columns.names if name not in known), None)
    if strange is not None:
        raise FormatInvalid(f"schema: it has no field {strange!r}, which is a column; its fields are {', '.join(known)}")
    missing = next((name for name, shape in schema.shape.fields if name not in config.columns and not shape.is_optional), None)
    if missing is not None:
        raise FormatInvalid(f"schema: the field {missing!r} cannot be null, and there is no such column")


def to_wire(values: pl.Series, shape: Shape) -> pa.Array:
    """Convert a column to the type in the wire schema.

    Raises:
        ValueError: a value does not fit.
    """
    if values.null_count() and not shape.is_optional:
        raise ValueError("it is null, and its schema does not allow that")
    match shape.kind:
        case "struct":
            is_null = values.is_null()
            inner = [to_wire(_field(values, name, each, is_null), each) for name, each in shape.fields]
            names = [f"f{place}" for place in range(len(inner))]
            return pa.StructArray.from_arrays(inner, names=names, mask=is_null.to_arrow())
        case "array" if shape.element is not None:
            inside = elements_of(as_lists(values))
            return pa.ListArray.from_arrays(
                _offsets(inside.sizes), to_wire(inside.values, shape.element), mask=inside.is_null.to_arrow()
            )
        case "map" if shape.element is not None:
            inside = elements_of(as_lists(values))
            keys = inside.values.struct.field(KEY).to_arrow().cast(pa.string())
            items = to_wire(inside.values.struct.field(VALUE), shape.element)
            entries = pa.MapArray.from_arrays(_offsets(inside.sizes), keys, items)
            return (
                pc.if_else(inside.is_null.to_arrow(), pa.scalar(None, entries.type), entries) if inside.is_null.any() else entries
            )
    return _scalar(values, shape)


def _field(values: pl.Series, name: str, shape: Shape, is_null: pl.Series) -> pl.Series:
    """Return a struct's field. Where the struct is null, required fields get a value that is never visible."""
    known = {field.name for field in values.dtype.fields} if isinstance(values.dtype, pl.Struct) else set()
    field = values.struct.field(name) if name in known else pl.Series(name, [None], dtype=pl.Null).new_from_index(0, len(values))
    if shape.is_optional or not is_null.any() or not field.drop_nulls().len():
        return field
    return field.set(is_null, field.drop_nulls()[0]) if not field.dtype.is_nested() else field


def _scalar(values: pl.Series, shape: Shape) -> pa.Array:
    match shape.meaning:
        case "decimal":
            return _as_text(pa.array(bytes_of(values, shape.scale), pa.binary()))
        case "date":
            values = values.to_physical() if values.dtype == pl.Date else values
        case "time_ms" | "time_us" | "time_ns" if values.dtype == pl.Time:
            values = values.to_physical() // {"time_ms": 1_000_000, "time_us": 1_000, "time_ns": 1}[shape.meaning]
        case "timestamp_ms" | "timestamp_us" | "timestamp_ns" if isinstance(values.dtype, pl.Datetime):
            us = values.to_physical()
            values = (
                us * 1_000 if shape.meaning == "timestamp_ns" else us // {"timestamp_ms": 1_000, "timestamp_us": 1}[shape.meaning]
            )
        case _:
            pass
    return _plain_scalar(values, shape)


def _plain_scalar(values: pl.Series, shape: Shape) -> pa.Array:
    match shape.kind:
        case "int":
            whole = values.cast(pl.Int64)
            if not whole.is_between(-_INT_MOST, _INT_MOST - 1).all():
                raise ValueError("a number does not fit into int")
            return whole.to_arrow()
        case "bigint":
            return values.cast(pl.Int64).to_arrow()
        case "double":
            return values.cast(pl.Float64).to_arrow()
        case "enum":
            symbols = {symbol: place for place, symbol in enumerate(shape.symbols)}
            places = values.replace_strict(symbols, default=None, return_dtype=pl.Int64)
            if places.null_count() > values.null_count():
                raise ValueError(f"a value is none of the enumeration's symbols {', '.join(shape.symbols)}")
            return places.to_arrow()
        case "string":
            return values.cast(pl.String).to_arrow().cast(pa.string())
        case "bytes":
            return _as_text(values.cast(pl.Binary).to_arrow().cast(pa.binary()))
        case "boolean":
            return values.cast(pl.Boolean).to_arrow()
        case "null":
            return pa.nulls(len(values))
    raise ValueError(f"values of {shape.kind} are not written")


def _as_text(array: pa.Array) -> pa.Array:
    """Pass bytes where the wire schema has text: both have the same encoding, and the library does not check it."""
    return array.view(pa.string())


def _offsets(sizes: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(np.concatenate(([0], np.cumsum(sizes))), pa.int32())


def _with_names(schema: pa.Schema, arrays: list[pa.Array]) -> pa.Schema:
    return pa.schema(
        [pa.field(field.name, array.type, nullable=field.nullable) for field, array in zip(schema, arrays, strict=True)]
    )
