"""The one place that validates records: what a relation accepts, and why it refuses the rest.

Frames in, frames out, whole columns at a time; only refused records are handled one by one. The parsers of bodies and files convert
records to the form for ``canonicalise``; they check only their own syntax.

A *raw* frame has columns named like the relation's, in any type that ``conform`` understands (absent ones are null), and
optionally ``_offset`` (else the row's index), ``_ts`` and ``_op`` (of records from the log, which were validated before), ``$op`` and
``$event_time_ms``. Changes of a database also have their position in its log (``engine.operators.rows.change_positions``), which stays
with the record. Other columns are ignored: parsers refuse unknown columns, because only they see which record had them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

import numpy as np
import polars as pl

from engine.errors import DataInvalid
from engine.expressions.durations import format_duration
from engine.expressions.types.types import TIMESTAMP, ColumnType
from engine.frames.byte_texts import texts_of
from engine.frames.frames import constant, frame_of
from engine.frames.position_columns import position_columns
from engine.frames.row_bytes import RowBytes
from engine.plan.model import RelationSchema
from engine.records.conform import conform, nulls
from engine.records.excerpts import MAX_EXCERPT_CHARS, excerpts_of, storable
from engine.records.scalars import Fault, in_ms, scalar_faults

MAX_RECORD_BYTES = 16 << 20
"""With its line break. Bounds the text that an unclosed quote can hide, and a reader's memory for one record. It is far
above a message (Kafka's default is 1 MiB); with all its copies it is far below a worker's memory and Postgres's bound of one value."""

MAX_EVENT_TIME_MS = 253_402_300_799_999
"""The last millisecond of the year 9999 (T8)."""

OUT_OF_RANGE = "the event time must lie in the years 1970 to 9999"

MAX_KEY_BYTES = 1024
"""Keys are copied into state, rows and late records; a longer one is a misplaced payload."""

MAX_DETAIL_CHARS = 512

REJECT_SCHEMA: dict[str, pl.DataType] = {
    "offset": pl.Int64(),
    "reason": pl.String(),
    "detail": pl.String(),
    "excerpt": pl.String(),
}

_NO_REJECTS = pl.DataFrame(schema=REJECT_SCHEMA)

FAR_YEAR = r"^\s*[+-]?\d{5,}-\d\d-\d\d"
"""A valid timestamp with a year of more than four digits: out of range (T8), not of a wrong type."""

OP_UPSERT, OP_DELETE = 0, 1
OPS = {"upsert": OP_UPSERT, "delete": OP_DELETE}
CONTROL_COLUMNS: dict[str, pl.DataType] = {"$op": pl.String(), "$event_time_ms": pl.Int64()}


@dataclass(frozen=True, slots=True)
class SourceKind:
    """The properties of a record's source.

    Attributes:
        is_text: the source has no types (CSV).
        is_arrival_allowed: a delete without the declared event time gets the time of arrival instead of being refused.
        is_validated: the content was validated when it was appended to the log: only types, event times and nested values are checked again.
        is_posted: the records go into the log. A delete keeps all its columns there, because a later ``where`` may need them.
    """

    is_text: bool = False
    is_arrival_allowed: bool = True
    is_validated: bool = False
    is_posted: bool = False


POSTED = SourceKind(is_posted=True, is_arrival_allowed=False)
LOGGED = SourceKind(is_validated=True)
TYPED_FILE = SourceKind(is_arrival_allowed=False)
TEXT_FILE = SourceKind(is_text=True, is_arrival_allowed=False)


def canonicalise(
    raw: pl.DataFrame, relation: RelationSchema, now_ms: int, source: SourceKind = POSTED, member: pl.Expr | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Validate records and convert the good ones to canonical form.

    Reasons, in the order of the checks: ``wrong_type``, ``not_finite``, ``invalid_string``, ``record_too_long``,
    ``key_too_large``,
    ``event_time_missing``, ``event_time_out_of_range`` (T8), ``future_event_time`` (T7). A null key is no reason: operators count
    it (T6).

    Args:
        raw: see the module's text.
        relation: what is accepted.
        now_ms: the wall clock as an argument (T5): the arrival time, and the base of T7.
        source: the kind of source.
        member: ``where`` of a relation that shares its feed. Records for which it is not true belong to other relations: they are no rejects.

    Returns:
        ``(accepted, rejects)``: accepted has ``_ts``, ``_offset``, ``_op`` and every declared column, in the raw order; a delete
        keeps only its key and event-time columns (unless it was posted just now). Rejects have ``REJECT_SCHEMA``.
    """
    if raw.height == 0:
        return _empty(relation), empty_rejects()
    faults: list[Fault] = []
    columns = _conform_all(raw, relation, faults, is_text=source.is_text)
    op = _ops(raw, faults)
    own = _column_time(columns, relation, faults)
    arrival = now_ms if own is None or source.is_arrival_allowed else None
    ts = _event_times(raw, own, op, arrival, faults)
    for name, declared in relation.columns.items():
        if (
            not source.is_validated or declared.is_nested
        ):  # the log also holds a query's results, whose nested values nobody has checked
            found = scalar_faults(columns[name], declared, is_event_time=name == relation.event_time)
            # A result may have NaN and infinity (SQRT(-1) in ksqlDB's dialect), also in nested values.
            faults += [fault for fault in found if not (source.is_validated and fault.reason == "not_finite")]
    if not source.is_validated:
        _check_size(columns, faults)
        _check_key(columns, relation, faults)
    _check_times(ts, relation, now_ms, faults)
    offsets = raw["_offset"] if "_offset" in raw.columns else pl.int_range(raw.height, dtype=pl.Int64, eager=True)
    placed = [raw[name] for name in position_columns(raw.columns)] if relation.conflict == "latest_position" else []
    frame = frame_of([ts.alias("_ts"), offsets.alias("_offset"), op.alias("_op"), *columns.values(), *placed])
    members = None if member is None else frame.select(member.fill_null(value=False)).to_series()
    rejects = empty_rejects()
    if faults:
        rejects, members = _reject(raw.with_columns(offsets.alias("_offset")), faults, members)
    if members is not None and not members.all():
        frame = frame.filter(members)
    return (frame if source.is_posted else _blank_deletes(frame, relation)), rejects


def cast_columns(
    raw: pl.DataFrame, relation: RelationSchema, member: pl.Expr | None = None, *, is_validated: bool = False
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Convert every declared column of a raw frame (with ``_offset``) to its declared type, so that frames of other types can be joined.

    Args:
        raw: see the module's text.
        relation: what is accepted.
        member: see ``canonicalise``.
        is_validated: the values were validated in the type they came in: values of other types are validated again.

    Returns:
        ``(raw, rejects)``. Nothing else is validated.
    """
    faults: list[Fault] = []
    columns = _conform_all(raw, relation, faults, is_text=False)
    for name, declared in relation.columns.items():
        if is_validated and name in raw.columns and raw[name].dtype != declared.polars:
            faults += scalar_faults(columns[name], declared, is_event_time=name == relation.event_time)
    settled = raw.with_columns(columns.values())
    if not faults:
        return settled, empty_rejects()
    members = None if member is None else pl.DataFrame(list(columns.values())).select(member.fill_null(value=False)).to_series()
    rejects, good = _reject(raw, faults, members)
    return settled.filter(good), rejects


def empty_rejects() -> pl.DataFrame:
    """Return no rejects."""
    return _NO_REJECTS.clone()


def reject_rows(rows: list[tuple[int, str, str, str]]) -> pl.DataFrame:
    """Make rejects of ``(offset, reason, detail, excerpt)``; text is cut to its bounds and made storable."""
    cut = [(o, r, storable(d[:MAX_DETAIL_CHARS]), storable(e[:MAX_EXCERPT_CHARS])) for o, r, d, e in rows]
    return pl.DataFrame(cut, schema=REJECT_SCHEMA, orient="row")


def stop_on_rejects(rejects: pl.DataFrame, relation: RelationSchema) -> None:
    """Apply ``on_bad_record: stop``.

    Raises:
        DataInvalid: there is a reject and the relation is set to stop for it.
    """
    if not relation.is_stop_on_bad_record or rejects.height == 0:
        return
    first = rejects.sort("offset").row(0, named=True)
    raise DataInvalid(
        f"{relation.name}: record at offset {first['offset']} was refused as {first['reason']}: {first['detail']}. "
        "Mend the source, or set on_bad_record to reject."
    )


def _empty(relation: RelationSchema) -> pl.DataFrame:
    return pl.DataFrame(schema={"_ts": pl.Int64(), "_offset": pl.Int64(), "_op": pl.Int8(), **relation.columns.polars()})


def _conform_all(raw: pl.DataFrame, relation: RelationSchema, faults: list[Fault], *, is_text: bool) -> dict[str, pl.Series]:
    present = set(raw.columns)
    columns = {}
    for name, declared in relation.columns.items():
        if name not in present:
            columns[name] = nulls(name, declared, raw.height)
            continue
        columns[name], bad = conform(raw[name], declared, is_text=is_text)
        if bad is None:
            continue
        if name == relation.event_time and raw[name].dtype == pl.String and (far := bad & raw[name].str.contains(FAR_YEAR)).any():
            faults.append(Fault(far, "event_time_out_of_range", OUT_OF_RANGE))
        faults.append(Fault(bad, "wrong_type", f"column {name!r} must be {expected(declared)}"))
    return columns


def expected(declared: ColumnType) -> str:
    """Describe the form of a type's value in a record."""
    forms = {
        "timestamp": "a timestamp (RFC 3339 with a zone, or epoch milliseconds)",
        "bigint": "a bigint (a whole number of 64 bits, or the same as a string)",
        "int": "an int (a whole number of 32 bits)",
        "bytes": "bytes (a base64 string)",
        "date": "a date (YYYY-MM-DD)",
        "time": "a time (HH:MM:SS)",
    }
    suffix = " (a number, or a string, that fits without rounding)" if declared.kind == "decimal" else ""
    return forms.get(declared.kind, f"{declared}{suffix}")


def _nulls(name: str, dtype: pl.DataType, rows: int) -> pl.Series:
    return pl.Series(name, [None], dtype=dtype).new_from_index(0, rows)


def _ops(raw: pl.DataFrame, faults: list[Fault]) -> pl.Series:
    if "_op" in raw.columns:
        return raw["_op"]
    if "$op" not in raw.columns or raw["$op"].null_count() == raw.height:
        return constant(OP_UPSERT, raw.height, "_op", np.int8)
    said = raw["$op"]
    text = texts_of(said) if said.dtype == pl.Binary else said.cast(pl.String, strict=False)
    op = text.replace_strict(OPS, default=None, return_dtype=pl.Int8)
    bad = op.is_null() & said.is_not_null()
    if bad.any():
        faults.append(Fault(bad, "wrong_type", "$op must be 'upsert' or 'delete'"))
    return op.fill_null(OP_UPSERT)


def _event_times(raw: pl.DataFrame, own: pl.Series | None, op: pl.Series, arrival: int | None, faults: list[Fault]) -> pl.Series:
    """Return event times in ms; null if there is none. The order is the column, ``$event_time_ms``, the log's own, the arrival."""
    if own is not None and own.null_count() == 0:
        return own
    fallback = _nulls("_ts", pl.Int64(), raw.height)
    for series in (_control_time(raw, faults), raw["_ts"] if "_ts" in raw.columns else None):
        if series is not None:
            fallback = fallback.zip_with(fallback.is_not_null(), series)
    if arrival is not None:
        fallback = fallback.fill_null(arrival)
    if own is None:
        return fallback
    # Only a delete may lack its event-time column: the deleted row has no columns any more.
    return own.zip_with(own.is_not_null() | (op != OP_DELETE), fallback)


def _column_time(columns: dict[str, pl.Series], relation: RelationSchema, faults: list[Fault]) -> pl.Series | None:
    if relation.event_time is None:
        return None
    column = columns[relation.event_time]
    if column.dtype.is_integer():
        return in_ms(column.cast(pl.Int64), relation.event_time_unit)
    if column.dtype == pl.String:
        form = relation.event_time_format
        parsed = (
            column.str.to_datetime(form, time_unit="us", time_zone="UTC", strict=False, ambiguous="earliest")
            if form is not None
            else conform(column, TIMESTAMP)[0]
        )
        if parsed.null_count() > column.null_count():
            bad = parsed.is_null() & column.is_not_null()
            detail = f"column {column.name!r} does not have the event time format {form or 'RFC 3339'!r}"
            faults.append(Fault(bad, "wrong_type", detail))
        column = parsed
    return column.dt.timestamp("ms")  # rounds down: an instant before 1970 stays before it


def _control_time(raw: pl.DataFrame, faults: list[Fault]) -> pl.Series | None:
    if "$event_time_ms" not in raw.columns:
        return None
    said = raw["$event_time_ms"]
    number = said.cast(pl.Int64, strict=False) if said.dtype.is_numeric() else _nulls("$event_time_ms", pl.Int64(), len(said))
    if number.null_count() > said.null_count():
        bad = number.is_null() & said.is_not_null()
        faults.append(Fault(bad, "wrong_type", "$event_time_ms must be a whole number of milliseconds"))
    return number


def _check_size(columns: dict[str, pl.Series], faults: list[Fault]) -> None:
    """Refuse records whose values have more bytes than the bound of a file's record; checks each only if all together exceed it."""
    frame = pl.DataFrame(list(columns.values()))
    if frame.estimated_size() <= MAX_RECORD_BYTES:
        return
    sizes = RowBytes(frame.schema).of(frame)
    if (sizes > MAX_RECORD_BYTES).any():
        detail = (
            f"the record's values have more than {MAX_RECORD_BYTES:,} bytes; keep large values elsewhere, and send where they are"
        )
        faults.append(Fault(pl.Series(sizes > MAX_RECORD_BYTES), "record_too_long", detail))


def _check_key(columns: dict[str, pl.Series], relation: RelationSchema, faults: list[Fault]) -> None:
    if sum(columns[name].estimated_size() for name in relation.key) <= MAX_KEY_BYTES:
        return  # all together have fewer: for a few records this costs a hundredth of checking each
    sizes = [columns[name].str.len_bytes() for name in relation.key if columns[name].dtype == pl.String]
    sizes += [columns[name].bin.size() for name in relation.key if columns[name].dtype == pl.Binary]
    if sizes:
        total = pl.DataFrame([size.fill_null(0).alias(str(i)) for i, size in enumerate(sizes)]).sum_horizontal()
        if (total > MAX_KEY_BYTES).any():
            detail = f"the key {', '.join(relation.key)} has more than {MAX_KEY_BYTES} bytes"
            faults.append(Fault(total > MAX_KEY_BYTES, "key_too_large", detail))


def _check_times(ts: pl.Series, relation: RelationSchema, now_ms: int, faults: list[Fault]) -> None:
    if ts.null_count():
        missing = f"column {relation.event_time!r} is null and holds the event time"
        faults.append(Fault(ts.is_null(), "event_time_missing", missing))
    low, high = cast("int | None", ts.min()), cast("int | None", ts.max())
    if low is None or high is None:
        return
    if low < 0 or high > MAX_EVENT_TIME_MS:
        outside = ts.is_between(0, MAX_EVENT_TIME_MS).not_()
        faults.append(Fault(outside, "event_time_out_of_range", OUT_OF_RANGE + _counting(relation)))
    if relation.max_future_skew_ms is None:
        return
    bound = now_ms + relation.max_future_skew_ms
    if high > bound:
        clock = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        skew = format_duration(relation.max_future_skew_ms)
        detail = f"the event time is more than max_future_skew ({skew}) ahead of the clock ({clock})"
        faults.append(Fault(ts > bound, "future_event_time", detail + _counting(relation)))


def _counting(relation: RelationSchema) -> str:
    """Describe the unit of numbers: another unit is the likely reason for a time that is far off."""
    name = relation.event_time
    if name is None or not relation.columns[name].is_integer:
        return ""
    return f"; column {name!r} is read as {relation.event_time_unit} since 1970 (`event_time_unit`)"


def _reject(raw: pl.DataFrame, faults: list[Fault], members: pl.Series | None = None) -> tuple[pl.DataFrame, pl.Series]:
    """Convert the members' faults to rejects (the first reason counts); return also the mask of the members that stay."""
    good = pl.repeat(value=True, n=raw.height, dtype=pl.Boolean, eager=True) if members is None else members
    rows: list[tuple[int, str, str, str]] = []
    shown = [name for name in raw.columns if not name.startswith("_")]
    for fault in faults:
        bad = fault.mask.fill_null(value=False)
        refused = raw.filter(bad & good)
        excerpts = excerpts_of(refused.select(shown))
        rows += [(offset, fault.reason, fault.detail, text) for offset, text in zip(refused["_offset"], excerpts, strict=True)]
        good = good & ~bad
    return reject_rows(rows).sort("offset", maintain_order=True), good


def _blank_deletes(frame: pl.DataFrame, relation: RelationSchema) -> pl.DataFrame:
    if frame["_op"].max() != OP_DELETE:
        return frame
    kept = {*relation.key, relation.event_time}
    blanked = [name for name in relation.columns.names if name not in kept]
    return frame.with_columns(pl.when(pl.col("_op") == OP_UPSERT).then(pl.col(name)).alias(name) for name in blanked)
