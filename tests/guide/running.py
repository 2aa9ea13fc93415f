"""Runs the blocks of a page against a service, one after the other, and gives what each answers."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
from slackwater import Client, ServiceError

from engine.sql.scripts import parse_script
from engine.sql.statement_tree import Define, Describe, Explain, ExplainWhy, Print, Select, SetProperty, Show
from tests.guide.answers import fits
from tests.guide.blocks import Fence, Step
from tests.guide.grid import grid

ADDRESS: Final = re.compile(r"(?:localhost|127\.0\.0\.1):8080")
"""What pages call the service."""

DATA: Final = "/data/"
"""Where pages have files: the folder of the page stands for it."""

SETTLED_S: Final = 240.0
BLOCK_S: Final = 300.0
_DEMO: Final = "make demo\n"
_NDJSON: Final = "application/x-ndjson"
_LOOKING: Final = (Select, Show, Describe, Explain, ExplainWhy, Print)
_PREPARING: Final = ("SET ", "UNSET ", "DEFINE ", "UNDEFINE ")
_WAITS: Final = frozenset({"waits_for_producer"})
"""Conditions of a query that reads no further, whatever is waited for."""


class StepFailed(AssertionError):
    """A block was refused, or answered something else than the page shows."""


class Page:
    """What the blocks of one page share.

    Args:
        url: of the service.
        folder: of the page: where its files are, and its shells.

    Attributes:
        refusals: lines of the blocks that were refused, where the page shows what came.
    """

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self.refusals: list[int] = []
        self._names: dict[str, Any] = {}
        self._http = httpx.Client(base_url=url, timeout=BLOCK_S)
        self._client = Client(url, timeout=BLOCK_S)
        self._kinds: Mapping[str, Callable[[Fence], str]] = {"sql": self._sql, "bash": self._bash, "python": self._python}

    def close(self) -> None:
        """Close what the page opened."""
        for value in self._names.values():
            if isinstance(value, Client):
                value.close()
        self._client.close()
        self._http.close()

    def run(self, step: Step) -> str:
        """Run a block; return what it answers.

        Raises:
            StepFailed: it was refused, and the page shows no answer.
        """
        fence = step.fence
        if fence.file is not None:
            path = self._folder / fence.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._here(fence.text))
            return ""
        self._settle()
        is_refusal_shown = step.answer is not None
        try:
            answer = self._request(fence) if fence.request is not None else self._kinds[fence.language](fence)
        except Refused as refusal:
            if not is_refusal_shown:
                raise StepFailed(f"line {fence.line}: {refusal.answer}") from None
            self.refusals.append(fence.line)
            answer = refusal.answer
        return self._there(answer)

    def check(self, step: Step) -> None:
        """Run a block and hold its answer against the one that is shown.

        Raises:
            StepFailed: it was refused, or the answers differ.
        """
        found = self.run(step)
        shown = step.answer
        if shown is not None and not fits(shown.text, found, is_json=shown.language == "json"):
            raise StepFailed(
                f"line {shown.line}: the answer differs; `make guide-fill` writes the new one\n--- shown\n{shown.text}\n--- found\n{found}"
            )

    def _settle(self) -> None:
        """Wait until each query that runs has read everything; twice, for what one writes the other reads."""
        deadline = time.monotonic() + SETTLED_S
        for _ in range(2):
            for query in self._client.queries.list():
                while not self._is_settled(query.name):
                    if time.monotonic() > deadline:
                        raise StepFailed(f"{query.name} did not settle: {self._client.query(query.name).status().summary}")
                    time.sleep(0.1)

    def _is_settled(self, name: str) -> bool:
        try:
            status = self._client.query(name).status()
        except ServiceError as error:
            return error.code == "query_not_found"
        if status.state == "failed" or (status.state in ("stopped", "paused") and status.state == status.desired_state):
            return True  # a new query is stopped, too, until a driver takes it
        if status.state == "running" and status.lag is None and status.committed_at is not None:
            return status.limited_by == "input"  # of files nobody knows how far they reach
        return status.is_caught_up or bool(_WAITS & {*status.conditions})

    def _sql(self, fence: Fence) -> str:
        """Carry a script out as somebody would who types it: what only looks sees what the statements before it led to."""
        results: list[_Result] = []
        for script, is_looking in _typed(self._here(fence.text)):
            if is_looking:
                self._settle()
            try:
                results += self._statements(script)
            except Refused as refusal:
                raise Refused("\n\n".join([*_shown(results), refusal.answer])) from None
        return "\n\n".join(_shown(results))

    def _statements(self, script: str) -> list[_Result]:
        answer = self._http.post(
            "/v1/statements",
            content=script.encode(),
            headers={"content-type": "application/sql", "accept": f"application/json, {_NDJSON}"},
        )
        if answer.status_code >= 400:
            raise Refused(_sentences(answer.json()))
        if answer.headers["content-type"].startswith(_NDJSON):
            return [_Result(_pushed(answer.text), has_rows=True)]
        return [_result(each) for each in answer.json()["results"] if not each["statement"].startswith(_PREPARING)]

    def _request(self, fence: Fence) -> str:
        assert fence.request is not None
        method, path = fence.request
        body = json.loads(self._here(fence.text)) if fence.text.strip() else None
        answer = self._http.request(method, path, json=body)
        if answer.status_code >= 400:
            raise Refused(answer.text)
        return answer.text

    def _bash(self, fence: Fence) -> str:
        (self._folder / ".curlrc").write_text("silent\nshow-error\nfail-with-body\n")
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SLACKWATER_", "PYTHON"))},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "CURL_HOME": str(self._folder),
            "HOME": str(self._folder),
            "SLACKWATER_URL": self._url,
            "COLUMNS": "120",
        }
        command = self._here(fence.text)
        if fence.text == _DEMO:
            # The demo feeds the service that runs at its port, and leaves it running.
            environment["SLACKWATER_PORT"] = str(urlsplit(self._url).port)
            command = "python -m examples.flights --once"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self._folder, env=environment, capture_output=True, text=True, timeout=BLOCK_S, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise Refused(f"{done.stdout}{done.stderr}")
        return done.stdout

    def _python(self, fence: Fence) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                exec(compile(self._here(fence.text), f"line {fence.line}", "exec"), self._names)  # noqa: S102 - our own pages
            except Exception as error:
                raise Refused(f"{printed.getvalue()}{type(error).__name__}: {error}") from error
        return printed.getvalue()

    def _here(self, text: str) -> str:
        """Return a text of the page with this service's address and the page's folder in it."""
        return ADDRESS.sub(self._url.removeprefix("http://"), text).replace(DATA, f"{self._folder}/")

    def _there(self, text: str) -> str:
        """Return an answer as the page would have it."""
        return text.replace(self._url.removeprefix("http://"), "localhost:8080").replace(f"{self._folder}/", DATA)


class Refused(Exception):
    """A block did not do what it was to do.

    Attributes:
        answer: what came instead.
    """

    def __init__(self, answer: str) -> None:
        super().__init__(answer)
        self.answer = answer


@contextmanager
def page_on(url: str, folder: Path) -> Iterator[Page]:
    """Give a page on an empty service, and leave an empty one behind."""
    page = Page(url, folder)
    try:
        yield page
    finally:
        page.close()
        with Client(url, timeout=BLOCK_S) as client:
            emptied(client)


def emptied(client: Client) -> None:
    """Delete everything: readers before what they read, so in as many rounds as it takes."""
    deadline = time.monotonic() + SETTLED_S
    while True:
        left = 0
        for delete in (
            *(client.query(each.name).delete for each in client.queries.list()),
            *(client.stream(each.name).delete for each in client.streams() if each.produced_by is None),
            *(client.table(each.name).delete for each in client.tables() if each.produced_by is None),
        ):
            left += 1
            with contextlib.suppress(ServiceError):
                delete()
        if not left:
            return
        assert time.monotonic() < deadline, "a page left something that cannot be deleted"


def _typed(text: str) -> list[tuple[str, bool]]:
    """Cut a script before each statement that looks; what prepares statements goes before each part. What cannot be read stays whole."""
    script = parse_script(text)
    if script.faults:
        return [(text, False)]
    parts: list[tuple[str, bool]] = []
    prepared, pending = "", ""
    for each in script.statements:
        if isinstance(each.tree, SetProperty | Define):
            prepared += f"{each.text};\n"
        elif isinstance(each.tree, _LOOKING):
            parts += [(prepared + pending, False)] if pending else []
            parts.append((f"{prepared}{each.text};", True))
            pending = ""
        else:
            pending += f"{each.text};\n"
    return [*parts, (prepared + pending, False)] if pending or not parts else parts


@dataclass(frozen=True, slots=True)
class _Result:
    text: str
    has_rows: bool


def _shown(results: Sequence[_Result]) -> list[str]:
    """Return the rows that statements gave; what they said in words only where none gave rows."""
    has_rows = any(each.has_rows for each in results)
    return [each.text for each in results if each.has_rows or not has_rows]


def _result(result: Mapping[str, Any]) -> _Result:
    if result.get("columns") is None:
        return _Result(str(result["message"]), has_rows=False)
    return _Result(grid([each["name"] for each in result["columns"]], result["rows"]), has_rows=True)


def _pushed(text: str) -> str:
    lines = [json.loads(line) for line in text.splitlines() if line]
    for line in lines:
        if "error" in line:
            raise Refused(f"{line['error']['code']}: {line['error']['detail']}")
    columns = next(line["header"]["columns"] for line in lines if "header" in line)
    return grid([each["name"] for each in columns], [line["row"]["values"] for line in lines if "row" in line])


def _sentences(problem: Mapping[str, Any]) -> str:
    """Return a refusal of statements as a text: each fault with its place."""
    faults = problem["errors"] or [problem]
    parts = []
    for fault in faults:
        place = fault.get("place")
        where = f"line {place['line']}, column {place['column']}\n{place['excerpt']}\n" if place else ""
        parts.append(f"{where}{fault['code']}: {fault['detail']}")
    return "\n".join(parts)
