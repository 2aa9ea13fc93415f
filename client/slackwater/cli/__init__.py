"""The command line: ``slackwater``. It is built on the client, and works on any host; where the service is installed it has its commands too.

It must know no way to the service but the client's.
"""

from __future__ import annotations

import sys
from typing import Final

_EXTRA: Final = frozenset({"typer", "rich", "prompt_toolkit", "pygments", "yaml"})


def main() -> None:
    """Entry point of ``slackwater``; says what to install where the extra is missing."""
    try:
        from slackwater.cli.program import run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA:
            raise
        sys.exit(f"the command line needs {error.name}: pip install 'slackwater-client[cli]'")
    run()
