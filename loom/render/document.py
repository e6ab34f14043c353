"""The resolved book: what the HTML and the Typst writer are handed.

`load_pages` reads executed chapters through pandoc and gives one `Page` each, whose
`blocks` are pandoc's JSON syntax tree as plain dictionaries (`{"t": …, "c": …}`),
structured as follows. "Attr" is pandoc's `[id, [class, …], [[key, value], …]]`.

- `Header`: numbered ones have the attribute `number` ("1", "1.2", "A.1"); others have
  the class `unnumbered`. The page's title is its one Header of level 1.
- Cell: `Div(label, ["cell"(, "tangled")], path line status (module))` holding
  - a `CodeBlock("", ["python", "cell-code"], line fold summary)` where it is echoed:
    `line` is the chapter line of its first code line, `fold` "show", "hide" or "";
  - `Div("", ["cell-output", "cell-output-stdout"|"-stderr"|"-display"|"-error"])`
    holding a `CodeBlock` (text), a `Para[Image]`, or markdown blocks.
  A cell whose outputs are a float has no id; the float has it.
- Float: `Div(id, ["float", "float-fig"|"float-tbl"|"float-lst"], number kind)`:
  content, and last a `Div("", ["float-caption"])` with one `Plain`. A captioned
  figure, table or listing without a label is a float without id and without `number`.
  `Div("", ["layout"], ncol)` lays its blocks out in columns, and
  `Div(id, ["subfloat"], number)` is a part of a float, numbered "a", "b", …, with a
  `float-caption` as last block.
- Equation: `Div(id, ["equation"], number)` with `Para[Math DisplayMath]`.
- Callout: `Div(id, ["callout", "callout-note"|"-tip"|"-warning"|"-caution"|
  "-important"], collapse)` of `Div("", ["callout-title"])` and
  `Div("", ["callout-body"])`.
- Tabset: `Div("", ["tabset"])` of `Div(id, ["tab"])`, each of `Div("", ["tab-title"])`
  and `Div("", ["tab-body"])`.
- Cross-reference: `Link(["", ["ref"], [["ref", "fig-x"]]], inlines,
  ["ref:fig-x", ""])`; `targets["fig-x"]` says which page has it.
- `Link` to a page: its path from the book's root, "book/01-jit.qmd#anchor"; to the same
  page: "#anchor"; to the book's PDF: the PDF's file name.
- `Image`: its file below the assets folder; the inlines are its alternative text.
- Citation: `Span("", ["citation"])`; the list of references is `Div("refs",
  ["references"])` below an unnumbered Header.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import marshal
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from posixpath import normpath
from typing import Any

from loom.render import nodes, pandoc, search
from loom.render import parse as parsing
from loom.render.config import Config, Entry
from loom.render.nodes import Node
from loom.render.parse import MARK, Facts
from loom.woven import CodeCell, Prose, Woven
from tangle import Book, BookError, Chapter, Problem

_MARKED = re.compile(f"{MARK}([+-])([^{MARK}]+){MARK}")


@dataclass(frozen=True)
class Target:
    """Where a label is, and how it is referred to: "Figure", "1.2"."""

    page: str  # the page's .qmd
    kind: str
    number: str

    @property
    def text(self) -> str:
        return f"{self.kind}\u00a0{self.number}"


@dataclass
class Page:
    """One page of the book, its cross-references resolved."""

    woven: Woven
    entry: Entry
    number: str  # "1", "A", or "" for an unnumbered page
    facts: Facts
    targets: dict[str, Target]  # of the whole book
    key: str  # changes exactly when the resolved tree or a file it shows does
    partial: bool = False  # not executed in this run: known by its labels only
    tree: list[Node] = field(default_factory=list, repr=False)
    load: Any = field(default=None, repr=False)

    @property
    def rel(self) -> str:
        return self.entry.rel

    @property
    def part(self) -> str:
        return self.entry.part

    @property
    def kind(self) -> str:
        return self.entry.kind

    @property
    def meta(self) -> dict[str, Any]:
        return self.woven.meta

    @property
    def html(self) -> str:
        return self.rel.removesuffix(".qmd") + ".html"

    @property
    def title(self) -> str:
        return self.facts.title

    @property
    def title_inlines(self) -> list[Node]:
        return self.facts.title_inlines

    @property
    def label(self) -> str:
        """The title with its number: "1 Types and the JIT boundary"."""
        return f"{self.number} {self.title}" if self.number else self.title

    @property
    def outline(self) -> list[tuple[int, str, str, list[Node]]]:
        """The headings: level, id, full number or "", inlines."""
        return [
            (level, ident, _joined(self.number, number) if shown else "", inlines)
            for level, ident, number, shown, inlines in self.facts.headings
        ]

    @property
    def sections(self) -> list[dict[str, str]]:
        """What is searched: see `search.sections`."""
        return [
            {
                **{k: self.words(v) for k, v in section.items()},
                "number": self._section_number(section),
            }
            for section in self.facts.sections
        ]

    def _section_number(self, section: dict[str, str]) -> str:
        # The chapter's own part of the number is not known when it is parsed.
        return _joined(self.number, section["number"]) if section["number"] else ""

    def words(self, text: str) -> str:
        """`text` with the marks of cross-references replaced."""

        def replace(match: re.Match[str]) -> str:
            target = self.targets.get(match[2])
            if target is None:
                return match[2]
            return target.number if match[1] == "-" else target.text

        return _MARKED.sub(replace, text)

    @cached_property
    def blocks(self) -> list[Node]:
        """The resolved tree."""
        tree = self.tree if self.load is None else self.load()
        resolved: list[Node] = nodes.rewrite(tree, self._resolve)
        return resolved

    def _resolve(self, node: Node) -> list[Node] | None:
        kind = node["t"]
        if kind == "Str" and MARK in node["c"]:
            return [nodes.string(self.words(node["c"]))]
        if kind == "Header":
            level, (ident, classes, pairs), inlines = node["c"]
            pairs = [
                [k, _joined(self.number, v) if k == "number" else v] for k, v in pairs
            ]
            inlines = nodes.rewrite(inlines, self._resolve)
            return [{"t": "Header", "c": [level, [ident, classes, pairs], inlines]}]
        if kind == "Div" and ("equation" in node["c"][0][1] or _is_float(node)):
            (ident, classes, pairs), blocks = node["c"]
            pairs = [
                [k, _joined(self.number, v) if k == "number" else v] for k, v in pairs
            ]
            blocks = nodes.rewrite(blocks, self._resolve)
            return [nodes.div([ident, classes, pairs], blocks)]
        return None


def _is_float(node: Node) -> bool:
    return "float" in node["c"][0][1]


def _joined(page: str, number: str) -> str:
    """A number inside a chapter, with the chapter's before it."""
    return ".".join(part for part in (page, number) if part)


def load_pages(
    wovens: Iterable[Woven],
    book: Book,
    config: Config,
    assets: Path,
    cache: Path | None = None,
) -> list[Page]:
    """Every page of the book, in page order, and its images in `assets`.

    Chapters of `book` that are not in `wovens` become pages with `partial` set.
    `cache` is a folder for parsed trees. Raises BookError with every problem.
    """
    executed = {woven.chapter.rel: woven for woven in wovens}
    chapters = {chapter.rel: chapter for chapter in book.chapters}
    problems: list[Problem] = []
    entries: list[tuple[Entry, Woven]] = []
    for entry in config.pages:
        if entry.rel in executed:
            entries.append((entry, executed[entry.rel]))
        elif entry.rel in chapters:
            entries.append((entry, unexecuted(chapters[entry.rel])))
        else:
            message = f"got no chapter {entry.rel}, which this file lists"
            problems.append(Problem("_quarto.yml", 1, message))
    store = Store(cache, config)
    # pandoc runs in processes of its own, so threads are enough.
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        parsed = list(pool.map(lambda pair: store.parsed(pair[1]), entries))
    pages = _numbered(entries, parsed, executed)
    targets = _targets(pages, problems)
    for page in pages:
        page.targets.update(targets)
    problems += _problems(pages, config)
    if problems:
        order = {page.rel: n for n, page in enumerate(pages)}
        problems.sort(key=lambda p: (order.get(p.path, -1), p.line))
        raise BookError(list(dict.fromkeys(problems)))
    for page in pages:
        if not page.partial:
            write_images(page, config, assets)
        page.key = _key(page, config)
    return pages


def unexecuted(chapter: Chapter) -> Woven:
    """A chapter that was not executed: its prose, and cells without outputs."""
    import yaml

    lines = chapter.text.split("\n")
    start = 0
    if lines and lines[0].strip() == "---":
        end = (n for n, line in enumerate(lines[1:], 1) if line.strip() == "---")
        start = next(end, -1) + 1
    parts: list[Prose | CodeCell] = []
    for cell in chapter.cells:
        parts.append(Prose("\n".join(lines[start : cell.first - 1]), start + 1))
        options = {}
        for key, text in cell.options.items():
            try:
                options[key] = yaml.safe_load(text)
            except yaml.YAMLError:
                options[key] = text
        parts.append(CodeCell(cell, options, [], "not-evaluated"))
        start = cell.last
    parts.append(Prose("\n".join(lines[start:]), start + 1))
    return Woven(chapter, {}, parts)


class Store:
    """Parsed chapters, kept in a folder by a hash of all that they are made from."""

    def __init__(self, folder: Path | None, config: Config) -> None:
        self.folder = folder
        self.config = config
        digest = hashlib.sha256(repr((sys.version, pandoc.version())).encode())
        for name in ("nodes", "parse", "pandoc", "lines", "search", "document"):
            digest.update(Path(__file__).with_name(f"{name}.py").read_bytes())
        for path in config.bibliography:
            digest.update(path.read_bytes() if path.is_file() else b"")
        settings = [config.execute, config.number_depth, config.pdf_name]
        digest.update(repr(settings).encode())
        self.seed = digest.digest()

    def key(self, woven: Woven) -> str:
        digest = hashlib.sha256(self.seed)
        chapter = woven.chapter
        digest.update(repr((chapter.rel, chapter.text, woven.meta)).encode())
        for part in woven.parts:
            if isinstance(part, Prose):
                digest.update(repr((part.text, part.line)).encode())
            else:
                outputs = json.dumps(part.outputs, sort_keys=True, default=str)
                cell = (part.cell.label, part.cell.first, part.cell.lines)
                digest.update(repr((cell, part.options, part.status)).encode())
                digest.update(outputs.encode())
        return digest.hexdigest()[:32]

    def parsed(self, woven: Woven) -> tuple[str, Facts, Any]:
        """The chapter's key, its facts, and a function that gives its tree."""
        key = self.key(woven)
        facts = self._read(f"{key}.facts")
        if facts is not None:
            return key, Facts(**facts), lambda: self._tree(key, woven)
        try:
            tree, made = parsing.parse(woven, self.config)
        except pandoc.PandocError as error:
            made, tree = Facts(problems=[[1, f"pandoc: {error}"]]), []
        made.sections = search.sections(tree)
        if self.folder is not None and not made.problems:
            self._write(f"{key}.tree", tree)
            self._write(f"{key}.facts", made.as_dict())
        return key, made, lambda: tree

    def _tree(self, key: str, woven: Woven) -> list[Node]:
        kept: list[Node] | None = self._read(f"{key}.tree")
        return parsing.parse(woven, self.config)[0] if kept is None else kept

    def _read(self, name: str) -> Any:
        if self.folder is None:
            return None
        try:
            content = marshal.loads((self.folder / name).read_bytes())
            os.utime(self.folder / name)
        except (OSError, ValueError, EOFError, TypeError):
            return None
        return content

    def _write(self, name: str, content: Any) -> None:
        assert self.folder is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        write_changed(self.folder / name, marshal.dumps(content))


def write_changed(path: Path, content: bytes) -> bool:
    """Writes `content` to `path` unless it is there already; True if it wrote.

    The file is never seen half-written.
    """
    try:
        if path.stat().st_size == len(content) and path.read_bytes() == content:
            return False
    except OSError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return True


def forget_unused(cache: Path, days: float = 7) -> None:
    """Removes what no run has read for some days."""
    edge = time.time() - days * 86400
    for path in cache.iterdir() if cache.is_dir() else ():
        if path.is_file() and path.stat().st_mtime < edge:
            path.unlink(missing_ok=True)


def write_images(page: Page, config: Config, assets: Path) -> None:
    """The page's images, from outputs and from the repository, below `assets`."""
    for name, content in parsing.images(page.woven, config):
        write_changed(assets / name, content)
    for rel, asset, _ in page.facts.images:
        write_changed(assets / asset, (config.root / rel).read_bytes())


def _numbered(
    entries: list[tuple[Entry, Woven]],
    parsed: list[tuple[str, Facts, Any]],
    executed: dict[str, Woven],
) -> list[Page]:
    pages: list[Page] = []
    chapters = appendices = 0
    shared: dict[str, Target] = {}
    for (entry, woven), (key, facts, load) in zip(entries, parsed, strict=True):
        number = ""
        if facts.numbered and entry.kind == "appendix":
            number = chr(ord("A") + appendices)
            appendices += 1
        elif facts.numbered:
            chapters += 1
            number = str(chapters)
        partial = entry.rel not in executed
        page = Page(woven, entry, number, facts, shared, key, partial, load=load)
        pages.append(page)
    return pages


def _targets(pages: list[Page], problems: list[Problem]) -> dict[str, Target]:
    targets: dict[str, Target] = {}
    for page in pages:
        for ident, (kind, number, letter) in page.facts.labels.items():
            if kind == "Chapter" and page.kind == "appendix":
                kind = "Appendix"
            full = _joined(page.number, number) + (f" ({letter})" if letter else "")
            if ident in targets:
                other = targets[ident].page
                line = _label_line(page, ident)
                message = f"got the label {ident}, which {other} has already"
                problems.append(Problem(page.rel, line, message))
            targets[ident] = Target(page.rel, kind, full)
    return targets


def _label_line(page: Page, ident: str) -> int:
    pattern = re.compile(rf"#{re.escape(ident)}\b|label: *{re.escape(ident)}\b")
    for number, line in enumerate(page.woven.chapter.text.split("\n"), 1):
        if pattern.search(line):
            return number
    return 1


def _problems(pages: list[Page], config: Config) -> list[Problem]:
    """What is wrong in the chapters and between them."""
    found: list[Problem] = []
    by_rel = {page.rel: page for page in pages}
    for page in pages:
        if not page.partial:
            found += [Problem(page.rel, n, text) for n, text in page.facts.problems]
        found += _unresolved(page, by_rel)
        for rel, anchor, line in page.facts.links:
            message = _broken(rel, anchor, by_rel)
            if message:
                found.append(Problem(page.rel, line, message))
        for rel, _, line in page.facts.images:
            if not (config.root / rel).is_file():
                found.append(Problem(page.rel, line, f"image {rel} is not there"))
    return found


def _unresolved(page: Page, by_rel: dict[str, Page]) -> list[Problem]:
    found = []
    for ident, lines in page.facts.refs.items():
        if ident in page.targets:
            continue
        home = next((p for p in by_rel.values() if ident in p.facts.ids), None)
        near = difflib.get_close_matches(ident, page.targets, 1, 0.7)
        if home is not None:
            accepted = f"{home.rel} has it without a number: link to it by path"
        elif near:
            accepted = f"did you mean @{near[0]}?"
        else:
            accepted = "no page of the book has this label"
        message = f"got @{ident}, which is not defined; {accepted}"
        found += [Problem(page.rel, line, message) for line in lines]
    return found


def _broken(rel: str, anchor: str, by_rel: dict[str, Page]) -> str:
    if not rel.endswith(".qmd"):
        return ""
    page = by_rel.get(rel)
    if page is None:
        near = difflib.get_close_matches(normpath(rel), by_rel, 1, 0.6)
        hint = f"; did you mean {near[0]}?" if near else ""
        return f"got a link to {rel}, which is no page of the book{hint}"
    if anchor and page.facts.ids and anchor not in page.facts.ids:
        near = difflib.get_close_matches(anchor, page.facts.ids, 1, 0.6)
        hint = f"; did you mean #{near[0]}?" if near else ""
        return f"got a link to {rel}#{anchor}, {rel} has no such anchor{hint}"
    return ""


def _key(page: Page, config: Config) -> str:
    used = {ident: page.targets[ident] for ident in sorted(page.facts.refs)}
    digest = hashlib.sha256(repr((page.key, page.number, used)).encode())
    for rel, _, _ in page.facts.images:
        digest.update((config.root / rel).read_bytes())
    return digest.hexdigest()[:32]
