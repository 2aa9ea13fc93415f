"""The port at which the JVM calls Python back. Calls without the token are refused.

PySpark opens this port without a token (``ensure_callback_server_started``). Any process of this machine could then call what the driver
offers the JVM. Py4J checks a token on both sides, but its Java client loses the token when it learns the port
(``PythonClient.copyWith`` of Py4J 0.10.9.9). Reflection sets the token on the client that PySpark has installed: Py4J has no call that puts
another client into a running gateway.
"""

from __future__ import annotations

import secrets
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started


def open_callback_port(gateway: Any) -> None:
    """Open the port before PySpark does; PySpark then uses it unchanged.

    Args:
        gateway: of a ``SparkContext``, with no callbacks yet.
    """
    token = secrets.token_hex(32)
    gateway.callback_server_parameters.auth_token = token
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    field = getattr(gateway.jvm.java.lang, "Class").forName("py4j.CallbackClient").getDeclaredField("authToken")  # noqa: B009
    field.setAccessible(True)
    field.set(gateway.java_gateway_server.getCallbackClient(), token)
