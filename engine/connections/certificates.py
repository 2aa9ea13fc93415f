"""TLS for libraries that take a context, and PEM texts as files for those that take paths."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from engine.connections.secret_sources import SecretReader
from engine.definition.connections.definition import Tls


class CertificateUnreadable(Exception):
    """A PEM text holds no certificate or key, or its password is wrong; the text names the field."""


def tls_context(tls: Tls, reader: SecretReader) -> ssl.SSLContext:
    """Return a context that checks the other side, and has the client's certificate.

    Raises:
        SecretMissing: a reference has no target.
        CertificateUnreadable: see there.
    """
    try:
        context = ssl.create_default_context(cadata=None if tls.ca is None else reader.public(tls.ca))
    except (ssl.SSLError, ValueError) as error:
        raise CertificateUnreadable("`tls.ca` holds no certificates that can be read as PEM") from error
    context.check_hostname = tls.verify_host
    if tls.certificate is not None and tls.key is not None:
        password = "" if tls.key_password is None else reader.text(tls.key_password)
        with as_files() as path_of:
            try:
                # Without a password OpenSSL would ask at the terminal.
                context.load_cert_chain(path_of(reader.text(tls.certificate)), path_of(reader.text(tls.key)), password)
            except (OSError, ValueError) as error:
                raise CertificateUnreadable(
                    "`tls.certificate` and `tls.key` cannot be read: they are no PEM, do not belong together, or `tls.key_password` is another"
                ) from error
    return context


@contextmanager
def as_files() -> Iterator[Callable[[str], str]]:
    """Provide texts as files during the block, for libraries that only take paths.

    They are files in memory if the system has such (Linux), else files that only this user can read, in a separate directory.

    Yields:
        A function from text to path.
    """
    with ExitStack() as stack:
        directory: list[Path] = []

        def path_of(text: str) -> str:
            if hasattr(os, "memfd_create"):
                descriptor = os.memfd_create("slackwater-pem", os.MFD_CLOEXEC)
                stack.callback(os.close, descriptor)
                os.fchmod(descriptor, 0o600)  # libpq refuses keys that others could read
                os.write(descriptor, text.encode())
                return f"/proc/self/fd/{descriptor}"
            if not directory:
                directory.append(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slackwater-"))))
            path = directory[0] / f"{len(list(directory[0].iterdir()))}.pem"
            path.touch(0o600)
            path.write_text(text)
            return str(path)

        yield path_of
