"""The grep for secrets finds them in each form."""

from __future__ import annotations

from base64 import b64encode
from urllib.parse import quote

import pytest

from tests.secrets_seen import check_unseen

SECRET = 'pw/"x" é'


@pytest.mark.parametrize(
    "text",
    [
        SECRET, quote(SECRET, safe=""), r"pw/\"x\" \u00e9", SECRET.encode().hex(), b64encode(SECRET.encode()).decode(),
        b64encode(f"me:{SECRET}".encode()).decode(),
    ],
)  # fmt: skip
def test_a_secret_is_found_in_each_form(text: str) -> None:
    with pytest.raises(AssertionError, match="is in the log"):
        check_unseen([SECRET], {"elsewhere": "", "the log": f"…{text}…"}, users=("me",))


def test_what_is_no_secret_is_none() -> None:
    check_unseen([SECRET], {"the log": "pw/x"}, users=("me",))
