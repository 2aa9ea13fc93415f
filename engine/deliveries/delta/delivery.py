"""Results in a Delta table: each delivery is one version, with the position as an application transaction (``txn``) in the same commit.

The library must not retry a commit: it would silently put it after another one, perhaps of another process with the same rows.
A version is a file that is created only if its name is free; in a bucket, an object with a conditional put.
"""

from __future__ import annotations

from typing import ClassVar, Final

import polars as pl
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, SchemaMismatchError, TableNotFoundError
from deltalake.schema import PrimitiveType

from engine.connections.attempts import Failed, Reason, attempt
from engine.connections.secret_sources import SecretMissing
from engine.definition.deliveries.delivery import DeliveryModel
from engine.definition.deliveries.delta import DeltaDelivery
from engine.deliveries.deliveries import DeliveryContext, DeliveryKind, DeliveryStopped, Result, TargetUnavailable, of_kind
from engine.deliveries.delta.place import DeltaPlace, place_of, refused, resolved_of
from engine.deliveries.lake import check_writable, lake_rows
from engine.errors import DefinitionInvalid

_NAMES: Final = {
    pl.String(): "string", pl.Int64(): "long", pl.Int32(): "integer", pl.Float64(): "double", pl.Boolean(): "boolean", pl.Date(): "date",
    pl.Binary(): "binary",
}  # fmt: skip
"""Types by Delta's names. Others have parameters; the library refuses values that do not fit them."""

_WIDER: Final = {"integer": ("long",)}
_BROKEN_RULE: Final = "Invalid data found"
CHECK_S: Final = 8.0
_PASSING: Final[frozenset[Reason]] = frozenset({"timeout", "unreachable", "refused", "name_not_resolved", "failed"})
"""Temporary reasons for a bucket's failure to answer."""


class DeltaDeliverer:
    """Implements ``Deliverer``."""

    keeps_position: ClassVar[bool] = True

    def __init__(self, definition: DeltaDelivery, result: Result, place: DeltaPlace) -> None:
        self._definition, self._result, self._place = definition, result, place
        self._app = f"slackwater-{result.delivery}"

    def position(self) -> int | None:
        table = self._table()
        return None if table is None else table.transaction_version(self._app)

    def remember(self, position: int) -> bool:  # noqa: ARG002 - what is written here stays
        return False

    def deliver(self, rows: pl.DataFrame, start: int, upto: int) -> None:
        is_dated = self._definition.partition_by == "date"
        frame = lake_rows(rows, is_table=self._result.is_table, has_date=is_dated)
        table = self._table()
        found = None if table is None else table.transaction_version(self._app)
        if found is not None and found != start:
            raise TargetUnavailable(f"another process has delivered the rows from {start} on; this one looks again")
        if table is not None:
            _refuse_unlike(table, frame, is_dated=is_dated)
        try:
            if self._place.directory is not None:
                self._place.directory.mkdir(parents=True, exist_ok=True)
            write_deltalake(
                self._place.uri if table is None else table,
                frame.to_arrow(),
                mode="error" if table is None else "append",
                schema_mode=None if table is None else "merge",
                partition_by=["_date"] if is_dated else None,
                storage_options=self._place.options if table is None else None,
                commit_properties=CommitProperties(max_commit_retries=0, app_transactions=[Transaction(self._app, upto)]),
            )
        except SchemaMismatchError as error:
            raise DeliveryStopped(
                "delivery_refused", f"the table has other columns: {self._place.error_text(error)}; name another path"
            ) from None
        except (CommitFailedError, OSError, DeltaError) as error:
            raise self._failure(error) from None

    def close(self) -> None:
        """See ``Deliverer``."""

    def _table(self) -> DeltaTable | None:
        try:
            return DeltaTable(self._place.uri, storage_options=self._place.options)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise self._failure(error) from None

    def _failure(self, error: Exception) -> TargetUnavailable | DeliveryStopped:
        """Return our error for an exception of the library. The exception is no cause, because its text about a request must not be logged."""
        detail = self._place.error_text(error)
        if _BROKEN_RULE in str(error):
            detail = f"the table has a rule that a row breaks: {detail}; drop the rule, or name another path"
            return DeliveryStopped("delivery_refused", detail)
        if self._place.is_refused(error):
            cure = "let its key list the bucket, and read and put objects below the path; then restart the query"
            return DeliveryStopped(
                "delivery_refused", f"the connection '{self._definition.connection}' is not allowed that: {cure} ({detail})"
            )
        return TargetUnavailable(f"{self._place.uri}: {detail}")


def _refuse_unlike(table: DeltaTable, frame: pl.DataFrame, *, is_dated: bool) -> None:
    """Refuse a table whose columns would change the result's values: the library casts what it can."""
    partitions = table.metadata().partition_columns
    if is_dated != ("_date" in partitions) or (is_dated and partitions != ["_date"]):
        is_now = f"partitioned by {', '.join(partitions)}" if partitions else "not partitioned"
        detail = f"the table is {is_now}, and `partition_by` says otherwise; change that, or name another path"
        raise DeliveryStopped("delivery_refused", detail)
    for each in table.schema().fields:
        wanted = _NAMES.get(frame.schema[each.name]) if each.name in frame.columns else None
        there = each.type.type if isinstance(each.type, PrimitiveType) else type(each.type).__name__
        if wanted is not None and there not in (wanted, *_WIDER.get(wanted, ())):
            detail = f"the table's column {each.name[:80]} is of type {there}, the result's of {wanted}; name another path"
            raise DeliveryStopped("delivery_refused", detail)


def _open(said: DeliveryModel, result: Result, site: DeliveryContext) -> DeltaDeliverer:
    definition = of_kind(said, DeltaDelivery)
    try:
        place = place_of(definition, site)
    except DefinitionInvalid as error:
        raise DeliveryStopped("delivery_refused", error.problems[0].detail) from error
    return DeltaDeliverer(definition, result, place)


def _check(said: DeliveryModel, result: Result, site: DeliveryContext) -> None:  # noqa: ARG001 - the port's
    definition = of_kind(said, DeltaDelivery)
    if definition.connection is None:
        check_writable(definition.path, site.root)
        return
    resolved = resolved_of(definition.connection, site)
    try:
        attempt(resolved.definition, resolved.reader, CHECK_S)
    except SecretMissing as error:
        raise TargetUnavailable(f"connection '{resolved.name}': {error}") from error
    except Failed as error:
        detail = f"connection '{resolved.name}': {resolved.reader.without_secrets(str(error))}"
        if error.reason in _PASSING:
            raise TargetUnavailable(detail) from None
        raise refused("bucket_not_writable", detail) from None


DELTA_DELIVERY: Final = DeliveryKind(_open, _check)
