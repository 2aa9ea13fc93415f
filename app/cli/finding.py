"""What `slackwater doctor` says of one thing that it looked at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        subject: what.
        is_ok: nothing to mend.
        detail: what was found.
        remedy: what to do, None when all is well.
    """

    subject: str
    is_ok: bool
    detail: str
    remedy: str | None = None
