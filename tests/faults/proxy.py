"""A small TCP proxy before a Postgres, or whatever listens at a host and a port: cuts, slows, refuses, swallows."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from psycopg import conninfo

T = TypeVar("T")
CHUNK_BYTES = 64 * 1024


class _Pair:
    """A connection of a client's and the one behind it."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.writers = (client, server)
        self.is_swallowing = False
        self.last_word: bytes | None = None

    def reset(self) -> None:
        for writer in self.writers:
            writer.transport.abort()


class Proxy:
    """Stands at ``dsn`` for the database at another DSN; use ``proxy_before``. Its methods may be called from any thread."""

    def __init__(self, target: str) -> None:
        self._target = conninfo.conninfo_to_dict(target)
        self._pairs: set[_Pair] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._delay_s = 0.0
        self._is_swallowing = False
        self._last_word: bytes | None = None
        self._server: asyncio.Server | None = None
        self._port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    @property
    def dsn(self) -> str:
        """Where to connect to: the target's database and user, as a URL."""
        user, database = self._target.get("user", "postgres"), self._target.get("dbname", "postgres")
        return f"postgresql://{user}:{self._target.get('password') or ''}@127.0.0.1:{self._port}/{database}"

    def cut(self) -> None:
        """Reset every connection; new ones are let through."""
        self._call(self._cut())

    def refuse(self) -> None:
        """Be gone: every connection is reset, nobody listens."""
        self._call(self._refuse())

    def swallow(self) -> None:
        """Acknowledge everything and pass nothing on, on the connections there are and on new ones."""
        self._call(self._set(is_swallowing=True, delay_s=0.0))

    def lose_answer_to(self, words: bytes) -> None:
        """On connections there are and on new ones: pass on what has these words in it, and from then on nothing more."""
        self._call(self._listen_for(words))

    def slow(self, delay_s: float) -> None:
        """Pass everything on so much later, in either direction."""
        self._call(self._set(is_swallowing=False, delay_s=delay_s))

    def restore(self) -> None:
        """Let new connections through. Those that were swallowed from stay silent for ever, as after a network that lost packets."""
        self._call(self._restore())

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _cut(self) -> None:
        for pair in list(self._pairs):
            pair.reset()

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._cut()

    async def _set(self, *, is_swallowing: bool, delay_s: float) -> None:
        self._is_swallowing, self._delay_s = is_swallowing, delay_s
        for pair in self._pairs:
            pair.is_swallowing = pair.is_swallowing or is_swallowing

    async def _listen_for(self, words: bytes) -> None:
        self._last_word = words
        for pair in self._pairs:
            pair.last_word = words

    async def _restore(self) -> None:
        self._last_word = None
        await self._set(is_swallowing=False, delay_s=0.0)
        await self._listen()

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
            self._port = self._server.sockets[0].getsockname()[1]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = str(self._target.get("host", "127.0.0.1")), self._target.get("port", "5432")
        try:
            if host.startswith("/"):
                behind = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
            else:
                behind = await asyncio.open_connection(host, int(port or 5432))
        except (OSError, asyncio.CancelledError):  # What stands behind is not there, or this proxy ends: nor is this connection.
            writer.transport.abort()
            return
        pair = _Pair(writer, behind[1])
        if self._server is None:  # Gone since this one knocked.
            pair.reset()
            return
        pair.is_swallowing, pair.last_word = self._is_swallowing, self._last_word
        self._pairs.add(pair)
        for source, sink in ((reader, behind[1]), (behind[0], writer)):
            task = asyncio.create_task(self._pump(pair, source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, pair: _Pair, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await source.read(CHUNK_BYTES):
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                if not pair.is_swallowing:
                    pair.is_swallowing = pair.last_word is not None and pair.last_word in chunk
                    sink.write(chunk)
                    await sink.drain()
        if not pair.is_swallowing:
            pair.reset()
            self._pairs.discard(pair)

    async def _end(self) -> None:
        await self._refuse()
        others = asyncio.all_tasks() - {asyncio.current_task()}  # also those that are connecting to what stands behind
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)  # what was aborted is closed in the next turn


@contextmanager
def proxy_before(target: str) -> Iterator[Proxy]:
    """Run a proxy for the length of a block."""
    proxy = Proxy(target)
    proxy._thread.start()
    proxy._call(proxy._listen())
    try:
        yield proxy
    finally:
        proxy._call(proxy._end())
        proxy._loop.call_soon_threadsafe(proxy._loop.stop)
        proxy._thread.join(10)
        proxy._loop.close()
