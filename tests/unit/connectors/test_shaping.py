"""What becomes of a relation's records on their way to one input."""

from __future__ import annotations

import json

import numpy as np
import polars as pl

from engine.connectors.canonical import POSTED
from engine.connectors.feeds import ReadRequest, Split
from engine.connectors.shaping import Piece, shape
from engine.plan.model import Feed, Input
from tests.unit.connectors.relations import NOW_MS, relation

FEED = Feed("log:r", "log", "r")


def test_what_a_condition_cannot_compute_is_counted_with_the_input() -> None:
    columns = relation({"n": "bigint"})
    raw = pl.DataFrame({"n": [2**63 - 1, 7, None], "_offset": [0, 1, 2], "_arrival": [NOW_MS] * 3})
    source = Input(0, "s", columns, FEED, ("n",), ("n",), where="n + 1 > 0")
    times = np.arange(3), np.full(3, NOW_MS)
    pieces = [Piece(3, lambda _relation, _where: (raw, pl.DataFrame(schema={"offset": pl.Int64})), lambda: times)]
    packets = [*shape(pieces, Split(0, 0, 3), FEED, ReadRequest([source], NOW_MS, 1), POSTED)]
    (stats,) = [json.loads(packet.blob) for packet in packets if packet.kind == "stats"]
    assert stats["counters"] == [["s", "number_overflow", 1]]
    assert sum(packet.rows for packet in packets if packet.kind == "data") == 1
