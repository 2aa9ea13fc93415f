"""Calls of librdkafka that do not keep to the time they are given."""

from __future__ import annotations

import threading
from collections.abc import Callable


def ends_within(seconds: float, call: Callable[[], None]) -> bool:
    """Make a call in a thread of its own, which is left behind where the call takes longer; returns whether it has ended.

    Raises:
        BaseException: whatever the call raises in time.
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - it is raised again where the call was made
            raised.append(error)

    thread = threading.Thread(target=run, name="bounded-call", daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    return not thread.is_alive()
