"""The HTML book: pages around the articles, shared files, search index."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from html import escape, unescape
from itertools import groupby
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any
from urllib.parse import unquote

from loom.drawing import DARK, LIGHT
from loom.render import body, nodes, search
from loom.render.body import page_address
from loom.render.config import Config
from loom.render.document import Page, write_changed
from loom.render.nodes import Node
from tangle import BookError, Problem

THEME = Path(__file__).resolve().parents[2] / "book" / "theme"
MANIFEST = "site/files.json"

# The switch acts before the page is drawn; storage may be closed to file:// pages.
_EARLY = (
    "try{var t=localStorage.getItem('theme');"
    "if(t==='light'||t==='dark')document.documentElement.dataset.theme=t}catch(e){}"
    "document.documentElement.classList.add('js')"
)
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' "
    "viewBox='0 0 32 32'%3E%3Crect width='32' height='32' rx='7' fill='%230b6470'/%3E"
    "%3Cpath d='M7 9h8v6H7zM17 9h8v6h-8zM7 17h8v6H7z' fill='%23fff'/%3E%3C/svg%3E"
)
_REFERENCE = re.compile(r"""\s(?:href|src)="([^"]*)\"""")
_ANCHOR = re.compile(r"""\sid="([^"]*)\"""")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:|//")


@dataclass
class Site:
    """The files of the HTML book by their path in the output folder."""

    files: dict[str, bytes | Path] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def make_site(
    pages: list[Page],
    config: Config,
    assets: Path,
    cache: Path | None,
    pdf: bool,
) -> Site:
    """The whole site in memory. Raises BookError where a page cannot be made.

    `pdf` says whether the book's PDF stands beside the pages.
    """
    site = Site()
    articles = _articles([p for p in pages if not p.partial], assets, cache, site)
    for number, page in enumerate(pages):
        if page.partial:
            continue
        around = (
            pages[number - 1] if number else None,
            pages[number + 1] if number + 1 < len(pages) else None,
        )
        text = _page(page, pages, around, articles[page.rel], config, pdf)
        site.files[page.html] = text.encode("utf-8")
    css = (THEME / "book.css").read_text(encoding="utf-8") + drawing_css()
    site.files["site/book.css"] = css.encode("utf-8")
    site.files["site/book.js"] = THEME / "book.js"
    site.files["site/search-index.js"] = search.index_js(pages).encode("utf-8")
    site.problems += check_links(site, pages, config)
    if site.problems:
        raise BookError(site.problems)
    return site


def write_site(site: Site, out: Path, *, prune: bool) -> list[Path]:
    """Writes what has changed; `prune` removes what is no longer made."""
    written = []
    for name, content in site.files.items():
        data = content.read_bytes() if isinstance(content, Path) else content
        write_changed(out / name, data)
        written.append(out / name)
    manifest = out / MANIFEST
    try:
        before = set(json.loads(manifest.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        before = set()
    kept = set(site.files) if prune else before | set(site.files)
    for name in sorted(before - kept):
        path = out / name
        if path.resolve().is_relative_to(out.resolve()):
            path.unlink(missing_ok=True)
    write_changed(manifest, json.dumps(sorted(kept), indent=0).encode("utf-8"))
    return written


def _articles(
    pages: list[Page], assets: Path, cache: Path | None, site: Site
) -> dict[str, str]:
    """The pages' articles, from the cache or from pandoc."""
    seed = hashlib.sha256()
    for name in ("body", "highlight", "nodes", "pandoc"):
        seed.update(Path(__file__).with_name(f"{name}.py").read_bytes())

    def article(page: Page) -> tuple[str, Any]:
        key = hashlib.sha256(seed.digest() + page.key.encode()).hexdigest()[:32]
        kept = cache / f"{key}.article" if cache else None
        if kept is not None and kept.is_file():
            try:
                text, used = json.loads(kept.read_text(encoding="utf-8"))
                os.utime(kept)
                return page.rel, (text, used, [])
            except ValueError:
                pass
        text, used, problems = body.write_body(page, assets)
        if kept is not None and not problems:
            write_changed(kept, json.dumps([text, sorted(used)]).encode("utf-8"))
        return page.rel, (text, used, problems)

    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        made = dict(pool.map(article, pages))
    for _, used, problems in made.values():
        site.problems += problems
        for asset in used:
            site.files[f"{body.FIGURES}/{asset}"] = assets / asset
    if site.problems:
        raise BookError(site.problems)
    return {rel: text for rel, (text, _, _) in made.items()}


def drawing_css() -> str:
    """Rules that give a drawing's parts the colors of the theme in use."""
    rules = ["", "/* Drawings: the colors of loom/drawing.py by class */", ""]
    for name, light in LIGHT.items():
        side = "stroke" if name in ("grid", "hatch") else "fill"
        color = f"light-dark({light}, {DARK[name]})"
        rules.append(f".loom-svg .{name} {{ {side}: {color}; }}")
    return "\n".join(rules) + "\n"


# --- The page around an article ----------------------------------------------


def _page(
    page: Page,
    pages: list[Page],
    around: tuple[Page | None, Page | None],
    article: str,
    config: Config,
    pdf: bool,
) -> str:
    home = page.html == "index.html"
    address = _addresser(page)
    title = config.title if home else f"{page.label} – {config.title}"
    description = str(page.meta.get("description") or "")
    if not description:
        prose = page.sections[0]["prose"] if page.sections else ""
        description = config.description if home else _first_words(prose)
    before, after = around
    relations = "".join(
        f'<link rel="{rel}" href="{address(other.html)}">\n'
        for rel, other in (("prev", before), ("next", after))
        if other is not None
    )
    outline = _outline(page, config)
    hero = _hero(page, config, after, pdf) if home else ""
    return f"""<!DOCTYPE html>
<html lang="{escape(config.lang)}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<meta name="description" content="{escape(description)}">
<meta name="author" content="{escape(config.author)}">
<script>{_EARLY}</script>
<link rel="stylesheet" href="{address("site/book.css")}">
<link rel="icon" href="{_ICON}">
{relations}</head>
<body class="{"home" if home else "chapter"}" data-root="{escape(_root(page))}">
<a class="skip" href="#main">Skip to content</a>
<header class="bar">
<button type="button" class="bar-button menu" aria-controls="contents" \
aria-expanded="false" aria-label="Contents">{_MENU}</button>
<a class="brand" href="{address("index.html")}">{escape(config.title)}</a>
<button type="button" class="bar-button open-search" aria-haspopup="dialog" \
aria-label="Search" aria-keyshortcuts="/ Control+K">{_GLASS}<span>Search</span>\
<kbd>/</kbd></button>
<button type="button" class="bar-button theme" aria-label="Dark theme" \
aria-pressed="false">{_HALF}</button>
</header>
<div class="frame">
<nav class="contents" id="contents" aria-label="Book">
{_contents(page, pages, config, pdf)}
</nav>
<main id="main" tabindex="-1">
{hero}<article>
{article}</article>
{_pager(page, around)}
<footer class="foot"><p>{escape(config.title)}{_by(config)}</p></footer>
</main>
<nav class="outline" aria-label="On this page">
{outline}
</nav>
</div>
{_SEARCH}
<script src="{address("site/book.js")}" defer></script>
</body>
</html>
"""


def _root(page: Page) -> str:
    return "../" * page.html.count("/")


def _addresser(page: Page) -> Any:
    return lambda target: escape(page_address(page, target))


def _by(config: Config) -> str:
    return f" · {escape(config.author)}" if config.author else ""


def _first_words(text: str, limit: int = 155) -> str:
    words = text.strip().split("\n")[0]
    if len(words) <= limit:
        return words
    return words[:limit].rsplit(" ", 1)[0].rstrip(",;:") + " …"


def _hero(page: Page, config: Config, after: Page | None, pdf: bool) -> str:
    address = _addresser(page)
    first = (
        f'<a class="button primary" href="{address(after.html)}">'
        f"Start reading: {inline_html(after.title_inlines)}</a>"
        if after
        else ""
    )
    print_ = (
        f'<a class="button" href="{address(config.pdf_name)}">Read the PDF</a>'
        if pdf
        else ""
    )
    subtitle = f'<p class="hero-subtitle">{escape(config.subtitle)}</p>'
    author = f'<p class="hero-author">{escape(config.author)}</p>'
    return f"""<div class="hero">
<p class="hero-title">{escape(config.title)}</p>
{subtitle if config.subtitle else ""}
{author if config.author else ""}
<p class="hero-links">{first}{print_}</p>
</div>
"""


def _contents(page: Page, pages: list[Page], config: Config, pdf: bool) -> str:
    address = _addresser(page)
    out = []
    for part, group in groupby(pages, key=lambda p: p.part):
        items = "".join(_contents_item(page, other) for other in group)
        listed = f"<ul>{items}</ul>"
        if part:
            listed = (
                f"<details open><summary>{escape(part)}</summary>{listed}</details>"
            )
        out.append(listed)
    if pdf:
        link = f'<a href="{address(config.pdf_name)}">This book as PDF</a>'
        out.append(f'<ul class="contents-pdf"><li>{link}</li></ul>')
    return "\n".join(out)


def _contents_item(page: Page, other: Page) -> str:
    current = ' aria-current="page"' if other.rel == page.rel else ""
    number = f'<span class="number">{other.number}</span>' if other.number else ""
    title = inline_html(other.title_inlines)
    href = escape(page_address(page, other.html))
    return f'<li><a href="{href}"{current}>{number}<span>{title}</span></a></li>'


def _outline(page: Page, config: Config) -> str:
    items = [h for h in page.outline if 2 <= h[0] <= max(2, config.toc_depth)]
    if not items:
        return ""
    lines = "".join(
        f'<li class="level-{level}"><a href="#{escape(ident)}">'
        + (f'<span class="number">{number}</span>' if number else "")
        + f"<span>{inline_html(inlines)}</span></a></li>"
        for level, ident, number, inlines in items
    )
    return f'<p class="outline-title">On this page</p>\n<ul>{lines}</ul>'


def _pager(page: Page, around: tuple[Page | None, Page | None]) -> str:
    links = []
    for rel, words, other in (
        ("prev", "Previous", around[0]),
        ("next", "Next", around[1]),
    ):
        if other is not None:
            href = escape(page_address(page, other.html))
            links.append(
                f'<a class="{rel}" rel="{rel}" href="{href}"><span>{words}</span>'
                f"{escape(other.label)}</a>"
            )
    return f'<nav class="pager" aria-label="Pages">{"".join(links)}</nav>'


def inline_html(inlines: Iterable[Node]) -> str:
    """A heading's inlines for a list of links: no links, no footnotes."""
    out = []
    for node in inlines:
        kind: str = node["t"]
        content: Any = node.get("c")
        if kind == "Code":
            out.append(f"<code>{escape(content[1])}</code>")
        elif kind in ("Emph", "Strong"):
            tag = "em" if kind == "Emph" else "strong"
            out.append(f"<{tag}>{inline_html(content)}</{tag}>")
        elif kind == "Quoted":
            out.append(escape(nodes.plain_text([node])))
        elif kind in ("Span", "Link"):
            out.append(inline_html(content[1]))
        else:
            out.append(escape(nodes.plain_text([node])))
    return "".join(out)


_MENU = (
    '<svg viewBox="0 0 20 20" width="20" height="20" aria-hidden="true">'
    '<path d="M3 5.5h14M3 10h14M3 14.5h14"/></svg>'
)
_GLASS = (
    '<svg viewBox="0 0 20 20" width="18" height="18" aria-hidden="true">'
    '<circle cx="8.5" cy="8.5" r="5"/><path d="m12.5 12.5 4.5 4.5"/></svg>'
)
_HALF = (
    '<svg viewBox="0 0 20 20" width="20" height="20" aria-hidden="true">'
    '<circle cx="10" cy="10" r="7"/>'
    '<path class="filled" d="M10 3a7 7 0 0 1 0 14z"/></svg>'
)
_SEARCH = """<dialog class="search" aria-label="Search the book">
<form method="dialog" role="search">
<input type="search" placeholder="Search prose and code" aria-label="Search the book" \
role="combobox" aria-expanded="true" aria-controls="search-results" \
aria-autocomplete="list" autocomplete="off" autocapitalize="off" spellcheck="false">
<button type="submit" class="bar-button" aria-label="Close">Esc</button>
</form>
<p class="search-status" role="status"></p>
<div class="search-results" id="search-results" role="listbox" \
aria-label="Results"></div>
</dialog>"""


# --- Links --------------------------------------------------------------------


def check_links(site: Site, pages: list[Page], config: Config) -> list[Problem]:
    """Every address in the pages that leads nowhere, and identifiers given twice."""
    sources = {page.html: page.rel for page in pages}
    texts = {
        name: content.decode("utf-8")
        for name, content in site.files.items()
        if isinstance(content, bytes) and name.endswith(".html")
    }
    anchors: dict[str, set[str]] = {p.html: set(p.facts.ids) for p in pages}
    problems: list[Problem] = []
    for name, text in texts.items():
        listed = [unescape(i) for i in _ANCHOR.findall(text)]
        anchors[name] = set(listed)
        for ident in sorted({i for i in listed if listed.count(i) > 1}):
            message = f"the page has the identifier {ident} twice"
            problems.append(Problem(sources[name], 1, message))
    known = {*site.files, *anchors, config.pdf_name}
    for name, text in texts.items():
        for address in sorted(set(_REFERENCE.findall(text))):
            message = _dead(name, unescape(address), known, anchors)
            if message:
                problems.append(Problem(sources[name], 1, message))
    return problems


def _dead(
    name: str, address: str, known: set[str], anchors: dict[str, set[str]]
) -> str:
    if _SCHEME.match(address):
        return ""
    path, _, anchor = address.partition("#")
    target = normpath(join(dirname(name), unquote(path))) if path else name
    if target not in known:
        return f"the page links to {address}, which the book does not have"
    if anchor and target in anchors and unquote(anchor) not in anchors[target]:
        return f"the page links to {address}, an anchor that {target} does not have"
    return ""
