"""Where results may be written as files: below one directory, which the service's settings name."""

from __future__ import annotations

from pathlib import Path

from engine.errors import DefinitionInvalid, Problem

VARIABLE = "SLACKWATER_DELIVERY_ROOT"


def directory_of(path: str, root: Path | None) -> Path:
    """Return the directory that a path names, links resolved.

    Raises:
        DefinitionInvalid: ``path_not_allowed``: it is not below the root, or there is none.
    """
    if root is None:
        raise _refused(
            f"this service was started without {VARIABLE}, which names the directory below which results may be written; set it"
        )
    above = root.expanduser().resolve()
    found = (above / path).resolve()
    if ".." in Path(path).parts or found == above or not found.is_relative_to(above):
        raise _refused(
            f"results are written to directories below {above} only, links resolved and without '..'; {VARIABLE} sets it"
        )
    return found


def _refused(detail: str) -> DefinitionInvalid:
    return DefinitionInvalid([Problem("/into/connector/path", "path_not_allowed", detail)])
