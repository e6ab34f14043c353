#!/usr/bin/env python3
"""Tangle the chapters of the book into the importable package ``generated``.

Line N of ``generated/x.py`` is line N of its chapter; everything that is not
tangled code stands there as a comment.  The mapping is a bijection, so the same
file carries an edit of a module back into its chapter (``--sync``).

The model is Book > Chapter > Cell > line of text.  Only the standard library is
used and nothing has to be installed.  Every fault of every chapter is reported in
one run as ``file:line: what is wrong; the mend``, and a failing run writes nothing.
"""

from __future__ import annotations

import argparse
import keyword
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Iterator, NamedTuple, Sequence

OPTIONS = frozenset(
    "label tangle capture echo eval include output error warning code-fold code-summary"
    " fig-cap fig-alt fig-width fig-height fig-subcap layout-ncol tbl-cap"
    " tbl-colwidths lst-cap lst-label".split()
)
OPEN, CLOSE = "```{python}", "```"
WIDE = re.compile(r"^(\s*)(```+)\s*\{python( *[ ,].*)?\}\s*$")  # Quarto's own
BRACED = re.compile(r"^\s*```+\s*\{")
FENCE = re.compile(r"^\s*(`{3,}|~{3,})(.*)$")
OPTION = re.compile(r"^#\| ([A-Za-z][\w.-]*):(?:\s+(.*))?$")
LABEL = re.compile(r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$")
CODING = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*[-_.a-zA-Z0-9]+")  # PEP 263
CONFLICT = re.compile(r"^(<{7}|>{7}|\|{7})( |$)|^={7}$")
MAGIC = re.compile(r"^(%%?\w|!)")
MARKS = "#%!<>|="  # how the lines begin that a tangled cell may not hold
LISTED = re.compile(r"^\s*-\s+(?:(?:href|part|file):\s*)?[\"']?([^\s\"'#]+\.qmd)\b")


class Problem(NamedTuple):
    """One fault: where it stands, what it is and how it is mended."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


class BookError(Exception):
    """Every fault found in one run, in page order."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("\n".join(map(str, problems)))


@dataclass(frozen=True)
class Cell:
    """A ```` ```{python} ```` cell; ``first`` and ``last`` are its fences (1-based)."""

    label: str
    options: dict[str, str]
    first: int
    last: int
    lines: tuple[str, ...]

    @property
    def tangled(self) -> bool:
        return self.options.get("tangle") == "true"

    @property
    def capture(self) -> str | None:
        return self.options.get("capture")

    @cached_property
    def _head(self) -> int:
        return next(
            (i for i, s in enumerate(self.lines) if not s.startswith("#|")),
            len(self.lines),
        )

    @property
    def code(self) -> str:
        return "\n".join(self.lines[self._head :])

    @property
    def code_line(self) -> int:
        return self.first + 1 + self._head


@dataclass(frozen=True)
class Chapter:
    """One ``.qmd`` file; ``rel`` is its path from the root, ``name`` its module's."""

    path: Path
    rel: str
    text: str
    cells: tuple[Cell, ...]
    name: str

    @property
    def module(self) -> str | None:
        tangled = any(cell.tangled for cell in self.cells)
        return f"generated/{self.name}.py" if tangled else None

    @cached_property
    def tangled(self) -> str:
        """The text of the module."""
        return tangle_text(self.text)


@dataclass(frozen=True)
class Book:
    """The chapters in the page order of ``_quarto.yml``."""

    root: Path
    chapters: tuple[Chapter, ...]


# ---------------------------------------------------------------- reading chapters


def module_name(rel: str) -> str:
    """``book/11-reductions.qmd`` -> ``reductions``; ``index.qmd`` -> ``__init__``."""
    if rel == "index.qmd":
        return "__init__"
    return re.sub(r"^(\d+|[a-z])-", "", Path(rel).stem).replace("-", "_")


def decode(data: bytes, rel: str, problems: list[Problem]) -> str:
    """Bytes to text; what no reader agrees on is a problem."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as fault:
        line = data.count(b"\n", 0, fault.start) + 1
        problems.append(Problem(rel, line, f"not UTF-8 ({fault.reason}); save as UTF-8"))
        return ""
    for mark, what in (
        ("\ufeff", "a byte order mark; save as UTF-8 without BOM"),
        ("\r", "a carriage return; use LF line ends (dos2unix)"),
        ("\0", "a NUL character; delete it"),
    ):
        for n, line in enumerate(text.split("\n") if mark in text else (), 1):
            if mark in line:
                problems.append(Problem(rel, n, what))
    if not text.endswith("\n"):
        last = text.count("\n") + 1
        problems.append(Problem(rel, last, "no newline at the end of the file; add one"))
    return text


def wrong_opening(line: str) -> str:
    """Why a line that opens braces behind backticks is not a cell, with the mend."""
    if not WIDE.match(line):
        return f"'{line.strip()}': only {OPEN} is a cell; show code with ```language"
    indent, ticks, rest = WIDE.match(line).groups()  # type: ignore[union-attr]
    if rest:
        return f"attributes in the braces ({rest.strip(' ,')}); use '#|' option lines"
    if indent:
        return "an indented cell (some readers miss it); start it at column 0"
    if len(ticks) > 3:
        return "a cell in four or more backticks (hides the next cell); use three"
    if line.rstrip() != line and line.rstrip() == OPEN:
        return "white space after the fence; delete it"
    return f"space inside the fence; write {OPEN}"


class Scanner:
    """Reads one chapter; ``cells`` and ``problems`` are what it found."""

    def __init__(self, rel: str, text: str) -> None:
        self.rel = rel
        self.lines = text.split("\n")[:-1] if text.endswith("\n") else text.split("\n")
        self.cells: list[Cell] = []
        self.problems: list[Problem] = []
        self.labels: dict[str, int] = {}
        self.scan()

    def fault(self, line: int, message: str) -> None:
        self.problems.append(Problem(self.rel, line, message))

    def scan(self) -> None:
        i, comment = 0, 0  # comment: the line where an open <!-- began
        while i < len(self.lines):
            line, n = self.lines[i], i + 1
            self.plain(n, line)
            fence = FENCE.match(line) if "```" in line or "~~~" in line else None
            if fence and comment and BRACED.match(line):
                self.fault(n, f"a cell inside the comment of line {comment}; it would run")
            if line == OPEN:
                i = self.cell(i)
            elif fence:
                i = self.block(i, fence)
            elif comment or "<" in line:
                comment = self.comment(line, n, comment)
                if re.match(r"\s*\{\{<\s*include\b", line):
                    self.fault(n, "an include (its cells would be missed); put it here")
            i += 1

    @staticmethod
    def comment(line: str, n: int, open_at: int) -> int:
        text = re.sub(r"`[^`]*`", "", line)
        opened, closed = text.rfind("<!--"), text.rfind("-->")
        if opened > closed:
            return open_at or n
        return 0 if closed >= 0 else open_at

    def plain(self, n: int, line: str) -> None:
        """What must hold for each line that becomes a comment."""
        if line[-1:].isspace():
            self.fault(n, "white space at the end of the line; delete it (break: '\\')")
        if line[:3] in ("<<<", ">>>", "|||", "===") and CONFLICT.match(line):
            self.fault(n, "a merge conflict marker; resolve it")
        if n <= 2 and CODING.match("# " + line):
            self.fault(n, "reads as a coding declaration (PEP 263); reword or move it")

    def block(self, i: int, fence: re.Match[str]) -> int:
        """Skip a display block that opens at index i; the index of its last line."""
        ticks, info = fence.groups()
        n = i + 1
        if BRACED.match(self.lines[i]):
            self.fault(n, wrong_opening(self.lines[i]))
        elif ticks[0] == "`" and "`" in info:
            self.fault(n, "a line that starts with ```code``` hides the next cell; reword")
            return i
        elif ticks[0] == "`" and len(ticks) > 3:
            self.fault(n, "four or more backticks (hide the next cell); use ~~~")
        for j in range(i + 1, len(self.lines)):
            line = self.lines[j]
            self.plain(j + 1, line)
            end = FENCE.match(line)
            if end and end[1][0] == ticks[0] and not end[2].strip():
                if len(end[1]) >= len(ticks):
                    if ticks[0] == "`" and len(end[1]) > len(ticks):
                        self.fault(j + 1, f"a longer closing fence; write {ticks}")
                    return j
            if WIDE.match(line) or (BRACED.match(line) and ticks[0] == "`"):
                self.fault(
                    j + 1,
                    f"a cell inside the fenced block of line {n}; close the block, or show"
                    " a cell with ~~~ and {{python}} (a ``` at column 0 in a string"
                    " also cuts a cell)",
                )
                if line == OPEN and ticks[0] == "`":
                    return j - 1
        self.fault(n, f"a fence that is never closed; end it with {ticks}")
        return len(self.lines) - 1

    def cell(self, i: int) -> int:
        """Read the cell that opens at index i; the index of its closing fence."""
        for j in range(i + 1, len(self.lines)):
            line = self.lines[j]
            if line == CLOSE:
                self.take(i, j)
                return j
            if "```" not in line:
                continue
            if re.match(r"^\s*```+\s*$", line):
                self.fault(j + 1, f"closes a cell with '{line}'; write {CLOSE} at column 0")
                self.take(i, j)
                return j
            if BRACED.match(line):
                self.fault(i + 1, f"a cell that is not closed before line {j + 1}; add ```")
                return j - 1
            if line.startswith("```"):
                self.fault(j + 1, "``` at column 0 inside a cell cuts it here; indent it")
        self.fault(i + 1, "a cell that is never closed; add ```")
        return len(self.lines) - 1

    def take(self, i: int, j: int) -> None:
        """Check the cell between the fences at indices i and j, and keep it."""
        body = tuple(self.lines[i + 1 : j])
        options = self.options(i + 1, body)
        label = options.get("label", "").strip("\"'")
        cell = Cell(label, options, i + 1, j + 1, body)
        at = i + 1 + (("label" in options) and 1)
        if not LABEL.match(label):
            got = f"label '{label}'" if label else "a cell without a label"
            self.fault(at, f"{got}; write '#| label: kebab-case-name'")
        elif label in self.labels:
            was = self.labels[label]
            self.fault(at, f"label '{label}' is already that of line {was}; rename one")
        self.labels.setdefault(label, i + 1)
        if options.get("tangle", "true") not in ("true", "false"):
            self.fault(at, f"tangle: {options['tangle']}; only true or false")
        if options.get("capture", "gpu") != "gpu":
            self.fault(at, f"capture: {options['capture']}; only gpu")
        if cell.tangled and cell.capture:
            self.fault(at, "a tangled cell cannot be a capture; split it")
        if cell.tangled and options.get("eval", "true") != "true":
            self.fault(at, "tangle with eval: false (module and page differ); drop one")
        for n, line in enumerate(body, i + 2):
            if not cell.tangled or line[:1] in MARKS and line:
                self.inside(cell, n, line)
        same = [c for c in self.cells if c.capture and cell.capture and c.code == cell.code]
        if same:
            self.fault(at, f"a capture with the same source as line {same[0].first}; differ")
        self.cells.append(cell)

    def inside(self, cell: Cell, n: int, line: str) -> None:
        """What must hold for each line of a cell."""
        if line.startswith("#|") and n >= cell.code_line:
            self.fault(n, "an option line below the first line of code; move it up")
        if not cell.tangled:
            self.plain(n, line)
        elif line.startswith("# ```"):
            self.fault(n, "'# ```' in a tangled cell reads as its end; indent or reword it")
        elif line[0] in "%!" and MAGIC.match(line) and not parses(cell.code):
            self.fault(n, "a magic or shell line in a tangled cell; a module cannot run it")
        elif CONFLICT.match(line):
            self.fault(n, "a merge conflict marker; resolve it")

    def options(self, first: int, body: tuple[str, ...]) -> dict[str, str]:
        """The leading option lines of a cell as raw text by key."""
        found: dict[str, str] = {}
        key = ""
        for n, line in enumerate(body, first + 1):
            if re.match(r"^#\s+\|", line):
                self.fault(n, f"'{line[:12]}' is not an option line; write '#| key: value'")
            if not line.startswith("#|"):
                break
            if match := OPTION.match(line):
                key = match[1]
                if key not in OPTIONS:
                    self.fault(n, f"unknown option '{key}'{near(key, OPTIONS)}")
                elif key in found:
                    self.fault(n, f"option '{key}' is given twice; delete one")
                found[key] = (match[2] or "").strip()
            elif key and re.match(r"^#\|\s{2,}\S", line):
                found[key] = f"{found[key]}\n{line[2:]}".strip("\n")
            else:
                self.fault(n, f"'{line}' is not '#| key: value'")
        return found


def parses(code: str) -> bool:
    try:
        compile(code, "cell", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def near(word: str, known: frozenset[str]) -> str:
    """`` (did you mean …?)`` or the whole list."""
    import difflib

    close = difflib.get_close_matches(word, known, 1)
    return f"; did you mean '{close[0]}'?" if close else f"; known: {' '.join(sorted(known))}"


def read_chapter(
    path: Path, rel: str, text: str | None = None, agreed: str | None = None
) -> Chapter:
    """Read and check one chapter; raises `BookError` with every fault in it."""
    problems: list[Problem] = []
    data = path.read_bytes() if text is None else text.encode("utf-8", "surrogatepass")
    text = decode(data, rel, problems)
    if problems:
        raise BookError(problems)
    scanner = Scanner(rel, text)
    chapter = Chapter(path, rel, text, tuple(scanner.cells), module_name(rel))
    problems = scanner.problems or syntax(chapter, agreed)
    if problems:
        raise BookError(sorted(set(problems), key=lambda p: p.line))
    return chapter


def syntax(chapter: Chapter, agreed: str | None) -> list[Problem]:
    """The module's syntax error, if it has one; its line is the chapter's line.

    ``agreed`` is the base: a text that was written there has been compiled before.
    """
    if chapter.module is None or chapter.tangled == agreed:
        return []
    try:
        compile(chapter.tangled, chapter.module, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as fault:
        line = getattr(fault, "lineno", None) or 1
        cell = next((c for c in chapter.cells if c.first <= line <= c.last), None)
        where = f" (cell '{cell.label}')" if cell else ""
        what = getattr(fault, "msg", None) or str(fault)
        return [Problem(chapter.rel, line, f"{type(fault).__name__}: {what}{where}")]
    return []


def page_order(root: Path) -> tuple[list[str], list[Problem]]:
    """The ``.qmd`` list items of ``_quarto.yml`` in order, and what is wrong there."""
    config = root / "_quarto.yml"
    if not config.is_file():
        return [], [Problem("_quarto.yml", 1, f"not found in {root}; name the chapters there")]
    listed: dict[str, int] = {}
    problems = []
    for n, line in enumerate(config.read_text("utf-8").split("\n"), 1):
        if match := LISTED.match(line):
            rel = match[1]
            if rel in listed:
                problems.append(Problem("_quarto.yml", n, f"{rel} is listed twice; delete one"))
            elif not (root / rel).is_file():
                problems.append(Problem("_quarto.yml", n, f"{rel} does not exist; write it"))
            listed.setdefault(rel, n)
    pages = [p.relative_to(root).as_posix() for p in sorted(root.glob("book/**/*.qmd"))]
    for rel in (["index.qmd"] if (root / "index.qmd").exists() else []) + pages:
        if rel not in listed:
            problems.append(Problem(rel, 1, "not listed in _quarto.yml; add it in its place"))
    if "index.qmd" not in listed:
        problems.append(Problem("_quarto.yml", 1, "index.qmd is not listed; it is the home page"))
    return [rel for rel in listed if (root / rel).is_file()], problems


def read_book(root: Path) -> Book:
    """Read every chapter; raises `BookError` with every fault of every chapter."""
    order, problems = page_order(root)
    chapters: list[Chapter] = []
    for rel in order:
        try:
            base = read(root / ".tangle" / f"{module_name(rel)}.py")
            chapters.append(read_chapter(root / rel, rel, agreed=base))
        except BookError as fault:
            problems += fault.problems
    problems += agreement(chapters)
    if problems:
        raise BookError(problems)
    return Book(root, tuple(chapters))


def agreement(chapters: list[Chapter]) -> Iterator[Problem]:
    """What must hold between chapters: module names and cross-referenced labels."""
    names: dict[str, str] = {}
    labels: dict[str, str] = {}
    for chapter in chapters:
        name, rel = chapter.name, chapter.rel
        if not name.isidentifier() or keyword.iskeyword(name):
            yield Problem(rel, 1, f"'{name}' cannot name a module; rename the file")
        if name in names:
            yield Problem(rel, 1, f"module '{name}' is already that of {names[name]}; rename")
        names.setdefault(name, rel)
        if rel == "index.qmd" and chapter.module is None:
            yield Problem(rel, 1, "no tangled cell; it must hold generated/__init__.py")
        for cell in chapter.cells:
            for label in {cell.label, cell.options.get("lst-label", "")}:
                if re.match(r"(fig|tbl|lst|eq|sec)-", label):
                    if label in labels:
                        other = labels[label]
                        what = f"'{label}' is already at {other}; references would clash"
                        yield Problem(rel, cell.first, what)
                    labels.setdefault(label, f"{rel}:{cell.first}")


# ------------------------------------------------------------------- the bijection


def tangle_text(text: str) -> str:
    """The module of a chapter: cells with ``tangle: true`` raw, all else commented."""
    out, lines, raw = [], text.split("\n"), False
    for i, line in enumerate(lines):
        if raw and line == CLOSE:
            raw = False
        out.append(line if raw or not line else "# " + line)
        if line == OPEN and not raw:
            raw = is_tangled(lines, i + 1)
    return "\n".join(out)


def is_tangled(lines: list[str], start: int) -> bool:
    """Whether the option lines from index ``start`` on say ``tangle: true``."""
    for line in lines[start:]:
        if not line.startswith("#|"):
            return False
        if re.match(r"^#\| tangle:\s+true\s*$", line):
            return True
    return False


def untangle_text(text: str, rel: str = "module") -> str:
    """The chapter of a module; raises `BookError` for lines that are neither."""
    out, lines, raw = [], text.split("\n"), False
    problems = []
    for n, line in enumerate(lines, 1):
        if raw and line == "# " + CLOSE:
            raw = False
        if raw or not line:
            out.append(line)
        elif line.startswith("# ") and line != "# ":
            out.append(line[2:])
        else:
            what = f"code outside a tangled cell: '{line.strip()[:40]}'"
            mend = "move it between '# ```{python}' with '#| tangle: true' and '# ```'"
            problems.append(Problem(rel, n, f"{what}; {mend}"))
        if line == "# " + OPEN and not raw:
            raw = n < len(lines) and lines[n].startswith("#|")
    if problems:
        raise BookError(problems)
    return "\n".join(out)


# ------------------------------------------------------- agreeing chapter and module


class Pair:
    """A chapter and its module: what each says and which side was edited."""

    def __init__(self, root: Path, chapter: Chapter) -> None:
        self.root, self.chapter = root, chapter
        self.rel = chapter.module or ""
        self.tangled = chapter.tangled
        self.module = read(root / self.rel)
        self.base = read(root / ".tangle" / f"{chapter.name}.py")

    @property
    def agree(self) -> bool:
        return self.tangled == self.module

    @cached_property
    def module_edited(self) -> bool:
        known = self.module is None or self.module == self.base
        return not known and self.module != committed(self.root, self.rel)

    @cached_property
    def chapter_edited(self) -> bool:
        head = committed(self.root, self.chapter.rel)
        return self.tangled != self.base and self.chapter.text != head

    def difference(self) -> Problem:
        """The first line where the module is not what the chapter says."""
        n = first_difference(self.tangled, self.module or "")
        said = line_at(self.tangled, n)
        got = "is missing" if self.module is None else f"has '{line_at(self.module, n)}'"
        return Problem(self.rel, n, f"{got}, {self.chapter.rel}:{n} says '{said}'")

    def refusal(self) -> list[Problem]:
        """Why neither side may overwrite the other: both places, and the mend."""
        base = self.base or committed(self.root, self.rel) or self.tangled
        at = first_difference(base, self.module or "")
        if not self.chapter_edited:
            mend = "--sync carries it into the chapter, --take chapter drops it"
            return [Problem(self.rel, at, f"edited since the last tangle; {mend}")]
        here = first_difference(base if base != self.tangled else self.module or "", self.tangled)
        mend = f"both this and {self.rel} were edited; --take chapter or --take module decides"
        return [
            Problem(self.chapter.rel, here, mend),
            Problem(self.rel, at, f"edited too, and is not what {self.chapter.rel} says"),
        ]

    def back(self) -> Chapter:
        """The chapter that the module says, checked as if it had been typed."""
        text = untangle_text(self.module or "", self.rel)
        chapter = read_chapter(self.chapter.path, self.chapter.rel, text)
        if chapter.tangled != self.module:
            n = first_difference(chapter.tangled, self.module or "")
            raise BookError([Problem(self.rel, n, "has no chapter that tangles to it")])
        return chapter


def read(path: Path) -> str | None:
    """The text of a file, None if it is not there; bytes that are not UTF-8 survive."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None


def committed(root: Path, rel: str) -> str | None:
    """The text of a file in git's HEAD, None where there is none."""
    try:
        shown = subprocess.run(
            ["git", "-C", str(root), "show", f"HEAD:./{rel}"], capture_output=True
        )
    except OSError:
        return None
    return shown.stdout.decode("utf-8", "surrogateescape") if shown.returncode == 0 else None


def first_difference(a: str, b: str) -> int:
    """The 1-based line where two texts first differ."""
    left, right = a.split("\n"), b.split("\n")
    pairs = enumerate(zip(left, right), 1)
    return next((n for n, (x, y) in pairs if x != y), min(len(left), len(right)))


def line_at(text: str, n: int) -> str:
    lines = text.split("\n")
    return lines[n - 1].strip()[:60] if n <= len(lines) else ""


class Change(NamedTuple):
    """One file to write (or, with text None, to remove) and what it held when read."""

    rel: str
    text: str | None
    was: str | None
    note: str = ""


def plan(book: Book, sync: bool, take: str, names: Sequence[str]) -> list[Change]:
    """Every write of this run; raises `BookError` before anything is written."""
    problems: list[Problem] = []
    changes: list[Change] = []
    for chapter in book.chapters:
        if chapter.module is None:
            continue
        pair = Pair(book.root, chapter)
        side = take if not names or chapter.name in names else ""
        try:
            changes += agreed(pair, sync, side)
        except BookError as fault:
            problems += fault.problems
    for change in orphans(book):
        if isinstance(change, Problem):
            problems.append(change)
        else:
            changes.append(change)
    if problems:
        raise BookError(problems)
    return changes


def agreed(pair: Pair, sync: bool, take: str) -> Iterator[Change]:
    """The writes that make one pair agree, the base among them."""
    chapter, final = pair.chapter, pair.tangled
    if not pair.agree:
        back = take == "module" or (sync and pair.module_edited and not pair.chapter_edited)
        if back and pair.module is not None:
            text, final = pair.back().text, pair.module
            yield from kept(pair, take, f"{chapter.name}.qmd", chapter.text)
            yield Change(chapter.rel, text, chapter.text, f"{chapter.rel} <- {pair.rel}")
        elif pair.module_edited and take != "chapter":
            raise BookError(pair.refusal())
        else:
            yield from kept(pair, take, f"{chapter.name}.py", pair.module)
            yield Change(pair.rel, final, pair.module, f"{pair.rel} <- {chapter.rel}")
    if final != pair.base:
        yield Change(f".tangle/{chapter.name}.py", final, pair.base)


def kept(pair: Pair, take: str, name: str, text: str | None) -> Iterator[Change]:
    """With --take, the side that loses stays readable in .tangle/dropped/."""
    if take and text is not None:
        rel = f".tangle/dropped/{name}"
        yield Change(rel, text, read(pair.root / rel), f"the text dropped is in {rel}")


def orphans(book: Book) -> Iterator[Change | Problem]:
    """Modules without a chapter: removed if they equal their base, else a problem."""
    names = {chapter.name for chapter in book.chapters if chapter.module}
    for path in sorted((book.root / "generated").glob("*.py")):
        if path.stem not in names:
            rel, text = f"generated/{path.name}", read(path)
            base = read(book.root / ".tangle" / path.name)
            if text in (base, committed(book.root, rel)):
                yield Change(rel, None, text, f"{rel} removed (no chapter)")
                yield Change(f".tangle/{path.name}", None, base)
            else:
                mend = "write a chapter for it or delete it"
                yield Problem(rel, 1, f"a module without a chapter, and edited; {mend}")


def write(root: Path, changes: list[Change]) -> None:
    """Write each file atomically, after a last look that nobody edited it meanwhile."""
    moved = [c.rel for c in changes if read(root / c.rel) != c.was]
    if moved:
        raise BookError([Problem(rel, 1, "changed during this run; run again") for rel in moved])
    for change in changes:
        path = root / change.rel
        if change.text is None:
            path.unlink(missing_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        spare = root / ".tangle" / f"{path.name}.{os.getpid()}.tmp"
        spare.parent.mkdir(exist_ok=True)
        try:
            with open(spare, "wb") as file:
                file.write(change.text.encode("utf-8", "surrogateescape"))
                file.flush()
                os.fsync(file.fileno()) if change.note else None
            if path.exists():
                os.chmod(spare, path.stat().st_mode & 0o7777)
            os.replace(spare, path)
        finally:
            spare.unlink(missing_ok=True)


def tangle(root: Path, *, sync: bool = False, take: str = "", names: Sequence[str] = ()) -> list[str]:
    """Make chapters and modules agree; the notes of what was written.

    Raises `BookError` with every fault, and then nothing has been written.
    """
    book = read_book(root)
    unknown = set(names) - {chapter.name for chapter in book.chapters if chapter.module}
    if unknown:
        raise BookError([Problem("_quarto.yml", 1, f"no module named {n}") for n in unknown])
    changes = plan(book, sync, take, names)
    write(root, changes)
    return [change.note for change in changes if change.note]


def check(root: Path) -> list[Problem]:
    """Every place where the package is not what the chapters say."""
    try:
        book = read_book(root)
    except BookError as fault:
        return fault.problems
    pairs = [Pair(root, chapter) for chapter in book.chapters if chapter.module]
    problems = [pair.difference() for pair in pairs if not pair.agree]
    for change in orphans(book):
        if isinstance(change, Problem):
            problems.append(change)
        elif change.note:
            problems.append(Problem(change.rel, 1, "a module without a chapter; tangle"))
    return problems


def watch(root: Path, seconds: float = 0.3) -> None:
    """Sync on every save, whichever side was saved; faults are printed, never fatal."""
    seen: object = None
    while True:
        paths = [root / "_quarto.yml", root / "index.qmd", *root.glob("book/**/*.qmd")]
        paths += root.glob("generated/*.py")
        now = sorted((str(p), p.stat().st_mtime_ns) for p in paths if p.exists())
        if now != seen:
            seen = now
            try:
                for note in tangle(root, sync=True):
                    print(note, flush=True)
            except (BookError, OSError) as fault:
                print(fault, file=sys.stderr, flush=True)
        time.sleep(seconds)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("tangle.py", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="with --take: only these modules")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent)
    does = parser.add_mutually_exclusive_group()
    does.add_argument("--check", action="store_true", help="write nothing; 1 if they differ")
    does.add_argument("--sync", action="store_true", help="carry the edited side across")
    does.add_argument("--take", choices=("chapter", "module"), default="", help="decide")
    does.add_argument("--watch", action="store_true", help="--sync at every save")
    args = parser.parse_args(argv)
    if args.names and not args.take:
        parser.error("module names go with --take")
    try:
        if args.watch:
            watch(args.root)
        if args.check:
            if problems := check(args.root):
                raise BookError(problems)
            return 0
        for note in tangle(args.root, sync=args.sync, take=args.take, names=args.names):
            print(note)
    except BookError as fault:
        print(fault, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except OSError as fault:
        print(f"{fault.filename or args.root}: {fault.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
