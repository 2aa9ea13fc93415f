"""The text of a follower's cursor: round trips, and what is none."""

from __future__ import annotations

from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.following.cursors import MAX_CURSOR_CHARS, ChangeCursor, identity_of
from tests.examples import examples

OFFSETS = st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=8).map(tuple)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=40)
KEYS = st.none() | st.lists(TEXTS, max_size=3).map(tuple)


@given(OFFSETS, KEYS)
@settings(max_examples=examples(100))
def test_a_cursor_reads_back_as_it_was_written(offsets: tuple[int, ...], key: tuple[str, ...] | None) -> None:
    cursor = ChangeCursor(identity_of(uuid4(), 7), offsets, key)
    text = cursor.encode()
    assert ChangeCursor.decode(text) == cursor
    assert text.isascii()
    assert not set(text) & set(" &?#%+\r\n\0")


@given(OFFSETS, st.lists(st.tuples(st.integers(0, 99), st.integers(0, 2**63 - 1)), max_size=5, unique_by=lambda part: part[0]))
@settings(max_examples=examples(100))
def test_a_cursor_has_an_offset_for_each_part(offsets: tuple[int, ...], parts: list[tuple[int, int]]) -> None:
    own = uuid4()
    identities = {identity_of(own, number): offset for number, offset in parts}
    cursor = ChangeCursor(identity_of(own, 100), (*offsets, *identities.values()), None, tuple(identities))
    read = ChangeCursor.decode(cursor.encode())
    assert read == cursor
    assert (read.own, read.by_part) == (offsets, identities)


def test_the_widest_cursors_fit() -> None:
    assert len(ChangeCursor("0" * 16, (10**14 - 1,) * 256).encode()) <= MAX_CURSOR_CHARS
    assert len(ChangeCursor("0" * 16, (2**63 - 1,), ('"' * 1_024,)).encode()) <= MAX_CURSOR_CHARS


def test_each_log_has_an_identity_of_its_own() -> None:
    relation, other = uuid4(), uuid4()
    assert len({identity_of(relation, 1), identity_of(relation, 2), identity_of(other, 1)}) == 3


@pytest.mark.parametrize(
    "text",
    ["", "?", "0123456789abcdef", "0123456789abcdef.", "0123456789abcdef.x", "0123456789abcdef.1.", "0123456789abcdef.1._",
     "0123456789abcdef.1.bnVsbA",
     "0123456789abcdef.1.WzFd", "0123456789abcdef.9999999999999999999", "0123456789abcdef.-1", "0123456789ABCDEF.1", "0123456789abcdef.1\n",
     "0123456789abcdef." + "1_" * 5_000 + "1", "0123456789abcdef.1~", "0123456789abcdef.1~0123456789abcdef",
     "0123456789abcdef~0123456789abcdef.1",
     "0123456789abcdef.1~0123456789abcdef.1~0123456789abcdef.2", "0123456789abcdef.1~0123456789abcdef.9999999999999999999"],
)  # fmt: skip
def test_other_texts_are_no_cursors(text: str) -> None:
    with pytest.raises(ValueError):
        ChangeCursor.decode(text)
