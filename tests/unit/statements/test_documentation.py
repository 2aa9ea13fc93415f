"""The statements of docs/reference/sql.md can be read, and mean something."""

from __future__ import annotations

import re

from engine.sql.scripts import parse_script
from engine.sql.statement_tree import Select
from engine.statements.binding import bind
from engine.statements.context.session import Session
from engine.statements.reads.reading import read_of
from tests.conftest import ROOT
from tests.session_effects import after

BLOCKS = re.findall(r"```sql\n(.*?)```", (ROOT / "docs/reference/sql.md").read_text(), re.DOTALL)


def test_every_example_of_the_documentation_is_a_script_that_binds() -> None:
    assert len(BLOCKS) == 3
    session, count = Session(), 0
    for block in BLOCKS:
        script = parse_script(block)
        assert script.faults == ()
        for parsed in script.statements:
            session = after(session, bind(parsed.tree, session))
            if isinstance(parsed.tree, Select):
                assert read_of(parsed.tree, session).types.columns
            count += 1
    assert count == 13
