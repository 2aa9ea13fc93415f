"""The declared columns that a change's row lacks: not null, but missing, because the database's table does not have them.

Debezium writes all columns of a table, nulls too. So a column that has disappeared was dropped or renamed, and a null for it would be
wrong. Callers that keep positions know whether the column existed before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow.compute as pc

from engine.expressions.types.types import ColumnType
from engine.formats.avro.reader import schema_of
from engine.formats.debezium.fields import DebeziumSettings
from engine.formats.debezium.json_members import BYTE_ORDER_MARK, member_names, members
from engine.formats.port import SchemaStore, SchemaUnknown
from engine.formats.registry.wire import HEADER, split_by_schema
from engine.formats.shapes import SchemaNotRead

ABSENT: Final = "_absent"
_KIND: Final = pl.List(pl.String)
_UPSERT: Final = "upsert"
_NAMES_BESIDE: Final = frozenset(
    {
        "payload", "schema", "before", "after", "op", "source", "transaction", "ts_ms", "ts_us", "ts_ns", "version", "connector", "name", "db",
        "table", "snapshot", "sequence", "lsn", "txId", "xmin", "server_id", "gtid", "file", "pos", "row", "thread", "query", "change_lsn",
        "commit_lsn", "event_serial_no", "scn", "commit_scn", "user_name", "id", "total_order", "data_collection_order", "type", "fields",
        "field", "optional", "default", "parameters", "items", "keys", "values", "scale", "length", "allowed", "doc",
    }
)  # fmt: skip
"""Names outside of rows in envelopes and their schemas."""


def absent_columns(rows: pl.DataFrame, payloads: pl.Series, settings: DebeziumSettings, store: SchemaStore) -> pl.Series:
    """Return for each row the columns that its event lacks; null: it has all, or is a delete.

    Args:
        rows: as ``Rows.raw``, with ``_offset``, the event's place among the payloads.
        payloads: the events.
        settings: of their reader.
        store: of their schemas.
    """
    names = [name for name in settings.columns.names if name not in settings.key]
    is_put = rows.get_column("$op") == _UPSERT
    if settings.encoding == "avro":
        found = _of_schemas(payloads, names, store)
        values = [found[place] if put else None for place, put in zip(rows.get_column("_offset").to_list(), is_put, strict=True)]
        return pl.Series(ABSENT, values, dtype=_KIND)
    return _of_texts(rows, payloads, is_put, names, settings)


def unforgiven(absent: pl.Series, allowed: Sequence[str]) -> pl.Series:
    """Remove the columns that rows may lack from a result of ``absent_columns``; the others keep their order."""
    return absent.list.eval(pl.element().filter(~pl.element().is_in(allowed))) if allowed else absent


def _of_texts(
    rows: pl.DataFrame, payloads: pl.Series, is_put: pl.Series, names: Sequence[str], settings: DebeziumSettings
) -> pl.Series:
    """Search names in the texts first: only an event that may lack one is parsed."""
    beside = _NAMES_BESIDE.union(*(_inner(kind) for _, kind in settings.columns.items()))
    places = rows.get_column("_offset")
    nulls = {name: is_put & rows.get_column(name).is_null() if name in rows.columns else is_put for name in names}
    looked_at = (
        np.flatnonzero(np.any([is_null.to_numpy() for is_null in nulls.values()], axis=0)) if nulls else np.empty(0, np.int64)
    )
    found: list[list[str] | None] = [None] * rows.height
    if len(looked_at):
        tails, is_flat = _tails(payloads.gather(places.gather(looked_at)))
        is_doubtful = np.zeros(len(looked_at), np.bool_)
        for name, is_null in nulls.items():
            written = json.dumps(name, ensure_ascii=False).encode() + b":"
            is_there = is_flat & tails.bin.contains(written).to_numpy() if name not in beside else False
            is_doubtful |= is_null.gather(looked_at).to_numpy() & ~np.asarray(is_there, np.bool_)
        for row in looked_at[is_doubtful].tolist():
            found[row] = _missing(payloads[places[row]], names, has_header=settings.has_registry)
    return pl.Series(ABSENT, found, dtype=_KIND)


def _tails(payloads: pl.Series) -> tuple[pl.Series, npt.NDArray[np.bool_]]:
    """Return the texts from the row on, and in which of them the row and the source are the only objects.

    A quoted name in them is one of the row's, unless it is one of the source's.
    """
    array = payloads.to_arrow()
    starts = pl.Series(pc.find_substring(array, _ROW), dtype=pl.Int64)
    tails = payloads.to_frame("text").select(pl.col("text").bin.slice(starts.clip(0))).to_series()
    has_more = tails.bin.contains(_TRANSACTION).cast(pl.Int64)
    braces = pl.Series(pc.count_substring(tails.to_arrow(), b"{"), dtype=pl.Int64)
    is_flat = (starts >= 0) & tails.bin.starts_with(_ROW + b"{") & tails.bin.contains(_SOURCE) & (braces == 2 + has_more)
    return tails, is_flat.to_numpy()


_ROW: Final = b'"after":'
_SOURCE: Final = b'"source":{'
_TRANSACTION: Final = b'"transaction":{'


def _missing(payload: bytes, names: Sequence[str], *, has_header: bool) -> list[str] | None:
    text = payload[HEADER:] if has_header else payload
    text = text.removeprefix(BYTE_ORDER_MARK)
    event = members(text)
    if set(event) == {"schema", "payload"}:
        event = members(text, *event["payload"])
    after = member_names(text, event["after"]) if "after" in event else None
    return None if after is None else [name for name in names if name not in after] or None


def _of_schemas(payloads: pl.Series, names: Sequence[str], store: SchemaStore) -> list[list[str] | None]:
    found: list[list[str] | None] = [None] * len(payloads)
    for group in split_by_schema(payloads.fill_null(b""))[0]:
        try:
            shape = schema_of(store.by_number(group.number)).shape
        except (SchemaUnknown, SchemaNotRead):
            continue  # its events are rejects
        after = dict(shape.fields).get("after")
        given = {name for name, _ in after.fields} if after is not None else set()
        absent = [name for name in names if name not in given] or None
        for place in group.places.tolist():
            found[place] = absent
    return found


def _inner(kind: ColumnType) -> Iterable[str]:
    """Yield the names of fields inside a column."""
    for name, inner in kind.fields:
        yield name
        yield from _inner(inner)
    if isinstance(kind.element, ColumnType):
        yield from _inner(kind.element)
