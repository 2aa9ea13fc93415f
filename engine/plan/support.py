"""What this release executes. Everything else that a definition may say is refused by name, never ignored."""

from __future__ import annotations

from engine.definition.queries import Into, Join, QueryDefinition, Suppress, Window
from engine.plan.problems import Problems

CODE = "not_supported_yet"


def check_support(definition: QueryDefinition, problems: Problems) -> None:
    """Add a problem for every part of the definition that a later release will execute."""
    if definition.source.table is not None:
        problems.add("/from/table", CODE, "queries over tables come later; read a stream: {'stream': name}")
    if definition.idle is not None:
        problems.add("/idle", CODE, "closing on silence comes later; leave `idle` out: stream time then advances by records only")
    for index, join in enumerate(definition.joins):
        _check_join(join, f"/joins/{index}", problems)
    if definition.window is not None:
        _check_window(definition.window, problems)
    elif definition.group_by or definition.aggregate:
        problems.add("/window", CODE, "running aggregation without a window comes later; give a tumbling or hopping window")
    _check_suppress(definition.suppress, problems)
    _check_into(definition.into, problems)


def _check_join(join: Join, pointer: str, problems: Problems) -> None:
    if join.stream is not None:
        problems.add(f"{pointer}/stream", CODE, "stream–stream joins come later; join a table: {'table': name}")
    if join.within is not None:
        problems.add(f"{pointer}/within", CODE, "`within` belongs to stream–stream joins, which come later")
    if join.type in ("right", "outer"):
        problems.add(f"{pointer}/type", "unsupported_pair", "a stream joins a table by `inner` or `left`")
    if join.hold is not None:
        problems.add(f"{pointer}/hold", CODE, "holding on the table's progress comes later; a larger `grace` waits by event time")
    if join.history != "latest":
        problems.add(f"{pointer}/history", CODE, "`history: complete` belongs to table–table joins, which come later")


def _check_window(window: Window, problems: Problems) -> None:
    if window.type in ("sliding", "session"):
        problems.add("/window/type", CODE, f"{window.type} windows come later; use tumbling or hopping")


def _check_suppress(suppress: Suppress, problems: Problems) -> None:
    if suppress.mode not in ("none", "until_window_closes"):
        problems.add("/suppress/mode", CODE, f"`{suppress.mode}` comes later; use none or until_window_closes")
    if suppress.limit is not None and suppress.mode in ("none", "until_window_closes"):
        problems.add("/suppress/limit", "limit_without_mode", f"`{suppress.mode}` takes no limit; leave it out")
    if suppress.buffer is not None:
        problems.add("/suppress/buffer", CODE, "bounds of the buffer come later; the buffer is on disk and has none")
    if suppress.event_driven:
        problems.add("/suppress/event_driven", CODE, "`event_driven` belongs to until_wall_clock_time_limit, which comes later")


def _check_into(into: Into, problems: Problems) -> None:
    if into.connector is not None:
        problems.add("/into/connector", CODE, "sending results out comes later; read them over HTTP or from the schema `views`")
    if into.versioned is not None:
        problems.add("/into/versioned", CODE, "versioned results come later; leave `versioned` out")
    if into.materialize_open:
        problems.add("/into/materialize_open", CODE, "reading open windows comes later; suppress mode none shows every change")
