"""The encryption of stored secrets: AES-256-GCM with keys derived from ``SLACKWATER_SECRET_KEY``.

An encrypted secret is bound to its name, its field and the whole definition around it. So a person who can write to the database, but has
no key, can neither move a password to another connection nor change the host that gets it.
"""

from __future__ import annotations

import hmac
import json
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

LEAST_CHARS: Final = 32
"""Least length of a key: HKDF derives keys from random texts and does not slow down guessing. `openssl rand -hex 32` has 64."""

_FORMAT: Final = "v1"
_NONCE_BYTES: Final = 12
_ID_CHARS: Final = 12


class SecretUnreadable(Exception):
    """A stored secret cannot be decrypted; the text says why and what to do."""


class SecretKeyMissing(Exception):
    """Values cannot be encrypted, because there is no key.

    Attributes:
        pointers: of their fields.
    """

    def __init__(self, pointers: Sequence[str]) -> None:
        super().__init__(f"SLACKWATER_SECRET_KEY is not set; {', '.join(pointers)}")
        self.pointers = tuple(pointers)


@dataclass(frozen=True, slots=True)
class SecretPlace:
    """The place to which a secret is bound.

    Attributes:
        connection: name.
        definition: as stored, without secrets.
        pointer: of the field.
    """

    connection: str
    definition: Mapping[str, Any]
    pointer: str

    @property
    def bytes(self) -> bytes:
        """The place as one text; JSON has one form here, for any order in the database."""
        parts = [self.connection, self.pointer, self.definition]
        return json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


@dataclass(frozen=True, slots=True, repr=False)
class _Key:
    """One key.

    Attributes:
        id: identifies the key that a secret needs; the key cannot be derived from it.
    """

    id: str
    cipher: AESGCM
    mark: bytes


class SecretKeys:
    """The keys of a setting such as ``new,old``: the first one encrypts, every one decrypts.

    Args:
        texts: at least one.
    """

    def __init__(self, *texts: str) -> None:
        self._keys = tuple(map(_derived, texts))

    @classmethod
    def of(cls, setting: str | None) -> Self | None:
        """Read the setting; return None if there is none.

        Raises:
            ValueError: a key is too short. The text does not repeat it.
        """
        texts = [part for each in (setting or "").split(",") if (part := each.strip())]
        if any(len(text) < LEAST_CHARS for text in texts):
            raise ValueError(
                f"each key has {LEAST_CHARS} characters or more (`openssl rand -hex 32`); several have commas between them"
            )
        return cls(*texts) if texts else None

    def encrypt(self, text: str, place: SecretPlace) -> str:
        """Return the stored form of a secret."""
        first = self._keys[0]
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + first.cipher.encrypt(nonce, text.encode(), place.bytes)
        return f"{_FORMAT}.{first.id}.{urlsafe_b64encode(sealed).decode()}"

    def decrypt(self, stored: str, place: SecretPlace) -> str:
        """Return the secret.

        Raises:
            SecretUnreadable: it needs another key, or was changed.
        """
        key = self._key_of(stored)
        if key is None:
            raise SecretUnreadable(
                f"{place.pointer} is encrypted with a key that SLACKWATER_SECRET_KEY does not have; add the former key behind the present "
                f"one (new,old), or PUT /v1/connections/{place.connection} again"
            )
        try:
            sealed = urlsafe_b64decode(stored.rpartition(".")[2])
            return key.cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], place.bytes).decode()
        except (InvalidTag, ValueError) as error:
            raise SecretUnreadable(
                f"{place.pointer} was changed in the database, or the definition around it was; PUT /v1/connections/{place.connection} again"
            ) from error

    def is_first(self, stored: str) -> bool:
        """Whether a secret is encrypted with the first key."""
        return self._key_of(stored) is self._keys[0]

    def mark(self, text: str) -> str:
        """Return a mark that is equal for equal secrets, for digests of requests; without the key nobody can test guesses against it."""
        return hmac.new(self._keys[0].mark, text.encode(), sha256).hexdigest()

    def _key_of(self, stored: str) -> _Key | None:
        form, _, rest = stored.partition(".")
        identity = rest.partition(".")[0]
        return next((key for key in self._keys if form == _FORMAT and key.id == identity), None)


def _derived(text: str) -> _Key:
    def part(purpose: str) -> bytes:
        return HKDF(SHA256(), 32, salt=None, info=f"slackwater connections {purpose}".encode()).derive(text.encode())

    return _Key(part("id").hex()[:_ID_CHARS], AESGCM(part("secrets")), part("mark"))
