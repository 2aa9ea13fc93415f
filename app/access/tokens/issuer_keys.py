"""The public keys of an OpenID Connect issuer: fetched in the background, cached while the issuer is unreachable, bounded."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import httpx
import jwt
import structlog
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, SECP384R1, SECP521R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from app.settings.oidc_settings import OidcSettings, trustworthy_url

FRESH_SECONDS: Final = 300.0
"""After this time the keys are fetched again. A key that the issuer withdrew stays valid until the next answer: for this time, or up to
``keys_kept_s`` of the settings if the issuer does not answer."""

FETCHED_EVERY_SECONDS: Final = 10.0
"""Tokens with unknown keys do not make the service ask the issuer more often than this."""

FETCH_SECONDS: Final = 5.0
MOST_BYTES: Final = 256 * 1024
MOST_KEYS: Final = 100
LEAST_RSA_BITS: Final = 2_048
DISCOVERY: Final = "/.well-known/openid-configuration"

PublicKey: TypeAlias = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey | Ed448PublicKey
_CURVES: Final = {"ES256": SECP256R1, "ES384": SECP384R1, "ES512": SECP521R1}
log = structlog.stdlib.get_logger(__name__)


class IssuerAway(Exception):
    """The issuer does not give its keys; the text says why."""


@dataclass(frozen=True, slots=True)
class IssuerKey:
    """A key that the issuer signs with.

    Attributes:
        id: its ``kid``; None where it has none.
        algorithm: the only one of this key; None: any that fits its type.
    """

    id: str | None
    algorithm: str | None
    key: PublicKey

    def fits(self, algorithm: str) -> bool:
        if self.algorithm not in (None, algorithm):
            return False
        if isinstance(self.key, RSAPublicKey):
            return algorithm[:2] in ("RS", "PS") and self.key.key_size >= LEAST_RSA_BITS
        if isinstance(self.key, EllipticCurvePublicKey):
            return algorithm in _CURVES and isinstance(self.key.curve, _CURVES[algorithm])
        return algorithm == "EdDSA"


class IssuerKeys:
    """Keys of one issuer, for one event loop."""

    def __init__(self, settings: OidcSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._keys: list[IssuerKey] | None = None
        self._fetched_at = self._tried_at = float("-inf")
        self._trouble = "it was not asked yet"
        self._lock = asyncio.Lock()
        self._refreshing: asyncio.Task[None] | None = None

    async def find(self, key_id: str | None, algorithm: str) -> list[IssuerKey]:
        """Return the keys that may have signed a token: at most one if the token names one.

        No caller waits for the issuer while the key is known and younger than ``keys_kept_s``.

        Raises:
            IssuerAway: no key fits, or it is too old, and the issuer gives no keys.
        """
        keys = self._known(key_id, algorithm)
        if keys:
            if self._is_due(FRESH_SECONDS) and (self._refreshing is None or self._refreshing.done()):
                self._refreshing = asyncio.create_task(self._refresh())
            return keys
        await self._refresh()
        keys = self._known(key_id, algorithm)
        if not keys and (self._keys is None or self._fetched_at < self._tried_at):
            old = f"they were read last more than {self._settings.keys_kept_s:g} s ago, and now " if self._are_too_old() else ""
            raise IssuerAway(old + self._trouble)
        return keys

    async def fetch(self) -> list[IssuerKey]:
        """Ask the issuer for its keys.

        Raises:
            IssuerAway: it does not answer, or not with keys.
        """
        try:
            async with asyncio.timeout(FETCH_SECONDS), httpx.AsyncClient(timeout=FETCH_SECONDS) as client:
                return _usable(await self._read(client, self._settings.jwks_url or await self._discovered(client)))
        except TimeoutError as error:
            raise IssuerAway(f"no answer within {FETCH_SECONDS:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise IssuerAway(str(error) or type(error).__name__) from error

    def _are_too_old(self) -> bool:
        return self._keys is not None and self._clock() - self._fetched_at > self._settings.keys_kept_s

    def _known(self, key_id: str | None, algorithm: str) -> list[IssuerKey]:
        if self._are_too_old():
            return []
        fitting = [key for key in self._keys or () if key.fits(algorithm)]
        return fitting if key_id is None else [key for key in fitting if key.id == key_id]

    def _is_due(self, age_s: float) -> bool:
        now = self._clock()
        return now - self._fetched_at >= age_s and now - self._tried_at >= FETCHED_EVERY_SECONDS

    async def _refresh(self) -> None:
        async with self._lock:
            if not self._is_due(0):
                return  # another task has fetched the keys meanwhile
            self._tried_at = self._clock()
            try:
                self._keys = await self.fetch()
                self._fetched_at = self._tried_at
            except IssuerAway as error:
                self._trouble = str(error)
                log.warning(
                    "issuer_keys_not_fetched", issuer=self._settings.issuer, error=self._trouble, keys=len(self._keys or ())
                )
            except Exception:
                # Nobody awaits this background task, so any error from outside would stay unseen without this log entry.
                self._trouble = "its answer cannot be read; the service's log says why"
                log.exception("issuer_keys_not_read", issuer=self._settings.issuer, keys=len(self._keys or ()))

    async def _discovered(self, client: httpx.AsyncClient) -> str:
        issuer = str(self._settings.issuer)
        configuration = await self._read(client, issuer.rstrip("/") + DISCOVERY)
        if configuration.get("issuer") != issuer:
            raise ValueError(
                f"it calls itself {str(configuration.get('issuer'))[:200]!r}; set SLACKWATER_OIDC__ISSUER to exactly that"
            )
        return trustworthy_url(str(configuration.get("jwks_uri")))

    async def _read(self, client: httpx.AsyncClient, url: str) -> dict[str, Any]:
        body = b""
        async with client.stream("GET", url, headers={"Accept": "application/json"}) as response:
            if response.status_code != httpx.codes.OK:
                raise ValueError(f"{url} answers {response.status_code}")
            async for part in response.aiter_bytes():
                body += part
                if len(body) > MOST_BYTES:
                    raise ValueError(f"{url} answers more than {MOST_BYTES} bytes")
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{url} answers no JSON") from error
        if not isinstance(answer, dict):
            raise ValueError(f"{url} answers no JSON object")  # noqa: TRY004 - the answer is wrong, not an argument
        return answer


def _usable(key_set: dict[str, Any]) -> list[IssuerKey]:
    """Return the keys that can verify signatures. An issuer may have other kinds of keys, or none."""
    listed = key_set.get("keys")
    if not isinstance(listed, list):
        raise ValueError("its `keys` is not a list")  # noqa: TRY004 - the answer is wrong, not an argument
    usable = [key for key in map(_read_key, listed[:MOST_KEYS]) if key is not None]
    if not usable:
        log.warning("issuer_has_no_usable_keys", listed=len(listed))
    return usable


def _read_key(entry: object) -> IssuerKey | None:
    """Return a key of the issuer's list; None if it does not verify signatures or is malformed."""
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig" or entry.get("kty") not in ("RSA", "EC", "OKP"):
        return None
    key_id, algorithm = entry.get("kid"), entry.get("alg")
    if not isinstance(key_id, str | None) or not isinstance(algorithm, str | None):
        log.warning("issuer_key_not_read", kid=repr(key_id)[:80], error="its `kid` or `alg` is not a text")
        return None
    try:
        key = jwt.PyJWK.from_dict(entry).key
    except Exception as error:  # noqa: BLE001 - PyJWT also raises TypeError and others; one malformed key must not make the other keys unusable
        log.warning("issuer_key_not_read", kid=repr(key_id)[:80], error=str(error)[:200])
        return None
    is_public = isinstance(key, RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey | Ed448PublicKey)
    return IssuerKey(key_id, algorithm, key) if is_public else None
