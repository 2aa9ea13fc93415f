"""Where a delivery goes on, from what the target and the database say."""

from __future__ import annotations

import pytest

from app.errors.error_list import ERRORS
from engine.deliveries.delivered_rows import FORGOTTEN_AFTER_S, RecordedDelivery, resumed_at
from engine.deliveries.deliveries import DeliveryStopped


@pytest.mark.parametrize(
    ("found", "noted", "expected"),
    [
        # The target decides, between what is certain and what was planned.
        (5, RecordedDelivery(5, 5, None, is_known=True), 5),
        (5, RecordedDelivery(5, 9, 1.0, is_known=True), 5),
        (7, RecordedDelivery(5, 9, 1.0, is_known=True), 7),
        (9, RecordedDelivery(5, 9, 1.0, is_known=False), 9),
        # A target that knows nothing has nothing, as long as that was so when the delivery was planned.
        (None, RecordedDelivery(0, 0, None, is_known=False), 0),
        (None, RecordedDelivery(0, 9, 1.0, is_known=False), 0),
        (None, RecordedDelivery(5, 9, FORGOTTEN_AFTER_S - 1, is_known=False), 5),
        # Brokers forget positions; where nothing was under way that of the database counts.
        (None, RecordedDelivery(5, 5, 10 * FORGOTTEN_AFTER_S, is_known=True), 5),
    ],
)
def test_a_delivery_goes_on_where_its_target_is(found: int | None, noted: RecordedDelivery, expected: int) -> None:
    assert resumed_at(found, noted, keeps_position=True) == expected


@pytest.mark.parametrize(
    ("found", "noted", "reason"),
    [
        (10, RecordedDelivery(5, 9, 1.0, is_known=True), "delivery_ahead"),
        (4, RecordedDelivery(5, 9, 1.0, is_known=True), "delivery_position_lost"),
        (None, RecordedDelivery(5, 9, 1.0, is_known=True), "delivery_position_lost"),
        (None, RecordedDelivery(5, 9, FORGOTTEN_AFTER_S + 1, is_known=False), "delivery_position_lost"),
    ],
)
def test_a_delivery_stops_where_nobody_knows_what_its_target_has(found: int | None, noted: RecordedDelivery, reason: str) -> None:
    with pytest.raises(DeliveryStopped) as caught:
        resumed_at(found, noted, keeps_position=True)
    assert caught.value.reason == reason
    assert ERRORS[reason].cure


def test_a_target_without_a_position_gets_again_what_was_under_way() -> None:
    assert resumed_at(None, RecordedDelivery(5, 9, FORGOTTEN_AFTER_S + 1, is_known=True), keeps_position=False) == 5
