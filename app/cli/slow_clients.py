"""A connection that does not get on is closed: a head that drips in, or a body, would otherwise hold it for ever (slow loris)."""

from __future__ import annotations

import asyncio

import h11
import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol

# A telephone line of the nineties brings five times as much.
MIN_BODY_BYTES_PER_S = 1_024
log = structlog.stdlib.get_logger(__name__)


def impatient_protocol(timeout_s: float) -> type[H11Protocol]:
    """Return uvicorn's protocol with a limit to its patience.

    Args:
        timeout_s: within it the head of a request must be whole, from its first byte or the connection's begin on; of a body
            each such span must bring ``MIN_BODY_BYTES_PER_S``, unless it was the service that did not take more.
    """

    class ImpatientProtocol(H11Protocol):
        _watch: asyncio.TimerHandle | None = None
        _is_in_body = False
        _received = 0
        _received_before = 0

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._arm()

        def data_received(self, data: bytes) -> None:
            self._received += len(data)
            super().data_received(data)
            state = self.conn.their_state
            if state is h11.IDLE or state is h11.SEND_BODY:
                if self._watch is None or self._is_in_body != (state is h11.SEND_BODY):
                    self._arm()
            else:
                self._disarm()

        def connection_lost(self, exc: Exception | None) -> None:
            self._disarm()
            super().connection_lost(exc)

        def _arm(self) -> None:
            self._disarm()
            self._is_in_body = self.conn.their_state is h11.SEND_BODY
            self._received_before = self._received
            self._watch = asyncio.get_running_loop().call_later(timeout_s, self._look)

        def _disarm(self) -> None:
            if self._watch is not None:
                self._watch.cancel()
                self._watch = None

        def _look(self) -> None:
            self._watch = None
            has_got_on = self._received - self._received_before >= MIN_BODY_BYTES_PER_S * timeout_s
            if self._is_in_body and (has_got_on or self.flow.read_paused):
                self._arm()
                return
            log.info("slow_client_closed", part="body" if self._is_in_body else "head", after_s=timeout_s)
            self.transport.close()

    return ImpatientProtocol
