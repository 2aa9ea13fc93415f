"""The port through which results leave the service: after the log, at a position that the target stores together with the rows.

ExternalError
├── TargetUnavailable   the target gives no answer: retried with backoff
└── DeliveryStopped     a retry cannot help: the delivery waits for its user; ``reason`` says why
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Protocol, TypeVar
from uuid import UUID

import polars as pl

from engine.connections.secret_sources import SecretSources
from engine.definition.deliveries.delivery import DeliveryModel
from engine.errors import ExternalError, InvariantBroken
from engine.expressions.types.types import Schema
from engine.records.conform import nulls

StopReason = Literal["delivery_overtaken", "delivery_ahead", "delivery_position_lost", "delivery_refused", "value_not_writable"]


class TargetUnavailable(ExternalError):
    """The target accepts nothing now; the rows are delivered later."""

    code = "target_unavailable"


class DeliveryStopped(ExternalError):
    """A retry cannot help.

    Attributes:
        reason: stable code.
    """

    code: ClassVar[str] = "delivery_stopped"
    retryable = False

    def __init__(self, reason: StopReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Result:
    """A result to deliver.

    Attributes:
        delivery: its id, which is new after each reset.
        query: name of the query.
        columns: of the result.
        key: columns of its key.
    """

    delivery: UUID
    query: str
    columns: Schema
    key: tuple[str, ...]
    is_table: bool


@dataclass(frozen=True, slots=True)
class DeliveryContext:
    """The parts of its process that a delivery may use.

    Attributes:
        dsn: the database, for connections.
        root: below which files and Delta tables may be written; None: nowhere.
    """

    dsn: str = field(repr=False)
    root: Path | None
    surroundings: SecretSources


class Deliverer(Protocol):
    """Delivers rows to one target. Used by one thread at a time."""

    keeps_position: ClassVar[bool]
    """Whether the target knows its position; else the rows of an interrupted delivery are delivered again."""

    def position(self) -> int | None:
        """Return the number of the next row; None: the target has no position.

        This call fences earlier processes of this delivery: they can deliver nothing any more.

        Raises:
            TargetUnavailable, DeliveryStopped: see there.
        """
        ...

    def remember(self, position: int) -> bool:
        """Make sure that the target keeps its position if the next delivery is interrupted; called before that delivery is planned.

        Args:
            position: number of the next row.

        Returns:
            Whether the target has a position now. Also False if it never drops one, so it needs no call.

        Raises:
            TargetUnavailable, DeliveryStopped: see there.
        """
        ...

    def deliver(self, rows: pl.DataFrame, start: int, upto: int) -> None:
        """Deliver the rows numbered ``[start, upto)``, all or none, together with the position ``upto``.

        Args:
            rows: the result's columns, ``_offset`` (the number), ``_ts`` (event time, ms), ``_op`` (0: a row; else its delete), by number.
            start: the position so far.
            upto: the next one.

        Raises:
            TargetUnavailable, DeliveryStopped: see there.
        """
        ...

    def close(self) -> None:
        """Close the connection to the target; never raises."""
        ...


@dataclass(frozen=True, slots=True)
class DeliveryKind:
    """An output.

    Attributes:
        open: definition, result, site → deliverer. It may contact the target only in ``position``.
        check: the same → None. Raises, within ten seconds, ``DefinitionInvalid`` for a target that cannot be written in its current state,
            and ``TargetUnavailable`` for one that gives no answer.
    """

    open: Callable[[DeliveryModel, Result, DeliveryContext], Deliverer]
    check: Callable[[DeliveryModel, Result, DeliveryContext], None]


Model = TypeVar("Model", bound=DeliveryModel)


def of_kind(definition: DeliveryModel, kind: type[Model]) -> Model:
    """Return a definition as the model of its kind."""
    if not isinstance(definition, kind):
        raise InvariantBroken(f"an output of {kind.name()} is opened with a definition of {definition.name()}")
    return definition


def whole(frame: pl.DataFrame, columns: Schema) -> pl.DataFrame:
    """Add columns that the result got after a row was written: they are null."""
    missing = [(name, kind) for name, kind in columns.items() if name not in frame.columns]
    frame = frame.with_columns(nulls(name, kind, frame.height) for name, kind in missing) if missing else frame
    return frame.select("_offset", "_ts", "_op", *columns.names)
