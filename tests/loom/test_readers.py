"""What the scanner takes for a chapter's cells, jupytext and Quarto do too."""

from __future__ import annotations

import re
from pathlib import Path

import jupytext
import pytest
from hypothesis import given

import tangle
from tests.loom import chapters
from tests.loom.chapters import ROOT, cell
from tests.loom.test_tangle_bijection import many, sound


def jupytext_cells(text: str) -> list[str]:
    """The sources of the Python cells, as a notebook gets them."""
    form = {"extension": ".Rmd", "comment_magics": False}
    notebook = jupytext.reads(text, fmt=form)
    return [
        cell.source
        for cell in notebook.cells
        if cell.cell_type == "code"
        and cell.metadata.get("language", "python") == "python"
    ]


def quarto_cells(text: str) -> list[tuple[int, int]]:
    """The fences of the cells that Quarto runs: it knows no blocks and no comments."""
    begin = re.compile(r"^(\s*)(```+)\s*\{python( *[ ,].*)?\}\s*$")
    found, first, mark = [], 0, ""
    for n, line in enumerate(text.split("\n"), 1):
        if opened := begin.match(line):
            first, mark = n, opened[1] + opened[2]
        elif first and line.rstrip() == mark:
            found.append((first, n))
            first = 0
    return found


def same_cells(text: str, cells: list[tangle.Cell]) -> None:
    assert [(cell.first, cell.last) for cell in cells] == quarto_cells(text)
    # jupytext cuts lines where str.splitlines does.
    sources = ["\n".join("\n".join(cell.lines).splitlines()) for cell in cells]
    got = jupytext_cells(text)
    assert [source.rstrip("\n") for source in got] == [s.rstrip("\n") for s in sources]


@pytest.mark.parametrize("path", sorted(ROOT.glob("book/*.qmd")) + [ROOT / "index.qmd"])
def test_readers_agree_on_the_book(path: Path) -> None:
    chapter = tangle.read_chapter(path, path.relative_to(ROOT).as_posix())
    assert chapter.cells
    same_cells(chapter.text, list(chapter.cells))
    lines = chapter.text.split("\n")
    for found in chapter.cells:
        assert (
            lines[found.first - 1] == "```{python}" and lines[found.last - 1] == "```"
        )
        assert list(found.lines) == lines[found.first : found.last - 1]
        code = found.code.split("\n")
        assert code == lines[found.code_line - 1 : found.last - 1] or not found.code


@many
@given(chapters.texts())
def test_readers_agree_on_generated_chapters(text: str) -> None:
    scan = sound(text)
    if scan is not None:
        same_cells(text, scan.cells)


@pytest.mark.parametrize("before", [
    "````\nx\n````\n",
    "```inline``` x\n",
    "```text\nx\n````\n",
    "~~~\n```\n~~~\n",
    "<!-- #region -->\n",
    cell('s = """', label="b", tangled=False),
    cell("'''\\\\'''  + '''", label="b", tangled=False),
    "~~~\n```{bash}\nls\n```\n~~~\n",
    "a\u2028```text\n",
])  # fmt: skip
def test_where_jupytext_loses_a_cell_the_scanner_refuses(before: str) -> None:
    """These checks of the scanner are needed: without them a cell is lost or new."""
    text = before + cell("x = 1")
    scan = tangle.Scanner("x.qmd", text)
    assert scan.problems
    assert len(jupytext_cells(text)) != 1 + before.count("```{python}")


def test_options_reach_a_notebook_as_they_stand() -> None:
    text = cell("%time x", "!ls", "# cd x", tangled=False)
    assert jupytext_cells(text) == ["#| label: a\n%time x\n!ls\n# cd x"]
