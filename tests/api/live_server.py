"""The service on a real port, in a thread: event streams need a connection that can be left."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI

from app.http.servers.ports import Server, server_config


@contextmanager
def live(app: FastAPI, graceful_s: int = 1, port: int = 0, **options: Any) -> Iterator[str]:
    """Serve the application for the length of a block, as the service does; yields its URL. ``port`` 0: any; ``options`` are uvicorn's."""
    settings = app.state.services.settings
    server = Server(server_config(app, settings, graceful_s=graceful_s, port=port, **options), app)
    started = threading.Event()
    begin = server.startup

    async def startup(sockets: list[Any] | None = None) -> None:
        await begin(sockets)
        started.set()

    server.startup = startup  # type: ignore[method-assign]
    thread = threading.Thread(target=server.run)
    thread.start()
    assert started.wait(30)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()
