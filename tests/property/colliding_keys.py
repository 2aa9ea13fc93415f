"""Keys of two whole numbers that share a hash where it has no seed: what a client could send who knows the hash."""

from __future__ import annotations

_GOLDEN, _FIRST, _SECOND, _WORD = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 1 << 64


def colliding(count: int, like: tuple[int, int] = (1, 1)) -> list[tuple[int, int]]:
    """Return so many keys with the hash of one, itself the first."""
    wanted = _mixed(like[0]) * _GOLDEN + _mixed(like[1])
    found = [(number, _unmixed((wanted - _mixed(number) * _GOLDEN) % _WORD)) for number in range(like[0], like[0] + count)]
    return [(first, second - _WORD if second >= _WORD // 2 else second) for first, second in found]


def _mixed(value: int) -> int:
    mixed = (value + _GOLDEN) % _WORD
    mixed = (mixed ^ (mixed >> 30)) * _FIRST % _WORD
    mixed = (mixed ^ (mixed >> 27)) * _SECOND % _WORD
    return mixed ^ (mixed >> 31)


def _unmixed(mixed: int) -> int:
    value = _unshifted(mixed, 31) * pow(_SECOND, -1, _WORD) % _WORD
    value = _unshifted(value, 27) * pow(_FIRST, -1, _WORD) % _WORD
    return (_unshifted(value, 30) - _GOLDEN) % _WORD


def _unshifted(value: int, bits: int) -> int:
    """Return x of x ^ (x >> bits)."""
    found = value
    for _ in range(64 // bits):
        found = value ^ (found >> bits)
    return found
