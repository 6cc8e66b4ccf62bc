"""Convert docstrings to reStructuredText. Docstrings are written for readers of the source, where ``|Y|`` is a
length.

Indented lines below a paragraph are code. Bars, stars and trailing underscores are literal, unless they mark
emphasis. A name in backticks followed by an ``s`` is still a name. Options of the command line are code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

MARKED = re.compile(
    r"``.+?``|`[^`]+`"
    r"|\*\*[^*\s](?:[^*]*[^*\s])?\*\*"
    r"|(?<![\w*])\*[^*\s](?:[^*\n]*[^*\s])?\*(?![\w*])",
    re.DOTALL,
)
PLAIN = "\b\n"
"""Paragraphs that click does not rewrap begin with this."""
OPTION = re.compile(r"(?<![\w`'\"/=-])(--[A-Za-z][\w-]*(?:\.[A-Za-z_]\w*)?)(?![\w`'\"=])")
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.) ")


def to_rst(text: str) -> str:
    """A docstring, without its indentation, as reStructuredText."""
    return "\n\n".join(_blocks(_paragraphs(text)))


def _paragraphs(text: str) -> list[str]:
    """The text at its empty lines; code that has some within it stays in one piece.

    >>> _paragraphs("Such as\\n\\n    a = 1\\n\\n    b = 2\\n\\nthen")
    ['Such as', '    a = 1\\n\\n    b = 2', 'then']
    """
    found: list[str] = []
    for block in text.split("\n\n"):
        if found and _is_code(found[-1]) and _is_code(block):
            found[-1] += f"\n\n{block}"
        else:
            found.append(block)
    return found


def _is_code(block: str) -> bool:
    return block.startswith("    ") and not block.lstrip().startswith(">>>") and not ITEM.match(block)


def _blocks(blocks: list[str]) -> Iterator[str]:
    in_list = False
    for block in blocks:
        indent = len(block) - len(block.lstrip(" "))
        if block.startswith(PLAIN):
            block, indent, in_list = block.removeprefix(PLAIN), 1, False
        if block.lstrip().startswith(">>>"):
            in_list = False
            yield block
        elif indent and not in_list:
            body = "\n".join(f"   {line}" for line in block.split("\n"))
            yield f".. code-block:: text\n\n{body}"
        else:
            in_list = (in_list and indent > 0) or any(ITEM.match(line) for line in block.split("\n"))
            yield inline(block)


def inline(text: str) -> str:
    """Running text in which characters that are not markup are escaped.

    >>> print(inline("|Y| of `Node`s, *not* f_ or 2 * 3"))
    \\|Y\\| of `Node`\\ s, *not* f\\_ or 2 \\* 3
    """
    out: list[str] = []
    end = 0
    for found in MARKED.finditer(text):
        out.append(_escaped(text[end : found.start()]))
        if out[-1][-1:].isalnum():
            out.append("\\ ")
        out.append(found.group())
        end = found.end()
        if text[end : end + 1].isalnum():
            out.append("\\ ")
    return "".join([*out, _escaped(text[end:])])


def _escaped(text: str) -> str:
    items = re.sub(r"(?m)^(\s*)\* ", r"\1- ", text)
    return "".join(
        f"``{part}``" if number % 2 else re.sub(r"([\\*|]|(?<=\w)_(?!\w))", r"\\\1", part)
        for number, part in enumerate(OPTION.split(items))
    )


def drop_object(app: Sphinx, name: str, obj: object, options: object, bases: list[Any]) -> None:
    """Do not list ``object`` as a base class."""
    if bases == [object]:
        bases.clear()


def drop_empty_bases(app: Sphinx, page: nodes.document) -> None:
    for paragraph in [*page.findall(nodes.paragraph)]:
        if paragraph.astext().strip() == "Bases:":
            paragraph.parent.remove(paragraph)


def process(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    lines[:] = [*to_rst("\n".join(lines).strip()).split("\n"), ""]


def setup(app: Sphinx) -> ExtensionMetadata:
    app.connect("autodoc-process-docstring", process)
    app.connect("autodoc-process-bases", drop_object)
    app.connect("doctree-read", drop_empty_bases)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
