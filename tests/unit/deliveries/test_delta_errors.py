"""What errors of the Delta library mean: waiting, or stopping with the cure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from deltalake.exceptions import DeltaError

from engine.definition.deliveries.delta import DeltaDelivery
from engine.deliveries.deliveries import DeliveryStopped, TargetUnavailable
from engine.deliveries.delta.delivery import DeltaDeliverer
from engine.deliveries.delta.place import DeltaPlace

REFUSED = "Generic S3 error: Server returned non-2xx status code: 403 Forbidden: <Error><Code>{}</Code></Error>"
BUCKET = DeltaPlace("s3://lake/t", None, {"aws_region": "r"})


def told(error: Exception, place: DeltaPlace = BUCKET) -> Exception:
    definition = DeltaDelivery.model_construct(connection="lake")
    return DeltaDeliverer(definition, cast("Any", SimpleNamespace(delivery="d")), place)._failure(error)


@pytest.mark.parametrize("code", ["InvalidAccessKeyId", "SignatureDoesNotMatch", "RequestTimeTooSkewed", "ExpiredToken"])
def test_a_key_that_was_exchanged_and_a_wrong_clock_are_waited_for(code: str) -> None:
    assert isinstance(told(OSError(REFUSED.format(code))), TargetUnavailable)


def test_what_a_key_may_not_do_stops_with_what_to_allow() -> None:
    found = told(OSError(REFUSED.format("AccessDenied")))
    assert isinstance(found, DeliveryStopped)
    assert "let its key list the bucket" in str(found)


def test_a_rule_that_a_row_breaks_stops_however_much_stands_before_it() -> None:
    found = told(DeltaError(f"{'x' * 1_000} Invalid data found: 1 rows failed validation check."))
    assert isinstance(found, DeliveryStopped)
    assert "rule that a row breaks" in str(found)


def test_a_directory_that_refuses_is_waited_for() -> None:
    assert isinstance(told(OSError(REFUSED.format("AccessDenied")), DeltaPlace("/lake/t")), TargetUnavailable)
