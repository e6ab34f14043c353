"""Keys: what an output depends on, as a digest.

The *execution key* of a chapter decides whether its cached outputs still hold: its
cells, inline expressions and options, the code that it imports from this
repository (followed transitively, without running anything), the captures it
reads, package versions, and what the kernels run on.  Prose does not count.

The *capture key* of a cell decides whether what a GPU said still holds.  It is made
from syntax trees alone, so that it is the same on every Python version and does
not change with prose, comments or formatting.
"""

from __future__ import annotations

import ast
import ctypes
import hashlib
import itertools
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib import metadata
from pathlib import Path

from loom import scopes, syntax
from loom.parts import Code, Parts, Text
from tangle import Cell, Chapter

TOPS = ("generated", "loom", "benchmarks", "exercises", "tangle", "weave")
ROOTS = ("loom.begin", "loom.lines", "loom.captures", "loom.execute")
PACKAGES = ("torch", "triton", "numpy", "matplotlib", "ipython", "ipykernel")
# Options that only the renderer reads.
SHOWN = frozenset(
    "fig-cap fig-alt fig-subcap layout-ncol tbl-cap tbl-colwidths lst-cap lst-label"
    " code-fold code-summary echo include".split()
)
HOME = Path(__file__).resolve().parent.parent
MODULE = re.compile(rf"({'|'.join(TOPS)})(\.\w+)*")
IMPORT = re.compile(rf"from ((?:{'|'.join(TOPS)})[\w.]*) import ([\w, ]+)")
FILE = re.compile(r"[\w./-]{3,120}")


def digest(*parts: object) -> str:
    """SHA-256 of texts; their borders count."""
    text = json.dumps([str(part) for part in parts])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# ------------------------------------------------------------- syntax tree as a text


def canonical(node: ast.AST | object) -> str:
    """A syntax tree as a text that is the same on every Python version.

    Skipped: positions, docstrings, ``kind``, ``type_comment`` and empty fields; a
    field that a later Python adds is empty where older code does not use it.
    """
    if isinstance(node, ast.JoinedStr):
        return f"JoinedStr({','.join(_joined(node.values))})"
    if isinstance(node, ast.Constant):
        return f"{type(node.value).__name__}:{ascii(node.value)}"
    if isinstance(node, ast.AST):
        fields = []
        for name in node._fields:
            value = getattr(node, name, None)
            if name in ("kind", "type_comment", "type_ignores", "ctx"):
                continue
            if name == "body" and isinstance(value, list):
                value = _without_docstring(node, value)
            if value is None or value == [] or (type(value) is int and not value):
                continue
            fields.append(f"{name}={canonical(value)}")
        return f"{type(node).__name__}({','.join(sorted(fields))})"
    if isinstance(node, list):
        return f"[{','.join(map(canonical, node))}]"
    return ascii(node)


def _joined(values: list[ast.expr]) -> Iterator[str]:
    """The parts of an f-string, neighboring texts merged."""
    text = ""
    for value in values:
        if isinstance(value, ast.Constant):
            text += str(value.value)
            continue
        if text:
            yield ascii(text)
        text = ""
        yield canonical(value)
    if text:
        yield ascii(text)


def _without_docstring(node: ast.AST, body: list[ast.stmt]) -> list[ast.stmt]:
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return body[1:] if isinstance(node, holders) and docstring(body) else body


def docstring(body: list[ast.stmt]) -> ast.Constant | None:
    """The docstring node that begins a body."""
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return first.value if isinstance(first.value.value, str) else None
    return None


def parse(code: str) -> tuple[ast.Module, str]:
    """The tree of a cell's code, and the text of its magic and shell lines.

    Code that still does not parse counts as one long text.
    """
    try:
        return syntax.parse(code), ""
    except (SyntaxError, ValueError):
        pass
    lines = code.split("\n")
    magic = [line.lstrip()[:1] in ("%", "!") for line in lines]
    kept = "\n".join("" if m else line for line, m in zip(lines, magic, strict=True))
    said = "\n".join(line for line, m in zip(lines, magic, strict=True) if m)
    try:
        return syntax.parse(kept), said
    except (SyntaxError, ValueError):
        return syntax.parse(""), code


def code_digest(code: str) -> str:
    """The digest of code by its syntax tree alone."""
    return tree_digest(*parse(code))


def tree_digest(tree: ast.Module, rest: str = "") -> str:
    """The digest of a tree and of the magic lines that stood beside it."""
    return digest(canonical(tree), rest)


# ----------------------------------------------------------------------- names of cells


@lru_cache(maxsize=4096)
def names(code: str) -> tuple[frozenset[str], frozenset[str]]:
    """The global names that a cell binds, and those that it reads."""
    found = scopes.of(parse(code)[0].body)
    return found.bound, found.reads | found.late


@lru_cache(maxsize=4096)
def statements(code: str) -> tuple[tuple[ast.stmt, scopes.Names], ...]:
    """The statements of a cell, each with its names."""
    return tuple((node, scopes.of([node])) for node in parse(code)[0].body)


# -------------------------------------------------------------------- following imports


@dataclass(frozen=True)
class File:
    """A file that outputs depend on, by its path from the root."""

    rel: str
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8", errors="surrogateescape")

    @cached_property
    def cells(self) -> list[tuple[int, str]]:
        """Line number and code of each tangled cell; all of it in other files."""
        if not self.rel.startswith("generated/") or self.path.suffix != ".py":
            return [(1, self.text)]
        found, lines = [], self.text.split("\n")
        start = 0
        for i, line in enumerate(lines):
            if start and line == "# ```":
                found.append((start + 1, "\n".join(lines[start:i])))
                start = 0
            elif not start and line == "# ```{python}" and lines[i + 1][:2] == "#|":
                start = i + 1
        return found

    @cached_property
    def code(self) -> str:
        return "\n".join(code for _, code in self.cells)

    @cached_property
    def tree(self) -> ast.Module:
        return running_code(self.code if self.path.suffix == ".py" else "")


class Sources:
    """The repository's Python files, and which of them a piece of code reaches."""

    def __init__(self, root: Path) -> None:
        self.bases = (root, HOME) if root != HOME else (root,)
        self.root = root
        self._files: dict[str, File | None] = {}
        self._direct: dict[str, set[str]] = {}
        self._folders: dict[Path, frozenset[str]] = {}

    def file(self, rel: str) -> File | None:
        if rel not in self._files:
            found = (base / rel for base in self.bases if (base / rel).is_file())
            path = next(found, None)
            self._files[rel] = File(rel, path) if path else None
        return self._files[rel]

    def module(self, name: str) -> str | None:
        """The file of a module (``loom.trace`` → ``loom/trace.py``)."""
        stem = name.replace(".", "/")
        for rel in (f"{stem}.py", f"{stem}/__init__.py"):
            if self.file(rel):
                return rel
        return None

    def package(self, name: str) -> set[str]:
        """Every file of a package."""
        stem = name.replace(".", "/")
        homes = (base for base in self.bases if (base / stem).is_dir())
        return {
            path.relative_to(base).as_posix()
            for base in itertools.islice(homes, 1)
            for path in (base / stem).rglob("*.py")
            if "__pycache__" not in path.parts
        }

    def chain(self, name: str) -> set[str]:
        """The files that ``import a.b.c`` runs."""
        steps = name.split(".")
        found = (self.module(".".join(steps[: i + 1])) for i in range(len(steps)))
        return {rel for rel in found if rel}

    def member(self, package: str, name: str) -> set[str]:
        """The files behind a name of a package: a submodule, a lazy name, or, when
        nobody can tell, all of them."""
        own = self.chain(package)
        rel = self.module(package)
        if rel is None or not rel.endswith("__init__.py"):
            return own
        found = own | self.chain(f"{package}.{name}")
        init = self.file(rel)
        assert init is not None
        table = lazy_table(init.tree)
        if name in table:
            target = table[name]
            inside = self.module(f"{package}.{target}")
            found |= self.chain(f"{package}.{target}" if inside else target)
        elif name == "*" or (found == own and name not in names(init.code)[0]):
            found |= self.package(package)
        return found

    def direct(self, tree: ast.Module, rel: str = "", text: str = "") -> set[str]:
        """The files that code names: by import, by attribute, or in a string."""
        found: set[str] = set()
        aliases: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for item in node.names:
                    if MODULE.fullmatch(item.name):
                        found |= self.chain(item.name)
                        top = item.name.split(".")[0]
                        aliases[item.asname or top] = item.name if item.asname else top
            elif isinstance(node, ast.ImportFrom):
                module = self._absolute(node, rel)
                if MODULE.fullmatch(module):
                    for item in node.names:
                        found |= self.member(module, item.name)
                        if self.module(f"{module}.{item.name}"):
                            aliases[item.asname or item.name] = f"{module}.{item.name}"
        skipped = _not_paths(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.value.id in aliases and not node.attr.startswith("__"):
                    found |= self.member(aliases[node.value.id], node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                if id(node) not in skipped:
                    found |= self._named(node.value, rel)
        return found | self._named(text, rel)

    @staticmethod
    def _absolute(node: ast.ImportFrom, rel: str) -> str:
        if not node.level:
            return node.module or ""
        steps = rel.split("/")[: -node.level]
        return ".".join([*steps, *([node.module] if node.module else [])])

    def _named(self, text: str, rel: str) -> set[str]:
        """Modules (``-m loom.worker``) and files (``"worker.py"``) in a string.

        Files are looked for beside the module that names them; what a cell names,
        from the root.  Chapters do not count: cells that read one are watched.
        """
        found: set[str] = set()
        if len(text) > 2000:
            return found
        for module, members in IMPORT.findall(text):
            for name in re.findall(r"\w+", members):
                found |= self.member(module, name)
        folder = rel.rpartition("/")[0] + "/" if "/" in rel else ""
        for word in re.split(r"[\s\"'=:,()]+", text):
            if not FILE.fullmatch(word):
                continue
            if "." in word and MODULE.fullmatch(word):
                found |= self.chain(word)
            if not rel and word == "make":
                word = "Makefile"
            if (folder or not rel) and self._exists(folder + word):
                found.add(folder + word)
        return found

    def _exists(self, rel: str) -> bool:
        """Whether the repository has this file; hidden ones and chapters do not
        count."""
        steps = rel.split("/")
        hidden = any(not step or step[0] == "." for step in steps)
        if hidden or rel.endswith(".qmd") or steps[0].startswith("_"):
            return False
        for base in self.bases:
            folder = base.joinpath(*steps[:-1])
            if folder not in self._folders:
                try:
                    self._folders[folder] = frozenset(os.listdir(folder))
                except OSError:
                    self._folders[folder] = frozenset()
            if steps[-1] in self._folders[folder] and (folder / steps[-1]).is_file():
                return True
        return False

    def closure(self, rels: Iterable[str]) -> set[str]:
        """The files and all that they reach."""
        found: set[str] = set()
        stack = list(rels)
        while stack:
            rel = stack.pop()
            file = self.file(rel)
            if rel in found or file is None:
                continue
            found.add(rel)
            if rel not in self._direct:
                self._direct[rel] = self.direct(file.tree, rel)
            stack += self._direct[rel]
            if rel == "generated/__init__.py":
                stack += self._data("generated")
        return found

    def _data(self, package: str) -> list[str]:
        """The package's files that are not code, such as tuned tables."""
        return [
            path.relative_to(base).as_posix()
            for base in self.bases[:1]
            for path in (base / package).rglob("*")
            if path.is_file() and path.suffix in (".json", ".csv", ".txt")
        ]


def lazy_table(tree: ast.Module) -> dict[str, str]:
    """Which module defines a lazy name, by the tables at the top of a package.

    A table is ``{"name": "module"}`` or ``{"module": ("name", …)}``.
    """
    found: dict[str, str] = {}
    for table in filter(None, map(_table, tree.body)):
        for key, value in table.items():
            if isinstance(value, str):
                found[key] = value
            else:
                found |= dict.fromkeys(value, key)
    return found


def _table(statement: ast.stmt) -> dict[str, str | tuple[str, ...]] | None:
    """The value of ``NAME = {…}`` when it holds only texts and tuples of texts."""
    value = getattr(statement, "value", None)
    named = isinstance(statement, ast.Assign | ast.AnnAssign)
    if not named or not isinstance(value, ast.Dict) or not value.keys:
        return None
    try:
        found = ast.literal_eval(value)
    except ValueError:
        return None
    texts = [*found, *(v for v in found.values() if not isinstance(v, tuple))]
    texts += [text for v in found.values() if isinstance(v, tuple) for text in v]
    return found if all(isinstance(text, str) for text in texts) else None


def _for_checkers(node: ast.AST) -> bool:
    """Whether a statement is ``if TYPE_CHECKING:``, whose body never runs."""
    if not isinstance(node, ast.If):
        return False
    test = node.test
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


class _Running(ast.NodeTransformer):
    """Takes out what is only for type checkers."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt] | None:
        self.generic_visit(node)
        return node.orelse or None if _for_checkers(node) else node


def running_code(code: str) -> ast.Module:
    """The tree of code without what is only for type checkers."""
    tree: ast.Module = _Running().visit(parse(code)[0])
    return tree


def _of_package(code: str) -> str:
    """What counts of a package's own code for a capture: without the tables of lazy
    names, whose members are followed one by one, and without its version."""
    tree = running_code(code)

    def counts(statement: ast.stmt) -> bool:
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        dunder = any(isinstance(t, ast.Name) and t.id.startswith("__") for t in targets)
        return _table(statement) is None and not dunder

    tree.body = [statement for statement in tree.body if counts(statement)]
    return digest(canonical(tree))


def _not_paths(tree: ast.Module) -> set[int]:
    """Strings that name nothing to follow: docstrings and lazy tables."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and (found := docstring(body)):
            skipped.add(id(found))
    for statement in tree.body:
        if _table(statement) is not None:
            skipped |= {id(node) for node in ast.walk(statement)}
    return skipped


# ------------------------------------------------------------------------ the two keys


@dataclass(frozen=True)
class Key:
    """A digest, and what went into it by name.

    ``lines`` holds a digest of the line numbers of the code of each file.  It is no
    part of the key: it counts only for outputs that show line numbers.
    """

    parts: dict[str, str]
    lines: dict[str, str] = field(default_factory=dict)

    @cached_property
    def value(self) -> str:
        return digest(*sorted(self.parts.items()))

    def changed(self, before: dict[str, str]) -> list[str]:
        """The names of what differs from an earlier key."""
        both = sorted(self.parts.keys() | before.keys())
        return [name for name in both if self.parts.get(name) != before.get(name)]


def execution_key(sources: Sources, parts: Parts) -> Key:
    """The key of a chapter's outputs."""
    chapter = parts.chapter
    cells: list[object] = []
    direct = {rel for name in ROOTS for rel in sources.chain(name)}
    for code in _codes(parts):
        tree, rest = parse(code)
        direct |= sources.direct(tree, "", rest)
        cells.append(code)
    for part in parts.parts:
        if isinstance(part, Code):
            cells += [part.cell.label, _options(part), part.runs]
        else:
            cells.append(len(part.inlines))
    found = {
        "cells": digest(chapter.name, chapter.module, *cells),
        "captures": digest(*_captures(sources.root, chapter)),
        "versions": digest(*versions()),
        "machine": machine(),
    }
    lines = {chapter.rel: digest(*(cell.first for cell in chapter.cells))}
    for rel in sorted(sources.closure(direct)):
        file = sources.file(rel)
        assert file is not None
        if rel == chapter.module:  # its code is that of the cells
            continue
        found[rel] = digest(file.code)
        if rel.startswith("generated/"):
            lines[rel] = digest(*(line for line, _ in file.cells))
    return Key(found, lines)


def _codes(parts: Parts) -> Iterator[str]:
    """Everything that runs, in order."""
    for part in parts.parts:
        if isinstance(part, Text):
            yield from (inline.code for inline in part.inlines)
        elif part.runs:
            yield part.cell.code


def read_digest(sources: Sources, rel: str) -> tuple[str, str]:
    """What counts of a file that cells have read, and of its line numbers.

    Of code: the code.  Of a chapter: its headings and cells, not its prose, so that
    a page which lists the chapters is not made again for every sentence.
    """
    file = sources.file(rel)
    if file is None:
        return "absent", "absent"
    if file.path.suffix == ".qmd":
        found, at, inside = [], [], False
        for number, line in enumerate(file.text.split("\n"), 1):
            fence = line.startswith("```")
            if inside or fence or line.startswith("#"):
                found.append(line)
                at.append(number)
            inside = inside != fence
        return digest(*found), digest(*at)
    return digest(file.code), digest(*(line for line, _ in file.cells))


def _options(part: Code) -> str:
    kept = {k: v for k, v in part.options.items() if k not in SHOWN}
    return json.dumps(kept, sort_keys=True, default=str)


def _captures(root: Path, chapter: Chapter) -> Iterator[str]:
    for cell in chapter.cells:
        if cell.capture:
            path = root / "captures" / chapter.name / f"{cell.label}.json"
            yield digest(path.read_text("utf-8", "replace")) if path.is_file() else "-"


def versions() -> Iterator[str]:
    yield sys.version
    for package in PACKAGES:
        try:
            yield f"{package} {metadata.version(package)}"
        except metadata.PackageNotFoundError:
            yield f"{package} -"


def machine() -> str:
    """What kernels run on: the interpreter, or the GPU by name."""
    wish = os.environ.get("TRITON_INTERPRET")
    device = gpu_name()
    return f"TRITON_INTERPRET={wish} gpu={device or 'none'}"


@lru_cache(maxsize=1)
def gpu_name() -> str | None:
    """The first CUDA device's name, asked of the driver; None without one."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        device, count = ctypes.c_int(), ctypes.c_int()
        name = ctypes.create_string_buffer(128)
        if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
            return None
        if not count.value or cuda.cuDeviceGet(ctypes.byref(device), 0):
            return None
        cuda.cuDeviceGetName(name, len(name), device)
        return name.value.decode("utf-8", "replace")
    except (OSError, AttributeError):
        return None


def capture_key(sources: Sources, chapter: Chapter, cell: Cell) -> Key:
    """The key of one capture: code only.

    The cell, the statements before it that define what it uses, the chapter's tangled
    cells, and every ``generated``, ``benchmarks`` and timing module imported.
    """
    used = _defining(chapter, cell)
    used |= {c.label: parse(c.code) for c in chapter.cells if c.tangled}
    used[cell.label] = parse(cell.code)
    direct: set[str] = set()
    for tree, rest in used.values():
        direct |= sources.direct(tree, "", rest)
    found = {f"cell {label}": tree_digest(*one) for label, one in used.items()}
    own = chapter.module
    for rel in sorted(sources.closure(direct)):
        timed = rel.startswith(("generated/", "benchmarks/", "loom/bench"))
        if timed and rel != own and rel.endswith(".py"):
            file = sources.file(rel)
            assert file is not None
            package = rel.endswith("/__init__.py")
            found[rel] = (_of_package if package else code_digest)(file.code)
    return Key(found)


def _defining(chapter: Chapter, cell: Cell) -> dict[str, tuple[ast.Module, str]]:
    """What the cells before `cell` hold of what it uses, directly or through others:
    the statements that bind or change a name of it.

    Where a statement surely binds a name, what the name was before does not count.
    A name that a function reads counts with the value it has when `cell` runs, too.
    """
    before = [c for c in chapter.cells if c.first < cell.first]
    before = [c for c in before if c.options.get("eval") != "false"]
    lines = [(c, node, said) for c in before for node, said in statements(c.code)]
    end = len(lines)
    own = scopes.of(parse(cell.code)[0].body)
    todo = [(name, end) for name in own.reads | own.late | own.changed - own.surely]
    seen: set[tuple[str, int]] = set()
    found: set[int] = set()
    while todo:
        name, start = todo.pop()
        if (name, start) in seen:
            continue
        seen.add((name, start))
        for i in reversed(range(start)):
            said = lines[i][2]
            if name in said.bound or name in said.changed:
                found.add(i)
                todo += [(used, i) for used in said.reads | said.late | said.changed]
                todo += [(used, end) for used in said.late]
            if name in said.surely:
                break
    used: dict[str, tuple[ast.Module, str]] = {}
    for i in sorted(found):
        one, node, _ = lines[i]
        used.setdefault(one.label, (ast.Module([], []), parse(one.code)[1]))
        used[one.label][0].body.append(node)
    return used


def stale_parts(
    sources: Sources, chapter: Chapter, cell: Cell, key: str, parts: dict[str, str]
) -> list[str]:
    """What changed since a capture with this key; empty while it holds."""
    now = capture_key(sources, chapter, cell)
    if now.value == key:
        return []
    return now.changed(parts) or ["the key itself"]
