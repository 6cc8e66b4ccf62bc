"""A one-line summary of each plugin, read from its source, so that no plugin is imported to list it.

The line is the first paragraph of the module's docstring. If a module has several plugins, the docstring is that of
the class that the module's hook returns for the plugin's name. A second name of one class refers to the first.
"""

from __future__ import annotations

import ast
import inspect
import sys
import tokenize
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from importlib.machinery import ModuleSpec
from io import StringIO
from pathlib import Path

from sgdec.plugins.host import BUNDLED, HOOK_OF, Entry


def summaries(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield one line for each entry; it is empty if there is no docstring or the source cannot be read."""
    plugins = Counter(entry.value for entry in entries)
    bundled = {(entry.kind, entry.name) for entry in entries if entry.distribution == BUNDLED}
    for entry in entries:
        try:
            source = read_source(entry.value)
            document = class_docstring(source, entry, bundled) if plugins[entry.value] > 1 else None
            document = document or module_docstring(source)
        except Exception:  # third-party files and import finders can raise anything
            document = ""
        yield " ".join(inspect.cleandoc(document).partition("\n\n")[0].replace("`", "").split())


def read_source(module: str) -> str:
    """The source of a module, or of a file that ends in .py. Raises ImportError or OSError if there is none."""
    if module.endswith(".py"):
        return Path(module).read_text(encoding="utf-8")
    spec = _spec(module)
    get_source = getattr(spec.loader, "get_source", None) if spec else None
    source: str | None = get_source(module) if get_source else None
    if source is None:
        raise ImportError(f"no source of {module}")
    return source


def _spec(module: str) -> ModuleSpec | None:
    """The same as `importlib.util.find_spec`, but without importing the packages that contain the module."""
    names = module.split(".")
    spec, path = None, None
    for depth in range(1, len(names) + 1):
        name = ".".join(names[:depth])
        found = (finder.find_spec(name, path) for finder in sys.meta_path)
        spec = next(filter(None, found), None)
        path = spec.submodule_search_locations if spec else None
    return spec


def module_docstring(source: str) -> str:
    """The docstring of a module, found without parsing the rest of the source; "" if there is none.

    >>> module_docstring("# A comment.\\n\\n'''What it is.'''\\nimport torch")
    'What it is.'
    >>> module_docstring("import torch")
    ''
    """
    skipped = (tokenize.ENCODING, tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE)
    tokens = (token for token in tokenize.generate_tokens(StringIO(source).readline) if token.type not in skipped)
    first = next(tokens)
    document = ast.literal_eval(first.string) if first.type == tokenize.STRING else ""
    return document if isinstance(document, str) else ""


def class_docstring(source: str, entry: Entry, bundled: Container[tuple[str, str]] = ()) -> str | None:
    """The docstring of an entry's class, or None; a reference to the first name if the class has several.

    ``bundled``: kinds and names of sgdec's own plugins, of which another distribution's can have the name.
    The class must be defined in the module, and named in a dict literal in the module's hook.
    """
    tree = ast.parse(source)
    hooks = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == HOOK_OF[entry.kind]]
    literals = [node for hook in hooks for node in ast.walk(hook) if isinstance(node, ast.Dict)]
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for literal in literals:
        first: dict[str, object] = {}  # by class, its first name
        for key, value in zip(literal.keys, literal.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(value, ast.Name) and value.id in classes:
                known = first.setdefault(value.id, key.value)
                if key.value == entry.name:
                    if known == key.value:
                        return ast.get_docstring(classes[value.id])
                    hidden = entry.distribution != BUNDLED and (entry.kind, known) in bundled
                    return f"Another name of {known}{f'@{entry.distribution}' if hidden else ''}."
    return None
