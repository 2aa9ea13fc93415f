"""The result of one check of `slackwater doctor`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        subject: of the check.
        is_ok: there is no fault.
        detail: the facts.
        remedy: how to fix a fault; None without one.
    """

    subject: str
    is_ok: bool
    detail: str
    remedy: str | None = None
