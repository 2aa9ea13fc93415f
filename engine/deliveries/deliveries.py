"""The port through which results leave the service: behind the log, at a position that the target keeps together with what it took.

ExternalError
├── TargetUnavailable   the target gives no answer: tried again with backoff
└── DeliveryStopped     trying again cannot help: the delivery waits for its user; ``reason`` says why
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
    """The target takes nothing now; what was not taken is delivered later."""

    code = "target_unavailable"


class DeliveryStopped(ExternalError):
    """Trying again cannot help.

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
    """What is delivered.

    Attributes:
        delivery: its id: another one whenever it begins anew.
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
    """What a delivery may use of the process that it runs in.

    Attributes:
        dsn: the database, for connections.
        root: below which files and Delta tables may be written; None: nowhere.
    """

    dsn: str = field(repr=False)
    root: Path | None
    surroundings: SecretSources


class Deliverer(Protocol):
    """Brings rows to one target. Used by one thread at a time."""

    keeps_position: ClassVar[bool]
    """Whether the target knows what it has; else what was under way when a process ended is delivered again."""

    def position(self) -> int | None:
        """Return the number of the row that comes next; None: the target knows of none.

        It ends what an earlier process of this delivery had under way: from here on that one can deliver nothing.

        Raises:
            TargetUnavailable, DeliveryStopped: see there.
        """
        ...

    def remember(self, position: int) -> bool:
        """Make sure that the target still has its position when a process ends in the next delivery; called before that is planned.

        Args:
            position: number of the row that comes next.

        Returns:
            Whether the target has a position now. False also where it forgets none, and so need not be told.

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
        """Let go of the target; never raises."""
        ...


@dataclass(frozen=True, slots=True)
class DeliveryKind:
    """An output.

    Attributes:
        open: definition, result, site → what delivers. It may talk to the target only when asked for the position.
        check: the same → None; raises, within ten seconds, ``DefinitionInvalid`` for a target that cannot be written as it is, and
            ``TargetUnavailable`` for one that gives no answer.
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
    """Add columns that the result has got since a row was written: they are null."""
    missing = [(name, kind) for name, kind in columns.items() if name not in frame.columns]
    frame = frame.with_columns(nulls(name, kind, frame.height) for name, kind in missing) if missing else frame
    return frame.select("_offset", "_ts", "_op", *columns.names)
