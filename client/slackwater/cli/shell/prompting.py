"""The interactive shell: multi-line input, completion, highlighting and a history, around a ``Session``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import completion_is_selected
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from slackwater.cli.options.failing import UsageError, failure_of, show
from slackwater.cli.shell.names import Known, proposals
from slackwater.cli.shell.session import Session
from slackwater.cli.shell.shortcuts import SHORTCUTS, Left, carry_out
from slackwater.cli.statements import is_complete, statements_of
from slackwater.errors import SlackwaterError

_WORDS: Final = ("exit", "quit", "help")


def is_finished(text: str) -> bool:
    """Return whether Enter executes a text, instead of beginning another line."""
    stripped = text.strip()
    return not stripped or stripped.startswith("\\") or stripped.lower() in _WORDS or is_complete(text)


class NameCompleter(Completer):
    """Completes names and words of the statement at the cursor."""

    def __init__(self, known: Known) -> None:
        self._known = known

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002 - as declared
        """See ``Completer``."""
        before = document.text_before_cursor
        if before.lstrip().startswith("\\"):
            yield from _of_shortcut(before.lstrip(), self._known)
            return
        # Only the statement at the cursor counts.
        ended = [each for each in statements_of(before) if each.is_ended]
        start = before.rfind(ended[-1].text) + len(ended[-1].text) + 1 if ended else 0
        rest = statements_of(document.text[start:])
        statement = rest[0].text if rest else ""
        for each in proposals(before[start:], statement, self._known.names):
            yield Completion(each.text, start_position=-each.typed, display_meta=each.kind)


def _of_shortcut(before: str, known: Known) -> Iterable[Completion]:
    word, space, rest = before.partition(" ")
    if not space:
        found = ((each, shortcut.help) for each, shortcut in SHORTCUTS.items() if each.startswith(word))
        yield from (Completion(each, start_position=-len(word), display_meta=text) for each, text in found)
        return
    if word == r"\d":
        names = (name for name in (*known.names.relations, *known.names.queries) if name.startswith(rest.lower()))
        yield from (Completion(name, start_position=-len(rest)) for name in dict.fromkeys(names))


class InteractiveShell:
    """Reads and executes statements until the user leaves.

    Args:
        url: of the service, for people.
        history: file of typed statements; None: none.
    """

    def __init__(self, session: Session, known: Known, url: str, history: Path | None) -> None:
        self.session = session
        self.shows_time = False
        self._known = known
        self._url = url
        self._history = history

    def loop(self) -> None:
        """Read and execute until the user leaves."""
        self._known.refresh()
        prompt = self._prompt()
        while True:
            try:
                text = prompt.prompt("slackwater> ")
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            try:
                self._take(text.strip())
            except Left:
                return

    def run(self, script: str) -> None:
        """Execute a script, and print errors."""
        began = time.monotonic()
        try:
            if self.session.run(script):
                self._known.refresh()
        except (SlackwaterError, UsageError) as error:
            self._tell(error)
        except KeyboardInterrupt:
            self.session.printer.output.note("left")
        if self.shows_time:
            self.session.printer.output.note(f"{(time.monotonic() - began) * 1000:,.0f} ms")

    def _take(self, text: str) -> None:
        match text.lower().rstrip(";"):
            case "":
                return
            case "exit" | "quit":
                raise Left
            case "help":
                text = r"\?"
        if not text.startswith("\\"):
            self.run(text)
            return
        try:
            carry_out(self, text)
        except (SlackwaterError, UsageError) as error:
            self._tell(error)

    def _tell(self, error: SlackwaterError | UsageError) -> None:
        show(self.session.printer.output.err, failure_of(error, self._url), as_json=False)

    def _prompt(self) -> PromptSession[str]:
        bindings = KeyBindings()

        @bindings.add("enter", filter=~completion_is_selected)
        def _enter(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if is_finished(buffer.text):
                buffer.validate_and_handle()
            else:
                buffer.insert_text("\n")

        return PromptSession(
            multiline=True,
            prompt_continuation=_continued,
            history=_history(self._history),
            lexer=PygmentsLexer(SqlLexer),
            completer=ThreadedCompleter(NameCompleter(self._known)),
            complete_while_typing=True,
            auto_suggest=AutoSuggestFromHistory(),
            key_bindings=bindings,
            enable_open_in_editor=True,
            bottom_toolbar=lambda: f" {self._url}   \\? help   \\d names   Tab completes   Ctrl-D leaves ",
            reserve_space_for_menu=6,
        )


def _continued(width: int, line_number: int, wrap_count: int) -> str:  # noqa: ARG001 - as prompt_toolkit asks
    return "...> ".rjust(width)


def _history(path: Path | None) -> History:
    """Return the history; only its owner can read the file, because statements have data."""
    if path is None:
        return InMemoryHistory()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    except OSError:
        return InMemoryHistory()  # a home that cannot be written to keeps no history
    return FileHistory(str(path))
