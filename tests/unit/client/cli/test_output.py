"""What commands print commands no terminal."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.text import Text
from slackwater.cli.output import Output, PlainConsole, columns

EVIL = "a\x1b]52;c;aGk=\x07b\x1b[2Jc\x9b2Jd"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_texts_of_strangers_command_nothing(is_terminal: bool) -> None:
    output, told = Output(), StringIO()
    output.out = PlainConsole(file=told, force_terminal=is_terminal, highlight=False)
    output.say(EVIL)
    output.table(["A"], [[EVIL], [Text(EVIL)]])
    output.out.print(EVIL, markup=False, soft_wrap=True)
    shown = told.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert not {"\x1b", "\x9b", "\x07"} & set(shown)
    assert shown.count("]52;c;aGk=") == 4


def test_columns_are_as_wide_as_what_stands_for_a_command() -> None:
    (_, line) = columns(["A", "B"], [["\x1b[2Jc", "end"]], 80, is_coloured=True).plain.splitlines()
    assert line == "␛[2Jc  end"
