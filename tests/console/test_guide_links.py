"""Every page of the guide that the console links to is one that the guide has. Without a browser, from the sources."""

from __future__ import annotations

import re

from tests.conftest import ROOT

SOURCE = ROOT / "app" / "console" / "src"
LINK = re.compile(r"""guide: "(?P<screen>[^"]*)"|href="/guide/(?P<href>[^"#]*)[#"]""")
GUIDE_OF_PARTS = re.compile(r"const GUIDE: .*?= \{(?P<pages>.*?)\};", re.DOTALL)


def test_each_screen_names_a_page_of_the_guide() -> None:
    known = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    linked = set()
    for file in SOURCE.rglob("*.ts*"):
        text = file.read_text(encoding="utf-8")
        linked |= {found["screen"] or found["href"] for found in LINK.finditer(text)}
        linked |= {page for table in GUIDE_OF_PARTS.finditer(text) for page in re.findall(r'"([^"]*)"', table["pages"])}
    assert len(linked) >= 8
    pages = {page: {f"{page.rstrip('/')}.md", f"{page}index.md"} for page in linked}
    assert [page for page, files in pages.items() if not files & known] == []
    screens = list((SOURCE / "screens").glob("*/screen.ts"))
    assert [file.parent.name for file in screens if LINK.search(file.read_text(encoding="utf-8")) is None] == []
