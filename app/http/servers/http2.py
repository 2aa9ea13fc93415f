"""One connection of HTTP/2 without TLS: Hypercorn's protocol with limits of our own, in a server of uvicorn.

Hypercorn limits neither control frames nor time, and handles all received frames before other connections get a turn.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import structlog
import uvicorn
from h2.events import DataReceived
from h2.settings import SettingCodes, Settings
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.asyncio.task_group import TaskGroup
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.typing import ConnectionState
from uvicorn.protocols.utils import get_local_addr, get_remote_addr
from uvicorn.server import ServerState

from app.http.servers.bounds import ConnectionBounds
from app.http.servers.http2_frames import GOAWAY_OF_FLOOD, PREFACE, ControlBudget, Flood, Frames
from app.telemetry.line_limit import LineLimit

FRAMES_A_TURN: Final = 16
"""Frames handled before other connections get a turn: about a millisecond."""

PAUSE_S: Final = 0.002
"""Pause if there are more frames: endless small frames then use at most half a core."""

MOST_HEAD_BYTES: Final = 16_384
"""Limit of a request's head; each field counts 32 bytes more, as in HTTP/2."""

BYTES_A_TURN: Final = 65_536
MOST_UNHANDLED_BYTES: Final = 65_536
"""Above this, reading from the client pauses."""

_DATA: Final = 0
_KIND_AT: Final = 3
log = structlog.stdlib.get_logger(__name__)


class Http2Connection(asyncio.Protocol):
    """Serves the requests of one connection until it ends, is idle, floods, or makes no progress."""

    def __init__(self, config: uvicorn.Config, state: ServerState, bounds: ConnectionBounds, limit: LineLimit) -> None:
        self._config, self._state, self._bounds, self._limit = config, state, bounds, limit
        self._loop = asyncio.get_running_loop()
        self._frames = Frames(ControlBudget(self._loop.time()))
        self._preface_left = len(PREFACE)
        self._has_data, self._may_write = asyncio.Event(), asyncio.Event()
        self._may_write.set()
        self._is_ended = self._is_paused = False
        self._begun_at = self._idle_since = self._whole_at = self._loop.time()
        self._context, self._group = WorkerContext(None), TaskGroup(self._loop)
        self._protocol: _H2 | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._state.connections.add(self)  # type: ignore[arg-type] # one of uvicorn's in all but name
        self._task = self._loop.create_task(self._run())
        self._state.tasks.add(self._task)
        self._task.add_done_callback(self._state.tasks.discard)
        self._watch = self._loop.call_later(self._bounds.timeout_s, self._look)

    def data_received(self, data: bytes) -> None:
        data, self._preface_left = data[self._preface_left :], max(0, self._preface_left - len(data))
        try:
            self._frames.add(data, self._loop.time())
        except Flood as error:
            if self._limit.admits("http2_connection_ended", str(error)):
                log.warning("http2_connection_ended", reason=str(error), client=self._client)
            self._transport.write(GOAWAY_OF_FLOOD)
            self._transport.abort()
            return
        if not self._frames.is_partial:
            self._whole_at = self._loop.time()
        if len(self._frames) > MOST_UNHANDLED_BYTES and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._has_data.set()

    def eof_received(self) -> bool:
        """See ``asyncio.Protocol``. Clients of HTTP/2 do not end half-closed, so the connection ends."""
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        self._state.connections.discard(self)
        self._watch.cancel()
        self._is_ended = True
        self._has_data.set()
        self._may_write.set()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def _build(self) -> _H2:
        config = Config()
        config.errorlog = config.accesslog = None
        config.keep_alive_max_requests = 1_000_000  # practically none: HTTP/1 has no such limit either
        app = ASGIWrapper(self._config.loaded_app)
        client, server = get_remote_addr(self._transport), get_local_addr(self._transport)
        protocol = _H2(
            app,
            config,
            self._context,
            self._group,
            ConnectionState({}),
            False,
            client,
            server,  # type: ignore[arg-type] # the path of a Unix socket has no port
            self._send,
        )
        # For the first frame sent: no port has WebSockets. No client sends five hundred fields of a head.
        protocol.connection.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: config.h2_max_concurrent_streams,
                SettingCodes.MAX_HEADER_LIST_SIZE: MOST_HEAD_BYTES,
                SettingCodes.ENABLE_CONNECT_PROTOCOL: 0,
            },
        )
        protocol.connection.decoder.max_header_list_size = MOST_HEAD_BYTES
        return protocol

    def shutdown(self) -> None:
        """End when the running answers have ended; uvicorn calls this."""
        self._state.tasks.add(task := self._loop.create_task(self._leave()))
        task.add_done_callback(self._state.tasks.discard)

    @property
    def _client(self) -> str:
        client = get_remote_addr(self._transport)
        return "" if client is None else client[0]

    async def _leave(self) -> None:
        await self._context.terminated.set()
        if self._protocol is None:
            self._close()
        elif not self._protocol.streams:
            self._protocol.connection.close_connection()
            self._transport.write(self._protocol.connection.data_to_send())
            self._close()

    async def _run(self) -> None:
        if self._transport.is_closing():  # its first bytes were a flood, so no protocol is needed
            return
        try:
            async with self._group:
                self._protocol = protocol = self._build()
                await protocol.initiate()
                await protocol.handle(RawData(PREFACE))
                try:
                    await self._feed(protocol)
                finally:
                    self._close()
                    await protocol.handle(Closed())
        except Exception as error:
            if self._limit.admits("http2_connection_failed", type(error).__name__):
                log.exception("http2_connection_failed")
        finally:
            self._close()

    async def _feed(self, protocol: _H2) -> None:
        """Pass received bytes to the protocol, a little at a time, so that all connections and ports get turns."""
        while not (self._is_ended or self._transport.is_closing()):
            piece = self._frames.take(FRAMES_A_TURN, BYTES_A_TURN)
            if not piece:
                self._has_data.clear()
                await self._has_data.wait()
                continue
            try:
                async with asyncio.timeout(self._bounds.timeout_s):
                    await protocol.handle(RawData(piece))
            except TimeoutError:
                self._end("answers")
                return
            if self._is_paused and len(self._frames) <= MOST_UNHANDLED_BYTES // 2 and not self._transport.is_closing():
                self._is_paused = False
                self._transport.resume_reading()
            await asyncio.sleep(PAUSE_S if self._frames.has_whole else 0)

    async def _send(self, event: Event) -> None:
        match event:
            case RawData(data=data) if not self._transport.is_closing():
                if data[_KIND_AT] == _DATA:
                    self._frames.budget.earn(len(data))
                self._transport.write(data)
                await self._may_write.wait()
            case Updated(idle=True) if self._context.terminated.is_set():
                self._close()
            case Closed():
                self._close()

    def _look(self) -> None:
        """End a connection without progress since the last check."""
        now, timeout_s = self._loop.time(), self._bounds.timeout_s
        self._watch = self._loop.call_later(timeout_s, self._look)
        streams = set() if self._protocol is None else set(self._protocol.streams)
        if streams:
            self._idle_since = now
        if self._is_paused:
            return
        stalled = self._frames.stalled_bodies(int(self._bounds.fewest_bytes), streams)
        is_head_late = self._frames.requests == 0 and now - self._begun_at >= timeout_s
        if is_head_late or (self._frames.is_partial and now - self._whole_at >= timeout_s):
            self._end("head")
        elif stalled:
            self._end("body")
        elif now - self._idle_since >= self._config.timeout_keep_alive:
            self._state.tasks.add(task := self._loop.create_task(self._leave()))
            task.add_done_callback(self._state.tasks.discard)

    def _end(self, part: str) -> None:
        if self._limit.admits("slow_client_closed", part):
            log.info("slow_client_closed", part=part, after_s=self._bounds.timeout_s)
        self._transport.abort()

    def _close(self) -> None:
        """Close; a client that does not read the rest is disconnected."""
        if not self._transport.is_closing():
            self._transport.close()
            self._loop.call_later(self._bounds.timeout_s, self._transport.abort)


class _H2(H2Protocol):
    """Hypercorn's protocol, which would fail at the rest of a body that comes after the answer."""

    async def _handle_events(self, events: list[Any]) -> None:
        for event in events:
            if isinstance(event, DataReceived) and event.stream_id not in self.streams:
                self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            else:
                await super()._handle_events([event])
        await self._flush()
