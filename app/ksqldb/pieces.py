"""Send lines as separate frames: some clients take every frame of an answer for one line, as ksqlDB's server sends them.

HTTP/2 joins writes without a pause into one frame. So few lines are written with pauses; many lines are written at once, for speed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Final

PAUSE_S: Final = 0.01
FEW_LINES: Final = 10


async def in_pieces(lines: Sequence[bytes]) -> AsyncGenerator[bytes]:
    """Yield lines one by one with a pause after each, or all at once if they are many."""
    if len(lines) > FEW_LINES:
        yield b"".join(lines)
        return
    for line in lines:
        yield line
        await asyncio.sleep(PAUSE_S)
