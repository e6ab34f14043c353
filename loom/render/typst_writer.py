"""The resolved syntax tree of one page, written as Typst markup.

The markup only calls functions of `book.typ` (`#float`, `#callout`, `#code` and so
on), so that how the book looks stands in that one file. A comment `//@ N` before
a block says which line of the chapter it came from, where that is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from posixpath import dirname, join, normpath
from typing import Any

from loom.render import nodes
from loom.render.document import Page
from loom.render.nodes import Node
from loom.render.typst_code import TEXT_WIDTH, escape, fit, pieces, string
from loom.render.typst_math import Formula
from tangle import Problem

_EXTERNAL = re.compile(r"^(https?|mailto|ftp):", re.I)
_LENGTH = re.compile(r"^([\d.]+)\s*(in|cm|mm|pt|px|%)?$")
_POINTS = {"in": 72.0, "cm": 72 / 2.54, "mm": 7.2 / 2.54, "pt": 1.0, "px": 0.75}
_HEADING_LINE = re.compile(r"^(#{1,6})\s+\S")
_FENCE_LINE = re.compile(r"^\s*(`{3,}|~{3,})")
_ENUM_STYLES = {
    "LowerAlpha": "a",
    "UpperAlpha": "A",
    "LowerRoman": "i",
    "UpperRoman": "I",
}


@dataclass(frozen=True)
class Picture:
    """An image file as the Typst project sees it."""

    path: str
    width: float | None  # points; None leaves the size to Typst


@dataclass
class Targets:
    """Where links lead: the label of each page and of each id on it."""

    pages: dict[str, dict[str, str]] = field(default_factory=dict)
    unique: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, pages: Iterable[Page]) -> Targets:
        """Collects every id of the pages; a label is page name, colon, id."""
        targets = cls()
        for page in pages:
            name = page.woven.chapter.name
            labels = {"": f"{name}:"}
            for ident in page.facts.ids:
                labels.setdefault(ident, f"{name}:{ident}")
                targets.unique.setdefault(ident, labels[ident])
            targets.pages[page.woven.chapter.rel] = labels
        return targets


def formulas(blocks: list[Node]) -> list[Formula]:
    """Every formula of the blocks, as `typst_math.convert` wants them."""
    return [
        (node["c"][0]["t"], node["c"][1])
        for node in nodes.walk(blocks)
        if node["t"] == "Math"
    ]


WHOLE_TABLE = 15  # rows of a table that is not cut by the end of a page


class PageWriter:
    """Writes one page. `write()` gives the markup; `problems` what was wrong."""

    def __init__(
        self,
        page: Page,
        targets: Targets,
        math: Mapping[Formula, str],
        picture: Callable[[str], Picture],
    ) -> None:
        self.page = page
        self.rel: str = page.woven.chapter.rel
        self.targets = targets
        self.math = math
        self.picture = picture
        self.problems: list[Problem] = []
        self._line = 1
        self._headings = _heading_lines(page.woven.chapter.text)
        self._labelled: set[str] = set()
        self._nested = 0  # depth in callouts, tabs, notes and table cells
        self._inset = 0.0  # points by which boxes and lists narrow the text here
        self._late = False  # in an output that is stale
        self._base = 1 if page.part else 0

    def write(self) -> str:
        """The page's markup."""
        blocks = self.page.blocks
        opening = ""
        if not (blocks and blocks[0]["t"] == "Header" and blocks[0]["c"][0] == 1):
            opening = self._opening(["", [], []], escape(self.page.title))
        return opening + self.blocks(blocks)

    # --- blocks -----------------------------------------------------------

    def blocks(self, blocks: list[Node]) -> str:
        return "\n\n".join(filter(None, map(self.block, blocks))) + "\n"

    def block(self, node: Node) -> str:
        writer = getattr(self, "_" + node["t"].lower(), None)
        if writer is None:
            self._problem(f"got a {node['t']}, which the PDF writer does not know")
            return ""
        return writer(node.get("c"))

    def content(self, blocks: list[Node], inset: float = 0) -> str:
        """Blocks as one bracketed Typst content value, `inset` points narrower."""
        if all(block["t"] == "Plain" for block in blocks):
            return "[" + "\\ ".join(self.inlines(b["c"]) for b in blocks) + "]"
        self._inset += inset
        try:
            return "[\n" + self.blocks(blocks) + "]"
        finally:
            self._inset -= inset

    def inside(self, blocks: list[Node], inset: float = 0) -> str:
        """As `content`, where headings are titles of a box and do not count."""
        self._nested += 1
        try:
            return self.content(blocks, inset)
        finally:
            self._nested -= 1

    def _plain(self, inlines: list[Node]) -> str:
        return self.inlines(inlines)

    def _para(self, inlines: list[Node]) -> str:
        if len(inlines) == 1 and inlines[0]["t"] == "Image":
            return self._display_image(inlines[0]["c"])
        return self.inlines(inlines)

    def _lineblock(self, lines: list[list[Node]]) -> str:
        return "#linebreak();".join(self.inlines(line) for line in lines)

    def _horizontalrule(self, _: None) -> str:
        return "#ornament();"

    def _blockquote(self, blocks: list[Node]) -> str:
        return f"#quote(block: true){self.content(blocks, 32)};"

    def _rawblock(self, content: list[str]) -> str:
        return content[1] if content[0] == "typst" else ""

    def _bulletlist(self, items: list[list[Node]]) -> str:
        boxes = all(_is_task(item) for item in items)
        marker = "marker: [], body-indent: 0pt, " if boxes else ""
        return f"#list({marker}{_tight(items)}{self._items(items)});"

    def _orderedlist(self, content: list[Any]) -> str:
        (start, style, delimiter), items = content
        pattern = _ENUM_STYLES.get(style["t"], "1")
        dress = {"OneParen": "{})", "TwoParens": "({})"}.get(delimiter["t"], "{}.")
        options = f"start: {start}, numbering: {string(dress.format(pattern))}, "
        return f"#enum({options}{_tight(items)}{self._items(items)});"

    def _items(self, items: list[list[Node]]) -> str:
        return ", ".join(self.content(item, 24) for item in items)

    def _definitionlist(self, items: list[list[Any]]) -> str:
        written = []
        for term, definitions in items:
            body = [block for definition in definitions for block in definition]
            words = self.inlines(term)
            written.append(f"terms.item([{words}], {self.content(body, 14)})")
        return f"#terms({', '.join(written)});"

    def _header(self, content: list[Any]) -> str:
        level, attributes, inlines = content
        if self._nested:
            return f"#minor-heading[{self.inlines(inlines)}];{self._label(attributes)}"
        self._line = self._next_heading(level)
        written = self.inlines(inlines).replace("#footnote[", "#heading-note[")
        if level == 1:
            return self._opening(attributes, written)
        number = nodes.value(attributes, "number")
        name = self._name(attributes)
        listed = "false" if attributes[0] == "references" else "true"
        return (
            f"{self._here()}#section({self._base + level}, {level}, "
            f"{string(number) if number else 'none'}, {name}, {listed})[{written}];"
        )

    def _opening(self, attributes: nodes.Attr, title: str) -> str:
        number = nodes.value(attributes, "number")
        page_label = string(self.targets.pages[self.rel][""])
        return (
            f"{self._here()}#chapter({self._base + 1}, "
            f"{string(number) if number else 'none'}, {self._name(attributes)}, "
            f"{page_label})[{title}];\n"
        )

    def _codeblock(self, content: list[Any]) -> str:
        attributes, text = content
        classes = attributes[1]
        language = next((c for c in classes if c not in ("cell-code", "code")), "")
        language = language.strip("{}")
        kind = "source" if language else "text"
        label = self._label(attributes)
        name = nodes.value(attributes, "filename")
        return self._code(text, kind, language, name) + label

    def _code(
        self,
        text: str,
        kind: str,
        language: str = "",
        place: str = "",
        tail: bool = False,
    ) -> str:
        fitted, size = fit(text, self._inset)
        continued = "".join(f"{n}, " for n in fitted.continued)
        return (
            f"#code({string(kind)}, {string(language) if language else 'none'}, "
            f"{string(place) if place else 'none'}, ({continued}), "
            f"{string(fitted.text)}{', tail: true' if tail else ''}"
            f"{', late: true' if self._late else ''}, size: {size:.3f}pt);"
        )

    def _figure(self, content: list[Any]) -> str:
        attributes, (_, caption), blocks = content
        body = self.content(blocks)
        legend = self.content(caption) if caption else "none"
        return f"#plain-figure({legend}){body};{self._label(attributes)}"

    def _div(self, content: list[Any]) -> str:
        attributes, blocks = content
        for name, writer in self._kinds.items():
            if name in attributes[1]:
                return writer(self, attributes, blocks)
        return self._label(attributes) + self.blocks(blocks)

    # --- the book's own blocks --------------------------------------------

    def _cell(self, attributes: nodes.Attr, blocks: list[Node]) -> str:
        line = nodes.value(attributes, "line")
        if line.isdigit():
            self._line = int(line)
        path = nodes.value(attributes, "path") or self.rel
        tangled = "tangled" in attributes[1]
        status = nodes.value(attributes, "status")
        written = [self._here() + self._label(attributes)]
        for index, block in enumerate(blocks):
            if nodes.has_class(block, "cell-code"):
                place = f"{path}:{line}" if tangled and line else ""
                after = blocks[index + 1 : index + 2]
                tail = any(nodes.has_class(b, "cell-output") for b in after)
                written.append(self._source(block["c"], place, tail))
            elif status == "stale" and _is_output(block):
                self._late = True
                written.append(f"#stale[\n{self.block(block)}\n];")
                self._late = False
            else:
                written.append(self.block(block))
        return "\n\n".join(filter(None, written))

    def _source(self, content: list[Any], place: str, tail: bool) -> str:
        attributes, text = content
        language = next((c for c in attributes[1] if c != "cell-code"), "python")
        summary = nodes.value(attributes, "summary")
        folded = nodes.value(attributes, "fold")
        title = ""
        if folded and summary and summary != "Code":
            title = f"#code-summary[{escape(summary)}];\n\n"
        return title + self._code(text, "source", language, place, tail)

    def _output(self, attributes: nodes.Attr, blocks: list[Node]) -> str:
        kind = next(
            (c[12:] for c in attributes[1] if c.startswith("cell-output-")), "stdout"
        )
        written = []
        for block in blocks:
            if block["t"] == "CodeBlock":
                language = next(iter(block["c"][0][1]), "")
                written.append(self._code(block["c"][1], kind, language))
            else:
                written.append(self.block(block))
        return "\n\n".join(filter(None, written))

    def _float(self, attributes: nodes.Attr, blocks: list[Node]) -> str:
        kind = next((c[6:] for c in attributes[1] if c.startswith("float-")), "fig")
        caption, body = _captioned(blocks)
        return (
            f"#float({string(kind)}, {string(nodes.value(attributes, 'kind'))}, "
            f"{string(nodes.value(attributes, 'number'))}, {self._name(attributes)}, "
            f"{self.content(caption)})[\n{self.blocks(body)}];"
        )

    def _subfloat(self, attributes: nodes.Attr, blocks: list[Node]) -> str:
        caption, body = _captioned(blocks)
        letter = string(nodes.value(attributes, "number"))
        legend = f"{self._name(attributes)}, {self.content(caption)}"
        return f"#subfloat({letter}, {legend})[\n{self.blocks(body)}];"

    def _equation(self, attributes: nodes.Attr, blocks: list[Node]) -> str:
        math = next((n for n in nodes.walk(blocks) if n["t"] == "Math"), None)
        if math is None:
            return self.blocks(blocks)
        kind, tex = math["c"]
        number = nodes.value(attributes, "number")
        return (
            f"#equation({string(number)}, {self._name(attributes)}, "
            f"{string(tex.strip())}, {self._formula(kind, tex)});"
        )

    def _callout(self, attributes: nodes.Attr, blocks: list[Node]) -> str:
        kind = next((c[8:] for c in attributes[1] if c.startswith("callout-")), "note")
        title, body = _named(blocks, "callout-title", "callout-body")
        whole = "true" if _is_short(body) else "false"
        return (
            f"#callout({string(kind)}, {self.inside(_flat(title))}, {whole})"
            f"{self.inside(body, 18)};{self._label(attributes)}"
        )

    def _tabset(self, attributes: nodes.Attr, blocks: list[Node]) -> str:
        written = [self._label(attributes)]
        for tab in blocks:
            if tab["t"] != "Div":
                written.append(self.block(tab))
                continue
            title, body = _named(tab["c"][1], "tab-title", "tab-body")
            written.append(f"#tab({self.inside(_flat(title))}){self.inside(body, 9)};")
        return "\n\n".join(filter(None, written))

    def _references(self, attributes: nodes.Attr, blocks: list[Node]) -> str:
        entries = []
        for block in blocks:
            label, body = "", [block]
            if block["t"] == "Div":
                label, body = self._label(block["c"][0]), block["c"][1]
            words = "\n\n".join(self.block(part) for part in body)
            entries.append(f"#reference[{label}{words}];")
        return self._label(attributes) + "\n\n".join(entries)

    def _epigraph(self, attributes: nodes.Attr, blocks: list[Node]) -> str:
        return f"#epigraph{self.content(blocks)};{self._label(attributes)}"

    def _columns(self, attributes: nodes.Attr, blocks: list[Node]) -> str:
        count = int(nodes.value(attributes, "ncol") or len(blocks) or 1)
        narrower = (TEXT_WIDTH - self._inset) * (1 - 1 / count) + 10
        cells = ", ".join(self.content([block], narrower) for block in blocks)
        return f"#side-by-side({count}, {cells});"

    _kinds: dict[str, Callable[..., str]] = {
        "cell": _cell,
        "cell-output": _output,
        "float": _float,
        "subfloat": _subfloat,
        "equation": _equation,
        "callout": _callout,
        "tabset": _tabset,
        "references": _references,
        "epigraph": _epigraph,
        "layout": _columns,
    }

    # --- tables -----------------------------------------------------------

    def _table(self, content: list[Any]) -> str:
        attributes, (_, caption), columns, head, bodies, foot = content
        aligns = [_align(column[0]) for column in columns]
        self._nested += 1
        try:
            parts = [
                f"columns: ({_widths(columns)}), align: ({', '.join(aligns)},)",
            ]
            if not any(row[1] for row in head[1]):
                parts.append("headed: false")
            else:
                parts.append(f"table.header({self._rows(head[1])})")
            for body in bodies:
                parts += filter(None, [self._rows(body[2]), self._rows(body[3])])
            if foot[1]:
                parts.append(f"table.footer({self._rows(foot[1])})")
        finally:
            self._nested -= 1
        rows = sum(len(body[2]) + len(body[3]) for body in bodies)
        if rows <= WHOLE_TABLE:
            parts.append("whole: true")
        legend = f", caption: {self.content(caption)}" if caption else ""
        return f"#data-table({', '.join(parts)}{legend});{self._label(attributes)}"

    def _rows(self, rows: list[Any]) -> str:
        return ", ".join(self._table_cell(*cell) for _, cells in rows for cell in cells)

    def _table_cell(
        self, _: Any, align: Node, rowspan: int, colspan: int, blocks: list[Node]
    ) -> str:
        body = self.content(blocks)
        options = []
        if rowspan > 1:
            options.append(f"rowspan: {rowspan}")
        if colspan > 1:
            options.append(f"colspan: {colspan}")
        if align["t"] != "AlignDefault":
            options.append(f"align: {_align(align)}")
        return f"table.cell({', '.join(options)}){body}" if options else body

    # --- inlines ----------------------------------------------------------

    def inlines(self, inlines: list[Node]) -> str:
        return "".join(map(self.inline, inlines)).strip()

    def inline(self, node: Node) -> str:
        writer = getattr(self, "_i_" + node["t"].lower(), None)
        if writer is None:
            self._problem(f"got a {node['t']}, which the PDF writer does not know")
            return ""
        return writer(node.get("c"))

    def _wrapped(self, function: str, inlines: list[Node]) -> str:
        before, words, after = _trim("".join(map(self.inline, inlines)))
        return f"{before}#{function}[{words}];{after}" if words else before + after

    def _i_str(self, text: str) -> str:
        return "#brk;".join(escape(piece) for piece in pieces(text, 22))

    def _i_space(self, _: None) -> str:
        return " "

    def _i_softbreak(self, _: None) -> str:
        return "\n"

    def _i_linebreak(self, _: None) -> str:
        return "#linebreak();"

    def _i_emph(self, inlines: list[Node]) -> str:
        return self._wrapped("emph", inlines)

    def _i_strong(self, inlines: list[Node]) -> str:
        return self._wrapped("strong", inlines)

    def _i_underline(self, inlines: list[Node]) -> str:
        return self._wrapped("underline", inlines)

    def _i_strikeout(self, inlines: list[Node]) -> str:
        return self._wrapped("strike", inlines)

    def _i_superscript(self, inlines: list[Node]) -> str:
        return self._wrapped("super", inlines)

    def _i_subscript(self, inlines: list[Node]) -> str:
        return self._wrapped("sub", inlines)

    def _i_smallcaps(self, inlines: list[Node]) -> str:
        return self._wrapped("small-caps", inlines)

    def _i_quoted(self, content: list[Any]) -> str:
        marks = "‘’" if content[0]["t"] == "SingleQuote" else "“”"
        return marks[0] + "".join(map(self.inline, content[1])) + marks[1]

    def _i_cite(self, content: list[Any]) -> str:
        return "".join(map(self.inline, content[1]))

    def _i_code(self, content: list[Any]) -> str:
        attributes, text = content
        parts = ", ".join(string(piece) for piece in pieces(text))
        return f"#c({parts});{self._label(attributes)}" if parts else ""

    def _i_math(self, content: list[Any]) -> str:
        kind, tex = content[0]["t"], content[1]
        function = "m" if kind == "InlineMath" else "display"
        return f"#{function}({string(tex.strip())}, {self._formula(content[0], tex)});"

    def _i_rawinline(self, content: list[str]) -> str:
        if content[0] == "html" and re.fullmatch(r"<br\s*/?>", content[1].strip()):
            return "#linebreak();"
        return content[1] if content[0] == "typst" else ""

    def _i_note(self, blocks: list[Node]) -> str:
        return f"#footnote{self.inside(blocks)};"

    def _i_span(self, content: list[Any]) -> str:
        attributes, inlines = content
        classes = attributes[1]
        label = self._label(attributes)
        for name in ("evidence", "badge", "underline", "kbd", "place"):
            match = next((c for c in classes if c.split("-")[0] == name), None)
            if match:
                rest = [c.removeprefix(name + "-") for c in classes if c != name]
                kind = " ".join(rest)
                function = {
                    "evidence": "evidence",
                    "badge": f"badge({string(kind)})",
                    "underline": "underline",
                    "kbd": "kbd",
                    "place": "place-name",
                }[name]
                return self._wrapped(function, inlines) + label
        if "smallcaps" in classes:
            return self._wrapped("small-caps", inlines) + label
        return "".join(map(self.inline, inlines)) + label

    def _i_link(self, content: list[Any]) -> str:
        attributes, inlines, (url, _) = content
        before, words, after = _trim("".join(map(self.inline, inlines)))
        label = self._label(attributes)
        if _EXTERNAL.match(url):
            words = self._url_words(url, inlines) or words
            return f"{before}#web({string(url)})[{words}];{after}{label}"
        target = self._target(url)
        if not target:
            return before + words + after + label
        return f"{before}#goto({string(target)})[{words}];{after}{label}"

    def _url_words(self, url: str, inlines: list[Node]) -> str:
        """The address as text that may break, where it is its own link text."""
        shown = nodes.plain_text(inlines).strip()
        if len(shown) < 25 or shown not in (url, url.removeprefix("mailto:")):
            return ""
        return "#brk;".join(
            escape(part) for part in re.split(r"(?<=[/.?&=_-])(?=\w)", shown)
        )

    def _i_image(self, content: list[Any]) -> str:
        return f"#inline-image({self._image(content)});"

    def _display_image(self, content: list[Any]) -> str:
        return f"#image-block({self._image(content)});{self._label(content[0])}"

    def _image(self, content: list[Any]) -> str:
        """Arguments `path, width, alternative text` of an image function."""
        attributes, inlines, (source, title) = content
        try:
            picture = self.picture(source)
        except ValueError as error:
            self._problem(str(error))
            picture = Picture("", None)
        given = _LENGTH.match(nodes.value(attributes, "width"))
        width = f"{picture.width:.2f}pt" if picture.width else "auto"
        if given and given[2] == "%":
            width = f"{float(given[1]):g}%"
        elif given:
            width = f"{float(given[1]) * _POINTS[given[2] or 'px']:.2f}pt"
        alternative = (
            nodes.value(attributes, "fig-alt")
            or nodes.value(attributes, "alt")
            or nodes.plain_text(inlines).strip()
            or title
            or "Illustration"
        )
        return f"{string(picture.path)}, {width}, {string(alternative)}"

    # --- helpers ----------------------------------------------------------

    def _formula(self, kind: Node, tex: str) -> str:
        return self.math[(kind["t"], tex)]

    def _target(self, url: str) -> str | None:
        """The label a link leads to; None where it leads out of this PDF."""
        if url.startswith("ref:"):
            found = self.targets.unique.get(url[4:])
            if found is None and url[4:] not in self.page.targets:
                self._problem(f"got a reference to {url[4:]!r}, which no page defines")
            return found
        path, _, ident = url.partition("#")
        rel = self.rel
        if path:
            choices = (normpath(path), normpath(join(dirname(self.rel), path)))
            rel = next((c for c in choices if c in self.targets.pages), "")
            if not rel:
                return None
        found = self.targets.pages[rel].get(ident)
        if found is None:
            self._problem(f"got a link to {url!r}, but {rel} has no id {ident!r}")
        return found

    def _name(self, attributes: nodes.Attr) -> str:
        """The label for an element as a Typst argument, or `none`."""
        label = self.targets.pages[self.rel].get(attributes[0])
        if not attributes[0] or label is None or label in self._labelled:
            return "none"
        self._labelled.add(label)
        return string(label)

    def _label(self, attributes: nodes.Attr) -> str:
        """An invisible place with the id's label, or nothing."""
        name = self._name(attributes)
        return "" if name == "none" else f"#anchor({name});"

    def _here(self) -> str:
        return f"\n//@ {self._line}\n"

    def _problem(self, message: str) -> None:
        self.problems.append(Problem(self.rel, self._line, message))

    def _next_heading(self, level: int) -> int:
        """The source line of the next heading of this level."""
        while self._headings:
            line, found = self._headings.pop(0)
            if found == level:
                return line
        return self._line


def _is_output(block: Node) -> bool:
    """Whether a block of a cell is an output, or the figure or table made of it."""
    names = ("cell-output", "float-fig", "float-tbl")
    return any(nodes.has_class(block, name) for name in names)


def _heading_lines(text: str) -> list[tuple[int, int]]:
    """(line, level) of each heading in the chapter's source, fences left out."""
    found = []
    fence = ""
    for number, line in enumerate(text.split("\n"), 1):
        if mark := _FENCE_LINE.match(line):
            if not fence:
                fence = mark[1]
            elif line.strip().startswith(fence):
                fence = ""
        elif not fence and (heading := _HEADING_LINE.match(line)):
            found.append((number, len(heading[1])))
    return found


def _captioned(blocks: list[Node]) -> tuple[list[Node], list[Node]]:
    """A float's caption and the rest of it."""
    caption: list[Node] = []
    body: list[Node] = []
    for block in blocks:
        if block["t"] == "Div" and "float-caption" in block["c"][0][1]:
            caption += block["c"][1]
        else:
            body.append(block)
    return caption, body


def _named(blocks: list[Node], *classes: str) -> list[list[Node]]:
    """The children of the first Div of each class."""
    return [
        next(
            (b["c"][1] for b in blocks if b["t"] == "Div" and name in b["c"][0][1]),
            [],
        )
        for name in classes
    ]


def _is_short(blocks: list[Node], most: int = 700) -> bool:
    """Whether a box of these blocks is small enough to stay on one page."""
    return len(nodes.plain_text(blocks)) < most and not any(
        node["t"] in ("Image", "Table") for node in nodes.walk(blocks)
    )


def _flat(blocks: list[Node]) -> list[Node]:
    """Paragraphs and headings as plain lines, for a title."""
    flat = []
    for block in blocks:
        if block["t"] == "Para":
            flat.append(nodes.plain(block["c"]))
        elif block["t"] == "Header":
            flat.append(nodes.plain(block["c"][2]))
        else:
            flat.append(block)
    return flat


def _trim(words: str) -> tuple[str, str, str]:
    """Markup as (white space, words, white space)."""
    core = words.strip()
    if not core:
        return (" " if words else "", "", "")
    return (
        " " if words[0].isspace() else "",
        core,
        " " if words[-1].isspace() else "",
    )


def _is_task(item: list[Node]) -> bool:
    return nodes.plain_text(item[:1]).startswith(("☐", "☒"))


def _tight(items: list[list[Node]]) -> str:
    tight = all(item and item[0]["t"] == "Plain" for item in items)
    return f"tight: {'true' if tight else 'false'}, "


def _align(align: Node) -> str:
    return {"AlignRight": "right", "AlignCenter": "center"}.get(align["t"], "left")


def _widths(columns: list[Any]) -> str:
    """Typst column widths; equal ones say nothing, so the contents decide."""
    given = [c[1]["c"] if c[1]["t"] == "ColWidth" else None for c in columns]
    known = {round(width, 3) for width in given if width is not None}
    if None in given or len(known) < 2:
        return "auto, " * len(columns)
    return "".join(f"{width:.4g}fr, " for width in given)
