"""Builds the site: MkDocs makes it of the gathered pages; then what the service's Content-Security-Policy forbids is taken out.

*Decision.* MkDocs with the Material theme, which gets corrections alone now, and not Zensical, which its authors make in its place: a
package that Zensical needs (its templates) is not to be had from every index yet. Zensical reads ``mkdocs.yml`` as it is. No plug-in is
used beside the search, and gathering, the reference and the tests of pages know nothing of the builder, so the change will be this module.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from app.main.guide import SITE
from engine.processes.python_processes import python_command
from tools.guide.gathering import PAGES, ROOT, gather

CONFIG: Final = ROOT / "mkdocs.yml"
SCRIPTS: Final = "assets/inline"
_SCRIPT: Final = re.compile(r"<script(?P<attributes>[^>]*)>(?P<text>.*?)</script>", re.DOTALL)
_NO_TEXT: Final = re.compile(r"""\bsrc=|\btype=["']?(?!module|text/javascript)""")
"""A script that is a file already, or data that does not run."""


_QUIET: Final = {"NO_MKDOCS_2_WARNING": "true", "NO_COLOR": "1"}


class NotBuilt(Exception):
    """The site could not be built. The message is what the builder says."""


def build() -> None:
    """Gather the pages and build the site.

    Raises:
        NotBuilt: a link leads nowhere, a page is not in ``mkdocs.yml``, or the like.
    """
    gather(PAGES)
    shutil.rmtree(SITE, ignore_errors=True)
    command = python_command("mkdocs", "build", "--config-file", str(CONFIG), "--strict", "--quiet")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, **_QUIET})
    if done.returncode != 0:
        raise NotBuilt(f"{done.stdout}{done.stderr}".strip())
    for name in ("404.html", "sitemap.xml", "sitemap.xml.gz"):
        (SITE / name).unlink(missing_ok=True)  # they need to know the address of the site
    for page in SITE.rglob("*.html"):
        page.write_text(without_inline_scripts(page.read_text(), page, SITE))


def without_inline_scripts(html: str, page: Path, site: Path) -> str:
    """Return a page whose scripts are files: the policy lets no others run. They stay where they are, so that they run in their order."""

    def _moved(found: re.Match[str]) -> str:
        if not found["text"].strip() or _NO_TEXT.search(found["attributes"]):
            return found[0]
        name = f"{hashlib.sha256(found['text'].encode()).hexdigest()[:16]}.js"
        target = site / SCRIPTS / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(found["text"])
        return f'<script{found["attributes"]} src="{os.path.relpath(target, page.parent)}"></script>'

    return _SCRIPT.sub(_moved, html)
