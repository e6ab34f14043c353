"""The lint: what both renderers can render, and what the house style asks.

`check` gives every fault of every chapter as `path:line: what; the mend`.
`python -m loom.lint` prints them; `--subset` prints the table of what a chapter
may hold. The tangler's own faults (fences, labels, option names, encodings) are
reported by `tangle.read_book` and not repeated here.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tangle
from loom import lint_code, subset
from loom.lint_prose import Page, nearest, too_wide

BEGIN = re.compile(r"^loom\.begin\(([\"'])(\w+)\1\)$", re.MULTILINE)
QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'", re.DOTALL)


def check(book: tangle.Book, config: Any = None) -> list[tangle.Problem]:
    """Every fault of the book, in page order.

    ``config`` is the content of `_quarto.yml`: a mapping, or an object that has
    one as ``raw``. Without it the settings are not checked.
    """
    problems = list(_config(book.root, getattr(config, "raw", config) or {}))
    labels: dict[str, str] = {}
    by_page: dict[str, list[tangle.Problem]] = {}
    for problem in lint_code.imports(book.chapters):
        by_page.setdefault(problem.path, []).append(problem)
    for chapter in book.chapters:
        page = Page(chapter)
        found = [*page.problems, *_cells(chapter, page)]
        found += lint_code.purity(chapter)
        found += lint_code.replayed_names(chapter)
        found += _labels(chapter, page, labels)
        found += by_page.get(chapter.rel, [])
        problems += sorted(found, key=lambda problem: problem.line)
    return problems


def _cells(chapter: tangle.Chapter, page: Page) -> Iterator[tangle.Problem]:
    """Faults of the cells of one chapter."""
    if chapter.cells:
        yield from _setup(chapter)
    for cell in chapter.cells:
        for line, message in _cell(cell, page.unnumbered):
            yield tangle.Problem(chapter.rel, line, message)


def _setup(chapter: tangle.Chapter) -> Iterator[tangle.Problem]:
    """The hidden first cell says which chapter runs."""
    cell = chapter.cells[0]
    begins = BEGIN.search(cell.code)
    mend = (
        "begin with a cell 'setup', echo: false: import loom;"
        f' loom.begin("{chapter.name}")'
    )
    if cell.label != "setup" or not begins:
        yield tangle.Problem(
            chapter.rel, cell.first, f"the first cell is '{cell.label}'; {mend}"
        )
    elif begins[2] != chapter.name:
        line = cell.code_line + cell.code[: begins.start()].count("\n")
        yield tangle.Problem(chapter.rel, line, f"loom.begin('{begins[2]}'); {mend}")
    elif cell.options.get("echo") != "false":
        yield tangle.Problem(
            chapter.rel, cell.first, f"the setup cell is shown; {mend}"
        )


def _cell(cell: tangle.Cell, unnumbered: bool) -> Iterator[tuple[int, str]]:
    yield from _columns(cell)
    options = cell.options
    at = {key: _option_line(cell, key) for key in options}
    for key, values in subset.OPTION_VALUES.items():
        if key in options and options[key] not in values:
            yield at[key], f"{key}: {options[key]}; accepted: {' '.join(values)}"
    for key in subset.TEXT_OPTIONS:
        if key in options and not QUOTED.fullmatch(options[key]):
            yield at[key], f'{key} without quotation marks; write {key}: "…"'
    if "fig-cap" in options and not options.get("fig-alt", "").strip("\"'"):
        yield at["fig-cap"], 'a figure without alternative text; add fig-alt: "…"'
    for prefix in ("fig", "tbl"):
        labelled = cell.label.startswith(f"{prefix}-")
        if labelled and f"{prefix}-cap" not in options:
            yield (
                at["label"],
                f"'{cell.label}' without a caption; add {prefix}-cap: \"…\"",
            )
        if f"{prefix}-cap" in options and not labelled:
            mend = f"write label: {prefix}-{cell.label}"
            yield (
                at[f"{prefix}-cap"],
                f"{prefix}-cap on the cell '{cell.label}'; {mend}",
            )
        if labelled and unnumbered:
            yield (
                at["label"],
                "a numbered float on an unnumbered page; label it otherwise",
            )
    yield from _listing(cell, at, unnumbered)


def _columns(cell: tangle.Cell) -> Iterator[tuple[int, str]]:
    for n, line in enumerate(cell.code.split("\n"), cell.code_line):
        if message := too_wide(line):
            yield n, message


def _listing(
    cell: tangle.Cell, at: dict[str, int], unnumbered: bool
) -> Iterator[tuple[int, str]]:
    """A numbered listing has both a label and a caption."""
    options = cell.options
    for have, want in (("lst-cap", "lst-label"), ("lst-label", "lst-cap")):
        if have in options and want not in options:
            yield at[have], f"{have} without {want}; a numbered listing has both"
    label = options.get("lst-label", "lst-")
    if not label.startswith("lst-"):
        yield at["lst-label"], f"lst-label: {label}; write lst-label: lst-name"
    if "lst-label" in options and unnumbered:
        yield (
            at["lst-label"],
            "a numbered listing on an unnumbered page; drop the label",
        )


def _option_line(cell: tangle.Cell, key: str) -> int:
    for n, line in enumerate(cell.lines, cell.first + 1):
        if line.startswith(f"#| {key}:"):
            return n
    return cell.first


def _labels(
    chapter: tangle.Chapter, page: Page, labels: dict[str, str]
) -> Iterator[tangle.Problem]:
    """A label is unique in the book, in prose and in cells alike."""
    own = {cell.label: cell.first for cell in chapter.cells}
    for name, line in page.ids.items():
        place = labels.get(name) or (name in own and f"{chapter.rel}:{own[name]}")
        if place:
            message = f"label '{name}' is already at {place}; rename one"
            yield tangle.Problem(chapter.rel, line, message)
    for name, line in [*page.ids.items(), *own.items()]:
        if name.partition("-")[0] in subset.REFERENCES:
            labels.setdefault(name, f"{chapter.rel}:{line}")


def _config(root: Path, raw: Mapping[str, Any]) -> Iterator[tangle.Problem]:
    """`_quarto.yml` holds only what both renderers read."""
    if not raw:
        return
    source = (root / "_quarto.yml").read_text(encoding="utf-8").split("\n")

    def fault(key: str, message: str) -> tangle.Problem:
        spelled = re.compile(rf"^\s*{re.escape(key)}\s*:")
        line = next((n for n, s in enumerate(source, 1) if spelled.match(s)), 1)
        return tangle.Problem("_quarto.yml", line, message)

    for section, known in subset.CONFIG_KEYS.items():
        values = raw.get(section) or {} if section else raw
        for key in values if isinstance(values, Mapping) else ():
            if key not in known:
                where = f"'{section}: {key}'" if section else f"'{key}'"
                yield fault(key, f"{where} is not read; {nearest(key, known)}")
    execute = raw.get("execute") or {}
    if execute.get("freeze", False) is not False:
        yield fault(
            "freeze", "freeze would keep outputs of changed kernels; write false"
        )
    if not (raw.get("book") or {}).get("author"):
        yield fault("book", "a book without an author fails in Typst; add author:")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m loom.lint", description=__doc__)
    parser.add_argument("--subset", action="store_true", help="print what is accepted")
    root = Path(__file__).resolve().parent.parent
    parser.add_argument("--root", type=Path, default=root, help="the book's folder")
    arguments = parser.parse_args(argv)
    if arguments.subset:
        print(subset.markdown(), end="")
        return 0
    try:
        problems = check(tangle.read_book(arguments.root))
    except tangle.BookError as error:
        problems = error.problems
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
