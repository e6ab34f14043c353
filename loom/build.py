"""One weave: tangle, lint, execute, render, and put the book in its place."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tangle
from tangle import Book, BookError, Chapter, Problem

if TYPE_CHECKING:
    from loom.progress import Progress
    from loom.woven import Woven

FORMATS = ("html", "pdf")
OUT = "_book"
MISSING_IS_A_FAULT = True
"""Whether `check` fails for a capture cell that no GPU has run."""


@dataclass(frozen=True)
class Options:
    """What a weave is asked for."""

    names: tuple[str, ...] = ()
    formats: tuple[str, ...] = FORMATS
    renderer: str = "auto"
    use_cache: bool = True
    jobs: int | None = None


@dataclass
class Built:
    """What a weave did: files written (none when all was up to date), and notes."""

    files: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def weave(root: Path, options: Options, progress: Progress) -> Built:
    """Weave the book below `root` into ``_book``.

    Raises BookError (ExecutionError for cells); the old book is then untouched.
    """
    built = Built(notes=tangle.tangle(root))
    book = tangle.read_book(root)
    names = chapter_names(book, options.names)
    if problems := lint(book):
        raise BookError(problems)
    binary = _renderer(options.renderer)
    wovens, partial = _execute(book, names, options, progress)
    if partial:
        built.files = _render(wovens, book, ["html"], None, other=False)
        built.notes.append(
            f"only {', '.join(names)} was woven, as HTML: the outputs of other"
            " chapters are not in the cache; `python weave.py` makes the whole book"
        )
        return built
    stamp = Stamp(book, wovens, binary or "embedded")
    forced = not options.use_cache
    formats = [f for f in options.formats if forced or stamp.outdated(f)]
    if formats:
        built.files = _render(wovens, book, formats, binary, stamp.other)
        stamp.write(formats)
    return built


def chapter_names(book: Book, names: Sequence[str]) -> list[str]:
    """The module names of chapters given by name or by path."""
    by_name = {c.name: c.name for c in book.chapters}
    by_name |= {c.rel: c.name for c in book.chapters}
    by_name |= {Path(c.rel).stem: c.name for c in book.chapters}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        known = ", ".join(c.name for c in book.chapters)
        raise BookError(
            [
                Problem("_quarto.yml", 1, f"no chapter {n!r}; known: {known}")
                for n in unknown
            ]
        )
    return [by_name[name] for name in names]


def lint(book: Book, stored: bool = True) -> list[Problem]:
    """Everything that can be known without executing; with ``stored``, faults of
    stored captures, too."""
    from loom import captures
    from loom import lint as lints
    from loom.parts import split
    from loom.render.config import read_config

    problems = list(lints.check(book, read_config(book.root)))
    for chapter in book.chapters:
        try:
            split(chapter)
        except BookError as fault:
            problems += fault.problems
        for cell in chapter.cells if stored else ():
            if cell.capture:
                path = captures.capture_path(book.root, chapter, cell.label)
                try:
                    captures.load(path, book.root)
                except BookError as fault:
                    problems += fault.problems
    return problems


def check(root: Path) -> tuple[list[Problem], list[str]]:
    """Check without executing: the problems, and notes that are no fault.

    Package against chapters, lint, cross-references, and captures: stale ones and
    those of no cell are problems, missing ones by `MISSING_IS_A_FAULT`.
    """
    from loom import captures

    problems = tangle.check(root)
    try:
        book = tangle.read_book(root)
    except BookError as fault:
        return list(dict.fromkeys([*problems, *fault.problems])), []
    problems += lint(book)
    if not problems:
        problems += _references(book)
    stale, missing = _captures(book)
    problems += [*stale, *captures.strays(book)]
    if MISSING_IS_A_FAULT:
        return problems + missing, []
    return problems, [str(problem) for problem in missing]


def _references(book: Book) -> list[Problem]:
    """Cross-references, links and citations that lead nowhere."""
    from loom.execute import bare_chapter
    from loom.keys import Sources
    from loom.render.config import read_config
    from loom.render.document import load_pages

    sources = Sources(book.root)
    wovens = [bare_chapter(sources, chapter) for chapter in book.chapters]
    cache = book.root / ".weave" / "pandoc-check"
    with tempfile.TemporaryDirectory() as assets:
        try:
            load_pages(wovens, book, read_config(book.root), Path(assets), cache)
        except BookError as fault:
            return fault.problems
    return []


def _captures(book: Book) -> tuple[list[Problem], list[Problem]]:
    """Stale captures, and cells that no GPU has run."""
    from loom import captures, keys

    sources = keys.Sources(book.root)
    stale, missing = [], []
    for chapter in book.chapters:
        for cell in captures.capture_cells(chapter):
            path = captures.capture_path(book.root, chapter, cell.label)
            try:
                found = captures.load(path, book.root)
            except BookError:  # the lint has named it
                continue
            if found is None:
                what = f"'{cell.label}' is not yet run on a GPU; {_again(chapter)}"
                missing.append(Problem(chapter.rel, cell.first, what))
                continue
            changed = keys.stale_parts(sources, chapter, cell, found.key, found.parts)
            if changed:
                what = f"the capture '{cell.label}' is stale; changed: "
                what += f"{', '.join(changed)}; {_again(chapter)}"
                stale.append(Problem(chapter.rel, cell.first, what))
    return stale, missing


def _again(chapter: Chapter) -> str:
    return f"run `python weave.py --capture --chapter {chapter.name}` on a GPU"


def _renderer(wish: str) -> str | None:
    """The path of Quarto, or None for the embedded renderer."""
    if wish == "embedded":
        return None
    from loom import quarto

    binary = quarto.find()
    if binary is None and wish == "quarto":
        what = "no working quarto (1.4 or later) on the PATH; use --renderer embedded"
        raise BookError([Problem("_quarto.yml", 1, what)])
    return binary


def _execute(
    book: Book, names: list[str], options: Options, progress: Progress
) -> tuple[list[Woven], bool]:
    """The executed chapters, and whether some are left out.

    With names, only these are executed; the others come from the cache, and when one
    of them is not there, only the named ones are given.
    """
    from loom import execute, keys

    wovens = execute.weave_chapters(
        book,
        names or None,
        progress,
        jobs=options.jobs,
        use_cache=options.use_cache,
    )
    if not names:
        return wovens, False
    by_rel = {woven.chapter.rel: woven for woven in wovens}
    sources = keys.Sources(book.root)
    for chapter in book.chapters:
        if chapter.rel not in by_rel:
            found = execute.cached_chapter(sources, chapter)
            if found is None:
                return wovens, True
            by_rel[chapter.rel] = found
    return [by_rel[chapter.rel] for chapter in book.chapters], False


def _render(
    wovens: list[Woven],
    book: Book,
    formats: Sequence[str],
    binary: str | None,
    other: bool,
) -> list[Path]:
    """Render the book; the files written.

    The embedded renderer renews `_book` itself, once everything is made.  Quarto, and
    a book that the `other` renderer made before, get a new folder that is put in the
    old one's place.
    """
    target = book.root / OUT
    if not binary and not other:
        from loom import render

        return render.build(wovens, book, target, tuple(formats))
    store = book.root / ".weave"
    store.mkdir(exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix="book-", dir=store))
    try:
        if binary:
            from loom import quarto

            files = quarto.render(wovens, book, fresh, formats, binary)
        else:
            from loom import render

            files = render.build(wovens, book, fresh, tuple(formats))
        rels = [path.relative_to(fresh) for path in files]
        if not other:
            _carry(target, fresh, formats)
        _swap(fresh, target, store)
        return [target / rel for rel in rels]
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _carry(old: Path, fresh: Path, formats: Sequence[str]) -> None:
    """Keep what another format left in the old book."""
    if not old.is_dir() or set(formats) == set(FORMATS):
        return
    for path in sorted(old.rglob("*")):
        goal = fresh / path.relative_to(old)
        is_pdf = path.suffix == ".pdf" and path.parent == old
        kept = is_pdf if "html" in formats else not is_pdf
        if path.is_file() and kept and not goal.exists():
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, goal)


def _swap(fresh: Path, target: Path, store: Path) -> None:
    """Put a finished folder in place of the old one."""
    os.chmod(fresh, 0o755)
    if not target.exists():
        os.rename(fresh, target)
        return
    old = Path(tempfile.mkdtemp(prefix="old-", dir=store))
    os.rename(target, old / OUT)
    try:
        os.rename(fresh, target)
    except BaseException:
        os.rename(old / OUT, target)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


class Stamp:
    """What the book in ``_book`` was made from, by format."""

    def __init__(self, book: Book, wovens: list[Woven], renderer: str) -> None:
        self.root = book.root
        self.path = book.root / ".weave" / "built.json"
        self.renderer = "quarto" if renderer != "embedded" else renderer
        self.value = self._value(wovens, renderer)
        try:
            said = json.loads(self.path.read_bytes())
            self.said: dict[str, Any] = said if isinstance(said, dict) else {}
        except (OSError, ValueError):
            self.said = {}
        # whether the other renderer made what stands in _book
        self.other = self.said.get("renderer", self.renderer) != self.renderer

    def _value(self, wovens: list[Woven], renderer: str) -> str:
        """A digest of everything that pages are made from."""
        from loom.keys import digest
        from loom.woven import Prose

        parts: list[object] = [renderer, *_versions()]
        for woven in wovens:
            parts += [woven.chapter.rel, woven.chapter.text]
            for part in woven.parts:
                if isinstance(part, Prose):
                    parts.append(part.text)
                else:
                    parts += [part.status, json.dumps(part.outputs, sort_keys=True)]
        files = [self.root / "_quarto.yml", *sorted((self.root / "book").rglob("*"))]
        files += sorted(Path(__file__).parent.rglob("*"))
        for path in files:
            hidden = "__pycache__" in path.parts or path.suffix == ".qmd"
            if path.is_file() and not hidden:
                parts += [path.name, path.read_bytes()]
        return digest(*parts)

    def outdated(self, name: str) -> bool:
        """Whether a format has to be rendered again."""
        entry = self.said.get(name)
        if not isinstance(entry, dict) or entry.get("made_from") != self.value:
            return True
        files = entry.get("files")
        return not isinstance(files, dict) or files != self._files(name)

    def _files(self, name: str) -> dict[str, list[int]]:
        """Size and time of a format's files in the book."""
        found = {}
        out = self.root / OUT
        for path in sorted(out.rglob("*")):
            is_pdf = path.suffix == ".pdf" and path.parent == out
            if path.is_file() and is_pdf == (name == "pdf"):
                state = path.stat()
                rel = path.relative_to(out).as_posix()
                found[rel] = [state.st_size, state.st_mtime_ns]
        return found if name == "html" or found else {"": []}

    def write(self, formats: Sequence[str]) -> None:
        """Remember that these formats are up to date now."""
        if self.other:
            self.said = {}
        self.said["renderer"] = self.renderer
        for name in formats:
            self.said[name] = {"made_from": self.value, "files": self._files(name)}
        spare = self.path.with_suffix(f".{os.getpid()}.tmp")
        spare.write_text(json.dumps(self.said), encoding="utf-8")
        os.replace(spare, self.path)


def _versions() -> list[str]:
    found = []
    for package in ("pypandoc_binary", "typst", "pygments", "pyyaml"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append(f"{package} {metadata.version(package)}")
    return found
