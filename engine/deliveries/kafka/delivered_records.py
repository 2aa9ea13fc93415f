"""Rows of a result as records of a topic: keys, values, tombstones, timestamps."""

from __future__ import annotations

import polars as pl

from engine.definition.deliveries.kafka import DeliveredSide, KafkaDelivery
from engine.deliveries.deliveries import DeliveryStopped, Result, TargetUnavailable
from engine.expressions.types.types import Schema
from engine.formats.avro.schema import full_name_of as avro_name
from engine.formats.format_list import writer_of
from engine.formats.json.json_writer import title_of as json_title
from engine.formats.port import RegistryRefused, RegistryUnavailable, SchemaStore, SideConfig, SideName, ValueNotWritable, Writer
from engine.formats.registry.settings import subject_of
from engine.records.canonical import OP_UPSERT


class Records:
    """Makes records from rows.

    Raises:
        FormatInvalid: a side's settings do not fit its columns.
    """

    def __init__(self, definition: KafkaDelivery, result: Result, store: SchemaStore) -> None:
        self._topic, self._is_table = definition.topic, result.is_table
        key_side = definition.key or (DeliveredSide(format="json") if result.key else None)
        self._key = (
            None if key_side is None else _writer(key_side, "key", result.columns.select(result.key), definition.topic, store)
        )
        names = [name for name in result.columns.names if definition.value.has_key or name not in result.key]
        self._value = _writer(definition.value, "value", result.columns.select(tuple(names)), definition.topic, store)

    def of(self, rows: pl.DataFrame) -> list[tuple[bytes | None, bytes | None, int]]:
        """Return key, value (None: a tombstone) and timestamp of each row.

        Raises:
            DeliveryStopped: ``value_not_writable``, ``delivery_refused``.
            TargetUnavailable: the registry gives no answer.
        """
        try:
            keys = [None] * rows.height if self._key is None else self._key.write(rows).to_list()
            is_row = (rows.get_column("_op") == OP_UPSERT) if self._is_table else pl.Series([True]).new_from_index(0, rows.height)
            values: list[bytes | None] = [None] * rows.height
            places = is_row.arg_true()
            written = rows.filter(is_row)
            if written.height:
                for place, value in zip(places.to_list(), self._value.write(written).to_list(), strict=True):
                    values[place] = value
        except ValueNotWritable as error:
            raise DeliveryStopped("value_not_writable", str(error)) from error
        except RegistryUnavailable as error:
            raise TargetUnavailable(str(error)) from error
        except RegistryRefused as error:
            raise DeliveryStopped("delivery_refused", str(error)) from error
        # Kafka has no time before 1970, and 0 means "now" to librdkafka.
        stamps = rows.get_column("_ts").clip(lower_bound=1).to_list()
        return list(zip(keys, values, stamps, strict=True))


def _writer(side: DeliveredSide, name: SideName, columns: Schema, topic: str, store: SchemaStore) -> Writer:
    config = SideConfig(
        side.format,
        columns,
        name,
        schema=side.schema_,
        message=side.message,
        has_registry=side.registry is not None,
        subject=subject_of(side.subject_strategy or "topic_name", topic, name, side.record or _record_of(side)),
        is_unwrapped=side.unwrapped,
        delimiter=side.delimiter,
        record=side.record or "",
    )
    return writer_of(config, store)


def _record_of(side: DeliveredSide) -> str:
    """Return the full name in a given schema; empty: it has none, or no schema is given."""
    if side.schema_ is None:
        return ""
    return {"avro": avro_name, "json": json_title}.get(side.format, lambda _: "")(side.schema_)
