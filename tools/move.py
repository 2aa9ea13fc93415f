"""Moves modules to the places of a list and rewrites what names them: imports, dotted names in strings and texts, paths of files.

``python tools/move.py LIST`` moves; ``python tools/move.py LIST --look`` only prints the imports that would point up. The lines of a list:

- ``old/path new/path``: files or folders; ``@into new/folder old/{a,b}``: modules.
- ``@room folder docstring``: a package that is new.
- ``@floors PACKAGE a b | c``: rooms from the ground up, one floor between bars.

Run it again on a branch that began before a move: what has moved already is left out, and its imports are rewritten all the same.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEXTS = (
    "*.py",
    "*.md",
    "*.toml",
    "*.yml",
    "*.yaml",
    "*.cfg",
    "*.sh",
    "*.json",
    "*.ts",
    "*.tsx",
    "Makefile",
    "Dockerfile",
    ".ci/run",
    ".dockerignore",
    ".gitignore",
)
DONE = "\0"
"""Stands for the dots of names that are rewritten already."""

GENERATED = ("app/console/built/", "app/console/package-lock.json", "CHANGELOG.md", "tools/moves/", "docs/decisions/")


@dataclass
class Moves:
    """What the list says."""

    paths: dict[str, str] = field(default_factory=dict)
    floors: dict[str, list[list[str]]] = field(default_factory=dict)
    rooms: dict[str, str] = field(default_factory=dict)


def read_list(path: Path) -> Moves:
    """Read a list; lines that begin with ``#`` are comments."""
    moves = Moves()
    for line in path.read_text().splitlines():
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        if words[0] == "@floors":
            moves.floors[words[1]] = [each.split() for each in " ".join(words[2:]).split("|")]
        elif words[0] == "@into":
            for old in (each for word in words[2:] for each in expanded(word)):
                moves.paths[old] = f"{words[1]}/{Path(old).name}"
        elif words[0] == "@room":
            moves.rooms[words[1]] = " ".join(words[2:])
        else:
            old, new = words
            moves.paths[old] = new
    return moves


def expanded(word: str) -> list[str]:
    """The paths of ``engine/a/{b,c}``: files, unless they end with a slash."""
    match = re.fullmatch(r"(.*)\{(.*)\}(.*)", word)
    paths = [match[1] + each + match[3] for each in match[2].split(",")] if match else [word]
    return [each.rstrip("/") if each.endswith("/") else each + ".py" for each in paths]


def tracked(*patterns: str) -> list[str]:
    """The files that git knows and that exist."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *patterns], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    return [each for each in listed.split("\0") if each and (ROOT / each).exists()]


def files_of(moves: Moves) -> dict[str, str]:
    """Each file that moves, by its old path; the longest line that covers a file decides."""
    found: dict[str, str] = {}
    lines = sorted(moves.paths.items(), key=lambda each: len(each[0]))
    for old, new in lines:
        if old.endswith(".py") or "." in Path(old).name:
            found[old] = new
            continue
        for path in {*tracked(old + "/*"), *(each for each in found if each.startswith(old + "/"))}:
            found[path] = new + path.removeprefix(old)
    return {old: new for old, new in found.items() if old != new}


def module_of(path: str) -> str:
    """The dotted name of a file; a package has the name of its folder. The client's root is not part of names."""
    parts = path.removeprefix("client/").removesuffix(".py").removesuffix("/__init__")
    return parts.replace("/", ".")


def modules_of(files: dict[str, str]) -> dict[str, str]:
    """Old names to new names."""
    return {module_of(old): module_of(new) for old, new in files.items() if old.endswith(".py")}


def is_package(name: str) -> bool:
    """Whether a module of this name is a folder now."""
    return (ROOT / name.replace(".", "/")).is_dir()


def exists(name: str) -> bool:
    """Whether there is a module of this name now."""
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").exists() or path.is_dir()


def rewritten_imports(text: str, modules: dict[str, str]) -> str:
    """Rewrite ``from a.b import c`` where ``a.b.c`` or ``a.b`` moved."""
    lines = text.splitlines(keepends=True)
    nodes = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.ImportFrom) and each.module and not each.level]
    for node in sorted(nodes, key=lambda each: each.lineno, reverse=True):
        assert node.module is not None and node.end_lineno is not None
        homes: dict[str, list[str]] = defaultdict(list)
        for name in node.names:
            whole = modules.get(f"{node.module}.{name.name}")
            if whole is None and (exists(f"{node.module}.{name.name}") and is_package(node.module)):
                homes[node.module].append(name.name + (f" as {name.asname}" if name.asname else ""))
                continue
            home, base = whole.rsplit(".", 1) if whole else (modules.get(node.module, node.module), name.name)
            called = name.asname or (name.name if base != name.name else None)
            homes[home].append(f"{base} as {called}" if called else base)
        if set(homes) == {node.module} and all(f"{node.module}.{each.name}" not in modules for each in node.names):
            lines[node.lineno - 1] = lines[node.lineno - 1].replace(node.module, node.module.replace(".", DONE), 1)
            continue
        indent = " " * node.col_offset
        tail = lines[node.end_lineno - 1].encode()[node.end_col_offset or 0 :].decode()
        made = [f"{indent}from {home} import {', '.join(names)}" for home, names in homes.items()]
        lines[node.lineno - 1 : node.end_lineno] = ["\n".join(made).replace(".", DONE) + tail]
    return "".join(lines)


def rewritten_names(
    text: str, modules: dict[str, str], files: dict[str, str], pattern: re.Pattern[str], paths: re.Pattern[str]
) -> str:
    """Rewrite dotted names and paths wherever they stand."""
    moved = set(modules.values())

    def dotted(match: re.Match[str]) -> str:
        parts = match.group(0).split(".")
        for end in range(len(parts), 1, -1):
            if (name := ".".join(parts[:end])) in moved or (end > 2 and name not in modules and exists(name)):
                return match.group(0)
            new = modules.get(name)
            if new is not None:
                return ".".join([new, *parts[end:]])
        return match.group(0)

    return paths.sub(lambda match: files[match.group(0)], pattern.sub(dotted, text))


def rewrite(files: dict[str, str]) -> None:
    """Rewrite every text of the repository."""
    modules = modules_of(files)
    pattern = re.compile(r"(?<![\w./])(?:engine|app|slackwater|tests)(?:\.\w+)+")
    paths = re.compile(
        r"(?<![\w.-])(?:" + "|".join(re.escape(each) for each in sorted(files, key=len, reverse=True)) + r")(?![\w.])"
    )
    for name in tracked(*TEXTS):
        if name.startswith(GENERATED):
            continue
        path = ROOT / name
        before = path.read_text()
        after = rewritten_imports(before, modules) if name.endswith(".py") else before
        after = rewritten_names(after, modules, files, pattern, paths).replace(DONE, ".")
        if after != before:
            path.write_text(after)


def move(files: dict[str, str], rooms: dict[str, str]) -> None:
    """Move the files; packages that are new get a docstring, packages that are empty go."""
    for old, new in sorted(files.items()):
        if old.endswith("/__init__.py") and not (ROOT / new).parent.is_dir():
            (ROOT / new).parent.mkdir(parents=True)
        if not (ROOT / old).exists():
            continue
        (ROOT / new).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "mv", old, new], cwd=ROOT, check=True)
    for room, text in rooms.items():
        init = ROOT / room / "__init__.py"
        if init.parent.is_dir():
            init.write_text(f'"""{text}"""\n')
            subprocess.run(["git", "add", str(init)], cwd=ROOT, check=True)
    for parent in {Path(each).parent for each in files.values() if each.endswith(".py")}:
        for folder in (parent, *parent.parents):
            if str(folder) in (".", "client", "tests", "tools", "examples"):
                break
            init = ROOT / folder / "__init__.py"
            if not init.exists() and str(folder).split("/")[0] in ("engine", "app"):
                raise SystemExit(f"{folder} has no @room line")
    for package in sorted(tracked("engine/**/__init__.py", "app/**/__init__.py", "client/**/__init__.py"), key=len, reverse=True):
        if not [each for each in tracked(str(Path(package).parent) + "/*") if each != package]:
            subprocess.run(["git", "rm", "-qf", package], cwd=ROOT, check=True)


def imports_of(path: str, known: set[str]) -> set[str]:
    """The modules of ours that a file imports, also for types alone."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {whole if (whole := f"{node.module}.{each.name}") in known else node.module for each in node.names}
    return found & known


def look(moves: Moves, files: dict[str, str]) -> None:
    """Print each import that points up (or sideways between rooms of one floor), and rooms that are crowded."""
    names = {
        module_of(each): module_of(files.get(each, each))
        for each in tracked("engine/**.py", "app/**.py", "client/**.py", "engine/*.py", "app/*.py")
    }
    look_inside(names, tracked("engine/**.py", "app/**.py", "client/**.py", "engine/*.py", "app/*.py"))
    crowd: dict[str, int] = defaultdict(int)
    for path in tracked("engine/**.py", "app/**.py", "client/**.py", "engine/*.py", "app/*.py"):
        new = files.get(path, path)
        if not new.endswith("__init__.py"):
            crowd[str(Path(new).parent)] += 1
    for folder, count in sorted(crowd.items()):
        if count > 14:
            print(f"{folder}: {count} files")
    for package, floors in moves.floors.items():
        height = {room: number for number, floor in enumerate(floors) for room in floor}
        total = 0
        for path in tracked("engine/**.py", "app/**.py", "client/**.py", "engine/*.py", "app/*.py"):
            here = names[module_of(path)]
            if not here.startswith(package + "."):
                continue
            room = here.removeprefix(package + ".").split(".")[0]
            if room not in height:
                print(f"{package}: {room} has no floor ({path})")
                continue
            for other in imports_of(path, set(names)):
                there = names[other]
                if not there.startswith(package + "."):
                    continue
                target = there.removeprefix(package + ".").split(".")[0]
                if target != room and height.get(target, 0) >= height[room]:
                    total += 1
                    print(f"  {room} -> {target}: {module_of(path)} -> {other}")
        print(f"{package}: {total} imports point up")


def floors_of(edges: dict[str, set[str]]) -> tuple[list[list[str]], int]:
    """Circles among the children of one package, and the number of floors that they stand on without them."""
    circles = []
    for start in sorted(edges):
        reached, open_ = set(), [start]
        while open_:
            for each in edges.get(open_.pop(), ()):
                if each not in reached:
                    reached.add(each)
                    open_.append(each)
        circle = sorted(each for each in reached if start in _reached(edges, each))
        if start in reached and circle not in circles:
            circles.append(circle)
    depth: dict[str, int] = {}

    def height(name: str, above: frozenset[str] = frozenset()) -> int:
        if name not in depth:
            depth[name] = 1 + max(
                (height(each, above | {name}) for each in edges.get(name, ()) if each not in above | {name}), default=0
            )
        return depth[name]

    return circles, max(map(height, edges), default=0)


def _reached(edges: dict[str, set[str]], start: str) -> set[str]:
    reached, open_ = set(), [start]
    while open_:
        for each in edges.get(open_.pop(), ()):
            if each not in reached:
                reached.add(each)
                open_.append(each)
    return reached


def look_inside(names: dict[str, str], paths: list[str]) -> None:
    """Print circles among the children of each package, and packages on more than seven floors."""
    edges: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in paths:
        here = names[module_of(path)].split(".")
        for other in imports_of(path, set(names)):
            there = names[other].split(".")
            depth = next((at for at, (one, two) in enumerate(zip(here, there, strict=False)) if one != two), None)
            if depth:
                edges[".".join(here[:depth])][here[depth]].add(there[depth])
    for package, inside in sorted(edges.items()):
        circles, floors = floors_of(inside)
        if floors > 7:
            tall = defaultdict(list)
            for each in inside:
                tall[floors_of({name: inside[name] for name in _reached(inside, each) | {each} if name in inside})[1]].append(
                    each
                )
            print("   ", " | ".join(f"{height}: {' '.join(sorted(each))}" for height, each in sorted(tall.items())))
        for circle in circles:
            print(f"circle in {package}: {' '.join(circle)}")
        if floors > 7:
            print(f"{package}: {floors} floors")


def main() -> None:
    """Move, or look."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("list", type=Path)
    parser.add_argument("--look", action="store_true")
    wanted = parser.parse_args()
    moves = read_list(wanted.list)
    files = files_of(moves)
    if wanted.look:
        look(moves, files)
        return
    rewrite(files)
    move(files, moves.rooms)


if __name__ == "__main__":
    main()
