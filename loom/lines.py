"""Line-true cells: code run in a notebook carries its chapter's file and lines.

A cell is compiled under the module's path (``generated/jit.py``), or the
chapter's when it has no module, and its first line gets the number it has in the
chapter.  Tracebacks, ``inspect.getsource``, warnings and the IR of a compiled
kernel then name lines that a reader can open.  Cells are recognized by their
source, with its ``#|`` lines (our executor, Jupyter, VS Code) or without
(Quarto), so nothing in the text has to help.
"""

from __future__ import annotations

import ast
import linecache
import os
import re
import sys
import sysconfig
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any

from loom import syntax
from tangle import Cell, Chapter

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PRIVATE = re.compile(r"\.weave/run/[^/\s]+/triton")
ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{6,}")


def body(source: str) -> tuple[int, str]:
    """Where the code of a cell begins, and the code without blank ends.

    The index counts lines from 0 and passes over blank and ``#|`` lines.
    """
    lines = source.split("\n")
    start = 0
    while start < len(lines) and (
        lines[start].startswith("#|") or not lines[start].strip()
    ):
        start += 1
    return start, "\n".join(lines[start:]).rstrip()


def label_of(source: str) -> str:
    """The label in the leading option lines, or an empty string."""
    for line in source.split("\n"):
        if not line.startswith("#|"):
            break
        if match := re.match(r"#\|\s*label:\s*[\"']?([\w-]+)", line):
            return match[1]
    return ""


class Cells:
    """The cells of a chapter, found again by source."""

    def __init__(self, chapter: Chapter) -> None:
        self.name = chapter.module or chapter.rel
        self.text = chapter.text
        self.cells = chapter.cells
        self.bodies = [body(cell.code)[1] for cell in chapter.cells]
        self.last = -1

    def find(self, source: str) -> int | None:
        """The index of the cell with this source; None when there is none.

        Of cells with the same code, the label decides, then the order: the first
        one after the last that ran.
        """
        code, label = body(source)[1], label_of(source)
        same = [i for i, known in enumerate(self.bodies) if known == code and code]
        labelled = [i for i in same if self.cells[i].label == label]
        later = [i for i in same if i > self.last]
        return next(iter(labelled or later or same), None)

    def line(self, index: int) -> int:
        """The chapter's line of the first line of code of a cell."""
        cell = self.cells[index]
        return cell.code_line + body(cell.code)[0]

    def view(self) -> list[str]:
        """The chapter as Python: runnable cells raw, all else commented."""
        lines = self.text.split("\n")
        raw: set[int] = set()
        for cell in self.cells:
            raw |= _python_lines(cell)
        return [
            (line if number in raw or not line else "# " + line) + "\n"
            for number, line in enumerate(lines, 1)
        ]


def _python_lines(cell: Cell) -> set[int]:
    """The line numbers of a cell that Python can parse."""
    numbers = range(cell.code_line, cell.last)
    lines = cell.code.split("\n")
    for keep in (lambda _: True, lambda line: line.lstrip()[:1] not in ("%", "!")):
        kept = [
            (n, line) for n, line in zip(numbers, lines, strict=False) if keep(line)
        ]
        try:
            syntax.parse("\n".join(line for _, line in kept))
        except (SyntaxError, ValueError):
            continue
        return {n for n, _ in kept}
    return set()


class LineTrue:
    """The hooks in one IPython shell; `install` puts them there."""

    def __init__(self, shell: Any, root: Path) -> None:
        self.shell = shell
        self.root = root
        self.cells: Cells | None = None
        self.view: list[str] = []
        self.shift = 0
        compiler = shell.compile
        self._cache, self._parse = compiler.cache, compiler.ast_parse
        compiler.cache, compiler.ast_parse = self.cache, self.parse
        self._show = shell._showtraceback
        shell._showtraceback = self.show
        shell.user_expressions = self.expressions

    def use(self, chapter: Chapter) -> None:
        self.cells = Cells(chapter)
        self.view = self.cells.view()
        self._fill()

    def _fill(self) -> None:
        if self.cells:
            size = sum(map(len, self.view))
            linecache.cache[self.cells.name] = (size, None, self.view, self.cells.name)

    def cache(self, code: str, number: int = 0, raw_code: str | None = None) -> str:
        """Name a piece of code: the chapter's name when it is one of its cells."""
        cells = self.cells
        index = cells.find(raw_code or code) if cells else None
        if cells is None or index is None:
            return self._cache(code, number, raw_code)
        cells.last = index
        self.shift = cells.line(index) - 1 - body(code)[0]
        self._fill()
        return cells.name

    def parse(
        self, source: str, filename: str = "<unknown>", symbol: str = "exec"
    ) -> Any:
        """Parse a cell at its place: blank lines above it shift the numbers."""
        if not self.cells or filename != self.cells.name:
            return self._parse(source, filename, symbol)
        if self.shift >= 0:
            return self._parse("\n" * self.shift + source, filename, symbol)
        tree = self._parse(source, filename, symbol)
        return ast.increment_lineno(tree, self.shift)

    def show(self, kind: type, value: BaseException, lines: Sequence[str]) -> None:
        """Show a traceback without machine paths."""
        self._show(kind, value, [tidy(line.rstrip("\n"), self.root) for line in lines])

    def expressions(self, expressions: dict[str, str]) -> dict[str, Any]:
        """Values of inline expressions: their markdown, or else ``str``.

        IPython alone would give the ``repr``: quotes around a string, and
        ``np.float64(…)`` around a number.
        """
        shell = self.shell
        results: dict[str, Any] = {}
        for key, expression in expressions.items():
            try:
                code = compile(expression.strip(), "inline expression", "eval")
                value = eval(code, shell.user_global_ns, shell.user_ns)
                data, metadata = shell.display_formatter.format(value)
                data.setdefault("text/markdown", str(value))
            except Exception:
                results[key] = shell._user_obj_error()
            else:
                results[key] = {"status": "ok", "data": data, "metadata": metadata}
        return results


def install(chapter: Chapter, root: Path, shell: Any) -> LineTrue:
    """Make the cells of `chapter` line-true in `shell`; again is harmless."""
    hooks = getattr(shell, "_loom_lines", None)
    if hooks is None:
        hooks = shell._loom_lines = LineTrue(shell, root)
    hooks.use(chapter)
    return hooks


def last_place(name: str) -> list[Any]:
    """File and line of the last exception: the deepest frame in `name`, if any."""
    value = getattr(sys, "last_value", None)
    if isinstance(value, SyntaxError) and value.filename:
        return [value.filename, value.lineno or 1]
    trace: TracebackType | None = getattr(value, "__traceback__", None)
    found: list[Any] = []
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == name:
            found = [name, trace.tb_lineno]
        trace = trace.tb_next
    return found


def tidy(text: str, root: Path) -> str:
    """Text without this machine in it: paths below `root` and of installed packages
    become relative, and addresses and private folders are masked."""
    for prefix, short in _prefixes(root):
        text = text.replace(prefix, short)
    text = PRIVATE.sub("<triton cache>", text)
    return ADDRESS.sub("at 0x…", text)


@lru_cache(maxsize=8)
def _prefixes(root: Path) -> list[tuple[str, str]]:
    paths = [sysconfig.get_path(key) for key in ("purelib", "platlib", "stdlib")]
    home = str(Path(__file__).resolve().parent.parent)
    paths += [path for path in sys.path if path.count(os.sep) > 1]  # PYTHONPATH
    paths = [path.rstrip(os.sep) for path in [str(root), home, *paths] if path]
    found = {path + os.sep: "" for path in paths}
    found |= {os.path.realpath(path) + os.sep: "" for path in found}
    user = os.path.expanduser("~")
    if len(user) > 1:  # IPython has written the user's folder as ~ already
        below = [path for path in found if path.startswith(user + os.sep)]
        found |= {"~" + path[len(user) :]: "" for path in below}
        found.setdefault(user + os.sep, "~/")
    # the longest first: a virtual environment may lie below the root
    return sorted(found.items(), key=lambda item: -len(item[0]))
