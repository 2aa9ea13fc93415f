"""The sources of secrets in a process that uses connections: keys, variables, a directory of secrets, and the allowed hosts."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from pydantic import SecretStr

from engine.connections.keys import SecretKeys
from engine.definition.connections.hosts import HostBounds
from engine.definition.connections.secret import ENV, FILE, MOST_CHARS, forms_of

KEY: Final = "SLACKWATER_SECRET_KEY"
DIRECTORY: Final = "SLACKWATER_SECRETS_DIR"
HOSTS: Final = "SLACKWATER_CONNECTION_HOSTS"
HIDDEN: Final = "…"


class SecretMissing(Exception):
    """A reference has no target that may be read here; the text says why and what to do."""


@dataclass(frozen=True, slots=True, repr=False)
class SecretSources:
    """See the module.

    Attributes:
        keys: None: stored values cannot be decrypted here.
        variables: of the process.
        directory: below which ``file:`` reads; None: it reads nothing.
        hosts: that may be reached.
    """

    keys: SecretKeys | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    directory: Path | None = None
    hosts: HostBounds = field(default_factory=HostBounds)

    @classmethod
    def of(cls, variables: Mapping[str, str] | None = None) -> Self:
        """Read them from the environment, as a driver and Spark's workers do.

        Raises:
            ValueError: a variable has an invalid value.
        """
        present = os.environ if variables is None else variables
        directory = present.get(DIRECTORY)
        return cls(
            SecretKeys.of(present.get(KEY)), present, Path(directory) if directory else None, HostBounds.of(present.get(HOSTS))
        )


class SecretReader:
    """Reads secrets at the moment of their use, and remembers them to keep them out of shown texts."""

    def __init__(self, surroundings: SecretSources) -> None:
        self._surroundings = surroundings
        self._read: set[str] = set()

    def text(self, secret: SecretStr) -> str:
        """Return a secret's value.

        Raises:
            SecretMissing: the variable is not set, or the file cannot be read.
        """
        value = self.public(secret.get_secret_value())
        self._read.add(value)
        return value

    def public(self, text: str) -> str:
        """Return the target of a possible reference that is no secret, such as trusted certificates; see ``text``."""
        if text.startswith(ENV):
            return self._variable(text.removeprefix(ENV))
        return self._file(text.removeprefix(FILE)) if text.startswith(FILE) else text

    def without_secrets(self, text: str) -> str:
        """Return a text of another program without the secrets that were read here, in any usual form."""
        forms = {form for value in self._read for form in forms_of(value)}
        for form in sorted(forms, key=len, reverse=True):
            text = text.replace(form, HIDDEN)
        return text

    def _variable(self, name: str) -> str:
        value = self._surroundings.variables.get(name)
        if not value:
            raise SecretMissing(
                f"the variable {name} is not set in this process; set it for the service, its drivers and Spark's workers"
            )
        return value

    def _file(self, path: str) -> str:
        directory = self._surroundings.directory
        if directory is None:
            raise SecretMissing(f"{FILE}{path}: this process has no {DIRECTORY}, which names the directory of secrets")
        root = directory.expanduser().resolve()
        try:
            found = (root / path).resolve(strict=True)
            if not found.is_relative_to(root):
                raise SecretMissing(f"{FILE}{path} is not below {DIRECTORY}, links resolved")
            # Without O_NONBLOCK a pipe waits for a writer. O_NOFOLLOW refuses a link that has replaced the file meanwhile.
            descriptor = os.open(found, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise SecretMissing(f"{FILE}{path} is no file")
                content = file.read(MOST_CHARS + 1)
        except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
            reason = error.strerror if isinstance(error, OSError) else "links in a circle"
            raise SecretMissing(f"{FILE}{path} cannot be read: {reason}") from error
        return _text_of(content, path)


def _text_of(content: bytes, path: str) -> str:
    if len(content) > MOST_CHARS:
        raise SecretMissing(f"{FILE}{path} has more than {MOST_CHARS} bytes")
    try:
        text = content.decode().rstrip("\r\n")  # editors and `echo` end a file with a line break
    except UnicodeDecodeError:
        raise SecretMissing(f"{FILE}{path} is not UTF-8") from None  # the error would hold the bytes
    if not text or "\0" in text:
        raise SecretMissing(f"{FILE}{path} is empty, or holds the character U+0000")
    return text
