"""The embedded renderer: executed chapters to an HTML book and a PDF."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from loom.woven import Woven
from tangle import Book

FORMATS = ("html", "pdf")


def build(
    wovens: Iterable[Woven],
    book: Book,
    out: Path,
    formats: Sequence[str] = FORMATS,
) -> list[Path]:
    """Renders `wovens` into the folder `out` and gives the files of the book.

    With fewer chapters than the book has, only their HTML pages are renewed.
    Nothing is written before everything is made, a file that did not change keeps
    its time, and a page that is no longer made is removed. Raises BookError with
    every problem of every chapter, and then `out` is as it was.
    """
    from loom.render.config import read_config
    from loom.render.document import forget_unused, load_pages

    unknown = sorted(set(formats) - set(FORMATS))
    if unknown:
        raise ValueError(f"formats: got {unknown}, accepted are {list(FORMATS)}")
    config = read_config(book.root)
    work = book.root / ".weave"
    assets, cache = work / "assets", work / "render"
    pages = load_pages(wovens, book, config, assets, cache)
    whole = not any(page.partial for page in pages)
    made_pdf = "pdf" in formats and whole
    pdf_path = out / config.pdf_name
    site = None
    if "html" in formats:
        from loom.render.html import make_site

        # `out` may be a new folder that takes the old book's place later.
        places = (pdf_path, book.root / config.output_dir / config.pdf_name)
        pdf = made_pdf or any(path.is_file() for path in places)
        site = make_site(pages, config, assets, cache, pdf)
    files: list[Path] = []
    if made_pdf:
        from loom.render.typst import build_pdf

        files.append(build_pdf(pages, config, pdf_path, assets))
    if site is not None:
        from loom.render.html import write_site

        files += write_site(site, out, prune=whole)
    forget_unused(cache)
    return files
