"""``python .ci/constraints.py REPORT``: write constraints.txt from what pip resolved; see ``make constraints``.

Only names and versions, so that the file holds for every index.
"""

# ruff: noqa: INP001 - a script, in no package

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "constraints.txt"
HEAD = """\
# The versions with which this version of Slackwater is tested. `make`, the image and CI install these; pyproject.toml has the floors.
# Written by `make constraints`, which takes the newest that the floors allow. Look at the difference and run the tests before you commit it.
"""


def main(report: Path) -> None:
    """Write the file. Our own packages are not in it."""
    resolved = [entry["metadata"] for entry in json.loads(report.read_text())["install"]]
    pinned = {re.sub(r"[-_.]+", "-", each["name"]).lower(): each["version"] for each in resolved}
    del pinned["slackwater"], pinned["slackwater-client"]
    TARGET.write_text(HEAD + "".join(f"{name}=={version}\n" for name, version in sorted(pinned.items())))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
