"""SQL statements, as far as a client must parse them: where each ends, and its kind. The service decides their meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_TOKEN: Final = re.compile(
    r"""
    (?P<comment> --[^\n]*(?:\n|\Z) | /\*.*?\*/ )
  | (?P<quoted> '(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*` | \$\$.*?\$\$ )
  | (?P<open> /\*.*\Z | '(?:[^']|'')*\Z | "(?:[^"]|"")*\Z | `(?:[^`]|``)*\Z | \$\$.*\Z )
  | (?P<end> ; )
  | (?P<word> [A-Za-z_][A-Za-z0-9_$]* )
  | (?P<space> \s+ )
  | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_NAME: Final = r"(`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|[A-Za-z_][A-Za-z0-9_]*)"
_CREATE: Final = re.compile(
    rf"CREATE\s+(?P<replace>OR\s+REPLACE\s+)?(?P<source>SOURCE\s+)?(?:STREAM|TABLE)\s+(?P<if>IF\s+NOT\s+EXISTS\s+)?(?P<name>{_NAME})",
    re.IGNORECASE,
)
_INSERT: Final = re.compile(rf"INSERT\s+INTO\s+(?P<name>{_NAME})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a script.

    Attributes:
        text: without its semicolon, with the comments inside.
        line: its first line, from 1.
        is_ended: a semicolon ends it.
        is_open: a quotation or a comment in it has no end.
    """

    text: str
    line: int
    is_ended: bool
    is_open: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """Its words in upper case, outside of quotations and comments."""
        return tuple(found.group().upper() for found in _TOKEN.finditer(self.text) if found.lastgroup == "word")

    @property
    def names(self) -> frozenset[str]:
        """All possible names in it, in lower case, quoted ones too."""
        tokens = ((found.lastgroup, found.group()) for found in _TOKEN.finditer(self.text))
        return frozenset(_plain(text) for kind, text in tokens if kind == "word" or (kind == "quoted" and text[0] in '`"'))

    @property
    def is_setting(self) -> bool:
        """Whether it only applies to later statements: SET, DEFINE."""
        return self.words[:1] in (("SET",), ("UNSET",), ("DEFINE",), ("UNDEFINE",))

    @property
    def is_push(self) -> bool:
        """Whether its answer has no end: a SELECT with EMIT."""
        words = self.words
        return words[:1] == ("SELECT",) and "EMIT" in words

    @property
    def created(self) -> str | None:
        """The stream or table of a CREATE, in lower case; None for others."""
        found = _CREATE.match(bare(self.text))
        return None if found is None else _plain(found["name"])

    @property
    def target(self) -> str | None:
        """The target of an INSERT INTO, in lower case; None for others."""
        found = _INSERT.match(bare(self.text))
        return None if found is None else _plain(found["name"])

    @property
    def is_source(self) -> bool:
        """Whether it is CREATE SOURCE …, which cannot be replaced."""
        found = _CREATE.match(bare(self.text))
        return found is not None and found["source"] is not None


def statements_of(script: str) -> list[Statement]:
    """Split a script into its statements; comments alone are not a statement."""
    return list(_cut(script))


def _cut(script: str) -> Iterator[Statement]:
    start: int | None = None
    is_open = False
    for found in _TOKEN.finditer(script):
        kind = found.lastgroup
        if kind == "end":
            if start is not None:
                yield Statement(script[start : found.start()].rstrip(), script.count("\n", 0, start) + 1, is_ended=True)
            start = None
        elif kind not in ("space", "comment"):
            start = found.start() if start is None else start
            is_open = kind == "open"
    if start is not None:
        yield Statement(script[start:].rstrip(), script.count("\n", 0, start) + 1, is_ended=False, is_open=is_open)


def bare(text: str) -> str:
    """Return a statement without the comments, and without the space before it."""
    return "".join(" " if found.lastgroup == "comment" else found.group() for found in _TOKEN.finditer(text)).strip()


def as_replacing(text: str) -> str:
    """Return a CREATE as CREATE OR REPLACE; other statements stay as they are."""
    found = _CREATE.match(bare(text))
    if found is None or found["replace"] is not None:
        return text
    without = bare(text) if found["if"] is None else bare(text).replace(found["if"], "", 1)
    return re.sub(r"(?i)^CREATE", "CREATE OR REPLACE", without, count=1)


def is_complete(script: str) -> bool:
    """Return whether a text can be executed: it ends with a semicolon, outside of quotations and comments."""
    found = statements_of(script)
    return bool(found) and found[-1].is_ended and not _has_open_comment(script)


def _has_open_comment(script: str) -> bool:
    return any(found.lastgroup == "open" for found in _TOKEN.finditer(script))


def _plain(name: str) -> str:
    return name[1:-1].lower() if name[:1] in '`"' else name.lower()
