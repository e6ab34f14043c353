"""The HTML book: pages, files, links, search index, and what a failing build leaves."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import tangle
from loom.render import build, html
from loom.render.body import inline_svg
from loom.render.highlight import highlight
from loom.woven import CodeCell
from tests.loom.sample_book import copy_sample, weave

VOID = frozenset("area base br col embed hr img input link meta source wbr".split())


class Element:
    def __init__(self, tag: str, attributes: dict[str, str]) -> None:
        self.tag, self.attributes = tag, attributes
        self.children: list[Element | str] = []

    def __getitem__(self, name: str) -> str:
        return self.attributes.get(name, "")

    @property
    def text(self) -> str:
        return "".join(c if isinstance(c, str) else c.text for c in self.children)

    def all(self, tag: str = "", name: str = "") -> list[Element]:
        """Elements below with this tag and this class."""
        found: list[Element] = []
        for child in self.children:
            if isinstance(child, Element):
                fits = (not tag or child.tag == tag) and (
                    not name or name in child["class"].split()
                )
                found += [child] if fits else []
                found += child.all(tag, name)
        return found

    def at(self, ident: str) -> Element:
        (found,) = [e for e in self.all() if e["id"] == ident]
        return found


class Reader(HTMLParser):
    """Reads a page and insists that every element is closed in its place."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.open = [self.root]
        self.feed(source)
        assert self.open == [self.root], f"not closed: {self.open[-1].tag}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def render(root: Path) -> Path:
    book = tangle.read_book(root)
    out = root / "_book"
    build(weave(book), book, out, ("html",))
    return out


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return render(copy_sample(tmp_path_factory.mktemp("html")))


@pytest.fixture(scope="module")
def sample(out: Path) -> Element:
    return Reader((out / "book/01-sample.html").read_text()).root


@pytest.fixture(scope="module")
def home(out: Path) -> Element:
    return Reader((out / "index.html").read_text()).root


# The page


def test_files_are_where_quarto_puts_them(out: Path) -> None:
    assert sorted(p.relative_to(out).as_posix() for p in out.rglob("*.html")) == [
        "book/01-sample.html",
        "book/02-other.html",
        "book/a-extras.html",
        "index.html",
    ]


def test_frame(sample: Element) -> None:
    assert sample.all("html")[0]["lang"] == "en"
    assert sample.all("title")[0].text == "1 Reversing a vector – Sample of Everything"
    (description,) = [m for m in sample.all("meta") if m["name"] == "description"]
    assert description["content"].startswith("A copy reads lane i and writes lane i;")
    names = [e["aria-label"] for e in sample.all("nav")]
    assert names == ["Book", "Pages", "On this page"]
    assert len(sample.all("main")) == 1 and len(sample.all("h1")) == 1
    (skip,) = sample.all("a", "skip")
    assert sample.at(skip["href"][1:]).tag == "main"


def test_contents(sample: Element) -> None:
    contents = sample.at("contents")
    assert [s.text for s in contents.all("summary")] == [
        "Part 0 — First things",
        "Appendices",
    ]
    links = contents.all("a")
    assert [a.text for a in links] == [
        "Preface",
        "1Reversing a vector",
        "2Another chapter with a rather long title about tl.constexpr",
        "AExtras",
    ]
    assert [a["aria-current"] for a in links] == ["", "page", "", ""]
    assert links[0]["href"] == "../index.html"


def test_previous_and_next(sample: Element) -> None:
    (pager,) = sample.all("nav", "pager")
    assert [(a["rel"], a["href"]) for a in pager.all("a")] == [
        ("prev", "../index.html"),
        ("next", "02-other.html"),
    ]


def test_outline(sample: Element) -> None:
    (outline,) = sample.all("nav", "outline")
    assert [a.text for a in outline.all("a")] == [
        "1.1By hand",
        "1.2The kernel",
        "1.2.1A third level",
        "1.3Boxes",
        "References",
    ]


def test_home(home: Element) -> None:
    (hero,) = home.all("div", "hero")
    assert [p.text for p in hero.all("p")][:3] == [
        "Sample of Everything",
        "Every Construct the Renderer Knows, on a Few Pages",
        "The Sample Authors",
    ]
    assert "Sample-of-Everything.pdf" not in {a["href"] for a in home.all("a")}


def test_home_links_to_the_pdf_that_is_there(tmp_path: Path) -> None:
    root = copy_sample(tmp_path)
    (root / "_book").mkdir()
    (root / "_book/Sample-of-Everything.pdf").write_bytes(b"%PDF-1.7")
    home = Reader((render(root) / "index.html").read_text()).root
    assert "Sample-of-Everything.pdf" in {a["href"] for a in home.all("a")}


def test_nothing_is_loaded_from_elsewhere(out: Path) -> None:
    for path in out.rglob("*.html"):
        for element in Reader(path.read_text()).root.all():
            for name in ("src", "srcset", "action", "poster"):
                assert not re.match(r"\w+:|//", element[name]), (path, element[name])
            if element.tag == "link" and element["rel"] in ("stylesheet", "icon"):
                assert not element["href"].startswith(("http", "//"))
    css, script = ((out / f"site/book.{kind}").read_text() for kind in ("css", "js"))
    assert not re.search(r"@import|url\((?!\"data:)", css)
    assert not re.search(r"https?://|fetch\(|XMLHttp", script)


# What stands in an article


def test_code_is_exactly_the_cell(out: Path, sample: Element) -> None:
    book = tangle.read_book(out.parent)
    woven = weave(book)[1]
    cells = [part.cell for part in woven.parts if isinstance(part, CodeCell)]
    shown = {cell.code for cell in cells if cell.options.get("echo") != "false"}
    written = {code.text for code in sample.all("code", "language-python")}
    assert shown <= written and len(shown) > 10


def test_tangled_cell_says_its_place(sample: Element) -> None:
    (place,) = sample.at("reverse-kernel").all("span", "place")
    line = re.search(r":(\d+)$", place.text)
    assert place.text.startswith("generated/sample.py") and line
    assert f"Line {line[1]} of book/01-sample.qmd" in place["title"]


def test_folded_code(sample: Element) -> None:
    (fold,) = sample.at("warned").all("details", "fold")
    assert fold.all("summary")[0].text == "How it warns"
    assert "open" not in fold.attributes


def test_status_of_captures(sample: Element) -> None:
    assert "cell-stale" in sample.at("h200-stale")["class"].split()
    assert sample.at("h200-missing").all("span", "badge-missing")


def test_figures(sample: Element) -> None:
    figure = sample.at("fig-trace")
    assert figure.tag == "figure"
    caption = figure.all("figcaption")[0]
    words = "Figure\u00a01.1 Reads and writes of reverse_kernel"
    assert caption.text.strip().startswith(words)
    assert [a["href"] for a in caption.all("a", "ref")] == ["#tbl-lanes"]
    (drawing,) = figure.all("svg")
    assert drawing["role"] == "img"
    assert drawing["aria-label"].startswith("Ten cells in three colors")


def test_pictures_have_words_and_a_size(sample: Element) -> None:
    pictures = sample.all("img")
    assert len(pictures) == 3
    for picture in pictures:
        assert picture["alt"]
        assert (picture["width"], picture["height"]) == ("240", "80")


def test_formulas(sample: Element) -> None:
    equation = sample.at("eq-ceil")
    (formula,) = equation.all("math")
    assert formula["display"] == "block"
    assert equation.all("span", "equation-number")[0].text == "(1.1)"
    assert not sample.all("span", "math")  # pandoc's mark of what it could not say


def test_callouts(sample: Element) -> None:
    trap = next(d for d in sample.all("div", "callout-warning"))
    title = trap.all("p", "callout-title")[0]
    assert title.text.strip() == "Warning: Trap: the alias"
    (exercise,) = sample.all("details", "callout-tip")
    assert "open" not in exercise.attributes


def test_references_between_pages(out: Path, sample: Element) -> None:
    hrefs = {a.text: a["href"] for a in sample.all("a", "ref")}
    assert hrefs["Chapter\u00a02"] == "02-other.html#sec-other"
    assert hrefs["Appendix\u00a0A"] == "a-extras.html#sec-extras"
    assert hrefs["Figure\u00a01.1"] == "#fig-trace"
    other = Reader((out / "book/02-other.html").read_text()).root
    targets = {a["href"] for a in other.all("a", "ref")}
    assert {"01-sample.html#fig-trace", "01-sample.html#sec-sample"} <= targets


def test_footnotes(sample: Element) -> None:
    (notes,) = sample.all("section", "footnotes")
    assert "A footnote, with code offs < n and a reference to" in notes.text
    assert notes.all("a", "footnote-back")


def test_tables_scroll_in_their_own_box(out: Path) -> None:
    page = Reader((out / "book/a-extras.html").read_text()).root
    assert len(page.all("table")) == len(page.all("div", "table-wrap")) == 1


def test_drawings_on_one_page_do_not_share_identifiers() -> None:
    source = (
        '<?xml version="1.0"?><svg class="loom-svg" aria-labelledby="t" width="9">'
        '<title id="t">T</title><pattern id="h"/><rect fill="url(#h)">'
        '<title>tip</title></rect><use href="#h"/><use href="#elsewhere"/></svg>'
    )
    drawn = inline_svg(source, "d2-", "A &quot;label&quot;")
    assert drawn == (
        '<svg class="loom-svg" width="9" role="img" aria-label="A &quot;label&quot;">'
        '<pattern id="d2-h"/><rect fill="url(#d2-h)"><title>tip</title>'
        '</rect><use href="#d2-h"/><use href="#elsewhere"/></svg>'
    )


@pytest.mark.parametrize("language", "python ptx mlir sass llvm console pytb".split())
def test_highlighting_changes_no_character(language: str) -> None:
    source = '\tx = "<&>" % r1 // 0x1f  \n\n  $ ok: %a#1 !tt.ptr<f32> /*0010*/ R12\n  '
    for text in (source, source + "\n", "", " ", "a"):
        assert Reader(f"<p>{highlight(text, language)}</p>").root.text == text


# Colors


def luminance(color: str) -> float:
    parts = [int(color[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, two: str) -> float:
    high, low = sorted((luminance(one), luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("side", [0, 1], ids=["light", "dark"])
def test_text_has_contrast(side: int) -> None:
    """WCAG AA: 4.5 to 1 for text, on the page and on the ground of code."""
    css = (html.THEME / "book.css").read_text()
    pair = r"light-dark\((#\w{3,6}), (#\w{3,6})\)"
    found = re.finditer(rf"--([\w-]+): {pair}", css)
    named = {match[1]: match.group(2, 3)[side] for match in found}
    text = "ink soft title accent note tip warning caution important".split()
    for name in text:
        for ground in ("page", "raised", "sunken"):
            assert contrast(named[name], named[ground]) >= 4.5, (name, ground)
    assert contrast(named["accent"], named["accent-soft"]) >= 4.5
    assert contrast(named["ink"], named["mark"]) >= 4.5
    marks = re.findall(rf"(\.code \.[^{{]+) {{ color: {pair}", css)
    assert len(marks) > 8
    for names, *colors in marks:
        for ground in ("sunken", "page"):
            assert contrast(colors[side], named[ground]) >= 4.5, (names, ground)


# Search


def entries(out: Path) -> list[list[str]]:
    script = (out / "site/search-index.js").read_text()
    data = re.fullmatch(r"window\.bookIndex = (.*);\n", script, re.DOTALL)
    assert data
    found: list[list[str]] = json.loads(data[1])
    return found


def test_search_finds_text_before_the_first_heading(out: Path) -> None:
    hits = [e for e in entries(out) if "fortnight" in e[4]]
    assert [(e[0], e[2]) for e in hits] == [("index.html", "Preface")]


def test_search_finds_code_in_its_section(out: Path) -> None:
    hits = [e for e in entries(out) if "def reverse_kernel" in e[5]]
    assert [e[:4] for e in hits] == [
        ["book/01-sample.html#sec-kernel", "1.2", "The kernel", "1 Reversing a vector"]
    ]


def test_search_reads_references_as_the_page_does(out: Path) -> None:
    (entry,) = [e for e in entries(out) if "name one figure" in e[4]]
    assert "Figure\u00a01.1 and 1.1 and Drawing 1.1 name one figure" in entry[4]


def test_search_entries_lead_somewhere(out: Path) -> None:
    for url, *_ in entries(out):
        path, _, anchor = url.partition("#")
        page = (out / path).read_text()
        assert not anchor or f'id="{anchor}"' in page


# Building again


def stamps(out: Path) -> dict[str, int]:
    return {
        path.relative_to(out).as_posix(): path.stat().st_mtime_ns
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }


def test_unchanged_files_keep_their_time(tmp_path: Path) -> None:
    root = copy_sample(tmp_path)
    before = stamps(render(root))
    assert stamps(render(root)) == before
    path = root / "book/02-other.qmd"
    path.write_text(path.read_text().replace("needs one pass", "needs a single pass"))
    after = stamps(render(root))
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"book/02-other.html", "site/search-index.js"}


def test_what_is_no_longer_made_is_removed(tmp_path: Path) -> None:
    root = copy_sample(tmp_path)
    out = render(root)
    (out / "mine.txt").write_text("kept")
    config = root / "_quarto.yml"
    text = config.read_text().replace("  appendices:\n    - book/a-extras.qmd\n", "")
    config.write_text(text)
    (root / "book/a-extras.qmd").unlink()
    path = root / "book/01-sample.qmd"
    path.write_text(path.read_text().replace(" and @sec-extras", ""))
    render(root)
    assert not (out / "book/a-extras.html").exists()
    assert (out / "book/02-other.html").exists() and (out / "mine.txt").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("See @fig-nowhere.", "book/02-other.qmd:3: got @fig-nowhere"),
        (
            "Take $\\nosuchthing{x}$.",
            "book/02-other.qmd:3: MathML cannot say '\\\\nosuchthing{x}'",
        ),
    ],
)
def test_a_failing_build_leaves_the_book(tmp_path: Path, words: str, said: str) -> None:
    root = copy_sample(tmp_path)
    before = stamps(render(root))
    path = root / "book/02-other.qmd"
    path.write_text(path.read_text().replace("Back to", f"{words} Back to"))
    with pytest.raises(tangle.BookError) as caught:
        render(root)
    assert str(caught.value).startswith(said)
    assert stamps(root / "_book") == before


def test_part_of_the_book_renews_only_its_pages(tmp_path: Path) -> None:
    root = copy_sample(tmp_path)
    out = render(root)
    before = stamps(out)
    book = tangle.read_book(root)
    only = [woven for woven in weave(book) if woven.chapter.name == "other"]
    only[0].parts[0].text = only[0].parts[0].text.replace("one pass", "a pass")
    build(only, book, out, ("html", "pdf"))
    after = stamps(out)
    assert set(after) == set(before)
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"book/02-other.html", "site/search-index.js"}


def test_dead_links_are_found() -> None:
    known = {"index.html", "book/a.html", "site/book.css"}
    anchors = {"index.html": {"x"}, "book/a.html": {"y z"}}

    def dead(address: str) -> bool:
        return bool(html._dead("book/a.html", address, known, anchors))

    good = ("../index.html#x", "#y%20z", "../site/book.css", "https://a.org", "")
    for address in good:
        assert not dead(address), address
    for address in ("index.html", "#x", "../index.html#y", "../site/none.js"):
        assert dead(address), address


def test_unknown_format_is_refused(tmp_path: Path) -> None:
    book = tangle.Book(tmp_path, ())
    with pytest.raises(ValueError, match="epub"):
        build([], book, tmp_path, ("epub",))


def test_a_formula_and_its_comma_stay_on_one_line(sample: Element) -> None:
    glued = [span.text for span in sample.all("span", "together")]
    assert any(text.endswith(";") for text in glued)
    assert any(text.endswith(",") for text in glued)


def test_a_page_with_a_dead_link_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = copy_sample(tmp_path)
    monkeypatch.setattr(html, "_hero", lambda *_: '<a id="main" href="lost.html">x</a>')
    with pytest.raises(tangle.BookError) as caught:
        render(root)
    said = str(caught.value)
    assert "index.qmd:1: the page links to lost.html, which the book does not" in said
    assert "index.qmd:1: the page has the identifier main twice" in said
    assert not (root / "_book").exists()
