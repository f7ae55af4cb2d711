"""Convert a report to one HTML file: pictures and tables are embedded, it has no scripts and loads nothing."""

import base64
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token
from PIL import Image

from arc_refinery.errors import InputError
from arc_refinery.files import atomic_write

MEDIA_TYPES = {".png": "image/png", ".svg": "image/svg+xml", ".csv": "text/csv"}  # files that can be embedded
# A report quotes text that a model wrote: no script in it may run, and it may load nothing.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
CONTENTS = '<nav aria-label="Contents"><details><summary>Contents</summary><ul>'
PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
{body}</main>
</body>
</html>
"""


def write_page(markdown: Path, output: Path) -> None:
    """Convert a Markdown file to HTML with embedded pictures and tables."""
    with atomic_write(output) as unfinished:
        unfinished.write_text(to_html(markdown.read_text(), markdown))


def to_html(text: str, origin: Path) -> str:
    """Return Markdown as HTML; relative links are resolved from the file `origin`, which errors name."""
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    parser.add_render_rule("table_open", _open_table)
    parser.add_render_rule("table_close", lambda *_: "</table>\n</div>\n")
    tokens = parser.parse(text)
    headings = list(_name_headings(tokens))
    _embed(tokens, origin)
    body: str = parser.renderer.render(tokens, parser.options, {})
    title = next((words for level, words, _ in headings if level == "h1"), origin.stem)
    links = [
        f'<li><a href="#{escape(anchor)}">{escape(words)}</a></li>\n' for tag, words, anchor in headings if tag == "h2"
    ]
    contents = f"{CONTENTS}\n{''.join(links)}</ul></details></nav>\n" if len(links) > 1 else ""
    return PAGE.format(
        policy=POLICY,
        title=escape(title),
        style=resources.files(__package__).joinpath("page.css").read_text(),
        body=body.replace("<h2", f"{contents}<h2", 1),  # below the first screen
    )


def _name_headings(tokens: Sequence[Token]) -> Iterator[tuple[str, str, str]]:
    """Give each heading the anchor that GitHub gives it; yield (h1..h6, words, anchor).

    Tables get a number and the name of their heading, header cells their scope, for those who hear the page.
    """
    seen: dict[str, int] = {}
    n_tables: Counter[str] = Counter()
    words = ""
    for token, inline in pairwise(tokens):
        if token.type == "heading_open":
            words = "".join(child.content for child in inline.children or [])
            base = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
            number = seen[base] = seen.get(base, -1) + 1
            anchor = f"{base}-{number}" if number else base
            token.attrSet("id", anchor)
            yield token.tag, words, anchor
        elif token.type == "th_open":
            token.attrSet("scope", "col")
        elif token.type == "table_open":
            n_tables[words] += 1
            token.attrSet("aria-label", f"Table {n_tables[words]} of: {words}")


def _open_table(parser: object, tokens: Sequence[Token], index: int, *_: object) -> str:
    """Open a region that can be scrolled, also with the keyboard."""
    label = escape(str(tokens[index].attrGet("aria-label")))
    return f'<div class="table" role="region" aria-label="{label}" tabindex="0">\n<table>\n'


def _embed(tokens: Sequence[Token], origin: Path) -> None:
    """Replace links to local pictures and CSV tables by data URLs."""
    for token in tokens:
        link = unquote(str(token.attrGet("src") or token.attrGet("href") or ""))
        is_local = not re.match(r"[a-z]+:|#|/", link)
        if token.type == "image" and is_local:
            token.attrSet("src", _data_url(origin.parent / link, origin))
        elif token.type == "link_open" and is_local and link.endswith(".csv"):
            token.attrSet("href", _data_url(origin.parent / link, origin))
            token.attrSet("download", Path(link).name)
        _embed(token.children or [], origin)


def _data_url(path: Path, origin: Path) -> str:
    if path.suffix not in MEDIA_TYPES or not path.is_file():
        raise InputError(
            f"{origin}: links to {path}: expected an existing {', '.join(MEDIA_TYPES)} file; write the report again"
        )
    content = _with_palette(path) if path.suffix == ".png" else path.read_bytes()
    return f"data:{MEDIA_TYPES[path.suffix]};base64,{base64.b64encode(content).decode()}"


def _with_palette(path: Path) -> bytes:
    """Return a picture in 256 colors, a third of the size; only edges change slightly.

    `snakemake --report` opens a page as a single data URL, which Chromium limits to 2 MiB.
    """
    small = BytesIO()
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return small.getvalue()
