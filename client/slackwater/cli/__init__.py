"""The command line: ``slackwater``. It uses the client and works on any host; if the service is installed, it has its commands too.

It uses the service only through the client.
"""

from __future__ import annotations

import sys
from typing import Final

_EXTRA: Final = frozenset({"typer", "rich", "prompt_toolkit", "pygments", "yaml"})


_INTERRUPTED: Final = 130
"""Exit code of an interrupted command; ``failing`` has all exit codes, but is not imported yet."""


def main() -> None:
    """Entry point of ``slackwater``; if the extra is missing, it says what to install."""
    try:
        from slackwater.cli.program import run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA:
            raise
        sys.exit(f"the command line needs {error.name}: pip install 'slackwater-client[cli]'")
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)  # what is imported takes a second or so
    run()
