"""``python -m tests.conformance PATH… [--slicing record|whole|random:SEED]``: run corpora, exit 1 on a failure.

Without a path: the copies in the repository.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from pathlib import Path

from tests.conformance.corpus import CORPORA, Scenario, read
from tests.conformance.runner import run
from tests.conformance.slicing import Slicing


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description="Run conformance corpora.")
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="PATH", help="corpus files (.json, .json.gz, .json.xz) or directories"
    )
    parser.add_argument("--slicing", type=_slicing, default=Slicing("record"), help="record (default), whole or random:SEED")
    options = parser.parse_args(arguments)
    missing = [str(path) for path in options.paths if not path.exists()]
    if missing:
        parser.error(f"no such file or directory: {', '.join(missing)}")
    return _run(options.paths or [CORPORA], options.slicing)


def _run(paths: list[Path], slicing: Slicing) -> int:
    passed = failed = 0
    for scenario in read(paths):
        if (failure := _failure(scenario, slicing)) is None:
            passed += 1
        else:
            failed += 1
            print(f"FAILED {scenario.id} ({scenario.title}), slicing {slicing}: {scenario.op}\n{failure}\n")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


def _failure(scenario: Scenario, slicing: Slicing) -> str | None:
    try:
        return run(scenario, slicing)
    except Exception:  # noqa: BLE001 - one scenario that breaks the engine must not hide the others
        return traceback.format_exc()


def _slicing(text: str) -> Slicing:
    try:
        return Slicing.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
