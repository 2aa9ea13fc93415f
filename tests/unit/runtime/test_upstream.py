"""How far what stands behind a derived feed has come, from facts alone (P3 to P5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
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


def test_a_producer_that_has_not_read_a_mark_may_still_emit_rows() -> None:
    """P14: time without rows closes windows. Else a reader would take what its other feeds have before them (P4)."""
    facts = dict(ladder(1)) | {"left0": replace(derived("top0"), last_mark_ms=9)}
    found = walk("top1", facts)
    assert (found.is_at_end, found.has_all_records) == (False, True), "the sources are silent all the same (T10)"
    facts["top1"] = replace(facts["top1"], last_marks={"log:left0": 9})
    assert walk("top1", facts).is_at_end
