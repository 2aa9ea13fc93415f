"""Which directories sources may read: whoever can register a source must not be able to read the service's whole machine.

Only directories are looked at. Files, and links among them, are put there by who may write below the root, which no request does.
"""

from __future__ import annotations

from pathlib import Path

from engine.errors import DefinitionInvalid, Problem

_POINTER = "/connector/path"


def check_directory(path: str, files_root: Path | None) -> None:
    """Refuse a directory that is not below ``files_root``, links resolved.

    Without a root none will do: on a machine of one's own a web page may be the one that asks.

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
