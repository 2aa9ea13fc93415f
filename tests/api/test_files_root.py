"""Sources read directories below the allowed root only, whatever the path says and wherever links lead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from app.db.database import service_context_of
from app.main.main import create_app
from app.settings.settings import Settings
from engine.errors import DefinitionInvalid
from engine.sources.files.control import check_directory
from tests.api.conftest import Problem


def reading(path: object) -> dict[str, Any]:
    return {"columns": {"n": "int"}, "connector": {"type": "files", "path": str(path), "format": "csv"}}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """`root/flights` is allowed; beside the root lies what is not, and links lead there."""
    (tmp_path / "root" / "flights").mkdir(parents=True)
    (tmp_path / "rooted").mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "root" / "inner").symlink_to(tmp_path / "root" / "flights")
    (tmp_path / "to_root").symlink_to(tmp_path / "root")
    return tmp_path / "root"


@pytest.mark.parametrize("path", ["", "flights", "flights/", "inner", "not/there/yet", "../to_root/flights"])
def test_what_is_below_the_root_is_allowed(path: str, root: Path) -> None:
    directory = root.parent / path[3:] if path.startswith("..") else root / path
    check_directory(str(directory), root)


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../secret",
        "flights/../../secret",
        "link",
        "link/deeper",
        "../rooted",
        "/",
        "/etc",
        "flights/..",
        "~root",
        ".",
        "//etc",
        "./../",
    ],
)
def test_what_leads_out_of_the_root_is_refused(path: str, root: Path) -> None:
    given = path if path.startswith(("/", "~", ".")) and not path.startswith("..") else f"{root}/{path}"
    with pytest.raises(DefinitionInvalid, match="SLACKWATER_FILES_ROOT") as refused:
        check_directory(given, root)
    assert [(fault.pointer, fault.code) for fault in refused.value.problems] == [("/connector/path", "path_not_allowed")]


def test_a_root_that_is_a_link_is_where_it_leads(root: Path) -> None:
    check_directory(str(root / "flights"), root.parent / "to_root")


@pytest.mark.parametrize("settings", [Settings(), Settings(auth="on"), Settings(host="::", auth="off")])
def test_without_a_root_no_service_reads_files(root: Path, settings: Settings) -> None:
    with pytest.raises(DefinitionInvalid, match="SLACKWATER_FILES_ROOT"):
        check_directory(str(root), service_context_of(settings).files_root)


async def test_a_source_outside_of_the_root_is_not_registered(settings: Settings, root: Path, problem: Problem) -> None:
    app = create_app(settings.model_copy(update={"files_root": root}))
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            for path in (root / "link", root / ".." / "secret", "/etc"):
                problem(await http.put("/v1/streams/files", json=reading(path)), 422, "path_not_allowed", "/connector/path")
            assert (await http.put("/v1/streams/files", json=reading(root / "flights"))).status_code == 201


async def test_a_statement_registers_no_source_outside_of_the_root(settings: Settings, root: Path, problem: Problem) -> None:
    app = create_app(settings.model_copy(update={"files_root": root}))
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            with_ = "CREATE STREAM seen (N INT) WITH (KAFKA_TOPIC='seen', FORMAT='JSON', FILES_FORMAT='CSV', FILES_PATH='{}');"
            for path in (root / "link", root / ".." / "secret", "/etc"):
                refused = await http.post("/v1/statements", json={"sql": with_.format(path)})
                problem(refused, 422, "path_not_allowed")
            assert (await http.get("/v1/streams")).json()["items"] == []
            allowed = await http.post("/v1/statements", json={"sql": with_.format(root / "flights")})
            assert allowed.status_code == 200, allowed.text
