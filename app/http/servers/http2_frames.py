"""The frames of one HTTP/2 connection before a library parses them: limits by kind of frame, and requests with open bodies.

A frame costs the library 30 to 60 µs and its sender nothing. Without a limit, a megabyte of empty frames blocks the event loop for seconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
ENHANCE_YOUR_CALM: Final = 0xB
GOAWAY_OF_FLOOD: Final = bytes((0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0)) + ENHANCE_YOUR_CALM.to_bytes(4, "big")
"""RFC 9113, 6.8: all processed streams are known to the client."""

BURST: Final = 100
"""Control frames at once. A client begins with about ten; the library takes about 5 ms for this number."""

RATE_PER_S: Final = 20.0
"""Control frames in the long run, beside those earned by answers: PINGs of clients are seconds apart."""

SENT_BYTES_PER_FRAME: Final = 2_048
"""Bytes of answers that earn one control frame. A client updates the windows while it reads, at most twice for each frame of 16 KiB."""

MAX_FRAME_BYTES: Final = 16_384
"""RFC 9113, 6.5.2: the largest frame that a peer may send without an announced setting."""

_HEADER: Final = 9
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _CONTINUATION = 0x0, 0x1, 0x3, 0x4, 0x9
_END_STREAM: Final = 0x1
_END_HEADERS: Final = 0x4
_BYTES_OF_SETTING: Final = 6

_BYTES_OF_TURN: Final = 128
"""Bytes of a head per turn: 1,850 fields of one byte take 9 ms, measured on a busy machine."""


class Flood(Exception):
    """The connection must end: more control frames than a client needs, or a frame over the agreed size."""


@dataclass(slots=True)
class ControlBudget:
    """Budget of control frames; it grows with time and with the bytes sent to the client.

    Args:
        now: in seconds.
    """

    now: float
    left: float = BURST

    def spend(self, cost: float, now: float) -> None:
        """Subtract ``cost`` frames.

        Raises:
            Flood: the budget is used up.
        """
        self.left = min(BURST, self.left + (now - self.now) * RATE_PER_S) if self.left < BURST else self.left
        self.now = now
        self.left -= cost
        if self.left < 0:
            raise Flood("more control frames than a client needs")

    def earn(self, sent_bytes: int) -> None:
        """Add budget for bytes of an answer."""
        self.left = min(self.left + 2 + sent_bytes / SENT_BYTES_PER_FRAME, 10 * BURST)


@dataclass(slots=True)
class Frames:
    """Bytes received behind the preface, not yet passed to the library.

    Attributes:
        budget: of control frames.
        bodies: bytes of each open request body since the last ``stalled_bodies``.
        requests: number of complete heads.
        is_in_head: the rest of a head must follow.
    """

    budget: ControlBudget
    bodies: dict[int, int] = field(default_factory=dict)
    requests: int = 0
    is_in_head: bool = False
    _buffer: bytearray = field(default_factory=bytearray)
    _parsed: int = 0
    _sizes: deque[tuple[int, int]] = field(default_factory=deque)
    _watched: set[int] = field(default_factory=set)

    def __len__(self) -> int:
        """Return the number of bytes not yet passed on."""
        return len(self._buffer)

    def add(self, data: bytes, now: float) -> None:
        """Add received bytes.

        Raises:
            Flood: the connection must end.
        """
        self._buffer += data
        while len(self._buffer) - self._parsed >= _HEADER:
            head = self._buffer[self._parsed : self._parsed + _HEADER]
            length = int.from_bytes(head[:3], "big")
            if length > MAX_FRAME_BYTES:
                raise Flood("a frame larger than was agreed")
            self._count(head[3], head[4], int.from_bytes(head[5:], "big") & 0x7FFF_FFFF, length, now)
            # A field of a head can be one byte, and costs as much as a frame of another kind.
            turns = 1 + length // _BYTES_OF_TURN if head[3] in (_HEADERS, _CONTINUATION) else 1
            self._sizes.append((_HEADER + length, turns))
            self._parsed += _HEADER + length

    def take(self, frames: int, most_bytes: int) -> bytes:
        """Return some complete frames, in order; empty if there are none."""
        size = 0
        while frames > 0 and self._sizes and size + self._sizes[0][0] <= len(self._buffer):
            if size and size + self._sizes[0][0] > most_bytes:
                break
            bytes_of_frame, turns = self._sizes.popleft()
            size += bytes_of_frame
            frames -= turns
        piece = bytes(self._buffer[:size])
        del self._buffer[:size]
        self._parsed -= size
        return piece

    @property
    def has_whole(self) -> bool:
        """Whether ``take`` would return something."""
        return bool(self._sizes) and self._sizes[0][0] <= len(self._buffer)

    @property
    def is_partial(self) -> bool:
        """Whether the last frame, or its head, is incomplete."""
        return self.is_in_head or self._parsed != len(self._buffer)

    def stalled_bodies(self, fewest_bytes: int, streams: set[int]) -> list[int]:
        """Return the requests whose bodies were open at the last call and brought less than ``fewest_bytes`` since.

        Args:
            fewest_bytes: expected of each.
            streams: running requests; others are forgotten.
        """
        self.bodies = {stream: size for stream, size in self.bodies.items() if stream in streams or stream not in self._watched}
        stalled = [stream for stream, size in self.bodies.items() if stream in self._watched and size < fewest_bytes]
        self._watched = set(self.bodies)
        self.bodies = dict.fromkeys(self.bodies, 0)
        return stalled

    def _count(self, kind: int, flags: int, stream: int, length: int, now: float) -> None:
        ends = bool(flags & _END_STREAM)
        if kind in (_HEADERS, _CONTINUATION):
            self.is_in_head = not flags & _END_HEADERS
            self.requests += not self.is_in_head
        if kind == _HEADERS:
            self.bodies.setdefault(stream, 0)
        elif kind == _DATA and (length or ends):
            if stream in self.bodies:
                self.bodies[stream] += length
        else:
            self.budget.spend(max(1, length // _BYTES_OF_SETTING) if kind == _SETTINGS else 1, now)
        if kind == _RST_STREAM or (ends and kind in (_DATA, _HEADERS)):
            self.bodies.pop(stream, None)
