"""Time zones as Java names them: ``Europe/Berlin``, ``UTC``, ``Z``, ``+02:00``, ``GMT+2``."""

from __future__ import annotations

import re
import zoneinfo
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import polars as pl

from engine.expressions.values.operands import ExpressionInvalid

_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?")
_OF_UTC: Final = ("Z", "UTC", "GMT", "UT")
_LARGEST_OFFSET_S: Final = 18 * 3600
_DAY: Final = pl.duration(days=1)


@dataclass(frozen=True, slots=True)
class Zone:
    """A time zone.

    Attributes:
        name: as it was written.
        offset_s: seconds ahead of UTC, where that is always the same; None: the name is one of the time zone database.
    """

    name: str
    offset_s: int | None

    def local(self, instant: pl.Expr) -> pl.Expr:
        """Return the time on the wall at an instant, without a zone."""
        if self.offset_s is not None:
            return instant.dt.replace_time_zone(None) + pl.duration(seconds=self.offset_s)
        return instant.dt.convert_time_zone(self.name).dt.replace_time_zone(None)

    def instant(self, local: pl.Expr) -> pl.Expr:
        """Return the instant of a time on the wall: the earlier one of two; of a time that was left out, as if it had not been."""
        if self.offset_s is not None:
            return (local - pl.duration(seconds=self.offset_s)).dt.replace_time_zone("UTC")
        day_before = local - _DAY
        offset = day_before - self._offset_at(day_before).dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        skipped = (local - offset).dt.replace_time_zone("UTC")
        return self._offset_at(local).dt.convert_time_zone("UTC").fill_null(skipped)

    def _offset_at(self, local: pl.Expr) -> pl.Expr:
        return local.dt.replace_time_zone(self.name, ambiguous="earliest", non_existent="null")

    def short_name(self, instant: pl.Expr) -> pl.Expr:
        """Return what people call it at an instant: PST or PDT."""
        if self.offset_s is not None:
            return pl.lit(self.name)
        return instant.dt.convert_time_zone(self.name).dt.strftime("%Z")


UTC: Final = Zone("GMT", 0)


@lru_cache(maxsize=1_000)
def zone_of(name: str) -> Zone:
    """Read a time zone.

    Raises:
        ExpressionInvalid: ``type_mismatch``: there is none of that name.
    """
    if name in _OF_UTC:
        return Zone(name, 0)
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        hours, minutes, seconds = (int(part or 0) for part in offset.groups()[1:])
        size = hours * 3600 + minutes * 60 + seconds
        if minutes < 60 and seconds < 60 and size <= _LARGEST_OFFSET_S:
            return Zone(name, -size if offset[1] == "-" else size)
    elif name in zoneinfo.available_timezones():
        return Zone(name, None)
    raise ExpressionInvalid(
        "type_mismatch", f"there is no time zone {name[:60]!r}; write one such as Europe/Berlin, UTC or +02:00"
    )
