"""The directories that sources may read: a user who can register a source must not be able to read the service's whole machine.

Only directories are checked. Files, and links among them, come from people who can write below the root; no request can.
"""

from __future__ import annotations

from pathlib import Path

from engine.errors import DefinitionInvalid, Problem

_POINTER = "/connector/path"


def check_directory(path: str, files_root: Path | None) -> None:
    """Refuse a directory that is not below ``files_root``, after resolving links.

    Without a root every directory is refused: on a personal machine the request may come from a web page.

    Raises:
        DefinitionInvalid: ``path_not_allowed``.
    """
    if files_root is None:
        raise _refused(
            "this service was started without SLACKWATER_FILES_ROOT, which names the directory below which sources may read files"
        )
    root = files_root.expanduser().resolve()
    if ".." in Path(path).parts or not Path(path).resolve().is_relative_to(root):
        raise _refused(
            f"sources read directories below {root} only, links resolved and without '..'; SLACKWATER_FILES_ROOT sets it"
        )


def _refused(detail: str) -> DefinitionInvalid:
    return DefinitionInvalid([Problem(_POINTER, "path_not_allowed", detail)])
