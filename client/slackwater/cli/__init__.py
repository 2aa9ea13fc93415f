"""The command line: ``slackwater``. It is built on the client, and works on any host; where the service is installed it has its commands too.

It must know no way to the service but the client's.
"""

from __future__ import annotations

import sys
from typing import Final

_EXTRA: Final = frozenset({"typer", "rich", "prompt_toolkit", "pygments", "yaml"})


_INTERRUPTED: Final = 130
"""As of a command that is interrupted; ``failing`` has all exit codes, and is not there yet."""


def main() -> None:
    """Entry point of ``slackwater``; says what to install where the extra is missing."""
    try:
        from slackwater.cli.program import run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA:
            raise
        sys.exit(f"the command line needs {error.name}: pip install 'slackwater-client[cli]'")
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)  # what is imported takes a second or so
    run()
