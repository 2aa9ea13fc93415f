"""The live screen: a thread reads the service, keys control it, prompt_toolkit draws."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from prompt_toolkit import Application
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.output import create_output
from prompt_toolkit.styles import Style

from slackwater.blocking.client import Client
from slackwater.cli.options.output import age
from slackwater.cli.top.reading import read
from slackwater.cli.top.view import ORDERS, View, frame
from slackwater.errors import NotFound, SlackwaterError
from slackwater.rows.statuses import Status

_STYLE: Final = Style.from_dict({
    "title": "reverse", "head": "bold", "keys": "reverse", "selected": "reverse", "failed": "ansired bold", "warning": "ansiyellow",
    "running": "ansigreen", "paused": "ansicyan", "quiet": "ansibrightblack",
})  # fmt: skip


class Screen:
    """Shows all queries until the user leaves it."""

    def __init__(self, client: Client, view: View, every_s: float) -> None:
        self._client = client
        self._view = view
        self._every_s = every_s
        self._is_over = threading.Event()
        self._failure: Exception | None = None
        self._wanted = threading.Event()
        control = FormattedTextControl(self._pieces, focusable=True, show_cursor=False)
        self._application: Application[None] = Application(
            Layout(Window(control, always_hide_cursor=True)),
            key_bindings=self._keys(),
            full_screen=True,
            style=_STYLE,
            output=create_output(),
        )

    def run(self) -> None:
        """Show it until ``q`` or Ctrl-C. An error other than an unreachable service ends it."""
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            self._application.run()
        finally:
            self._is_over.set()
            self._wanted.set()
        if self._failure is not None:
            raise self._failure

    def _pieces(self) -> StyleAndTextTuples:
        size = self._application.output.get_size()
        return list(frame(self._view, size.columns, size.rows))

    def _watch(self) -> None:
        try:
            self._look()
        except Exception as error:  # noqa: BLE001 - raised by ``run``, in the thread that shows it
            self._failure = error
            if self._application.loop is not None:
                self._application.loop.call_soon_threadsafe(self._application.exit)

    def _look(self) -> None:
        while not self._is_over.is_set():
            if not self._view.is_held:
                self._look_once()
                self._application.invalidate()
            self._wanted.wait(self._every_s)
            self._wanted.clear()

    def _look_once(self) -> None:
        try:
            self._view.take(read(self._client))
            lines = self._view.lines
            name = self._view.selected or (lines[0].row.name if lines else None)
            self._view.detail = [] if name is None else detail_of(self._client.query(name).status())
        except NotFound:
            self._view.detail = []
        except SlackwaterError as error:
            self._view.trouble = f"no newer numbers: {error}"

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("q")
        @keys.add("c-c")
        @keys.add("escape", eager=True)
        def _leave(event: KeyPressEvent) -> None:
            event.app.exit()

        @keys.add("up")
        @keys.add("k")
        def _up(_: KeyPressEvent) -> None:
            self._moved(-1)

        @keys.add("down")
        @keys.add("j")
        def _down(_: KeyPressEvent) -> None:
            self._moved(1)

        @keys.add("space")
        def _hold(_: KeyPressEvent) -> None:
            self._view.is_held = not self._view.is_held

        for key in ORDERS:
            keys.add(key)(self._by(key))
        return keys

    def _by(self, key: str) -> Callable[[KeyPressEvent], None]:
        def order(_: KeyPressEvent) -> None:
            self._view.order = key

        return order

    def _moved(self, by: int) -> None:
        self._view.move(by)
        self._wanted.set()


def detail_of(status: Status) -> Sequence[tuple[str, str]]:
    """Return the details of the selected query."""
    waiting = ", ".join(f"{count:,} in {operator}" for operator, count in status.buffered.items() if count)
    counted = ", ".join(f"{each.count:,} {each.reason} at {each.input}" for each in status.counters)
    shown = [
        (status.name, f"{status.state} for {age(status.state_since)}, limited by {status.limited_by}, launch {status.epoch}"),
        ("why", "" if status.reason is None else f"{status.reason.code}: {status.reason.detail}"),
        ("waiting", waiting),
        ("counted", counted),
    ]
    return [(name, value) for name, value in shown if value]
