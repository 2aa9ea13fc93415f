"""The registry's client against a server that speaks Confluent's protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from engine.formats.port import FormatInvalid, RegisteredSchema, RegistryRefused, RegistryUnavailable, SchemaUnknown
from engine.formats.registry.client import Registry
from engine.formats.registry.settings import RegistrySettings, subject_of
from engine.formats.shapes import SchemaNotRead
from tests.unit.formats.registry_server import FakeRegistry, serving

LONG = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]})
TEXT = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]})


class Clock:
    """Time that passes only by waiting."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def server() -> Iterator[FakeRegistry]:
    with serving(FakeRegistry()) as registry:
        yield registry


@pytest.fixture
def clock() -> Clock:
    return Clock()


def client(server: FakeRegistry, clock: Clock, **more: object) -> Registry:
    return Registry(RegistrySettings((server.url,), **more), clock.sleep, clock.now)  # type: ignore[arg-type]


def test_a_schema_is_asked_for_once(server: FakeRegistry, clock: Clock) -> None:
    number, registry = server.add("t-value", LONG), client(server, clock)
    assert registry.by_number(number) == RegisteredSchema(number, "AVRO", LONG)
    assert registry.by_number(number).text == LONG
    assert server.asked == [f"GET /schemas/ids/{number}"]
    registry.close()


def test_an_unknown_number_is_told_and_not_asked_for_again_until_its_time_is_over(server: FakeRegistry, clock: Clock) -> None:
    registry = client(server, clock, unknown_seconds=30.0)
    with pytest.raises(SchemaUnknown):
        registry.by_number(7)
    asked = len(server.asked)
    with pytest.raises(SchemaUnknown):
        registry.by_number(7)
    assert len(server.asked) == asked
    clock.sleep(31)
    for _ in range(7):
        server.add("t-value", json.dumps({"type": "fixed", "name": f"f{len(server.schemas)}", "size": 4}))
    assert registry.by_number(7).number == 7
    registry.close()


def test_a_number_that_a_lagging_node_does_not_know_yet_is_asked_for_again(server: FakeRegistry, clock: Clock) -> None:
    number, registry = server.add("t-value", LONG), client(server, clock)
    server.hidden[number] = 2
    assert registry.by_number(number).text == LONG
    registry.close()


def test_a_registry_that_starts_is_waited_for(server: FakeRegistry, clock: Clock) -> None:
    number, registry = server.add("t-value", LONG), client(server, clock)
    server.failures = 3
    assert registry.by_number(number).text == LONG
    assert clock.seconds > 0
    registry.close()


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_registry_that_fails_until_the_deadline_is_unavailable_and_retryable(
    server: FakeRegistry, clock: Clock, status: int
) -> None:
    registry = client(server, clock, deadline_seconds=5.0)
    server.failures, server.failing_status = 1_000, status
    with pytest.raises(RegistryUnavailable) as caught:
        registry.by_number(1)
    assert caught.value.retryable
    assert clock.seconds <= 5
    registry.close()


def test_a_registry_that_is_away_is_unavailable(clock: Clock) -> None:
    registry = Registry(RegistrySettings(("http://127.0.0.1:9",), deadline_seconds=3), clock.sleep, clock.now)
    with pytest.raises(RegistryUnavailable, match="gives no answer"):
        registry.by_number(1)
    registry.close()


def test_a_slow_registry_is_unavailable_after_its_timeout(server: FakeRegistry, clock: Clock) -> None:
    server.delay_seconds = 0.5
    registry = client(server, clock, timeout_seconds=0.1, deadline_seconds=0.05)
    with pytest.raises(RegistryUnavailable):
        registry.by_number(1)
    registry.close()


def test_another_node_is_asked_where_one_is_away(server: FakeRegistry, clock: Clock) -> None:
    number = server.add("t-value", LONG)
    registry = Registry(RegistrySettings(("http://127.0.0.1:9", server.url)), clock.sleep, clock.now)
    assert registry.by_number(number).text == LONG
    assert clock.seconds == 0
    registry.close()


def test_what_is_no_registry_is_unavailable_and_says_what_to_look_at(server: FakeRegistry, clock: Clock) -> None:
    server.garbage = True
    registry = client(server, clock, deadline_seconds=1.0)
    with pytest.raises(RegistryUnavailable, match="is that the url"):
        registry.by_number(1)
    registry.close()


@pytest.mark.parametrize(
    ("header", "settings"),
    [
        ("Basic dTpw", {"auth": httpx.BasicAuth("u", "p")}),
        ("Bearer secret-token", {"headers": (("Authorization", "Bearer secret-token"),)}),
    ],
)
def test_credentials_are_sent_and_wrong_ones_are_refused_without_a_retry(
    server: FakeRegistry, clock: Clock, header: str, settings: dict[str, object]
) -> None:
    server.credentials = header
    number = server.add("t-value", LONG)
    registry = client(server, clock, **settings)
    assert registry.by_number(number).text == LONG
    registry.close()
    nobody = client(server, clock)
    asked = len(server.asked)
    with pytest.raises(RegistryRefused, match="credentials"):
        nobody.by_number(number)
    assert len(server.asked) == asked + 1
    nobody.close()


def test_secrets_are_not_shown_by_settings() -> None:
    assert "geheim" not in repr(RegistrySettings(("https://r",), headers=(("Authorization", "Bearer geheim"),)))


def test_references_come_with_their_schema_each_behind_what_it_uses(server: FakeRegistry, clock: Clock) -> None:
    server.add("c", json.dumps({"type": "enum", "name": "C", "symbols": ["X"]}))
    server.add("b", json.dumps({"type": "record", "name": "B", "fields": [{"name": "c", "type": "C"}]}),
               references=[{"name": "C", "subject": "c", "version": 1}])  # fmt: skip
    number = server.add("a", json.dumps({"type": "record", "name": "A", "fields": [{"name": "b", "type": "B"}]}),
                        references=[{"name": "B", "subject": "b", "version": 1}])  # fmt: skip
    registry = client(server, clock)
    assert [name for name, _ in registry.by_number(number).references] == ["C", "B"]
    registry.close()


def test_references_in_a_circle_and_too_many_are_refused(server: FakeRegistry, clock: Clock) -> None:
    circle = [{"name": "A", "subject": "a", "version": 1}]
    number = server.add("a", LONG, references=circle)
    registry = client(server, clock)
    with pytest.raises(SchemaNotRead, match="circle"):
        registry.by_number(number)
    many = [{"name": f"x{i}", "subject": "b", "version": 1} for i in range(100)]
    server.add("b", LONG)
    with pytest.raises(SchemaNotRead, match="more than 64"):
        registry.by_number(server.add("many", TEXT, references=many))
    assert len(server.asked) < 80
    registry.close()


def test_an_answer_that_is_too_large_is_refused(server: FakeRegistry, clock: Clock) -> None:
    number = server.add("t-value", "x" * 50_000)
    registry = client(server, clock, max_schema_bytes=10_000)
    with pytest.raises(RegistryRefused, match="10,000 bytes"):
        registry.by_number(number)
    registry.close()


def test_the_cache_is_bounded_by_bytes(server: FakeRegistry, clock: Clock) -> None:
    numbers = [server.add(f"s{i}", json.dumps({"type": "fixed", "name": f"f{i}" + "x" * 1_000, "size": 4})) for i in range(10)]
    registry = client(server, clock, max_cached_bytes=3_000)
    for number in numbers:
        registry.by_number(number)
    asked = len(server.asked)
    registry.by_number(numbers[-1])
    assert len(server.asked) == asked
    registry.by_number(numbers[0])
    assert len(server.asked) == asked + 1
    registry.close()


def test_a_schema_is_registered_once(server: FakeRegistry, clock: Clock) -> None:
    registry = client(server, clock)
    first = registry.register("out-value", RegisteredSchema(0, "AVRO", LONG))
    assert registry.register("out-value", RegisteredSchema(0, "AVRO", LONG)) == first
    assert server.asked == ["POST /subjects/out-value/versions"]
    registry.close()


def test_an_incompatible_schema_is_refused_with_the_registrys_words(server: FakeRegistry, clock: Clock) -> None:
    server.add("out-value", LONG)
    registry = client(server, clock)
    with pytest.raises(RegistryRefused, match="incompatible"):
        registry.register("out-value", RegisteredSchema(0, "AVRO", TEXT))
    registry.close()


def test_a_subjects_latest_schema(server: FakeRegistry, clock: Clock) -> None:
    registry = client(server, clock)
    assert registry.latest("a/b value") is None
    server.add("a/b value", LONG)
    latest = registry.latest("a/b value")
    assert latest is not None
    assert latest.text == LONG
    registry.close()


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [("topic_name", "t-key"), ("record_name", "n.R"), ("topic_record_name", "t-n.R")],
)
def test_subjects_by_strategy(strategy: str, subject: str) -> None:
    assert subject_of(strategy, "t", "key", "n.R") == subject


def test_a_strategy_that_needs_a_record_or_is_unknown_is_refused() -> None:
    for strategy in ("record_name", "random"):
        with pytest.raises(FormatInvalid):
            subject_of(strategy, "t", "key", "")
