"""`python -m tests.guide [--fill] [--url URL] PAGE…`: run the blocks of pages; with `--fill`, write their answers into the pages."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slackwater import Client

from tests.conftest import ROOT
from tests.guide.answers import written
from tests.guide.blocks import Fence, PageInvalid, filled, steps
from tests.guide.pages import Runner, all_pages, runner
from tests.guide.running import StepFailed, page_on


def main() -> int:
    """Run pages.

    Returns:
        0, or 1 where a block was refused or an answer differs.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.guide", description="Run the blocks of pages of the guide.")
    parser.add_argument("pages", nargs="*", help="such as docs/tutorial.md; none: all")
    parser.add_argument("--fill", action="store_true", help="write the answers into the pages")
    parser.add_argument(
        "--url",
        help="an empty service that runs already, to save its start; everything in it is deleted. Without it one is started",
    )
    options = parser.parse_args()
    is_right = True
    with _service(options.url) as service:
        for page in options.pages or all_pages():
            try:
                problem = _run(service, str(Path(page)), is_filled=options.fill)
            except PageInvalid as error:
                problem = str(error)
            is_right = is_right and problem is None
            sys.stdout.write(f"{page}: {'right' if problem is None else problem}\n")
            sys.stdout.flush()
    return 0 if is_right else 1


def _run(service: Runner, page: str, *, is_filled: bool) -> str | None:
    """Run a page; return what is wrong with it."""
    path = ROOT / page
    answers: list[tuple[Fence, str]] = []
    problem: str | None = None
    with page_on(service.url, service.folder(page)) as running:
        for step in steps(path):
            try:
                if not is_filled:
                    running.check(step)
                    continue
                found = running.run(step)
                if step.answer is not None:
                    shown = step.answer
                    answers.append((shown, written(shown.text, found, is_json=shown.language == "json")))
            except StepFailed as error:
                problem = str(error)
                break
        for line in running.refusals if is_filled else ():
            sys.stdout.write(f"{page}:{line}: was refused; the page shows why\n")
    if answers:
        path.write_text(filled(path.read_text(), answers))
    return problem


@contextmanager
def _service(url: str | None) -> Iterator[Runner]:
    if url is None:
        with runner() as running:
            yield running
        return
    with Client(url) as client:
        if any(True for _ in (*client.queries.list(), *client.streams(), *client.tables())):
            sys.exit(f"{url} is not empty, and everything in it would be deleted; name another service")
    with tempfile.TemporaryDirectory(prefix="guide-") as folder:
        yield Runner(url, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
