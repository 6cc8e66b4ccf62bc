"""Self-contained HTML pages: one file with its styles, data and scripts, which a browser opens from the disk.

A page is a jinja2 template that extends ``page.html`` and fills its block ``main``:

    {% extends "page.html" %}
    {% block main %}
    <p>{{ output }}</p>
    <table class="sortable">...</table>
    {% endblock %}

    render("report.html", "Report", variables={"output": text}, scripts=["table.js"], folder=Path(__file__).parent)

Any text may come from a user's files. Variables of a template are therefore escaped, data are a JSON block that no
text can end, and the page's content security policy lets a browser run only the scripts that were given to `render`
and load nothing. The styles (``page.css``) define the colours of light and dark pages as variables; ``table.js``
makes every table of the class ``sortable`` sortable.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

PAGES = Path(__file__).parent
JSON_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def render(
    template: str,
    title: str,
    *,
    variables: Mapping[str, Any] | None = None,
    data: Any = None,
    styles: Sequence[str] = (),
    scripts: Sequence[str] = (),
    folder: Path = PAGES,
) -> str:
    """The text of a page, ready to be written in UTF-8 (``sgdec.io.writing.write_whole``).

    ``template``: a file that extends ``page.html``; ``variables`` are the names that it uses. ``styles`` and
    ``scripts``: files to put into the page, in this order. All files are in ``folder`` or here. Scripts run after the
    body has been read. They find ``data`` by ``JSON.parse(document.getElementById("data").textContent)``.

    Control characters and lone surrogates, which HTML cannot contain, become U+FFFD. Raises ValueError if ``data``
    contains NaN or an infinity, which JSON cannot contain, and jinja2's errors for defects of a template.
    """
    codes = [_script(_file(name, folder)) for name in ("theme.js", *scripts)]
    html = _environment(folder).get_template(template).render(
        variables or {},
        title=title,
        policy=_policy(codes),
        style="\n".join(_file(name, folder) for name in ("page.css", *styles)),
        scripts=codes,
        data=None if data is None else json_block(data),
    )  # fmt: skip
    return re.sub("[\0-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", "\ufffd", html)


def json_block(data: Any) -> str:
    """JSON that can stand in a ``script`` element: no text in it can end the element or begin a comment.

    >>> json_block({"text": "</script>"})
    '{"text":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(JSON_ESCAPES)


@cache
def _environment(folder: Path) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader([folder, PAGES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _file(name: str, folder: Path) -> str:
    path = folder / name
    return (path if path.exists() else PAGES / name).read_text(encoding="utf-8")


def _script(code: str) -> str:
    """The code with other spellings of the two strings that change how HTML reads a script: they can only be in
    string literals, regular expressions and comments, where both spellings are the same."""
    return re.sub("</(?=script)", r"<\\/", code, flags=re.IGNORECASE).replace("<!--", r"<\x21--")


def _policy(codes: Sequence[str]) -> str:
    """The content security policy: these inline scripts, inline styles, images in the page, and nothing else."""
    hashes = (b64encode(sha256(code.encode("utf-8")).digest()).decode("ascii") for code in codes)
    allowed = " ".join(f"'sha256-{each}'" for each in hashes)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:"
