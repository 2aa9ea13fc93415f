"""From records to packets: what every kind of feed does with what it has parsed.

Records are judged once per relation that reads the feed, then filtered, projected, hashed and split by task once per input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

import polars as pl

from engine.connectors.canonical import SourceKind, canonicalise, stop_on_rejects
from engine.connectors.feeds import ReadRequest, Split
from engine.connectors.packets import Packet, PacketKind, Route, data_packets, encode_frame, encode_json
from engine.core.hashing import UNSEEDED, KeyHash
from engine.definition.expressions import compile_scalar
from engine.plan.model import Feed, Input, RelationSchema

MAX_REJECTS_PER_PIECE = 1_000
"""A file of garbage must not fill memory and database with excerpts; the sink counts what it gets,
and what is beyond travels as a count."""

Parse = Callable[[RelationSchema, "pl.Expr | None"], tuple[pl.DataFrame, pl.DataFrame]]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a split.

    Attributes:
        rows: records inside, good or bad.
        parse: makes ``(raw, rejects)`` of them for one relation and its ``where``, with feed offsets.
    """

    rows: int
    parse: Parse


@dataclass(frozen=True, slots=True)
class _Reading:
    """A relation with the inputs that read it, conditions compiled."""

    relation: RelationSchema
    member: pl.Expr | None
    inputs: tuple[tuple[Input, pl.Expr | None], ...]


@dataclass(slots=True)
class _Seen:
    """What a split held."""

    rows: int = 0
    accepted: dict[str, int] = field(default_factory=dict)
    max_ts: int | None = None


def shape(pieces: Iterable[Piece], split: Split, feed: Feed, request: ReadRequest, source: SourceKind) -> Iterator[Packet]:
    """Yield the packets of one split, the ``progress`` packet last.

    Raises:
        DataInvalid: a bad record in a relation with ``on_bad_record: stop``.
    """
    readings = _readings(request.inputs)
    seen = _Seen()
    for piece in pieces:
        seen.rows += piece.rows
        for reading in readings:
            yield from _shape_piece(piece, reading, split, request, source, seen)
    yield _packet("progress", split, request, encode_json(_progress(feed, split, seen)), 0)


def _shape_piece(
    piece: Piece, reading: _Reading, split: Split, request: ReadRequest, source: SourceKind, seen: _Seen
) -> Iterator[Packet]:
    raw, malformed = piece.parse(reading.relation, reading.member)
    accepted, refused = canonicalise(raw, reading.relation, request.now_ms, source, reading.member)
    if malformed.height or refused.height:
        yield from _refused(pl.concat([malformed, refused]).sort("offset"), reading, split, request)
    if accepted.height == 0:
        return
    seen.accepted[reading.relation.name] = seen.accepted.get(reading.relation.name, 0) + accepted.height
    newest = cast("int", accepted["_ts"].max())
    seen.max_ts = newest if seen.max_ts is None else max(seen.max_ts, newest)
    for source_input, where in reading.inputs:
        frame = _for_input(accepted, source_input, where, request.hashing)
        if frame.height:
            yield from data_packets(frame, request.tasks, Route(source_input.index, split.partition, request.now_ms))


def for_input(accepted: pl.DataFrame, source_input: Input, hashing: KeyHash = UNSEEDED) -> pl.DataFrame:
    """Filter, project and hash a relation's judged records for one input."""
    return _for_input(accepted, source_input, _compile(source_input.where, source_input.relation), hashing)


def _for_input(accepted: pl.DataFrame, source_input: Input, where: pl.Expr | None, hashing: KeyHash) -> pl.DataFrame:
    if where is not None:
        accepted = accepted.filter(where)
    if isinstance(source_input.start, int):
        accepted = accepted.filter(pl.col("_ts") >= source_input.start)
    hashed = accepted.with_columns(hashing.of(accepted, source_input.hash_key))
    return hashed.select("_key_hash", "_ts", "_offset", "_op", *source_input.columns)


def _refused(rejects: pl.DataFrame, reading: _Reading, split: Split, request: ReadRequest) -> Iterator[Packet]:
    stop_on_rejects(rejects, reading.relation)
    first = reading.inputs[0][0]
    kept, beyond = rejects.head(MAX_REJECTS_PER_PIECE), rejects.slice(MAX_REJECTS_PER_PIECE)
    yield _packet("reject", split, request, encode_frame(kept), first.index, kept.height)
    if beyond.height:
        counts = beyond.group_by("reason").len().sort("reason").rows()
        counters = [[first.alias, f"rejected_{reason}", count] for reason, count in counts]
        stats = {"stage": 0, "task": request.tasks[0], "clocks": {}, "buffered": {}, "counters": counters}
        yield _packet("stats", split, request, encode_json(stats), first.index)


def _packet(kind: PacketKind, split: Split, request: ReadRequest, blob: bytes, input_index: int, rows: int = 0) -> Packet:
    return Packet(request.tasks[0], kind, input_index, split.partition, split.start, rows, None, None, request.now_ms, blob)


def _progress(feed: Feed, split: Split, seen: _Seen) -> dict[str, object]:
    return {
        "feed": feed.name,
        "partition": split.partition,
        "end_offset": split.end,
        "rows": seen.rows,
        "accepted": max(seen.accepted.values(), default=0),
        "max_ts": seen.max_ts,
    }


def _readings(inputs: Sequence[Input]) -> list[_Reading]:
    by_relation: dict[RelationSchema, list[Input]] = {}
    for source_input in inputs:
        by_relation.setdefault(source_input.relation, []).append(source_input)
    return [
        _Reading(relation, _compile(relation.where, relation), tuple((one, _compile(one.where, relation)) for one in readers))
        for relation, readers in by_relation.items()
    ]


def _compile(text: str | None, relation: RelationSchema) -> pl.Expr | None:
    return None if text is None else compile_scalar(text, relation.columns).expr
