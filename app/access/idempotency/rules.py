"""What every endpoint with an Idempotency-Key shares: how long a key counts, what makes two requests the same, the refusal. Pure."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from app.errors.app_errors import InProgress, Unprocessable

TTL_MS = 24 * 3_600_000
"""How long a retry is recognised (product.md §3)."""


def digest_of(about: list[Any], body: bytes) -> bytes:
    """Return what tells one request from another.

    Args:
        about: what it asks for beside the body: method, path, media type.
        body: in the form in which equal requests are equal.
    """
    digest = hashlib.sha256(json.dumps(about).encode())
    digest.update(body)
    return digest.digest()


def key_reused(key: str) -> Unprocessable:
    """Return the refusal of a key that was used for another request."""
    return Unprocessable(
        "idempotency_key_reused",
        f"the Idempotency-Key {key!r} belongs to another request of the last 24 hours; take a new key for a new request",
    )


def in_progress(key: str) -> InProgress:
    """Return the answer to a repeat whose first request is still being handled."""
    return InProgress(
        "idempotency_in_progress",
        f"the first request with the Idempotency-Key {key!r} is not answered yet; repeat this one in a moment",
        headers={"Retry-After": "1"},
    )
