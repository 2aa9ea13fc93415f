"""The demo's relations and queries, and the same questions answered by a batch computation over the finished data."""

from __future__ import annotations

from typing import Any

import polars as pl

from examples.flights.data import Input, Kind

HOUR_MS = 3_600_000
JOIN_GRACE_HOURS = 3  # the slowest weather report comes 174 minutes after its hour
WINDOW_GRACE_HOURS = 6  # longer than all flights but those to Hawaii
BATCH_COLUMNS = ("flights", "with_delay", "mean_delay", "worst_delay", "destinations")

# One partition: the result then depends on nothing but the sending order, which the batch computation can repeat.
RELATIONS: dict[tuple[Kind, str], dict[str, Any]] = {
    ("streams", "departures"): {
        "key": ["origin"],
        "columns": {
            "origin": "string", "dest": "string", "carrier": "string", "flight": "int", "tailnum": "string",
            "distance": "int", "dep_delay": "int", "departed_at": "timestamp",
        },
        "event_time": "departed_at",
        "connector": {"type": "log", "partitions": 1},
    },
    ("tables", "weather"): {
        "key": ["origin"],
        "columns": {
            "origin": "string", "temp": "double", "wind_speed": "double", "precip": "double", "visib": "double",
            "observed_at": "timestamp",
        },
        "event_time": "observed_at",
        "versioned": {"history_retention": "2d"},
        "materialize": True,  # its rows can be read as of any time of those two days
        "connector": {"type": "log", "partitions": 1},
    },
}  # fmt: skip

JOIN: dict[str, Any] = {
    "name": "departures_with_weather",
    "from": {"stream": "departures"},
    "joins": [
        {"table": "weather", "as": "w", "type": "left", "on": "departures.origin = w.origin", "grace": f"{JOIN_GRACE_HOURS}h"}
    ],
    "select": {
        "origin": "departures.origin", "carrier": "departures.carrier", "flight": "departures.flight", "dest": "departures.dest",
        "departed_at": "departures.departed_at", "dep_delay": "departures.dep_delay",
        "temp": "w.temp", "visib": "w.visib", "observed_at": "w.observed_at", "match": "w.$match",
    },
    "into": {"stream": "departures_with_weather"},
}  # fmt: skip

WINDOWS: dict[str, Any] = {
    "name": "delays_by_airport",
    "from": {"stream": "departures"},
    "group_by": ["origin"],
    "window": {"type": "tumbling", "size": "1h", "grace": f"{WINDOW_GRACE_HOURS}h", "retention": "400d"},
    "aggregate": {
        "flights": "count(*)", "with_delay": "count(dep_delay)", "mean_delay": "avg(dep_delay)", "worst_delay": "max(dep_delay)",
        "destinations": "count(distinct dest)",
    },
    "suppress": {"mode": "until_window_closes"},
    "into": {"table": "delays_by_airport"},
}  # fmt: skip


def expected_join(data: Input) -> pl.DataFrame:
    """Join every departure with the weather that was valid when it left: columns origin, flight, dest, departed_ms, observed_ms, temp."""
    weather = data.weather.select("origin", "temp", observed_ms="_ts", _ts="_ts").sort("_ts")
    flights = data.departures.filter(pl.col("_ts").is_not_null()).sort("_ts", maintain_order=True)
    joined = flights.join_asof(weather, on="_ts", by="origin", strategy="backward", check_sortedness=False)
    return joined.select("origin", "carrier", "flight", "dest", "observed_ms", "temp", departed_ms="_ts")


def expected_windows(data: Input) -> tuple[pl.DataFrame, int]:
    """Count per airport and hour what arrived before the hour closed.

    Returns:
        The closed windows (origin, window_start_ms and the aggregates), and the number of departures that came too late.
    """
    grace = WINDOW_GRACE_HOURS * HOUR_MS
    flights = data.departures.filter(pl.col("_ts").is_not_null()).with_columns(
        window_start_ms=pl.col("_ts") // HOUR_MS * HOUR_MS, _stream_time=pl.col("_ts").cum_max()
    )
    closes = pl.col("window_start_ms") + HOUR_MS + grace
    in_time = flights.filter(closes > pl.col("_stream_time"))
    closed = in_time.filter(closes <= flights["_stream_time"].max())
    delay = pl.col("dep_delay")
    windows = closed.group_by("origin", "window_start_ms").agg(
        flights=pl.len().cast(pl.Int64),
        with_delay=delay.count().cast(pl.Int64),
        mean_delay=delay.mean(),
        worst_delay=delay.max(),
        destinations=pl.col("dest").n_unique().cast(pl.Int64),
    )
    return windows, len(flights) - len(in_time)
