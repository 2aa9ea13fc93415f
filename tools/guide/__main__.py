"""`python -m tools.guide`: build the guide that the service shows at `/guide`."""

from __future__ import annotations

import sys

from app.main.guide import SITE
from tools.guide.building import NotBuilt, build


def main() -> int:
    """Build it.

    Returns:
        0, or 1 where it cannot be built.
    """
    try:
        build()
    except NotBuilt as error:
        sys.stderr.write(f"The guide was not built:\n{error}\n")
        return 1
    sys.stdout.write(f"The guide has {len(list(SITE.rglob('index.html')))} pages; the service shows it at /guide.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
