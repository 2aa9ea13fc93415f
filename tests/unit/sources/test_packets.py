"""Packets carry frames unchanged and to the right task."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from engine.errors import InvariantBroken
from engine.frames.arrow_frames import decode_frame, encode_frame, split_by_ordinal
from engine.sources.packets import (
    PACKET_DDL,
    PACKET_SCHEMA,
    Packet,
    Route,
    data_packets,
    frame_in,
    packet_batch,
    packet_batches,
    unpack,
)


def frame(rows: int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "_key_hash": pl.Series([None if n % 7 == 0 else n for n in range(rows)], dtype=pl.UInt64),
            "_ts": pl.Series([n % 5 for n in range(rows)], dtype=pl.Int64),
            "_offset": pl.int_range(100, 100 + rows, eager=True),
            "s": ["", None, "ä" * 20][:rows] * (rows // 3) + ["x"] * (rows % 3) if rows >= 3 else ["x"] * rows,
        },
        schema_overrides={"s": pl.String},
    )


@pytest.mark.parametrize("rows", [0, 1, 3, 5_000])
def test_a_frame_survives_the_blob(rows: int) -> None:
    assert decode_frame(encode_frame(frame(rows))).equals(frame(rows))


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_records_are_split_by_hash_in_their_order_and_null_hashes_go_to_the_first(parts: int) -> None:
    split = split_by_ordinal(frame(50), parts)
    assert len(split) == parts
    for ordinal, part in enumerate(split):
        assert part["_offset"].is_sorted()
        assert all((hash_ or 0) % parts == ordinal for hash_ in part["_key_hash"])
    assert sum(part.height for part in split) == 50


def test_data_packets_describe_their_records() -> None:
    packets = data_packets(frame(10), 2, Route(1, 3, 9))
    assert [(p.task, p.kind, p.input, p.partition, p.rows, p.now_ms) for p in packets] == [
        (0, "data", 1, 3, 6, 9),
        (1, "data", 1, 3, 4, 9),
    ]
    assert [(p.first_offset, p.min_ts, p.max_ts) for p in packets] == [(100, 0, 4), (101, 0, 4)]


def test_what_stays_in_its_process_carries_the_frame_and_is_described_the_same() -> None:
    encoded, here = (data_packets(frame(10), 2, Route(1, 3, 9, is_here)) for is_here in (False, True))
    assert [replace(packet, blob=b"") for packet in encoded] == here
    for packet, other in zip(here, encoded, strict=True):
        assert packet.frame is not None
        assert other.frame is None
        assert frame_in(packet).equals(frame_in(other))


def test_a_frame_never_crosses_the_border_unseen() -> None:
    (packet,) = data_packets(frame(10), 1, Route(1, 3, 9, is_here=True))
    with pytest.raises(InvariantBroken, match="stays in its process"):
        packet_batch([packet])


def test_a_packet_becomes_a_members_with_all_it_has() -> None:
    (packet,) = data_packets(frame(3), 1, Route(1, 3, 9))
    for given in (packet, replace(packet, file="f"), replace(packet, frame=frame(3))):
        own = given.of_query(5)
        assert own == replace(given, query_number=5)
        assert own.frame is given.frame


def test_packets_survive_arrow_and_the_two_schemas_agree() -> None:
    packets = [Packet(0, "data", 0, 0, 5, 1, None, 7, 9, b"\x00"), Packet(1, "stats", 0, 0, 0, 0, None, None, 9, b"{}")]
    assert unpack(packet_batch(packets)) == packets
    assert packet_batch([]).schema == PACKET_SCHEMA
    names = {"int": "int32", "long": "int64", "string": "string", "binary": "binary"}
    declared = [column.strip().split() for column in PACKET_DDL.split(",")]
    assert [(name, names[kind]) for name, kind in declared] == [(f.name, str(f.type)) for f in PACKET_SCHEMA]


def test_packets_cross_in_record_batches_of_a_bounded_size() -> None:
    packets = [Packet(1, "data", 0, 0, first, 1, None, None, 0, bytes(size)) for first, size in enumerate((10, 10, 5, 40, 1, 1))]
    found = [unpack(batch) for batch in packet_batches(iter(packets), max_bytes=20)]
    assert [[len(packet.blob) for packet in batch] for batch in found] == [[10, 10], [5], [40], [1, 1]]
    assert [packet for batch in found for packet in batch] == packets
