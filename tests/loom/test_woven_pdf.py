"""The book's own PDF: every section is in it, nothing runs off, every link leads on."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pypdf
import pytest
from pypdf.generic import IndirectObject

import tangle
from tests.loom.test_pdf import ADVANCE, MARGINS, PAGE, Run, squeeze
from tests.loom.woven_book import ROOT, woven_book

Entry = dict[str, str]
KEYS = ("url", "number", "title", "crumb", "prose", "code")


@dataclass
class Paper:
    """The PDF and what stands on each of its pages."""

    reader: Any
    texts: list[str]
    runs: list[list[Run]]
    sections: list[Entry]  # of the HTML book, made from the same chapters


@pytest.fixture(scope="module")
def paper() -> Paper:
    folder = woven_book()
    (path,) = folder.glob("*.pdf")
    reader = pypdf.PdfReader(path)
    texts, runs = [], []
    for page in reader.pages:
        found: list[Run] = []

        def visit(
            text: str, cm: Any, tm: Any, font: Any, size: float, to: Any = found
        ) -> None:
            if text.strip() and font:
                x, y = tm[4] * cm[0] + cm[4], tm[5] * cm[3] + cm[5]
                to.append(Run(text.rstrip("\n"), x, y, font["/BaseFont"], size))

        texts.append(page.extract_text(visitor_text=visit).replace("\u00a0", " "))
        runs.append(found)
    return Paper(reader, texts, runs, _sections(folder))


def _sections(folder: Path) -> list[Entry]:
    script = (folder / "site/search-index.js").read_text(encoding="utf-8")
    entries = json.loads(script[script.index("[") : script.rindex("]") + 1])
    return [dict(zip(KEYS, entry, strict=True)) for entry in entries]


def sentences(text: str) -> list[str]:
    """Sentences long enough to be found by."""
    parts = re.split(r"(?<=[.;:?!])\s|\n", text)
    return [squeeze(part) for part in parts if len(part) >= 40]


def test_no_page_is_blank(paper: Paper) -> None:
    assert len(paper.texts) > 40
    first = paper.reader.page_labels.index("1")
    assert first % 2 == 0, "the main matter begins on a right-hand page"
    for number, runs in enumerate(paper.runs):
        if number == first - 1 and not runs:
            continue  # the left-hand page before it may be empty, wholly
        assert any(50 < run.y < PAGE[1] - 50 for run in runs), number + 1


def test_every_section_is_printed(paper: Paper) -> None:
    book = squeeze("".join(paper.texts))
    whole = found = 0
    for section in paper.sections:
        assert squeeze(section["number"] + section["title"]) in book, section["url"]
        wanted = sentences(section["prose"])
        there = sum(words in book for words in wanted)
        assert there or not wanted, (section["url"], wanted)
        whole, found = whole + len(wanted), found + there
    # The rest is cut by the end of a page, or holds a formula.
    assert found >= 0.85 * whole > 100


def test_every_cell_is_printed_line_by_line(paper: Paper) -> None:
    lines = {line.rstrip() for text in paper.texts for line in text.split("\n")}
    seen = 0
    for chapter in tangle.read_book(ROOT).chapters:
        for cell in chapter.cells:
            if cell.tangled:
                for number, line in enumerate(cell.code.split("\n"), cell.code_line):
                    place = f"{chapter.rel}:{number}"
                    assert not line.strip() or line.rstrip() in lines, place
                    seen += 1
    assert seen > 200


def test_no_code_line_runs_past_the_margin(paper: Paper) -> None:
    seen = 0
    for number, runs in enumerate(paper.runs):
        left, right = MARGINS if number % 2 == 0 else MARGINS[::-1]
        for run in runs:
            if "DejaVuSansMono" in run.font and run.size < 7.4:
                end = run.x + len(run.text) * ADVANCE * run.size
                assert left - 0.1 <= run.x, (number + 1, run)
                assert end <= PAGE[0] - right + 0.1, (number + 1, run)
                seen += 1
    assert seen > 1000


def test_everything_stays_on_the_page(paper: Paper) -> None:
    for number, runs in enumerate(paper.runs):
        for run in runs:
            assert 0 < run.x < PAGE[0] - 20, (number + 1, run)
            assert 25 < run.y < PAGE[1] - 20, (number + 1, run)


def test_every_glyph_is_there(paper: Paper) -> None:
    """Fonts are embedded, and glyph 0, which stands for a missing one, is not used."""
    fonts = 0
    for number, page in enumerate(paper.reader.pages):
        for name, font in (page["/Resources"].get("/Font") or {}).items():
            inner = font.get_object()["/DescendantFonts"][0].get_object()
            descriptor = inner["/FontDescriptor"].get_object()
            assert "/FontFile2" in descriptor or "/FontFile3" in descriptor, name
            fonts += 1
        contents = page.get_contents()
        assert contents is not None
        for operands, operator in contents.operations:
            for item in operands if operator in (b"Tj", b"TJ") else []:
                for part in item if isinstance(item, list) else [item]:
                    data = getattr(part, "original_bytes", b"")
                    pairs = {data[n : n + 2] for n in range(0, len(data), 2)}
                    assert b"\0\0" not in pairs, number + 1
    assert fonts > 100
    assert "\ufffd" not in "".join(paper.texts)


def test_every_link_leads_somewhere(paper: Paper) -> None:
    pages = {page.indirect_reference: n for n, page in enumerate(paper.reader.pages)}
    named = paper.reader.named_destinations
    inner = 0
    for number, page in enumerate(paper.reader.pages):
        annotations: Any = page.get("/Annots") or []
        for annotation in annotations:
            link: Any = annotation.get_object()
            action = link.get("/A") or {}
            if action.get("/S") == "/URI":
                assert action["/URI"].startswith("https://"), (number + 1, action)
                continue
            goal: Any = link.get("/Dest") or action.get("/D")
            if isinstance(goal, IndirectObject):
                goal = goal.get_object()
            if isinstance(goal, (str, bytes)):
                goal = named[str(goal)].dest_array
            assert goal[0] in pages, (number + 1, goal)
            inner += 1
    assert inner > 50


def test_bookmarks_name_every_section(paper: Paper) -> None:
    titles: set[str] = set()

    def collect(items: Any) -> None:
        for item in items:
            if isinstance(item, list):
                collect(item)
            else:
                titles.add(squeeze(item.title))
                assert paper.reader.get_destination_page_number(item) is not None

    collect(paper.reader.outline)
    numbered = [s for s in paper.sections if s["number"].count(".") < 3]
    for section in numbered:
        assert squeeze(section["number"] + section["title"]) in titles, section["url"]
