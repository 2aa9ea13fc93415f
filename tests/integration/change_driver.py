"""A driver's launch without Spark: takes the fence, then commits random changes through the real sink until it is killed or fenced.

``python -m tests.integration.change_driver DSN QUERY SEED``
"""

from __future__ import annotations

import random
import sys
import threading

from engine.errors import EpochFenced
from tests.api.change_writer import Change, ChangeWriter

COMMIT_EVERY_S = 0.01
TASKS = 4
# Keys that Postgres and Python sort differently, so that only one of both orders can be right.
KEYS = [f"{prefix}{number}" for number in range(150) for prefix in ("a", "B", "é", "_ c", "Z-")]


def random_changes(chance: random.Random, stamp: int) -> list[Change]:
    """Some changes of some keys, some of them more than once."""
    made: list[Change] = []
    for _ in range(chance.randrange(1, 12)):
        key = chance.choice(KEYS)
        op = "delete" if chance.random() < 0.3 else "upsert"
        made.append((op, {"origin": key, "flights": stamp * 1_000 + len(made)}, stamp))
    return made


def main(dsn: str, query: str, seed: str) -> None:
    """Commit until the end comes from outside."""
    chance = random.Random(seed)
    pause = threading.Event()
    with ChangeWriter(dsn, query, tasks=1 + int(seed) % TASKS) as writer:
        try:
            while not pause.wait(COMMIT_EVERY_S):
                writer.commit(random_changes(chance, writer.epoch * 100_000 + writer.batch_id + 1))
        except EpochFenced:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
