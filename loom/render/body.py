"""A resolved page's blocks as the HTML of its article."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from posixpath import relpath
from typing import Any

from loom.render import nodes, pandoc
from loom.render.document import Page
from loom.render.highlight import highlight
from loom.render.nodes import Node, raw_block, raw_inline, value
from tangle import Problem

FIGURES = "site/figures"
_FAILED = re.compile(r"Could not convert TeX math (.+?), rendering as TeX", re.DOTALL)
_SVG_ROOT = re.compile(r"<svg\b[^>]*>", re.DOTALL)
_SVG_NAMES = re.compile(r"\A\s*(?:<(title|desc)\b[^>]*>.*?</\1>\s*)+", re.DOTALL)
_PUNCTUATION = re.compile(r"[,.;:!?)\]’”]+")
_LANGUAGES = {
    "bash": "shell",
    "console": "shell",
    "cpp": "C++",
    "llvm": "LLVM IR",
    "mlir": "MLIR",
    "ptx": "PTX",
    "pytb": "traceback",
    "sass": "SASS",
    "text": "",
    "toml": "TOML",
    "yaml": "YAML",
    "json": "JSON",
    "c": "C",
    "python": "Python",
    "ttir": "TTIR",
    "ttgir": "TTGIR",
    "llir": "LLVM IR",
    "amdgcn": "AMD GCN",
}


def write_body(page: Page, assets: Path) -> tuple[str, set[str], list[Problem]]:
    """The article's HTML, the assets it links to, and formulas that failed."""
    writer = _Writer(page, assets)
    html, said = pandoc.html(nodes.rewrite(page.blocks, writer.visit))
    problems = [
        Problem(page.rel, _line_of(page, tex), f"MathML cannot say {tex.strip()!r}")
        for tex in _FAILED.findall(said)
    ]
    return html, writer.used, problems


def _line_of(page: Page, tex: str) -> int:
    first = tex.strip().split("\n")[0]
    for number, line in enumerate(page.woven.chapter.text.split("\n"), 1):
        if first in line:
            return number
    return 1


def page_address(page: Page, target: str) -> str:
    """An address from the book's root as `page` links to it."""
    path, _, anchor = target.partition("#")
    if path.endswith(".qmd"):
        path = path.removesuffix(".qmd") + ".html"
    address = relpath(path, Path(page.html).parent.as_posix()) if path else ""
    if path == page.html and anchor:
        address = ""
    return f"{address}#{anchor}" if anchor else address


class _Writer:
    """Replaces the book's own constructs by HTML; pandoc writes the rest."""

    def __init__(self, page: Page, assets: Path) -> None:
        self.page = page
        self.assets = assets
        self.used: set[str] = set()
        self.drawings = 0

    def below(self, items: list[Node]) -> list[Node]:
        done: list[Node] = nodes.rewrite(items, self.visit)
        return done

    def wrapped(self, before: str, items: list[Node], after: str) -> list[Node]:
        inner = self.below(items)
        return [raw_block("html", before), *inner, raw_block("html", after)]

    def visit(self, node: Node) -> list[Node] | None:
        method = getattr(self, f"visit_{node['t'].lower()}", None)
        found: list[Node] | None = method(node) if method else None
        return found

    # Blocks

    def visit_header(self, node: Node) -> list[Node]:
        level, (ident, classes, pairs), content = node["c"]
        number = value(node["c"][1], "number")
        inlines = self.below(content)
        if number:
            span = f'<span class="number">{escape(number)}</span>'
            inlines = [raw_inline("html", span), {"t": "Space"}, *inlines]
        if level > 1 and ident:
            name = escape(nodes.plain_text(content).strip())
            link = (
                f'<a class="anchor" href="#{escape(ident)}" '
                f'aria-label="Link to “{name}”">#</a>'
            )
            inlines.append(raw_inline("html", link))
        kept = [c for c in classes if c != "unnumbered"]
        header = {"t": "Header", "c": [level, [ident, kept, []], inlines]}
        if level > 1:
            return [header]
        eyebrow = self.page.part
        above = f'<p class="eyebrow">{escape(eyebrow)}</p>' if eyebrow else ""
        return [
            raw_block("html", f'<header class="page-head">{above}'),
            header,
            raw_block("html", "</header>"),
        ]

    def visit_codeblock(self, node: Node) -> list[Node]:
        (_, classes, pairs), source = node["c"]
        language = next((c for c in classes if c != "cell-code"), "")
        name = _LANGUAGES.get(language, language)
        return [raw_block("html", _code(source, language, escape(name)))]

    def visit_table(self, node: Node) -> list[Node]:
        inner = {
            **node,
            "c": [
                self.below(part) if isinstance(part, list) else part
                for part in node["c"]
            ],
        }
        before = '<div class="table-wrap">'
        return [raw_block("html", before), inner, raw_block("html", "</div>")]

    def visit_para(self, node: Node) -> list[Node] | None:
        """A display formula stands in a box of its own, which can scroll."""
        if not any(_is_display(item) for item in node["c"]):
            return [nodes.para(self.below(_glued(node["c"])))]
        out: list[Node] = []
        rest: list[Node] = []
        for item in [*node["c"], None]:
            if item is not None and not _is_display(item):
                rest.append(item)
                continue
            if any(n["t"] not in ("Space", "SoftBreak") for n in rest):
                out.append(nodes.para(self.below(_glued(rest))))
            rest = []
            if item is not None:
                out += [
                    raw_block("html", '<div class="formula">'),
                    nodes.plain([item]),
                    raw_block("html", "</div>"),
                ]
        return out

    def visit_plain(self, node: Node) -> list[Node]:
        return [nodes.plain(self.below(_glued(node["c"])))]

    # Divs

    def visit_div(self, node: Node) -> list[Node] | None:
        (ident, classes, pairs), content = node["c"]
        for name in (
            "cell",
            "float",
            "subfloat",
            "equation",
            "callout",
            "tabset",
            "layout",
            "references",
        ):
            if name in classes:
                found: list[Node] = getattr(self, f"write_{name}")(node)
                return found
        if "cell-output" in classes:
            return self.wrapped(f'<div class="{" ".join(classes)}">', content, "</div>")
        return None

    def write_cell(self, node: Node) -> list[Node]:
        attributes, content = node["c"]
        ident, classes, _ = attributes
        status = value(attributes, "status")
        out: list[Node] = []
        for item in content:
            if nodes.has_class(item, "cell-code"):
                out.append(self.cell_code(item, attributes))
            elif nodes.has_class(item, "float-lst"):
                out += self.write_float(item, attributes)
            else:
                out += self.below([item])
        names = " ".join([*classes, f"cell-{status}"] if status else classes)
        before = f'<div{_id(ident)} class="{names}">'
        return [raw_block("html", before), *out, raw_block("html", "</div>")]

    def cell_code(self, node: Node, cell: Any) -> Node:
        attributes, source = node["c"]
        head = "Python"
        line = value(attributes, "line")
        if "tangled" in cell[1]:
            module, path = value(cell, "module"), value(cell, "path")
            title = f"Line {line} of {path} is line {line} of {module}"
            head = (
                f'<span class="place" title="{escape(title)}">'
                f'<span class="module">{escape(module)}</span>'
                f'<span class="source">{escape(path)}:{line}</span></span>'
            )
        html = _code(source, "python", head)
        fold = value(attributes, "fold")
        if fold:
            opened = " open" if fold == "show" else ""
            summary = escape(value(attributes, "summary") or "Code")
            html = (
                f'<details class="fold"{opened}><summary>{summary}</summary>\n'
                f"{html}</details>"
            )
        return raw_block("html", html)

    def write_float(self, node: Node, cell: Any = None) -> list[Node]:
        attributes, content = node["c"]
        ident, classes, _ = attributes
        number, kind = value(attributes, "number"), value(attributes, "kind")
        caption = self.caption(content[-1], f"{kind}\u00a0{number}" if number else "")
        body: list[Node] = []
        for item in content[:-1]:
            if cell is not None and nodes.has_class(item, "cell-code"):
                body.append(self.cell_code(item, cell))
            else:
                body += self.below([item])
        ordered = [*body, *caption] if "float-fig" in classes else [*caption, *body]
        before = f'<figure{_id(ident)} class="{" ".join(classes)}">'
        return [raw_block("html", before), *ordered, raw_block("html", "</figure>")]

    def caption(self, node: Node, number: str) -> list[Node]:
        inlines = self.below(node["c"][1][0]["c"])
        if not inlines and not number:
            return []
        if number:
            span = f'<span class="float-number">{escape(number)}</span> '
            inlines = [raw_inline("html", span), *inlines]
        return [
            raw_block("html", "<figcaption>"),
            nodes.plain(inlines),
            raw_block("html", "</figcaption>"),
        ]

    def write_subfloat(self, node: Node) -> list[Node]:
        attributes, content = node["c"]
        caption = self.caption(content[-1], f"({value(attributes, 'number')})")
        body = self.below(content[:-1])
        before = f'<figure{_id(attributes[0])} class="subfloat">'
        after = raw_block("html", "</figure>")
        return [raw_block("html", before), *body, *caption, after]

    def write_equation(self, node: Node) -> list[Node]:
        attributes, content = node["c"]
        number = escape(value(attributes, "number"))
        after = (
            f'<span class="equation-number" aria-label="Equation {number}">'
            f"({number})</span></div>"
        )
        before = f'<div{_id(attributes[0])} class="equation">'
        return self.wrapped(before, content, after)

    def write_callout(self, node: Node) -> list[Node]:
        attributes, (title, body) = node["c"]
        ident, classes, _ = attributes
        kind = classes[1].removeprefix("callout-").capitalize()
        collapse = value(attributes, "collapse")
        inlines = self.below(title["c"][1][0]["c"])
        if nodes.plain_text(inlines).strip() != kind:
            said = f'<span class="unseen">{kind}: </span>'
            inlines = [raw_inline("html", said), *inlines]
        icon = raw_inline(
            "html", '<span class="callout-icon" aria-hidden="true"></span>'
        )
        folded = collapse in ("true", "false")
        tag, head = ("details", "summary") if folded else ("div", "p")
        opened = " open" if collapse == "false" else ""
        role = "" if folded else ' role="note"'
        names = " ".join(classes)
        return [
            raw_block("html", f'<{tag}{_id(ident)} class="{names}"{role}{opened}>'),
            raw_block("html", f'<{head} class="callout-title">'),
            nodes.plain([icon, *inlines]),
            raw_block("html", f'</{head}>\n<div class="callout-body">'),
            *self.below(body["c"][1]),
            raw_block("html", f"</div>\n</{tag}>"),
        ]

    def write_tabset(self, node: Node) -> list[Node]:
        out = [raw_block("html", '<div class="tabset">')]
        for tab in node["c"][1]:
            ident, (title, body) = tab["c"][0][0], tab["c"][1]
            out += [
                raw_block("html", f'<section{_id(ident)} class="tab">'),
                raw_block("html", '<p class="tab-title">'),
                nodes.plain(self.below(title["c"][1][0]["c"])),
                raw_block("html", '</p>\n<div class="tab-body">'),
                *self.below(body["c"][1]),
                raw_block("html", "</div>\n</section>"),
            ]
        return [*out, raw_block("html", "</div>")]

    def write_layout(self, node: Node) -> list[Node]:
        attributes, content = node["c"]
        columns = re.sub(r"\D", "", value(attributes, "ncol")) or "1"
        return self.wrapped(
            f'<div class="layout" style="--columns: {columns}">', content, "</div>"
        )

    def write_references(self, node: Node) -> list[Node]:
        before = '<div id="refs" class="references" role="list">'
        out = [raw_block("html", before)]
        for entry in node["c"][1]:
            ident = entry["c"][0][0]
            opened = f'<div{_id(ident)} class="reference" role="listitem">'
            out += self.wrapped(opened, entry["c"][1], "</div>")
        return [*out, raw_block("html", "</div>")]

    # Inlines

    def visit_link(self, node: Node) -> list[Node] | None:
        (ident, classes, _), content, (url, title) = node["c"]
        inlines = self.below(content)
        if url.startswith("ref:"):
            key = url.removeprefix("ref:")
            target = self.page.targets[key]
            url = page_address(self.page, f"{target.page}#{key}")
        elif not re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:|//", url):
            url = page_address(self.page, url)
        # `uri` is pandoc's class for a bare address, which may be broken anywhere.
        return [{"t": "Link", "c": [[ident, classes, []], inlines, [url, title]]}]

    def visit_image(self, node: Node) -> list[Node]:
        attributes, alt, (asset, _) = node["c"]
        words = escape(nodes.plain_text(alt).strip())
        width = value(attributes, "width")
        path = self.assets / asset
        if asset.endswith(".svg") and path.is_file():
            source = path.read_text(encoding="utf-8")
            root = _SVG_ROOT.search(source)
            if root and "loom-svg" in root.group():
                self.drawings += 1
                drawing = inline_svg(source, f"d{self.drawings}-", words)
                return [raw_inline("html", f'<span class="drawing">{drawing}</span>')]
        self.used.add(asset)
        address = page_address(self.page, f"{FIGURES}/{asset}")
        size = _natural_size(path)
        style = f' style="width: {escape(_css_width(width))}"' if width else ""
        html = f'<img src="{escape(address)}" alt="{words}"{size}{style}>'
        return [raw_inline("html", html)]


def inline_svg(source: str, prefix: str, label: str) -> str:
    """An SVG for a page that holds several: its identifiers get `prefix`."""
    start = _SVG_ROOT.search(source)
    svg = source[start.start() :] if start else source
    known = set(re.findall(r'\bid="([^"]+)"', svg))

    def own(match: re.Match[str]) -> str:
        before, ident, after = match.groups()
        return f"{before}{prefix if ident in known else ''}{ident}{after}"

    svg = re.sub(r'(\bid=")([^"]+)(")', own, svg)
    svg = re.sub(r"(url\(['\"]?#)([^'\")]+)(['\"]?\))", own, svg)
    svg = re.sub(r'(\bhref="#)([^"]+)(")', own, svg)
    root = _SVG_ROOT.match(svg)
    head = root.group() if root else ""
    # The drawing's own name would be a tooltip over all of it.
    svg = head + _SVG_NAMES.sub("", svg[len(head) :])
    bare = re.sub(r'\s(?:role|aria-\w+|xmlns)="[^"]*"', "", head)
    label = f' role="img" aria-label="{label}"'
    return bare[:-1].rstrip() + label + ">" + svg[len(head) :].strip()


def _code(source: str, language: str, head: str) -> str:
    """A listing: a thin bar that says what it is, and the text."""
    name = f' class="language-{escape(language)}"' if language else ""
    text = highlight(source, language)
    bar = f'<div class="code-bar">{head}</div>' if language else ""
    return f'<div class="code">{bar}<pre><code{name}>{text}</code></pre></div>\n'


def _id(ident: str) -> str:
    return f' id="{escape(ident)}"' if ident else ""


def _is_display(node: Node | None) -> bool:
    return bool(node and node["t"] == "Math" and node["c"][0]["t"] == "DisplayMath")


def _glued(inlines: list[Node]) -> list[Node]:
    """Inlines in which a line does not break between a formula and its comma."""
    out: list[Node] = []
    for node in inlines:
        match = _PUNCTUATION.match(node["c"]) if node["t"] == "Str" else None
        if match and out and out[-1]["t"] == "Math":
            together = [out.pop(), nodes.string(match.group())]
            out.append({"t": "Span", "c": [nodes.attr("", ["together"]), together]})
            node = nodes.string(node["c"][match.end() :])
            if not node["c"]:
                continue
        out.append(node)
    return out


def _css_width(width: str) -> str:
    return width + "px" if width.isdigit() else width


def _natural_size(path: Path) -> str:
    """Width and height of a picture, so that the page does not jump as it loads."""
    size: tuple[float, float] | None = None
    if path.suffix == ".png" and path.is_file():
        with path.open("rb") as file:
            head = file.read(24)
        if head[:8] == b"\x89PNG\r\n\x1a\n":
            size = (int.from_bytes(head[16:20]), int.from_bytes(head[20:24]))
    elif path.suffix == ".svg" and path.is_file():
        size = _svg_size(path.read_text(encoding="utf-8"))
    return f' width="{size[0]:.0f}" height="{size[1]:.0f}"' if size else ""


def _svg_size(source: str) -> tuple[float, float] | None:
    root = _SVG_ROOT.search(source)
    head = root.group() if root else ""
    sizes = [
        re.search(rf'\s{side}="([\d.]+)(pt|px)?"', head) for side in ("width", "height")
    ]
    if all(sizes):
        scale = [4 / 3 if found and found[2] == "pt" else 1.0 for found in sizes]
        return (
            float(sizes[0][1]) * scale[0],  # type: ignore[index]
            float(sizes[1][1]) * scale[1],  # type: ignore[index]
        )
    box = re.search(r'viewBox="[\d.-]+[ ,]+[\d.-]+[ ,]+([\d.]+)[ ,]+([\d.]+)"', head)
    return (float(box[1]), float(box[2])) if box else None
