"""Chapters to the resolved tree: numbers, references, cells, faults with lines."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tangle
from loom.render import nodes, pandoc
from loom.render.config import read_config
from loom.render.document import Page, load_pages, unexecuted
from loom.render.lines import Locator
from loom.woven import CodeCell
from tests.loom.sample_book import copy_sample, png, weave

CELL = "```{{python}}\n#| label: {}\n{}\n```\n"


def load(root: Path, cache: Path | None = None) -> list[Page]:
    book = tangle.read_book(root)
    return load_pages(weave(book), book, read_config(root), root / "assets", cache)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Page]:
    return load(copy_sample(tmp_path_factory.mktemp("pages")))


@pytest.fixture(scope="module")
def sample(pages: list[Page]) -> Page:
    return pages[1]


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Writes a book of one page (and more) below a temporary folder."""

    def make(text: str, **others: str) -> Path:
        chapters = ["index.qmd", "book/01-one.qmd", *others]
        (tmp_path / "book").mkdir(exist_ok=True)
        listed = "".join(f"\n    - {name}" for name in chapters)
        (tmp_path / "_quarto.yml").write_text(
            f"book:\n  title: T\n  chapters:{listed}\nbibliography: book/r.bib\n"
        )
        (tmp_path / "book" / "r.bib").write_text("@book{known, title={A}, year=2}\n")
        index = "# Preface {#sec-p .unnumbered}\n\n"
        index += CELL.format("p", "#| tangle: true\nX = 1")
        (tmp_path / "index.qmd").write_text(index)
        (tmp_path / "book" / "01-one.qmd").write_text(text)
        for name, words in others.items():
            (tmp_path / name).write_text(words)
        return tmp_path

    yield make
    shutil.rmtree(tmp_path, ignore_errors=True)


def faults(root: Path, **outputs: list[dict[str, Any]]) -> list[str]:
    book = tangle.read_book(root)
    wovens = [unexecuted(chapter) for chapter in book.chapters]
    for woven in wovens:
        for part in woven.parts:
            if isinstance(part, CodeCell):
                part.outputs = outputs.get(part.cell.label.replace("-", "_"), [])
    with pytest.raises(tangle.BookError) as caught:
        load_pages(wovens, book, read_config(root), root / "assets")
    return [str(problem) for problem in caught.value.problems]


def find(page: Page, name: str) -> list[nodes.Node]:
    return [n for n in nodes.walk(page.blocks) if nodes.has_class(n, name)]


def by_id(page: Page, ident: str) -> nodes.Node:
    found = [
        node
        for node in nodes.walk(page.blocks)
        if node["t"] in ("Div", "Header")
        and node["c"][1 if node["t"] == "Header" else 0][0] == ident
    ]
    assert len(found) == 1, f"{ident}: {len(found)} nodes"
    return found[0]


# Numbers


def test_page_numbers(pages: list[Page]) -> None:
    assert [page.number for page in pages] == ["", "1", "2", "A"]
    assert [page.part for page in pages] == ["", "Part 0 — First things"] + [
        "Part 0 — First things",
        "Appendices",
    ]


def test_heading_numbers(sample: Page) -> None:
    numbers = {ident: number for _, ident, number, _ in sample.outline}
    assert numbers["sec-sample"] == "1"
    assert numbers["sec-kernel"] == "1.2"
    assert numbers["sec-third"] == "1.2.1"
    assert numbers["a-fourth-level"] == ""  # below number-depth
    assert numbers["sec-boxes"] == "1.3"
    assert numbers["references"] == ""


def test_headings_in_boxes_do_not_count(sample: Page) -> None:
    names = [nodes.plain_text(inlines) for *_, inlines in sample.outline]
    assert "A heading that does not count" not in names
    assert "With a GPU" not in names


def test_unnumbered_page_has_no_numbers(pages: list[Page]) -> None:
    assert [number for _, _, number, _ in pages[0].outline] == ["", ""]


def test_float_numbers(sample: Page) -> None:
    numbers = {
        node["c"][0][0]: nodes.value(node["c"][0], "number")
        for node in find(sample, "float")
    }
    assert numbers == {
        "tbl-lanes": "1.1",
        "fig-trace": "1.1",
        "lst-loop": "1.1",
        "lst-ptx": "1.2",
        "tbl-trace": "1.2",
        "fig-file": "1.2",
        "fig-pair": "1.3",
    }


def test_numbers_follow_the_chapter(pages: list[Page]) -> None:
    (equation,) = find(pages[2], "equation")
    assert equation["c"][0] == ["eq-online", ["equation"], [["number", "2.1"]]]
    assert nodes.value(by_id(pages[3], "tbl-wide")["c"][0], "number") == "A.1"


# References


def reference(page: Page, ident: str) -> list[str]:
    return [
        nodes.plain_text(node["c"][1])
        for node in nodes.walk(page.blocks)
        if node["t"] == "Link" and node["c"][2][0] == f"ref:{ident}"
    ]


def test_reference_texts(sample: Page, pages: list[Page]) -> None:
    assert reference(sample, "fig-trace") == [
        "Figure\u00a01.1",  # in the footnote
        "Figure\u00a01.1",
        "1.1",
        "Drawing\u00a01.1",
        "Figure\u00a01.1",
    ]
    assert reference(sample, "fig-right") == ["Figure\u00a01.3 (b)"]
    assert reference(sample, "sec-third") == ["Section\u00a01.2.1"]
    assert reference(sample, "sec-other") == ["Chapter\u00a02"]
    assert reference(sample, "sec-extras") == ["Appendix\u00a0A"]
    assert reference(pages[2], "eq-online") == ["Equation\u00a02.1"]


def test_reference_in_a_caption(sample: Page) -> None:
    caption = by_id(sample, "fig-trace")["c"][1][-1]
    assert caption["c"][0][1] == ["float-caption"]
    assert "as Table\u00a01.1 has them" in nodes.plain_text(caption)


def test_links_are_from_the_root(pages: list[Page]) -> None:
    links = [n["c"][2][0] for n in nodes.walk(pages[2].blocks) if n["t"] == "Link"]
    assert "book/01-sample.qmd#sec-hand" in links


def test_citations(sample: Page) -> None:
    refs = by_id(sample, "refs")
    assert refs["c"][0][1] == ["references"]
    assert [entry["c"][0][0] for entry in refs["c"][1]] == [
        "ref-knuth1997",
        "ref-lamport1978",
    ]
    assert sample.blocks[-1] is refs
    assert sample.blocks[-2]["c"][1] == ["references", ["unnumbered"], []]
    assert not [n for n in nodes.walk(sample.blocks) if n["t"] == "Cite"]


# Cells


def test_tangled_cell(sample: Page) -> None:
    cell = by_id(sample, "reverse-kernel")
    source = sample.woven.chapter.text.split("\n")
    pairs = dict(cell["c"][0][2])
    assert cell["c"][0][1] == ["cell", "tangled"]
    assert pairs["module"] == "generated/sample.py"
    assert source[int(pairs["line"]) - 1] == "```{python}"
    code = cell["c"][1][0]
    assert code["c"][0][1] == ["python", "cell-code"]
    assert source[int(nodes.value(code["c"][0], "line")) - 1] == "import torch"
    assert code["c"][1].startswith("import torch\nimport triton\n")
    assert "#|" not in code["c"][1]


def test_outputs(sample: Page) -> None:
    kinds = [out["c"][0][1][1] for out in by_id(sample, "by-hand")["c"][1][1:]]
    assert kinds == ["cell-output-stdout", "cell-output-display"]
    stdout = by_id(sample, "by-hand")["c"][1][1]["c"][1][0]
    assert stdout["c"][1] == "three lines\nof text\nand <html> & more"


def test_colors_of_a_terminal_are_dropped(sample: Page) -> None:
    (error,) = find(sample, "cell-output-error")
    assert error["c"][1][0]["c"][1].endswith("\nZeroDivisionError: division by zero")


def test_echo_and_fold(sample: Page) -> None:
    assert not [n for n in nodes.walk(by_id(sample, "setup")) if n["t"] == "CodeBlock"]
    code = by_id(sample, "warned")["c"][1][0]
    assert nodes.value(code["c"][0], "fold") == "hide"
    assert nodes.value(code["c"][0], "summary") == "How it warns"


def test_status(sample: Page) -> None:
    said = {
        label: nodes.value(by_id(sample, label)["c"][0], "status")
        for label in ("h200", "h200-missing", "h200-stale", "not-run", "by-hand")
    }
    states = ["captured", "missing", "stale", "not-evaluated", "run"]
    assert list(said.values()) == states


def test_figure_cell(sample: Page) -> None:
    figure = by_id(sample, "fig-trace")
    image = next(n for n in nodes.walk(figure) if n["t"] == "Image")
    assert image["c"][2][0] == "01-sample/fig-trace-1.svg"
    assert nodes.plain_text(image["c"][1]).startswith("Ten cells in three colors")
    cells = [n for n in find(sample, "cell") if figure in n["c"][1]]
    assert cells[0]["c"][0][0] == ""  # the float has the label


def test_callouts_and_tabs(sample: Page) -> None:
    titles = [
        (node["c"][0][1][1], nodes.plain_text(node["c"][1][0]).strip())
        for node in find(sample, "callout")
    ]
    assert titles == [
        ("callout-note", "What you will be able to do"),
        ("callout-warning", "Trap: the alias"),
        ("callout-tip", "Exercise"),
        ("callout-important", "Important"),
        ("callout-caution", "Titled by its heading"),
    ]
    (tabset,) = find(sample, "tabset")
    names = [nodes.plain_text(tab["c"][1][0]).strip() for tab in tabset["c"][1]]
    assert names == ["With a GPU", "Without one"]


def test_code_in_a_callout_title(sample: Page) -> None:
    trap = find(sample, "callout-warning")[0]["c"][1][0]
    assert [n["c"][1] for n in nodes.walk(trap) if n["t"] == "Code"] == ["alias"]


def test_subfigures(sample: Page) -> None:
    letters = [
        (node["c"][0][0], nodes.value(node["c"][0], "number"))
        for node in find(sample, "subfloat")
    ]
    assert letters == [("fig-left", "a"), ("fig-right", "b")]


def test_options_hide(write: Callable[..., Path]) -> None:
    root = write(
        "# One {#sec-one}\n\n"
        + CELL.format("a", "#| include: false\nprint(1)")
        + CELL.format("b", "#| output: false\nprint(2)")
        + CELL.format("c", "#| warning: false\nprint(3)")
        + CELL.format("d", "#| output: asis\n#| echo: false\nprint(4)")
    )
    said = [{"output_type": "stream", "name": "stderr", "text": "### out\n"}]
    asis = [{"output_type": "stream", "name": "stdout", "text": "## Made\n"}]
    book = tangle.read_book(root)
    wovens = [unexecuted(chapter) for chapter in book.chapters]
    for part in wovens[1].parts:
        if isinstance(part, CodeCell):
            part.outputs = asis if part.cell.label == "d" else said
    page = load_pages(wovens, book, read_config(root), root / "assets")[1]
    text = nodes.plain_text(page.blocks)
    assert "print(1)" not in text and "print(2)" in text and "print(3)" in text
    assert "out" not in text
    made = [nodes.plain_text(i) for _, _, n, i in page.outline if n == "1.1"]
    assert made == ["Made"]


def test_code_does_not_pass_through_markdown(write: Callable[..., Path]) -> None:
    code = f'x = """\n{":" * 44}\n~~~\n$$\n<!--\n"""'
    root = write("# One {#sec-one}\n\n" + CELL.format("a", code) + "\nAfter.\n")
    page = load(root)[1]
    shown = [n["c"][1] for n in nodes.walk(page.blocks) if n["t"] == "CodeBlock"]
    assert shown == [code]
    assert page.blocks[-1]["t"] == "Para"


def test_png_has_its_shown_width(write: Callable[..., Path]) -> None:
    root = write("# One {#sec-one}\n\n" + CELL.format("a", '#| fig-alt: "A"\nplot()'))
    output = {
        "output_type": "display_data",
        "data": {"image/png": png(), "text/plain": "<Figure>"},
        "metadata": {"image/png": {"width": 320, "height": 200}},
    }
    book = tangle.read_book(root)
    wovens = [unexecuted(chapter) for chapter in book.chapters]
    next(p for p in wovens[1].parts if isinstance(p, CodeCell)).outputs = [output]
    page = load_pages(wovens, book, read_config(root), root / "assets")[1]
    image = next(n for n in nodes.walk(page.blocks) if n["t"] == "Image")
    assert image["c"][0][2] == [["width", "320px"]]
    assert (root / "assets" / image["c"][2][0]).read_bytes().startswith(b"\x89PNG")


# Faults


def test_every_unresolved_reference_with_its_line(write: Callable[..., Path]) -> None:
    root = write(
        "# One {#sec-one}\n\n"
        "Text `@fig-code` and\n@fig-none, [@tbl-none].\n\n"
        "```text\n@fig-shown\n```\n\n"
        "Again @fig-none and \\@fig-escaped; mail a@fig-mail.org.\n\n"
        '::: {.callout-note title="See @eq-none"}\nText @lst-none.\n:::\n\n'
        '![A caption with @sec-none.](x.svg){fig-alt="x"}\n\n'
        + CELL.format("fig-a", '#| fig-cap: "As @fig-none."\n#| fig-alt: "A"\nf()')
    )
    (root / "book" / "x.svg").write_text("<svg/>")
    said = faults(root)
    short = [line.split(":")[1] + line.split("got ")[1].split(",")[0] for line in said]
    assert short == [
        "4@fig-none",
        "4@tbl-none",
        "10@fig-none",
        "12@eq-none",
        "13@lst-none",
        "16@sec-none",
        "20@fig-none",
    ]
    assert said[0].startswith("book/01-one.qmd:4: got @fig-none, which is not defined")


def test_near_label_is_offered(write: Callable[..., Path]) -> None:
    root = write("# One {#sec-one}\n\n## Two {#sec-kernel}\n\nSee @sec-kernal.\n")
    assert "did you mean @sec-kernel?" in faults(root)[0]


def test_unnumbered_section_is_linked_by_path(write: Callable[..., Path]) -> None:
    root = write("# One {#sec-one}\n\nSee @sec-p.\n")
    (said,) = faults(root)
    assert "index.qmd has it without a number: link to it by path" in said


def test_broken_links(write: Callable[..., Path]) -> None:
    root = write(
        "# One {#sec-one}\n\n"
        "[a](02-two.qmd), [b](../index.qmd#sec-q),\n"
        "[c](#sec-on) and [d](../tangle.py).\n\n"
        "[good](../index.qmd#sec-p), [good](#sec-one), [good](https://example.org).\n"
    )
    said = faults(root)
    assert [line.split(": ")[0] for line in said] == [
        "book/01-one.qmd:3",
        "book/01-one.qmd:3",
        "book/01-one.qmd:4",
        "book/01-one.qmd:4",
    ]
    assert "no page of the book" in said[0] + said[1]
    assert "did you mean #sec-p?" in said[0] + said[1]


def test_missing_citation(write: Callable[..., Path]) -> None:
    root = write("# One {#sec-one}\n\nText\n[@unknown; @known].\n")
    (said,) = faults(root)
    assert said.startswith("book/01-one.qmd:4: got the citation @unknown")


def test_image_faults(write: Callable[..., Path]) -> None:
    root = write(
        "# One {#sec-one}\n\n![](x.svg)\n\n![Cap](none.svg)\n\n"
        "![Far](https://example.org/x.png)\n\n" + CELL.format("a", "f()")
    )
    (root / "book" / "x.svg").write_text("<svg/>")
    picture = {"output_type": "display_data", "data": {"image/png": png()}}
    said = faults(root, a=[picture])
    assert [line.split(": ")[0] for line in said] == [
        f"book/01-one.qmd:{n}" for n in (3, 5, 7, 9)
    ]
    assert "fig-alt" in said[0] and "is not there" in said[1]
    assert "loads nothing from elsewhere" in said[2] and "#| fig-alt:" in said[3]


def test_number_on_an_unnumbered_page(write: Callable[..., Path]) -> None:
    table = "| a |\n|---|\n| 1 |\n\n: Cap {#tbl-a}\n"
    root = write("# One {#sec-one .unnumbered}\n\n" + table)
    (said,) = faults(root)
    assert said.startswith("book/01-one.qmd:7: got the numbered table tbl-a")


def test_label_twice(write: Callable[..., Path]) -> None:
    root = write(
        "# One {#sec-one}\n\n## A {#sec-a}\n\n## B {#sec-a}\n",
        **{"book/02-two.qmd": "# Two {#sec-two}\n\n\n## C {#sec-a}\n"},
    )
    said = faults(root)
    assert said[0].startswith("book/01-one.qmd:5: got the label sec-a twice")
    assert said[1].startswith("book/02-two.qmd:4: got the label sec-a, which book/01")


def test_output_that_swallows_the_next_cell(write: Callable[..., Path]) -> None:
    cells = CELL.format("a", "f()") + CELL.format("b", "g()")
    root = write("# One {#sec-one}\n\n" + cells)
    fence = {"output_type": "display_data", "data": {"text/markdown": "```"}}
    (said,) = faults(root, a=[fence], b=[fence])
    assert said.startswith("book/01-one.qmd:7: this cell was swallowed")


# Parsing once


def test_only_the_edited_chapter_is_parsed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, cache = copy_sample(tmp_path), tmp_path / "cache"
    before = load(root, cache)
    parsed: list[str] = []
    original = pandoc.parse
    monkeypatch.setattr(pandoc, "parse", lambda t: parsed.append(t) or original(t))
    same = load(root, cache)
    assert not parsed
    assert [page.key for page in same] == [page.key for page in before]
    assert same[1].blocks == before[1].blocks
    path = root / "book" / "02-other.qmd"
    path.write_text(path.read_text().replace("one pass", "a single pass"))
    after = load(root, cache)
    assert len(parsed) == 1 and "a single pass" in parsed[0]
    assert [a.key == b.key for a, b in zip(after, before, strict=True)] == [
        True,
        True,
        False,
        True,
    ]


def test_a_new_number_changes_the_pages_that_refer_to_it(tmp_path: Path) -> None:
    root, cache = copy_sample(tmp_path), tmp_path / "cache"
    before = load(root, cache)
    path = root / "book" / "01-sample.qmd"
    head, tail = path.read_text().split("## By hand", 1)
    first = '![A.](figures/blocks.svg){#fig-first fig-alt="a"}\n\n'
    path.write_text(f"{head}{first}## By hand{tail}")
    after = load(root, cache)
    assert reference(after[2], "fig-trace") == ["Figure\u00a01.2"]
    assert after[2].key != before[2].key
    assert after[3].key == before[3].key


@pytest.mark.parametrize("kind", ["tree", "facts"])
def test_damaged_cache_is_made_again(tmp_path: Path, kind: str) -> None:
    root, cache = copy_sample(tmp_path), tmp_path / "cache"
    before = load(root, cache)[1].blocks
    assert before
    for path in cache.glob(f"*.{kind}"):
        path.write_bytes(path.read_bytes()[:-7])
    assert load(root, cache)[1].blocks == before


def test_part_of_the_book(tmp_path: Path) -> None:
    root = copy_sample(tmp_path)
    book = tangle.read_book(root)
    only = [woven for woven in weave(book) if woven.chapter.name == "other"]
    pages = load_pages(only, book, read_config(root), root / "assets")
    assert [page.partial for page in pages] == [True, True, False, True]
    assert reference(pages[2], "fig-trace") == ["Figure\u00a01.1"]


def test_locator_knows_prose_from_code() -> None:
    text = "---\na: '@fig-a'\n---\n@fig-a `@fig-a`\n~~~\n@fig-a\n~~~\n"
    text += "<!-- @fig-a\n-->\n"
    chapter = tangle.Chapter(Path("x.qmd"), "x.qmd", text, (), "x")
    assert Locator(chapter).citation("fig-a") == [4]
