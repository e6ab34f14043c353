"""The printed book, read back: nothing missing, nothing off the page, links work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pypdf
import pytest
import typst
from pypdf.generic import IndirectObject

import tangle
from loom.render import typst as printing
from loom.render.config import Config, read_config
from loom.render.document import Page, load_pages
from loom.render.nodes import plain_text
from loom.render.typst_code import CODE_SIZE, SMALLEST
from tests.loom import sample_book

FIXTURES = Path(__file__).parent / "fixtures"
PAGE = (504.0, 666.0)  # points: 7 by 9.25 inches
MARGINS = (59.04, 45.36)  # inside and outside
ADVANCE = 0.60205  # of DejaVu Sans Mono, in ems
WIDE = "x" * 300 + "\n" + "word " * 60 + "\ntensor([1, 2])\n"
LONG_CELL = "\n".join(f"value_{n} = {n} * {n}  # of a long cell" for n in range(90))
ROWS = "\n".join(
    f"| {n} | row {n} with a `code_{n}` word | {n * n} |" for n in range(60)
)
SENTENCE = "Sentence {} says that a kernel reads its lanes and writes them back."
PARAGRAPHS = "\n\n".join(
    " ".join(SENTENCE.format(f"{n}.{m}") for m in range(6)) for n in range(16)
)


@dataclass
class Run:
    """A piece of text as it stands on a page."""

    text: str
    x: float
    y: float
    font: str
    size: float


@dataclass
class Printed:
    """The sample book with a chapter of difficult cases, and its PDF."""

    root: Path
    config: Config
    pages: list[Page]
    out: Path
    reader: pypdf.PdfReader
    texts: list[str]
    runs: list[list[Run]]


def load(root: Path) -> tuple[Config, list[Page]]:
    book, config = tangle.read_book(root), read_config(root)
    wovens = sample_book.weave(book)
    return config, load_pages(wovens, book, config, root / "assets", root / "cache")


def build(root: Path) -> Path:
    config, pages = load(root)
    out = root / "_book" / config.pdf_name
    return printing.build_pdf(pages, config, out, root / "assets")


def read_runs(page: Any) -> list[Run]:
    runs: list[Run] = []

    def visit(text: str, cm: Any, tm: Any, font: Any, size: float) -> None:
        if text.strip() and font:
            x, y = tm[4] * cm[0] + cm[4], tm[5] * cm[3] + cm[5]
            runs.append(Run(text.rstrip("\n"), x, y, font["/BaseFont"], size))

    page.extract_text(visitor_text=visit)
    return runs


def squeeze(text: str) -> str:
    """Letters and digits only: spacing and line ends differ on paper."""
    return re.sub(r"[\W_]+", "", text)


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Printed:
    root = sample_book.copy_sample(tmp_path_factory.mktemp("pdf"))
    chapter = (FIXTURES / "print.qmd").read_text(encoding="utf-8")
    for name, text in (
        ("LONG\n", LONG_CELL + "\n"),
        ("ROWS\n", ROWS + "\n"),
        ("PARAGRAPHS\n", PARAGRAPHS + "\n"),
    ):
        chapter = chapter.replace(name, text)
    (root / "book/03-print.qmd").write_text(chapter, encoding="utf-8")
    listing = root / "_quarto.yml"
    other = "        - book/02-other.qmd\n"
    added = other + "        - book/03-print.qmd\n"
    listing.write_text(listing.read_text().replace(other, added))
    sample_book.OUTPUTS["wide-output"] = [sample_book.stream(WIDE)]
    config, pages = load(root)
    out = root / "_book" / config.pdf_name
    assert printing.build_pdf(pages, config, out, root / "assets") == out
    reader = pypdf.PdfReader(out)
    texts = [page.extract_text() for page in reader.pages]
    runs = [read_runs(page) for page in reader.pages]
    return Printed(root, config, pages, out, reader, texts, runs)


# --- everything is there ------------------------------------------------------------


def test_pages_have_one_size_and_something_on_them(printed: Printed) -> None:
    for number, page in enumerate(printed.reader.pages):
        assert (float(page.mediabox.width), float(page.mediabox.height)) == PAGE
        assert printed.texts[number].strip(), f"page {number + 1} is blank"


def test_title_copyright_and_contents_come_first(printed: Printed) -> None:
    title, colophon, contents = printed.texts[:3]
    assert printed.config.title in title
    assert "The Sample Authors" in title
    assert "CreativeCommonsAttribution4" in squeeze(colophon)
    assert "MIT License" in " ".join(colophon.split())
    assert contents.startswith("Contents")


def test_every_heading_is_printed(printed: Printed) -> None:
    book = squeeze("".join(printed.texts[3:]))
    for page in printed.pages:
        for _, _, number, inlines in page.outline:
            words = squeeze(number + plain_text(inlines))
            if "sum" not in words:  # a formula reads differently in print
                assert words in book


def test_every_paragraph_is_printed(printed: Printed) -> None:
    book = squeeze("".join(printed.texts))
    for n in range(16):
        assert squeeze(SENTENCE.format(f"{n}.5")) in book
    for words in (
        "says fortnight, a word that stands before any heading",
        "is not a slower copy, it is a race",
        "No title of its own",
        "Two drawings side by side",
        "its definition, with a link",
        "A footnote, with code offs < n",
        "Second note",
        "A note in a heading",
        "The interpreter runs it",
        "The Art of Computer Programming",
        "a badge may be long and break over the line",
        "# $ % & * + - / < = > @ [ ] ^ _ ` { | } ~",
    ):
        assert squeeze(words) in book, words


def test_code_is_printed_line_by_line(printed: Printed) -> None:
    lines = "\n".join(printed.texts).replace("\u00a0", " ").split("\n")
    found = {line.rstrip() for line in lines}
    for line in LONG_CELL.split("\n"):
        assert line in found
    assert (
        "    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)"
        in found
    )
    assert any(re.fullmatch(r"book/01-sample\.qmd:\d+", line) for line in found)


def test_glyphs_beyond_latin_are_printed(printed: Printed) -> None:
    book = "".join(printed.texts)
    for char in "αβΣ∈∀→⇄↪⁰³⁻ⁿ½≤≈∞┌┬║▀░■●▲✓✗…⌈⌊√∑∂σµ":
        assert char in book, char


def test_numbers_of_floats_and_equations(printed: Printed) -> None:
    book = " ".join("\n".join(printed.texts).split())
    for words in (
        "Figure 1.1 Reads and writes",
        "Table 1.1 Lanes of the reversal",
        "Listing 1.1 A loop over",
        "Listing 1.2 PTX of the",
        "Table A.1 Wider than a phone",
        "(1.1)",
        "(2.1)",
        "see Equation 1.1",
    ):
        assert words in book, words


# --- nothing off the page ---------------------------------------------------------


def right_edge(run: Run) -> float:
    return run.x + len(run.text) * ADVANCE * run.size


def code_runs(printed: Printed) -> Iterator[tuple[int, Run]]:
    for number, runs in enumerate(printed.runs):
        for run in runs:
            if "DejaVuSansMono" in run.font and SMALLEST - 0.01 <= run.size < 7.4:
                yield number, run


def test_code_stays_between_the_margins(printed: Printed) -> None:
    seen = 0
    for number, run in code_runs(printed):
        inside, outside = MARGINS
        left, right = (inside, outside) if number % 2 == 0 else (outside, inside)
        assert run.x >= left - 0.1, (number + 1, run)
        assert right_edge(run) <= PAGE[0] - right + 0.1, (number + 1, run)
        seen += 1
    assert seen > 150


def test_a_line_of_88_columns_is_not_broken(printed: Printed) -> None:
    line = "def ruler(width: int = 88) -> str:  # the comment of this line ends at "
    line += "column 88 exactly"
    assert len(line) == 88
    assert any(line in text.replace("\u00a0", " ") for text in printed.texts)
    assert any(abs(run.size - CODE_SIZE) < 0.01 for _, run in code_runs(printed))


def test_longer_lines_are_continued_with_a_mark(printed: Printed) -> None:
    text = next(text for text in printed.texts if "x" * 80 in text)
    assert "x" * 88 + "\n" in text
    assert re.search(r"↪ ?x{86}\n", text)
    assert text.count("↪") >= 3 + 3


def test_text_stays_on_the_page(printed: Printed) -> None:
    for number, runs in enumerate(printed.runs):
        for run in runs:
            assert 0 < run.x < PAGE[0] - 20, (number + 1, run)
            assert 30 < run.y < PAGE[1] - 20, (number + 1, run)


@pytest.fixture(scope="module")
def page_ends(printed: Printed) -> list[list[Run]]:
    """Pages on which a heading and then code stand at every height near the end."""
    work = printed.root / ".weave" / "typst"
    code = "\\n".join(f"line_{n:02} = {n}" for n in range(12))
    lines = ['#import "/book.typ": *', '#show: book.with(title: "Ends", authors: ())']
    lines.append('#chapter(1, "1", none, "one:")[Ends];')
    for n in range(40):
        lines.append(f"#pagebreak();#v({380 + 4 * n}pt);Filler {n}.")
        lines.append(f'#section(2, 2, "1.{n}", none, true)[Heading];')
        lines.append(f'#code("source", "python", "book/x.qmd:{n}", (), "{code}");')
        lines.append(f'#section(2, 3, "1.{n}.1", none, true)[Lower];')
        lines.append("A paragraph of two lines or more. " * 4)
    (work / "ends.typ").write_text("\n\n".join(lines), encoding="utf-8")
    out = printed.root / "ends.pdf"
    compiler = typst.Compiler(
        str(work / "ends.typ"),
        root=str(work),
        font_paths=[str(work / "fonts")],
        ignore_system_fonts=True,
    )
    compiler.compile(output=str(out), format="pdf")
    reader = pypdf.PdfReader(out)
    starts = [n for n, p in enumerate(reader.pages) if "Filler 0." in p.extract_text()]
    runs = [read_runs(page) for page in reader.pages[starts[0] :]]
    return [[run for run in page if 50 < run.y < 610] for page in runs]


def test_no_heading_stands_alone_at_the_bottom(page_ends: list[list[Run]]) -> None:
    seen = 0
    for body in page_ends:
        last = min(body, key=lambda run: run.y)
        assert not ("Semibold" in last.font and last.size >= 12), last
        assert not re.fullmatch(r"book/x\.qmd:\d+", last.text), last
        seen += sum("Heading" in run.text for run in body)
    assert seen == 40


def test_no_code_line_stands_alone_on_a_page(page_ends: list[list[Run]]) -> None:
    counts = [
        len({run.y for run in body if "Mono" in run.font and run.size > 7})
        for body in page_ends
    ]
    assert sum(counts) == 40 * 12
    assert any(0 < count < 12 for count in counts), "no page cuts a cell"
    assert 1 not in counts


def test_a_table_repeats_its_head_on_the_next_page(printed: Printed) -> None:
    with_rows = [t for t in printed.texts if re.search(r"row \d+ with a", t)]
    assert len(with_rows) >= 2
    assert all("what is in it" in text for text in with_rows)


# --- getting about -----------------------------------------------------------------


def test_bookmarks_are_the_headings(printed: Printed) -> None:
    found: list[str] = []

    def collect(items: Any) -> None:
        for item in items:
            if isinstance(item, list):
                collect(item)
            else:
                found.append(squeeze(item.title))
                assert printed.reader.get_destination_page_number(item) is not None

    collect(printed.reader.outline)
    wanted = []
    part = ""
    for page in printed.pages:
        if page.part and page.part != part:
            wanted.append(squeeze(page.part))
        part = page.part
        for level, _, number, inlines in page.outline:
            if level < 5 and "sum" not in plain_text(inlines):
                wanted.append(squeeze(number + plain_text(inlines)))
    assert [
        title for title in found if "∑" not in title and "Thesum" not in title
    ] == wanted
    assert len(found) == len(wanted) + 1


def resolve(printed: Printed, dest: Any) -> int | None:
    """The page a link's destination is on."""
    if isinstance(dest, IndirectObject):
        dest = dest.get_object()
    if isinstance(dest, (str, bytes)):
        named = printed.reader.named_destinations.get(str(dest))
        return (
            None if named is None else printed.reader.get_destination_page_number(named)
        )
    pages = [page.indirect_reference for page in printed.reader.pages]
    return pages.index(dest[0]) if dest[0] in pages else None


def links(printed: Printed) -> Iterator[tuple[int, Any]]:
    for number, page in enumerate(printed.reader.pages):
        for annotation in page.get("/Annots") or []:
            found = annotation.get_object()
            if found.get("/Subtype") == "/Link":
                yield number, found


def test_every_link_leads_somewhere(printed: Printed) -> None:
    inner = outer = 0
    for number, link in links(printed):
        action = link.get("/A")
        if action is not None and action.get("/S") == "/URI":
            assert action["/URI"].startswith("https://")
            outer += 1
            continue
        dest = link.get("/Dest") if action is None else action.get("/D")
        assert resolve(printed, dest) is not None, (number + 1, dest)
        inner += 1
    assert inner > 40
    assert outer >= 4


def test_cross_references_lead_to_what_they_name(printed: Printed) -> None:
    texts = [" ".join(text.split()) for text in printed.texts]
    source = next(n for n, t in enumerate(texts) if "Table 3.1 goes over the page" in t)
    table = next(n for n, t in enumerate(texts) if "Table 3.1 A table longer" in t)
    section = next(n for n, t in enumerate(texts) if "value_0 = 0" in t)
    goals = {
        resolve(printed, link.get("/Dest") or link["/A"]["/D"])
        for number, link in links(printed)
        if number == source and (link.get("/A") or {}).get("/S") != "/URI"
    }
    assert goals == {table, section}


def test_page_numbers_are_roman_then_arabic(printed: Printed) -> None:
    labels = printed.reader.page_labels
    first = next(
        n for n, text in enumerate(printed.texts) if squeeze(text).startswith("PART0")
    )
    assert labels[2] == "iii"
    assert labels[first] == "1"
    assert labels[first + 1] == "2"
    assert first % 2 == 0, "the main matter begins on a right-hand page"
    contents = printed.texts[2]
    assert re.search(r"Reversing a vector\s*2\b", contents)


def test_running_heads_name_chapter_and_section(printed: Printed) -> None:
    high = [
        (number, [r for r in runs if r.y > 620])
        for number, runs in enumerate(printed.runs)
    ]
    left = [squeeze("".join(r.text for r in rs)) for n, rs in high if n % 2 == 1 and rs]
    right = [
        squeeze("".join(r.text for r in rs)) for n, rs in high if n % 2 == 0 and rs
    ]
    assert any("REVERSINGAVECTOR" in text for text in left)
    assert any("Overthepage" in text for text in right)
    opening = next(n for n, t in enumerate(printed.texts) if "CHAPTER1" in squeeze(t))
    assert not high[opening][1]


# --- the file ----------------------------------------------------------------------


def test_metadata_language_and_tags(printed: Printed) -> None:
    root = printed.reader.trailer["/Root"]
    assert printed.reader.metadata is not None
    assert printed.reader.metadata.title == printed.config.title
    assert printed.reader.metadata.author == "The Sample Authors"
    assert root["/Lang"] == "en"
    assert root["/MarkInfo"]["/Marked"]
    assert "pdfuaid" in root["/Metadata"].get_object().get_data().decode()


def test_images_have_an_alternative_text(printed: Printed) -> None:
    texts = set()
    for number in range(1, len(printed.reader.xref[0]) + 1):
        found = printed.reader.get_object(number)
        if isinstance(found, dict) and "/Alt" in found:
            texts.add(str(found["/Alt"]))
    assert "Ten cells in three colors; the last two lanes are hatched." in texts
    assert "Blocks, left." in texts


def test_fonts_are_in_the_file_and_no_glyph_is_missing(printed: Printed) -> None:
    fonts = 0
    for page in printed.reader.pages:
        codes = page["/Resources"].get("/Font") or {}
        for name, font in codes.items():
            inner = font.get_object()["/DescendantFonts"][0].get_object()
            descriptor = inner["/FontDescriptor"].get_object()
            assert "/FontFile2" in descriptor or "/FontFile3" in descriptor, name
            fonts += 1
        for operands, operator in page.get_contents().operations:
            for item in operands if operator in (b"Tj", b"TJ") else []:
                for part in item if isinstance(item, list) else [item]:
                    data = getattr(part, "original_bytes", b"")
                    pairs = {data[n : n + 2] for n in range(0, len(data), 2)}
                    assert b"\0\0" not in pairs
    assert fonts > 20


# --- rebuilding and refusing -------------------------------------------------------


def test_nothing_is_compiled_when_nothing_changed(
    printed: Printed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Any) -> bytes:
        raise AssertionError("compiled again")

    before = printed.out.stat().st_mtime_ns
    monkeypatch.setattr(printing.Project, "compile", fails)
    config, pages = load(printed.root)
    printing.build_pdf(pages, config, printed.out, printed.root / "assets")
    assert printed.out.stat().st_mtime_ns == before
    other = printing.build_pdf(
        pages, config, tmp_path / "b.pdf", printed.root / "assets"
    )
    assert other.read_bytes() == printed.out.read_bytes()


def test_one_edit_writes_one_page_and_the_pdf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = sample_book.copy_sample(tmp_path)
    out = build(root)
    first = out.read_bytes()
    chapter = root / "book/02-other.qmd"
    text = chapter.read_text().replace("is searched by its parts", "was edited")
    chapter.write_text(text)
    written: list[str] = []
    write = printing.PageWriter.write
    monkeypatch.setattr(
        printing.PageWriter, "write", lambda w: written.append(w.rel) or write(w)
    )
    build(root)
    assert written == ["book/02-other.qmd"]
    assert out.read_bytes() != first
    words = "".join(page.extract_text() for page in pypdf.PdfReader(out).pages)
    assert "was edited" in words


def refused(root: Path, name: str, old: str, new: str) -> list[str]:
    """The problems that a change of a chapter leads to; the PDF stays as it was."""
    path = root / name
    path.write_text(
        path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8"
    )
    out = root / "_book" / read_config(root).pdf_name
    before = out.read_bytes() if out.exists() else None
    with pytest.raises(tangle.BookError) as error:
        build(root)
    assert (out.read_bytes() if out.exists() else None) == before
    assert not list((root / "_book").glob(".*"))
    return [str(problem) for problem in error.value.problems]


def test_a_character_without_a_glyph_is_refused_with_its_lines(tmp_path: Path) -> None:
    root = sample_book.copy_sample(tmp_path)
    build(root)
    found = refused(root, "book/02-other.qmd", "Back to", "漢 and 字\n\nBack to")
    assert len(found) == 2
    assert found[0].startswith("book/02-other.qmd:3: no font of the PDF has ")
    assert "U+5B57" in found[0] and "U+6F22" in found[1]


def test_a_character_without_a_glyph_in_an_output_names_the_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = sample_book.copy_sample(tmp_path)
    outputs = {**sample_book.OUTPUTS, "by-hand": [sample_book.stream("漢\n")]}
    monkeypatch.setattr(sample_book, "OUTPUTS", outputs)
    line = next(
        n
        for n, text in enumerate(
            (root / "book/01-sample.qmd").read_text().split("\n"), 1
        )
        if text == "#| label: by-hand"
    )
    with pytest.raises(
        tangle.BookError, match=rf"01-sample.qmd:{line - 1}: in this cell's"
    ):
        build(root)


def test_a_formula_that_cannot_be_read_is_refused_with_its_line(tmp_path: Path) -> None:
    root = sample_book.copy_sample(tmp_path)
    found = refused(root, "book/02-other.qmd", "Back to", "$\\nonesuch{x}$ back to")
    assert len(found) == 1
    assert found[0].startswith("book/02-other.qmd:3: pandoc cannot read the formula ")


def test_what_typst_refuses_is_named_by_chapter_and_line(tmp_path: Path) -> None:
    root = sample_book.copy_sample(tmp_path)
    bad = "needs `#nonesuch[x]`{=typst} pass"
    found = refused(root, "book/02-other.qmd", "needs one pass", bad)
    assert len(found) == 1
    assert found[0].startswith(
        "book/02-other.qmd:5: the PDF cannot be set: unknown variable"
    )
    assert "#nonesuch" in found[0]


def test_an_image_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    root = sample_book.copy_sample(tmp_path)
    (root / "book/figures/blocks.svg").write_text("<svg", encoding="utf-8")
    found = refused(root, "book/02-other.qmd", "", "")
    assert all(problem.startswith("book/01-sample.qmd:") for problem in found)
    assert "blocks.svg cannot be read" in found[0]


def test_pages_that_were_not_executed_are_left_out(tmp_path: Path) -> None:
    root = sample_book.copy_sample(tmp_path)
    book, config = tangle.read_book(root), read_config(root)
    some = [w for w in sample_book.weave(book) if w.chapter.rel != "book/01-sample.qmd"]
    pages = load_pages(some, book, config, root / "assets", root / "cache")
    out = printing.build_pdf(pages, config, root / "_book/b.pdf", root / "assets")
    words = " ".join(page.extract_text() for page in pypdf.PdfReader(out).pages)
    assert "Figure 1.1" in words.replace("\u00a0", " ")  # the words of a reference stay
    assert "is not a slower copy" not in words
