"""An issuer of tokens for tests: OpenID Connect's grant for client credentials over HTTPS, and the key set by which a broker checks tokens."""

from __future__ import annotations

import json
import ssl
import tempfile
import threading
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256

from tests.unit.connections.certificates import Issued

ISSUER: Final = "https://issuer.tests"
AUDIENCE: Final = "brokers"
SCOPE: Final = "topics"
_KEY_ID: Final = "only"


@dataclass
class TokenIssuer:
    """What it knows, and what it has issued.

    Attributes:
        secrets: by client.
        lifetime_s: of a token.
        issued: clients, in the order in which they were given tokens.
        tokens: that were given.
        refused: how many were given none.
    """

    secrets: dict[str, str]
    lifetime_s: int = 3_600
    issued: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    refused: int = 0
    url: str = field(init=False)
    _key: RSAPrivateKey = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._key = generate_private_key(65_537, 2_048)

    def key_set(self) -> str:
        """Return what brokers check tokens by (JWKS)."""
        numbers = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": _KEY_ID, "n": _number(numbers.n), "e": _number(numbers.e)}
        return json.dumps({"keys": [key]})

    def token(self, client: str) -> str:
        """Return a token that says who asks."""
        now = int(time.time())
        claims = {
            "sub": client, "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + self.lifetime_s, "scope": SCOPE,
        }  # fmt: skip
        signed = f"{_text({'alg': 'RS256', 'typ': 'JWT', 'kid': _KEY_ID})}.{_text(claims)}"
        signature = self._key.sign(signed.encode(), PKCS1v15(), SHA256())
        return f"{signed}.{_encoded(signature)}"

    def answer(self, authorization: str, form: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        """Answer who asks for a token."""
        kind, _, credentials = authorization.partition(" ")
        client, _, secret = b64decode(credentials).decode().partition(":") if kind == "Basic" else ("", "", "")
        if form.get("grant_type") != ["client_credentials"] or form.get("scope") != [SCOPE]:
            self.refused += 1
            return 400, {"error": "invalid_request"}
        if client not in self.secrets or self.secrets[client] != secret:
            self.refused += 1
            return 401, {"error": "invalid_client", "error_description": "unknown client or wrong secret"}
        self.issued.append(client)
        self.tokens.append(self.token(client))
        return 200, {"access_token": self.tokens[-1], "token_type": "Bearer", "expires_in": self.lifetime_s}


@contextmanager
def issuing(issued: Issued, secrets: dict[str, str], lifetime_s: int) -> Iterator[TokenIssuer]:
    """Serve an issuer for the length of the block, with this certificate."""
    issuer = TokenIssuer(secrets, lifetime_s)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            status, body = issuer.answer(self.headers.get("Authorization", ""), form)
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = _context(issued).wrap_socket(server.socket, server_side=True)
    issuer.url = f"https://127.0.0.1:{server.server_port}/token"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _context(issued: Issued) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(issued.certificate + issued.ca + issued.key)
        file.flush()
        context.load_cert_chain(Path(file.name))
    return context


def _text(value: dict[str, Any]) -> str:
    return _encoded(json.dumps(value).encode())


def _number(value: int) -> str:
    return _encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def _encoded(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()
