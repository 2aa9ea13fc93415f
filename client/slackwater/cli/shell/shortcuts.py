r"""Shortcuts of the interactive shell, which begin with ``\`` as psql's do. Each is one entry of ``SHORTCUTS``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol

from slackwater.cli.options.failing import UsageError
from slackwater.cli.options.naming import inputs_of, named, result_of
from slackwater.cli.shell.results import Format
from slackwater.cli.shell.session import Session


class Shell(Protocol):
    """The parts of the shell for shortcuts."""

    session: Session
    shows_time: bool

    def run(self, script: str) -> None:
        """Execute a script, and print errors."""


class Left(Exception):
    """Ends the shell."""


@dataclass(frozen=True, slots=True)
class Shortcut:
    """One shortcut."""

    form: str
    help: str
    act: Callable[[Shell, str], None]


def carry_out(shell: Shell, line: str) -> None:
    """Execute a line that begins with a backslash.

    Raises:
        UsageError: there is no such shortcut.
        Left: it ends the shell.
    """
    word, _, rest = line.strip().rstrip(";").partition(" ")
    found = SHORTCUTS.get(word)
    if found is None:
        raise UsageError(f"there is no {word}", r"\? lists the shortcuts")
    found.act(shell, rest.strip())


def _list(shell: Shell, name: str) -> None:
    if name:
        _describe(shell, name)
        return
    client, output = shell.session.client, shell.session.printer.output
    rows = [
        (each.name, each.kind, ", ".join(each.key), each.produced_by or "source")
        for each in (*client.streams(), *client.tables())
    ]
    output.table(("NAME", "KIND", "KEY", "FROM"), rows, empty="there are no streams and no tables")


def _describe(shell: Shell, name: str) -> None:
    found = named(shell.session.client, name.lower())
    output = shell.session.printer.output
    if found.relation is not None:
        key = found.relation.key
        output.say(f"{found.relation.kind} {found.relation.name}", "bold")
        rows = [(column, kind, "key" if column in key else "") for column, kind in found.relation.columns.items()]
        output.table(("COLUMN", "TYPE", ""), rows)
    if found.query is not None:
        output.say(f"query {found.query.name}: {found.query.state}", "bold")
        output.say(found.query.statement or found.query.sql)


def _relations(kind: str) -> Callable[[Shell, str], None]:
    def act(shell: Shell, pattern: str) -> None:
        client, output = shell.session.client, shell.session.printer.output
        listed: Any = client.tables() if kind == "table" else client.streams()
        rows = [
            (each.name, ", ".join(each.key), len(each.columns), each.produced_by or "source")
            for each in listed
            if fnmatchcase(each.name, pattern.lower() or "*")
        ]
        output.table(("NAME", "KEY", "COLUMNS", "FROM"), rows, empty=f"there are no {kind}s")

    return act


def _queries(shell: Shell, pattern: str) -> None:
    output = shell.session.printer.output
    rows = [
        (each.name, each.state, ", ".join(inputs_of(each.definition)), result_of(each.definition))
        for each in shell.session.client.queries.list()
        if not each.internal and fnmatchcase(each.name, pattern.lower() or "*")
    ]
    output.table(("NAME", "STATE", "READS", "WRITES"), rows, empty="there are no queries")


def _functions(shell: Shell, pattern: str) -> None:
    found = shell.session.client.system.functions()
    rows = [(each.name, "function", each.result, each.description) for each in found.functions]
    rows += [(each.name, "aggregate", each.result, each.description) for each in found.aggregates]
    wanted = [row for row in rows if fnmatchcase(row[0].lower(), pattern.lower() or "*")]
    shell.session.printer.output.table(("NAME", "KIND", "GIVES", "WHAT"), wanted, empty="there are none of this name")


def _vertical(shell: Shell, _: str) -> None:
    printer = shell.session.printer
    printer.form = Format.TABLE if printer.form is Format.VERTICAL else Format.VERTICAL
    printer.output.say(f"rows are shown as {printer.form.value}")


def _format(shell: Shell, word: str) -> None:
    if word not in list(Format):
        raise UsageError(f"{word or 'nothing'} is no format", f"there are {', '.join(Format)}")
    shell.session.printer.form = Format(word)
    shell.session.printer.output.say(f"rows are shown as {word}")


def _timing(shell: Shell, _: str) -> None:
    shell.shows_time = not shell.shows_time
    shell.session.printer.output.say(f"times are {'shown' if shell.shows_time else 'not shown'}")


def _include(shell: Shell, path: str) -> None:
    try:
        script = Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error
    shell.run(script)


def _settings(shell: Shell, _: str) -> None:
    session = shell.session
    rows = [("SET", name, value) for name, value in session.properties.items()]
    rows += [("DEFINE", name, value) for name, value in session.variables.items()]
    session.printer.output.table(("", "NAME", "VALUE"), rows, empty="nothing is set")


def _help(shell: Shell, _: str) -> None:
    output = shell.session.printer.output
    output.table(("SHORTCUT", "WHAT IT DOES"), [(each.form, each.help) for each in SHORTCUTS.values()])
    output.say(
        "A statement ends with ; and may have several lines. Tab completes; Ctrl-R searches; Ctrl-C leaves a query that goes on."
    )


def _leave(_shell: Shell, _: str) -> None:
    raise Left


SHORTCUTS: Final[Mapping[str, Shortcut]] = MappingProxyType({
    r"\d": Shortcut(r"\d [NAME]", "list streams and tables, or show one: its columns, the query of this name", _list),
    r"\ds": Shortcut(r"\ds [PATTERN]", "list streams", _relations("stream")),
    r"\dt": Shortcut(r"\dt [PATTERN]", "list tables", _relations("table")),
    r"\dq": Shortcut(r"\dq [PATTERN]", "list queries", _queries),
    r"\df": Shortcut(r"\df [PATTERN]", "list functions and aggregates", _functions),
    r"\x": Shortcut(r"\x", "show rows column by column, or as tables again", _vertical),
    r"\format": Shortcut(r"\format table|vertical|csv|json", "show rows so", _format),
    r"\timing": Shortcut(r"\timing", "show how long statements take, or no longer", _timing),
    r"\i": Shortcut(r"\i FILE", "carry a file out", _include),
    r"\set": Shortcut(r"\set", "show what SET and DEFINE have said", _settings),
    r"\?": Shortcut(r"\?", "this list", _help),
    r"\q": Shortcut(r"\q", "leave; so does Ctrl-D", _leave),
})  # fmt: skip
