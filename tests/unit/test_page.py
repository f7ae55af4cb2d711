"""A Markdown report as one HTML file: what it holds in itself, and that nothing in it can act."""

import base64
import re
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from arc_refinery.errors import InputError
from arc_refinery.reporting.page import to_html, write_page

REPORT = """\
# Experiment `a<b`

| arm | solved |
| --- | ---: |
| `x` | 3 |

## Set `small` (4 tasks)

![Curves of x](tiny/curves.png)

[As CSV](tiny/figures.csv); [on the web](https://example.org/x.csv); [machine time](../logs/machine-time.md).

<details><summary>Programs</summary>

```python
x = "<script>alert(1)</script>"
```

</details>

## Set `small` (4 tasks)
"""


# cells of 200 colors, fewer than a palette has
PICTURE = np.kron((np.arange(600) % 256).astype(np.uint8).reshape(10, 20, 3), np.ones((4, 4, 1), np.uint8))


class Reader(HTMLParser):
    """All tags with their attributes, and that each is closed."""

    VOID = ("meta", "img", "br", "hr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag in self.VOID or self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture
def report(tmp_path: Path) -> Path:
    (tmp_path / "tiny").mkdir()
    Image.fromarray(PICTURE).save(tmp_path / "tiny/curves.png")
    (tmp_path / "tiny/figures.csv").write_text("arm,solved\nx,3\n")
    (tmp_path / "tiny.md").write_text(REPORT)
    return tmp_path / "tiny.md"


@pytest.fixture
def html(report: Path) -> str:
    write_page(report, report.with_suffix(".html"))
    return report.with_suffix(".html").read_text()


def content(uri: str, kind: str) -> bytes:
    start, _, data = uri.partition(",")
    assert start == f"data:{kind};base64"
    return base64.b64decode(data)


def test_it_is_a_whole_page_with_language_and_title(html: str):
    read = Reader(html)
    assert read.open == []
    assert read.all("html") == [{"lang": "en"}]
    assert "<title>Experiment a&lt;b</title>" in html
    assert "prefers-color-scheme: dark" in html


def test_pictures_lie_in_it_and_look_the_same(html: str):
    (image,) = Reader(html).all("img")
    assert image["alt"] == "Curves of x"
    with Image.open(BytesIO(content(str(image["src"]), "image/png"))) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    assert (pixels == PICTURE).all()


def test_tables_to_download_lie_in_it_and_other_links_stay(html: str):
    links = [link for link in Reader(html).all("a") if not str(link["href"]).startswith("#")]
    assert links[0]["download"] == "figures.csv"
    assert content(str(links[0]["href"]), "text/csv") == b"arm,solved\nx,3\n"
    assert [link["href"] for link in links[1:]] == ["https://example.org/x.csv", "../logs/machine-time.md"]


def test_headings_have_the_anchors_of_code_hosts_and_contents_lead_there(html: str):
    read = Reader(html)
    anchors = [attributes["id"] for attributes in read.all("h2")]
    assert anchors == ["set-small-4-tasks", "set-small-4-tasks-1"]
    assert [str(link["href"]) for link in read.all("a")][:2] == [f"#{anchor}" for anchor in anchors]


def test_the_contents_are_below_the_first_screen(html: str):
    assert html.index("</table>") < html.index("<nav") < html.index("<h2")


def test_tables_scroll_and_details_fold(html: str):
    assert re.search(r'<div class="table"[^>]*>\n<table>.*</table>\n</div>', html, re.DOTALL)
    assert '<td style="text-align:right">3</td>' in html
    assert "<details><summary>Programs</summary>\n<pre>" in html


def test_who_hears_the_page_is_told_what_a_table_is(html: str):
    read = Reader(html)
    assert len(read.all("main")) == 1
    labels = [str(division["aria-label"]) for division in read.all("div") if division.get("role") == "region"]
    assert len(set(labels)) == len(read.all("table")) and all(re.match(r"Table \d+ of: .", label) for label in labels)
    assert all(cell["scope"] == "col" for cell in read.all("th"))


def test_what_a_model_wrote_stays_text_and_no_script_may_run(html: str):
    assert "&lt;script&gt;alert(1)" in html
    (policy,) = [meta["content"] for meta in Reader(html).all("meta") if "http-equiv" in meta]
    assert str(policy).startswith("default-src 'none';")
    assert "script" not in str(policy)


def test_equal_reports_give_equal_bytes(report: Path, html: str):
    assert to_html(REPORT, report) == html


def test_a_picture_that_is_missing_is_named(report: Path):
    (report.parent / "tiny/curves.png").unlink()
    with pytest.raises(InputError, match=r"tiny\.md: links to .*tiny/curves\.png: expected an existing"):
        write_page(report, report.with_suffix(".html"))
    assert not report.with_suffix(".html").exists()
