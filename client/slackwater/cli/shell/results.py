"""Results of statements as tables, CSV or JSON, whole or row by row as they come."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Final

from rich.text import Text

from slackwater.answers.answer_list import StatementResult
from slackwater.cli.options.output import WIDE, Output, columns, event_time
from slackwater.parameters import json_text
from slackwater.rows.rows import PushedRow

NUMBERS: Final = ("int", "bigint", "double", "decimal")


class Format(StrEnum):
    """Form of rows."""

    TABLE = "table"
    VERTICAL = "vertical"
    CSV = "csv"
    JSON = "json"


def value_text(value: Any) -> str:
    """Return a value for a table or CSV; NULL is empty."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case str() | int() | float():
            return str(value)
    return json_text(value)


def _cell(value: Any) -> Text:
    return Text("NULL", style="dim") if value is None else Text(value_text(value).replace("\n", "⏎"))


class Printer:
    """Prints results of statements."""

    def __init__(self, output: Output, form: Format) -> None:
        self.output = output
        self.form = form

    def statement(self, result: StatementResult) -> None:
        """Print the result of a statement."""
        if result.rows is not None and result.columns is not None:
            self._rows([(each.name, each.type) for each in result.columns], result.rows)
            if self.form in (Format.TABLE, Format.VERTICAL):
                self.output.note(result.message)
        elif self.form is Format.JSON:
            parts = {"kind": result.kind, "message": result.message, "relation": result.relation, "query": result.query}
            self.output.line({name: value for name, value in parts.items() if value is not None})
        elif self.form is Format.CSV:
            self.output.note(result.message)
        else:
            self.output.say(result.message)
        for note in result.notes or ():
            self.output.note(f"note: {note}")
        for warning in result.warnings or ():
            self.output.note(f"warning {warning.code}: {warning.detail}; {warning.cure}", "yellow")

    def _rows(self, head: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> None:
        names = [name for name, _ in head]
        match self.form:
            case Format.JSON:
                for row in rows:
                    self.output.line(dict(zip(names, row, strict=True)))
            case Format.CSV:
                writer = csv.writer(sys.stdout, lineterminator="\n")
                writer.writerow(names)
                writer.writerows([value_text(value) for value in row] for row in rows)
                sys.stdout.flush()
            case Format.VERTICAL:
                self._vertical(names, rows)
            case _ if rows:
                numbers = {place for place, (_, kind) in enumerate(head) if kind.partition("(")[0] in NUMBERS}
                width = self.output.out.width if self.output.is_terminal else WIDE
                cells = [[_cell(value) for value in row] for row in rows]
                shown = columns(names, cells, width, is_coloured=self.output.is_terminal, right=numbers)
                self.output.out.print(shown, soft_wrap=True)

    def _vertical(self, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        width = max(map(len, names), default=0)
        for number, row in enumerate(rows, 1):
            self.output.out.print(Text(f"─[ row {number} ]─", style="dim"))
            for name, value in zip(names, row, strict=True):
                self.output.out.print(Text(f"{name.ljust(width)}  ", style="bold") + _cell(value), soft_wrap=True)


class Pushed:
    """Prints the rows of a push query as they come, with the head once before the first row."""

    def __init__(self, printer: Printer) -> None:
        self._output, self._form = printer.output, printer.form
        self._widths: list[int] | None = None

    def row(self, pushed: PushedRow) -> None:
        """Print a row, at once."""
        names, values = list(pushed.row), list(pushed.row.values())
        match self._form:
            case Format.JSON:
                self._output.line({"op": pushed.op, "event_time_ms": pushed.event_time_ms, "row": pushed.row})
            case Format.CSV:
                writer = csv.writer(sys.stdout, lineterminator="\n")
                if self._widths is None:
                    writer.writerow(["$op", *names])
                writer.writerow([pushed.op, *map(value_text, values)])
                self._widths = []
            case _:
                self._line(pushed, names, values)
        sys.stdout.flush()

    def _line(self, pushed: PushedRow, names: Sequence[str], values: Sequence[Any]) -> None:
        cells = [_cell(value) for value in values]
        if self._widths is None:
            self._widths = [max(len(name), len(cell), 8) for name, cell in zip(names, cells, strict=True)]
            head = "  ".join(name.ljust(width) for name, width in zip(names, self._widths, strict=True))
            self._output.out.print(Text(f"  {'EVENT TIME'.ljust(20)}  {head}".rstrip(), style="bold"), soft_wrap=True)
        sign, style = ("-", "red") if pushed.op == "delete" else ("+", "green")
        line = Text(f"{sign} ", style=style) + Text(event_time(pushed.event_time_ms).ljust(20), style="dim")
        for cell, width in zip(cells, self._widths, strict=True):
            line.append("  ")
            line.append_text(cell)
            line.append(" " * max(0, width - len(cell)))
        line.rstrip()
        self._output.out.print(line, soft_wrap=True)
