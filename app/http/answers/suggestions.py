"""Suggestions for requests that nearly match a path of the service. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

Paths = Mapping[str, Set[str]]
"""The path templates of the service, each with its methods."""

LIKE_ENOUGH = 0.6
"""The default of difflib."""

MAX_PATH_CHARS = 300
MAX_PART_CHARS = 80
"""Length of one part of a path. Names have at most 63 characters. A longer path gets no suggestion: the cost of a comparison grows faster
than its length, and anybody may send one."""

_DESIRED_STATES = {
    "start": "running", "resume": "running", "run": "running", "unpause": "running", "pause": "paused", "stop": "stopped",
    "cancel": "stopped", "terminate": "stopped",
}  # fmt: skip
_RESULT = (
    "a query's result is a stream or a table of its own: `definition.into` of GET /v1/queries/{name} names it; GET /v1/streams/{{name}}/records"
    " or GET /v1/tables/{{name}}/rows reads it"
)


@dataclass(frozen=True, slots=True)
class _Miss:
    """A common wrong request, and the suggestion for it.

    Attributes:
        pattern: of the whole path.
        hint: with the pattern's groups as fields.
        methods: to which it applies; empty: all.
    """

    pattern: str
    hint: str
    methods: frozenset[str] = frozenset()


_READ = frozenset({"GET", "HEAD"})
_OF_STREAMS = r"/v1/streams/(?P<name>[^/]+)"
_OF_TABLES = r"/v1/tables/(?P<name>[^/]+)"
_OF_QUERIES = r"/v1/queries/(?P<name>[^/]+)"
MISSES: Sequence[_Miss] = (
    _Miss(_OF_STREAMS + r"/rows(?:[/:].*)?", "a stream has records, no rows: GET /v1/streams/{name}/records reads them"),
    _Miss(_OF_TABLES + r"/records/?", "GET /v1/tables/{name}/rows reads a table's rows, GET /v1/tables/{name}/changes what changed", _READ),
    _Miss(_OF_TABLES + r"/(?:rows/)?lookup", "POST /v1/tables/{name}/rows:lookup reads the rows of many keys"),
    _Miss(_OF_TABLES + r"/rows(?:/.*)?", "POST /v1/tables/{name}/records appends puts and deletes", frozenset({"POST", "PUT", "DELETE"})),
    _Miss(r"/v1/(?P<kind>streams|tables)/(?P<name>[^/]+)/records", "POST /v1/{kind}/{name}/records appends", frozenset({"PUT"})),
    _Miss(r"/v1/(?P<kind>streams|tables)/?", "PUT /v1/{kind}/{{name}} registers one: the name stands in the path", frozenset({"POST"})),
    _Miss(
        r"/v1/(?:streams|tables)/[^/]+/(?:late-records|lateness|explain|status)",
        "that belongs to a query: GET /v1/queries lists them, and `produced_by` and `read_by` of a relation name its own",
    ),
    _Miss(r"/v1/(?:relations|sources|topics|views)(?:/.*)?", "relations are streams and tables: GET /v1/streams, GET /v1/tables"),
    _Miss(_OF_QUERIES + r"/(?:records|rows|results?|output|changes)(?:[/:].*)?", _RESULT),
    _Miss(_OF_QUERIES + r"/(?:rejects|lineage)", "that belongs to relations: GET /v1/streams/{{name}}/rejects, GET /v1/tables/{{name}}/rejects"
          ", GET /v1/streams/{{name}}/lineage, GET /v1/tables/{{name}}/lineage"),
    _Miss(_OF_QUERIES + r"/(?P<verb>" + "|".join(_DESIRED_STATES) + ")", 'PUT /v1/queries/{name}/desired-state with {{"state": "{state}"}}'),
    _Miss(
        _OF_QUERIES + r"/(?:state|desired[-_]state)",
        "GET /v1/queries/{name}/status shows it, PUT /v1/queries/{name}/desired-state changes it",
    ),
    _Miss(_OF_QUERIES + r"/replay", "POST /v1/queries/{name}/late-records/replay replays late records"),
    _Miss(r"/v1/(?:validate|validation|(?:queries/(?:[^/]+/)?)?(?:validate|validations?|plan))", "POST /v1/validations checks a definition"),
    _Miss(r"(?:/v1)?/(?:health|healthz|livez|liveness|ping)/?", "GET /healthz says whether the service lives, GET /readyz whether it can serve"),
    _Miss(r"(?:/v1)?/(?:ready|readyz|readiness|status)/?", "GET /readyz says whether the service can serve"),
    _Miss(r"/v1/metrics", "GET /metrics has them"),
)  # fmt: skip


def hint_for(method: str, path: str, paths: Paths) -> str | None:
    """Return what a request without a matching path or method likely meant; None if no path is similar, or it is over ``MAX_PATH_CHARS``."""
    if len(path) > MAX_PATH_CHARS or max(map(len, path.split("/"))) > MAX_PART_CHARS:
        return None
    for miss in MISSES:
        match = re.fullmatch(miss.pattern, path)
        if match is not None and (not miss.methods or method in miss.methods):
            groups = match.groupdict()
            return miss.hint.format(**groups, state=_DESIRED_STATES.get(groups.get("verb") or "", ""))
    if method == "PATCH":
        return "PUT replaces the whole definition; read it first, and send it back changed" if _fits(path, paths) else None
    return _nearest(path, paths)


def _nearest(path: str, paths: Paths) -> str | None:
    requested = path.strip("/").split("/")
    near: list[tuple[float, str]] = []
    for template in paths:
        for candidate in (requested, ["v1", *requested]):
            parts = template.strip("/").split("/")
            if len(parts) == len(candidate):
                likeness = min(map(_likeness, candidate, parts))
                near.append((likeness, "/" + "/".join(map(_filled, candidate, parts))))
    best = max(near, default=(0.0, ""), key=lambda each: each[0])
    return f"did you mean {best[1]}?" if best[0] >= LIKE_ENOUGH and best[1] != path else None


def _likeness(requested: str, part: str) -> float:
    return 1.0 if part.startswith("{") and requested else difflib.SequenceMatcher(None, requested.lower(), part).ratio()


def _filled(requested: str, part: str) -> str:
    return requested if part.startswith("{") else part


def _fits(path: str, paths: Paths) -> bool:
    parts = path.split("/")
    return any(
        len(parts) == len(template_parts)
        and all(mine.startswith("{") or mine == given for mine, given in zip(template_parts, parts, strict=True))
        for template_parts in (template.split("/") for template in paths)
    )
