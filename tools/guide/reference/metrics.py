"""Every metric, made of the list that `/metrics` answers from."""

from __future__ import annotations

from collections.abc import Iterable

from app.telemetry.metric_list import DATABASE_UP, OF_FACTS, OF_PROCESS, Metric
from tools.guide.markdown import code, page, table


def metrics() -> str:
    """Return the page."""
    return page(
        "# Metrics",
        "`GET /metrics` answers Prometheus. Names end with the unit; counters end with `_total`. Labels hold names of queries, relations, "
        "operators and drivers, never keys or texts of queries.",
        "## Of one process",
        "Each process of the service counts these from its own start on: add them up over all processes.",
        _table(OF_PROCESS),
        "## Of the whole service",
        "The database has these, so every process answers the same: take one of them, not their sum.",
        _table((DATABASE_UP, *OF_FACTS)),
    )


def _table(listed: Iterable[Metric]) -> str:
    rows = ((code(each.name), each.kind, ", ".join(map(code, each.labels)), each.help) for each in listed)
    return table(("Metric", "Kind", "Labels", "Meaning"), rows)
