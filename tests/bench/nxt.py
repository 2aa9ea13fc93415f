"""The NX-T input: Nexmark bids that come late, and a versioned table that comes late too. Pure numpy.

Every draw is addressable: draw ``j`` of event ``n`` is the SplitMix64 finaliser of ``seed + (16 n + j + 1) * golden``, so any part of the
input can be made without the parts before it. Times are milliseconds from 0; files add ``BASE_MS``, a multiple of every window size used.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

BASE_MS = 1_700_000_000_000
KEYS = 1_000
VERSION_EVERY_MS = 20_000
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
SIZES = {"tiny": (50_000, 1_000), "small": (1_000_000, 1_000), "large": (5_400_000, 5_400)}  # events, events per second


@dataclass(frozen=True, slots=True)
class Bids:
    """Columns of the bids, in the order of ``number``: the Nexmark event number."""

    number: Ints
    ts: Ints
    auction: Ints
    bidder: Ints
    price: Ints
    arrival: Ints

    def take(self, order: Ints) -> Bids:
        return Bids(*(getattr(self, name)[order] for name in ("number", "ts", "auction", "bidder", "price", "arrival")))


@dataclass(frozen=True, slots=True)
class Versions:
    """Columns of the table: ``version`` counts up per key; ``number`` is version * KEYS + key."""

    key: Ints
    version: Ints
    ts: Ints
    arrival: Ints

    @property
    def number(self) -> Ints:
        return self.version * KEYS + self.key

    def take(self, order: Ints) -> Versions:
        return Versions(*(getattr(self, name)[order] for name in ("key", "version", "ts", "arrival")))


def draw(seed: int, number: Ints, index: int) -> Words:
    """Return the ``index``-th draw of each event, 64 bits each."""
    with np.errstate(over="ignore"):
        word = np.uint64(seed) + (number.astype(np.uint64) * np.uint64(16) + np.uint64(index + 1)) * GOLDEN
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return word ^ (word >> np.uint64(31))


def below(word: Words, bound: Ints | int) -> Ints:
    """Map draws to integers in [0, bound)."""
    limit = np.asarray(bound, dtype=np.uint64)
    return (((word >> np.uint64(32)) * limit) >> np.uint64(32)).astype(np.int64)


def unit(word: Words) -> npt.NDArray[np.float64]:
    """Map draws to doubles in [0, 1)."""
    return (word >> np.uint64(11)).astype(np.float64) * 2.0**-53


def nexmark_bids(events: int, per_second: int, seed: int = 1) -> Bids:
    """Make the bids among ``events`` Nexmark events: 46 of 50. Arrival equals event time here."""
    number = np.arange(events, dtype=np.int64)
    ts = (number * (1e6 / per_second)).astype(np.int64) // 1000
    is_bid = number % 50 >= 4
    number, ts = number[is_bid], ts[is_bid]
    last_person, last_auction = number // 50, number // 50 * 3 + 2
    oldest = np.maximum(last_auction - 100, 0)
    recent = oldest + below(draw(seed, number, 1), last_auction - oldest + 11)
    auction = np.where(below(draw(seed, number, 0), 2) > 0, last_auction // 100 * 100, recent) + 1000
    active = np.minimum(last_person + 1, 1000)
    someone = last_person + 1 - active + below(draw(seed, number, 3), active + 10)
    bidder = np.where(below(draw(seed, number, 2), 4) > 0, last_person // 100 * 100 + 1, someone) + 1000
    price = np.rint(10.0 ** (unit(draw(seed, number, 4)) * 6) * 100).astype(np.int64)
    return Bids(number, ts, auction, bidder, price, ts)


def _delay(seed: int, number: Ints, shares: tuple[float, float], near_ms: int, mean_ms: int, cap_ms: int, tail_ms: int) -> Ints:
    """Draw arrival delays: mostly uniform and short, then exponential, rarely uniform and long."""
    which, size = unit(draw(seed, number, 0)), unit(draw(seed, number, 1))
    exponential = np.minimum(-np.log(1 - size) * mean_ms, cap_ms)
    delay = np.where(which < shares[0], size * near_ms, np.where(which < shares[1], exponential, size * tail_ms))
    return delay.astype(np.int64)


def generate(size: str, seed: int = 1) -> tuple[Bids, Versions]:
    """Make both sides of NX-T, in number order; ``auction`` of a bid is folded to the table's keys."""
    events, per_second = SIZES[size]
    bids = nexmark_bids(events, per_second, seed)
    late = _delay(seed + 1, bids.number, (0.90, 0.99), 1_000, 5_000, 30_000, 120_000)
    bids = Bids(bids.number, bids.ts, bids.auction % KEYS, bids.bidder, bids.price, bids.ts + late)
    rounds = (events - 1) * 1000 // per_second // VERSION_EVERY_MS + 1
    version = np.repeat(np.arange(rounds, dtype=np.int64), KEYS)
    key = np.tile(np.arange(KEYS, dtype=np.int64), rounds)
    ts = version * VERSION_EVERY_MS + key * VERSION_EVERY_MS // KEYS
    late = _delay(seed + 2, version * KEYS + key, (0.80, 0.99), 2_000, 10_000, 60_000, 180_000)
    return bids, Versions(key, version, ts, ts + late)


def replay(size: str) -> tuple[Bids, Versions, Ints]:
    """Put both sides in arrival order.

    Returns:
        The bids, the versions, and their common order (arrival, table first, number): ``i >= 0`` is bid ``i``, ``-1 - i`` version ``i``.
    """
    bids, versions = generate(size)
    bids = bids.take(np.lexsort((bids.number, bids.arrival)))
    versions = versions.take(np.lexsort((versions.number, versions.arrival)))
    is_bid = np.concatenate([np.ones(len(bids.ts), np.int64), np.zeros(len(versions.ts), np.int64)])
    number = np.concatenate([bids.number, versions.number])
    arrival = np.concatenate([bids.arrival, versions.arrival])
    order = np.lexsort((number, is_bid, arrival))
    return bids, versions, np.where(is_bid[order] == 1, order, -1 - (order - len(bids.ts)))


def true_version(key: Ints, ts: Ints) -> Ints:
    """Return the version of ``key`` valid at ``ts``, -1 before its first."""
    first = key * VERSION_EVERY_MS // KEYS
    return np.where(ts >= first, (ts - first) // VERSION_EVERY_MS, -1)


def check_values() -> bool:
    """Compare with the published check values of the definition."""
    plain = nexmark_bids(1_000_000, 10_000)
    rows = np.stack([plain.ts, plain.auction, plain.bidder, plain.price], 1).astype("<i8")
    bids, versions = generate("small")
    return (
        hashlib.sha256(rows.tobytes()).hexdigest()[:16] == "3ed6a45fec062143"
        and int(plain.price.sum()) == 6_635_453_744_980
        and (len(bids.ts), len(versions.ts)) == (920_000, 50_000)
        and int(bids.arrival.sum()) == 461_380_430_707
        and int(versions.arrival.sum()) == 25_176_746_983
    )
