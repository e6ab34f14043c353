#!/usr/bin/env python3
"""Tangle the chapters of the book into the importable package ``generated``.

Line N of ``generated/x.py`` is line N of its chapter; everything that is not
tangled code stands there as a comment.  The mapping is a bijection, so an edit of
a module can be carried back into its chapter (``--sync``).

The model is Book > Chapter > Cell > line.  Only the standard library is used and
nothing has to be installed.  Every fault of every chapter is reported in one run as
``file:line: what is wrong; the mend``, and a run that reports one writes nothing.
"""

from __future__ import annotations

import keyword
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

OPTIONS = frozenset(
    "label tangle capture echo eval include output error warning code-fold code-summary"
    " fig-cap fig-alt fig-width fig-height fig-subcap layout-ncol tbl-cap"
    " tbl-colwidths lst-cap lst-label".split()
)
OPEN, CLOSE = "```{python}", "```"
TANGLED, UNTANGLED = "#| tangle: true", "#| tangle: false"

CELL = re.compile(r"(\s*)(```+)\s*\{python( *[ ,].*)?\}\s*$")  # what Quarto runs
FENCE = re.compile(r"(\s*(?:(?:[-*+]|\d+[.)])\s+)?)(`{3,}|~{3,})(.*)$")
COMMENT = re.compile(r"<!--|(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)")  # or a code span
STRING = re.compile(  # a triple quote, or what may hide one, as jupytext reads it
    r"\"{3}|'{3}|#.*|([\"'])(?:(?<=\\)\1|(?!\1).)*\1?"
)
CLOSERS = {"<!--": "-->", '"""': '"""', "'''": "'''"}
OPTION = re.compile(r"#\| ([A-Za-z][\w.-]*):(?:\s+(.*))?$")
LABEL = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*$")
CODING = re.compile(r"[ \t\f]*#.*?coding[:=][ \t]*[-_.a-zA-Z0-9]+")  # PEP 263
MAGIC = re.compile(r"%%?\w|!")
LISTED = re.compile(r"\s*-\s+(?:(?:href|part|file):\s*)?[\"']?([^\s\"'#]+\.qmd)\b")

# What no line may be: the pattern, whether it judges tangled code too, what, the mend.
SPACE = r".*\s$", False, "white space at the end of the line", "delete it"
RULES = (
    SPACE,
    (r"(<{7}|>{7}|\|{7})( |$)|={7}$", True, "a merge conflict marker", "resolve it"),
    (r"\s*\{\{<\s*include\b", False, "an include (hides cells)", "put its text here"),
    (r"<!--\s*#(region|markdown|md|raw)", False, "a jupytext region", "delete it"),
)
SUSPECTS = frozenset("<>|=")  # how most lines begin that a rule may match
MARKS = (
    ("\ufeff", "a byte order mark; save as UTF-8 without it"),
    ("\r", "a carriage return; use LF line ends"),
    ("\0", "a NUL character; delete it"),
)


class Problem(NamedTuple):
    """One fault: where it stands, what it is and how it is mended."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


class BookError(Exception):
    """Every fault found in one run, in page order."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


class Cell(NamedTuple):
    """A ```` ```{python} ```` cell; ``first`` and ``last`` are its fences (1-based)."""

    label: str
    options: dict[str, str]
    first: int
    last: int
    lines: tuple[str, ...]

    @property
    def tangled(self) -> bool:
        return is_tangled(self.lines, 0)

    @property
    def capture(self) -> str | None:
        return self.options.get("capture")

    @property
    def code(self) -> str:
        return "\n".join(self.lines[self.code_line - self.first - 1 :])

    @property
    def code_line(self) -> int:
        lines = enumerate(self.lines, self.first + 1)
        return next((n for n, s in lines if not s.startswith("#|")), self.last)


class Chapter(NamedTuple):
    """One ``.qmd`` file; ``rel`` is its path from the root, ``name`` its module's."""

    path: Path
    rel: str
    text: str
    cells: tuple[Cell, ...]
    name: str

    @property
    def module(self) -> str | None:
        has_one = any(cell.tangled for cell in self.cells)
        return f"generated/{self.name}.py" if has_one else None

    @property
    def tangled(self) -> str:
        """The text of the module."""
        return tangle_text(self.text)


class Book(NamedTuple):
    """The chapters in the page order of ``_quarto.yml``."""

    root: Path
    chapters: tuple[Chapter, ...]


# ------------------------------------------------------------------- the bijection


def is_tangled(lines: Sequence[str], start: int) -> bool:
    """Whether the option lines from index ``start`` on say ``tangle: true``."""
    for i in range(start, len(lines)):
        if not lines[i].startswith("#|"):
            return False
        if lines[i] == TANGLED:
            return True
    return False


@lru_cache(64)
def tangle_text(text: str) -> str:
    """The module of a chapter: cells with ``tangle: true`` raw, all else commented."""
    out, lines, raw = [], text.split("\n"), False
    for n, line in enumerate(lines, 1):
        raw = raw and line != CLOSE
        out.append(line if raw or not line else "# " + line)
        raw = raw or (line == OPEN and is_tangled(lines, n))
    return "\n".join(out)


def untangle_text(module_text: str, rel: str = "module") -> str:
    """The chapter of a module; raises `BookError` for each line that has none."""
    out, lines, raw = [], module_text.split("\n"), False
    problems = []
    for n, line in enumerate(lines, 1):
        raw = raw and line != "# " + CLOSE
        if raw or not line:
            out.append(line)
        elif line.startswith("# ") and line != "# ":
            out.append(line[2:])
        else:
            what = f"code outside a tangled cell: '{line.strip()[:40]}'"
            mend = f"move it below '# {OPEN}' and '{TANGLED}', or begin it with '# '"
            problems.append(Problem(rel, n, f"{what}; {mend}"))
        raw = raw or (line == "# " + OPEN and is_tangled(lines, n))
    if problems:
        raise BookError(problems)
    text = "\n".join(out)
    if tangle_text(text) != module_text:
        n = first_difference(tangle_text(text), module_text)
        what = f"no chapter tangles to '{line_at(module_text, n)}' here"
        mend = "a tangled cell stands uncommented from its '#|' lines to '# ```'"
        raise BookError([Problem(rel, n, f"{what}; {mend}")])
    return text


def first_difference(a: str, b: str) -> int:
    """The 1-based line where two texts first differ."""
    left, right = a.split("\n"), b.split("\n")
    pairs = enumerate(zip(left, right, strict=False), 1)
    return next((n for n, (x, y) in pairs if x != y), min(len(left), len(right)))


def line_at(text: str, n: int) -> str:
    return text.split("\n")[n - 1].strip()[:60]


# ----------------------------------------------------------------- reading a chapter


class Scanner:
    """Reads one chapter; ``cells`` and ``problems`` are what it found.

    It detects whatever Quarto or jupytext would take for a cell, and allows only
    what all of them read alike.
    """

    def __init__(self, rel: str, text: str) -> None:
        self.rel = rel
        self.lines = text.removesuffix("\n").split("\n")
        self.cells: list[Cell] = []
        self.problems: list[Problem] = []
        self.blocks()
        self.judge_lines()

    def fault(self, line: int, what: str, mend: str) -> None:
        self.problems.append(Problem(self.rel, line, f"{what}; {mend}"))

    def blocks(self) -> None:
        """Find the YAML header, the cells, the displayed blocks and the comments."""
        i, comment = self.header(), 0  # comment: the line where an open one began
        while i < len(self.lines):
            line = self.lines[i]
            fence = FENCE.match(line) if "```" in line or "~~~" in line else None
            if comment and fence and CELL.match(line):
                what = f"a cell inside the comment of line {comment} (it would run)"
                self.fault(i + 1, what, "close the comment above it with -->")
            if line == OPEN:
                i = self.cell(i)
            elif fence:
                i = self.block(i, fence)
            elif comment or "<!--" in line:
                is_open = awaited(line, COMMENT, "-->" if comment else "")
                comment = (comment or i + 1) if is_open else 0
            i += 1
        if comment:
            self.fault(comment, "a comment that is never closed", "end it with -->")

    def header(self) -> int:
        """Pass over a YAML header; the index of the first line below it."""
        ends = (i for i, s in enumerate(self.lines) if i and s.rstrip() == "---")
        end = next(ends, 0) if self.lines[0].rstrip() == "---" else 0
        for n, line in enumerate(self.lines[:end], 1):
            if "```" in line or line.lstrip().startswith("<!--"):
                what = "a fence or an HTML comment in the YAML header"
                self.fault(n, what, "move it below the header")
        return end and end + 1

    def block(self, i: int, fence: re.Match[str]) -> int:
        """Pass over a displayed block; the index of its last line."""
        before, marks, info = fence.groups()
        n, ticks, close = i + 1, marks[0] == "`", " " * len(before) + marks
        if ticks and "`" in info:
            if not before.strip():
                what = "a line that begins with ```code``` (hides the next cell)"
                self.fault(n, what, "use single backticks")
            return i
        if ticks and info.lstrip().startswith("{"):
            self.fault(n, *wrong_opening(self.lines[i]))
        elif ticks and len(marks) > 3:
            self.fault(n, "four or more backticks (hide the next cell)", "use ~~~")
        if before.strip():
            what = "a fence behind a list marker"
            self.fault(n, what, "give it a line of its own, indented")
        shown = 0  # the line of an open ``` inside, which jupytext takes for a fence
        for j in range(i + 1, len(self.lines)):
            line = self.lines[j]
            if "```" not in line and "~~~" not in line:
                continue
            bare = line.strip()
            if bare.startswith(marks) and not bare.strip(marks[0]):
                if line.rstrip() != close:
                    self.fault(j + 1, f"'{line}' closes line {n}", f"write '{close}'")
                if shown:
                    self.fault(shown, "``` without its pair (hides a cell)", "pair it")
                return j
            if CELL.match(line) or re.match(r"```\{(?!\{)", line):
                what = f"a cell inside the fenced block of line {n} (it would run)"
                mend = "close the block above it, or show it with ~~~ and {{python}}"
                self.fault(j + 1, what, mend)
                if line == OPEN and marks == CLOSE:
                    return j - 1
            elif line.startswith(CLOSE) and (before or not ticks):
                shown = 0 if shown and line == CLOSE else shown or j + 1
        self.fault(n, "a fence that is never closed", f"end it with '{close}'")
        return len(self.lines) - 1

    def cell(self, i: int) -> int:
        """Read the cell that opens at index i; the index of its last line."""
        for j in range(i + 1, len(self.lines)):
            line = self.lines[j]
            if line == CLOSE:
                return self.keep(i, j)
            if "```" not in line:
                continue
            if CELL.match(line):
                what = f"a cell that is not closed above the one of line {j + 1}"
                self.fault(i + 1, what, "end it with ```; in a string, use {{python}}")
                return j - 1
            if not line.strip().strip("`"):
                mend = "write ``` at column 0; in a string, add a language"
                self.fault(j + 1, f"'{line}' closes a cell for some readers", mend)
                return self.keep(i, j)
            if line.startswith(CLOSE):
                self.fault(j + 1, "``` at column 0 cuts the cell", "indent it")
        self.fault(i + 1, "a cell that is never closed", "end it with ```")
        return len(self.lines) - 1

    def keep(self, i: int, j: int) -> int:
        """Check the cell between the fences at indices i and j, and keep it; j."""
        body = tuple(self.lines[i + 1 : j])
        options, where = self.options(i + 1, body)
        cell = Cell(options.get("label", ""), options, i + 1, j + 1, body)
        for key, what, mend in cell_faults(cell, self.cells):
            self.fault(where.get(key, i + 1), what, mend)
        code_line, tangled, quote = cell.code_line, cell.tangled, ""
        for n, line in enumerate(body, i + 2):
            if line[:2] == "#|" and n > code_line:
                self.fault(n, "an option below the first line of code", "move it up")
            elif line[:5] == "# ```" and tangled:
                self.fault(n, "'# ```' would end the tangled cell", "indent or reword")
            if '"""' in line or "'''" in line:
                quote = awaited(line, STRING, quote)
        if quote:
            what = "the cell ends inside a string (``` at column 0 cuts it)"
            self.fault(j + 1, what, f"close it with {quote}, or indent the ``` in it")
        self.cells.append(cell)
        return j

    def options(
        self, first: int, body: tuple[str, ...]
    ) -> tuple[dict[str, str], dict[str, int]]:
        """The option lines of a cell as raw text by key, and each key's line."""
        found: dict[str, str] = {}
        where: dict[str, int] = {}
        key, form = "", "write '#| key: value'"
        for n, line in enumerate(body, first + 1):
            if re.match(r"#\s+\|", line):
                self.fault(n, f"'{line[:40]}' is no option line", form)
            if not line.startswith("#|"):
                break
            if line[-1].isspace():
                self.fault(n, *SPACE[2:])
            if match := OPTION.match(line):
                key = match[1]
                if key not in OPTIONS:
                    self.fault(n, f"unknown option '{key}'", near(key))
                if key in found:
                    self.fault(n, f"option '{key}' is given twice", "delete one")
                found[key], where[key] = (match[2] or "").strip(), n
            elif key and re.match(r"#\|\s{2,}\S", line):
                found[key] = f"{found[key]}\n{line[2:]}".strip("\n")
            else:
                self.fault(n, f"'{line[:40]}' is no option line", form)
        return found, where

    def judge_lines(self) -> None:
        """Hold each line against `RULES`, tangled code against those meant for it."""
        code = {n for c in self.cells if c.tangled for n in range(c.first + 1, c.last)}
        for n, line in enumerate(self.lines, 1):
            if line and (line[0] in SUSPECTS or line[-1].isspace() or "{{<" in line):
                for pattern, judges_code, what, mend in RULES:
                    if (judges_code or n not in code) and re.match(pattern, line):
                        self.fault(n, what, mend)
            if n <= 2 and CODING.match(line if n in code else "# " + line):
                self.fault(
                    n, "a coding declaration (PEP 263)", "reword, or move it down"
                )
            parts = line.splitlines()[1:] if "```" in line else []  # as jupytext cuts
            if any(part.startswith(CLOSE) for part in parts):
                self.fault(n, "a line separator before ```", "start a new line")


def awaited(line: str, opener: re.Pattern[str], closer: str) -> str:
    """What must still come after this line to close what is open; "" if nothing is.

    ``closer`` is what was awaited before the line.
    """
    at = 0
    while True:
        if closer:
            at = line.find(closer, at) + len(closer)
            if at < len(closer):
                return closer
        match = opener.search(line, at)
        if not match:
            return ""
        at, closer = match.end(), CLOSERS.get(match[0], "")


def wrong_opening(line: str) -> tuple[str, str]:
    """Why a line that opens braces behind backticks is not a cell, and the mend."""
    match = CELL.match(line)
    if not match:
        return f"'{line.strip()}' is no cell", f"write {OPEN}, or show ```language"
    indent, ticks, attributes = match.groups()
    if attributes and attributes.strip():
        return f"attributes in the braces ({attributes.strip(' ,')})", "use '#|' lines"
    if indent:
        return "an indented cell (some readers miss it)", "start it at column 0"
    if len(ticks) > 3:
        return "a cell in four or more backticks (hides the next one)", "use three"
    return "white space around the braces (some readers miss the cell)", f"write {OPEN}"


def cell_faults(cell: Cell, earlier: list[Cell]) -> Iterator[tuple[str, str, str]]:
    """What is wrong with a cell's options: the option, what it is, the mend."""
    label, capture, get = cell.label, cell.capture, cell.options.get
    if not LABEL.match(label):
        what = f"label '{label}'" if label else "a cell without a label"
        yield "label", what, "write '#| label: kebab-case-name'"
    for other in earlier:
        if label and other.label == label:
            what = f"label '{label}' is already that of line {other.first}"
            yield "label", what, "rename one"
        if capture and other.capture and other.code.strip() == cell.code.strip():
            what = f"a capture with the same source as that of line {other.first}"
            yield "capture", what, "make them differ"
    if "tangle" in cell.options and {TANGLED, UNTANGLED}.isdisjoint(cell.lines):
        yield "tangle", f"tangle: {get('tangle')}", f"write '{TANGLED}' or drop it"
    if get("capture", "gpu") != "gpu":
        yield "capture", f"capture: {capture}", "write '#| capture: gpu'"
    if capture and cell.tangled:
        yield "capture", "a tangled cell that is a capture", "split it"
    if get("eval", "true") != "true" and cell.tangled:
        yield "eval", "tangled but not run (module and page would differ)", "drop one"


def near(word: str) -> str:
    """``did you mean …?``, or all options."""
    import difflib

    close = difflib.get_close_matches(word, OPTIONS, 1)
    known = " ".join(sorted(OPTIONS))
    return f"did you mean '{close[0]}'?" if close else f"known: {known}"


def encoding_faults(rel: str, text: str) -> Iterator[Problem]:
    """Characters on which readers disagree, and a last line without its end."""
    for mark, what in MARKS:
        if mark in text:
            lines = [n for n, s in enumerate(text.split("\n"), 1) if mark in s]
            more = f" (on {len(lines)} lines)" if len(lines) > 1 else ""
            yield Problem(rel, lines[0], what + more)
    try:
        text.encode()
    except UnicodeEncodeError as fault:
        line = text.count("\n", 0, fault.start) + 1
        yield Problem(rel, line, "a byte that is not UTF-8; save as UTF-8")
    if text and not text.endswith("\n"):
        yield Problem(rel, text.count("\n") + 1, "no newline at the end; add one")


def syntax_faults(chapter: Chapter, known: set[int]) -> Iterator[Problem]:
    """Why the module does not compile, for each cell whose code has no known fault."""
    whole = compile_fault(chapter.tangled)
    found = bool(known)
    for cell in chapter.cells:
        if not (whole and cell.tangled) or known & {*range(cell.code_line, cell.last)}:
            continue
        fault = compile_fault("\n" * (cell.code_line - 1) + cell.code)
        if not fault:
            continue
        found = True
        lines = enumerate(cell.lines, cell.first + 1)
        magics = [n for n, line in lines if MAGIC.match(line)]
        for n in magics:
            what = "a magic or shell line in a tangled cell; a module cannot run it"
            yield Problem(chapter.rel, n, what)
        if not magics:
            what = f"{fault[1]} (cell '{cell.label}'); mend the code"
            yield Problem(chapter.rel, fault[0], what)
    if whole and not found:
        mend = "keep one __future__ import, at the head of the first tangled cell"
        what = f"{whole[1]}; {mend if '__future__' in whole[1] else 'mend the code'}"
        yield Problem(chapter.rel, whole[0], what)


def compile_fault(code: str) -> tuple[int, str] | None:
    """The line and the message of the error that Python finds in it."""
    try:
        compile(code, "module", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as fault:
        what = getattr(fault, "msg", None) or str(fault)
        return getattr(fault, "lineno", None) or 1, f"{type(fault).__name__}: {what}"
    return None


def examine(
    path: Path, rel: str, text: str | None, agreed: str | None = None
) -> tuple[Chapter, list[Problem]]:
    """Read a chapter and list its faults.

    ``agreed`` is the module's base: what was written there has been compiled.
    """
    name = module_name(rel)
    if text is None:
        missing = Problem(rel, 1, "does not exist; write it")
        return Chapter(path, rel, "", (), name), [missing]
    problems = list(encoding_faults(rel, text))
    clean = text
    for mark, _ in MARKS:
        clean = clean.replace(mark, "")
    scanner = Scanner(rel, clean)
    problems += scanner.problems
    chapter = Chapter(path, rel, text, tuple(scanner.cells), name)
    if chapter.module and chapter.tangled != agreed:
        problems += syntax_faults(chapter, {problem.line for problem in problems})
    return chapter, sorted(set(problems), key=lambda problem: problem.line)


def read_chapter(path: Path, rel: str, text: str | None = None) -> Chapter:
    """Read one chapter, or ``text`` in its place; raises `BookError`."""
    chapter, problems = examine(path, rel, read(path) if text is None else text)
    if problems:
        raise BookError(problems)
    return chapter


def read(path: Path) -> str | None:
    """The text of a file, None if it is not there; bytes that are not UTF-8 survive."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise BookError(
            [Problem(str(path), 1, f"{fault.strerror}; mend that")]
        ) from fault


# ------------------------------------------------------------------ reading the book


def module_name(rel: str) -> str:
    """``book/11-reductions.qmd`` -> ``reductions``; ``index.qmd`` -> ``__init__``."""
    if rel == "index.qmd":
        return "__init__"
    return re.sub(r"^(\d+|[a-z])-", "", Path(rel).stem).replace("-", "_")


def page_order(root: Path) -> tuple[list[str], list[Problem]]:
    """The ``.qmd`` list items of ``_quarto.yml`` in order, and what is wrong there."""
    config = "_quarto.yml"
    text = read(root / config)
    if text is None:
        return [], [Problem(config, 1, f"not found in {root}; list the chapters there")]
    listed: dict[str, int] = {}
    problems = []
    for n, line in enumerate(text.split("\n"), 1):
        if not (match := LISTED.match(line)):
            continue
        rel = match[1]
        if rel in listed:
            problems.append(Problem(config, n, f"{rel} is listed twice; delete one"))
        elif not (root / rel).is_file():
            problems.append(Problem(config, n, f"{rel} does not exist; write it"))
        listed.setdefault(rel, n)
    if not listed:
        what = "no chapter is listed; write each as '- path.qmd' on a line of its own"
        return [], [Problem(config, 1, what)]
    if "index.qmd" not in listed:
        what = "index.qmd, the home page, is not listed; list it first"
        problems.append(Problem(config, 1, what))
    there = {path.relative_to(root).as_posix() for path in pages(root)}
    what = f"not listed in {config}; list it in its place"
    problems += [Problem(rel, 1, what) for rel in sorted(there - {*listed})]
    return [rel for rel in listed if (root / rel).is_file()], problems


def pages(root: Path) -> list[Path]:
    """Every chapter file there is (an editor's hidden files are none)."""
    found = [*root.glob("index.qmd"), *root.glob("book/**/*.qmd")]
    return [path for path in found if not path.name.startswith(".")]


def agreement(chapters: Iterable[Chapter]) -> Iterator[Problem]:
    """What must hold between chapters: module names and cross-referenced labels."""
    names: dict[str, str] = {}
    labels: dict[str, str] = {}
    for chapter in chapters:
        name, rel = chapter.name, chapter.rel
        if not name.isidentifier() or keyword.iskeyword(name):
            yield Problem(rel, 1, f"'{name}' cannot name a module; rename the file")
        if name in names:
            what = f"module '{name}' is already that of {names[name]}; rename the file"
            yield Problem(rel, 1, what)
        names.setdefault(name, rel)
        if rel == "index.qmd" and chapter.module is None:
            what = "no tangled cell; add one, it becomes generated/__init__.py"
            yield Problem(rel, 1, what)
        for cell in chapter.cells:
            for label in sorted({cell.label, cell.options.get("lst-label", "")}):
                other = labels.get(label, rel)
                if other.partition(":")[0] != rel:
                    what = f"label '{label}' is already at {other}; rename one"
                    yield Problem(rel, cell.first, what)
                if re.match(r"(fig|tbl|lst|eq|sec)-", label):
                    labels.setdefault(label, f"{rel}:{cell.first}")


def read_book(root: Path) -> Book:
    """Read every chapter; raises `BookError` with every fault of every chapter."""
    pairs, problems = read_pairs(root)
    problems += [fault for pair in pairs for fault in pair.faults]
    chapters = tuple(pair.chapter for pair in pairs)
    problems += agreement(chapters)
    if problems:
        raise BookError(in_order(problems, pairs))
    return Book(root, chapters)


# ------------------------------------------------------- agreeing chapter and module


class Change(NamedTuple):
    """A file to write (with text None: to remove) and what it held when it was read."""

    rel: str
    text: str | None
    was: str | None
    note: str = ""


class Pair:
    """A chapter and its module on disk, and the text on which they last agreed."""

    def __init__(self, root: Path, rel: str) -> None:
        name = module_name(rel)
        self.root = root
        self.rel, self.base_rel = f"generated/{name}.py", f".tangle/{name}.py"
        self.module, self.base = read(root / self.rel), read(root / self.base_rel)
        path = root / rel
        self.chapter, self.faults = examine(path, rel, read(path), self.base)

    @property
    def agree(self) -> bool:
        return self.chapter.module is None or self.chapter.tangled == self.module

    @cached_property
    def module_edited(self) -> bool:
        known = self.module is None or self.module == self.base
        return not known and self.module != committed(self.root, self.rel)

    @cached_property
    def chapter_edited(self) -> bool:
        known = self.chapter.tangled == self.base
        return not known and self.chapter.text != committed(self.root, self.chapter.rel)

    def difference(self) -> Problem:
        """The first line where the module is not what the chapter says."""
        chapter = self.chapter
        if self.module is None:
            return Problem(self.rel, 1, f"is missing; tangle {chapter.rel}")
        n = first_difference(chapter.tangled, self.module)
        said, got = line_at(chapter.tangled, n), line_at(self.module, n)
        what = f"has '{got}' where {chapter.rel}:{n} says '{said}'"
        return Problem(self.rel, n, f"{what}; tangle, or --sync an edit made here")

    def refusal(self) -> list[Problem]:
        """Why neither side may overwrite the other: the places, and the mend."""
        module, tangled, rel = self.module or "", self.chapter.tangled, self.chapter.rel
        base = self.base or committed(self.root, self.rel)
        at = first_difference(base or tangled, module)
        if not self.chapter_edited:
            mend = "--sync carries that into the chapter, --take chapter drops it"
            return [Problem(self.rel, at, f"edited since the last tangle; {mend}")]
        mend = f"--take chapter or --take module decides ({self.chapter.name})"
        here = first_difference(base or module, tangled)
        return [
            Problem(rel, here, f"edited, and so was {self.rel}:{at}; {mend}"),
            Problem(self.rel, at, f"edited, and so was {rel}:{here}; {mend}"),
        ]

    def back(self) -> Chapter:
        """The chapter that the module says, checked as if it had been typed there."""
        module = self.module or ""
        problems = list(encoding_faults(self.rel, module))
        if not problems:
            text, old = untangle_text(module, self.rel), self.chapter
            chapter, faults = examine(old.path, old.rel, text, self.base)
            problems = [fault._replace(path=self.rel) for fault in faults]
        if problems:
            raise BookError(problems)
        return chapter

    def settle(self, sync: bool, take: str) -> tuple[Chapter, list[Change]]:
        """The chapter as it will be, and the writes that make both sides agree."""
        chapter, module, changes = self.chapter, self.module, []
        carried = sync and self.module_edited and not self.chapter_edited
        if module not in (None, chapter.tangled) and (
            take == "module" or (not take and carried and chapter.module)
        ):
            chapter = self.back()
            old = self.chapter.text
            changes = self.kept(take, ".qmd", old)
            note = f"{chapter.rel} <- {self.rel}"
            changes.append(Change(chapter.rel, chapter.text, old, note))
        else:
            problems = list(self.faults)
            if take == "module" and module is None and chapter.module:
                what = "is missing; --take chapter makes it"
                problems.append(Problem(self.rel, 1, what))
            elif not self.agree and self.module_edited and not take:
                problems += self.refusal()
            if problems:
                raise BookError(problems)
            if not self.agree:
                changes = self.kept(take, ".py", module)
                note = f"{self.rel} <- {chapter.rel}"
                changes.append(Change(self.rel, chapter.tangled, module, note))
        if chapter.module and chapter.tangled != self.base:
            changes.append(Change(self.base_rel, chapter.tangled, self.base))
        return chapter, changes

    def kept(self, take: str, ending: str, text: str | None) -> list[Change]:
        """With --take, the side that loses stays readable in .tangle/dropped/."""
        if not take or text is None:
            return []
        rel = f".tangle/dropped/{self.chapter.name}{ending}"
        was = read(self.root / rel)
        return [Change(rel, text, was, f"what was dropped is in {rel}")]


def read_pairs(root: Path) -> tuple[list[Pair], list[Problem]]:
    """Each chapter with its module, in page order, and the faults of that order."""
    order, problems = page_order(root)
    return [Pair(root, rel) for rel in order], problems


def in_order(problems: list[Problem], pairs: list[Pair]) -> list[Problem]:
    """The problems by page and line; those of no page last."""
    place = {rel: i for i, p in enumerate(pairs) for rel in (p.chapter.rel, p.rel)}
    place["_quarto.yml"] = -1
    return sorted(problems, key=lambda p: (place.get(p.path, len(pairs)), p.line))


def committed(root: Path, rel: str) -> str | None:
    """The text of a file in git's HEAD, None where there is none."""
    import subprocess

    command = ["git", "-C", str(root), "show", f"HEAD:./{rel}"]
    try:
        shown = subprocess.run(command, capture_output=True, check=False)
    except OSError:
        return None
    text = shown.stdout.decode("utf-8", "surrogateescape")
    return text if shown.returncode == 0 else None


def orphans(root: Path, chapters: list[Chapter]) -> tuple[list[Change], list[Problem]]:
    """Modules without a chapter: those that equal a base go, the others are faults."""
    changes, problems = [], []
    kept = {chapter.module for chapter in chapters}
    for path in sorted((root / "generated").glob("*.py")):
        rel, base_rel = f"generated/{path.name}", f".tangle/{path.name}"
        text, base = read(path), read(root / base_rel)
        if rel in kept:
            continue
        if text in (base, committed(root, rel)):
            note = f"{rel} removed (no chapter tangles to it)"
            changes += [Change(rel, None, text, note), Change(base_rel, None, base)]
        else:
            what = "edited, but no chapter tangles to it; write one or delete it"
            problems.append(Problem(rel, 1, what))
    return changes, problems


def plan(root: Path, sync: bool, take: str, names: Sequence[str]) -> list[Change]:
    """Every write of a run; raises `BookError` before anything is written."""
    pairs, problems = read_pairs(root)
    known = [pair.chapter.name for pair in pairs]
    for name in sorted({*names} - {*known}):
        what = f"no chapter is named '{name}'; known: {' '.join(known)}"
        problems.append(Problem("_quarto.yml", 1, what))
    chapters: list[Chapter] = []
    changes: list[Change] = []
    for pair in pairs:
        side = take if not names or pair.chapter.name in names else ""
        try:
            chapter, writes = pair.settle(sync, side)
        except BookError as fault:
            chapter, writes = pair.chapter, []
            problems += fault.problems
        chapters.append(chapter)
        changes += writes
    problems += agreement(chapters)
    if not problems:
        removals, problems = orphans(root, chapters)
        changes += removals
    if problems:
        raise BookError(in_order(problems, pairs))
    return changes


# ----------------------------------------------------------------- writing, and main


def write(root: Path, changes: list[Change]) -> None:
    """Write the files, or none; raises `BookError`.

    All are written beside their places first and then moved there, so a run that is
    killed leaves whole files only, and the next one goes on from there.  One run
    writes at a time, and only if nobody edited a file since it was read.
    """
    import fcntl

    rel = ".tangle"
    try:
        (root / rel).mkdir(exist_ok=True)
        with open(root / rel / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            now = {change.rel: read(root / change.rel) for change in changes}
            moved = [c.rel for c in changes if now[c.rel] not in (c.was, c.text)]
            if moved:
                what = "changed while it was read; run again"
                raise BookError(Problem(rel, 1, what) for rel in moved)
            try:
                for i, (rel, text, *_) in enumerate(changes):
                    if text is not None:
                        stage(root / f".tangle/{i}.new", root / rel, text)
                for i, (rel, text, *_) in enumerate(changes):
                    if text is None:
                        (root / rel).unlink(missing_ok=True)
                    else:
                        os.replace(root / f".tangle/{i}.new", (root / rel).resolve())
            finally:
                for spare in (root / ".tangle").glob("*.new"):
                    spare.unlink()
    except OSError as fault:
        what = f"cannot be written ({fault.strerror}); mend that and run again"
        raise BookError([Problem(rel, 1, what)]) from fault


def stage(spare: Path, path: Path, text: str) -> None:
    """Write into ``spare`` what is to be moved to ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    spare.unlink(missing_ok=True)
    with open(spare, "wb") as file:
        file.write(text.encode("utf-8", "surrogateescape"))
        if path.parent.name not in ("generated", ".tangle"):  # cannot be made again
            file.flush()
            os.fsync(file.fileno())
    if path.exists():
        spare.chmod(path.stat().st_mode & 0o7777)


def tangle(
    root: Path, *, sync: bool = False, take: str = "", names: Sequence[str] = ()
) -> list[str]:
    """Make chapters and modules agree; the notes of what was written.

    Raises `BookError` with every fault, and then nothing has been written.
    """
    changes = plan(root, sync, take, names)
    if changes:
        write(root, changes)
    return [change.note for change in changes if change.note]


def check(root: Path) -> list[Problem]:
    """Every fault, and every place where package and chapters disagree."""
    pairs, problems = read_pairs(root)
    for pair in pairs:
        problems += pair.faults or ([] if pair.agree else [pair.difference()])
    chapters = [pair.chapter for pair in pairs]
    problems += agreement(chapters)
    if not problems:
        removals, problems = orphans(root, chapters)
        what = "no chapter tangles to it; run tangle.py, it removes it"
        problems += [Problem(change.rel, 1, what) for change in removals if change.note]
    return in_order(problems, pairs)


def watch(root: Path, seconds: float = 0.2) -> None:
    """Sync after every save, whichever side was saved; faults are printed, not fatal.

    A file counts as saved when it stays as it is for one turn: an editor may empty
    it first.
    """
    import time

    seen: object = None
    done: object = None
    while True:
        now = sorted(stamps(root))
        if now == seen and now != done:
            done = now
            try:
                for note in tangle(root, sync=True):
                    print(note, flush=True)
            except BookError as fault:
                print(fault, file=sys.stderr, flush=True)
        seen = now
        time.sleep(seconds)


def stamps(root: Path) -> Iterator[tuple[str, int, int]]:
    """What changes when a file that is watched is saved."""
    for path in [root / "_quarto.yml", *pages(root), *root.glob("generated/*.py")]:
        try:
            stat = path.stat()
        except OSError:  # deleted a moment ago
            continue
        yield str(path), stat.st_mtime_ns, stat.st_ino


def main(argv: list[str] | None = None) -> int:
    import argparse

    parser = argparse.ArgumentParser("tangle.py", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="with --take: only these modules")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent)
    does = parser.add_mutually_exclusive_group()
    for flag, what in (
        ("--check", "write nothing; 1 if package and chapters differ"),
        ("--sync", "carry an edit of a module into its chapter, too"),
        ("--watch", "--sync at every save"),
    ):
        does.add_argument(flag, action="store_true", help=what)
    sides, what = ("chapter", "module"), "the side that wins where both were edited"
    does.add_argument("--take", choices=sides, default="", help=what)
    args = parser.parse_args(argv)
    if args.names and not args.take:
        parser.error("names of modules go with --take")
    try:
        if args.watch:
            watch(args.root)
        elif args.check:
            if problems := check(args.root):
                raise BookError(problems)
        else:
            root, sync, take = args.root, args.sync, args.take
            for note in tangle(root, sync=sync, take=take, names=args.names):
                print(note)
    except KeyboardInterrupt:
        return 130
    except BookError as fault:
        print(fault, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
