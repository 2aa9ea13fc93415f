"""Parts of building the site that need no builder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.guide.building import without_inline_scripts
from tools.guide.gathering import barred, relinked
from tools.guide.markdown import anchor, code, table


def test_scripts_of_a_page_become_files_in_their_place_and_data_stays(tmp_path: Path) -> None:
    page = tmp_path / "guides" / "index.html"
    data = '<script id="d" type="application/json">{"a": 1}</script>'
    html = f'<script>first()</script><script src="../a.js"></script>{data}<script>first()</script>'
    found = without_inline_scripts(html, page, tmp_path)
    (script,) = tmp_path.rglob("*.js")
    assert script.read_text() == "first()"
    moved = f'<script src="../assets/inline/{script.name}"></script>'
    assert found == html.replace("<script>first()</script>", moved)


@pytest.mark.parametrize(
    ("link", "becomes"),
    [
        ("[the engine](../engine/README.md#decisions)", "[the engine](../inside/engine.md#decisions)"),
        ("[SQL](../docs/reference/sql.md)", "[SQL](../reference/sql.md)"),
        ("[code](metric_list.py)", "code"),
        ("[windows](testing/examples/windows.yaml)", "[windows](../reference/test-examples.md#windowsyaml)"),
        ("[out](https://example.org/x)", "[out](https://example.org/x)"),
        ("[here](#who-writes-what)", "[here](#who-writes-what)"),
        ("![drawing](x.svg)", "![drawing](x.svg)"),
    ],
)
def test_links_of_a_readme_lead_to_pages_of_the_site(link: str, becomes: str) -> None:
    assert relinked(link, "app/README.md", "inside/service.md") == becomes


def test_bars_in_code_of_tables_lose_their_backslash_and_no_others() -> None:
    assert barred("| `a \\| b` | x \\| y |\n`a \\| b`\n") == "| `a | b` | x \\| y |\n`a \\| b`\n"


def test_code_and_cells_are_escaped() -> None:
    assert code("a`b") == "`` a`b ``"
    assert table(("A",), [("x | `y | z`",)]) == "| A |\n| --- |\n| x \\| `y | z` |\n"
    assert table(("A",), []) == ""


@pytest.mark.parametrize(
    ("heading", "found"),
    [
        ("Streams", "streams"),
        ("`PUT /v1/streams/{name}`", "put-v1streamsname"),
        ("late_record", "late_record"),
        ("The service's log", "the-services-log"),
    ],
)
def test_anchors_are_those_of_the_site(heading: str, found: str) -> None:
    assert anchor(heading) == found
