"""Validates posted records: one large body by itself, many small ones together. Warns about valid but unusual ones.

Validation is vectorised, so its cost hardly depends on the number of records: 64 requests of one record each cost little more than one.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from app.appends.change_positions import keyed
from app.catalog.connections.registries import WAIT_S
from app.http.values import shown
from engine.formats.bodies.bodies import JSON_TYPES, LINE_TYPES, parse_records
from engine.formats.bodies.body_formats import BodyOptions, read_posted
from engine.formats.json.json_reading import JsonReader
from engine.formats.json.json_records import BodyMalformed, line_bounds, parse_array
from engine.formats.port import SchemaStore
from engine.formats.registry.bounded import until
from engine.plan.model import RelationSchema
from engine.plan.warnings import DefinitionWarning
from engine.records.canonical import canonicalise, reject_rows

# Bodies up to this size are validated together with others; a larger one is validated by itself, in a thread.
SMALL_BYTES = 32 * 1024
_BOM = b"\xef\xbb\xbf"
_JSON_SPACES = " \t\r\n"
_MEDIA_TYPES = {"array": JSON_TYPES[0], "lines": LINE_TYPES[0]}


@dataclass(frozen=True, slots=True)
class ValidatedBody:
    """Canonical records and rejects of one body; ``offset`` of a reject is its index in the body.

    Attributes:
        changes: position of each record in its database's log (``change_positions.keyed``); None: the records are no change events.
    """

    accepted: pl.DataFrame
    rejects: pl.DataFrame
    changes: pl.DataFrame | None = None


@dataclass(frozen=True, slots=True)
class SmallBody:
    """A complete body that can be joined to others.

    Attributes:
        form: of ``text``: members of an array without its brackets, or lines.
        count: number of records, good or bad.
    """

    form: Literal["array", "lines"]
    text: bytes
    count: int


def small_body(body: bytes, media_type: str, relation: RelationSchema) -> SmallBody | None:
    """Return the body in a form that can be joined to others; None if it is large, or Arrow.

    Raises:
        BodyMalformed: it is JSON that cannot be read.
    """
    if len(body) > SMALL_BYTES:
        return None
    if media_type in LINE_TYPES:
        text = body.removeprefix(_BOM)
        return SmallBody("lines", text, len(line_bounds(text)[0]))
    return _small_array(body, relation) if media_type in JSON_TYPES else None


def _small_array(body: bytes, relation: RelationSchema) -> SmallBody:
    try:
        text = body.decode("utf-8-sig").strip(_JSON_SPACES)
        value = JsonReader().read(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return SmallBody("array", text.encode(), 1)
    if isinstance(value, list):
        return SmallBody("array", text[1:-1].encode(), len(value))
    parse_array(body, relation)  # raises the error with the reason
    raise AssertionError("a body that is neither an array nor an object was parsed")


def validate_body(body: bytes, media_type: str, relation: RelationSchema, now_ms: int) -> ValidatedBody:
    """Validate the records of one body.

    Raises:
        BodyMalformed: the body cannot be split into records.
    """
    raw, malformed = parse_records(body, media_type, relation)
    accepted, refused = canonicalise(raw, relation, now_ms)
    if malformed.height and refused.height:
        return ValidatedBody(accepted, pl.concat([malformed, refused]).sort("offset", maintain_order=True))
    return ValidatedBody(accepted, malformed if malformed.height else refused)


def validate_format_body(
    body: bytes, asked: BodyOptions, relation: RelationSchema, now_ms: int, store: SchemaStore
) -> ValidatedBody:
    """Validate the records of a body in a named format. The whole wait for the registry is at most ``WAIT_S``.

    Raises:
        FormatInvalid, BodyMalformed, RegistryUnavailable, RegistryRefused: see ``read_posted``.
    """
    with until(WAIT_S):
        raw, malformed, changes = read_posted(body, asked, relation, store)
    if changes is None:
        accepted, refused = canonicalise(raw, relation, now_ms)
        return ValidatedBody(accepted, pl.concat([malformed, refused]).sort("offset", maintain_order=True))
    # A changed key makes two rows of one event: rows are validated by their own places, and rejected by the event's.
    places = raw.get_column("_offset")
    rows = raw.with_columns(pl.int_range(raw.height, dtype=pl.Int64, eager=True).alias("_offset"))
    accepted, refused = canonicalise(rows, relation, now_ms)
    if refused.height:
        refused = refused.with_columns(places.gather(refused.get_column("offset")).alias("offset")).unique(
            "offset", keep="first", maintain_order=True
        )
    positions = keyed(accepted, relation.key, changes)
    accepted = accepted.with_columns(places.gather(accepted.get_column("_offset")).alias("_offset"))
    return ValidatedBody(accepted, pl.concat([malformed, refused]).sort("offset", maintain_order=True), positions)


def validate_together(bodies: Sequence[SmallBody], relation: RelationSchema, now_ms: int) -> list[ValidatedBody]:
    """Validate several bodies of one relation at once; the result equals that of each body alone."""
    validated: dict[int, ValidatedBody] = {}
    for form, separator in (("array", b","), ("lines", b"\n")):
        indexes = [index for index, body in enumerate(bodies) if body.form == form]
        text = separator.join(bodies[index].text for index in indexes if bodies[index].count)
        if not indexes:
            continue
        try:
            whole = validate_body(b"[" + text + b"]" if form == "array" else text, _MEDIA_TYPES[form], relation, now_ms)
        except BodyMalformed:  # one body is nested deeper than this thread's stack allows
            validated |= {index: _validate_alone(bodies[index], relation, now_ms) for index in indexes}
        else:
            bounds = list(itertools.accumulate((bodies[index].count for index in indexes), initial=0))
            validated |= dict(zip(indexes, _cut(whole, bounds), strict=True))
    return [validated[index] for index in range(len(bodies))]


def _validate_alone(body: SmallBody, relation: RelationSchema, now_ms: int) -> ValidatedBody:
    """Validate one body of a group; if it cannot be read, reject each of its records."""
    text = b"[" + body.text + b"]" if body.form == "array" else body.text
    try:
        return validate_body(text, _MEDIA_TYPES[body.form], relation, now_ms)
    except BodyMalformed as error:
        accepted, _ = canonicalise(pl.DataFrame(), relation, now_ms)
        return ValidatedBody(accepted, reject_rows([(index, BodyMalformed.code, str(error), "") for index in range(body.count)]))


def _cut(whole: ValidatedBody, bounds: Sequence[int]) -> list[ValidatedBody]:
    """Cut at these bounds; indexes in each part begin at 0 again."""
    if len(bounds) == 2:
        return [whole]
    accepted = np.searchsorted(whole.accepted["_offset"].to_numpy(), bounds)
    rejects = np.searchsorted(whole.rejects["offset"].to_numpy(), bounds)
    parts = []
    for part, base in enumerate(bounds[:-1]):
        refused = whole.rejects[int(rejects[part]) : int(rejects[part + 1])]
        if refused.height:
            refused = refused.with_columns(pl.col("offset") - base)
        parts.append(ValidatedBody(whole.accepted[int(accepted[part]) : int(accepted[part + 1])], refused))
    return parts


EARLY_MS = 631_152_000_000
"""1990-01-01. Seconds since 1970 that are read as milliseconds are before it, and few records are as old."""


def warnings_of(relation: RelationSchema, newest_ms: int | None) -> tuple[DefinitionWarning, ...]:
    """Return the warnings for the client that appended.

    Args:
        relation: the target of the append.
        newest_ms: the greatest event time of the accepted records of one request; None if there are none.
    """
    if newest_ms is None or newest_ms >= EARLY_MS:
        return ()
    pointer, reading, cure = _event_time(relation)
    detail = f"every record of this request has an event time before 1990, the newest of {shown(newest_ms)}: {reading}"
    return (DefinitionWarning(pointer, "event_times_before_1990", detail, f"{cure}; nothing if the records are that old"),)


def _event_time(relation: RelationSchema) -> tuple[str, str, str]:
    """Return the definition's field for event times, how they are read, and the cure for a wrong reading."""
    name = relation.event_time
    if name is None:
        return "/event_time", "`$event_time_ms` counts milliseconds since 1970", "send milliseconds"
    if relation.columns[name].is_integer:
        unit = relation.event_time_unit
        cure = 'say what they count with "event_time_unit" (s, ms, us, ns); it can change while the relation has no records'
        return "/event_time_unit", f"the numbers of column {name!r} are read as {unit} since 1970", cure
    if relation.event_time_format is not None:
        return (
            "/event_time_format",
            f"the texts of column {name!r} are read by {relation.event_time_format!r}",
            "correct the format",
        )
    cure = "send RFC 3339, or milliseconds; for other numbers declare the column as bigint with an `event_time_unit`"
    return "/event_time", f"numbers in column {name!r} are read as milliseconds since 1970", cure
