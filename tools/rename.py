"""Renames classes, functions and methods everywhere: ``python -m tools.rename LIST``.

A line of the list: ``path old new``. ``old`` is a name at the top of the file's module, ``Class.method``, or a private name (``_old``), which is
renamed inside its file alone. A method is renamed wherever an attribute has its name, so no other class may have one of that name.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import defaultdict
from pathlib import Path

from tools.move import ROOT, module_of, tracked

Edit = tuple[int, int, int, str]
"""Line (from 1), column and end column in bytes, and what stands there then."""


def edited(text: str, edits: list[Edit]) -> str:
    """Apply edits of single lines."""
    lines = [line.encode() for line in text.split("\n")]
    for row, start, end, new in sorted(set(edits), reverse=True):
        lines[row - 1] = lines[row - 1][:start] + new.encode() + lines[row - 1][end:]
    return b"\n".join(lines).decode()


def definition_edit(text: str, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, new: str) -> Edit:
    """The edit at ``class Old`` or ``def old``."""
    line = text.split("\n")[node.lineno - 1].encode()
    start = line.index(node.name.encode(), node.col_offset)
    return node.lineno, start, start + len(node.name.encode()), new


def in_strings(text: str, old: str, new: str) -> str:
    """Rename in docstrings and comments, where a name stands in backticks."""
    return re.sub(rf"(``[^`\n]*?)\b{re.escape(old)}\b([^`\n]*``)", rf"\g<1>{new}\g<2>", text)


class Project:
    """All files, parsed once and again after each edit."""

    def __init__(self) -> None:
        self.texts = {path: (ROOT / path).read_text() for path in tracked("*.py") if not path.startswith("tools/")}
        self.importers: dict[str, set[str]] = defaultdict(set)
        for path, text in self.texts.items():
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ImportFrom) and node.module:
                    self.importers[node.module].add(path)
                    for each in node.names:
                        self.importers[f"{node.module}.{each.name}"].add(path)

    def rename(self, path: str, old: str, new: str) -> str | None:
        """Rename one thing; returns what kept it from that."""
        if "." in old:
            return self._method(path, old.rpartition(".")[2], new)
        if old.startswith("_"):
            self._inside(path, old, new)
            return None
        return self._top(path, old, new)

    def _inside(self, path: str, old: str, new: str) -> None:
        self.texts[path] = re.sub(rf"(?<![\w]){re.escape(old)}\b", new, self.texts[path])

    def _top(self, path: str, old: str, new: str) -> str | None:
        module = module_of(path)
        text = self.texts[path]
        tree = ast.parse(text)
        node = next((each for each in tree.body if getattr(each, "name", None) == old), None)
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            return "no such name"
        edits = [definition_edit(text, node, new), *self._names(tree, old, new)]
        self.texts[path] = in_strings(edited(text, edits), old, new)
        for other in self.importers[module] | self.importers[module.rpartition(".")[0]]:
            self._importer(other, module, old, new)
        self.importers[f"{module}.{new}"] |= self.importers[module]
        return None

    def _importer(self, path: str, module: str, old: str, new: str) -> None:
        text = self.texts[path]
        tree = ast.parse(text)
        edits: list[Edit] = []
        aliases = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == module:
                for each in node.names:
                    if each.name == old:
                        edits.append((each.lineno, each.col_offset, each.col_offset + len(old.encode()), new))
                        if each.asname is None:
                            edits += self._names(tree, old, new)
            elif isinstance(node, ast.ImportFrom) and node.module:
                aliases |= {each.asname or each.name for each in node.names if f"{node.module}.{each.name}" == module}
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and node.attr == old
                and isinstance(node.value, ast.Name)
                and node.value.id in aliases
            ):
                end = node.end_col_offset or 0
                edits.append((node.end_lineno or 0, end - len(old.encode()), end, new))
        if edits:
            self.texts[path] = in_strings(edited(text, edits), old, new)

    @staticmethod
    def _names(tree: ast.Module, old: str, new: str) -> list[Edit]:
        """Where the name is used, but for functions that have one of their own."""
        own = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                bound = {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}
                bound |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
                if old in bound:
                    own |= {id(each) for each in ast.walk(node)}
        found = [each for each in ast.walk(tree) if isinstance(each, ast.Name) and each.id == old and id(each) not in own]
        return [(each.lineno, each.col_offset, each.end_col_offset or 0, new) for each in found]

    def _method(self, path: str, old: str, new: str) -> str | None:
        defined = self._members(old)
        if len({where for where, _ in defined}) > 1 and not all(kind == "def" for _, kind in defined):
            return f"several have it: {sorted(defined)[:6]}"
        for name, text in list(self.texts.items()):
            if not re.search(rf"\b{old}\b", text):
                continue
            tree = ast.parse(text)
            edits: list[Edit] = []
            for node in ast.walk(tree):
                if isinstance(node, ast.Attribute) and node.attr == old:
                    end = node.end_col_offset or 0
                    edits.append((node.end_lineno or 0, end - len(old.encode()), end, new))
                elif isinstance(node, ast.ClassDef):
                    edits += [definition_edit(text, each, new) for each in node.body
                              if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name == old]  # fmt: skip
            if edits:
                self.texts[name] = in_strings(edited(text, edits), old, new)
        del path
        return None

    def _members(self, name: str) -> set[tuple[str, str]]:
        """Where attributes of this name are defined: methods, fields, what is set on ``self``."""
        found = set()
        for path, text in self.texts.items():
            if not re.search(rf"\b{name}\b", text) or path.startswith("tests/"):
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ClassDef):
                    for each in node.body:
                        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name == name:
                            found.add((f"{path}:{node.name}", "def"))
                        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.target.id == name:
                            found.add((f"{path}:{node.name}", "field"))
                elif isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store):
                    found.add((f"{path}:self", "field"))
        return found

    def write(self) -> None:
        """Write what changed."""
        for path, text in self.texts.items():
            file = ROOT / path
            if file.read_text() != text:
                file.write_text(text)


def main() -> None:
    """Rename what the list says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("list", type=Path)
    project = Project()
    for line in parser.parse_args().list.read_text().splitlines():
        words = line.split("#", 1)[0].split()
        if words:
            problem = project.rename(*words)
            if problem is not None:
                print(f"{' '.join(words)}: {problem}")
    project.write()


if __name__ == "__main__":
    main()
