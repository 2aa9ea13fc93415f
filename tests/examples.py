"""How many examples Hypothesis draws: each test says how many it wants, ``TEST_EXAMPLES`` by how much that is multiplied.

``make test`` draws fewer than wanted, for it has half an hour for everything; each run draws others. ``make test-slow`` draws more.
"""

from __future__ import annotations

import os
from typing import Final

SCALE: Final = float(os.environ.get("TEST_EXAMPLES", "0.25"))


def examples(wanted: int) -> int:
    """Return how many examples to draw where a test wants so many."""
    return max(1, round(wanted * SCALE))
