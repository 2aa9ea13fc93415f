"""Writes slackwater.json, the dashboard for Grafana: `make deploy-pages`. Panels are lines below; what Grafana wants around them is made here.

Facts about queries and drivers are the same from every process that is scraped, so they are taken once (`once`); what a process counts itself
is added up. The dashboard needs no recording rules.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
SERVICE = 'job="$job", namespace=~"$namespace"'
QUERY = f'{SERVICE}, query=~"$query"'
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24
GREEN, YELLOW, RED = "green", "yellow", "red"
HEARD_OF_S = 45
"""Three leases: who was not heard of for so long has lost its queries."""


@dataclass(frozen=True)
class Panel:
    """One panel.

    Attributes:
        lines: legend → expression.
        unit: of Grafana's.
        limits: value → colour from there on; the first is the least.
        words: value → what is shown instead.
        kind: of Grafana's panels.
    """

    title: str
    description: str
    lines: dict[str, str]
    unit: str = "short"
    width: int = 8
    height: int = 7
    kind: str = "timeseries"
    is_stacked: bool = False
    most: float | None = None
    limits: tuple[tuple[float | None, str], ...] = ((None, GREEN),)
    words: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class Row:
    """Panels below a heading."""

    title: str
    panels: tuple[Panel, ...]


def once(metric: str, selector: str = QUERY) -> str:
    """Return a fact, whichever process told it."""
    return f"max without (instance, pod) ({metric}{{{selector}}})"


def rate_once(metric: str, selector: str = QUERY) -> str:
    """Return how fast a counter of facts rises."""
    return f"max without (instance, pod) (rate({metric}{{{selector}}}[$__rate_interval]))"


def rate_of_all(metric: str, by: str, selector: str = SERVICE) -> str:
    """Return how fast a counter of processes rises, all together."""
    return f"sum by ({by}) (rate({metric}{{{selector}}}[$__rate_interval]))"


def latency(share: float) -> str:
    """Return the time within which so many of all requests to what does not wait on purpose are answered."""
    selector = f'{SERVICE}, route!~".*/changes|.*/events|.*/status|/v1/statements"'
    return (
        f"histogram_quantile({share}, sum by (le) (rate(slackwater_http_request_seconds_bucket{{{selector}}}[$__rate_interval])))"
    )


def stat(title: str, description: str, expression: str, **more: Any) -> Panel:
    """Return a panel with one number."""
    return Panel(title, description, {"": expression}, kind="stat", width=3, height=4, **more)


RUNNING, FAILED = SERVICE + ', state="running"', SERVICE + ', state="failed"'
READY = SERVICE + ', phase="ready"'
LATE = SERVICE + ', reason=~"late_dropped|late_diverted|window_closed|join_window_closed|table_history_expired"'
ROWS = (
    Row(
        "At a glance",
        (
            stat("Processes", "Processes of the service that Prometheus reaches.", 'sum(up{job="$job", namespace=~"$namespace"})',
                 limits=((None, RED), (1, GREEN))),
            stat("Database", "Whether a process can read the database.", f"max(slackwater_database_up{{{SERVICE}}})",
                 limits=((None, RED), (1, GREEN)), words=(("0", "away", RED), ("1", "up", GREEN))),
            stat("Drivers ready", "Drivers that take queries and were heard of within three leases.",
                 f'count({once("slackwater_driver_heartbeat_age_seconds", READY)} < {HEARD_OF_S}) or vector(0)',
                 limits=((None, RED), (1, GREEN))),
            stat("Running", "Queries that run.", f'sum({once("slackwater_queries", RUNNING)}) or vector(0)'),
            stat("Failed", "Queries that have failed and do not start again by themselves.",
                 f'sum({once("slackwater_queries", FAILED)}) or vector(0)',
                 limits=((None, GREEN), (1, RED))),
            stat("Worst lag", "Age of the oldest record that some query has not read yet.",
                 f'max({once("slackwater_query_lag_seconds", SERVICE)})', unit="s", limits=((None, GREEN), (60, YELLOW), (300, RED))),
            stat("Read", "Records that all queries read in a second.",
                 f'sum({rate_once("slackwater_query_read_records_total", SERVICE)})', unit="rowsps"),
            stat("Late", "Records that came too late to count, in a second.",
                 f'sum({rate_once("slackwater_query_counted_records_total", LATE)}) or vector(0)',
                 unit="rowsps", limits=((None, GREEN), (0.001, YELLOW))),
        ),
    ),
    Row(
        "Queries",
        (
            Panel(
                "Queries", "Every query that is chosen above: its state, what is unread, when it committed last, how much of its time it works.",
                {
                    "state": f'max by (query, state) (slackwater_query_state{{{QUERY}}} == 1)',
                    "lag": f'max by (query) (slackwater_query_lag_seconds{{{QUERY}}})',
                    "unread": f'sum by (query) ({once("slackwater_query_lag_records")})',
                    "committed": f'max by (query) (slackwater_query_commit_age_seconds{{{QUERY}}})',
                    "busy": f'sum by (query) ({once("slackwater_query_busy_ratio")})',
                    "waiting": f'sum by (query) ({once("slackwater_query_buffered_rows")})',
                    "failed launches": f'max by (query) (slackwater_query_attempt{{{QUERY}}})',
                },
                kind="table", width=24, height=9,
            ),
            Panel("Read", "Records that a query reads in a second, over its feeds.",
                  {"{{query}}": f'sum by (query) ({rate_once("slackwater_query_read_records_total")})'}, unit="rowsps"),
            Panel("Written", "Changes that a query writes to its result in a second.",
                  {"{{query}}": f'max by (query) ({rate_once("slackwater_query_emitted_records_total")})'}, unit="rowsps"),
            Panel("Lag", "Age of the oldest record of a feed that the query has not read yet. 0: it has read all.",
                  {"{{query}} {{feed}}": f'max by (query, feed) ({once("slackwater_query_lag_seconds")})'}, unit="s"),
            Panel("Unread", "Records of a feed that the query has not read yet.",
                  {"{{query}} {{feed}}": f'max by (query, feed) ({once("slackwater_query_lag_records")})'}),
            Panel("Held back", "How long a topic has stood still behind a transaction that has not ended. 0: behind none.",
                  {"{{query}} {{feed}}": f'max by (query, feed) ({once("slackwater_query_blocked_by_producer_seconds")})'}, unit="s"),
            Panel("Busy", "Share of the last ten seconds that a query works. Near 1 it has nothing to spare.",
                  {"{{query}} {{part}}": f'max by (query, part) ({once("slackwater_query_busy_ratio")})'}, unit="percentunit", is_stacked=True),
            Panel("Functions", "Share of the last ten seconds that a query waits for its functions in Python.",
                  {"{{query}} {{function}}": f'max by (query, function) ({once("slackwater_query_function_ratio")})'}, unit="percentunit"),
            Panel("Last batch", "How long the last batch took: process (the operators), sink (the commit), and Spark's own phases.",
                  {"{{query}} {{phase}}": f'max by (query, phase) ({once("slackwater_query_batch_seconds")})'}, unit="s"),
            Panel("Batches", "Batches that a query commits in a second.",
                  {"{{query}}": f'max by (query) ({rate_once("slackwater_query_batches_total")})'}, unit="ops"),
            Panel("Since the last commit", "It rises where nothing comes, and where a batch takes long.",
                  {"{{query}}": f'max by (query) ({once("slackwater_query_commit_age_seconds")})'}, unit="s"),
            Panel("Launches", "How often a query was launched in the last quarter of an hour. One is an edit or a move; many are a fault.",
                  {"{{query}}": f'max by (query) (increase(slackwater_query_launches_total{{{QUERY}}}[15m]))'}),
        ),
    ),
    Row(
        "Time",
        (
            Panel("Stream time behind the clock", "How far the result's stream time is behind the clock. Below 0 a record has set it ahead.",
                  {"{{query}}": f'time() - max by (query) ({once("slackwater_query_stream_time_seconds")})'}, unit="s"),
            Panel("Operators behind the clock", "The same before each operator. A time that stands still delays all operators behind.",
                  {"{{query}} {{operator}}": f'time() - max by (query, operator) ({once("slackwater_query_clock_seconds")})'}, unit="s"),
            Panel("Oldest that waits", "By how much event time the oldest waiting row is behind the clock that it waits for.",
                  {"{{query}} {{operator}}": f'max by (query, operator) ({once("slackwater_query_oldest_waiting_seconds")})'}, unit="s"),
            Panel("Rows that wait", "Rows that wait in an operator for their grace period, their window's end or their partner.",
                  {"{{query}} {{operator}}": f'max by (query, operator) ({once("slackwater_query_buffered_rows")})'}),
            Panel("Bytes that wait", "The same in bytes, of operators that know it.",
                  {"{{query}} {{operator}}": f'max by (query, operator) ({once("slackwater_query_buffered_bytes")})'}, unit="bytes"),
            Panel("Late, dropped, refused", "What did not count, by reason, in a second. It can be read at /late-records and /rejects.",
                  {"{{query}} {{input}} {{reason}}":
                   f'max by (query, input, reason) ({rate_once("slackwater_query_counted_records_total")}) > 0'}, unit="rowsps"),
        ),
    ),
    Row(
        "Results",
        (
            Panel("Waits for delivery", "Age of the oldest row of a result that its target does not have yet.",
                  {"{{query}}": f'max by (query) ({once("slackwater_delivery_lag_seconds")})'}, unit="s"),
            Panel("Rows to deliver", "Rows of a result that its target does not have yet.",
                  {"{{query}}": f'max by (query) ({once("slackwater_delivery_lag_rows")})'}),
            Panel("Delivered", "Rows that are delivered in a second.",
                  {"{{query}}": f'max by (query) ({rate_once("slackwater_delivered_rows_total")})'}, unit="rowsps"),
            Panel("Deliveries", "The state each delivery is in.",
                  {"{{query}} {{state}}": f'max by (query, state) ({once("slackwater_delivery_state")})'}, most=1),
            Panel("Failed deliveries", "Attempts that failed in the last quarter of an hour; they are made again.",
                  {"{{query}}": f'max by (query) (increase(slackwater_delivery_failures_total{{{QUERY}}}[15m]))'}),
            Panel("State", "Size of a query's state on the disk of the scraped machine. State in an object store is not in it.",
                  {"{{query}}": f'max by (query) ({once("slackwater_query_state_bytes")})'}, unit="bytes"),
        ),
    ),
    Row(
        "Service",
        (
            Panel("Requests", "Requests answered in a second, by status.",
                  {"{{status}}": rate_of_all("slackwater_http_requests_total", "status")}, unit="reqps", is_stacked=True),
            Panel("Time to answer", "Of requests that do not wait on purpose: half, and all but one in a hundred, are answered within it.",
                  {"half": latency(0.5), "99 %": latency(0.99)}, unit="s"),
            Panel("Refused", "Requests refused for overload (429) in a second, by the limit that they met.",
                  {"{{limit}}": rate_of_all("slackwater_requests_refused_total", "limit")}, unit="reqps"),
            Panel("Appended", "Records appended through HTTP in a second.",
                  {"{{relation}}": rate_of_all("slackwater_appended_records_total", "relation")}, unit="rowsps"),
            Panel("Rejected at append", "Records refused at append in a second, by reason; each relation's /rejects shows them.",
                  {"{{relation}} {{reason}}": rate_of_all("slackwater_rejected_records_total", "relation, reason")}, unit="rowsps"),
            Panel("Event streams", "Open event streams, and how many the service ended in a second, by reason.",
                  {"open": f"sum(slackwater_push_streams{{{SERVICE}}})",
                   "ended: {{reason}}": rate_of_all("slackwater_push_streams_closed_total", "reason")}),
            Panel("Log", "Group commits of appends, and batches that retention removed, in a second.",
                  {"commits": f"sum(rate(slackwater_append_transactions_total{{{SERVICE}}}[$__rate_interval]))",
                   "removed": f"sum(rate(slackwater_log_trimmed_batches_total{{{SERVICE}}}[$__rate_interval]))"}, unit="ops"),
        ),
    ),
    Row(
        "Drivers",
        (
            Panel("Queries of each driver", "How many queries each driver holds, and how many it takes at most.",
                  {"{{driver}}": f'max by (driver) ({once("slackwater_driver_queries", SERVICE)})',
                   "{{driver}} at most": f'max by (driver) ({once("slackwater_driver_max_queries", SERVICE)})'}, width=12),
            Panel("Heard of", "Time since each driver was heard of. One that ended without a word stays here for a day.",
                  {"{{driver}} {{phase}}": f'max by (driver, phase) ({once("slackwater_driver_heartbeat_age_seconds", SERVICE)})'},
                  unit="s", width=12),
        ),
    ),
)  # fmt: skip


def targets(panel: Panel) -> list[Json]:
    """Return what Grafana asks Prometheus for."""
    is_table = panel.kind == "table"
    instant = {"instant": True, "range": False, "format": "table"} if is_table else {"range": True, "format": "time_series"}
    return [
        {"refId": chr(ord("A") + place), "datasource": SOURCE, "expr": expression, "legendFormat": legend or "__auto", **instant}
        for place, (legend, expression) in enumerate(panel.lines.items())
    ]


def field_config(panel: Panel) -> Json:
    """Return units, colours and how lines are drawn."""
    defaults: Json = {
        "unit": panel.unit,
        "thresholds": {"mode": "absolute", "steps": [{"color": colour, "value": value} for value, colour in panel.limits]},
        "mappings": [
            {"type": "value", "options": {value: {"text": text, "color": colour, "index": place}}}
            for place, (value, text, colour) in enumerate(panel.words)
        ],
        "color": {"mode": "thresholds" if panel.kind == "stat" else "palette-classic"},
    }
    if panel.kind == "timeseries":
        stacking = {"group": "A", "mode": "normal" if panel.is_stacked else "none"}
        defaults["custom"] = {
            "drawStyle": "line", "lineWidth": 1, "fillOpacity": 25 if panel.is_stacked else 8, "showPoints": "never", "spanNulls": False,
            "stacking": stacking,
        }  # fmt: skip
        defaults["min"] = None if "behind" in panel.title else 0
        if panel.most is not None:
            defaults["max"] = panel.most
    return {"defaults": defaults, "overrides": overrides(panel) if panel.kind == "table" else []}


_COLUMN_UNITS = {"lag": "s", "committed": "s", "busy": "percentunit"}


def overrides(panel: Panel) -> list[Json]:
    """Return the units of a table's columns, and the colours of states."""
    found = [
        {"matcher": {"id": "byName", "options": name}, "properties": [{"id": "unit", "value": unit}]}
        for name, unit in _COLUMN_UNITS.items()
        if name in panel.lines
    ]
    colours = {"running": GREEN, "failed": RED, "backoff": YELLOW, "starting": YELLOW, "stopping": YELLOW}
    words = {state: {"color": colour, "index": place} for place, (state, colour) in enumerate(colours.items())}
    state = [
        {"id": "mappings", "value": [{"type": "value", "options": words}]},
        {"id": "custom.cellOptions", "value": {"type": "color-text"}},
    ]
    return [*found, {"matcher": {"id": "byName", "options": "state"}, "properties": state}]


def transformations(panel: Panel) -> list[Json]:
    """Return how the answers of a table become one row for each query."""
    names = list(panel.lines)
    values = {f"Value #{chr(ord('A') + place)}": name for place, name in enumerate(names) if name != "state"}
    order = {"query": 0, "state": 1} | {value: place + 2 for place, value in enumerate(values)}
    return [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {"excludeByName": {"Time": True, "Value #A": True}, "indexByName": order, "renameByName": values},
        },
    ]


def panel_options(kind: str) -> Json:
    """Return what only one kind of panel has."""
    if kind == "stat":
        return {
            "colorMode": "background_solid",
            "graphMode": "none",
            "textMode": "value",
            "reduceOptions": {"calcs": ["lastNotNull"]},
        }
    if kind == "table":
        return {"showHeader": True, "cellHeight": "sm", "sortBy": [{"displayName": "lag", "desc": True}]}
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def panels() -> list[Json]:
    """Return all rows and panels, each with its place."""
    made: list[Json] = []
    x = y = height = 0
    for row in ROWS:
        y, x, height = y + height, 0, 0
        made.append(
            {
                "id": len(made) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "panels": [],
                "gridPos": place(0, y, WIDTH, 1),
            }
        )
        y += 1
        for panel in row.panels:
            if x + panel.width > WIDTH:
                y, x, height = y + height, 0, 0
            made.append(
                {
                    "id": len(made) + 1,
                    "type": panel.kind,
                    "title": panel.title,
                    "description": panel.description,
                    "datasource": SOURCE,
                    "gridPos": place(x, y, panel.width, panel.height),
                    "targets": targets(panel),
                    "fieldConfig": field_config(panel),
                    "options": panel_options(panel.kind),
                    "transformations": transformations(panel) if panel.kind == "table" else [],
                }
            )
            x, height = x + panel.width, max(height, panel.height)
    return made


def place(x: int, y: int, width: int, height: int) -> Json:
    return {"x": x, "y": y, "w": width, "h": height}


def variable(name: str, label: str, question: str, *, is_many: bool) -> Json:
    """Return a choice at the top of the dashboard, filled from Prometheus."""
    chosen: Json = (
        {"includeAll": True, "allValue": ".*", "multi": True, "current": {"text": ["All"], "value": ["$__all"]}}
        if is_many
        else {}
    )
    return {
        "type": "query", "name": name, "label": label, "datasource": SOURCE, "query": {"query": question, "refId": name}, "definition": question,
        "refresh": 2, "sort": 1, **chosen,
    }  # fmt: skip


def dashboard() -> Json:
    """Return the whole dashboard."""
    choices = [
        {"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus", "refresh": 1},
        variable("job", "Job", "label_values(slackwater_database_up, job)", is_many=False),
        variable("namespace", "Namespace", 'label_values(slackwater_database_up{job="$job"}, namespace)', is_many=True),
        variable("query", "Query", f"label_values(slackwater_query_state{{{SERVICE}}}, query)", is_many=True),
    ]
    return {
        "uid": "slackwater",
        "title": "Slackwater",
        "description": "Queries, their time and lag, what waits and what was late; deliveries, the service, its drivers.",
        "tags": ["slackwater"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": choices},
        "annotations": {"list": []},
        "links": [],
        "panels": panels(),
    }


def text() -> str:
    """Return it as the file has it."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
