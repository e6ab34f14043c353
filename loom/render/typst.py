"""All pages of the book to one Typst project and one PDF.

The project stands in `.weave/typst/`: `main.typ` (title, order of the pages),
`pages/<name>.typ` (one for each page), `assets/` (images), `book.typ` and
`print.tmTheme` (the look) and `fonts/`. The PDF is tagged and keeps to PDF/UA-1, so
Typst itself refuses a glyph without a font and an image without a text.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import re
import struct
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import typst

from loom.render import typst_math
from loom.render.config import Config
from loom.render.document import Page, write_changed
from loom.render.typst_code import string
from loom.render.typst_writer import PageWriter, Picture, Targets, formulas
from loom.woven import CodeCell
from tangle import BookError, Problem

HERE = Path(__file__).parent
STANDARD: Literal["ua-1"] = "ua-1"
IMAGES = (".svg", ".png", ".jpg", ".jpeg", ".gif", ".webp")
LOOK = ("book.typ", "print.tmTheme")
TEXT_FONTS = ("Libertinus Serif", "DejaVu Sans", "New Computer Modern Math")
CODE_FONTS = ("DejaVu Sans Mono", "DejaVu Sans", "New Computer Modern Math")
SANS_FONTS = ("DejaVu Sans", "DejaVu Sans Mono")

_PART = re.compile(r"^(Part\s+\w+)\s*[—–:.-]+\s*(.+)$")
_PLACE = re.compile(r"┌─ (.+?):(\d+):\d+")
_LINE_MARK = re.compile(r"^//@ (\d+)$")
_UNSHOWN = re.compile(r'the text `"(.+?)"` could not be displayed')
_PX = 0.75  # points in a CSS pixel

_compilers: dict[Path, typst.Compiler] = {}
_shown: dict[Path, set[str]] = {}


def build_pdf(
    pages: Sequence[Page],
    config: Config,
    out_path: Path,
    assets: Path,
    work: Path | None = None,
) -> Path:
    """Writes the PDF of `pages` to `out_path` and returns that path.

    Pages that were not executed (`partial`) are left out. `assets` is the folder of
    the images; `work` is where the Typst project is kept, `.weave/typst` under the
    root by default. A copy of the PDF is kept there, so nothing is compiled when
    nothing changed. The PDF is replaced as a whole or not at all.

    Raises:
        BookError: what cannot be printed, with the line of the chapter.
    """
    work = (work or config.root / ".weave" / "typst").resolve()
    pages = [page for page in pages if not page.partial]
    digest = _digest(pages, config)
    state, kept = work / "state.json", work / "book.pdf"
    if not _is_current(state, digest, kept):
        project = Project(work, config, assets, pages)
        project.write()
        project.check_glyphs()
        write_changed(kept, project.compile())
        stat = kept.stat()
        record = {"digest": digest, "size": stat.st_size, "time": stat.st_mtime_ns}
        write_changed(state, json.dumps(record).encode())
    write_changed(out_path, kept.read_bytes())
    return out_path


class Project:
    """The Typst project of one book: its files, brought up to date and compiled."""

    def __init__(
        self, work: Path, config: Config, assets: Path, pages: Sequence[Page]
    ) -> None:
        self.work = work
        self.config = config
        self.assets = assets
        self.pages = pages
        self.rels = {_page_file(page): page.rel for page in pages}

    def write(self) -> None:
        """Writes what changed and removes what is no longer used.

        Raises:
            BookError: with every problem of every page.
        """
        fonts = _install_fonts(self.work / "fonts")
        files = {name: (HERE / name).read_bytes() for name in LOOK}
        files["fonts.json"] = json.dumps(fonts).encode()
        files["main.typ"] = main_file(self.pages, self.config).encode()
        for name, data in files.items():
            write_changed(self.work / name, data)
        used = self._write_pages()
        for folder in ("pages", "assets"):
            for path in (self.work / folder).glob("*"):
                if f"{folder}/{path.name}" not in used:
                    path.unlink()

    def _write_pages(self) -> set[str]:
        """Writes the pages that changed; gives the files that all pages need."""
        targets = Targets.of(self.pages)
        seed = hashlib.sha256(repr(targets).encode() + _own_source()).hexdigest()
        store = self.work / "pages.json"
        old = _read_json(store)
        new: dict[str, Any] = {}
        changed = []
        for page in self.pages:
            name = _page_file(page)
            key = f"{seed} {page.key} {page.part}"
            kept = old.get(name)
            if kept and kept["key"] == key and self._are_here(name, *kept["pictures"]):
                new[name] = kept
            else:
                changed.append((page, name, key))
        math = self._math([page for page, _, _ in changed])
        problems: list[Problem] = []
        for page, name, key in changed:
            pictures: set[str] = set()
            writer = PageWriter(page, targets, math, self._picture(pictures))
            markup = f'#import "/book.typ": *\n{writer.write()}'
            problems += writer.problems
            write_changed(self.work / name, markup.encode())
            new[name] = {"key": key, "pictures": sorted(pictures)}
        if problems:
            raise BookError(problems)
        write_changed(store, json.dumps(new).encode())
        return {*new, *(name for page in new.values() for name in page["pictures"])}

    def _are_here(self, *names: str) -> bool:
        return all((self.work / name).is_file() for name in names)

    def check_glyphs(self) -> None:
        """Raises BookError with every character that no font can show."""
        found: set[str] = set()
        for name in self.rels:
            found.update((self.work / name).read_text(encoding="utf-8"))
        for path in (self.work / "assets").glob("*.svg"):
            found.update("".join(ElementTree.parse(path).getroot().itertext()))
        special = {char for char in found if ord(char) > 126}
        missing = missing_glyphs(self.work, special)
        if missing:
            raise BookError(
                [
                    problem
                    for char in sorted(missing)
                    for problem in _where_used(char, self.pages)
                ]
            )

    def compile(self) -> bytes:
        """The PDF. Raises BookError with the chapter and line of each fault."""
        compiler = _compiler(self.work)
        try:
            data = compiler.compile(
                input=str(self.work / "main.typ"),
                format="pdf",
                pdf_standards=[STANDARD],
            )
        except typst.TypstError as error:
            raise BookError(self._explain(error)) from None
        assert isinstance(data, bytes)
        return data

    def _math(self, pages: Sequence[Page]) -> dict[typst_math.Formula, str]:
        wanted = [formula for page in pages for formula in formulas(page.blocks)]
        try:
            return typst_math.convert(wanted, self.work / "math.json")
        except typst_math.FormulaError as error:
            raise BookError(_formula_places(error.tex, pages)) from None

    def _picture(self, used: set[str]) -> Callable[[str], Picture]:
        """Puts an image into the project, named by its content, and into `used`."""

        def put(source: str) -> Picture:
            suffix = Path(source).suffix.lower()
            if suffix not in IMAGES:
                accepted = ", ".join(IMAGES)
                raise ValueError(f"got the image {source}, accepted are {accepted}")
            try:
                data = (self.assets / source).read_bytes()
                width = _points_wide(data, suffix)
            except (OSError, ElementTree.ParseError) as error:
                raise ValueError(f"image {source} cannot be read: {error}") from None
            name = f"assets/{hashlib.sha256(data).hexdigest()[:16]}{suffix}"
            write_changed(self.work / name, data)
            used.add(name)
            return Picture(f"/{name}", width)

        return put

    def _explain(self, error: typst.TypstError) -> list[Problem]:
        """Typst's errors, each at the place of the chapter that caused it."""
        problems = []
        for report in re.split(r"^(?=error: |warning: )", error.diagnostic, flags=re.M):
            if not report.startswith("error: "):
                continue
            message = report.split("\n", 1)[0].removeprefix("error: ")
            hints = re.findall(r"= hint: (.+)", report)
            words = "; ".join([f"the PDF cannot be set: {message}", *hints])
            places = [
                (name, int(line))
                for path, line in _PLACE.findall(report)
                if (name := f"pages/{Path(path).name}") in self.rels
            ]
            if places:
                name, line = places[0]
                source = (self.work / name).read_text(encoding="utf-8").split("\n")
                excerpt = source[line - 1].strip()[:80]
                problems.append(
                    Problem(
                        self.rels[name],
                        chapter_line(source, line),
                        f"{words} (near: {excerpt})",
                    )
                )
            else:
                place = _PLACE.search(report)
                line = int(place[2]) if place else 1
                where = Path(place[1]).name if place else "main.typ"
                problems.append(Problem(f"loom/render/{where}", line, words))
        return problems or [Problem("_quarto.yml", 1, f"Typst: {error.message}")]


def _page_file(page: Page) -> str:
    return f"pages/{page.woven.chapter.name}.typ"


def main_file(pages: Sequence[Page], config: Config) -> str:
    """The project's main file: title page, parts and pages in order."""
    language, _, region = config.lang.partition("-")
    year = config.date[:4] if re.match(r"\d{4}", config.date) else ""
    lines = [
        '#import "/book.typ": *',
        "#show: book.with(",
        f"  title: {string(config.title)},",
        f"  subtitle: {string(config.subtitle)},",
        f"  authors: ({''.join(string(a) + ', ' for a in config.authors)}),",
        f"  edition: {string(edition(config.date))},",
        f"  year: {string(year)},",
        f"  source: {string(config.repo_url)},",
        f"  description: {string(config.description)},",
        f"  language: {string(language.lower())},",
        f"  region: {string(region.lower()) if region else 'none'},",
        ")",
    ]
    part = ""
    main = False
    for number, page in enumerate(pages):
        if not main and page.rel != "index.qmd":
            lines.append("#show: main-matter")
            main = True
        if page.part and page.part != part:
            match = _PART.match(page.part)
            label, title = match.groups() if match else ("", page.part)
            lines.append(
                f"#part({string(label) if label else 'none'}, "
                f"{string(title)}, {string(f'part:{number}')})"
            )
        part = page.part
        lines.append(f'#include "/pages/{page.woven.chapter.name}.typ"')
    return "\n".join(lines) + "\n"


def edition(written: str) -> str:
    """An ISO date as it is printed; any other text as it is."""
    try:
        day = date.fromisoformat(written)
    except ValueError:
        return written
    return f"{day:%B} {day.day}, {day.year}"


def chapter_line(source: Sequence[str], line: int) -> int:
    """The chapter's line for a line of a page's markup: its last `//@ N` above."""
    for text in reversed(source[:line]):
        if mark := _LINE_MARK.match(text):
            return int(mark[1])
    return 1


def missing_glyphs(work: Path, chars: set[str]) -> set[str]:
    """Those of the characters that no font of the project can show."""
    known = _shown.setdefault(work, set())
    left = {char for char in chars if not char.isspace()} - known
    missing: set[str] = set()
    while left:
        lines = "\n\n".join(f"#text({string(char)})" for char in sorted(left))
        head = '#set document(title: "glyphs")\n#set text(lang: "en")\n'
        probe = work / "glyphs.typ"
        write_changed(probe, (head + lines).encode())
        try:
            _compiler(work).compile(
                input=str(probe), format="pdf", pdf_standards=[STANDARD]
            )
        except typst.TypstError as error:
            unshown = _UNSHOWN.search(error.message)
            bad = left & set(unshown[1]) if unshown else set()
            if not bad:
                raise
            missing |= bad
            left -= bad
        else:
            break
    known |= left
    return missing


def _where_used(char: str, pages: Sequence[Page]) -> list[Problem]:
    """The lines of the chapters that hold the character, or its outputs."""
    message = (
        f"no font of the PDF has {char!r} (U+{ord(char):04X}); "
        "use a character that DejaVu Sans Mono or Libertinus Serif has"
    )
    found = [
        Problem(page.rel, number, message)
        for page in pages
        for number, line in enumerate(page.woven.chapter.text.split("\n"), 1)
        if char in line
    ]
    if found:
        return found
    for page in pages:
        for part in page.woven.parts:
            if isinstance(part, CodeCell) and _has(part.outputs, char):
                rel, line = page.rel, part.cell.first
                found.append(Problem(rel, line, f"in this cell's output, {message}"))
    return found or [Problem("_quarto.yml", 1, message)]


def _has(outputs: list[dict[str, Any]], char: str) -> bool:
    return char in json.dumps(outputs, ensure_ascii=False)


def _formula_places(tex: str, pages: Sequence[Page]) -> list[Problem]:
    message = f"pandoc cannot read the formula ${tex.strip()}$; write it in plain LaTeX"
    first = tex.strip().split("\n")[0]
    for page in pages:
        for number, line in enumerate(page.woven.chapter.text.split("\n"), 1):
            if first in line:
                return [Problem(page.rel, number, message)]
    for page in pages:
        if any(tex == found for _, found in formulas(page.blocks)):
            return [Problem(page.rel, 1, message)]
    return [Problem("_quarto.yml", 1, message)]


def _compiler(work: Path) -> typst.Compiler:
    """One compiler for a project, kept so that a rebuild reuses its work."""
    if work not in _compilers:
        main = work / "main.typ"
        if not main.exists():
            work.mkdir(parents=True, exist_ok=True)
            main.write_text("", encoding="utf-8")
        _compilers[work] = typst.Compiler(
            str(main),
            root=str(work),
            font_paths=[str(work / "fonts")],
            ignore_system_fonts=True,
        )
    return _compilers[work]


def _install_fonts(folder: Path) -> dict[str, list[str]]:
    """Copies DejaVu Sans out of matplotlib's wheel; says which fonts there are."""
    folder.mkdir(parents=True, exist_ok=True)
    found = importlib.util.find_spec("matplotlib")
    if found and found.origin:
        source = Path(found.origin).parent / "mpl-data" / "fonts" / "ttf"
        for name in ("", "-Bold", "-Oblique", "-BoldOblique"):
            font = source / f"DejaVuSans{name}.ttf"
            target = folder / font.name
            if font.is_file() and not target.is_file():
                write_changed(target, font.read_bytes())
    families = set(
        typst.Fonts(include_system_fonts=False, font_paths=[str(folder)]).families()
    )
    wanted = {"text": TEXT_FONTS, "code": CODE_FONTS, "sans": SANS_FONTS}
    return {
        use: [name for name in names if name in families]
        for use, names in wanted.items()
    }


def _points_wide(data: bytes, suffix: str) -> float | None:
    """The natural width of an image in points, where the file says it."""
    if suffix == ".svg":
        root = ElementTree.fromstring(data)
        return _svg_width(root.get("width"), root.get("viewBox"))
    if suffix == ".png" and data[:8] == b"\x89PNG\r\n\x1a\n":
        pixels = struct.unpack(">I", data[16:20])[0]
        return pixels * 72 / _png_density(data)
    return None


def _svg_width(width: str | None, box: str | None) -> float | None:
    match = re.fullmatch(r"\s*([\d.]+)\s*(px|pt|in|cm|mm)?\s*", width or "")
    if match:
        unit = {"pt": 1, "in": 72, "cm": 72 / 2.54, "mm": 7.2 / 2.54}
        return float(match[1]) * unit.get(match[2] or "px", _PX)
    numbers = (box or "").replace(",", " ").split()
    return float(numbers[2]) * _PX if len(numbers) == 4 else None


def _png_density(data: bytes) -> float:
    """Dots an inch of a PNG; 96 where it does not say."""
    at = data.find(b"pHYs", 0, 4096)
    if at < 0 or data[at + 12] != 1:
        return 96.0
    return max(struct.unpack(">I", data[at + 4 : at + 8])[0] * 0.0254, 1.0)


def _digest(pages: Sequence[Page], config: Config) -> str:
    """What changes when the PDF would: pages, settings, writer and look."""
    total = hashlib.sha256(f"{metadata.version('typst')} {STANDARD}".encode())
    for page in pages:
        total.update(f"\0{page.rel}\0{page.part}\0{page.key}".encode())
    total.update(repr(replace(config, root=Path(), raw={})).encode())
    total.update(_own_source())
    for name in LOOK:
        total.update((HERE / name).read_bytes())
    return total.hexdigest()


@functools.cache
def _own_source() -> bytes:
    """A hash of the writer itself."""
    total = hashlib.sha256()
    for path in sorted(HERE.glob("typst*.py")):
        total.update(path.read_bytes())
    return total.digest()


def _is_current(state: Path, digest: str, out: Path) -> bool:
    try:
        stat = out.stat()
    except OSError:
        return False
    record = {"digest": digest, "size": stat.st_size, "time": stat.st_mtime_ns}
    return _read_json(state) == record


def _read_json(path: Path) -> dict[str, Any]:
    """The object in a file; empty where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
