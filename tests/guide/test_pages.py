"""The pages of the guide, block by block, on a live service: what they show is what comes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import ROOT
from tests.guide.blocks import steps
from tests.guide.pages import QUICK, Runner, all_pages, runner
from tests.guide.running import page_on

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def service() -> Iterator[Runner]:
    with runner() as running:
        yield running


@pytest.mark.parametrize("page", [pytest.param(page, marks=() if page in QUICK else pytest.mark.slow) for page in all_pages()])
def test_every_block_of_the_page_answers_what_it_shows(page: str, service: Runner) -> None:
    with page_on(service.url, service.folder(page)) as running:
        for step in steps(ROOT / page):
            running.check(step)
