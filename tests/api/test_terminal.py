"""The command line in a terminal: `sql` and `top`, with keys typed into them."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyte
import pytest
from slackwater import Client

from app.main.main import create_app
from app.settings.settings import Settings
from tests.api.committed import commit, emitted
from tests.api.conftest import RECORD, STREAM
from tests.api.live_server import live
from tests.late_frames import late_frame

PATIENCE_S = 60.0
_CONTROL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][A-Z0-9]|[=>78])|\r|\x07|\x08")


PROGRAM = """
import os, runpy, sys
os.close(os.open(os.ttyname(0), os.O_RDWR))  # the first terminal that a session opens is its own, so that Ctrl-C reaches it
sys.argv[0] = "slackwater"
runpy.run_module("slackwater.cli", run_name="__main__")
"""


class Terminal:
    """A program in a pseudo-terminal: what it has written, and the screen as it is."""

    def __init__(self, arguments: list[str], environment: dict[str, str], rows: int = 24, columns: int = 120) -> None:
        self.written = ""
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._descriptor, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments], stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            env={**os.environ, **environment},
        )  # fmt: skip
        os.close(slave)

    @property
    def screen(self) -> str:
        return "\n".join(line.rstrip() for line in self._screen.display)

    def type(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def wait_for(self, text: str, behind: int = 0) -> int:
        """Read until something was written behind a place; returns where it ends."""
        self._read_until(lambda: text in self.written[behind:], text)
        return self.written.index(text, behind) + len(text)

    def wait_for_screen(self, text: str) -> None:
        """Read until something stands on the screen."""
        self._read_until(lambda: text in self.screen, text)

    def wait_for_end(self) -> int:
        """Read until it ends; returns its exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self._read(0.5):
            assert time.monotonic() < deadline, self.screen
        return self._process.wait(PATIENCE_S)

    def _read_until(self, is_there: Callable[[], bool], text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_there():
            assert time.monotonic() < deadline, f"{text!r} is not shown:\n{self.screen}"
            assert self._read(0.5), f"it ended before {text!r} was shown:\n{self.screen}"

    def _read(self, seconds: float) -> bool:
        if not select.select([self._descriptor], [], [], seconds)[0]:
            return True
        try:
            raw = os.read(self._descriptor, 65_536)
        except OSError as error:
            if error.errno != errno.EIO:  # what Linux says where the other side is gone
                raise
            return False
        if b"\x1b[6n" in raw:  # it asks where the cursor is
            os.write(self._descriptor, b"\x1b[1;1R")
        self._stream.feed(raw)
        self.written += _CONTROL.sub("", raw.decode(errors="replace"))
        return bool(raw)

    def close(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_S)
        os.close(self._descriptor)


@pytest.fixture(scope="module")
def url(settings: Settings) -> Iterator[str]:
    with live(create_app(settings)) as url:
        yield url


@pytest.fixture
def filled(url: str) -> Iterator[Client]:
    with Client(url) as client:
        client.stream("departures").register(STREAM)
        client.stream("departures").append([RECORD])
        client.queries.create(
            {"name": "jfk", "from": {"stream": "departures"}, "where": "origin = 'JFK'", "into": {"stream": "jfk"}}
        )
        yield client


@pytest.fixture
def environment(url: str, tmp_path: Path) -> dict[str, str]:
    return {"SLACKWATER_URL": url, "XDG_CONFIG_HOME": str(tmp_path), "TERM": "xterm-256color", "PYTHONPATH": ""}


@pytest.fixture
def terminal(environment: dict[str, str], request: pytest.FixtureRequest) -> Iterator[Terminal]:
    opened = Terminal(request.param, environment)
    yield opened
    opened.close()


@pytest.mark.parametrize("terminal", [["sql"]], indirect=True)
def test_sql_is_typed_completed_refused_followed_and_left(
    terminal: Terminal, filled: Client, environment: dict[str, str]
) -> None:
    terminal.wait_for("slackwater>")
    terminal.type("SHOW\nSTREAMS;\n")
    end = terminal.wait_for("DEPARTURES")
    terminal.type("SELECT * FORM departures;\n")
    end = terminal.wait_for("error", end)
    end = terminal.wait_for("FORM", end)
    terminal.type("\\d dep")
    end = terminal.wait_for("departures", end)
    terminal.type("artures\n")
    end = terminal.wait_for("departed_at", end)
    terminal.type("SET 'auto.offset.reset' = 'earliest';\n")
    end = terminal.wait_for("earliest", end)
    terminal.type("SELECT `origin`, `flight` FROM departures EMIT CHANGES;\n")
    end = terminal.wait_for("+ 2013-01-01T10:44:00Z", end)
    filled.stream("departures").append([{**RECORD, "origin": "LGA"}])
    end = terminal.wait_for("LGA", end)
    terminal.type("\x03")
    end = terminal.wait_for("left", end)
    end = terminal.wait_for("slackwater>", end)
    terminal.type("\\nothing\n")
    end = terminal.wait_for("lists the shortcuts", end)
    terminal.type("\\q\n")
    assert terminal.wait_for_end() == 0
    history = Path(environment["XDG_CONFIG_HOME"]) / "slackwater" / "sql_history"
    assert "+STREAMS;" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("terminal", [["top", "--every", "0.2"]], indirect=True)
def test_top_shows_queries_reacts_to_keys_and_leaves(terminal: Terminal, filled: Client) -> None:
    terminal.wait_for_screen("1 stopped")
    terminal.wait_for_screen("why: no_driver")
    terminal.type("n")
    terminal.wait_for_screen("by name")
    made = {"name": "lga", "from": {"stream": "departures"}, "where": "origin = 'LGA'", "into": {"stream": "lga"}}
    filled.queries.create(made)
    terminal.wait_for_screen("2 stopped")
    assert [line.split()[:2] for line in terminal.screen.splitlines() if line.startswith(("jfk", "lga"))][:2] == [
        ["jfk", "stopped"], ["lga", "stopped"],
    ]  # fmt: skip
    terminal.type("\x1b[B")
    terminal.wait_for_screen("lga: stopped")
    terminal.type(" ")
    terminal.wait_for_screen("held")
    terminal.type("q")
    assert terminal.wait_for_end() == 0


def test_how_many_late_records_are_meant_is_said_before_they_are_replayed(
    filled: Client, environment: dict[str, str], dsn: str
) -> None:
    late = [
        ("w", reason, ts, ts + 9, 0, '{"departures.origin":"JFK"}') for ts, reason in enumerate(["late_diverted"] * 2 + ["x"])
    ]
    commit(dsn, "jfk", [(0, 0, emitted({"w": 9_000}, late=late_frame(late)))])
    for reason, said, code in (("late_diverted", "Replay 2 late records of jfk? [y/N]:", 1), ("y", "no late record fits", 0)):
        terminal = Terminal(["replay", "jfk", "--reason", reason], environment)
        try:
            terminal.wait_for(said)
            if code:
                terminal.type("n\n")
            assert terminal.wait_for_end() == code
        finally:
            terminal.close()


def test_apply_shows_its_plan_and_asks_before_it_carries_it_out(
    filled: Client, environment: dict[str, str], tmp_path: Path
) -> None:
    wanted = tmp_path / "lga.yaml"
    wanted.write_text("query: lga\nfrom: {stream: departures}\nwhere: origin = 'LGA'\ninto: {stream: lga}\n")
    for answer, code, said in (("n", 1, "nothing was done"), ("y", 0, "Done: 1 step.")):
        terminal = Terminal(["apply", str(wanted)], environment)
        try:
            end = terminal.wait_for("+ query lga")
            end = terminal.wait_for("Carry this out? [y/N]:", end)
            assert {each.name for each in filled.queries.list()} == {"jfk"}, "nothing is done before"
            terminal.type(f"{answer}\n")
            terminal.wait_for(said, end)
            assert terminal.wait_for_end() == code
        finally:
            terminal.close()
    assert {each.name for each in filled.queries.list()} == {"jfk", "lga"}
