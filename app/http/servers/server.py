"""Serving HTTP until told to stop, with streams that end before anybody waits for them."""

from __future__ import annotations

import gc
import socket
import sys
from contextlib import suppress

import uvicorn
from fastapi import FastAPI

STARTUP_FAILURE = 3
"""Exit code, as uvicorn's own."""

YOUNG_OBJECTS = 10_000
"""So many more objects than before begin a collection of garbage, not Python's 700: what a few requests make is freed without one."""


class Server(uvicorn.Server):
    """Lets every event stream and long poll end when the service stops: none of them would by itself within the grace."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See ``uvicorn.Server``. What is there now stays for good: no collection looks at its 400,000 objects again."""
        await super().startup(sockets)
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See ``uvicorn.Server``."""
        self._app.state.close_streams()
        await super().shutdown(sockets)


def run(config: uvicorn.Config, app: FastAPI) -> None:
    """Serve until a signal comes; exits the process where the application did not start."""
    server = Server(config, app)
    with suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        sys.exit(STARTUP_FAILURE)
