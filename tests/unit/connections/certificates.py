"""Certificates for tests: an authority, and a certificate of it for a host."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Issued:
    """PEM texts."""

    ca: str
    certificate: str
    key: str


def issue(host: str) -> Issued:
    """Make an authority and a certificate for a host."""
    authority, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    of_authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    try:
        alternative: x509.GeneralName = x509.IPAddress(ip_address(host))
    except ValueError:
        alternative = x509.DNSName(host)
    begin = datetime.now(UTC) - timedelta(hours=1)

    def built(name: x509.Name, public: ec.EllipticCurvePublicKey, *, is_authority: bool) -> str:
        builder = x509.CertificateBuilder().issuer_name(of_authority).subject_name(name).public_key(public)
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(begin)
        builder = builder.not_valid_after(begin + timedelta(days=1))
        builder = builder.add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if is_authority:
            usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
            builder = builder.add_extension(usage, critical=True)
        else:
            builder = builder.add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        return builder.sign(authority, SHA256()).public_bytes(Encoding.PEM).decode()

    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return Issued(
        built(of_authority, authority.public_key(), is_authority=True),
        built(subject, key.public_key(), is_authority=False),
        secret,
    )
