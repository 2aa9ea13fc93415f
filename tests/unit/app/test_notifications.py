"""Listening for notifications: when the connection is lost, its socket's number is released at once."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from app.db.notifications import _heard


class Link:
    """Stands for libpq, which closes a socket that has ended."""

    def __init__(self, own: socket.socket) -> None:
        self.own = own

    def consume_input(self) -> None:
        try:
            ended = not self.own.recv(1)
        except BlockingIOError:
            return
        if ended:
            self.own.close()
            raise psycopg.OperationalError("lost")

    def notifies(self) -> None:
        return None


async def test_nobody_else_gets_the_number_of_a_lost_socket_while_it_is_still_watched() -> None:
    own, other = socket.socketpair()
    own.setblocking(False)
    number, loop = own.fileno(), asyncio.get_running_loop()
    connection: Any = SimpleNamespace(pgconn=Link(own), info=SimpleNamespace(encoding="utf-8"), fileno=lambda: number)
    hearing = asyncio.create_task(_heard(connection, lambda _: None))
    await asyncio.sleep(0)
    other.close()
    while own.fileno() >= 0:
        assert not hearing.done()
        await asyncio.sleep(0)
    assert not loop.remove_reader(number)
    with pytest.raises(psycopg.OperationalError):
        await hearing
