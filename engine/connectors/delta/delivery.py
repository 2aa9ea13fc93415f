"""Results in a Delta table: each delivery is one version, with the position as an application transaction (``txn``) in the same commit.

No commit is tried again by the library: it would be put behind another one unseen, also behind one of another process with the same rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final

import polars as pl
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, SchemaMismatchError, TableNotFoundError
from deltalake.schema import PrimitiveType

from engine.connectors.deliveries import DeliveryKind, DeliverySite, DeliveryStopped, Result, TargetUnavailable, of_kind
from engine.connectors.delivery_root import check_writable, directory_of
from engine.connectors.delta.delivery_definition import DeltaDelivery
from engine.connectors.lake_rows import lake_rows
from engine.definition.delivery import DeliveryModel
from engine.errors import DefinitionInvalid

_NAMES: Final = {
    pl.String(): "string", pl.Int64(): "long", pl.Int32(): "integer", pl.Float64(): "double", pl.Boolean(): "boolean", pl.Date(): "date",
    pl.Binary(): "binary",
}  # fmt: skip
"""Types by Delta's names. Others have parameters; what does not fit there, the library refuses."""

_WIDER: Final = {"integer": ("long",)}
_BROKEN_RULE: Final = "Invalid data found"


class DeltaDeliverer:
    """Implements ``Deliverer``.

    Args:
        definition: of the delivery.
        result: what is delivered.
        directory: of the table.
    """

    keeps_position: ClassVar[bool] = True

    def __init__(self, definition: DeltaDelivery, result: Result, directory: Path) -> None:
        self._definition, self._result, self._directory = definition, result, directory
        self._app = f"slackwater-{result.delivery}"

    def position(self) -> int | None:
        """See ``Deliverer``."""
        table = self._table()
        return None if table is None else table.transaction_version(self._app)

    def remember(self, position: int) -> bool:  # noqa: ARG002 - what is written here stays
        """See ``Deliverer``."""
        return False

    def deliver(self, rows: pl.DataFrame, start: int, upto: int) -> None:
        """See ``Deliverer``."""
        is_dated = self._definition.partition_by == "date"
        frame = lake_rows(rows, is_table=self._result.is_table, has_date=is_dated)
        table = self._table()
        found = None if table is None else table.transaction_version(self._app)
        if found is not None and found != start:
            raise TargetUnavailable(f"another process has delivered the rows from {start} on; this one looks again")
        if table is not None:
            _refuse_unlike(table, frame, is_dated=is_dated)
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            write_deltalake(
                self._directory if table is None else table,
                frame.to_arrow(),
                mode="error" if table is None else "append",
                schema_mode=None if table is None else "merge",
                partition_by=["_date"] if is_dated else None,
                commit_properties=CommitProperties(max_commit_retries=0, app_transactions=[Transaction(self._app, upto)]),
            )
        except SchemaMismatchError as error:
            raise DeliveryStopped(
                "delivery_refused", f"the table has other columns: {_short(error)}; name another directory"
            ) from error
        except (CommitFailedError, OSError) as error:
            raise TargetUnavailable(f"{self._directory}: {_short(error)}") from error
        except DeltaError as error:
            if _BROKEN_RULE in str(error):
                raise DeliveryStopped(
                    "delivery_refused",
                    f"the table has a rule that a row breaks: {_short(error)}; drop the rule, or name another directory",
                ) from error
            raise TargetUnavailable(f"{self._directory}: {_short(error)}") from error

    def close(self) -> None:
        """See ``Deliverer``."""

    def _table(self) -> DeltaTable | None:
        try:
            return DeltaTable(self._directory)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise TargetUnavailable(f"{self._directory}: {_short(error)}") from error


def _refuse_unlike(table: DeltaTable, frame: pl.DataFrame, *, is_dated: bool) -> None:
    """Refuse a table whose columns would be written other values than the result has: the library casts what it can."""
    partitions = table.metadata().partition_columns
    if is_dated != ("_date" in partitions) or (is_dated and partitions != ["_date"]):
        is_now = f"partitioned by {', '.join(partitions)}" if partitions else "not partitioned"
        detail = f"the table is {is_now}, and `partition_by` says otherwise; change that, or name another directory"
        raise DeliveryStopped("delivery_refused", detail)
    for each in table.schema().fields:
        wanted = _NAMES.get(frame.schema[each.name]) if each.name in frame.columns else None
        there = each.type.type if isinstance(each.type, PrimitiveType) else type(each.type).__name__
        if wanted is not None and there not in (wanted, *_WIDER.get(wanted, ())):
            detail = f"the table's column {each.name[:80]} is of type {there}, the result's of {wanted}; name another directory"
            raise DeliveryStopped("delivery_refused", detail)


def _open(said: DeliveryModel, result: Result, site: DeliverySite) -> DeltaDeliverer:
    definition = of_kind(said, DeltaDelivery)
    try:
        directory = directory_of(definition.path, site.root)
    except DefinitionInvalid as error:
        raise DeliveryStopped("delivery_refused", error.problems[0].detail) from error
    return DeltaDeliverer(definition, result, directory)


def _check(said: DeliveryModel, result: Result, site: DeliverySite) -> None:  # noqa: ARG001 - the port's
    definition = of_kind(said, DeltaDelivery)
    check_writable(definition.path, site.root)


def _short(error: Exception) -> str:
    return str(error)[:300]


DELTA_DELIVERY: Final = DeliveryKind(_open, _check)
