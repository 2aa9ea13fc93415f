"""``python -m tests.faults [MINUTES] [PYTEST ARGUMENT…]``: every fault test, one after the other, with what each did and found.

Ends after 120 minutes, or as many as are given. ``FAULTS_SEED``, ``FAULTS_CYCLES``, ``FAULTS_MINUTES``, ``FAULTS_TIMES`` and
``FAULTS_KILLS`` are those of the tests: which kills, how many cycles of chaos for how long, how often each named point, how often the
driver of ten pipelines.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

MINUTES = 120.0
CLEAN_UP_S = 120
"""Services that tests have started are ended by them, which takes a while."""


def main() -> int:
    given = sys.argv[1:]
    minutes = float(given.pop(0)) if given and given[0].replace(".", "", 1).isdigit() else MINUTES
    command = [sys.executable, "-m", "pytest", "-m", "faults", "-s", "-v", "--durations=0", "--durations-min=1", *given]
    process = subprocess.Popen(command, cwd=Path(__file__).resolve().parents[2])
    try:
        return process.wait(minutes * 60)
    except subprocess.TimeoutExpired:
        print(f"not done within {minutes:.0f} minutes", file=sys.stderr)
        process.send_signal(signal.SIGINT)
        try:
            process.wait(CLEAN_UP_S)
        except subprocess.TimeoutExpired:
            process.kill()
        return 1


if __name__ == "__main__":
    sys.exit(main())
