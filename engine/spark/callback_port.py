"""The port at which the JVM calls Python back, open to nobody without a token.

PySpark opens it without one (``ensure_callback_server_started``), so any process of this machine could call what the driver offers the JVM.
Py4J checks a token on both sides, but its Java client loses it when it learns the port (``PythonClient.copyWith`` of Py4J 0.10.9.9).
So the token is set on the client that PySpark has installed, by reflection: Py4J has no call that puts another client into a running gateway.
"""

from __future__ import annotations

import secrets
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started


def open_callback_port(gateway: Any) -> None:
    """Open the port before PySpark does, which then takes it as it is.

    Args:
        gateway: of a ``SparkContext``; not used for callbacks yet.
    """
    token = secrets.token_hex(32)
    gateway.callback_server_parameters.auth_token = token
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    field = getattr(gateway.jvm.java.lang, "Class").forName("py4j.CallbackClient").getDeclaredField("authToken")  # noqa: B009
    field.setAccessible(True)
    field.set(gateway.java_gateway_server.getCallbackClient(), token)
