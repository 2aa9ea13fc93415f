"""What commands print commands no terminal."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.text import Text
from slackwater.cli.options.output import Output, PlainConsole, columns

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


LONG = "The window from 2013-01-01T12:00:00Z to 2013-01-01T13:00:00Z is final: it closed when stream time reached 2013-01-01T19:00:00Z."


def test_a_long_text_goes_on_below_and_short_columns_stay_whole() -> None:
    shown = columns(["", "STEP", "WHAT"], [["→", "window_open_until", LONG], ["", "passed", "short"]], 80, is_coloured=False)
    lines = shown.plain.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith("→  window_open_until  The window")
    assert " ".join(line[22:].strip() for line in lines[1:-1]) == LONG
    assert lines[-1].split() == ["passed", "short"]


def test_a_word_that_is_longer_than_the_line_is_folded_and_nothing_is_lost() -> None:
    record = '{"departures.origin":"EWR","departures.carrier":"ME","departures.dep_delay":8}' * 2
    lines = columns(["ID", "RECORD"], [[17, record]], 60, is_coloured=False).plain.splitlines()
    assert max(map(len, lines)) <= 60
    assert "".join(line[4:] for line in lines[1:]) == record
    assert lines[1].startswith("17  {")


def test_a_terminal_that_is_far_too_narrow_cuts_no_number() -> None:
    lines = columns(["A", "B", "C"], [[1_234_567_890, "x" * 40, "y" * 40]], 20, is_coloured=False).plain.splitlines()
    assert lines[1].startswith("1,234,567,890")
    assert "".join(line[15:35] for line in lines[1:]).strip() == "x" * 40
