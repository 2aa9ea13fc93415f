"""A client that follows changes and loses its connection now and then: what it has seen in the end must be everything, once."""

from __future__ import annotations

import random
import threading
from itertools import islice

from slackwater import Change, Client, Json


class Follower(threading.Thread):
    """Follows over the client that comes back by itself, and is thrown off now and then besides."""

    def __init__(self, url: str, kind: str, name: str, start_at: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._client = Client(url)
        self._what = self._client.relation(kind, name)
        self._start_at = start_at
        self._chance = random.Random(seed)
        self._is_over = threading.Event()
        self.events: list[Change] = []

    def close(self) -> None:
        """End, at the latest when the connection that is open now does."""
        self._is_over.set()
        self._client.close()

    def run(self) -> None:
        cursor = None
        try:
            while True:
                for event in islice(self._what.changes(self._start_at, cursor=cursor), self._chance.randrange(1, 300)):
                    self.events.append(event)
                    cursor = event.cursor
        except RuntimeError:
            if not self._is_over.is_set():
                raise

    def changes(self) -> list[Json]:
        return [event.data for event in list(self.events) if event.kind == "change"]

    def rows(self) -> list[Json]:
        """Return what a table's snapshot and changes brought, in this order."""
        return [event.data["row"] for event in list(self.events) if event.kind in ("snapshot", "change")]
