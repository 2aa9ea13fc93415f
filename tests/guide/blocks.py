"""What a page has to be run: its fences in order, each with the answer that the page shows. docs/inside/writing.md has the rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

RUN = frozenset({"sql", "bash", "python"})
SHOWN = frozenset({"markdown", ""})
"""Fences about writing pages, and drawings: never run."""

ANSWER_TITLE = "Answer"
_REQUEST = re.compile(r"(GET|PUT|POST|PATCH|DELETE) (/\S+)")
_FILE = re.compile(r"[\w./-]+\.\w+")
_TITLE = re.compile(r'\btitle="([^"]*)"')
_NOT_RUN = re.compile(r"<!--\s*not run:(.*?)-->", re.DOTALL)
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})")


class PageInvalid(Exception):
    """A page breaks a rule of writing pages. The message names the line."""


@dataclass(frozen=True, slots=True)
class Fence:
    """A block of code.

    Attributes:
        language: empty: none.
        title: what stands above it; empty: nothing.
        text: what is in it.
        line: of its first mark, from 1.
        end: of its last mark, from 1.
        reason: why it is not run; None: no comment says so.
    """

    language: str
    title: str
    text: str
    line: int
    end: int
    reason: str | None

    @property
    def is_answer(self) -> bool:
        """Whether it shows what another block answers."""
        return self.language == "text" or (self.language == "json" and self.title == ANSWER_TITLE)

    @property
    def request(self) -> tuple[str, str] | None:
        """Method and path of the request that it is the body of."""
        found = _REQUEST.fullmatch(self.title)
        return None if found is None else (found[1], found[2])

    @property
    def file(self) -> str | None:
        """The name of the file that it is."""
        return self.title if _FILE.fullmatch(self.title) else None

    @property
    def is_run(self) -> bool:
        """Whether something is done with it."""
        return self.file is not None or self.language in RUN or (self.language == "json" and self.request is not None)


@dataclass(frozen=True, slots=True)
class Step:
    """A block that is run, and the answer that is shown of it."""

    fence: Fence
    answer: Fence | None = None


def steps(path: Path) -> list[Step]:
    """Return what a page has to be run, in order.

    Raises:
        PageInvalid: a fence that is neither run nor said not to be, or that stands where it is not seen.
    """
    text = path.read_text()
    found: list[Step] = []
    is_open = False  # whether the block before may still have an answer
    for fence in _fences(text, path):
        if fence.is_answer:
            if fence.reason is not None:
                continue
            if not is_open:
                raise PageInvalid(
                    f"{path}:{fence.line}: an answer without a block before it; a drawing is a fence without a language"
                )
            found[-1] = Step(found[-1].fence, fence)
            is_open = False
        elif fence.reason is not None or fence.language in SHOWN:
            is_open = False
        elif fence.is_run:
            found.append(Step(fence))
            is_open = fence.file is None
        else:
            raise PageInvalid(
                f"{path}:{fence.line}: a block of {fence.language or 'no language'} is not run; give it a title that says what it is, "
                "or say why not in a comment before it: <!-- not run: … -->"
            )
    return found


def filled(text: str, answers: Sequence[tuple[Fence, str]]) -> str:
    """Return a page with other texts in these fences."""
    lines = text.splitlines()
    for fence, content in sorted(answers, key=lambda each: each[0].line, reverse=True):
        lines[fence.line : fence.end - 1] = content.splitlines()
    return "\n".join(lines) + "\n"


def _fences(text: str, path: Path) -> Iterator[Fence]:
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    seen: set[int] = set()
    before: Token | None = None
    for token in tokens:
        if token.type == "fence" and token.level == 0 and token.map is not None:
            first, end = token.map
            seen |= set(range(first, end))
            yield _fence(token, before, first, end, path)
        before = token
    for number, line in enumerate(text.splitlines()):
        if number not in seen and _FENCE.match(line):
            raise PageInvalid(
                f"{path}:{number + 1}: a block inside of a list, a note or a tab is not seen by the test; put it at the left margin"
            )


def _fence(token: Token, before: Token | None, first: int, end: int, path: Path) -> Fence:
    language, _, rest = token.info.strip().partition(" ")
    title = _TITLE.search(rest)
    reason = _NOT_RUN.search(before.content) if before is not None and before.type == "html_block" else None
    if reason is not None and not reason[1].strip():
        raise PageInvalid(f"{path}:{first + 1}: say why the block is not run")
    return Fence(
        language, title[1] if title else "", token.content, first + 1, end, None if reason is None else reason[1].strip()
    )
