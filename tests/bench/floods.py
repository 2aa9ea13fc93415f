"""How long `/healthz` of the main port takes at worst while a port is flooded with frames or requests that cost their sender nothing."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx

from tests.api.port_attacks import PREFACE, SETTINGS, floods, frame, ksqldb_port, main_port

FLOOD_S = 3.0
CONNECTIONS = 4
CHUNK_FRAMES = 5_000


def measure(number: int, ksql_number: int, only: str = "") -> dict[str, float]:
    """Return the worst answer of `/healthz` in milliseconds, by flood.

    Args:
        number: the port of a running service that asks for no keys.
        ksql_number: its port for clients of ksqlDB.
        only: a part of the floods' names.
    """
    port = ksqldb_port(ksql_number)
    begun = PREFACE + frame(SETTINGS)
    kinds = {name: (port, begun + first, each * CHUNK_FRAMES) for name, (first, each) in floods(port).items()}
    for name, each in {"main": main_port(number), "ksqlDB": port}.items():
        head = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n" % each.path.encode()
        kinds[f"requests at once, {name}"] = each, b"", b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n" * CHUNK_FRAMES
        kinds[f"chunks of a byte, {name}"] = each, head + b"transfer-encoding: chunked\r\n\r\n", b"1\r\n \r\n" * CHUNK_FRAMES
    found = {"none": _worst(number)}
    for name, (target, first, chunk) in ((name, kind) for name, kind in kinds.items() if only in name):
        with _flooding(target.number, first, chunk):
            found[name] = _worst(number)
    return found


def _worst(number: int) -> float:
    worst, ends = 0.0, time.monotonic() + FLOOD_S
    with httpx.Client(base_url=f"http://127.0.0.1:{number}", timeout=60) as http:
        while time.monotonic() < ends:
            begun = time.monotonic()
            assert http.get("/healthz").status_code == 200
            worst = max(worst, time.monotonic() - begun)
            time.sleep(0.005)
    return round(worst * 1000, 1)


@contextmanager
def _flooding(number: int, first: bytes, chunk: bytes) -> Iterator[None]:
    flooder = multiprocessing.get_context("spawn").Process(target=_flood, args=(number, first, chunk), daemon=True)
    flooder.start()
    try:
        time.sleep(0.5)
        yield
    finally:
        flooder.kill()
        flooder.join()


def _flood(number: int, first: bytes, chunk: bytes) -> None:
    async def one() -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", number)
                reading = asyncio.ensure_future(_drained(reader))
                writer.write(first)
                while not (writer.is_closing() or reading.done()):
                    writer.write(chunk)
                    await writer.drain()
                writer.transport.abort()
                await reading
            except OSError:
                await asyncio.sleep(0)

    async def all_of_them() -> None:
        await asyncio.gather(*(one() for _ in range(CONNECTIONS)))

    asyncio.run(all_of_them())


async def _drained(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        while await reader.read(1 << 20):
            pass


def _main() -> None:
    import sys

    for name, worst in measure(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:4]).items():
        print(f"{name:32} {worst:8} ms", flush=True)


if __name__ == "__main__":
    _main()
