"""Every module of the benchmarks can be imported: nothing else in CI would tell that what they use has gone."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import tests.bench


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(tests.bench.__path__)])
def test_a_module_of_the_benchmarks_is_whole(name: str) -> None:
    importlib.import_module(f"tests.bench.{name}")
