"""From parsed records to packets, for every kind of feed.

Records are validated once per relation that reads the feed, then filtered, projected, hashed and split by task once per input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import polars as pl

from engine.expressions.expressions import Scalar, compile_scalar
from engine.expressions.pseudo_columns import EVENT_TIME
from engine.expressions.types.types import Schema
from engine.frames.arrow_frames import encode_frame
from engine.frames.clocks import BEFORE_ALL_TIME, I64, running_clock
from engine.frames.evaluation_errors import GapCounter
from engine.frames.frames import HEAD, Counters, frame_of, with_series
from engine.frames.hashing import key_hash
from engine.frames.position_columns import position_columns
from engine.plan.model import Feed, Input, RelationSchema
from engine.records.canonical import OP_UPSERT, SourceKind, canonicalise, stop_on_rejects
from engine.sources.feeds import NO_TS, ReadRequest, Split
from engine.sources.packets import Packet, PacketKind, Route, data_packets, encode_json

MAX_REJECTS_PER_PIECE = 1_000
"""A file of garbage must not fill memory and database with excerpts; the sink counts the rejects that it gets,
and further ones are only a number."""

Times = Callable[[], tuple[I64, I64]]
Parse = Callable[[RelationSchema, "pl.Expr | None"], tuple[pl.DataFrame, pl.DataFrame]]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a split.

    Attributes:
        rows: records inside, good or bad.
        parse: makes ``(raw, rejects)`` of them for one relation and its ``where``, with feed offsets.
        times: returns the offsets and event times that move the partition's head (``engine.operators.tasks.order``), in the order of
            offsets, for accepted and refused records.
        are_accepted: if every record is accepted, these are also the event times of accepted records.
        is_small: a reader that keeps some records may keep the memory of all decoded ones.
    """

    rows: int
    parse: Parse
    times: Times
    are_accepted: bool = True
    is_small: bool = False


@dataclass(frozen=True, slots=True)
class _Reading:
    """A relation with the inputs that read it, conditions compiled."""

    relation: RelationSchema
    member: pl.Expr | None
    inputs: tuple[tuple[Input, pl.Expr | None], ...]


@dataclass(slots=True)
class _SplitTotals:
    """The records of a split.

    Attributes:
        head: the running maximum of event time.
    """

    head: int | None
    rows: int = 0
    accepted: dict[str, int] = field(default_factory=dict)
    max_ts: int | None = None

    def heads(self, times: I64) -> I64:
        """Continue the running maximum; return its value at each time."""
        _, heads = running_clock(self.head, times)
        if len(heads):
            self.head = int(heads[-1])
        return heads

    def accept(self, relation: str, accepted: pl.DataFrame) -> None:
        """Count a relation's records."""
        self.accepted[relation] = self.accepted.get(relation, 0) + accepted.height
        newest = cast("int", accepted["_ts"].max())
        self.max_ts = newest if self.max_ts is None else max(self.max_ts, newest)


def shape(pieces: Iterable[Piece], split: Split, feed: Feed, request: ReadRequest, source: SourceKind) -> Iterator[Packet]:
    """Yield the packets of one split, the ``progress`` packet last.

    Raises:
        DataInvalid: a bad record in a relation with ``on_bad_record: stop``.
    """
    readings = _readings(request.inputs)
    seen = _SplitTotals(head=None if split.head in (None, BEFORE_ALL_TIME) else split.head)
    for piece in pieces:
        seen.rows += piece.rows
        yield from _shape_piece(piece, readings, split, request, source, seen)
    yield _packet("progress", split, request, encode_json(_progress(feed, split, seen)), 0)


def _shape_piece(
    piece: Piece, readings: Sequence[_Reading], split: Split, request: ReadRequest, source: SourceKind, seen: _SplitTotals
) -> Iterator[Packet]:
    validated: list[pl.DataFrame] = []
    is_whole = len(readings) == 1 and piece.are_accepted
    for reading in readings:
        raw, malformed = piece.parse(reading.relation, reading.member)
        accepted, refused = canonicalise(raw, reading.relation, request.now_ms, source, reading.member)
        if malformed.height or refused.height:
            rejects = pl.concat([malformed, refused]).sort("offset")
            if reading.relation.conflict == "latest_position":  # a changed key makes two rows of one record
                rejects = rejects.unique("offset", keep="first", maintain_order=True)
            yield from _refused(rejects, reading, split, request)
        is_whole = is_whole and accepted.height == piece.rows
        validated.append(accepted)
    times = _accepted_times(validated) if is_whole or (split.head is None and piece.are_accepted) else piece.times()
    before = seen.head
    if before is None and any(reading.relation.event_time is not None for reading in readings):
        before = NO_TS
    heads = seen.heads(times[1])
    for reading, accepted in zip(readings, validated, strict=True):
        if accepted.height == 0:
            continue
        seen.accept(reading.relation.name, accepted)
        placed = with_series(accepted, pl.Series(HEAD, _of_records(accepted, times[0], heads, before)))
        for source_input, where in reading.inputs:
            yield from _uncomputed(accepted, source_input, split, request)
            frame = _for_input(placed, source_input, where, is_hashed_anew=request.is_hashed_anew)
            if frame.height:
                route = Route(source_input.index, split.partition, request.now_ms, request.is_here and piece.is_small)
                yield from data_packets(frame, request.tasks, route)


def _accepted_times(validated: Sequence[pl.DataFrame]) -> tuple[I64, I64]:
    offsets, times = (np.concatenate([frame.get_column(name).to_numpy() for frame in validated]) for name in ("_offset", "_ts"))
    if len(validated) == 1:
        return offsets, times
    order = np.argsort(offsets, kind="stable")
    return offsets[order], times[order]


def _of_records(frame: pl.DataFrame, offsets: I64, heads: I64, before: int | None) -> I64:
    """Return the heads of records: each has the head of the last known time up to it.

    Args:
        frame: records in the order of offsets.
        offsets: of the known times.
        heads: after each of these.
        before: the head before them; None if no relation has an event time: records then have the time of reading.
    """
    own: I64 = frame.get_column("_offset").to_numpy()
    if np.array_equal(own, offsets):
        return heads
    if before is None and len(heads) == 0:
        read_at: I64 = frame.get_column("_ts").cum_max().to_numpy()
        return read_at
    known = np.concatenate([[NO_TS if before is None else before], heads])
    found: I64 = known[np.searchsorted(offsets, own, side="right")]
    return found


def for_input(accepted: pl.DataFrame, source_input: Input) -> pl.DataFrame:
    """Filter, project and hash a relation's valid records for one input."""
    return _for_input(accepted, source_input, _compile(source_input.where, source_input.relation.readable))


def _for_input(
    accepted: pl.DataFrame, source_input: Input, where: pl.Expr | None, *, is_hashed_anew: bool = False
) -> pl.DataFrame:
    if where is not None:
        accepted = _with_event_time(accepted).filter((pl.col("_op") == OP_UPSERT) & where)
    if isinstance(source_input.start, int):
        accepted = accepted.filter(pl.col("_ts") >= source_input.start)
    if source_input.computed:
        accepted = _with_event_time(accepted)
        accepted = accepted.with_columns(_scalar(each.text, source_input).expr.alias(each.name) for each in source_input.computed)
    key = source_input.hash_key
    if is_hashed_anew and not any(accepted.get_column(name).null_count() for name in key):
        key = ()
    there = accepted.columns
    heads = [HEAD] if HEAD in there else []
    names = ["_ts", "_offset", "_op", *heads, *source_input.schema.names, *position_columns(there)]
    return frame_of([key_hash(accepted, key), *map(accepted.get_column, names)])


def _with_event_time(accepted: pl.DataFrame) -> pl.DataFrame:
    return with_series(accepted, accepted.get_column("_ts").alias(EVENT_TIME))


def _refused(rejects: pl.DataFrame, reading: _Reading, split: Split, request: ReadRequest) -> Iterator[Packet]:
    stop_on_rejects(rejects, reading.relation)
    first = reading.inputs[0][0]
    kept, beyond = rejects.head(MAX_REJECTS_PER_PIECE), rejects.slice(MAX_REJECTS_PER_PIECE)
    yield _packet("reject", split, request, encode_frame(kept), first.index, kept.height)
    if beyond.height:
        counts = beyond.group_by("reason").len().sort("reason").rows()
        counters: list[list[object]] = [[first.alias, f"rejected_{reason}", count] for reason, count in counts]
        yield _counted(counters, first, split, request)


def _uncomputed(accepted: pl.DataFrame, source_input: Input, split: Split, request: ReadRequest) -> Iterator[Packet]:
    """Count failed evaluations of the input's condition and computed columns (``engine.expressions.values.evaluation_errors``)."""
    if source_input.where is None and not source_input.computed:
        return
    counters: Counters = {}
    accepted = _with_event_time(accepted)
    if source_input.where is not None:
        condition = _scalar(source_input.where, source_input)
        GapCounter(source_input.alias, [condition]).count(accepted, counters)
        accepted = accepted.filter((pl.col("_op") == OP_UPSERT) & condition.expr)
    if source_input.computed:
        columns = [_scalar(each.text, source_input) for each in source_input.computed]
        GapCounter(source_input.alias, columns).count(accepted, counters)
    if counters:
        yield _counted([[alias, reason, count] for (alias, reason), count in counters.items()], source_input, split, request)


def _counted(counters: list[list[object]], source_input: Input, split: Split, request: ReadRequest) -> Packet:
    stats = {"stage": 0, "task": 0, "clocks": {}, "buffered": {}, "counters": counters}
    return _packet("stats", split, request, encode_json(stats), source_input.index)


def _packet(kind: PacketKind, split: Split, request: ReadRequest, blob: bytes, input_index: int, rows: int = 0) -> Packet:
    return Packet(0, kind, input_index, split.partition, split.start, rows, None, None, request.now_ms, blob)


def _progress(feed: Feed, split: Split, seen: _SplitTotals) -> dict[str, object]:
    return {
        "feed": feed.name,
        "partition": split.partition,
        "start_offset": split.start,
        "end_offset": split.end,
        "rows": seen.rows,
        "accepted": max(seen.accepted.values(), default=0),
        "max_ts": seen.max_ts,
        "head": seen.head,
    }


def _readings(inputs: Sequence[Input]) -> list[_Reading]:
    found: list[tuple[RelationSchema, list[Input]]] = []
    for source_input in inputs:
        own = source_input.relation
        # A hash costs more than comparing a few.
        readers = next((readers for relation, readers in found if relation == own), None)
        if readers is None:
            found.append((own, [source_input]))
        else:
            readers.append(source_input)
    return [
        _Reading(
            relation,
            _compile(relation.where, relation.columns),
            tuple((one, _compile(one.where, relation.readable)) for one in readers),
        )
        for relation, readers in found
    ]


def _scalar(text: str, source_input: Input) -> Scalar:
    return compile_scalar(text, source_input.relation.readable)


def _compile(text: str | None, columns: Schema) -> pl.Expr | None:
    return None if text is None else compile_scalar(text, columns).expr
