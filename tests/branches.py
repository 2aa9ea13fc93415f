"""Finds where the code asks for a class: branches on kinds of things, which have to be found and extended for each new one."""

from __future__ import annotations

import ast


class Branches(ast.NodeVisitor):
    """Finds where classes are asked for: every use of one but in a type, as a base, and to make or import one.

    Args:
        names: of the classes.
        holders: what variables that hold one are called: ``getattr`` of them asks as well.
    """

    def __init__(self, names: set[str], holders: tuple[str, ...] = ()) -> None:
        self._names, self._holders = names, holders
        self.found: list[tuple[int, str]] = []

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in self._names:
            self.found.append((node.lineno, node.id))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in self._names:
            self.found.append((node.lineno, node.attr))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        is_made = isinstance(node.func, ast.Name) and node.func.id in self._names
        if isinstance(node.func, ast.Name) and node.func.id == "getattr" and ast.unparse(node.args[0]) in self._holders:
            self.found.append((node.lineno, "getattr"))
        for child in [*([] if is_made else [node.func]), *node.args, *(keyword.value for keyword in node.keywords)]:
            self.visit(child)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for child in (*node.decorator_list, *node.body):
            self.visit(child)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_arguments(self, node: ast.arguments) -> None:
        for child in (*node.defaults, *(default for default in node.kw_defaults if default is not None)):
            self.visit(child)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for child in (*node.decorator_list, node.args, *node.body):
            self.visit(child)
