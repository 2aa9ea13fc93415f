"""Hold the service's answers against the batch computation, row by row."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
from slackwater import Client

from examples.flights.data import Input
from examples.flights.queries import BATCH_COLUMNS, expected_join, expected_windows

FLIGHT = ["origin", "carrier", "flight", "dest", "departed_ms"]
# Both sides sum whole minutes; the batch side divides in its own order.
RELATIVE_TOLERANCE = 1e-12


@dataclass(frozen=True, slots=True)
class Agreement:
    """How one answer compares.

    Attributes:
        subject: what was compared.
        rows: rows read from the service.
        equal: rows equal to the batch computation.
        absent: rows of the batch computation that the service should have given and did not.
    """

    subject: str
    rows: int
    equal: int
    absent: int

    @property
    def is_complete(self) -> bool:
        return self.rows == self.equal and self.absent == 0


def compare_join(client: Client, data: Input, waiting: int) -> Agreement:
    """Compare every joined departure; ``waiting`` more are still held back by the grace period."""
    records = list(client.stream("departures_with_weather").records())
    expected = expected_join(data)
    if not records:
        return Agreement("departures with weather", 0, 0, len(expected) - waiting)
    got = pl.DataFrame(
        [
            {
                **{name: record[name] for name in ("origin", "carrier", "flight", "dest", "departed_at", "observed_at", "temp")},
            }
            for record in records
        ],
        infer_schema_length=None,
    ).select("origin", "carrier", "flight", "dest", "temp", departed_ms=_ms("departed_at"), observed_ms=_ms("observed_at"))
    both = got.join(expected, on=FLIGHT, how="inner", suffix="_expected", nulls_equal=True)
    equal = both.filter(
        pl.col("observed_ms").eq_missing(pl.col("observed_ms_expected")) & pl.col("temp").eq_missing(pl.col("temp_expected"))
    )
    return Agreement("departures with weather", len(got), len(equal), max(0, len(expected) - waiting - len(got)))


def compare_windows(client: Client, data: Input) -> tuple[Agreement, int]:
    """Compare every final window; also return how many departures the batch computation calls late."""
    expected, late = expected_windows(data)
    rows = list(client.table("delays_by_airport").each_row())
    if not rows:
        return Agreement("final hourly windows", 0, 0, len(expected)), late
    got = pl.DataFrame(rows, infer_schema_length=None).with_columns(window_start_ms=_ms("window_start"))
    both = got.join(expected, on=["origin", "window_start_ms"], how="inner", suffix="_expected")
    is_equal = pl.lit(value=True)
    for name in BATCH_COLUMNS:
        left, right = pl.col(name), pl.col(f"{name}_expected")
        if name == "mean_delay":
            is_close = (left - right).abs() <= RELATIVE_TOLERANCE * right.abs().clip(lower_bound=1.0)
            is_equal &= is_close | (left.is_null() & right.is_null())
        else:
            is_equal &= left.eq_missing(right)
    absent = expected.join(got, on=["origin", "window_start_ms"], how="anti")
    return Agreement("final hourly windows", len(got), len(both.filter(is_equal)), len(absent)), late


def _ms(column: str) -> pl.Expr:
    return pl.col(column).str.to_datetime(time_zone="UTC", strict=True).dt.epoch("ms")
