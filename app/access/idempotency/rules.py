"""Rules of all endpoints with an Idempotency-Key: how long a key is valid, when two requests are equal, the errors. Pure."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from app.errors.app_errors import InProgress, Unprocessable

TTL_MS = 24 * 3_600_000
"""How long a retry is recognised (product.md §3)."""


def digest_of(about: list[Any], body: bytes) -> bytes:
    """Return the digest by which two requests are compared.

    Args:
        about: the rest of the request: method, path, media type.
        body: in a form in which equal requests have equal bytes.
    """
    digest = hashlib.sha256(json.dumps(about).encode())
    digest.update(body)
    return digest.digest()


def key_reused(key: str) -> Unprocessable:
    """Return the error for a key that was used for another request."""
    return Unprocessable(
        "idempotency_key_reused",
        f"the Idempotency-Key {key!r} belongs to another request of the last 24 hours; use a new key for a new request",
    )


def in_progress(key: str) -> InProgress:
    """Return the error for a repeated request while the first one is still in progress."""
    return InProgress(
        "idempotency_in_progress",
        f"the first request with the Idempotency-Key {key!r} is not answered yet; repeat this one in a moment",
        headers={"Retry-After": "1"},
    )
