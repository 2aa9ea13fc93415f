"""Names for completion: relations, columns, queries, functions, words. Read from the service in the background."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from slackwater.blocking.client import Client
from slackwater.errors import SlackwaterError

_WORDS: Final = """
    ADD ADVANCE AFTER ALL ALTER AND AS ASSERT AT BEGINNING BETWEEN BUFFER BY CASE CAST CHANGES CLOCK CLOSED COLUMN COMPLETE CREATE DAYS
    DEFINE DELETE DESCRIBE DIFFERENCE DISTINCT DIVERT DROP EAGER ELSE EMIT END EVERY EXISTS EXPIRED EXPLAIN EXTENDED FALSE FASTEST FINAL
    FROM FULL FUNCTION FUNCTIONS GRACE GROUP HAVING HISTORY HOLD HOPPING HOURS IDLE IF IN INNER INSERT INTO IS JOIN KEEP KEY LATE LATEST
    LEFT LIKE LIMIT LIST MINUTES MOST NOT NULL OF ON OPEN OR OUTER PARTITION PAUSE PERIOD PRIMARY PRINT PROPERTIES QUERIES RECORDS REPLACE
    RESUME RETENTION RIGHT ROWS SECONDS SELECT SESSION SET SHOW SIZE SLIDING SLOWEST SOURCE STREAM STREAMS SYSTEM_TIME TABLE TABLES
    TERMINATE THEN TIME TOPIC TOPICS TRUE TUMBLING TYPE TYPES UNDEFINE UNMATCHED UNSET UNTIL UNVERSIONED VALUES VARIABLES WAIT WHEN WHERE
    WHY WINDOW WINDOWEND WINDOWSTART WINDOWSTATE WITH WITHIN
"""
KEYWORDS: Final = tuple(_WORDS.split())
_PLAIN: Final = re.compile(r"[A-Z_][A-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class Names:
    """All names.

    Attributes:
        relations: name → column → type.
        kinds: name → ``stream`` or ``table``.
        functions: name → description.
    """

    relations: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    queries: tuple[str, ...] = ()
    functions: Mapping[str, str] = field(default_factory=dict)


def read_names(client: Client) -> Names:
    """Ask the service for all names."""
    relations = [*client.streams(), *client.tables()]
    found = client.system.functions()
    functions = {name: each.description for each in found.functions for name in (each.name, *each.ksqldb)}
    functions |= {each.name: each.description for each in found.aggregates}
    return Names(
        {each.name: each.columns for each in relations},
        {each.name: each.kind for each in relations},
        tuple(each.name for each in client.queries.list() if not each.internal),
        functions,
    )


class Known:
    """The names as last read. A thread reads them again when they may have changed; no caller waits for it."""

    def __init__(self, read: Callable[[], Names]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.names = Names()

    def refresh(self) -> None:
        """Read them again in the background."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._take, daemon=True)
                self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait until they are read."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _take(self) -> None:
        try:
            self.names = self._read()
        except SlackwaterError:
            return  # completion has fewer names; the next request reports that the service is not reachable


def written(column: str) -> str:
    """Return a column in the form of statements: quoted unless it is in upper case."""
    return column if _PLAIN.fullmatch(column) else f"`{column.replace('`', '``')}`"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A possible text at the cursor.

    Attributes:
        text: to insert.
        kind: for people.
        typed: number of characters before the cursor to replace.
    """

    text: str
    kind: str
    typed: int


_WORD: Final = re.compile(r"[`\"]?[A-Za-z0-9_$]*$")
_DOTTED: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*|`[^`]+`)\.([`\"]?[A-Za-z0-9_$]*)$")
_OF_RELATIONS: Final = frozenset({"FROM", "JOIN", "INTO", "DESCRIBE", "STREAM", "TABLE", "PRINT"})
_OF_QUERIES: Final = frozenset({"TERMINATE", "PAUSE", "RESUME", "EXPLAIN", "WHY", "OF"})
_ALIASED: Final = re.compile(
    r"(?i)\b(?:FROM|JOIN)\s+(`[^`]+`|[A-Za-z_][A-Za-z0-9_]*)(?:\s+(?:AS\s+)?(?!(?:ON|WHERE|JOIN|LEFT|INNER|RIGHT|FULL|WINDOW|GROUP|EMIT|"
    r"WITHIN|GRACE|LIMIT|FOR|PARTITION|HAVING)\b)([A-Za-z_][A-Za-z0-9_]*))?"
)


def proposals(before: str, statement: str, names: Names) -> Iterator[Proposal]:
    """Yield possible texts at the cursor, likely ones first.

    Args:
        before: the statement up to the cursor.
        statement: all of it.
        names: see there.
    """
    sources = _sources(statement, names)
    dotted = _DOTTED.search(before)
    if dotted is not None:
        relation = sources.get(dotted[1].strip("`").lower())
        yield from _columns({relation: names.relations[relation]} if relation else {}, dotted[2])
        return
    word = _WORD.search(before)
    typed = "" if word is None else word.group()
    words = re.findall(r"[A-Za-z_]+", before[: len(before) - len(typed)])
    last = words[-1].upper() if words else ""
    if last in _OF_RELATIONS:
        yield from _matching(
            typed, ((name, f"{names.kinds[name]}, {len(names.relations[name])} columns") for name in names.relations)
        )
        return
    if last in _OF_QUERIES:
        yield from _matching(typed, ((name, "query") for name in names.queries))
        if last != "EXPLAIN":
            return
    used = {name: names.relations[name] for name in dict.fromkeys(sources.values())}
    yield from _columns(used, typed)
    if typed:
        yield from _matching(typed, ((f"{name}(", text) for name, text in names.functions.items()))
        yield from _matching(typed, ((keyword, "") for keyword in KEYWORDS))
        yield from _matching(typed, ((name, names.kinds[name]) for name in names.relations))


def _sources(statement: str, names: Names) -> dict[str, str]:
    """Return alias or name → relation, for the relations that a statement reads."""
    found: dict[str, str] = {}
    for relation, alias in _ALIASED.findall(statement):
        name = relation.strip("`").lower()
        if name in names.relations:
            found[name] = name
            if alias:
                found[alias.lower()] = name
    return found


def _columns(relations: Mapping[str, Mapping[str, str]], typed: str) -> Iterator[Proposal]:
    start = typed.lstrip('`"').lower()
    seen: set[str] = set()
    for relation, columns in relations.items():
        for column, kind in columns.items():
            if column.lower().startswith(start) and column not in seen:
                seen.add(column)
                text = written(column)
                # Offer names in lower case to users who type in lower case: without quotes they mean the same.
                is_lower = text == column and start != "" and typed == typed.lower()
                yield Proposal(text.lower() if is_lower else text, f"{kind} of {relation}", len(typed))


def _matching(typed: str, given: Iterator[tuple[str, str]]) -> Iterator[Proposal]:
    start = typed.lower()
    for text, kind in given:
        if text.lower().startswith(start) and text.lower() != start:
            is_lower = typed != "" and typed == typed.lower()
            yield Proposal(text.lower() if is_lower else text, kind, len(typed))
