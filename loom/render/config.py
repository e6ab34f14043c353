"""`_quarto.yml`, as far as the embedded renderer reads it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tangle import BookError, Problem

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Entry:
    """A page of the book: its file, the part it stands in, and its kind."""

    rel: str
    part: str
    kind: str  # "chapter" | "appendix"


@dataclass(frozen=True)
class Config:
    """The book as `_quarto.yml` describes it."""

    root: Path
    title: str
    subtitle: str
    authors: tuple[str, ...]
    date: str
    description: str
    lang: str
    pages: tuple[Entry, ...]
    bibliography: tuple[Path, ...]
    pdf_name: str
    number_depth: int
    toc_depth: int
    output_dir: str = "_book"
    repo_url: str = ""
    execute: dict[str, Any] = field(default_factory=dict)
    raw: dict[str, Any] = field(default_factory=dict)

    @property
    def author(self) -> str:
        return ", ".join(self.authors)


def read_config(root: Path) -> Config:
    """Reads `_quarto.yml` under `root`.

    Raises BookError when the file is missing, is not YAML, or lacks a title
    or pages.
    """
    path = root / "_quarto.yml"
    try:
        source = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BookError(
            [Problem("_quarto.yml", 1, f"cannot be read: {error.strerror}")]
        ) from None
    try:
        raw = yaml.load(source, Loader) or {}
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        what = getattr(error, "problem", None) or "not YAML"
        raise BookError([Problem("_quarto.yml", line, what)]) from None
    book = raw.get("book") if isinstance(raw, dict) else None
    if not isinstance(book, dict) or not book.get("title"):
        raise BookError([Problem("_quarto.yml", 1, "got no book: with a title:")])
    pages, problems = _pages(book, source)
    if problems:
        raise BookError(problems)
    html = (raw.get("format") or {}).get("html") or {}
    title = str(book["title"])
    stem = str(book.get("output-file") or re.sub(r"\s+", "-", title.strip()))
    return Config(
        root=root,
        title=title,
        subtitle=str(book.get("subtitle") or ""),
        authors=_authors(book.get("author")),
        date=str(book.get("date") or ""),
        description=str(book.get("description") or book.get("subtitle") or title),
        lang=str(raw.get("lang") or "en"),
        pages=tuple(pages),
        bibliography=tuple(root / str(p) for p in _list(raw.get("bibliography"))),
        pdf_name=stem if stem.endswith(".pdf") else stem + ".pdf",
        number_depth=int(html.get("number-depth", 3)),
        toc_depth=int(html.get("toc-depth", 3)),
        output_dir=str((raw.get("project") or {}).get("output-dir") or "_book"),
        repo_url=str(book.get("repo-url") or ""),
        execute=dict(raw.get("execute") or {}),
        raw=raw,
    )


def _list(item: Any) -> list[Any]:
    if item is None:
        return []
    return item if isinstance(item, list) else [item]


def _authors(item: Any) -> tuple[str, ...]:
    return tuple(
        str(author.get("name", "")) if isinstance(author, dict) else str(author)
        for author in _list(item)
    )


def _pages(book: dict[str, Any], source: str) -> tuple[list[Entry], list[Problem]]:
    pages: list[Entry] = []
    problems: list[Problem] = []

    def add(items: Any, part: str, kind: str) -> None:
        for item in _list(items):
            if isinstance(item, dict) and "part" in item:
                add(item.get("chapters"), str(item["part"]), kind)
                continue
            rel = item.get("file") if isinstance(item, dict) else item
            if isinstance(rel, str) and rel.endswith(".qmd"):
                pages.append(Entry(rel, part, kind))
            else:
                line = _line_of(source, str(rel or item))
                message = f"got {item!r} as a page, accepted is a .qmd file or a part"
                problems.append(Problem("_quarto.yml", line, message))

    add(book.get("chapters"), "", "chapter")
    add(book.get("appendices"), "Appendices", "appendix")
    if not pages and not problems:
        problems.append(Problem("_quarto.yml", 1, "got no pages in book: chapters:"))
    return pages, problems


def _line_of(source: str, words: str) -> int:
    for number, line in enumerate(source.split("\n"), 1):
        if words in line:
            return number
    return 1
