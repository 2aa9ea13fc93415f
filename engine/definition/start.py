"""Where a query starts to read: a word, or an event time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from engine.expressions.model import Model

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _instant(value: Any) -> datetime:
    """Read RFC 3339. A bare number is refused: whether it counts seconds or milliseconds would be a guess."""
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f"{value[:40]!r} is no time; write it like 2013-01-01T00:00:00Z") from None
    else:
        raise ValueError("write the time as a text like 2013-01-01T00:00:00Z")  # noqa: TRY004 - becomes a problem of the field
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("in UTC the time is outside of the years 1 to 9999") from None


class StartAt(Model):
    """Start at an event time; one without an offset is UTC."""

    at: Annotated[datetime, BeforeValidator(_instant)] = Field(
        description="Records with an earlier event time are left out. RFC 3339; without an offset it is UTC."
    )

    @property
    def at_ms(self) -> int:
        return (self.at - EPOCH) // timedelta(milliseconds=1)


Start = Annotated[
    Annotated[Literal["earliest", "latest"], Tag("word")] | Annotated[StartAt, Tag("time")],
    Discriminator(lambda value: "word" if isinstance(value, str) else "time"),
]
