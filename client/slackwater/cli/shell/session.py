"""A session of SQL: it stores SET and DEFINE between scripts, because the service stores nothing between requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from typing import Final

from slackwater.blocking.client import Client
from slackwater.cli.options.failing import UsageError
from slackwater.cli.shell.results import Printer, Pushed
from slackwater.cli.statements import Statement, bare, statements_of
from slackwater.errors import ServiceError

_SET: Final = re.compile(r"(?is)^SET\s+'((?:[^']|'')*)'\s*=\s*'((?:[^']|'')*)'$")
_UNSET: Final = re.compile(r"(?is)^UNSET\s+'((?:[^']|'')*)'$")
_DEFINE: Final = re.compile(r"(?is)^DEFINE\s+(\w+)\s*=\s*'((?:[^']|'')*)'$")
_UNDEFINE: Final = re.compile(r"(?is)^UNDEFINE\s+(\w+)$")
CHANGING: Final = frozenset({"CREATE", "DROP", "ALTER", "INSERT", "TERMINATE"})


class Session:
    """Executes scripts.

    Args:
        variables: values of ``${name}``.
    """

    def __init__(self, client: Client, printer: Printer, variables: Mapping[str, str] | None = None) -> None:
        self.client = client
        self.printer = printer
        self.properties: dict[str, str] = {}
        self.variables: dict[str, str] = dict(variables or {})

    def run(self, script: str) -> bool:
        """Execute a script and print its results. A SELECT with EMIT at its end runs until its LIMIT, or until the user leaves.

        Returns:
            Whether it may have changed definitions.

        Raises:
            SlackwaterError: a statement was refused. Earlier ones are executed, and their SET and DEFINE stay, unless a statement
                of the script cannot be parsed.
            UsageError: a SELECT with EMIT is not the last one.
        """
        statements = statements_of(script)
        if not statements:
            return False
        pushes = [each for each in statements[:-1] if each.is_push]
        if pushes:
            raise UsageError(
                f"line {pushes[0].line}: this SELECT goes on, and the statements behind it would never come to be",
                "put it last, or write LIMIT and no EMIT",
            )
        last = statements[-1]
        if not last.is_push:
            self._carry_out(script, statements)
        else:
            before = _before(script, last)
            if len(statements) > 1:
                self._carry_out(before, statements[:-1])
            # Blank lines replace executed statements, because the service counts lines of the script.
            self._follow("\n" * before.count("\n") + script[len(before) :])
        return any(each.words[:1] and each.words[0] in CHANGING for each in statements)

    def _carry_out(self, script: str, statements: list[Statement]) -> None:
        try:
            result = self.client.sql(script, properties=self.properties, variables=self.variables)
        except ServiceError as error:
            done = sum(each.state == "done" for each in error.statements)
            for statement in statements[:done]:
                self._note(bare(statement.text))
            raise
        for each in result.statements:
            self.printer.statement(each)
        for statement in statements:
            self._note(bare(statement.text))

    def _follow(self, script: str) -> None:
        pushed = Pushed(self.printer)
        with closing(self.client.push(script, properties=self.properties, variables=self.variables)) as rows:
            for row in rows:
                pushed.row(row)

    def _note(self, text: str) -> None:
        """Store SET and DEFINE."""
        if found := _SET.match(text):
            self.properties[_quoted(found[1])] = _quoted(found[2])
        elif found := _UNSET.match(text):
            self.properties.pop(_quoted(found[1]), None)
        elif found := _DEFINE.match(text):
            self.variables[found[1]] = _quoted(found[2])
        elif found := _UNDEFINE.match(text):
            self.variables = {name: value for name, value in self.variables.items() if name.upper() != found[1].upper()}


def _before(script: str, last: Statement) -> str:
    """Return the text before the last statement."""
    lines = script.splitlines(keepends=True)
    above = "".join(lines[: last.line - 1])
    return above + script[len(above) :].partition(last.text)[0]


def _quoted(text: str) -> str:
    return text.replace("''", "'")
