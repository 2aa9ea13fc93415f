"""Moves classes, functions and constants from one module to another, with the imports that they need: ``python -m tools.take LIST``.

A line of the list: ``old.module new.module Name1,Name2 The docstring where the new module is made.``
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from pathlib import Path

from tools.move import ROOT, tracked


def path_of(module: str) -> Path:
    """The file of a module, whether it exists or not."""
    root = ROOT / "client" if module.split(".")[0] == "slackwater" else ROOT
    return root / (module.replace(".", "/") + ".py")


def names_of(node: ast.stmt) -> list[str]:
    """What a statement at the top of a module defines."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        targets = [inner for each in node.targets for inner in (each.elts if isinstance(each, ast.Tuple) else [each])]
        return [each.id for each in targets if isinstance(each, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def spans_of(text: str, names: set[str]) -> list[tuple[int, int]]:
    """The lines (from, to) of definitions, with decorators, comments right above and a docstring below."""
    lines, body, spans = text.splitlines(), ast.parse(text).body, []
    for at, node in enumerate(body):
        if not names & set(names_of(node)):
            continue
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))]) - 1
        while first and lines[first - 1].startswith("#"):
            first -= 1
        last = node.end_lineno or node.lineno
        below = body[at + 1] if at + 1 < len(body) else None
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            last = below.end_lineno or last
        spans.append((first, last))
        names -= set(names_of(node))
    if names:
        raise SystemExit(f"not found: {names}")
    return spans


def imports_of(text: str) -> str:
    """The import statements at the top of a module."""
    tree, lines = ast.parse(text), text.splitlines()
    return "\n".join(
        "\n".join(lines[each.lineno - 1 : each.end_lineno])
        for each in tree.body
        if isinstance(each, ast.Import | ast.ImportFrom | ast.If)
    )


def defined_in(text: str) -> list[str]:
    """The names that a module defines at its top."""
    return [name for node in ast.parse(text).body for name in names_of(node)]


def with_imports(text: str, added: str) -> str:
    """Add import statements behind those of a module."""
    tree, lines = ast.parse(text), text.splitlines()
    ends = [each.end_lineno or 0 for each in tree.body if isinstance(each, ast.Import | ast.ImportFrom)]
    ends = ends or [tree.body[0].end_lineno or 0]
    lines[max(ends) : max(ends)] = added.splitlines()
    return "\n".join(lines) + "\n"


def take(old: str, new: str, names: list[str], docstring: str) -> None:
    """Move the definitions, then rewrite who imports them."""
    source, target = path_of(old), path_of(new)
    text = source.read_text()
    lines = text.splitlines()
    spans = spans_of(text, set(names))
    moved = "\n\n\n".join("\n".join(lines[first:last]) for first, last in spans)
    for first, last in reversed(spans):
        del lines[first:last]
    left = "\n".join(lines) + "\n"
    source.write_text(with_imports(left, f"from {new} import {', '.join(names)}"))
    rest = [each for each in defined_in(left) if each in moved]
    needed = imports_of(text) + (f"\nfrom {old} import {', '.join(rest)}" if rest else "")
    needed = "\n".join(line for line in needed.splitlines() if not line.startswith(f"from {new} import"))
    if not target.exists():
        head = f'"""{docstring}"""\n\nfrom __future__ import annotations\n'
        target.write_text(with_imports(head, needed) + "\n\n" + moved + "\n")
    else:
        needed = needed.replace("from __future__ import annotations", "")
        before = without_names(target.read_text(), old, set(names))
        is_constant = all(each.isupper() for each in names)
        target.write_text(
            with_imports(before, f"{needed}\n\n{moved}\n") if is_constant else f"{with_imports(before, needed)}\n\n{moved}\n"
        )
    for path in tracked("*.py"):
        if path not in (str(source.relative_to(ROOT)), str(target.relative_to(ROOT))):
            redirect(ROOT / path, old, new, set(names))
    subprocess.run(["git", "add", str(target)], cwd=ROOT, check=True)


def without_names(text: str, old: str, names: set[str]) -> str:
    """A module without its imports of names that it will define itself."""
    lines = text.splitlines()
    for node in reversed([each for each in ast.parse(text).body if isinstance(each, ast.ImportFrom) and each.module == old]):
        left = [each.name for each in node.names if each.name not in names]
        lines[node.lineno - 1 : node.end_lineno] = [f"from {old} import {', '.join(left)}"] if left else []
    return "\n".join(lines) + "\n"


def redirect(path: Path, old: str, new: str, names: set[str]) -> None:
    """Import the moved names from where they are now."""
    text = path.read_text()
    lines = text.splitlines()
    for node in sorted(
        (each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.ImportFrom) and each.module == old),
        key=lambda each: -each.lineno,
    ):
        here = [each for each in node.names if each.name in names]
        if not here:
            continue
        indent, tail = " " * node.col_offset, lines[(node.end_lineno or 1) - 1][node.end_col_offset or 0 :]
        made = []
        for module, chosen in ((old, [each for each in node.names if each.name not in names]), (new, here)):
            if chosen:
                names_here = ", ".join(each.name + (f" as {each.asname}" if each.asname else "") for each in chosen)
                made.append(f"{indent}from {module} import {names_here}{tail}")
        lines[node.lineno - 1 : node.end_lineno] = made
    after = "\n".join(lines) + "\n"
    if after != text and lines != text.splitlines():
        path.write_text(after)


def main() -> None:
    """Take what the list says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("list", type=Path)
    for line in parser.parse_args().list.read_text().splitlines():
        words = line.split("#", 1)[0].split(maxsplit=3)
        if words:
            take(words[0], words[1], words[2].split(","), words[3] if len(words) > 3 else "")
            ruff = Path(sys.executable).with_name("ruff")
            subprocess.run([ruff, "check", "--select", "I,F401,F811", "--fix", "-q", "."], cwd=ROOT, check=False)
            subprocess.run([ruff, "format", "-q", "."], cwd=ROOT, check=False)


if __name__ == "__main__":
    main()
