"""How far what stands behind a derived feed has come, from facts alone (P3 to P5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from uuid import UUID

from engine.runtime.planning.upstream import ProducerFact, Reached, walk

READ = {"0": 1}


class CountingFacts(dict[str, ProducerFact]):
    """Facts that count how often each is asked for as a whole."""

    def __init__(self, facts: Mapping[str, ProducerFact]) -> None:
        super().__init__(facts)
        self.asked: list[str] = []

    def __getitem__(self, name: str) -> ProducerFact:
        self.asked.append(name)
        return super().__getitem__(name)


def derived(*reads: str) -> ProducerFact:
    """A feed of one row whose producer has read all of these."""
    return ProducerFact(
        UUID(int=1), 1, 5, {f"log:{name}": READ for name in reads}, {f"log:{name}": {"0": 5} for name in reads}, READ
    )


def ladder(rungs: int) -> Iterator[tuple[str, ProducerFact]]:
    """Diamonds one behind the other, of three queries each."""
    yield "top0", ProducerFact(None, None, None, {}, {}, READ)
    for place in range(rungs):
        yield f"left{place}", derived(f"top{place}")
        yield f"right{place}", derived(f"top{place}")
        yield f"top{place + 1}", derived(f"left{place}", f"right{place}")


def test_a_feed_that_several_queries_read_is_discovered_once() -> None:
    facts = CountingFacts(dict(ladder(5)))
    assert walk("top5", facts) == Reached(is_at_end=True, merged_to_ms=5, read_to_ms=5, sources=(("log:top0/0", 1),))
    assert sorted(facts.asked) == sorted(name for name in facts if name != "top0")
