"""The public names with their signatures, as `LIST` records them: ``python -m tests.helpers.public_names`` writes it.

Everything is read from source files, so the list is the same under every version of Python and needs no library. A
name that a public module takes from a private one is listed where it is public. A class that inherits from private
classes has their members too. Fields keep their order, which is that of the constructor; all else is sorted.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from typing import TypeAlias

import sgdec
from tests.helpers.imports import modules
from tests.helpers.places import ROOT
from tests.helpers.public_modules import public_modules

LIST = ROOT / "tests" / "plugins" / "public_names.txt"
WIDTH = 110
"""Values of constants are listed up to this width."""

Found: TypeAlias = "tuple[str, ast.stmt]"
"""The module in which a name is defined, and its definition."""


def listing() -> str:
    """The text of the list: a line per module, name and member."""
    return "".join(f"{line}\n" for module in public_modules() for line in _module(module))


def _module(module: str) -> Iterator[str]:
    yield module
    for name in sorted(_exported(module)):
        home, definition = _resolve(module, name)
        if home != module and home in public_modules():
            yield f"    {name}: see {home}"
        else:
            yield from (f"    {line}" for line in _lines(home, name, definition))


def _exported(module: str) -> set[str]:
    if module == "sgdec":
        return set(sgdec._HOME)
    names = _names(module)
    if isinstance(listed := names.get("__all__"), ast.Assign):
        return set(ast.literal_eval(listed.value))
    return {name for name, statement in names.items() if name[0] != "_" and not isinstance(statement, ast.ImportFrom)}


@cache
def _names(module: str) -> dict[str, ast.stmt]:
    """The names that the top level of a module defines or imports from others, and by which statement."""
    return dict(_defined(ast.parse(modules()[module].read_text(encoding="utf-8")).body))


def _defined(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    for statement in body:
        match statement:
            case ast.ClassDef() | ast.FunctionDef():
                yield statement.name, statement
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name, statement
            case ast.Assign(targets=targets):
                for target in targets:
                    yield from ((node.id, statement) for node in ast.walk(target) if isinstance(node, ast.Name))
            case ast.ImportFrom(names=aliases):
                yield from ((alias.asname or alias.name, statement) for alias in aliases)
            case ast.If() | ast.Try():
                yield from _defined([*statement.body, *statement.orelse])


def _resolve(module: str, name: str) -> Found:
    """The definition behind a name, through imports from modules of sgdec."""
    if module == "sgdec":
        return _resolve(sgdec._HOME[name], name)
    statement = _names(module)[name]
    if isinstance(statement, ast.ImportFrom) and statement.module in modules():
        (alias,) = (alias for alias in statement.names if (alias.asname or alias.name) == name)
        return _resolve(statement.module, alias.name)
    return module, statement


def _lines(module: str, name: str, definition: ast.stmt) -> Iterator[str]:
    match definition:
        case ast.ClassDef(bases=bases):
            above = f"({', '.join(map(ast.unparse, bases))})" if bases else ""
            yield f"{_decorators(definition)}class {name}{above}"
            fields, methods = _members(module, definition)
            yield from (f"    {line}" for line in [*fields.values(), *(methods[key] for key in sorted(methods))])
        case _:
            yield _line(name, definition)


def _members(module: str, cls: ast.ClassDef) -> tuple[dict[str, str], dict[str, str]]:
    """The lines of a class's public fields and methods, with those of its private bases."""
    fields: dict[str, str] = {}
    methods: dict[str, str] = {}
    for base in cls.bases:
        inner = base.value if isinstance(base, ast.Subscript) else base  # Base[T]
        if isinstance(inner, ast.Name) and inner.id in _names(module):
            home, definition = _resolve(module, inner.id)
            is_public = home in public_modules() and inner.id[0] != "_"
            if isinstance(definition, ast.ClassDef) and not is_public:
                for mine, theirs in zip((fields, methods), _members(home, definition), strict=True):
                    mine.update(theirs)
    for name, statement in _defined(cls.body):
        if isinstance(statement, ast.FunctionDef) and (name[0] != "_" or name.endswith("__")):
            methods[name] = _line(name, statement)
        elif name[0] != "_" and not isinstance(statement, ast.FunctionDef):
            fields[name] = _line(name, statement)
    return fields, methods


def _line(name: str, definition: ast.stmt) -> str:
    match definition:
        case ast.FunctionDef(args=arguments, returns=returns):
            answer = f" -> {_text(returns)}" if returns else ""
            return f"{_decorators(definition)}def {name}({_text(arguments)}){answer}"
        case ast.AnnAssign(annotation=annotation, value=value):
            return _short(f"{name}: {_text(annotation)}", value)
        case ast.Assign(targets=[ast.Name()], value=value):
            return _short(name, value)
        case _:
            return name


def _short(line: str, value: ast.expr | None) -> str:
    if value is None:
        return line
    whole = f"{line} = {_text(value)}"
    return whole if len(whole) <= WIDTH else f"{line} = ..."


def _decorators(definition: ast.ClassDef | ast.FunctionDef) -> str:
    return "".join(f"@{_text(each)} " for each in definition.decorator_list)


def _text(node: ast.AST) -> str:
    """The code in one line and one style, without the descriptions of options."""
    return " ".join(ast.unparse(_Undescribed().visit(node)).split())


class _Undescribed(ast.NodeTransformer):
    """Leaves the description out of ``Field(description=...)``; the words of a help text are not a signature."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        if isinstance(node.func, ast.Name) and node.func.id == "Field":
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "description"]
        return node


if __name__ == "__main__":
    LIST.write_text(listing(), encoding="utf-8")
