"""When the process of a spare begins what takes long."""

from __future__ import annotations

import sys

import pytest

from app.driver import entry
from app.settings.settings import Settings


class LeftError(Exception):
    """The command line went on to the driver."""


@pytest.mark.parametrize(
    ("arguments", "has_turn", "done"),
    [(["--spare"], True, ["turn", "begun", "settings"]), (["--spare"], False, ["turn"]), ([], True, ["settings"])],
)
def test_a_spare_begins_its_session_as_soon_as_its_turn_has_come_and_not_before(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], has_turn: bool, done: list[str]
) -> None:
    found: list[str] = []

    def await_turn() -> bool:
        found.append("turn")
        return has_turn

    def load_settings() -> Settings:
        found.append("settings")
        raise LeftError

    monkeypatch.setattr(sys, "argv", ["app.driver", *arguments])
    monkeypatch.setattr(entry, "await_turn", await_turn)
    monkeypatch.setattr(entry, "make_children_safe", lambda: None)
    monkeypatch.setattr(entry, "load_settings", load_settings)
    try:
        entry.main(lambda _settings: pytest.fail("no runner yet"), lambda: found.append("begun"))
    except LeftError:
        assert done[-1] == "settings"
    assert found == done
