"""Offers of HTTP/2 without TLS (`Upgrade: h2c`), which Java's HTTP client makes with its first request.

A server may pass them over (RFC 9110, 7.8). uvicorn's parser stops at such a head instead, and the request's body is lost.
"""

from __future__ import annotations

import re
from typing import Final

_END: Final = b"\r\n\r\n"
_OFFER: Final = re.compile(rb"\r\nupgrade:[ \t]{0,8}h2c[ \t]{0,8}(?=\r\n)", re.IGNORECASE)


def without_offer(data: bytes) -> bytes:
    """Take the offer out of the head of a request.

    Args:
        data: begins with a head's first byte. Only of a head that comes in one piece the offer is found; clients send it so.
            Nothing else is touched: a byte less of a body would make the next request a part of it.
    """
    end = data.find(_END)
    if end < 0:
        return data
    head = data[: end + 2]
    return data if _OFFER.search(head) is None else _OFFER.sub(b"", head) + data[len(head) :]
