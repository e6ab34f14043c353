"""A chapter in parts: YAML header, prose with its inline expressions, cells."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from tangle import BookError, Cell, Chapter, Problem

FENCE = re.compile(r"^\s{0,3}(`{3,}|~{3,})")
INLINE = re.compile(r"\{python\}[ \t]+(.+)", re.DOTALL)
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Inline:
    """An inline expression: its code, its line, and where it stands in its text."""

    code: str
    line: int
    start: int
    end: int


@dataclass(frozen=True)
class Text:
    """Prose between two cells; `line` is the number of its first line."""

    text: str
    line: int
    inlines: tuple[Inline, ...] = ()

    def fill(self, values: list[str]) -> str:
        """The text with each inline expression replaced by its value."""
        out, at = [], 0
        for inline, value in zip(self.inlines, values, strict=True):
            out += [self.text[at : inline.start], value]
            at = inline.end
        return "".join([*out, self.text[at:]])


@dataclass(frozen=True)
class Code:
    """A cell with its options as YAML values."""

    cell: Cell
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def runs(self) -> bool:
        return self.options.get("eval", True) is not False and bool(
            self.cell.code.strip()
        )


@dataclass(frozen=True)
class Parts:
    chapter: Chapter
    meta: dict[str, Any]
    parts: tuple[Text | Code, ...]


def split(chapter: Chapter) -> Parts:
    """The parts of a chapter; raises BookError for a header or options that are
    not YAML."""
    lines = chapter.text.split("\n")
    problems: list[Problem] = []
    start, meta = _header(lines, chapter.rel, problems)
    parts: list[Text | Code] = []

    def prose(first: int, last: int) -> None:  # indices of lines, last excluded
        text = "\n".join(lines[first:last])
        if text.strip():
            parts.append(Text(text, first + 1, tuple(find_inlines(text, first + 1))))

    for cell in chapter.cells:
        prose(start, cell.first - 1)
        parts.append(Code(cell, _options(cell, chapter.rel, problems)))
        start = cell.last
    prose(start, len(lines))
    if problems:
        raise BookError(problems)
    return Parts(chapter, meta, tuple(parts))


def _header(
    lines: list[str], rel: str, problems: list[Problem]
) -> tuple[int, dict[str, Any]]:
    """The index of the line after the YAML header, and the header's values."""
    if lines[0] != "---":
        return 0, {}
    end = next((i for i in range(1, len(lines)) if lines[i] in ("---", "...")), 0)
    if not end:
        problems.append(Problem(rel, 1, "a YAML header that is never closed; add ---"))
        return 0, {}
    meta = _yaml("\n".join(lines[1:end]), rel, 2, "the YAML header", problems)
    return end + 1, meta


def _options(cell: Cell, rel: str, problems: list[Problem]) -> dict[str, Any]:
    head = [line[2:].removeprefix(" ") for line in cell.lines]
    head = head[: cell.code_line - cell.first - 1]
    return _yaml("\n".join(head), rel, cell.first + 1, "the options", problems)


def _yaml(
    text: str, rel: str, line: int, what: str, problems: list[Problem]
) -> dict[str, Any]:
    try:
        found = yaml.load(text, Loader) or {}
    except yaml.YAMLError as fault:
        mark = getattr(fault, "problem_mark", None)
        said = getattr(fault, "problem", None) or "not YAML"
        at = line + (mark.line if mark else 0)
        problems.append(Problem(rel, at, f"{what}: {said}; quote the value"))
        return {}
    if not isinstance(found, dict):
        problems.append(Problem(rel, line, f"{what}: got {found!r}; write key: value"))
        return {}
    return found


def find_inlines(text: str, line: int = 1) -> list[Inline]:
    """The inline expressions of a text; those in fences and code spans are shown,
    not run."""
    found: list[Inline] = []
    for start, block in _paragraphs(text):
        for opens, closes, ticks in _spans(block):
            match = INLINE.fullmatch(block[opens + ticks : closes - ticks])
            if match and ticks == 1:
                at = line + text.count("\n", 0, start + opens)
                code = " ".join(match[1].split("\n")).strip()
                found.append(Inline(code, at, start + opens, start + closes))
    return found


def _paragraphs(text: str) -> list[tuple[int, str]]:
    """Blocks of lines outside fences with their offsets; no span crosses a block."""
    blocks: list[tuple[int, str]] = []
    fence, begun, at = "", -1, 0
    for line in [*text.split("\n"), ""]:
        mark = FENCE.match(line)
        plain = not fence and not mark and line.strip()
        if plain and begun < 0:
            begun = at
        elif not plain and begun >= 0:
            blocks.append((begun, text[begun:at]))
            begun = -1
        if mark and not fence:
            fence = mark[1]
        elif fence and mark and mark[1].startswith(fence) and mark.end() == len(line):
            fence = ""
        at += len(line) + 1
    return blocks


def _spans(block: str) -> list[tuple[int, int, int]]:
    """Code spans as (start, end, number of backticks)."""
    runs = [(m.start(), m.end()) for m in re.finditer(r"`+", block)]
    spans, i = [], 0
    while i < len(runs):
        start, end = runs[i]
        if start and block[start - 1] == "\\":  # an escaped backtick opens nothing
            start += 1
        ticks = end - start
        close = next(
            (j for j in range(i + 1, len(runs)) if runs[j][1] - runs[j][0] == ticks),
            None,
        )
        if close is None or not ticks:
            i += 1
            continue
        spans.append((start, runs[close][1], ticks))
        i = close + 1
    return spans
