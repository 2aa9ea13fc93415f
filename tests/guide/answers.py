"""How the answer that a page shows is held against the one that came, and how answers are written into a page."""

from __future__ import annotations

import json
import re
from typing import Any

ANY = "…"
"""In a text: any characters; alone on a line: any lines; as a value of JSON: any; last in an array: any more."""


def text_fits(shown: str, found: str) -> bool:
    """Whether a text is the one that is shown."""
    parts = (r"(?:.*\n)*?" if line.strip() == ANY else _pattern(line) + r"\n" for line in _lines(shown))
    return re.fullmatch("".join(parts), "".join(f"{line}\n" for line in _lines(found))) is not None


def json_fits(shown: Any, found: Any) -> bool:
    """Whether a value has everything that is shown of it."""
    if shown == ANY:
        return True
    if isinstance(shown, dict):
        return isinstance(found, dict) and all(name in found and json_fits(each, found[name]) for name, each in shown.items())
    if isinstance(shown, list):
        if not isinstance(found, list):
            return False
        is_open = bool(shown) and shown[-1] == ANY
        wanted = shown[:-1] if is_open else shown
        fits_length = len(found) >= len(wanted) if is_open else len(found) == len(wanted)
        return fits_length and all(map(json_fits, wanted, found))
    if isinstance(shown, str) and isinstance(found, str):
        return re.fullmatch(_pattern(shown), found, re.DOTALL) is not None
    return type(shown) is type(found) and bool(shown == found)


def fits(shown: str, found: str, *, is_json: bool) -> bool:
    """Whether an answer is the one that is shown. An empty block fits nothing but silence."""
    if not is_json:
        return text_fits(shown, found)
    return bool(shown.strip()) and json_fits(json.loads(shown), json.loads(found))


def written(shown: str, found: str, *, is_json: bool) -> str:
    """Return what the page shows from now on: as it was where that fits, line by line where there are as many, else what came."""
    if fits(shown, found, is_json=is_json):
        return shown
    if is_json:
        return json.dumps(json.loads(found), indent=2, ensure_ascii=False)
    before, now = _lines(shown), _lines(found)
    if len(before) == len(now):
        return "\n".join(old if re.fullmatch(_pattern(old), new) else new for old, new in zip(before, now, strict=True))
    return "\n".join(now)


def _pattern(text: str) -> str:
    return ".*".join(map(re.escape, text.rstrip().split(ANY)))


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]
