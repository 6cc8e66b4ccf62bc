"""Draw the imports between packages as a triangle of text: ``python docs/_ext/rooms.py`` writes it into `PAGE`.

The page keeps the drawing, so it can be read on GitHub; the site is built with the drawing of the sources.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import sgdec

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata

ROOT = Path(__file__).parents[2]
SOURCES = {"sgdec": ROOT, "sgdec_predictors": ROOT / "predictors", "sgdec_decoders": ROOT / "decoders"}
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
BLOCK = re.compile(r"(?<=^```text\n)sgdec.*?(?=^```)", re.DOTALL | re.MULTILINE)
"""The drawing in the page: the only block whose first line is the name of a package."""
CORE = "sgdec.search"
ABOVE, BELOW = "(library)", "(protocol)"
"""The modules at the top of ``sgdec`` that `CORE` does not import, and those that it does, others included."""


def imports() -> dict[str, set[str]]:
    """For each module the modules that it imports, those for types and inside functions included."""
    paths = {}
    for package, root in SOURCES.items():
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    found = {module: set(_imported(path, paths)) - {module, "sgdec"} for module, path in paths.items()}
    found["sgdec"] = set()  # it imports its names when they are used
    return found


def _imported(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                home = sgdec._HOME.get(alias.name, "sgdec") if node.module == "sgdec" else node.module
                yield inner if inner in known else home
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)


def between_rooms(modules: Mapping[str, set[str]]) -> Counter[tuple[str, str]]:
    """The number of imports from one package into another."""
    core, waiting = set(), [module for module in modules if module.startswith(CORE)]
    while waiting:
        if (module := waiting.pop()) not in core:
            core.add(module)
            waiting += modules[module]
    folders = {module.rpartition(".")[0] for module in modules}

    def room(module: str) -> str:
        package, _, rest = module.partition(".")
        inner = f"{package}.{rest.partition('.')[0]}"
        if package != "sgdec":
            return package
        if inner in folders:
            return inner
        return BELOW if module in core else ABOVE

    pairs = ((room(module), room(other)) for module, others in modules.items() for other in others)
    return Counter((one, other) for one, other in pairs if one != other)


def order(edges: Counter[tuple[str, str]]) -> list[str]:
    """The packages so that imports run downwards, but for as few as possible that run upwards."""
    left = sorted({room for pair in edges for room in pair})
    found = []
    while left:
        into = {room: sum(n for (a, b), n in edges.items() if b == room and a in left) for room in left}
        found.append(min(left, key=lambda room: into[room]))
        left.remove(found[-1])
    return found


def triangle(edges: Counter[tuple[str, str]]) -> str:
    """The drawing. A column belongs to the package whose name is at its top, and marks the packages below that it
    imports; imports that run upwards are at the end of the row of the package that makes them.
    """
    rooms = order(edges)
    lines = []
    for place, room in enumerate(rooms):
        marks = ".".join("x" if (above, room) in edges else "." for above in rooms[:place])
        upwards = ", ".join(above for above in rooms[:place] if (room, above) in edges)
        lines.append(f"{marks} {room}".strip() + (f"  (imports {upwards})" if upwards else ""))
    return "".join(f"{line}\n" for line in lines)


def redraw(text: str) -> str:
    """The page with the drawing of the sources."""
    new, found = BLOCK.subn(lambda _: triangle(between_rooms(imports())), text)
    assert found == 1, f"{PAGE.name} has {found} drawings"
    return new


def read(app: Sphinx, page: str, content: list[str]) -> None:
    if page == "explanation/architecture":
        content[0] = redraw(content[0])


def setup(app: Sphinx) -> ExtensionMetadata:
    app.connect("source-read", read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    PAGE.write_text(redraw(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
