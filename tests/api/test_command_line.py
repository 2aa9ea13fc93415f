"""The command line against a real service: what commands ask, print and leave behind."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from slackwater import Client
from slackwater.cli.program import cli
from typer.testing import CliRunner, Result

from app.main.main import create_app
from app.settings.settings import Settings
from tests.api.change_writer import ChangeWriter
from tests.api.conftest import JOIN, RECORD, STREAM, TABLE, WINDOWS
from tests.api.live_server import live
from tests.conftest import ROOT
from tests.guide.blocks import steps

Run = Callable[..., Result]
TOTALS = {"name": "totals", "from": {"stream": "departures"}, "group_by": ["origin"], "aggregate": {"flights": "count(*)"},
          "into": {"table": "totals"}}  # fmt: skip


@pytest.fixture(scope="module")
def url(settings: Settings) -> Iterator[str]:
    with live(create_app(settings)) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Client]:  # type: ignore[override]  # the blocking one, in the place of the others'
    with Client(url) as client:
        yield client


@pytest.fixture
def filled(client: Client) -> Client:
    client.stream("departures").register(STREAM)
    client.table("weather").register(TABLE)
    client.queries.create(TOTALS)
    return client


@pytest.fixture
def run(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SLACKWATER_URL", url)

    def running(*arguments: str, exits: int = 0, text: str | None = None) -> Result:
        result = CliRunner().invoke(cli, arguments, input=text, catch_exceptions=False)
        assert result.exit_code == exits, (result.stdout, result.stderr)
        return result

    return running


def told(result: Result) -> Any:
    return json.loads(result.stdout)


# --- contexts and looking ---


def test_a_context_is_added_used_and_removed_and_its_key_is_never_shown(
    run: Run, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLACKWATER_URL")
    assert "answers: Slackwater" in run("context", "add", "here", "--url", url, "--key", "sw_secret").stdout
    listed = run("context", "list")
    assert "here" in listed.stdout
    assert "secret" not in listed.stdout + run("context", "list", "--json").stdout
    assert told(run("context", "list", "--json"))["service"] == {"url": url, "key": True, "from": "context here"}
    assert "there are no queries" in run("get", "queries").stderr
    run("context", "add", "away", "--url", "http://127.0.0.1:9", "--no-key", exits=4)
    run("context", "add", "away", "--url", "http://127.0.0.1:9", "--no-key", "--no-check", "--use")
    run("get", exits=4)
    run("--context", "here", "get")
    assert told(run("context", "use", "here", "--json"))["current"] is True
    assert told(run("context", "remove", "away", "--json")) == {"removed": "away"}
    run("context", "use", "away", exits=2)


def test_what_there_is_is_listed(run: Run, filled: Client) -> None:
    text = run("get").stdout
    assert [word in text for word in ("departures", "weather", "totals", "source", "stopped")] == [True] * 5
    assert [each["name"] for each in told(run("get", "streams", "--json"))] == ["departures"]
    assert told(run("get", "table", "weather", "--json"))["key"] == ["origin"]
    missed = run("get", "queries", "totls", exits=1)
    assert "did you mean totals?" in missed.stderr
    assert "slackwater describe totals" in run("get", "totals", exits=2).stderr


def test_a_name_is_described_as_query_and_result(run: Run, filled: Client) -> None:
    text = run("describe", "totals").stdout
    assert [word in text for word in ("Query", "Table", "CREATE TABLE", "flights", "bigint")] == [True] * 5
    assert set(told(run("describe", "totals", "--json"))) == {"query", "relation"}
    assert set(told(run("describe", "query/totals", "--json"))) == {"query"}
    assert re.search(r"flights +bigint", text)
    assert "history" in run("describe", "weather").stdout.lower()
    assert "slackwater get lists" in run("describe", "xyzzy", exits=1).stderr


def test_a_status_says_why_and_errors_have_code_and_cure(run: Run, filled: Client) -> None:
    text = run("status", "totals").stdout
    assert "no_driver" in text
    assert told(run("status", "totals", "--json"))["name"] == "totals"
    assert "totals" in run("status").stdout
    assert told(run("status", "totals", "--wait", "stopped", "--tasks", "--json"))["tasks"] == []
    assert "no task has handled a record yet" in run("status", "totals", "--wait", "stopped", "--tasks").stderr
    waited = run("status", "totals", "--wait", "running", "--timeout", "0", exits=1)
    assert "not_reached" in waited.stderr
    assert "there is no query 'nowhere'" in run("status", "nowhere", exits=1).stderr
    failed = run("explain", "totals", exits=1)
    assert "(bad_parameter)" in failed.stderr
    assert "→ " in failed.stderr
    as_json = json.loads(run("explain", "totals", "--json", exits=1).stderr)
    assert (as_json["error"]["code"], bool(as_json["error"]["cure"])) == ("bad_parameter", True)


def test_the_tasks_of_several_queries_are_shown_with_the_name_of_each(run: Run, filled: Client, dsn: str) -> None:
    filled.queries.create({**TOTALS, "name": "others", "into": {"table": "others"}})
    detail = json.dumps({"clocks": {"aggregate": 7, "w": 9}, "buffered": {"aggregate": {"0": 0, "1": 3}}})
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "INSERT INTO log.commit (query_id, checkpoint_id, epoch, batch_id, committed_at, position, stream_time_ms, detail) "
            "SELECT id, checkpoint_id, 1, 0, now(), '{}', 7, %s FROM slackwater.query WHERE name IN ('others', 'totals')",
            (detail,),
        )
    text = run("status", "others", "totals", "--tasks").stdout
    assert re.findall(r"^(\w+) +aggregate +(\d) +(\d)$", text, re.MULTILINE) == [
        ("others", "0", "0"), ("others", "1", "3"), ("totals", "0", "0"), ("totals", "1", "3"),
    ]  # fmt: skip
    alone = run("status", "totals", "--tasks").stdout
    assert "NAME" not in alone
    assert "1970-01-01T00:00:00.009Z before w" in alone
    assert "before aggregate" not in alone, "it is the time of the result"
    assert "TASK" not in run("status", "others", "totals").stdout


def test_an_explanation_is_a_sentence_with_its_steps(run: Run, filled: Client) -> None:
    filled.stream("departures").append([RECORD])
    text = run("explain", "totals", "JFK", "--at", RECORD["departed_at"]).stdout
    assert "not_read_yet" in text
    assert told(run("explain", "totals", "origin=JFK", "--at", RECORD["departed_at"], "--json"))["query"] == "totals"


def test_changes_are_followed_to_the_present_end_or_a_limit(run: Run, filled: Client, dsn: str) -> None:
    with ChangeWriter(dsn, "totals") as writer:
        writer.commit([("upsert", {"origin": "JFK", "flights": 3}, 5), ("delete", {"origin": "LGA", "flights": None}, 6)])
    text = run("tail", "totals", "--from", "earliest", "--no-follow").stdout
    assert text.splitlines() == ["1970-01-01T00:00:00.005Z + origin=JFK  flights=3", "1970-01-01T00:00:00.006Z - origin=LGA"]
    lines = [
        json.loads(line) for line in run("tail", "table/totals", "--from", "earliest", "-n", "1", "--json").stdout.splitlines()
    ]
    (first,) = lines
    assert (first["op"], first["row"]["flights"]) == ("upsert", 3)
    rest = run("tail", "totals", "--cursor", first["cursor"], "--no-follow", "--json").stdout
    assert json.loads(rest)["op"] == "delete"
    assert "name what it writes" in run("tail", "query/totals", exits=2).stderr


def test_events_and_late_records_are_shown(run: Run, filled: Client) -> None:
    assert "query_created" in run("events", "totals").stdout
    assert json.loads(run("events", "totals", "--json").stdout.splitlines()[0])["kind"] == "query_created"
    assert "none are kept" in run("late", "totals").stderr
    assert told(run("late", "totals", "--json")) == []
    assert told(run("late", "totals", "--graces", "--json"))["query"] == "totals"
    assert "Nobody can be asked" in run("replay", "totals", exits=2).stderr
    assert "0 go through the query again" in run("replay", "totals", "--yes").stdout


# --- steering and feeding ---


def test_queries_are_steered_forked_and_deleted(run: Run, filled: Client) -> None:
    assert "totals: stopped now, will be paused" in run("pause", "totals").stdout
    assert filled.query("totals").info().desired_state == "paused"
    assert told(run("resume", "totals", "--json"))[0]["desired_state"] == "running"
    run("restart", "query/totals")
    run("stop", "totals")
    (waited,) = told(run("stop", "totals", "--wait", "--json"))
    assert (waited["state"], waited["desired_state"], "counters" in waited) == ("stopped", "stopped", True)
    assert "there is no query" in run("pause", "totls", exits=1).stderr
    assert "goes on from totals" in run("fork", "totals", "totals_wider", "--paused").stdout
    assert "goes with its state" in run("delete", "totals_wider", "--yes").stderr
    assert "totals_wider" not in run("get", "queries").stdout
    assert "table/totals is none" in run("delete", "table/totals", "--keep-result", "--yes", exits=2).stderr
    assert "(relation_is_derived)" in run("delete", "table/totals", "--yes", exits=1).stderr
    assert "(relation_in_use)" in run("delete", "stream/departures", "--yes", exits=1).stderr
    run("delete", "query/totals", "stream/departures", "--yes")
    run("delete", "weather", exits=2)
    assert [each.name for each in (*filled.streams(), *filled.tables())] == ["weather"]


def test_records_are_appended_from_arguments_pipes_and_files(run: Run, filled: Client, tmp_path: Path) -> None:
    line = json.dumps(RECORD)
    assert "1 appended to departures" in run("append", "departures", line).stdout
    assert told(run("append", "departures", "--json", text=f"{line}\n\n{line}\n"))["appended"] == 2
    lines, table = tmp_path / "a.ndjson", tmp_path / "b.csv"
    lines.write_text(f"{line}\n" * 3)
    table.write_text("origin,flight,delay,departed_at\nEWR,9,,2013-01-01T10:00:00Z\n")
    assert "3 appended" in run("load", "departures", str(lines), str(table)).stdout
    assert sum(part.next_offset for part in filled.stream("departures").info().partitions or ()) == 7
    lines.write_text(f'{line}\n{{"flight": "x"}}\n')
    partly = run("load", "departures", str(lines), exits=1)
    assert "1 appended" in partly.stdout
    assert "record 1: wrong_type" in " ".join(partly.stderr.split())
    assert told(run("append", "departures", '{"flight": "x"}', "--json", exits=1))["rejects"][0]["code"] == "wrong_type"
    assert "line 2 of standard input" in run("append", "departures", text=f"{line}\n{{\n", exits=1).stderr
    odd = tmp_path / "c.odd"
    odd.write_text("")
    assert "its name does not say what is in it" in run("load", "departures", str(odd), exits=1).stderr


# --- definitions in files ---


@pytest.fixture
def files(tmp_path: Path) -> Path:
    root = tmp_path / "definitions"
    (root / "queries").mkdir(parents=True)
    (root / "a_join.json").write_text(
        json.dumps({"query": "joined", **{name: part for name, part in JOIN.items() if name != "name"}})
    )
    (root / "queries" / "delays.yaml").write_text(
        "query: delays\nfrom: {stream: departures}\ngroup_by: [origin]\n"
        "window: {type: tumbling, size: 1h, grace: 30m}\naggregate: {flights: count(*)}\n"
        "suppress: {mode: until_window_closes}\ninto: {table: delays}\n"
    )
    (root / "sources.json").write_text(json.dumps([{"stream": "departures", **STREAM}, {"table": "weather", **TABLE}]))
    (root / "rides.sql").write_text(
        "-- rides of the city\nCREATE STREAM rides (id STRING KEY, miles INT) WITH (KAFKA_TOPIC='rides', VALUE_FORMAT='JSON');\n"
        "CREATE TABLE miles AS SELECT id, SUM(miles) AS miles FROM rides GROUP BY id;\n"
        "CREATE STREAM far AS SELECT * FROM rides WHERE miles > 10;\n"
        "CREATE STREAM more (id STRING KEY, miles INT) WITH (KAFKA_TOPIC='more', VALUE_FORMAT='JSON');\n"
        "INSERT INTO rides SELECT * FROM more;\n"
    )
    return root


def test_files_are_applied_to_an_empty_service_and_again_change_nothing(run: Run, files: Path, client: Client) -> None:
    root = str(files)
    planned = run("diff", root, exits=3).stdout
    assert "+ stream departures  create  sources.json:1" in planned
    assert "Plan: 9 to create, 0 unchanged." in planned
    assert "Nobody can be asked" in run("apply", root, exits=2).stderr
    assert list(client.queries.list()) == []
    applied = run("apply", root, "--yes").stdout
    assert "Done: 9 steps." in applied
    assert {each.name for each in client.queries.list()} == {"joined", "delays", "miles", "far", "insert_rides"}
    assert client.query("miles").info().statement == "CREATE TABLE miles AS SELECT id, SUM(miles) AS miles FROM rides GROUP BY id"
    assert "No change: the service has all 9 definitions as they are." in run("diff", root).stdout
    again = told(run("apply", root, "--yes", "--json"))
    assert (again["done"], again["counts"]["no_op"]) == ([], 9)


def test_an_edit_in_place_is_applied_and_new_state_asks_for_more(run: Run, files: Path, client: Client) -> None:
    root = str(files)
    run("apply", root, "--yes")
    delays, rides = files / "queries" / "delays.yaml", files / "rides.sql"
    delays.write_text(delays.read_text().replace("30m", "45m"))
    rides.write_text(rides.read_text().replace("miles > 10", "miles > 20"))
    shown = run("diff", root, exits=3).stdout
    assert "~ query delays  edit in place" in shown
    assert "/window/grace: 30m → 45m" in shown
    assert "! query far  needs new state" in shown
    refused = run("apply", root, "--yes", exits=3)
    assert "--discard-state permits that" in " ".join(refused.stderr.split())
    assert client.query("delays").info().definition["window"]["grace"] == "30m", "all or nothing"
    run("apply", root, "--yes", "--discard-state")
    assert client.query("delays").info().definition["window"]["grace"] == "45m"
    assert "miles > 20" in str(client.query("far").info().statement)
    run("diff", root)


def test_what_the_files_have_no_more_is_deleted_when_asked_for(run: Run, files: Path, client: Client) -> None:
    root = str(files)
    run("apply", root, "--yes")
    client.stream("mine").register(STREAM)
    (files / "a_join.json").unlink()
    run("diff", root)
    pruned = run("diff", root, "--prune", exits=3).stdout
    assert "- query joined" in pruned
    assert "- stream mine" in pruned
    run("apply", root, "--prune", "--match", "j*", "--yes")
    assert "joined" not in {each.name for each in client.queries.list()}
    assert client.stream("mine").info().name == "mine"
    run("diff", root, "--prune", "--match", "j*")
    (files / "sources.json").write_text(json.dumps([{"table": "weather", **TABLE}]))
    refused = run("diff", root, "--prune", exits=1).stdout
    assert "departures is read by delays, which stays" in " ".join(refused.split())


def test_nothing_is_done_where_something_is_refused(run: Run, files: Path, client: Client) -> None:
    (files / "wrong.yaml").write_text("query: wrong\nfrom: {stream: nowhere}\ninto: {stream: wrong}\n")
    refused = run("apply", str(files), "--yes", exits=1)
    assert "✗ query wrong  refused  wrong.yaml:1" in refused.stdout
    assert "(unknown_relation)" in refused.stdout
    assert "nothing was done" in refused.stderr
    assert list(client.queries.list()) == []
    (files / "wrong.yaml").write_text("stream: [")
    assert "wrong.yaml:1" in run("diff", str(files), exits=1).stderr


@pytest.mark.parametrize("form", [(), ("--sql",)], ids=["yaml", "sql"])
def test_what_is_exported_and_applied_changes_nothing(
    run: Run, files: Path, client: Client, tmp_path: Path, form: tuple[str, ...]
) -> None:
    run("apply", str(files), "--yes")
    run("pause", "delays")
    out = tmp_path / "out"
    run("export", str(out), *form)
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*.yaml"))[-2:] == [
        "streams/rides.yaml",
        "tables/weather.yaml",
    ]
    assert "desired_state: paused" in (out / "queries" / "delays.yaml").read_text()
    assert "late_records" not in (out / "queries" / "delays.yaml").read_text(), "what is usual is not said"
    assert "tasks: 2" in (out / "queries" / "delays.yaml").read_text(), "another service may have other cores"
    assert "No change: the service has all 9 definitions as they are." in run("diff", str(out), "--prune").stdout
    run("export", str(out), *form)
    (out / "queries" / "delays.yaml").write_text("other")
    assert "--overwrite" in run("export", str(out), *form, exits=3).stderr
    run("export", str(out), *form, "--overwrite")
    only = tmp_path / "only.yaml"
    only.write_text("stream: another\ncolumns: {a: int}\n")
    run("apply", str(only), "--prune", "--yes")
    assert [each.name for each in (*client.streams(), *client.tables())] == ["another"]
    run("delete", "another", "--yes")
    run("apply", str(out), "--yes")
    assert client.query("delays").info().desired_state == "paused"
    run("diff", str(out), "--prune")


@pytest.mark.parametrize("form", [(), ("--sql",)], ids=["yaml", "sql"])
def test_what_other_files_define_is_not_exported_a_second_time(
    run: Run, files: Path, client: Client, form: tuple[str, ...]
) -> None:
    run("apply", str(files), "--yes")
    client.stream("mine").register(STREAM)
    left_out = run("export", str(files), *form, "--overwrite", exits=3)
    assert f"queries/miles.{'sql' if form else 'yaml'} is left out: rides.sql:3 defines that already" in left_out.stderr
    assert (files / "streams" / "mine.yaml").exists()
    assert "No change: the service has all 10 definitions as they are." in run("diff", str(files)).stdout


# --- SQL ---


def test_statements_are_carried_out_from_options_files_and_pipes(run: Run, filled: Client, tmp_path: Path) -> None:
    filled.stream("departures").append([RECORD])
    text = run("sql", "-c", "SHOW STREAMS;").stdout
    assert "DEPARTURES" in text.upper()
    rows = list(csv.DictReader(io.StringIO(run("sql", "-c", "SHOW STREAMS;", "-o", "csv").stdout)))
    assert len(rows) == 1
    as_json = [json.loads(line) for line in run("sql", "--json", text="SHOW TABLES;").stdout.splitlines()]
    assert len(as_json) == 2
    script = tmp_path / "a.sql"
    script.write_text("DEFINE t = 'rides';\nCREATE STREAM ${t} (a INT) WITH (KAFKA_TOPIC='${t}', VALUE_FORMAT='JSON');\n")
    assert "RIDES is registered" in run("sql", "-f", str(script)).stdout
    assert "row 1" in run("sql", "-c", "SHOW STREAMS;", "-o", "vertical").stdout
    run("sql", "-c", "DROP STREAM ${x};", "-v", "x=rides")


def test_a_refused_statement_is_shown_with_its_line_and_place(run: Run, filled: Client) -> None:
    failed = run("sql", "-c", "SHOW STREAMS;\nSELECT * FORM x;", exits=1).stderr
    assert "line 2, column" in failed
    assert "SELECT * FORM x;" in failed
    assert "^" in failed
    middle = run("sql", "-c", "SELECT * FROM departures EMIT CHANGES; SHOW STREAMS;", exits=2).stderr
    assert "put it last" in middle


def test_a_push_query_shows_rows_until_its_limit(run: Run, filled: Client, dsn: str) -> None:
    filled.stream("departures").append([RECORD, {**RECORD, "origin": "LGA"}])
    script = "SET 'auto.offset.reset' = 'earliest';\nSELECT `origin`, `flight` FROM departures EMIT CHANGES LIMIT 2;"
    text = run("sql", "-c", script).stdout
    assert [word in text for word in ("origin", "JFK", "LGA", "725")] == [True] * 4
    lines = [json.loads(line) for line in run("sql", "-c", script, "--json").stdout.splitlines()]
    assert sorted(line["row"]["origin"] for line in lines if "row" in line) == ["JFK", "LGA"]
    table = run("sql", "-c", script, "-o", "csv").stdout.splitlines()
    assert table[0] == "$op,origin,flight"
    wrong = run("sql", "-c", "SET 'a' = 'b';\n\nSELECT nothing FROM departures EMIT CHANGES;", exits=1).stderr
    assert "line 3" in wrong


def test_top_prints_once_where_nobody_looks(run: Run, filled: Client) -> None:
    text = run("top", "--every", "0.2").stdout
    assert "totals" in text
    (row,) = told(run("top", "--every", "0.2", "--json"))
    assert (row["name"], row["state"], row["read_per_s"]) == ("totals", "stopped", 0.0)


def test_windows_definition_is_the_same_as_json_and_as_a_file(run: Run, filled: Client, tmp_path: Path) -> None:
    file = tmp_path / "delays.json"
    file.write_text(json.dumps(WINDOWS))
    run("apply", str(file), "--yes")
    run("diff", str(file))


def test_the_shell_completes_names_of_the_service_and_says_nothing_where_that_is_away(
    run: Run, filled: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def completed(line: str) -> list[str]:
        words = {"_SLACKWATER_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
        return CliRunner().invoke(cli, [], env=words, prog_name="slackwater").stdout.split()

    assert completed("slackwater pau") == ["pause"]
    assert completed("slackwater pause tot") == ["totals"]
    assert completed("slackwater tail ") == ["departures", "totals", "weather"]
    assert completed("slackwater status --wait caught") == ["caught_up"]
    monkeypatch.setenv("SLACKWATER_URL", "http://127.0.0.1:9")
    assert completed("slackwater pause ") == []


def test_the_definitions_of_the_document_are_right(run: Run, filled: Client, tmp_path: Path) -> None:
    for step in steps(ROOT / "docs" / "guides" / "command-line.md"):
        if step.fence.file is not None and step.fence.language in ("sql", "yaml"):
            file = tmp_path / step.fence.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(step.fence.text)
    run("apply", str(tmp_path), "--yes")
    assert {each.name for each in filled.queries.list()} == {"totals", "miles", "hours"}
